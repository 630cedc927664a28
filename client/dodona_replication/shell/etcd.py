"""The coordinator of many machines: documents in etcd.

Owns: the requests to etcd, which member gets them, and what their answers mean. A read is a
linearizable Range. A compare is one Txn: it stores the document if the revision is right, else it
returns the document that is there. A watch is a read, and then a Watch from behind it.

Invariants: after a Txn was sent once, this module never sends it again. Leases of etcd are not
used: nothing ends here because time passed. All calls run in the loop of `etcd_loop`.
Must not import: anything that is imported before etcd is used (`aetcd` and gRPC take a moment, and
do not survive a fork).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

from aetcd import rpc

from dodona_replication.core.coordination import Answer, Applied, InDoubt, NewestSeen, Refused
from dodona_replication.core.document import Document, Revisioned, decode, encode
from dodona_replication.core.errors import DocumentMissing
from dodona_replication.shell.coordinator import readable
from dodona_replication.shell.etcd_loop import in_etcd_loop, streamed
from dodona_replication.shell.etcd_member import MS_PER_S, CallFailed, EtcdMember
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_replication.shell.etcd_watch import events_of
from dodona_server.process import read_clock
from dodona_wire.errors import LimitExceeded, Unavailable

PAGE_KEYS_MAX: Final = 512
"""Keys of one page. With documents of the largest size it has half of the bytes that gRPC takes."""
PAGES_MAX: Final = 200
_logger: Final = logging.getLogger("dodona.etcd")

_Call = Callable[[EtcdMember, float], Awaitable[Any]]


class EtcdCoordinator:
    """The documents in etcd, as a `Coordinator`. Use it in any event loop."""

    def __init__(self, options: EtcdOptions) -> None:
        self._options = options
        self._members = [EtcdMember(it, options) for it in options.members]
        self._place = 0
        """Of the member that is asked next: it stays the same until it fails."""
        self._closing = asyncio.Event()
        self._made_us = read_clock().instant_us

    async def read(self, log: str) -> Revisioned | None:
        """See `Coordinator.read`. Asks the members in turn for up to `call_ms_max`."""
        return _found(log, await in_etcd_loop(self._range(log)))

    async def documents(self) -> dict[str, Revisioned]:
        """See `Coordinator.documents`."""
        prefix = self._options.prefix
        found = await in_etcd_loop(self._all_of(prefix))
        pairs = {it.key.removeprefix(prefix).decode(errors="replace"): it for it in found}
        return readable(pairs, lambda log: _revisioned(log, pairs[log]))

    async def compare(self, log: str, revision: int | None, document: Document) -> Answer:
        """See `Coordinator.compare`. It goes on to the next member only if the one before has
        certainly not done it."""
        request = _txn(self._options.key(log), revision, encode(log, document))
        try:
            answer = await in_etcd_loop(
                self._ask(lambda it, wait_s: it.txn(request, wait_s), may_repeat=False)
            )
        except CallFailed as error:
            return InDoubt(str(error))
        if answer.succeeded:
            return Applied(answer.header.revision)
        return Refused(_found(log, answer.responses[0].response_range))

    async def watch(self, log: str, after_revision: int) -> AsyncGenerator[Revisioned]:
        """See `Coordinator.watch`. It begins again if a member is silent for `silence_ms_max`."""
        async with aclosing(streamed(lambda: self._watch(log, after_revision))) as found:
            async for current in found:
                yield current

    async def _watch(self, log: str, after_revision: int) -> AsyncGenerator[Revisioned]:
        seen = NewestSeen(after_revision)
        pause_ms = self._options.pause_ms
        while not self._closing.is_set():
            try:
                async with aclosing(self._watch_once(log, seen)) as found:
                    async for current in found:
                        pause_ms = self._options.pause_ms
                        yield current
            except (CallFailed, Unavailable) as error:
                _logger.info("the watch of log %s begins again: %s", log, error)
            await self._pause(pause_ms)
            pause_ms = min(2 * pause_ms, self._options.watch_pause_ms_max)

    def silent_us(self) -> int:
        """See `Coordinator.silent_us`. An open watch gets a sign of life every `progress_ms`, and
        only from a member with a leader."""
        heard_us = max(self._made_us, *(it.heard_us for it in self._members))
        return max(0, read_clock().instant_us - heard_us)

    async def close(self) -> None:
        """Close all connections. Watches end. A repeat is harmless."""
        await in_etcd_loop(self._close())

    async def _close(self) -> None:
        self._closing.set()
        for member in self._members:
            await member.close()

    async def _watch_once(self, log: str, seen: NewestSeen) -> AsyncGenerator[Revisioned]:
        """Read, then watch from behind the read, so that nothing is missed and nothing that etcd
        has compacted is asked for."""
        answer = await self._range(log)
        current = _found(log, answer)
        if current is None and seen.revision > 0:
            raise _missing(log)
        if current is not None and seen.take(current):
            yield current
        member, key, start = self._member(), self._options.key(log), answer.header.revision + 1
        try:
            async with aclosing(events_of(member, key, start, self._options)) as events:
                async for event in events:
                    if event.type == rpc.Event.DELETE:
                        raise _missing(log)
                    current = _revisioned(log, event.kv)
                    if seen.take(current):
                        yield current
        except CallFailed:
            self._leave(member)
            raise

    async def _all_of(self, prefix: bytes) -> list[Any]:
        """Return the pairs of all keys with this prefix, as of one revision. They come in pages: an
        answer of gRPC has at most 4 MB. Raises LimitExceeded."""
        key, end, revision = prefix, _end_of(prefix), 0
        pairs: list[Any] = []
        for _ in range(PAGES_MAX):
            answer = await self._ranged(
                rpc.RangeRequest(key=key, range_end=end, limit=PAGE_KEYS_MAX, revision=revision)
            )
            pairs += answer.kvs
            if not answer.more:
                return pairs
            key, revision = answer.kvs[-1].key + b"\0", revision or answer.header.revision
        raise LimitExceeded(
            f"etcd has more than {PAGES_MAX * PAGE_KEYS_MAX} documents of cluster "
            f"{self._options.cluster}: remove those of logs that do not exist",
            cluster=self._options.cluster,
        )

    async def _range(self, log: str) -> Any:
        return await self._ranged(rpc.RangeRequest(key=self._options.key(log)))

    async def _ranged(self, request: Any) -> Any:
        """A read is linearizable, by default."""
        return await self._ask(lambda it, wait_s: it.range(request, wait_s), may_repeat=True)

    async def _ask(self, call: _Call, *, may_repeat: bool) -> Any:
        """Ask the members in turn. Raises Unavailable if none of them did it, and CallFailed if one
        may have done it and the call may not be repeated."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._options.call_ms_max / MS_PER_S
        reasons: dict[str, str] = {}
        asked_count = 0
        while (left_s := until_s - loop.time()) > 0 and not self._closing.is_set():
            member = self._member()
            try:
                return await call(member, min(left_s, self._options.attempt_ms_max / MS_PER_S))
            except CallFailed as error:
                reasons[str(member.endpoint)] = str(error)
                self._leave(member)
                if error.may_be_done and not may_repeat:
                    raise
            asked_count += 1
            if asked_count % len(self._members) == 0:
                await self._pause(self._options.pause_ms)
        raise self._unavailable(reasons)

    def _member(self) -> EtcdMember:
        return self._members[self._place]

    def _leave(self, member: EtcdMember) -> None:
        """Go to the next member, unless another call has done so."""
        if self._member() is member:
            self._place = (self._place + 1) % len(self._members)

    async def _pause(self, pause_ms: int) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), pause_ms / MS_PER_S)

    def _unavailable(self, reasons: dict[str, str]) -> Unavailable:
        if self._closing.is_set():
            return Unavailable("this coordinator is closed: make another one")
        wait_ms, each = self._options.call_ms_max, "; ".join(reasons.values())
        return Unavailable(
            f"etcd did not answer in {wait_ms} ms: {each}; check that most of its members run and "
            "can be reached",
            endpoints=[str(it.endpoint) for it in self._members],
        )


def _txn(key: bytes, revision: int | None, value: bytes) -> Any:
    """Return the one request that compares and stores, or returns what is there."""
    return rpc.TxnRequest(
        compare=[
            rpc.Compare(
                key=key,
                target=rpc.Compare.MOD,
                result=rpc.Compare.EQUAL,
                mod_revision=revision or 0,  # 0: there is no such key
            )
        ],
        success=[rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value))],
        failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key))],
    )


def _end_of(prefix: bytes) -> bytes:
    """Return the first key behind all keys with this prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _found(log: str, answer: Any) -> Revisioned | None:
    return _revisioned(log, answer.kvs[0]) if answer.kvs else None


def _revisioned(log: str, pair: Any) -> Revisioned:
    return Revisioned(decode(log, pair.value), pair.mod_revision)


def _missing(log: str) -> DocumentMissing:
    text = f"the document of log {log} was removed from etcd: stop the process, and restore it"
    return DocumentMissing(text, log=log)
