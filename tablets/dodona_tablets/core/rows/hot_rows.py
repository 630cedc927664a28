"""Rows of so many versions that a read can't walk along them: what they were at some timestamps.

Owns: *landmarks*. One says what a row was at the timestamp of one of its versions, as a plain
version of all value columns. A read takes the newest landmark at or below its timestamp, and folds
the few versions above it on top: as many as a row that was written a few times has, however many
there are below. Aggregates are folded from the oldest version on, as without landmarks: a sum of
doubles comes out the same to the last bit.

Reads make landmarks, after the first walk that was too long, and those of rows that are read on
move up with them. Writes, and rows with few versions, pay nothing.

Invariant: a landmark is forgotten before a version at or below it comes or goes. Stores call
`forget…` and `clear`; what a flush writes away is still the same.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from dodona_tablets.core.rows.version import ALL_VERSIONS, Version, chain_of, values_between
from dodona_wire.rows.schema import Column
from dodona_wire.types import DELETE_MASK, NULL_TIMESTAMP, Key, Timestamp, Write

LANDMARK_STEP: Final = 64
"""Versions between two landmarks of a row, or as many as there are columns if these are more."""
TOP_VERSIONS_MAX: Final = 16
"""Above the newest landmark: with more of them it moves up."""
LANDMARKS_MAX: Final = 50_000
"""Of one tablet. With more the rows whose landmarks are oldest lose theirs."""
LANDMARK_BYTES: Final = 200
"""What one takes, besides its values."""
VALUE_BYTES: Final = 40


class _Landmark(NamedTuple):
    timestamp: Timestamp
    version: Version
    version_count: int
    """Between the one below and this one, itself included."""


class HotRows:
    """The landmarks of one tablet's rows, oldest first."""

    __slots__ = ("_by_key", "_count", "_width", "newest_timestamp")

    def __init__(self) -> None:
        self._by_key: dict[Key, list[_Landmark]] = {}
        self._count = 0
        self._width = 0
        self.newest_timestamp: Timestamp = NULL_TIMESTAMP
        """No landmark is above it. What comes above needs not be looked at."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    @property
    def size_bytes(self) -> int:
        """About what they take of the process's memory."""
        return self._count * (LANDMARK_BYTES + VALUE_BYTES * self._width)

    # Reads

    def first(self, lower: Key, upper: Key) -> Key | None:
        """The first of these rows in lower ≤ key < upper."""
        return min([key for key in self._by_key if lower <= key < upper], default=None)

    def base(self, key: Key, at: Timestamp) -> Version | None:
        """The newest landmark of a row at or below a timestamp, as a version."""
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
        """A row as of the newest of these versions: they, newest first, are all above a landmark,
        and None is one below everything. If they are many, more landmarks are made of them."""
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
        """Other rows' go first, the oldest before others; then every second of this one."""
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

    # What makes them wrong

    def forget(self, writes: Sequence[Write], timestamp: Timestamp) -> None:
        """Versions of these rows come at this timestamp, which is not above all landmarks."""
        for key, _, _ in writes:
            landmarks = self._by_key.get(key)
            if landmarks is not None and landmarks[-1].timestamp >= timestamp:
                self._drop(key)

    def forget_from(self, timestamp: Timestamp) -> None:
        """Versions of any row come, at or above this timestamp."""
        if timestamp <= self.newest_timestamp:
            self.clear()

    def forget_below(self, timestamp: Timestamp) -> None:
        """Versions of any row may be gone, but at this timestamp and later all rows are the
        same."""
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
        """Versions of any row may be gone."""
        self._by_key.clear()
        self._count = 0
        self.newest_timestamp = NULL_TIMESTAMP

    def _drop(self, key: Key) -> None:
        self._count -= len(self._by_key.pop(key))


def _folded(
    oldest_first: list[Version], base: Version | None, columns: Sequence[Column]
) -> Version:
    """What these versions, on top of a landmark, make of a row: a plain version of all columns."""
    newest = oldest_first[-1][0]
    chain = chain_of([*reversed(oldest_first), *([] if base is None else [base])])
    full_mask = (1 << len(columns)) - 1
    values = values_between(chain, NULL_TIMESTAMP, newest, full_mask, columns, ALL_VERSIONS)
    return (newest, DELETE_MASK, (), None) if values is None else (newest, full_mask, values, None)
