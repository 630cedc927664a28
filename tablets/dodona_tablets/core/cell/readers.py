"""Keep the snapshots of the readers that registered in this cell.

Owns: the timestamps of readers, the end of each lease, and how many readers there may be. The state
is in memory only, so a cell that starts knows no readers. It also does not know who read a tablet
before its mount. So the cell keeps all versions of such a tablet for some time. In this time, each
reader that registered before, in any cell, renews here: clients do so several times a minute. A
longer lease is for idle readers. It ends early if the tablet has moved meanwhile. Retention asks
`oldest` each time before it removes versions. This module is pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sortedcontainers import SortedList

from dodona_wire.errors import Overloaded
from dodona_wire.types import MIN_TIMESTAMP, ReaderId, TabletId, Timestamp


class _Hold(NamedTuple):
    timestamp: Timestamp
    tablets: frozenset[TabletId]
    until_us: int


class Readers:
    """The readers of one cell. All instants are monotonic microseconds of the cell's process."""

    def __init__(self, count_max: int, tablets_max: int, renewal_ms_max: int) -> None:
        """Set the limits. `tablets_max` is for all readers together."""
        self._count_max = count_max
        self._tablets_max = tablets_max
        self._renewal_ms_max = renewal_ms_max
        self._holds: dict[ReaderId, _Hold] = {}
        self._by_timestamp: SortedList[tuple[Timestamp, ReaderId]] = SortedList()
        self._by_end: SortedList[tuple[int, ReaderId]] = SortedList()
        self._tablet_count = 0
        self._expected_until_us: dict[TabletId, int] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def hold(
        self,
        reader: ReaderId,
        timestamp: Timestamp,
        tablets: Sequence[TabletId],
        lease_ms: int,
        now_us: int,
    ) -> None:
        """Register or renew a reader. This replaces all that it held before. Raises Overloaded, and
        then changes nothing."""
        if not tablets:
            self.let_go(reader)
            return
        fresh = _Hold(timestamp, frozenset(tablets), now_us + lease_ms * 1000)
        known = self._holds.get(reader)
        tablet_count = self._tablet_count + len(fresh.tablets) - len(known.tablets if known else ())
        if (known is None and len(self._holds) >= self._count_max) or (
            tablet_count > self._tablets_max
        ):
            raise Overloaded(
                f"Too many snapshots are held in this cell: the limits are {self._count_max} "
                f"readers, and {self._tablets_max} tablets of all readers. Release snapshots, or "
                "repeat later.",
                readers=len(self._holds),
                tablets=self._tablet_count,
            )
        self.let_go(reader)
        self._holds[reader] = fresh
        self._by_timestamp.add((fresh.timestamp, reader))
        self._by_end.add((fresh.until_us, reader))
        self._tablet_count = tablet_count

    def let_go(self, reader: ReaderId) -> None:
        """Release all that a reader holds. An unknown reader is no error."""
        hold = self._holds.pop(reader, None)
        if hold is not None:
            self._by_timestamp.remove((hold.timestamp, reader))
            self._by_end.remove((hold.until_us, reader))
            self._tablet_count -= len(hold.tablets)

    def expect_renewals(self, tablet: TabletId, now_us: int) -> None:
        """Keep all versions of a tablet that is served from now on, until its earlier readers have
        had time to renew."""
        self._expected_until_us[tablet] = now_us + self._renewal_ms_max * 1000

    def tick(self, now_us: int) -> None:
        """Forget each reader that did not renew in time, and each tablet whose time for renewals is
        over."""
        while self._by_end and self._by_end[0][0] <= now_us:
            self.let_go(self._by_end[0][1])
        for tablet, until_us in list(self._expected_until_us.items()):
            if until_us <= now_us:
                del self._expected_until_us[tablet]

    def oldest_held(self) -> Timestamp | None:
        """Return the oldest timestamp that a reader holds in this cell."""
        return self._by_timestamp[0][0] if self._by_timestamp else None

    def oldest(self, tablet: TabletId) -> Timestamp | None:
        """Return the oldest timestamp at which a reader of this tablet may still read, as of the
        last tick. The rows at this timestamp and later ones have to stay. None if there is no
        reader."""
        if tablet in self._expected_until_us:
            return MIN_TIMESTAMP
        for timestamp, reader in self._by_timestamp:
            if tablet in self._holds[reader].tablets:
                return timestamp
        return None
