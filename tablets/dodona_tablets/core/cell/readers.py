"""Who reads a snapshot for long, and is not to lose it: the readers that registered here.

Owns: their timestamps, until when each is kept without a renewal, and how many there may be. Pure,
and in memory only: a cell that starts knows nobody, nor does it know who read a tablet before it
was mounted. So for a while everything of such a tablet is kept, and whoever registered before,
somewhere, is to renew here by then: clients do so several times a minute. A longer lease is for
readers that are idle, and ends that early where the tablet moved meanwhile.
Retention asks `oldest`, each time it is about to let versions go.
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
    """Of one cell. All instants are the monotonic microseconds of the cell's process."""

    def __init__(self, count_max: int, tablets_max: int, renewal_ms_max: int) -> None:
        """`tablets_max` is of all readers together."""
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
        """Register or renew: what the reader held before is replaced. Raises Overloaded, and leaves
        everything as it was."""
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
                f"too many readers hold snapshots here: at most {self._count_max} do, of "
                f"{self._tablets_max} tablets together",
                readers=len(self._holds),
                tablets=self._tablet_count,
            )
        self.let_go(reader)
        self._holds[reader] = fresh
        self._by_timestamp.add((fresh.timestamp, reader))
        self._by_end.add((fresh.until_us, reader))
        self._tablet_count = tablet_count

    def let_go(self, reader: ReaderId) -> None:
        """It needs nothing any more. No news if it is not known."""
        hold = self._holds.pop(reader, None)
        if hold is not None:
            self._by_timestamp.remove((hold.timestamp, reader))
            self._by_end.remove((hold.until_us, reader))
            self._tablet_count -= len(hold.tablets)

    def expect_renewals(self, tablet: TabletId, now_us: int) -> None:
        """The tablet is served from now on: who read it before has yet to say so."""
        self._expected_until_us[tablet] = now_us + self._renewal_ms_max * 1000

    def tick(self, now_us: int) -> None:
        """Forget whoever was not renewed in time, and expect nobody where that time is over."""
        while self._by_end and self._by_end[0][0] <= now_us:
            self.let_go(self._by_end[0][1])
        for tablet, until_us in list(self._expected_until_us.items()):
            if until_us <= now_us:
                del self._expected_until_us[tablet]

    def oldest_held(self) -> Timestamp | None:
        """The oldest timestamp that anybody holds here."""
        return self._by_timestamp[0][0] if self._by_timestamp else None

    def oldest(self, tablet: TabletId) -> Timestamp | None:
        """The oldest timestamp that a reader of this tablet may still read at, as of the last tick:
        what it shows has to stay, at this timestamp and later ones. None if there is no reader."""
        if tablet in self._expected_until_us:
            return MIN_TIMESTAMP
        for timestamp, reader in self._by_timestamp:
            if tablet in self._holds[reader].tablets:
                return timestamp
        return None
