"""Planted bugs: each breaks one rule, and a search must find what a user would see of it.

Owns: the bugs. Must not import: the product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from serializable_model.cases import (
    BLIND_ONE,
    PLAIN_ONE,
    PLAIN_TWO,
    condensed,
    groups,
    phantom,
    phantom_apart,
    read_apart,
    resharded,
    resharded_reads,
    skew,
    skew_and_reader,
    skew_together,
    upgraded,
)
from serializable_model.model import SerializableModel
from serializable_model.promises import ATOMIC, DEADLOCK, SERIALIZABLE, VALID
from serializable_model.rules import Rules
from serializable_model.state import BLIND, LOCKED, PLAIN, Case, Range, Record


class AbsentLeftOut(Rules):
    records_absent = False


class OneRowShort(Rules):
    def recorded(self, ranges: Sequence[Range], condenses: bool) -> tuple[Range, ...]:
        short = [it._replace(upper=it.upper - 1) for it in ranges]
        return super().recorded(short, condenses)


class Shrunk(Rules):
    def condensed(self, ranges: Sequence[Range]) -> tuple[Range, ...]:
        one, _, *others = sorted(ranges)
        return (one, *others)


class ReadsStayHome(Rules):
    reads_take_part = False


class OldDivision(Rules):
    divides_anew = False


class NoVersions(Rules):
    checks_versions = False


class PastWriters(Rules):
    checks_writers = False


class PastPrepared(Rules):
    waits_for_prepared = False


class OnlyItsGroups(Rules):
    checks_presence = False


class TwoSteps(Rules):
    checks_in_one_step = False


class CheckedOnce(Rules):
    checks_again = False


class HeldInItsGroups(Rules):
    checks_held_presence = False


class PastTheFence(Rules):
    obeys_fence = False


class AskedEarly(Rules):
    asks_under_locks = False


class HoldsNothing(Rules):
    holds_without_writes = False


class AppendsNothing(Rules):
    appends_without_writes = False


class LostAtRestart(Rules):
    keeps_over_restart = False


class HeldFromPrepared(Rules):
    def is_released(self, record: Record) -> bool:
        return record.phase == LOCKED


class LetGoAtPrepared(Rules):
    keeps_until_outcome = False


class ReshardPassesReads(Rules):
    reshard_waits_for_reads = False


class NoWriterLooks(Rules):
    def is_seen(self, kind: str) -> bool:
        return False


class PlainDoesNotLook(Rules):
    def is_seen(self, kind: str) -> bool:
        return kind != PLAIN


class BlindDoesNotLook(Rules):
    def is_seen(self, kind: str) -> bool:
        return kind != BLIND


class WaitsForLaterReader(Rules):
    def waits_for_reader(self, start: int, other_start: int, kind: str, is_alone: bool) -> bool:
        return True


class WaitsForAnyWriter(Rules):
    def waits_for_writer(self, start: int, other: Record, kind: str) -> bool:
        return True


class AtTheSmallest(Rules):
    def committed_at(self, prepared: Sequence[int]) -> int:
        return min(prepared)


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug, the configuration that shows it, and the promise that it breaks."""

    title: str
    rules: Callable[[], Rules]
    case: Case
    promise: str

    def make(self) -> SerializableModel:
        return SerializableModel(self.case, self.rules(), frozenset({self.promise}))


BUGS: Final = (
    PlantedBug("absent rows are not recorded", AbsentLeftOut, phantom(), SERIALIZABLE),
    PlantedBug("a range ends one row early", OneRowShort, phantom(), VALID),
    PlantedBug("merged ranges shrink", Shrunk, condensed(), VALID),
    PlantedBug("a cell that was only read takes no part", ReadsStayHome, skew(), SERIALIZABLE),
    PlantedBug(
        "reads are sent where rows were before a reshard", OldDivision, resharded(), SERIALIZABLE
    ),
    PlantedBug("validation looks at no versions", NoVersions, skew_together(), SERIALIZABLE),
    PlantedBug(
        "validation passes rows that others write", PastWriters, read_apart(PLAIN_TWO), VALID
    ),
    PlantedBug(
        "validation passes a writer that is prepared", PastPrepared, read_apart(PLAIN_TWO), VALID
    ),
    PlantedBug("validation ignores the presence of a row", OnlyItsGroups, groups(), VALID),
    PlantedBug("reads are validated before the locks", TwoSteps, skew(), SERIALIZABLE),
    PlantedBug("a transaction that waited is not checked again", CheckedOnce, upgraded(), VALID),
    PlantedBug("a hold ignores the presence of a row", HeldInItsGroups, groups(), VALID),
    PlantedBug("the fence of a mount is not obeyed", PastTheFence, resharded(), SERIALIZABLE),
    PlantedBug(
        "a cell asks for p before it has its locks", AskedEarly, read_apart(PLAIN_ONE), VALID
    ),
    PlantedBug("a cell that was only read holds nothing", HoldsNothing, skew(), SERIALIZABLE),
    PlantedBug(
        "a cell that was only read appends nothing",
        AppendsNothing,
        read_apart(PLAIN_ONE, crashes_max=1),
        ATOMIC,
    ),
    PlantedBug(
        "read holds are lost at a restart",
        LostAtRestart,
        read_apart(PLAIN_ONE, crashes_max=1),
        VALID,
    ),
    PlantedBug(
        "read holds are released at prepared", LetGoAtPrepared, skew_and_reader(), SERIALIZABLE
    ),
    PlantedBug("reads are held from prepared on", HeldFromPrepared, read_apart(BLIND_ONE), VALID),
    PlantedBug(
        "a reshard does not wait for read holds", ReshardPassesReads, resharded_reads(), VALID
    ),
    PlantedBug("writers do not look at read holds", NoWriterLooks, phantom_apart(), SERIALIZABLE),
    PlantedBug(
        "plain writers do not look at read holds", PlainDoesNotLook, read_apart(PLAIN_TWO), VALID
    ),
    PlantedBug(
        "blind writers do not look at read holds", BlindDoesNotLook, read_apart(BLIND_ONE), VALID
    ),
    PlantedBug(
        "a writer waits for a reader with a larger s", WaitsForLaterReader, skew(), DEADLOCK
    ),
    PlantedBug("a writer waits for any writer", WaitsForAnyWriter, skew(), DEADLOCK),
    PlantedBug(
        "the commit timestamp is the smallest p", AtTheSmallest, read_apart(PLAIN_TWO), VALID
    ),
)
