"""Planted bugs: each breaks one rule, and a search must find what a user would see of it.

Owns: the bugs. Must not import: the product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from prerequisite_model.cases import (
    created_beside,
    created_in_two_cells,
    fenced,
    insert_once,
    repeated,
    taken_in_two_cells,
)
from prerequisite_model.model import PrerequisiteModel
from prerequisite_model.rules import Rules
from prerequisite_model.state import Case, Txn, Version, Wish


class OutsideTheLock(Rules):
    checks_in_one_step = False


class AtTheSnapshot(Rules):
    def seen(
        self, versions: Sequence[Version], start: int, wish: Wish, first_is_away: bool
    ) -> Version | None:
        below = [it for it in versions if it.at <= start]
        return super().seen(below, start, wish, first_is_away)


class PastPrepared(Rules):
    waits_for_prepared = False


class LostAtRestart(Rules):
    keeps_over_restart = False


class LetGoAtPrepared(Rules):
    keeps_until_outcome = False


class CheckedAgain(Rules):
    checks_repeats = True


class LookedAtByTheClient(Rules):
    asks_cells = False


class OnlyItsGroups(Rules):
    def locked_groups(self, txn: Txn, wish: Wish, group_count: int) -> set[int]:
        return {place.group for place, _ in txn.writes if place.row == wish.row}


class NotHeld(Rules):
    def locked_groups(self, txn: Txn, wish: Wish, group_count: int) -> set[int]:
        return set()


class PastCreators(Rules):
    waits_for_creators = False


class MemoryOnly(Rules):
    looks_into_chunks = False


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, the configuration that shows it, and the promise that it breaks."""

    title: str
    rules: Callable[[], Rules]
    case: Case
    promise: str

    def make(self) -> PrerequisiteModel:
        return PrerequisiteModel(self.case, self.rules())


BUGS: Final = (
    PlantedBug(
        "a condition is checked before the locks are taken",
        OutsideTheLock,
        insert_once(is_blind=True),
        "CONDITION",
    ),
    PlantedBug(
        "a condition is checked at the snapshot", AtTheSnapshot, fenced(cells=1), "CONDITION"
    ),
    PlantedBug(
        "a condition passes a prepared writer of its row",
        PastPrepared,
        taken_in_two_cells(),
        "FRESH",
    ),
    PlantedBug(
        "the lock of a condition is lost at a restart",
        LostAtRestart,
        fenced(cells=2, crashes_max=1),
        "CONDITION",
    ),
    PlantedBug(
        "the lock of a condition is released when its transaction is prepared",
        LetGoAtPrepared,
        fenced(cells=2),
        "CONDITION",
    ),
    PlantedBug(
        "a repeated request is checked against its own write", CheckedAgain, repeated(), "TRUE"
    ),
    PlantedBug(
        "the lease is only read at the snapshot", LookedAtByTheClient, fenced(cells=2), "CONDITION"
    ),
    PlantedBug(
        "an absent row is locked in the groups of the write alone",
        OnlyItsGroups,
        created_beside(),
        "CONDITION",
    ),
    PlantedBug(
        "the row of a condition is not locked if it is not written",
        NotHeld,
        fenced(cells=2),
        "CONDITION",
    ),
    PlantedBug(
        "a condition on an absent row passes a prepared writer of another group",
        PastCreators,
        created_in_two_cells(),
        "FRESH",
    ),
    PlantedBug(
        "a condition looks at rows in memory only",
        MemoryOnly,
        insert_once(is_blind=True, in_chunks=True),
        "CONDITION",
    ),
)
