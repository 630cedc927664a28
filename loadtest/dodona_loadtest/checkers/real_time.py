"""Checks that need instants as well as timestamps: reads of the last commit, and refusals.

Owns: the checks LATEST and FALSE-CONFLICT. Both say nothing if instants overlap, because events at
the same time may be seen in either order. Must not import: any core.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dodona_loadtest.checkers.absences import Absences, groups_of
from dodona_loadtest.checkers.read_locks import read_locks
from dodona_loadtest.checkers.timestamps import NEVER_US, Committed
from dodona_loadtest.checkers.violation import Violation
from dodona_loadtest.histories.history import (
    Columns,
    Conflict,
    LatestRead,
    Lock,
    RowKey,
    Transaction,
    Write,
    after,
    visible,
)


def check_latest_reads(reads: Iterable[LatestRead], committed: Committed) -> list[Violation]:
    """Check that each read shows a state no older than the last commit acknowledged before it."""
    timelines = _timelines(committed)
    violations = []
    for latest in reads:
        timeline = timelines.get(latest.read.row, _Timeline())
        problem = timeline.problem(latest)
        if problem:
            violations.append(Violation("LATEST", f"{latest.read} {problem}"))
    return violations


class _Timeline:
    """All states of one row, in commit order."""

    def __init__(self) -> None:
        self._states: list[tuple[int, Transaction, Columns | None]] = []
        self._commits: list[int] = []
        self._merged: dict[str, Any] | None = None
        self._told_us: list[int] = []
        self._floors: list[int] = []
        """The newest commit that was acknowledged by each of these instants."""

    def add(self, commit: int, t: Transaction, write: Write) -> None:
        self._merged = after(self._merged, write)
        self._states.append((commit, t, visible(self._merged)))
        self._commits.append(commit)

    def finish(self) -> None:
        """Finish the timeline once it has all states."""
        told = [
            (t.end_us, commit)
            for commit, t, _ in self._states
            if t.status == "ok" and t.end_us is not None
        ]
        for told_us, commit in sorted(told):
            self._told_us.append(told_us)
            self._floors.append(max(commit, self._floors[-1] if self._floors else 0))

    def problem(self, latest: LatestRead) -> str | None:
        """Return why the row never had this state between question and answer, or None."""
        position = bisect_left(self._told_us, latest.asked_us)
        floor = self._floors[position - 1] if position else 0
        first = bisect_right(self._commits, floor) - 1
        if first < 0 and latest.read.columns is None:
            return None
        for _, t, state in self._states[max(first, 0) :]:
            begun_us = NEVER_US if t.commit_us is None else t.commit_us
            if state == latest.read.columns and begun_us <= latest.answered_us:
                return None
        return f"at {latest.asked_us} µs is not a state since the acknowledged commit {floor}"


def _timelines(committed: Committed) -> dict[RowKey, _Timeline]:
    timelines: dict[RowKey, _Timeline] = {}
    for t, commit in sorted(committed, key=lambda pair: pair[1]):
        for write in t.writes:
            timelines.setdefault(write.row, _Timeline()).add(commit, t, write)
    for timeline in timelines.values():
        timeline.finish()
    return timelines


def check_false_conflicts(
    transactions: Iterable[Transaction], committed: Committed, absent: Absences
) -> list[Violation]:
    """Check each refusal. Its winner must be real, and must have touched the named row."""
    transactions = list(transactions)
    by_start = {t.start: t for t in transactions if t.is_fresh and not t.is_blind}
    by_start |= {name: t for t in transactions for name in t.aliases}
    by_commit = {commit: t for t, commit in committed}
    asked = frozenset([row for t in transactions for row in t.asked])
    violations = []
    for t in transactions:
        if t.conflict is None:
            continue
        problem = _false_winner(t, t.conflict, by_start, by_commit, absent, asked)
        if problem:
            violations.append(Violation("FALSE-CONFLICT", f"{t.name} lost {t.conflict}: {problem}"))
    return violations


def _false_winner(
    loser: Transaction,
    conflict: Conflict,
    by_start: dict[int, Transaction],
    by_commit: dict[int, Transaction],
    absent: Absences,
    asked: Collection[RowKey],
) -> str | None:
    if conflict.winner_commit is not None:
        if loser.is_blind and not loser.load:  # the transaction that publishes a load has a start
            return "no commit stands in the way of what begins where it commits"
        if conflict.winner_commit <= loser.start:
            return "that commit lies below the loser's start"
        winner = by_commit.get(conflict.winner_commit)
        if winner is None:
            # An unsure transaction that only locked rows has no version that shows its outcome.
            winner = _first_unsure_locker(loser, conflict, by_start, absent)
    elif conflict.winner_start is not None:
        winner = by_start.get(conflict.winner_start)
    else:
        return None
    if winner is not None and conflict.winner_start in winner.owners:
        return _problem_of_owner(winner, conflict)
    # An abandoned attempt of its own may still hold rows in a cell that was not informed yet.
    sent = loser.again[-1:] or [loser.start]
    is_itself = winner is loser and conflict.winner_start in sent
    if winner is None or is_itself:
        return "there is no such winner"
    if not any(_has_touched(winner, row) for row in conflict.rows):
        return f"{winner.name} did not touch the row"
    is_held = conflict.winner_commit is None
    # One that is blind stands in line for whole rows, and no lock passes it.
    is_in_line = is_held and winner.is_blind and any(row in asked for row in conflict.rows)
    if not is_in_line and not any(
        _stands_against(loser, winner, row, absent, is_held=is_held) for row in conflict.rows
    ):
        return f"{winner.name} took no lock of the row that stands in the way"
    is_later = winner.commit_us is None or (loser.end_us or NEVER_US) < winner.commit_us
    return f"{winner.name} committed later" if is_later else None


def _problem_of_owner(winner: Transaction, conflict: Conflict) -> str | None:
    """Return why no early lock of the winner can be in the way, or None. It may be in line for the
    row, and need not begin. A former name of the loser may still have the row."""
    if any(row in winner.asked for row in conflict.rows):
        return None
    return f"{winner.name} did not ask for the row before it began"


def _has_touched(winner: Transaction, row: RowKey) -> bool:
    return row in winner.rows or _is_erased(winner, row) or bool(read_locks(winner, row))


def _stands_against(
    loser: Transaction,
    winner: Transaction,
    row: RowKey,
    absent: Absences,
    *,
    is_held: bool,
) -> bool:
    """Return whether a lock that the winner holds, or left behind at its commit, excludes one of
    the loser's. Locks for reading go together, and so do shared writes."""
    # A row that the winner creates may be in the loser's snapshot, but absent when the loser asks.
    absences = [absent.get(it.name, frozenset()) for it in (loser, winner)]
    wanted: list[Write | Lock] = [write for write in loser.writes if write.row == row]
    wanted += [_whole(lock, absences) for lock in loser.locks if lock.row == row]
    wanted += read_locks(loser, row)
    taken: list[Write | Lock] = [write for write in winner.writes if write.row == row]
    taken += [Write(row, None)] if _is_erased(winner, row) else []
    locks = [lock for lock in winner.locks if lock.row == row and (is_held or lock.is_strong)]
    taken += [_whole(lock, absences) for lock in locks]
    taken += read_locks(winner, row) if is_held else []
    return any(
        _do_overlap(mine.groups, other.groups) and not _go_together(mine, other)
        for mine in wanted
        for other in taken
    )


def _whole(lock: Lock, absences: Sequence[frozenset[RowKey]]) -> Lock:
    return lock._replace(groups=groups_of(lock, *absences))


def _is_erased(t: Transaction, row: RowKey) -> bool:
    return any(erased.has(row) for erased in t.erased)


def _do_overlap(mine: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Return whether groups overlap. The main group (0) overlaps with all others."""
    return 0 in mine or 0 in others or any(group in others for group in mine)


def _go_together(mine: Write | Lock, other: Write | Lock) -> bool:
    if isinstance(mine, Write) and isinstance(other, Write):
        return mine.is_shared and other.is_shared
    if isinstance(mine, Lock) and isinstance(other, Lock):
        return not (mine.is_exclusive or other.is_exclusive)
    return False


def _first_unsure_locker(
    loser: Transaction, conflict: Conflict, by_start: dict[int, Transaction], absent: Absences
) -> Transaction | None:
    for t in by_start.values():
        is_unsure = t.status in ("info", "open") and not t.writes
        if is_unsure and any(
            _stands_against(loser, t, row, absent, is_held=False) for row in conflict.rows
        ):
            return t
    return None
