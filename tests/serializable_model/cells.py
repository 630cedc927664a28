"""What a cell does when a commit arrives: it takes its locks, waits, or is refused.

Owns: the parts of a transaction in a cell, the versions, and the checks against other transactions.
Must not import: the model, promises.
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

from serializable_model.rules import Rules
from serializable_model.state import (
    ALL,
    BLIND,
    COMMITTED,
    FROM_START,
    HELD,
    PLAIN,
    Case,
    Range,
    Record,
    State,
    Version,
    Write,
    changes,
    groups_by_row,
)

TAKE, STAY, LOSE = "take", "stay", "lose"
"""A commit takes its locks, waits, or is refused."""
CELLS: Final = (0, 1)
Covered = dict[int, int]
"""Rows, with the lock groups that are covered."""


class Cells:
    """The cells of one configuration under some rules."""

    def __init__(self, case: Case, rules: Rules | None = None) -> None:
        self.case = case
        self.rules = rules or Rules()
        self.title = case.title
        self.writes = cache(self._writes)
        self.covered = cache(self._covered)
        self.sent = cache(self._sent)
        self.parts = cache(self._parts)

    # ---- parts of a transaction

    def cell_of(self, row: int, division: int) -> int:
        return int(row >= self.case.borders[division])

    def _writes(self, at: int, cell: int, division: int) -> tuple[Write, ...]:
        writes = self.case.txns[at].writes
        return tuple(it for it in writes if self.cell_of(it.row, division) == cell)

    def _covered(self, at: int, present: int) -> tuple[int, ...]:
        """Return for each row the groups that the transaction has recorded."""
        txn, count = self.case.txns[at], self.case.row_count
        ranges = self.rules.recorded(txn.reads, txn.condenses)
        if txn.again_of is not None and txn.kind == PLAIN and not self.rules.sends_reads_again:
            ranges = ()
        if not self.rules.records_absent:
            found = [row for row in range(count) if present >> row & 1]
            keys = [Range(row, row + 1, it.groups) for it in ranges for row in found]
            ranges = tuple(it for it in keys if groups_by_row(ranges, count)[it.lower])
        covered = groups_by_row(ranges, count)
        if txn.again_of is None or self.rules.own_rows_are_reads:
            return covered
        own = {it.row for it in txn.writes}
        return tuple(0 if row in own else it for row, it in enumerate(covered))

    def _parts(self, at: int, division: int) -> tuple[int, ...]:
        """Return the cells in which the transaction takes part, the coordinator first."""
        txn = self.case.txns[at]
        rows = {it.row for it in txn.writes}
        if txn.writes and self.rules.reads_take_part:
            covered = self._covered(at, self.case.present)
            rows |= {row for row, groups in enumerate(covered) if groups}
        return tuple(sorted({self.cell_of(row, division) for row in rows}))

    def participants(self, state: State, at: int) -> tuple[int, ...]:
        return self.parts(at, state.clients[at].division)

    def written(self, state: State, at: int, cell: int) -> tuple[Write, ...]:
        return self.writes(at, cell, state.clients[at].division)

    def read(self, state: State, at: int, cell: int) -> Covered:
        """Return the rows of its reads that are sent to this cell, with their groups."""
        client = state.clients[at]
        division = client.division if self.rules.divides_anew else 0
        present = 0 if self.rules.records_absent else self._present_at(state, client.read_at)
        return self.sent(at, cell, division, present)

    def _sent(self, at: int, cell: int, division: int, present: int) -> Covered:
        covered = enumerate(self.covered(at, present))
        return {
            row: groups for row, groups in covered if groups and self.cell_of(row, division) == cell
        }

    def fence(self, state: State, at: int, cell: int) -> int:
        """Return the fence of the cell for a part, or that of its rows that have moved there."""
        if cell == 0 or not state.moved_fence:
            return state.fences[cell]
        rows = {*self.read(state, at, cell), *(it.row for it in self.written(state, at, cell))}
        has_moved = any(self.cell_of(row, 0) != cell for row in rows)
        return max(state.fences[cell], state.moved_fence if has_moved else 0)

    # ---- versions

    def versions(self, state: State, row: int) -> list[Version]:
        """Return the versions of a row that are applied, the oldest first."""
        is_first = self.case.present >> row & 1
        found = [Version(0, FROM_START, ALL, is_delete=False)] if is_first else []
        for at, txn in enumerate(self.case.txns):
            for it in txn.writes:
                if it.row != row:
                    continue
                record = state.records[at][self.cell_of(row, state.clients[at].division)]
                if record.phase == COMMITTED:
                    groups = ALL if it.is_delete else it.groups
                    found.append(Version(record.at, at, groups, it.is_delete))
        return sorted(found)

    def is_absent(self, state: State, row: int) -> bool:
        versions = self.versions(state, row)
        return not versions or versions[-1].is_delete

    def _present_at(self, state: State, timestamp: int) -> int:
        found = 0
        for row in range(self.case.row_count):
            below = [it for it in self.versions(state, row) if it.at <= timestamp]
            found |= (bool(below) and not below[-1].is_delete) << row
        return found

    # ---- the checks

    def meeting(self, state: State, at: int, cell: int) -> str:
        """Return whether a commit takes its locks, waits or loses."""
        is_checked = state.records[at][cell].is_checked
        if not is_checked and self._is_changed(state, at, cell):
            return LOSE
        met = {
            self._holder(state, at, other, cell, reads=not is_checked)
            for other in range(len(state.records))
            if other != at and state.records[other][cell].phase in HELD
        }
        return LOSE if LOSE in met else STAY if STAY in met else TAKE

    def validated(self, state: State, at: int, cell: int) -> str:
        """For a bug: validate the reads only."""
        if self._are_reads_changed(state, at, cell):
            return LOSE
        met = {
            self._reads_meet(state, at, other, cell)
            for other in range(len(state.records))
            if other != at and state.records[other][cell].phase in HELD
        }
        return LOSE if LOSE in met else STAY if STAY in met else TAKE

    def _is_changed(self, state: State, at: int, cell: int) -> bool:
        if self._are_reads_changed(state, at, cell):
            return True
        start, txn = state.clients[at].start, self.case.txns[at]
        if txn.again_of is not None and not self.rules.checks_writes_again:
            return False
        return txn.kind != BLIND and any(
            version.at > start and version.groups & _groups(it)
            for it in self.written(state, at, cell)
            for version in self.versions(state, it.row)
        )

    def _are_reads_changed(self, state: State, at: int, cell: int) -> bool:
        """Return whether the reads have a version above s. A cell has no rows of the other one, and
        of the versions below its fence only the newest, which say nothing about what came when."""
        client = state.clients[at]
        fence = self.fence(state, at, cell)
        start = max(self.rules.validated_from(client.start, client.read_at), fence)
        if not self.rules.checks_versions:
            return False
        for row, groups in self.read(state, at, cell).items():
            if self.cell_of(row, state.reshards) == cell and any(
                it.at > start for it in self._changes(state, row, groups)
            ):
                return True
        return False

    def _changes(self, state: State, row: int, groups: int) -> Iterable[Version]:
        versions = self.versions(state, row)
        if self.rules.checks_presence:
            return changes(versions, groups)
        return [it for it in versions if it.groups & groups]

    def _holder(self, state: State, at: int, other: int, cell: int, *, reads: bool) -> str:
        """Return what a commit does about another one that holds rows of the cell."""
        met = {self._reads_meet(state, at, other, cell)} if reads else set()
        met |= {self._writes_meet(state, at, other, cell), self._holds_meet(state, at, other, cell)}
        return LOSE if LOSE in met else STAY if STAY in met else TAKE

    def _reads_meet(self, state: State, at: int, other: int, cell: int) -> str:
        """Reads of this one, and writes of the other one."""
        mine, record = self.read(state, at, cell), state.records[other][cell]
        if not self.rules.checks_writers or not mine:
            return TAKE
        for it in self.written(state, other, cell):
            groups = mine.get(it.row, 0)
            is_created = self.rules.checks_presence and groups and self.is_absent(state, it.row)
            if groups & _groups(it) or is_created:
                return self._about_writer(state, at, record)
        return TAKE

    def _about_writer(self, state: State, at: int, record: Record) -> str:
        start, kind = state.clients[at].start, self.case.txns[at].kind
        if not self.rules.waits_for_writer(start, record, kind):
            return LOSE
        return STAY if self.rules.waits_for_prepared else TAKE

    def _writes_meet(self, state: State, at: int, other: int, cell: int) -> str:
        """Writes of both."""
        theirs = self.written(state, other, cell)
        for it in self.written(state, at, cell):
            if any(it.row == its.row and _groups(it) & _groups(its) for its in theirs):
                start, kind = state.clients[at].start, self.case.txns[at].kind
                record = state.records[other][cell]
                return STAY if self.rules.waits_for_writer(start, record, kind) else LOSE
        return TAKE

    def _holds_meet(self, state: State, at: int, other: int, cell: int) -> str:
        """Writes of this one, and reads of the other one."""
        kind, rules = self.case.txns[at].kind, self.rules
        if rules.is_released(state.records[other][cell]) or not rules.is_seen(kind):
            return TAKE
        theirs = self.read(state, other, cell)
        for it in self.written(state, at, cell) if theirs else ():
            groups = theirs.get(it.row, 0)
            is_created = rules.checks_held_presence and groups and self.is_absent(state, it.row)
            if groups & _groups(it) or is_created:
                start, other_start = self._order(state, at), self._order(state, other)
                is_alone = len(self.participants(state, at)) == 1
                waits = rules.waits_for_reader(start, other_start, kind, is_alone)
                return STAY if waits else LOSE
        return TAKE

    def _order(self, state: State, at: int) -> int:
        client = state.clients[at]
        return self.rules.ordered_at(client.start, client.read_at)


def _groups(it: Write) -> int:
    return ALL if it.is_delete else it.groups
