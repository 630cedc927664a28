"""Bugs with tablets that are gone: dropped too early, or not for good."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pytest

from dodona.types import Revision, TabletId
from dodona_oracle.core.records import StoredTable
from dodona_oracle.core.tables import Tables
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.mounting.mounting import Mounting
from dodona_wire.messages.catalog import Assignment
from negative.bug import CheckedBug, PlantedBug, Where
from unit.oracle import test_gone
from unit.tablets import test_dropping

BUSY_OPERATOR: Final = {"remount_us_mean": 500_000}


def forget_the_sources(patch: pytest.MonkeyPatch) -> None:
    """What no table has any more is gone, though others have yet to take over its rows."""

    def planted(table: StoredTable) -> Iterator[TabletId]:
        return (tablet.tablet for tablet in table.tablets)

    patch.setattr("dodona_oracle.core.mounting.needed", planted)


def drop_in_memory(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Mounting, assignment: Assignment) -> None:
        tablets = self._cell.tablets
        gone = [it for it in assignment.dropped if it in tablets and not tablets[it].is_mounted]
        self._cell.drop(gone, assignment.revision)

    patch.setattr(Mounting, "_drop", planted)


def drop_what_is_not_known(patch: pytest.MonkeyPatch) -> None:
    """Of a tablet that was made after a master's store was copied, or taken over, it knows
    nothing."""

    def planted(self: Tables, tablets: Iterable[TabletId]) -> tuple[TabletId, ...]:
        return tuple(it for it in tablets if it not in self._need_counts)

    patch.setattr(Tables, "gone", planted)


def drop_without_a_trace(patch: pytest.MonkeyPatch) -> None:
    drop = Cell.drop

    def planted(self: Cell, tablets: Sequence[TabletId], _: Revision) -> None:
        drop(self, tablets, Revision(0))

    patch.setattr(Cell, "drop", planted)


BUGS: tuple[PlantedBug | CheckedBug, ...] = (
    PlantedBug(
        None,
        "a tablet is dropped whose rows are still to be taken over",
        forget_the_sources,
        ("LIVENESS", "DURABILITY", "EXT"),
        Where(changes=BUSY_OPERATOR),
    ),
    PlantedBug(
        None,
        "what was dropped is there again after a restart",
        drop_in_memory,
        ("DURABILITY", "CRASH"),
        Where(changes=BUSY_OPERATOR),
    ),
    CheckedBug(
        None,
        "a master has cells drop what it does not know",
        drop_what_is_not_known,
        lambda _: test_gone.test_a_tablet_id_that_the_master_never_issued_is_not_reported_as_gone(
            test_gone.cluster()
        ),
        "test_a_tablet_id_that_the_master_never_issued_is_not_reported_as_gone",
    ),
    CheckedBug(
        None,
        "an older assignment begins a dropped tablet anew, without its rows",
        drop_without_a_trace,
        lambda _: test_dropping.test_an_older_assignment_does_not_create_a_dropped_tablet_again(),
        "test_an_older_assignment_does_not_create_a_dropped_tablet_again",
    ),
)
