"""Link a node to the oracle, to the master, and to the cells that share its transactions.

Owns: how `AskTimestamps`, `SendToCell` and `SendHeartbeat` are carried out, and how the answers
reach the core. If an answer does not arrive, the core asks again, so nothing here retries.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from dodona_server.logs import tell
from dodona_server.master_peer import MasterPeer
from dodona_server.runtime import Runtime
from dodona_tablets.core.node import NodeCore
from dodona_wire.cores.batcher import Batcher
from dodona_wire.cores.effects import AskTimestamps, SendHeartbeat, SendToCell
from dodona_wire.errors import DataCorrupted, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment, Heartbeat
from dodona_wire.messages.codec import RequestEnvelope
from dodona_wire.messages.data import (
    CommitOne,
    ConditionalCommit,
    GenerateTimestamps,
    Prepare,
    TimestampRange,
    ValidatedCommit,
)
from dodona_wire.messages.families import Reply
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Peer
from dodona_wire.net.rpc_urls import rpc_url
from dodona_wire.net.silence import Silence
from dodona_wire.types import CellId

ORACLE_TIMEOUT_MS: Final = 2_000
COMMITS: Final = frozenset({CommitOne, Prepare, ConditionalCommit, ValidatedCommit})

_logger: Final = logging.getLogger("dodona.links")


class Links:
    """The links of a node: effects go out, and inputs come back in. Call `open` on the running
    loop, before the runtime starts."""

    _oracle: MasterPeer
    _runtime: Runtime

    def __init__(self, core: NodeCore, master_url: str, key: ClusterKey | None = None) -> None:
        self._core = core
        self._master_url = master_url
        self._key = key
        self._peers: dict[CellId, tuple[str, Peer]] = {}
        self._batcher: Batcher[Any] = Batcher()
        self._is_asking = False
        self._is_idle = True
        """Whether no caller waits for any of the timestamps to ask for."""
        self._foreseen: list[Any] = []
        self._foreseen_left = 0
        self._why_no_timestamps: str | None = None
        """Why the oracle gave none the last time, or None."""
        self._heartbeats: dict[asyncio.Task[None], Heartbeat] = {}
        """Heartbeats that were sent and not answered yet."""
        self._next_heartbeat: Heartbeat | None = None
        self._closing: list[asyncio.Task[None]] = []
        self.refusal: str | None = None
        """Why the master did not take the last heartbeat, or None."""

    def open(self, runtime: Runtime) -> None:
        """Open the link to the oracle. From now on effects can be carried out. Their answers go to
        this runtime."""
        self._runtime = runtime
        self._oracle = MasterPeer(self._master_url, timeout_ms=ORACLE_TIMEOUT_MS, key=self._key)

    def handlers(self) -> dict[type[Any], Any]:
        """Return what the runtime calls for each kind of effect."""
        return {
            AskTimestamps: self._ask_timestamps,
            SendToCell: self._send_to_cell,
            SendHeartbeat: self._send_heartbeat,
        }

    async def close(self) -> None:
        for heartbeat in self._heartbeats:
            heartbeat.cancel()
        peers = [peer for _, peer in self._peers.values()]
        await asyncio.gather(*[peer.close() for peer in [self._oracle, *peers]])

    # Timestamps: one request in flight, for all effects that came before it was sent

    def foresee(self, envelopes: Sequence[RequestEnvelope]) -> None:
        """Ask early for the timestamps that the commits of a frame will need, so that the oracle
        works while the core does. The core takes the locks of these commits before it sees any
        other input. So no reader sees a difference from asking afterwards (the commit protocol,
        rule 1)."""
        self._foreseen_left = 0
        if self._is_asking:
            return
        count = sum([type(body) in COMMITS for _, body in envelopes])
        if count:
            self._is_asking = True
            self._foreseen_left = count
            self._oracle.ask(GenerateTimestamps(count), self._deal_foreseen)

    def _deal_foreseen(self, reply: Reply) -> None:
        tokens, self._foreseen = self._foreseen, []
        self._foreseen_left = 0  # the request may have failed before the core saw the frame
        if isinstance(reply, TimestampRange) and self._is_fresh(reply):
            self._why_no_timestamps = None
            shares = zip(tokens, range(reply.first, reply.first + reply.count), strict=False)
            self._runtime.call_each(self._core.handle_timestamp, shares)
        else:
            self._warn(len(tokens), reply)
        self._send_question()

    def _is_fresh(self, reply: TimestampRange) -> bool:
        try:
            self._batcher.witness(reply.first, reply.count)
        except DataCorrupted as error:
            _logger.error("%s", error)
            return False
        return True

    def _ask_timestamps(self, effect: AskTimestamps) -> None:
        if self._foreseen_left:
            self._foreseen_left -= 1
            self._foreseen.append(effect.token)
            return
        self._batcher.add(effect.token)
        self._is_idle &= effect.is_idle
        if not self._is_asking:
            self._is_asking = True
            asyncio.get_running_loop().call_soon(self._send_question)

    def _send_question(self) -> None:
        count = self._batcher.next_batch_count()
        if count is None:
            self._is_asking = False
        else:
            is_idle, self._is_idle = self._is_idle, True
            self._oracle.ask(GenerateTimestamps(count, is_idle), self._deal)

    def _deal(self, reply: Reply) -> None:
        try:
            self._share_out(reply)
        except DataCorrupted as error:
            _logger.error("%s", error)
            self._batcher.fail()
        self._send_question()

    def _share_out(self, reply: Reply) -> None:
        if isinstance(reply, TimestampRange):
            self._why_no_timestamps = None
            shares = [(token, at) for token, at, _ in self._batcher.split(reply.first)]
            self._runtime.call_each(self._core.handle_timestamp, shares)
        else:
            self._warn(len(self._batcher.fail()), reply)

    def _warn(self, count: int, reply: Reply) -> None:
        """Report that the oracle gave no timestamps. The core asks again for those that it still
        needs."""
        reason = reply.message if isinstance(reply, Failure) else type(reply).__name__
        if reason != self._why_no_timestamps:  # else it was logged: cells ask again and again
            text = f"the oracle gave none of {count} timestamps: {reason}"
            tell(_logger, logging.WARNING, "no_timestamps", text, count=count, reason=reason)
        self._why_no_timestamps = reason
        self._runtime.call(self._core.note_oracle_failure, reason)

    # Other cells

    def _send_to_cell(self, effect: SendToCell) -> None:
        known = self._peers.get(effect.cell)
        if known is not None:  # else its address is not known yet: the core sends it again
            known[1].post(effect.body)

    def _learn(self, addresses: dict[CellId, str]) -> None:
        for cell, address in addresses.items():
            known = self._peers.get(cell)
            if known is not None and known[0] == address:
                continue
            if known is not None:
                self._closing = [task for task in self._closing if not task.done()]
                self._closing.append(asyncio.create_task(known[1].close()))
            silence = Silence(f"cell {cell} at {address}", {"cell": cell, "address": address})
            peer = Peer(rpc_url(address, cell), key=self._key, silence=silence)
            self._peers[cell] = (address, peer)

    # The master: one heartbeat at a time, and the newest next. The next one need not wait for an
    # answer that the master may hold back. The master answers as soon as it has the next.

    def _send_heartbeat(self, effect: SendHeartbeat) -> None:
        if all(it.hold_ms for it in self._heartbeats.values()) and len(self._heartbeats) < 2:
            task = asyncio.create_task(self._beat(effect.body))
            self._heartbeats[task] = effect.body
            task.add_done_callback(self._end_beat)
        else:
            self._next_heartbeat = effect.body

    def _end_beat(self, task: asyncio.Task[None]) -> None:
        del self._heartbeats[task]
        if not task.cancelled() and task.exception() is not None:
            self._tell_no_heartbeat(repr(task.exception()))
        if self._next_heartbeat is not None and not task.cancelled():
            body, self._next_heartbeat = self._next_heartbeat, None
            self._send_heartbeat(SendHeartbeat(body))

    async def _beat(self, body: Heartbeat) -> None:
        reply = await self._oracle.tell(body)
        if isinstance(reply, Assignment):
            self.refusal = None
            self._learn(reply.addresses)
            self._runtime.call(self._core.handle_assignment, reply)
        elif isinstance(reply, Failure) and reply.kind == Unavailable.kind:
            self._tell_no_heartbeat(reply.message)
        else:
            reason = reply.message if isinstance(reply, Failure) else type(reply).__name__
            text = f"the master refused a heartbeat: {reason}"
            if text != self.refusal:
                tell(_logger, logging.ERROR, "heartbeat_refused", text, reason=reason)
            self.refusal = text

    def _tell_no_heartbeat(self, reason: str) -> None:
        if reason != self.refusal:  # else it was logged: there are several heartbeats a second
            tell(_logger, logging.WARNING, "no_heartbeat", reason, reason=reason)
        self.refusal = reason
