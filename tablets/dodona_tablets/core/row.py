"""One row: its versions, who holds its locks, and the times of locks that left no version.

Owns: what a read at a timestamp sees, per column. Invariant: versions rise by timestamp, strictly
unless a client lied about a commit timestamp.
A version is `(timestamp, column mask, values of the masked columns)`; mask 0 is a deletion. One
with changes of aggregates, or written under shared locks, says so in two more masks. Lock state is
a list of holders with lock masks (bit per lock group), empty almost always.
"""

from bisect import insort_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dodona._core.aggregates import combine
from dodona.schema import Column
from dodona.types import DELETE_MASK, LockType, Timestamp

if TYPE_CHECKING:
    from dodona_tablets.core.transaction import Transaction

Values = tuple[Any, ...]
PlainVersion = tuple[Timestamp, int, Values]
MarkedVersion = tuple[Timestamp, int, Values, int, int]
"""As a plain one, then the mask of columns whose value is a change of an aggregate, and the mask of
lock groups that were taken by shared_write."""
Version = PlainVersion | MarkedVersion


class Holder:
    """A transaction's locks on one row while it commits, as masks of lock groups.

    `lock_type` is that of a lock without data, which at a commit leaves its time behind; data
    leave a version, which says all.
    """

    __slots__ = ("exclusive", "lock_type", "shared", "shared_write", "transaction")

    def __init__(
        self,
        transaction: "Transaction",
        exclusive: int,
        shared_write: int = 0,
        shared: int = 0,
        lock_type: LockType | None = None,
    ) -> None:
        self.transaction = transaction
        self.exclusive = exclusive
        self.shared_write = shared_write
        self.shared = shared
        self.lock_type = lock_type


class Row:
    """Versions, oldest first, and locks. A row without versions is held by its first writer."""

    __slots__ = ("holders", "lock_times", "versions")

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.holders: list[Holder] | None = None
        self.lock_times: dict[LockType, dict[int, Timestamp]] | None = None
        """When locks without data were last committed: by type, then by group."""

    def add(self, version: Version) -> None:
        """Add a version. Writers of different lock groups, and those that share one, may commit
        out of timestamp order."""
        versions = self.versions
        if not versions or versions[-1][0] < version[0]:
            versions.append(version)
            return
        insort_right(versions, version, key=_timestamp_of)

    def remember(self, lock_type: LockType, groups: int, timestamp: Timestamp) -> None:
        """A lock without data was committed."""
        if self.lock_times is None:
            self.lock_times = {}
        times = self.lock_times.setdefault(lock_type, {})
        for group in bits_of(groups):
            times[group] = max(times.get(group, timestamp), timestamp)

    def values_at(self, timestamp: Timestamp, wanted: int, full: int) -> Values | None:
        """The values of the wanted columns as of a timestamp, None if the row is not there then.

        Per column the newest value at or below `timestamp` that is newer than the newest
        deletion there; a column without one is null. For tables without aggregates.
        """
        for version in reversed(self.versions):
            if version[0] <= timestamp:
                if version[1] == wanted:
                    return version[2] if wanted else None
                if version[1] == DELETE_MASK:
                    return None
                return self._merge(timestamp, wanted, full)
        return None

    def _merge(self, timestamp: Timestamp, wanted: int, full: int) -> Values:
        found: dict[int, Any] = {}
        remaining = wanted
        for version in reversed(self.versions):
            if version[0] > timestamp:
                continue
            mask = version[1]
            if mask == DELETE_MASK or not remaining:
                break
            for bit in bits_of(mask & remaining):
                found[bit] = version[2][(mask & ((1 << bit) - 1)).bit_count()]
            remaining &= ~mask
        return tuple([found.get(bit) for bit in bits_of(wanted & full)])

    def values_between(
        self, oldest: Timestamp, newest: Timestamp, wanted: int, columns: Sequence[Column]
    ) -> Values | None:
        """As `values_at(newest)`, with aggregates, and as if nothing older than `oldest` had been.

        Changes of an aggregate are folded into the newest plain value before them, or alone.
        `columns` are all value columns.
        """
        changes: dict[int, list[Any]] = {bit: [] for bit in bits_of(wanted)}
        remaining = wanted
        is_there = False
        for version in reversed(self.versions):
            if version[0] > newest:
                continue
            mask = version[1]
            if mask == DELETE_MASK or version[0] < oldest:
                break
            is_there = True
            for bit in bits_of(mask & remaining):
                changes[bit].append(value_of(version, bit))
            remaining &= ~mask | delta_mask_of(version)
            if not remaining:
                break
        if not is_there:
            return None
        return tuple([fold(columns[bit], changes[bit]) for bit in changes])


def fold(column: Column, newest_first: Sequence[Any]) -> Any:
    """What a value (the last one) and the changes after it come to; null if there is nothing."""
    value = None
    for change in reversed(newest_first):
        value = combine(column, value, change)
    return value


def value_of(version: Version, bit: int) -> Any:
    """The value of a column that the version sets."""
    return version[2][(version[1] & ((1 << bit) - 1)).bit_count()]


def delta_mask_of(version: Version) -> int:
    """Which of its values are changes of an aggregate."""
    return 0 if len(version) == 3 else version[3]


def _timestamp_of(version: Version) -> Timestamp:
    return version[0]


def bits_of(mask: int) -> Iterator[int]:
    """The set bits of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
