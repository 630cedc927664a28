"""The batching timestamp provider: many callers, one request in flight. Pure.

Owns: the rule that keeps timestamps monotonic through any number of batchers. The pending list is
swapped out *before* the request is sent. So no caller gets a timestamp of a request that was sent
before the caller asked. The range is split in arrival order and never outlives its batch. There is
no timer. The first caller's request leaves immediately, and callers that come while it is in flight
form the next batch.

A batcher is also a witness. If an oracle gives a timestamp again, or a lower one, it has lost its
data. Then no caller is served from it.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Generic, TypeVar, cast

from dodona_wire.errors import DataCorrupted
from dodona_wire.types import TIMESTAMPS_PER_REQUEST_MAX, Timestamp

Waiter = TypeVar("Waiter")


class Batcher(Generic[Waiter]):
    """Batches callers: `add` them, send what `next_batch_count` returns, `split` or `fail` the
    answer.

    Most callers want one timestamp, and millions of them come a second. So counts are kept only in
    batches in which a caller wants more than one.
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
        """Return how many timestamps to ask for, or None if a request is in flight or none
        waits."""
        if self._in_flight or not self._pending:
            return None
        self._in_flight, self._pending = self._pending, []
        self._in_flight_counts, self._pending_counts = self._pending_counts, None
        counts = self._in_flight_counts
        total = len(self._in_flight) if counts is None else sum(counts)
        return total if total <= self._count_max else self._cut()

    def _cut(self) -> int:
        """Cut a batch that is too large for one request: the last callers wait for the next one."""
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
        """Check a range that came back. Raises DataCorrupted if it can't be fresh."""
        if first <= self._last:
            raise DataCorrupted(
                "the oracle has gone back: it gave out a timestamp that is not above an earlier "
                "one. The data folder of the master was lost, or replaced by an older one. Stop "
                "the writers, and bring the right folder back",
                timestamp=first,
                timestamp_before=self._last,
            )
        self._last = first + count - 1

    def split(self, first: Timestamp) -> list[tuple[Waiter, Timestamp, int]]:
        """Divide the range that came back among the callers, in arrival order. Raises DataCorrupted
        if it is not above all earlier ones. Then the callers still wait, for `fail`."""
        assert self._in_flight, "a range came back that no caller asked for"
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
        """Return the callers of a failed request. All fail, so that none gets an old timestamp."""
        waiters, self._in_flight, self._in_flight_counts = self._in_flight, [], None
        return waiters
