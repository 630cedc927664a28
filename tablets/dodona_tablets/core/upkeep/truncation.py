"""Write checkpoints, and compute how far the log may be cut.

Owns: what a checkpoint has of a cell, when one is made, and when everything before it in the log is
not needed any more.

Invariants:
- A checkpoint has the state that replay of the log up to it would reach. It leaves out the rows of
  stores in memory and the outcomes of transactions. So the log may be cut there when two conditions
  hold. Chunks have the rows of all stores that were in memory then, by durable records. And those
  outcomes are forgotten.
- If the conditions hold, they also hold for every earlier checkpoint. So after a crash in the
  middle of a cut, the log may begin with any of these checkpoints.
- A start may find chunks that the log does not name. They are removed after the first checkpoint of
  a cell that serves. This checkpoint names all chunks. The cell has joined its cluster, so the log
  is this cell's.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.records import (
    Checkpoint,
    CommitUndelivered,
    PreparedHere,
    TabletState,
)
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.cores.effects import RemoveChunks, TruncateLog
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.types import TabletId, Timestamp

WAITING_MAX: Final = 16
"""The most checkpoints whose conditions do not hold yet."""


class _Waiting(NamedTuple):
    """A checkpoint in the log, and the conditions under which the log may be cut there."""

    number: int
    stores: tuple[tuple[TabletId, int], ...]
    newest: Timestamp
    """No transaction with an outcome before the checkpoint began after this timestamp."""


class Truncation:
    """The checkpoints of a cell. See the module. One instance for each cell."""

    def __init__(self, cell: Cell, outbox: Outbox) -> None:
        self._cell = cell
        self._outbox = outbox
        self._waiting: list[_Waiting] = []
        self._made_at_us: int | None = None
        self._appended_count = -1
        """The number of appended records when the last checkpoint was made."""

    def tick(self) -> None:
        """Make a checkpoint if it is time, and cut the log as far as it may be cut. If a start
        found orphans, the first checkpoint is due immediately."""
        cell = self._cell
        period_us = cell.limits.checkpoint_period_ms * 1000
        if self._made_at_us is None:
            self._made_at_us = cell.now.instant_us
        is_due = cell.now.instant_us - self._made_at_us >= period_us or bool(cell.chunks.orphans)
        if (is_due or cell.fault_at(FaultPoint.CHECKPOINT_EARLY)) and self._is_worth_it():
            self._made_at_us = cell.now.instant_us
            self._make()
        ready = [it for it in self._waiting if self._is_ready(it)]
        if ready:
            self._waiting = [it for it in self._waiting if it.number > ready[-1].number]
            self._outbox.send(TruncateLog(ready[-1].number))

    def finish(self) -> None:
        """Write the last checkpoint of a cell that stops, with the commits that it remembers.
        Nothing before it is needed if chunks have all rows."""
        cell = self._cell
        cell.note_checkpoint(cell.checkpoint + 1)
        commits = [(it, at) for it, at in cell.outcomes.items() if not isinstance(at, Failure)]
        self._outbox.append(replace(checkpoint_of(cell), outcomes=tuple(commits)))
        self._remove_orphans()
        if not any(_in_memory(cell)):
            self._outbox.send(TruncateLog(cell.checkpoint))

    def _is_worth_it(self) -> bool:
        is_new = self._outbox.appended_count > self._appended_count or bool(
            self._cell.chunks.orphans
        )
        return is_new and len(self._waiting) < WAITING_MAX

    def _make(self) -> None:
        cell = self._cell
        cell.note_checkpoint(cell.checkpoint + 1)
        stores = tuple(_in_memory(cell))
        self._waiting.append(_Waiting(cell.checkpoint, stores, cell.outcomes.newest_bound))
        self._outbox.append(checkpoint_of(cell))
        self._remove_orphans()
        self._appended_count = self._outbox.appended_count

    def _remove_orphans(self) -> None:
        """Remove orphans, after a checkpoint."""
        orphans = self._cell.chunks.take_orphans()
        if orphans:
            self._outbox.send(RemoveChunks(orphans))

    def _is_ready(self, waiting: _Waiting) -> bool:
        cell = self._cell
        return waiting.newest <= cell.outcomes.watermark and not any(
            _is_in_memory(cell.tablets.get(tablet), store) for tablet, store in waiting.stores
        )


def _in_memory(cell: Cell) -> Iterator[tuple[TabletId, int]]:
    """Yield the stores with rows that no chunk has."""
    for number, tablet in cell.tablets.items():
        for store in (tablet.active, *tablet.stores.unflushed):
            if store.rows:
                yield number, store.number


def _is_in_memory(tablet: Tablet | None, number: int) -> bool:
    """Return whether the rows of a store are in no chunk yet."""
    if tablet is None:
        return False
    stores = tablet.stores
    return stores.active.number == number or any(it.number == number for it in stores.unflushed)


def checkpoint_of(cell: Cell) -> Checkpoint:
    """Return the checkpoint of a cell as it is now."""
    alive = [cell.transactions[it] for it in sorted(cell.transactions)]
    return Checkpoint(
        cell.checkpoint,
        cell.cluster,
        cell.outcomes.watermark,
        cell.chunks.next_number,
        cell.dropped_revision,
        tuple([_state_of(tablet) for tablet in cell.tablets.values()]),
        tuple(
            [
                PreparedHere(it.id, it.prepare_timestamp, it.participants, it.modifications)
                for it in alive
                if it.state is State.PREPARED
            ]
        ),
        tuple(
            [
                CommitUndelivered(it.id, it.commit_timestamp, it.participants)
                for it in alive
                if it.state is State.COMMITTED
            ]
        ),
        loads=cell.loads.states(),
        loads_ended=tuple(cell.loads.ended.items()),
        loads_forgotten=cell.loads.forgotten,
    )


def _state_of(tablet: Tablet) -> TabletState:
    stores = tablet.stores
    return TabletState(
        tablet.assignment,
        tablet.is_mounted,
        tablet.retained_timestamp,
        tablet.newest_stamp,
        tuple(tablet.missing.items()),
        tuple([it.attached for it in stores.chunks]),
        tuple([it.number for it in stores.unflushed]),
        stores.active.number,
    )
