"""Planted bugs of new attempts.

Owns: the bugs. Must not import: the product.
"""

from collections.abc import Sequence
from typing import Final

from serializable_model.attempts import (
    changed,
    changed_plain,
    counters,
    counters_plain,
    overtaken,
    prepared_apart,
    resharded_again,
)
from serializable_model.planted import PastPrepared, PlantedBug
from serializable_model.promises import ATOMIC, DEADLOCK, ONCE, SERIALIZABLE, SNAPSHOT, VALID
from serializable_model.rules import Rules


class AgainAfterTimeout(Rules):
    def may_begin_again(self, said: Sequence[int]) -> bool:
        return True


class OneId(Rules):
    has_own_answers = False


class ReadsAtTheNewStart(Rules):
    def validated_from(self, start: int, since: int) -> int:
        return start


class FenceAtTheNewStart(Rules):
    def fenced_at(self, start: int, since: int) -> int:
        return start


class OrderedByReads(Rules):
    def ordered_at(self, start: int, since: int) -> int:
        return since


class OwnWriteProtects(Rules):
    own_rows_are_reads = False


class WritesPass(Rules):
    checks_writes_again = False


class SnapshotStaysHome(Rules):
    sends_reads_again = False


AGAIN_BUGS: Final = (
    PlantedBug("a new attempt after a timeout", AgainAfterTimeout, overtaken(), ONCE),
    PlantedBug("one id for both attempts", OneId, prepared_apart(), ATOMIC),
    PlantedBug("reads are validated from the new start", ReadsAtTheNewStart, changed(), VALID),
    PlantedBug(
        "the fence is compared with the new start",
        FenceAtTheNewStart,
        changed_plain(crashes_max=1),
        SNAPSHOT,
    ),
    PlantedBug(
        "the fence of a mount is compared with the new start",
        FenceAtTheNewStart,
        resharded_again(0),
        VALID,
    ),
    PlantedBug(
        "a row that is also written is not validated", OwnWriteProtects, counters(), SERIALIZABLE
    ),
    PlantedBug(
        "a row that is also written is not validated, snapshot isolation",
        OwnWriteProtects,
        counters_plain(),
        SNAPSHOT,
    ),
    PlantedBug("a new attempt checks no versions of its writes", WritesPass, overtaken(), SNAPSHOT),
    PlantedBug(
        "a snapshot is sent again without its reads", SnapshotStaysHome, changed_plain(), SNAPSHOT
    ),
    PlantedBug(
        "a new attempt passes a writer that is prepared", PastPrepared, changed_plain(), SNAPSHOT
    ),
    PlantedBug(
        "the timestamp of its reads says who waits for it", OrderedByReads, changed(), DEADLOCK
    ),
)
