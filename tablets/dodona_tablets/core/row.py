"""One row: its versions, who holds its locks, and until when it was read-locked.

Owns: what a read at a timestamp sees, per column. Invariant: versions rise strictly by timestamp.
A version is `(timestamp, column mask, values of the masked columns)`; mask 0 is a deletion.
Lock state is a list of holders with lock masks (bit per lock group), empty almost always.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dodona.types import DELETE_MASK, Timestamp

if TYPE_CHECKING:
    from dodona_tablets.core.transaction import Transaction

Version = tuple[Timestamp, int, tuple[Any, ...]]
Values = tuple[Any, ...]


class Holder:
    """A transaction's locks on one row while it commits, as masks of lock groups."""

    __slots__ = ("exclusive", "shared", "strong", "transaction")

    def __init__(
        self, transaction: "Transaction", exclusive: int, shared: int, strong: int
    ) -> None:
        self.transaction = transaction
        self.exclusive = exclusive
        self.shared = shared
        self.strong = strong


class Row:
    """Versions, oldest first, and locks. A row without versions is held by its first writer."""

    __slots__ = ("holders", "read_locked_until", "versions")

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.holders: list[Holder] | None = None
        self.read_locked_until: dict[int, Timestamp] | None = None

    def add(self, timestamp: Timestamp, mask: int, values: Values) -> None:
        """Add a version. Writers of different lock groups may commit out of timestamp order."""
        versions = self.versions
        if not versions or versions[-1][0] < timestamp:
            versions.append((timestamp, mask, values))
            return
        at = bisect_left(versions, timestamp, key=_timestamp_of)
        assert versions[at][0] != timestamp, "two versions at one timestamp"
        versions.insert(at, (timestamp, mask, values))

    def values_at(self, timestamp: Timestamp, wanted: int, full: int) -> Values | None:
        """The values of the wanted columns as of a timestamp, None if the row is not there then.

        Per column the newest value at or below `timestamp` that is newer than the newest
        deletion there; a column without one is null.
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
        for at, mask, values in reversed(self.versions):
            if at > timestamp:
                continue
            if mask == DELETE_MASK or not remaining:
                break
            for bit in bits_of(mask & remaining):
                found[bit] = values[(mask & ((1 << bit) - 1)).bit_count()]
            remaining &= ~mask
        return tuple([found.get(bit) for bit in bits_of(wanted & full)])


def _timestamp_of(version: Version) -> Timestamp:
    return version[0]


def bits_of(mask: int) -> Iterator[int]:
    """The set bits of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
