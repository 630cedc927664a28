"""Bugs that only a transaction meets which lasts: its tablets are mounted anew, or what it has to
respect was locked long after something else."""

from typing import Any, Final

import pytest

from dodona.types import NULL_TIMESTAMP, Timestamp, TransactionId
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.commit.admission import check_parts
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import RowLocks
from dodona_wire.messages.data import TabletModifications
from negative.bug import CheckedBug, PlantedBug, Where
from unit.tablets import test_row_locks

REMOUNTED: Final[dict[str, Any]] = {
    "remount_us_mean": 500_000,
    "session_count": 10,
    "think_us_mean": 20_000,
    "session_life_us_mean": 0,
    "commit_death_rate": 0.0,
    "faults": (),
}
"""Tables are unmounted and mounted again all the time, and nothing else goes wrong."""
LASTING: Final[dict[str, Any]] = REMOUNTED | {"remount_us_mean": 0, "transaction_life_s_max": 3}
"""What nobody needs any more goes after seconds."""


def skip_fences_of_several(patch: pytest.MonkeyPatch) -> None:
    """As if a check of one tablet were written for the transactions of one."""

    def check(
        cell: Cell,
        transaction: TransactionId,
        modifications: tuple[TabletModifications, ...],
        tablets: tuple[Tablet, ...],
    ) -> None:
        fences = [it.fence for it in tablets]
        if len(tablets) > 1:
            for tablet in tablets:
                tablet.fence = Timestamp(NULL_TIMESTAMP + 1)
        try:
            check_parts(cell, transaction, modifications, tablets)
        finally:
            for tablet, fence in zip(tablets, fences, strict=True):
                tablet.fence = fence

    patch.setattr("dodona_tablets.core.commit.participant.check_parts", check)


def forget_all_with_the_oldest(patch: pytest.MonkeyPatch) -> None:
    def forget(locks: RowLocks, needed: Timestamp) -> None:
        times = locks.times
        if times is not None and any(max(it.values()) <= needed for it in times.values()):
            locks.times = None

    patch.setattr(RowLocks, "forget", forget)


BUGS = (
    PlantedBug(
        None,
        "the fence is not looked at for several tablets of one cell",
        skip_fences_of_several,
        ("NOCONFLICT", "RWLOCK"),
        Where("slow_transactions", changes=REMOUNTED),
    ),
    PlantedBug(
        None,
        "locks without data are forgotten with the oldest of their row",
        forget_all_with_the_oldest,
        ("NOCONFLICT", "RWLOCK"),
        Where("slow_transactions", seconds=40, changes=LASTING),
    ),
    CheckedBug(
        None,
        "times of locks of one kind are forgotten with those of another",
        forget_all_with_the_oldest,
        lambda _: test_row_locks.test_times_stay_until_the_newest_of_all_kinds_is_not_needed(),
        "test_times_stay_until_the_newest_of_all_kinds_is_not_needed",
    ),
)
