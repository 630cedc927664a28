"""The timestamp sweep: check exact snapshot isolation, from timestamps and the final dump.

Owns: `check`, which judges a whole history, and the checks EXT, VALID, NOCONFLICT, RWLOCK, LOAD and
CONDITION. The sweep visits all starts and commits in timestamp order. It keeps each row's newest
columns and lock times.

The work is linear in the number of operations, except for sorting. Must not import: any core.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dodona_loadtest.checkers.absences import Absences, absences, groups_of
from dodona_loadtest.checkers.attribution import attribute
from dodona_loadtest.checkers.exclusion import check_exclusion
from dodona_loadtest.checkers.non_atomic import check_stamped
from dodona_loadtest.checkers.real_time import check_false_conflicts, check_latest_reads
from dodona_loadtest.checkers.timestamps import Committed, check_timestamps
from dodona_loadtest.checkers.violation import Promise, Violation
from dodona_loadtest.histories.history import (
    Condition,
    Glance,
    History,
    Lock,
    Read,
    RowKey,
    Scan,
    Transaction,
    Version,
    Write,
    after,
    visible,
)

VIOLATIONS_MAX = 100
"""Violations of one promise that are kept: a broken database breaks it again and again."""


def check(history: History, dump: Iterable[Version]) -> list[Violation]:
    """Return all broken promises of a history, given every version in the tables at the end."""
    everything = list(dump)
    stamped = {stamped.write.row.table for stamped in history.stamped_writes}
    dump = [version for version in everything if version.row.table not in stamped]
    attribution = attribute(history.transactions, dump)
    committed = attribution.committed
    absent = absences(history.transactions, committed)
    return _bounded(
        [
            *attribution.violations,
            *check_timestamps(history.transactions, committed, history.acquisitions),
            *_Sweep(history.transactions, committed, dump, absent).run(),
            *check_latest_reads(history.latest_reads, committed),
            *check_exclusion(committed),
            *check_false_conflicts(history.transactions, committed, absent),
            *check_stamped(history, [it for it in everything if it.row.table in stamped]),
        ]
    )


def _bounded(violations: list[Violation]) -> list[Violation]:
    counts: dict[Promise, int] = {}
    kept = []
    for violation in violations:
        counts[violation.promise] = counts.get(violation.promise, 0) + 1
        if counts[violation.promise] <= VIOLATIONS_MAX:
            kept.append(violation)
    return kept


@dataclass(slots=True)
class _Row:
    """One row as of the current timestamp of the sweep."""

    columns: dict[str, Any] | None = None
    last_change: tuple[int, str] = (0, "")
    """The last write, or the last deletion of an existing row."""
    last_write: dict[int, tuple[int, str]] = field(default_factory=dict)
    last_shared_write: dict[int, tuple[int, str]] = field(default_factory=dict)
    last_strong_read: dict[int, tuple[int, str]] = field(default_factory=dict)


class _Sweep:
    def __init__(
        self,
        transactions: list[Transaction],
        committed: Committed,
        dump: list[Version],
        absent: Absences,
    ) -> None:
        self._absent = absent
        self._violations: list[Violation] = []
        self._rows: dict[RowKey, _Row] = {}
        self._keys: dict[str, list[bytes]] = {}
        self._register(transactions, dump)
        # At one timestamp the commit comes first: a read at T sees what committed at T.
        commits = [(commit, 0, t) for t, commit in committed]
        starts = [(t.start, 1, t) for t in transactions if t.begun_us is not None]
        self._events = sorted(commits + starts, key=lambda event: event[:2])

    def _register(self, transactions: list[Transaction], dump: list[Version]) -> None:
        """Note every row that exists, so that a scan can be compared with its range."""
        rows = {version.row for version in dump}
        rows.update(write.row for t in transactions for write in t.writes)
        for table, key in sorted(rows):
            self._keys.setdefault(table, []).append(key)

    def run(self) -> list[Violation]:
        for timestamp, kind, t in self._events:
            if kind == 0:
                self._check_commit(t, timestamp)
                self._apply(t, timestamp)
            else:
                self._check_reads(t)
        return self._violations

    def _row(self, key: RowKey) -> _Row:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row()
        return row

    def _check_reads(self, t: Transaction, promise: Promise = "EXT") -> None:
        """Check that the tables are now as the transaction has read them."""
        for read in t.reads:
            self._check_read(t, read, promise)
        for glance in t.glances:
            self._check_glance(t, glance, promise)
        for scan in t.scans:
            self._check_scan(t, scan, promise)

    def _check_read(self, t: Transaction, read: Read, promise: Promise) -> None:
        expected = visible(self._row(read.row).columns)
        if read.columns != expected:
            self._flag(promise, t, f"read {read.row} as {read.columns}, not {expected}")

    def _check_glance(self, t: Transaction, glance: Glance, promise: Promise) -> None:
        columns = self._row(glance.row).columns
        names = [] if columns is None else [name for name in glance.names if name in columns]
        expected = visible(columns and {name: columns[name] for name in names})
        if glance.columns != expected:
            text = f"read {glance.names} of {glance.row} as {glance.columns}, not {expected}"
            self._flag(promise, t, text)

    def _check_scan(self, t: Transaction, scan: Scan, promise: Promise) -> None:
        keys = self._keys.get(scan.table, [])
        expected = []
        for key in keys[bisect_left(keys, scan.lower) : bisect_left(keys, scan.upper)]:
            columns = visible(self._row(RowKey(scan.table, key)).columns)
            if columns is not None:
                expected.append(Read(RowKey(scan.table, key), columns))
        if list(scan.reads) == expected:
            return
        seen = set(scan.reads)
        lacking = [read for read in expected if read not in seen]
        wanted = set(expected)
        surplus = [read for read in scan.reads if read not in wanted]
        text = f"scan of {scan.table} lacks {lacking} and has {surplus} too much"
        self._flag(promise, t, text)

    def _check_commit(self, t: Transaction, commit: int) -> None:
        if t.load:
            self._check_load(t, commit)
        for condition in t.conditions:
            self._check_condition(t, commit, condition)
        if t.is_serializable or t.again:
            self._check_reads(t, "VALID")
        if t.is_blind:
            return  # nothing lies between its start and its commit: they are one
        locked_after = max(t.names, default=t.start) if t.load else t.written_from
        for write in t.writes:
            self._check_no_conflict(t, commit, write.row, write.groups, write.is_shared)
            self._check_read_locks(t, commit, write, locked_after)
        for lock in self._locks(t):
            if lock.is_condition:
                continue
            self._check_no_conflict(t, commit, lock.row, lock.groups)
            if lock.is_exclusive:
                self._check_read_locks(t, commit, lock, locked_after)

    def _check_condition(self, t: Transaction, commit: int, condition: Condition) -> None:
        columns, required = self._row(condition.row).columns, condition.columns
        if required is None or columns is None:
            holds = required is None and columns is None
        else:
            holds = all(columns.get(name) == value for name, value in required)
        if not holds:
            text = f"committed at {commit}, when {condition.row} was {columns}, not {required}"
            self._flag("CONDITION", t, text)

    def _check_read_locks(
        self, t: Transaction, commit: int, taken: Write | Lock, locked_after: int
    ) -> None:
        for timestamp, other in _newest(self._row(taken.row).last_strong_read, taken.groups):
            if timestamp > locked_after:
                verb = "locked" if isinstance(taken, Lock) else "wrote"
                text = f"{verb} {taken.row} at {commit}, read-locked by {other} at {timestamp}"
                self._flag("RWLOCK", t, text)

    def _check_load(self, t: Transaction, commit: int) -> None:
        """Check what a load demands of the rows that it writes and of its erased ranges."""
        mine = {write.row for write in t.writes}
        for row, columns in [it[:2] for it in t.writes if t.presence != "any"]:
            is_there = self._row(row).columns is not None
            if columns is not None and is_there != (t.presence == "there"):
                self._flag("LOAD", t, f"wrote {row} at {commit}, but it was not {t.presence}")
        for table, lower, upper in t.erased:
            keys = self._keys.get(table, [])
            for key in keys[bisect_left(keys, lower) : bisect_left(keys, upper)]:
                row = RowKey(table, key)
                state = self._row(row)
                if row not in mine and state.columns is not None:
                    self._flag("LOAD", t, f"left {row} in a range that it erased at {commit}")
                timestamp, other = state.last_change
                if not t.is_blind and timestamp > t.start:
                    text = f"erased {row} at {commit}, though {other} changed it at {timestamp}"
                    self._flag("NOCONFLICT", t, text)

    def _check_no_conflict(
        self,
        t: Transaction,
        commit: int,
        row: RowKey,
        groups: tuple[int, ...],
        is_shared: bool = False,
    ) -> None:
        state = self._row(row)
        newest = _newest(state.last_write, groups)
        if not is_shared:
            newest += _newest(state.last_shared_write, groups)
        for timestamp, other in newest:
            if timestamp > t.written_from:
                text = f"committed {row} at {commit}, though {other} wrote it at {timestamp}"
                self._flag("NOCONFLICT", t, text)

    def _apply(self, t: Transaction, commit: int) -> None:
        for write in t.writes:
            row = self._row(write.row)
            if row.columns is not None or write.columns is not None:
                row.last_change = (commit, t.name)
            row.columns = after(row.columns, write)
            writes = row.last_shared_write if write.is_shared else row.last_write
            for group in write.groups:
                writes[group] = (commit, t.name)
        for lock in self._locks(t):
            if lock.is_exclusive or lock.is_strong:
                row = self._row(lock.row)
                times = row.last_write if lock.is_exclusive else row.last_strong_read
                for group in lock.groups:
                    times[group] = (commit, t.name)

    def _locks(self, t: Transaction) -> list[Lock]:
        absent = self._absent.get(t.name, frozenset())
        return [it._replace(groups=groups_of(it, absent)) for it in t.locks]

    def _flag(self, promise: Promise, t: Transaction, text: str) -> None:
        self._violations.append(Violation(promise, f"{t.name} (start {t.start}) {text}"))


def _newest(times: dict[int, tuple[int, str]], groups: tuple[int, ...]) -> list[tuple[int, str]]:
    """Return the newest time in the groups that a holder of `groups` must check.

    The main group (0) conflicts with all others. Each other group conflicts with itself and with
    it.
    """
    checked = times if 0 in groups else [group for group in (0, *groups) if group in times]
    return [max(times[group] for group in checked)] if checked else []
