"""Keep the bulk loads of a cell: which loads are open, and which chunks are staged for each.

Owns: the state of every load, the end of its lease, and the memory of loads that ended. Pure. Only
records change it, except for leases and seals. So a restart gets the same loads, with new leases
and without seals. `staging` handles the requests.

Invariants:
- A load that has ended never opens again. The ids of the last ended loads are remembered, and the
  newest of the ids that were forgotten.
- A staged chunk belongs to one load and one tablet, and no reader sees it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from dodona_tablets.core.records import LoadOpened, LoadState, StagedChunk
from dodona_wire.errors import InvalidRequest, LoadEnded
from dodona_wire.types import NO_LOAD, Atomicity, Key, LoadId, LoadMode, TabletId, Timestamp

ENDED_MAX: Final = 1_000
"""The most ended loads that are remembered with the reason. Older ones are only known to be
over."""

BatchPlace = tuple[int, int, int, int]
"""The partition, attempt, call and place of a batch."""


class Seal(NamedTuple):
    """What may be published in a tablet, and what it was checked against.

    A seal is valid as long as everything that came later is still in memory.
    """

    chunks: tuple[int, ...]
    erased: tuple[tuple[Key, Key], ...]
    mode: LoadMode
    since: Timestamp
    store: int
    """The first dynamic store that was not looked at."""
    publication: int
    """The number of publications that the tablet had seen."""


class Load:
    """An open load. Instants are the cell's monotonic microseconds."""

    __slots__ = ("_numbers", "is_closing", "opened", "seals", "staged", "until_us")

    def __init__(self, opened: LoadOpened) -> None:
        self.opened = opened
        self.until_us = 0
        self.staged: dict[int, StagedChunk] = {}
        """The staged chunks, by number."""
        self._numbers: dict[tuple[TabletId, BatchPlace], int] = {}
        self.seals: dict[TabletId, Seal] = {}
        self.is_closing = False
        """Whether the load ends as soon as no transaction publishes it any more."""

    def renew(self, now_us: int) -> None:
        """Renew the lease, since a request of the load came."""
        self.until_us = now_us + self.opened.lease_ms * 1000

    def add(self, staged: StagedChunk) -> None:
        number = staged.chunk.info.number
        self.staged[number] = staged
        self._numbers[staged.tablet, staged.part] = number

    def take(self, number: int) -> StagedChunk:
        """Remove a chunk that is published or dropped, and return it."""
        staged = self.staged.pop(number)
        del self._numbers[staged.tablet, staged.part]
        return staged

    def find(self, tablet: TabletId, part: BatchPlace) -> StagedChunk | None:
        """Return the staged chunk of a batch, or None if the batch was not staged."""
        number = self._numbers.get((tablet, part))
        return None if number is None else self.staged[number]

    def drop_tablet(self, tablet: TabletId) -> None:
        """Forget all that was staged for a tablet."""
        for number in [at for at, it in self.staged.items() if it.tablet == tablet]:
            self.take(number)
        self.seals.pop(tablet, None)


class CellLoads:
    """The loads of one cell."""

    def __init__(self) -> None:
        self.open: dict[LoadId, Load] = {}
        self.ended: dict[LoadId, str] = {}
        """The reasons why the last loads are over, oldest first."""
        self.forgotten = NO_LOAD
        """No load up to this one can be opened: its end is not known any more."""

    def get(self, load: LoadId) -> Load:
        """Return an open load. Raises LoadEnded."""
        found = self.open.get(load)
        if found is None or found.is_closing:
            raise self.ended_error(load)
        return found

    def take_batch(self, load: LoadId, atomicity: Atomicity, now_us: int) -> Load:
        """Return an open load for a batch of this atomicity, and renew its lease. Raises LoadEnded,
        InvalidRequest."""
        found = self.get(load)
        if found.opened.atomicity != atomicity:
            text = f'The load was begun with atomicity "{found.opened.atomicity}".'
            raise InvalidRequest(text, load=load)
        found.renew(now_us)
        return found

    def ended_error(self, load: LoadId) -> LoadEnded:
        """Return the error for a request about a load that is not open."""
        reason = self.ended.get(load, "it ended, its lease expired, or it was never opened here")
        return LoadEnded(f"The load is not open: {reason}.", load=load)

    def may_open(self, load: LoadId) -> bool:
        return load > self.forgotten and load not in self.ended

    @property
    def staged(self) -> Iterator[StagedChunk]:
        """All staged chunks."""
        for load in self.open.values():
            yield from load.staged.values()

    def begin_leases(self, now_us: int) -> None:
        """Renew all leases, since the cell serves from now on: a client that is alive can renew its
        load."""
        for load in self.open.values():
            load.renew(now_us)

    def drop_tablet(self, tablet: TabletId) -> None:
        """Forget the staged chunks of a tablet that is not served any more. It may have another
        schema later."""
        for load in self.open.values():
            load.drop_tablet(tablet)

    # Records

    def apply_open(self, record: LoadOpened) -> Load:
        made = self.open[record.load] = Load(record)
        return made

    def apply_close(self, load: LoadId, reason: str) -> None:
        del self.open[load]
        self.ended[load] = reason
        if len(self.ended) > ENDED_MAX:
            oldest = next(iter(self.ended))
            del self.ended[oldest]
            self.forgotten = max(self.forgotten, oldest)

    def states(self) -> tuple[LoadState, ...]:
        """Return the open loads, for a checkpoint."""
        return tuple([LoadState(it.opened, tuple(it.staged.values())) for it in self.open.values()])

    def restore(
        self,
        states: tuple[LoadState, ...],
        ended: tuple[tuple[LoadId, str], ...],
        forgotten: LoadId,
    ) -> None:
        for state in states:
            load = self.apply_open(state.opened)
            for staged in state.staged:
                load.add(staged)
        self.ended = dict(ended)
        self.forgotten = forgotten
