"""Timestamps for many callers: one request in flight, one future for some dozens of callers.

Owns: which proxy is asked, and what happens when it does not answer. The rule that keeps
timestamps monotonic is the batcher's. A batch that a proxy failed is asked for again, from the next
proxy: its callers came before the new request is sent, so they may be served from it.
A caller is a place in a group, and a group a future: waking a task is then all that is left to do
for each of them. What comes back is given to one half of the groups, and an iteration of the loop
later to the other: what the first ask next is on its way while the others still work.
Bounded: groups waiting, the time a batch may take, and the back-off when no proxy answers.
Belongs to one event loop; must not be used from another thread.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from dodona_wire.cores.batcher import Batcher
from dodona_wire.errors import (
    DataCorrupted,
    DodonaError,
    InvalidRequest,
    Overloaded,
    error_from_wire,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Peer, rpc_url
from dodona_wire.net.silence import BRIEF_SECONDS, DEAD_AFTER_SECONDS, Silence
from dodona_wire.net.urls import hide_password
from dodona_wire.types import TIMESTAMPS_PER_REQUEST_MAX, Timestamp

GROUP_COUNT_MAX: Final = 64
"""Timestamps of a group, but for one who asks for more at a time."""
GROUPS_MAX: Final = 16_384
"""Groups that wait: about a million callers."""
TIMEOUT_MS: Final = 10_000
"""How long a batch is asked for, from proxy to proxy, before its callers fail."""
PROXY_TIMEOUT_MS: Final = 4_000
"""How long one proxy may take: a little longer than it lets the master take."""
BACKOFF_MS_FIRST: Final = 20
BACKOFF_MS_MAX: Final = 500
BACKOFF_MS_STARTING: Final = 50
STARTING_ROUNDS_MAX: Final = 40
"""So often the pauses stay short, as the server is probably just being started again."""

_log = logging.getLogger("dodona.oracle")

Discover = Callable[[], Awaitable[Sequence[str]]]


class _Group:
    """Callers who wait together. Their future comes to the first of their timestamps, to a Failure,
    or to None: then they wait again, since one of them has gone."""

    __slots__ = ("_loop", "count", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.count = 0
        self.future = self._wait()

    def settle(self, end: Timestamp | Failure) -> None:
        self.future.set_result(end)

    def _wait(self) -> "asyncio.Future[Timestamp | Failure | None]":
        future: asyncio.Future[Timestamp | Failure | None] = self._loop.create_future()
        # What cancels a task cancels what it waits for. A subclass would do, too, but asyncio's
        # short ways are for futures of its own class.
        future.cancel = self._let_go  # type: ignore[method-assign]
        return future

    def _let_go(self, msg: object = None) -> bool:
        """One of the callers is cancelled: it must hear of it at once, and the others wait on.
        → False, so that its task ends by itself when it wakes."""
        future = self.future
        if not future.done():
            self.future = self._wait()
            future.set_result(None)
        return False


class OracleClient:
    """Asks proxies (or a master: it speaks the same words) for timestamps."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        discover: Discover | None = None,
        timeout_ms: int = TIMEOUT_MS,
        key: ClusterKey | None = None,
    ) -> None:
        """`addresses`: where to ask, in this order. `discover` is awaited when none of them
        answered, and names those to ask from then on."""
        assert addresses
        assert timeout_ms > 0
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout_ms / 1000
        self._proxy_timeout_ms = min(timeout_ms, PROXY_TIMEOUT_MS)
        self._discover = discover
        self._key = key
        self._peers = {address: self._peer(address) for address in addresses}
        self._address = addresses[0]
        self._batcher: Batcher[_Group] = Batcher()
        self._full = _Group(self._loop)  # who finds it opens a group
        self._full.count = GROUP_COUNT_MAX
        self._group = self._full
        self._gathering: list[_Group] = []
        self._waiting_count = 0
        self._is_busy = False  # a batch is away, or is sent at the end of this iteration
        self._batch_count = 0
        self._batch_deadline = 0.0
        self._attempt_count = 0
        self._searching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._peers)

    @property
    def silence(self) -> Silence:
        """Of the server that is asked now."""
        return self._peers[self._address].silence

    async def generate(self) -> Timestamp:
        """A fresh timestamp. Raises Unavailable, or Overloaded when about a million callers wait
        already."""
        group = self._group
        place = group.count
        if place >= GROUP_COUNT_MAX:
            group = self._group = self._open()
            place = 0
        group.count = place + 1
        first = await group.future
        if type(first) is not int:  # one in a million
            first = await self._wait_on(group, first)
        return first + place  # type: ignore[return-value]  # to say so would cost as much again

    async def generate_range(self, count: int) -> Timestamp:
        """As `generate`: the first of `count` fresh timestamps in a row (1 to 1,000,000)."""
        if not 0 < count <= TIMESTAMPS_PER_REQUEST_MAX:
            limit = TIMESTAMPS_PER_REQUEST_MAX
            raise InvalidRequest(f"1 to {limit} timestamps a request", count=count)
        group = self._group = self._open()
        group.count = count
        return await self._wait_on(group, None)

    def _open(self) -> _Group:
        if self._waiting_count >= GROUPS_MAX:
            raise Overloaded(f"{GROUPS_MAX} groups of callers wait for timestamps")
        self._waiting_count += 1
        group = _Group(self._loop)
        self._gathering.append(group)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._send)
        return group

    async def _wait_on(self, group: _Group, end: Timestamp | Failure | None) -> Timestamp:
        """→ the group's first timestamp, however often others leave the group meanwhile."""
        while end is None:
            end = await group.future
        if isinstance(end, Failure):
            raise error_from_wire(end.kind, end.message, end.attributes)
        return end

    async def close(self) -> None:
        """Fail all callers and let the connections go."""
        self._is_closed = True
        if self._searching is not None:
            self._searching.cancel()
            await asyncio.wait([self._searching])
        for peer in self._peers.values():
            await peer.close()

    # ---- a batch

    def _send(self) -> None:
        """Ask for all who came during this loop iteration, or while the last batch was away."""
        groups, self._gathering, self._group = self._gathering, [], self._full
        for group in groups:
            self._batcher.add(group, group.count)
        count = self._batcher.next_batch_count()
        if count is None:
            self._is_busy = False
            return
        self._batch_count = count
        self._batch_deadline = self._loop.time() + self._timeout
        self._attempt_count = 0
        self._ask()

    def _ask(self) -> None:
        self._peers[self._address].ask(GenerateTimestamps(self._batch_count), self._answered)

    def _answered(self, reply: Reply) -> None:
        if type(reply) is not TimestampRange:
            assert isinstance(reply, Failure), reply
            self._fail_over(reply)
        elif reply.count != self._batch_count:
            text = f"{self._batch_count} timestamps asked for, {reply.count} given"
            self._fail_over(Failure("unavailable", text))
        else:
            self._deal(reply.first)

    def _deal(self, first: Timestamp) -> None:
        try:
            shares = self._batcher.split(first)
        except DataCorrupted as error:
            self._fail(Failure(error.kind, error.message, error.attributes))
            return
        self._waiting_count -= len(shares)
        middle = (len(shares) + 1) // 2
        _hand_out(shares[:middle])
        if middle < len(shares):
            self._loop.call_soon(_hand_out, shares[middle:])
        self._send()

    # ---- when a proxy does not answer

    def _fail_over(self, failure: Failure) -> None:
        self._attempt_count += 1
        is_hopeless = failure.kind not in ("unavailable", "overloaded") or self._is_closed
        if is_hopeless or self._loop.time() >= self._batch_deadline:
            self._fail(failure)
            return
        addresses = list(self._peers)
        self._address = addresses[(addresses.index(self._address) + 1) % len(addresses)]
        if self._attempt_count % len(addresses):
            self._ask()
        else:
            if failure.attributes.get("silent_ms", 0) >= DEAD_AFTER_SECONDS * 1000:
                brief = self._loop.time() + BRIEF_SECONDS  # it was waited for before
                self._batch_deadline = min(self._batch_deadline, brief)
            self._searching = self._loop.create_task(self._search())
            self._searching.add_done_callback(partial(self._end_search, failure))

    def _fail(self, failure: Failure) -> None:
        groups = self._batcher.fail()
        self._waiting_count -= len(groups)
        for group in groups:
            group.settle(failure)
        self._send()

    async def _search(self) -> None:
        """Nobody answered: find out who could, and leave them a moment. Raises TimeoutError at the
        end of the batch's time, whatever hangs."""
        rounds = self._attempt_count // len(self._peers)
        bound_ms = BACKOFF_MS_MAX if rounds > STARTING_ROUNDS_MAX else BACKOFF_MS_STARTING
        longest_ms = min(bound_ms, BACKOFF_MS_FIRST << min(rounds - 1, 16))
        async with asyncio.timeout_at(self._batch_deadline):
            await asyncio.sleep(longest_ms * random.uniform(0.5, 1) / 1000)
            found = () if self._discover is None else await self._discover()
        await self._adopt(found)

    async def _adopt(self, addresses: Sequence[str]) -> None:
        """From now on ask these, if any are named."""
        if not addresses:
            return
        gone = [peer for address, peer in self._peers.items() if address not in addresses]
        self._peers = {it: self._peers.get(it) or self._peer(it) for it in addresses}
        if self._address not in self._peers:
            self._address = addresses[0]
        for peer in gone:
            await peer.close()

    def _end_search(self, failure: Failure, task: asyncio.Task[None]) -> None:
        """`failure` is why there was one."""
        self._searching = None
        if task.cancelled():
            self._fail(Failure("unavailable", "the client was closed"))
            return
        error = task.exception()
        if isinstance(error, TimeoutError):
            self._fail(failure)
            return
        if isinstance(error, DodonaError):
            _log.info("looking for proxies failed: %s", error)
        elif error is not None:
            _log.error("looking for proxies failed in an unexpected way", exc_info=error)
        self._ask()

    def _peer(self, address: str) -> Peer:
        place = hide_password(address)
        silence = Silence(f"the oracle at {place}", {"server": "oracle", "address": place})
        timeout_ms = self._proxy_timeout_ms
        return Peer(rpc_url(address), timeout_ms=timeout_ms, key=self._key, silence=silence)


def _hand_out(shares: list[tuple[_Group, Timestamp, int]]) -> None:
    for group, first, _ in shares:
        group.settle(first)
