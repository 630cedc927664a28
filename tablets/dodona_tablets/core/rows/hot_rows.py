"""Keep reads fast for rows with very many versions: store what these rows were at some timestamps.

Owns: *landmarks*. A landmark says what a row was at the timestamp of one of its versions. It is a
plain version of all value columns, or a deletion. A read takes the newest landmark at or below its
timestamp, and folds the few versions above that landmark on top. So the read folds as few versions
as for a row that was written a few times. Aggregates are folded from the oldest version on, as
without landmarks. So a sum of doubles is the same to the last bit.

A read makes the first landmarks of a row, after a walk that was too long. Later reads of the row
add newer landmarks. Writes pay nothing, and rows with few versions pay nothing.

Invariant: a landmark is forgotten before a version at or below it is added or removed. The code
that changes versions calls `forget`, `forget_from`, `forget_below` or `clear` for this. A flush
that removes no version leaves the landmarks as they are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from dodona_tablets.core.rows.version import ALL_VERSIONS, Version, chain_of, values_between
from dodona_wire.rows.schema import Column
from dodona_wire.types import DELETE_MASK, NULL_TIMESTAMP, Key, Timestamp, Write

LANDMARK_STEP: Final = 64
"""The number of versions between two landmarks of a row. If the table has more columns than this,
it is the number of columns."""
TOP_VERSIONS_MAX: Final = 16
"""The most versions above the newest landmark. A read that finds more adds landmarks."""
LANDMARKS_MAX: Final = 50_000
"""The most landmarks of one tablet. Above it, the rows that got landmarks first lose theirs."""
LANDMARK_BYTES: Final = 200
"""The bytes that one landmark takes in memory, without its values."""
VALUE_BYTES: Final = 40


class _Landmark(NamedTuple):
    timestamp: Timestamp
    version: Version
    version_count: int
    """The number of versions above the landmark below, up to and including this one."""


class HotRows:
    """The landmarks of one tablet's rows. The landmarks of a row are in order, oldest first."""

    __slots__ = ("_by_key", "_count", "_width", "newest_timestamp")

    def __init__(self) -> None:
        self._by_key: dict[Key, list[_Landmark]] = {}
        self._count = 0
        self._width = 0
        self.newest_timestamp: Timestamp = NULL_TIMESTAMP
        """No landmark is above this timestamp. So a version above it makes no landmark wrong."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    @property
    def size_bytes(self) -> int:
        """The memory that the landmarks take, in bytes. This is an estimate."""
        return self._count * (LANDMARK_BYTES + VALUE_BYTES * self._width)

    # Reads

    def first(self, lower: Key, upper: Key) -> Key | None:
        """Return the first key of `lower ≤ key < upper` that has landmarks, or None."""
        return min([key for key in self._by_key if lower <= key < upper], default=None)

    def base(self, key: Key, at: Timestamp) -> Version | None:
        """Return the newest landmark of a row at or below a timestamp, as a version, or None."""
        landmarks = self._by_key.get(key, ())
        place = bisect_right(landmarks, at, key=itemgetter(0))
        return landmarks[place - 1].version if place else None

    def chain(
        self,
        key: Key,
        base: Version | None,
        newer: list[Version],
        columns: Sequence[Column],
    ) -> Version | None:
        """Return the chain of a row as of the newest of these versions, which come newest first.
        All of them are above the landmark `base`. None stands for a landmark below all versions. If
        the versions are many, and `base` is the newest landmark, this makes landmarks of them."""
        if len(newer) > TOP_VERSIONS_MAX:
            landmarks = self._by_key.setdefault(key, [])
            if (landmarks[-1].version if landmarks else None) is base:
                self._extend(key, landmarks, newer[::-1], columns)
                base, newer = landmarks[-1].version, []
                self._keep_few(key)
        return chain_of([*newer, *([] if base is None else [base])])

    def _extend(
        self,
        key: Key,
        landmarks: list[_Landmark],
        oldest_first: list[Version],
        columns: Sequence[Column],
    ) -> None:
        step = max(LANDMARK_STEP, len(columns))
        self._width = max(self._width, len(columns))
        base = landmarks[-1].version if landmarks else None
        for start in range(0, len(oldest_first), step):
            part = oldest_first[start : start + step]
            base = _folded(part, base, columns)
            count = len(part)
            if landmarks and landmarks[-1].version_count + count <= step:
                count += landmarks.pop().version_count
                self._count -= 1
            landmarks.append(_Landmark(base[0], base, count))
            self._count += 1
        self.newest_timestamp = max(self.newest_timestamp, landmarks[-1].timestamp)

    def _keep_few(self, key: Key) -> None:
        """Remove landmarks until the limit holds. Other rows lose theirs first, the oldest row
        before the others. If only this row is left, every second landmark goes."""
        while self._count > LANDMARKS_MAX:
            oldest = next(iter(self._by_key))
            if oldest != key:
                self._drop(oldest)
            elif len(self._by_key) > 1:
                self._by_key[key] = self._by_key.pop(key)
            else:
                landmarks = self._by_key[key]
                landmarks[:] = landmarks[len(landmarks) % 2 == 0 :: 2]
                self._count = len(landmarks)

    # How changes of rows remove landmarks

    def forget(self, writes: Sequence[Write], timestamp: Timestamp) -> None:
        """Forget the landmarks of these rows, which get versions at this timestamp. A row keeps its
        landmarks if all of them are older. Callers skip the call if the timestamp is above all
        landmarks."""
        for key, _, _ in writes:
            landmarks = self._by_key.get(key)
            if landmarks is not None and landmarks[-1].timestamp >= timestamp:
                self._drop(key)

    def forget_from(self, timestamp: Timestamp) -> None:
        """Forget all landmarks, since any row may get versions at or above this timestamp. Nothing
        is forgotten if all landmarks are older."""
        if timestamp <= self.newest_timestamp:
            self.clear()

    def forget_below(self, timestamp: Timestamp) -> None:
        """Forget all landmarks below a timestamp. Versions of any row may be gone, but all rows are
        the same at this timestamp and later."""
        if timestamp > self.newest_timestamp:
            self.clear()
            return
        for key, landmarks in list(self._by_key.items()):
            place = bisect_left(landmarks, timestamp, key=itemgetter(0))
            self._count -= place
            del landmarks[:place]
            if not landmarks:
                del self._by_key[key]

    def clear(self) -> None:
        """Forget all landmarks, since versions of any row may be gone."""
        self._by_key.clear()
        self._count = 0
        self.newest_timestamp = NULL_TIMESTAMP

    def _drop(self, key: Key) -> None:
        self._count -= len(self._by_key.pop(key))


def _folded(
    oldest_first: list[Version], base: Version | None, columns: Sequence[Column]
) -> Version:
    """Fold versions, on top of a landmark, into one plain version of all columns. Return a deletion
    if the row is not there."""
    newest = oldest_first[-1][0]
    chain = chain_of([*reversed(oldest_first), *([] if base is None else [base])])
    full_mask = (1 << len(columns)) - 1
    values = values_between(chain, NULL_TIMESTAMP, newest, full_mask, columns, ALL_VERSIONS)
    return (newest, DELETE_MASK, (), None) if values is None else (newest, full_mask, values, None)
