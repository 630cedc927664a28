"""Get timestamps for many callers, with one request in flight and one future for many callers.

Owns: which proxy is asked, and what happens if it does not answer. The batcher keeps the rule that
timestamps rise. If a proxy fails a batch, the next proxy gets the same request. Its callers came
before the new request is sent, so they may use its timestamps.
A caller is a place in a group, and a group is one future. So the only work for each caller is to
wake its task. The answer first goes to one half of the groups, and one iteration of the loop later
to the other half. So the next requests of the first half are on their way while the second half
still works.
Bounded: the groups that wait, the time of a batch, and the back-off when no proxy answers.
Belongs to one event loop. Must not be used from another thread.
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
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.peer import Peer
from dodona_wire.net.rpc_urls import rpc_url
from dodona_wire.net.silence import BRIEF_SECONDS, DEAD_AFTER_SECONDS, Silence
from dodona_wire.net.urls import hide_password
from dodona_wire.types import TIMESTAMPS_PER_REQUEST_MAX, Timestamp

GROUP_COUNT_MAX: Final = 64
"""The timestamps of a group, unless one caller asks for more at a time."""
GROUPS_MAX: Final = 16_384
"""The groups that wait: about a million callers."""
TIMEOUT_MS: Final = 10_000
"""How long a batch goes from proxy to proxy before its callers fail."""
PROXY_TIMEOUT_MS: Final = 4_000
"""How long one proxy may take: a little longer than the proxy waits for the master."""
BACKOFF_MS_FIRST: Final = 20
BACKOFF_MS_MAX: Final = 500
BACKOFF_MS_STARTING: Final = 50
STARTING_ROUNDS_MAX: Final = 40
"""The number of rounds with short pauses, because the server is probably starting again."""

_log = logging.getLogger("dodona.oracle")

Discover = Callable[[], Awaitable[Sequence[str]]]


class _Group:
    """Callers that wait together. The result of their future is the first of their timestamps, or a
    Failure. It may also be None: then they wait again, because one of them has gone."""

    __slots__ = ("_loop", "count", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.count = 0
        self.future = self._wait()

    def settle(self, end: Timestamp | Failure) -> None:
        self.future.set_result(end)

    def _wait(self) -> "asyncio.Future[Timestamp | Failure | None]":
        future: asyncio.Future[Timestamp | Failure | None] = self._loop.create_future()
        # To cancel a task cancels the future that it waits for. A subclass would work, too, but
        # asyncio has fast paths for futures of its own class only.
        future.cancel = self._let_go  # type: ignore[method-assign]
        return future

    def _let_go(self, msg: object = None) -> bool:
        """Wake all callers, because one of them is cancelled and must notice. The others wait
        again. Returns False, so that the cancelled task ends by itself when it wakes."""
        future = self.future
        if not future.done():
            self.future = self._wait()
            future.set_result(None)
        return False


class OracleClient:
    """Asks proxies for timestamps. It may also ask a master, which has the same protocol."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        discover: Discover | None = None,
        timeout_ms: int = TIMEOUT_MS,
        key: ClusterKey | None = None,
    ) -> None:
        """Take the addresses to ask, in this order. If none of them answers, the client awaits
        `discover`, which returns the addresses to ask from then on."""
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
        self._full = _Group(self._loop)  # a caller that finds this group opens a new one
        self._full.count = GROUP_COUNT_MAX
        self._group = self._full
        self._gathering: list[_Group] = []
        self._waiting_count = 0
        self._is_busy = False  # a batch is in flight, or leaves at the end of this iteration
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
        """The silence of the server that is asked now."""
        return self._peers[self._address].silence

    async def generate(self) -> Timestamp:
        """Return a fresh timestamp. Raises Unavailable, or Overloaded if about a million callers
        wait already."""
        group = self._group
        place = group.count
        if place >= GROUP_COUNT_MAX:
            group = self._group = self._open()
            place = 0
        group.count = place + 1
        first = await group.future
        if type(first) is not int:  # about once in a million calls
            first = await self._wait_on(group, first)
        return first + place  # type: ignore[return-value]  # to say so would cost as much again

    async def generate_range(self, count: int) -> Timestamp:
        """Return the first of `count` fresh timestamps in a row (1 to 1,000,000). Otherwise as
        `generate`."""
        if not 0 < count <= TIMESTAMPS_PER_REQUEST_MAX:
            limit = TIMESTAMPS_PER_REQUEST_MAX
            raise InvalidRequest(f"Request 1 to {limit} timestamps at a time.", count=count)
        group = self._group = self._open()
        group.count = count
        return await self._wait_on(group, None)

    def _open(self) -> _Group:
        if self._waiting_count >= GROUPS_MAX:
            raise Overloaded(
                f"{GROUPS_MAX} groups of callers already wait for timestamps. Try again later."
            )
        self._waiting_count += 1
        group = _Group(self._loop)
        self._gathering.append(group)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._send)
        return group

    async def _wait_on(self, group: _Group, end: Timestamp | Failure | None) -> Timestamp:
        """Return the first timestamp of the group, however often other callers leave it
        meanwhile."""
        while end is None:
            end = await group.future
        if isinstance(end, Failure):
            raise error_from_wire(end.kind, end.message, end.attributes)
        return end

    async def close(self) -> None:
        """Fail all callers, and close the connections."""
        self._is_closed = True
        if self._searching is not None:
            self._searching.cancel()
            await asyncio.wait([self._searching])
        for peer in self._peers.values():
            await peer.close()

    # ---- a batch

    def _send(self) -> None:
        """Ask for all callers that came in this loop iteration, or while the last batch was in
        flight."""
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
            text = f"The oracle returned {reply.count} timestamps instead of {self._batch_count}."
            self._fail_over(Failure("unavailable", text))
        else:
            self._deal(reply.first)

    def _deal(self, first: Timestamp) -> None:
        try:
            shares = self._batcher.split(first)
        except DataCorrupted as error:
            self._fail(failure_of(error))
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
                brief = self._loop.time() + BRIEF_SECONDS  # earlier batches waited for it
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
        """Wait a little, and look for other addresses, because no server answered. Raises
        TimeoutError at the end of the batch's time, even if a server hangs."""
        rounds = self._attempt_count // len(self._peers)
        bound_ms = BACKOFF_MS_MAX if rounds > STARTING_ROUNDS_MAX else BACKOFF_MS_STARTING
        longest_ms = min(bound_ms, BACKOFF_MS_FIRST << min(rounds - 1, 16))
        async with asyncio.timeout_at(self._batch_deadline):
            await asyncio.sleep(longest_ms * random.uniform(0.5, 1) / 1000)
            found = () if self._discover is None else await self._discover()
        await self._adopt(found)

    async def _adopt(self, addresses: Sequence[str]) -> None:
        """Ask these addresses from now on, if there are any."""
        if not addresses:
            return
        gone = [peer for address, peer in self._peers.items() if address not in addresses]
        self._peers = {it: self._peers.get(it) or self._peer(it) for it in addresses}
        if self._address not in self._peers:
            self._address = addresses[0]
        for peer in gone:
            await peer.close()

    def _end_search(self, failure: Failure, task: asyncio.Task[None]) -> None:
        """End a search, and ask again or fail the batch. `failure` is the reason for the search."""
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
