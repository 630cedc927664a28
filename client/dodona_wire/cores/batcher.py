"""The batching timestamp provider: many callers, one request in flight. Pure.

Owns the rule that keeps timestamps monotonic through any number of batchers: the pending list is
swapped out *before* the request is sent, so nobody is served from a request that was sent before
they asked. The range is split in arrival order and never outlives its batch. No timer: the first
caller goes at once, those who come while it is away form the next batch.

It also bears witness: an oracle that gives what it gave before, or less, has lost its memory, and
nobody is served from it.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Generic, TypeVar, cast

from dodona_wire.errors import DataCorrupted
from dodona_wire.types import TIMESTAMPS_PER_REQUEST_MAX, Timestamp

Waiter = TypeVar("Waiter")


class Batcher(Generic[Waiter]):
    """`add` callers, send what `next_batch_count` says, `split` or `fail` what comes back.

    Most callers want one timestamp, and millions of them come a second: counts are kept only in
    batches where somebody wants more.
    """

    def __init__(self, count_max: int = TIMESTAMPS_PER_REQUEST_MAX) -> None:
        assert count_max > 0
        self._count_max = count_max
        self._pending: list[Waiter] = []
        self._pending_counts: list[int] | None = None
        self._in_flight: list[Waiter] = []
        self._in_flight_counts: list[int] | None = None
        self._last = 0

    @property
    def waiting_count(self) -> int:
        return len(self._pending) + len(self._in_flight)

    def add(self, waiter: Waiter, count: int = 1) -> None:
        assert 0 < count <= self._count_max
        if count != 1 and self._pending_counts is None:
            self._pending_counts = [1] * len(self._pending)
        self._pending.append(waiter)
        if self._pending_counts is not None:
            self._pending_counts.append(count)

    def next_batch_count(self) -> int | None:
        """How many to ask for now, or None while a request is away or nobody waits."""
        if self._in_flight or not self._pending:
            return None
        self._in_flight, self._pending = self._pending, []
        self._in_flight_counts, self._pending_counts = self._pending_counts, None
        counts = self._in_flight_counts
        total = len(self._in_flight) if counts is None else sum(counts)
        return total if total <= self._count_max else self._cut()

    def _cut(self) -> int:
        """Too many for one request: the last to come wait for the next one."""
        counts = self._in_flight_counts or [1] * len(self._in_flight)
        total = fitting = 0
        while total + counts[fitting] <= self._count_max:
            total += counts[fitting]
            fitting += 1
        self._pending = self._in_flight[fitting:]
        self._pending_counts = counts[fitting:]
        self._in_flight = self._in_flight[:fitting]
        self._in_flight_counts = counts[:fitting]
        return total

    def witness(self, first: Timestamp, count: int) -> None:
        """These came back. Raises DataCorrupted if they can't be fresh."""
        if first <= self._last:
            raise DataCorrupted(
                "the oracle has gone back: it gave a timestamp that is not above all that it gave "
                "before. Its data folder was lost, or replaced by an older one: stop the writers, "
                "and bring the right one back",
                timestamp=first,
                timestamp_before=self._last,
            )
        self._last = first + count - 1

    def split(self, first: Timestamp) -> list[tuple[Waiter, Timestamp, int]]:
        """Divide the range that came back among the callers, in arrival order. Raises DataCorrupted
        if it is not above all before; then they wait on, for `fail`."""
        assert self._in_flight, "a range came back that nobody asked for"
        waiters, counts = self._in_flight, self._in_flight_counts
        self.witness(first, len(waiters) if counts is None else sum(counts))
        self._in_flight, self._in_flight_counts = [], None
        firsts: Iterable[int]
        if counts is None:
            firsts, counts = range(first, first + len(waiters)), [1] * len(waiters)
        else:
            firsts = accumulate(counts[:-1], initial=first)
        shares = list(zip(waiters, firsts, counts, strict=True))
        return cast("list[tuple[Waiter, Timestamp, int]]", shares)

    def fail(self) -> list[Waiter]:
        """The request failed: all its callers do, so that none gets a timestamp of unsure age."""
        waiters, self._in_flight, self._in_flight_counts = self._in_flight, [], None
        return waiters
