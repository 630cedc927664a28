"""The decisions of the rules, one each. A planted bug gets one of them wrong.

Owns: what a transaction records, whom it waits for, what a cell checks, and what it keeps. Must not
import: the model.
"""

from collections.abc import Sequence

from serializable_model.state import BLIND, LOCKED, NO, PREPARED, Range, Record


class Rules:
    """The rules as they are designed."""

    # ---- what the client records and sends
    records_absent = True
    """Keys that were absent are recorded, and ranges as they were asked for."""
    reads_take_part = True
    """A cell that was only read is a participant."""
    divides_anew = True
    """Reads are divided by the tablets of the day. Otherwise by those of the beginning."""

    # ---- what a cell checks
    checks_versions = True
    checks_writers = True
    """Validation looks at the rows that others hold for a write."""
    waits_for_prepared = True
    """Validation waits for a writer that is prepared below s. Otherwise it looks past it."""
    checks_presence = True
    """A version or a writer of another group counts if the row is absent before it."""
    checks_in_one_step = True
    """Reads are validated in the step that takes the locks."""
    checks_again = True
    """After a wait, all checks are done again."""
    checks_held_presence = True
    """A held row that is absent is held in all groups."""
    obeys_fence = True
    asks_under_locks = True
    """A cell asks for p when it has its locks."""

    # ---- what a cell keeps
    holds_without_writes = True
    """A cell that was only read holds the reads."""
    appends_without_writes = True
    """A cell that was only read appends *prepared*."""
    keeps_over_restart = True
    """A restart takes the read holds of prepared transactions again."""
    keeps_until_outcome = True
    reshard_waits_for_reads = True
    """A reshard waits for cells that were only read, too."""

    asks_coordinator = True
    """A prepared participant that hears nothing asks the coordinator."""

    # ---- a new attempt of a transaction that was refused
    sends_reads_again = True
    """A new attempt with snapshot isolation sends all of its reads."""
    own_rows_are_reads = True
    """Rows that a new attempt reads and writes are among the reads that are validated."""
    checks_writes_again = True
    """A version above the new s refuses a write."""
    has_own_answers = True
    """A new attempt has an id of its own. Otherwise answers to the first attempt count for it."""

    def may_begin_again(self, said: Sequence[int]) -> bool:
        """Return whether a new attempt may begin: a cell has refused the first one for good."""
        return NO in said

    def validated_from(self, start: int, since: int) -> int:
        """Return the timestamp above which versions in the reads refuse a new attempt."""
        return since

    def fenced_at(self, start: int, since: int) -> int:
        """Return the timestamp of a new attempt that has to be above the fence."""
        return since

    def ordered_at(self, start: int, since: int) -> int:
        """Return the timestamp of a new attempt that decides whether a writer waits for it."""
        return start

    def recorded(self, ranges: Sequence[Range], condenses: bool) -> tuple[Range, ...]:
        """Return the ranges that a transaction records."""
        return self.condensed(ranges) if condenses else tuple(ranges)

    def condensed(self, ranges: Sequence[Range]) -> tuple[Range, ...]:
        """Merge the first two ranges to their hull, with the groups of both."""
        one, two, *others = sorted(ranges)
        hull = Range(one.lower, max(one.upper, two.upper), one.groups | two.groups)
        return (hull, *others)

    def is_seen(self, kind: str) -> bool:
        """Return whether a writer of this kind looks at the read holds of others."""
        return True

    def waits_for_writer(self, start: int, other: Record, kind: str) -> bool:
        """Return whether a transaction waits for one that writes its rows, or is refused."""
        return kind == BLIND or (other.phase == PREPARED and other.at < start)

    def waits_for_reader(self, start: int, other_start: int, kind: str, is_alone: bool) -> bool:
        """Return whether a writer waits for one that holds its rows for reading."""
        return kind == BLIND or is_alone or other_start < start

    def is_released(self, record: Record) -> bool:
        """Return whether a record has let its reads go."""
        return not record.is_held or (record.phase != LOCKED and not self.keeps_until_outcome)

    def committed_at(self, prepared: Sequence[int]) -> int:
        return max(prepared)
