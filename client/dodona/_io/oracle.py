"""Timestamps for many callers: one request in flight, a bare future for each caller.

Owns: which proxy is asked, and what happens when it does not answer. The rule that keeps
timestamps monotonic is the batcher's. A batch that a proxy failed is asked for again, from the next
proxy: its callers came before the new request is sent, so they may be served from it.
Bounded: callers waiting, the time a batch may take, and the back-off when no proxy answers.
Belongs to one event loop; must not be used from another thread.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dodona._core.batcher import Batcher
from dodona._core.messages import Failure, GenerateTimestamps, Reply, TimestampRange
from dodona._io.cluster_key import ClusterKey
from dodona._io.peer import Peer, rpc_url
from dodona.errors import DataCorrupted, DodonaError, InvalidRequest, Overloaded, error_from_wire
from dodona.types import TIMESTAMPS_PER_REQUEST_MAX, Timestamp

WAITERS_MAX: Final = 1_000_000
TIMEOUT_MS: Final = 10_000
"""How long a batch is asked for, from proxy to proxy, before its callers fail."""
PROXY_TIMEOUT_MS: Final = 4_000
"""How long one proxy may take: a little longer than it lets the master take."""
BACKOFF_MS_FIRST: Final = 20
BACKOFF_MS_MAX: Final = 500

_log = logging.getLogger(__name__)

Discover = Callable[[], Awaitable[Sequence[str]]]


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
        self._new_future = self._loop.create_future
        self._timeout = timeout_ms / 1000
        self._proxy_timeout_ms = min(timeout_ms, PROXY_TIMEOUT_MS)
        self._discover = discover
        self._key = key
        self._peers = {address: self._peer(address) for address in addresses}
        self._address = addresses[0]
        self._batcher: Batcher[asyncio.Future[Timestamp]] = Batcher()
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

    def generate(self) -> asyncio.Future[Timestamp]:
        """A fresh timestamp. The future fails with Unavailable, or with Overloaded when
        a million callers wait already."""
        future: asyncio.Future[Timestamp] = self._new_future()
        if self._is_busy and self._waiting_count < WAITERS_MAX:  # all but the first of a batch
            self._waiting_count += 1
            self._batcher.add_one(future)
        else:
            self._wait_for(future, 1)
        return future

    def generate_range(self, count: int) -> asyncio.Future[Timestamp]:
        """As `generate`: the first of `count` fresh timestamps in a row (1 to 1,000,000)."""
        future: asyncio.Future[Timestamp] = self._new_future()
        if 0 < count <= TIMESTAMPS_PER_REQUEST_MAX:
            self._wait_for(future, count)
        else:
            limit = TIMESTAMPS_PER_REQUEST_MAX
            future.set_exception(InvalidRequest(f"1 to {limit} timestamps a request", count=count))
        return future

    def _wait_for(self, future: asyncio.Future[Timestamp], count: int) -> None:
        if self._waiting_count >= WAITERS_MAX:
            future.set_exception(Overloaded(f"{WAITERS_MAX} callers wait for timestamps"))
            return
        self._waiting_count += 1
        self._batcher.add(future, count)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._send)

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
        for waiter, timestamp, _ in shares:
            if not waiter.done():  # a caller that has gone leaves its timestamps unused
                waiter.set_result(timestamp)
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
            self._searching = self._loop.create_task(self._search())
            self._searching.add_done_callback(self._end_search)

    def _fail(self, failure: Failure) -> None:
        waiters = self._batcher.fail()
        self._waiting_count -= len(waiters)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(
                    error_from_wire(failure.kind, failure.message, failure.attributes)
                )
        self._send()

    async def _search(self) -> None:
        """Nobody answered: find out who could, and leave them a moment."""
        rounds = self._attempt_count // len(self._peers)
        longest_ms = min(BACKOFF_MS_MAX, BACKOFF_MS_FIRST << min(rounds - 1, 16))
        await asyncio.sleep(longest_ms * random.uniform(0.5, 1) / 1000)
        if self._discover is not None:
            await self._adopt(await self._discover())

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

    def _end_search(self, task: asyncio.Task[None]) -> None:
        self._searching = None
        if task.cancelled():
            self._fail(Failure("unavailable", "the client was closed"))
            return
        error = task.exception()
        if isinstance(error, DodonaError):
            _log.info("looking for proxies failed: %s", error)
        elif error is not None:
            _log.error("looking for proxies failed in an unexpected way", exc_info=error)
        self._ask()

    def _peer(self, address: str) -> Peer:
        return Peer(rpc_url(address), timeout_ms=self._proxy_timeout_ms, key=self._key)
