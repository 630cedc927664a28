"""The links of an owner to the replicas of its log.

Owns: which replica is at which address, and one connection to each. Addresses are settings. The id
of a replica belongs to its disk (R8), so it is learned. A replica that is asked under another id
answers with its own. An address is asked again and again until it has answered so.

Limits: each call ends after `CALL_MS_MAX`. A replica that answers nothing for so long has been
dropped by the owner before. Belongs to one event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from dodona_replication.core.document import MEMBERS_MAX
from dodona_replication.core.owner_effects import AskReplica
from dodona_server.logs import tell
from dodona_wire.cores.copies import SPARE, UNKNOWN, ReplicaState
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply
from dodona_wire.messages.replicas import AwaitSilence, LogSilence, PingLog, WrongReplica
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Peer
from dodona_wire.net.rpc_urls import rpc_url
from dodona_wire.net.silence import Silence

CALL_MS_MAX: Final = 2_000
"""How long a call waits for its answer, ms."""
GREETING_PAUSE_S: Final = 0.2
"""The pause before an address is asked again who is there."""
ADDRESSES_MAX: Final = 4 * MEMBERS_MAX
"""Replicas that one owner may know."""
NO_ID: Final = ""
"""No replica has this id, so each answers with its own."""

_logger: Final = logging.getLogger("dodona.replication")

Answered = Callable[[Reply], None]


class ReplicaLinks:
    """The connections to the replicas at these addresses."""

    def __init__(
        self,
        cluster: str,
        log: str,
        addresses: Sequence[str],
        key: ClusterKey | None = None,
    ) -> None:
        """`addresses` are `host:port` or http(s) URLs. Nothing is sent yet. Raises
        InvalidRequest."""
        if not 0 < len(addresses) <= ADDRESSES_MAX or len({*addresses}) < len(addresses):
            raise InvalidRequest(
                f"A log needs the addresses of 1 to {ADDRESSES_MAX} replicas, and none twice."
            )
        self._greeting = PingLog(cluster, log, NO_ID, 1, 0)
        self._addresses = tuple(addresses)
        self._key = key
        self._peers: dict[str, Peer] = {}
        self._ids: dict[str, str] = {}
        """The id of the replica that answered last at each address."""
        self.faults: dict[str, str] = {}
        """Why it is not known which replica is at an address."""
        self._greeter: asyncio.Task[None] | None = None
        self._hear: Callable[[], None] = lambda: None

    def open(self, hear: Callable[[], None]) -> None:
        """Ask who is at the addresses. `hear` is called when that has changed."""
        assert not self._peers
        self._hear = hear
        for address in self._addresses:
            names = {"server": "replica", "address": address}
            silence = Silence(f"the replica at {address}", names)
            url = rpc_url(address)
            peer = Peer(url, timeout_ms=CALL_MS_MAX, key=self._key, silence=silence)
            self._peers[address] = peer
        self._greeter = asyncio.create_task(self._greet_all())

    async def close(self) -> None:
        """Close the connections. Each call that is under way gets a Failure first."""
        if self._greeter is not None:
            self._greeter.cancel()
            await asyncio.wait([self._greeter])
        peers, self._peers = self._peers, {}
        await asyncio.gather(*[peer.close() for peer in peers.values()])

    @property
    def replicas(self) -> tuple[str, ...]:
        """The ids of the replicas that are known, in the order of their addresses."""
        return tuple(self._ids[it] for it in self._addresses if it in self._ids)

    @property
    def reachable(self) -> frozenset[str]:
        """The ids of the replicas that have answered last."""
        peers = self._peers.items()
        silent = {at for at, peer in peers if peer.silence.since is not None}
        return frozenset(it for at, it in self._ids.items() if at not in silent)

    def place_of(self, replica: str) -> str:
        """Return the address of a replica, or its id while no address is known for it."""
        return next((at for at, it in self._ids.items() if it == replica), replica)

    def look(self) -> Sequence[ReplicaState]:
        """Return what is known of the replica at each address: who it is, and whether it answers.
        Call this in the event loop."""
        now_s = asyncio.get_running_loop().time()
        found = []
        for address in self._addresses:
            peer = self._peers.get(address)
            since_s = None if peer is None else peer.silence.since
            found.append(
                ReplicaState(
                    address,
                    SPARE if address in self._ids else UNKNOWN,
                    self._ids.get(address, NO_ID),
                    silent_us=0 if since_s is None else int((now_s - since_s) * 1e6),
                    reason="" if address in self._ids else self.faults.get(address, ""),
                )
            )
        return found

    def ask(self, asked: AskReplica, then: Answered) -> None:
        """Send a request. `then` gets the answer, or a Failure. This may be within this call."""
        address = self.place_of(asked.replica)
        peer = self._peers.get(address)
        if peer is None:
            text = f"no replica at {', '.join(self._addresses)} has the id {asked.replica}"
            then(Failure("unavailable", text, {"is_sent": False}))
            return

        def take(reply: Reply) -> None:
            if isinstance(reply, WrongReplica):
                self._learn(address, reply.replica)
            then(reply)

        peer.ask(asked.request, take)

    async def ask_epoch(self, replica: str, epoch: int) -> int:
        """Return the epoch of the log at a replica, as far as it is above this one, else 0. To the
        replica, the question is no sign of life of the owner."""
        body = self._greeting
        request = AwaitSilence(body.cluster, body.log, replica, epoch, 1, 1)
        peer = self._peers.get(self.place_of(replica))
        reply = None if peer is None else await peer.call(request)
        return reply.epoch if isinstance(reply, LogSilence) and reply.epoch > epoch else 0

    async def _greet_all(self) -> None:
        """Ask each address that has not answered, until the links are closed."""
        while True:
            strange = [it for it in self._addresses if it not in self._ids]
            if strange:
                await asyncio.gather(*[self._greet(it) for it in strange])
            await asyncio.sleep(GREETING_PAUSE_S)

    async def _greet(self, address: str) -> None:
        reply = await self._peers[address].call(self._greeting)
        if isinstance(reply, WrongReplica):
            self._learn(address, reply.replica)
            return
        reason = reply.message if isinstance(reply, Failure) else f"it is {type(reply).__name__}"
        self._note_fault(address, reason)

    def _note_fault(self, address: str, reason: str) -> None:
        if self.faults.get(address) != reason:  # else it was logged
            text = f"the replica at {address} does not say its id: {reason}"
            tell(_logger, logging.WARNING, "no_replica", text, address=address, reason=reason)
        self.faults[address] = reason

    def _learn(self, address: str, replica: str) -> None:
        """Note which replica is at an address. Each is at one: at the first that answers."""
        place = self.place_of(replica)
        if place == address:
            return
        if place in self._peers and self._peers[place].silence.since is None:
            self._note_fault(address, f"it is the replica {replica}, which is at {place}, too")
            return
        self.faults.pop(address, None)
        self._ids = {at: it for at, it in self._ids.items() if it != replica}
        self._ids[address] = replica
        text = f"the replica at {address} is {replica}"
        tell(_logger, logging.INFO, "replica_known", text, address=address, replica=replica)
        self._hear()
