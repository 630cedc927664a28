"""The bulk loads of a cell: which are open, and what is staged of each.

Owns: the state of every load, until when each is kept without a sign of life, and the memory of
those that ended. Pure, and changed by records only but for leases and seals: so a restart comes to
the same loads, with their leases begun anew and nothing sealed. Who asks for what is `staging`'s.

Invariants:
- A load that has ended never opens again: the ids of the last ones are remembered, and of all that
  were forgotten the newest.
- A staged chunk belongs to one load and one tablet, and is seen by nobody.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from dodona_tablets.core.records import LoadOpened, LoadState, StagedChunk
from dodona_wire.errors import InvalidRequest, LoadEnded
from dodona_wire.types import NO_LOAD, Atomicity, Key, LoadId, LoadMode, TabletId, Timestamp

ENDED_MAX: Final = 1_000
"""Remembered with the reason. Older ones are only known to be over."""

BatchPlace = tuple[int, int, int, int]
"""Partition, attempt, call and place of a batch."""


class Seal(NamedTuple):
    """What was found fit to be published in a tablet, and how much of it that was checked against.

    It holds as long as everything that came later is still in memory."""

    chunks: tuple[int, ...]
    erased: tuple[tuple[Key, Key], ...]
    mode: LoadMode
    since: Timestamp
    store: int
    """The first dynamic store that was not looked at."""
    publication: int
    """How many publications the tablet had seen."""


class Load:
    """One that is open. Instants are the cell's monotonic microseconds."""

    __slots__ = ("_numbers", "is_closing", "opened", "seals", "staged", "until_us")

    def __init__(self, opened: LoadOpened) -> None:
        self.opened = opened
        self.until_us = 0
        self.staged: dict[int, StagedChunk] = {}
        """By number."""
        self._numbers: dict[tuple[TabletId, BatchPlace], int] = {}
        self.seals: dict[TabletId, Seal] = {}
        self.is_closing = False
        """It ends as soon as no transaction publishes it any more."""

    def renew(self, now_us: int) -> None:
        """Something of it was heard."""
        self.until_us = now_us + self.opened.lease_ms * 1000

    def add(self, staged: StagedChunk) -> None:
        number = staged.chunk.info.number
        self.staged[number] = staged
        self._numbers[staged.tablet, staged.part] = number

    def take(self, number: int) -> StagedChunk:
        """It is published: no longer the load's."""
        staged = self.staged.pop(number)
        del self._numbers[staged.tablet, staged.part]
        return staged

    def find(self, tablet: TabletId, part: BatchPlace) -> StagedChunk | None:
        """What became of a batch, if it was staged."""
        number = self._numbers.get((tablet, part))
        return None if number is None else self.staged[number]

    def drop_tablet(self, tablet: TabletId) -> None:
        """What was staged for it is gone."""
        for number in [at for at, it in self.staged.items() if it.tablet == tablet]:
            self.take(number)
        self.seals.pop(tablet, None)


class CellLoads:
    """Of one cell."""

    def __init__(self) -> None:
        self.open: dict[LoadId, Load] = {}
        self.ended: dict[LoadId, str] = {}
        """Why the last ones are over, oldest first."""
        self.forgotten = NO_LOAD
        """No load up to this one can be opened: what became of it is not known."""

    def get(self, load: LoadId) -> Load:
        """One that is open. Raises LoadEnded."""
        found = self.open.get(load)
        if found is None or found.is_closing:
            raise self.ended_error(load)
        return found

    def take_batch(self, load: LoadId, atomicity: Atomicity, now_us: int) -> Load:
        """One that takes batches of this kind; it is renewed. Raises LoadEnded, InvalidRequest."""
        found = self.get(load)
        if found.opened.atomicity != atomicity:
            text = f'the load was begun with atomicity "{found.opened.atomicity}"'
            raise InvalidRequest(text, load=load)
        found.renew(now_us)
        return found

    def ended_error(self, load: LoadId) -> LoadEnded:
        """What to say to whoever still wants something of it."""
        reason = self.ended.get(load, "it ended, its lease expired, or it was never opened here")
        return LoadEnded(f"the load is not open: {reason}", load=load)

    def may_open(self, load: LoadId) -> bool:
        return load > self.forgotten and load not in self.ended

    @property
    def staged(self) -> Iterator[StagedChunk]:
        """All there are."""
        for load in self.open.values():
            yield from load.staged.values()

    def begin_leases(self, now_us: int) -> None:
        """The cell serves from now on: whoever is alive can say so."""
        for load in self.open.values():
            load.renew(now_us)

    def drop_tablet(self, tablet: TabletId) -> None:
        """It is not served any more, and may have another schema when it is again."""
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
        """For a checkpoint."""
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
