"""The promises that hold in each state.

Owns: how each promise is checked. The rules under test have no say here. Promises:
- ATOMIC: a transaction has one outcome, in all cells and in what is reported;
- VALID: what a serializable transaction has read is unchanged at its commit timestamp;
- SERIAL: the serialization graph has no cycle. Its edges are the conflicts of writes, what
  serializable transactions read, and real time: one ended before the other began;
- SNAPSHOT: what a transaction has read is unchanged at its start timestamp, and what it writes from
  there to its commit;
- ONCE: at most one attempt of a transaction commits;
- DEADLOCK: something can always happen until all is quiet.
Must not import: the model, rules.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from serializable_model.state import (
    ABORT,
    ALL,
    BLIND,
    COMMITTED,
    ENDED,
    FROM_START,
    REFUSED,
    SERIAL,
    UNDECIDED,
    Case,
    State,
    Version,
    changes,
    groups_by_row,
)

ATOMIC, VALID, SERIALIZABLE, DEADLOCK = "ATOMIC", "VALID", "SERIAL", "DEADLOCK"
SNAPSHOT, ONCE = "SNAPSHOT", "ONCE"
EVERY: Final = frozenset({ATOMIC, VALID, SERIALIZABLE, DEADLOCK, SNAPSHOT, ONCE})


class Outcome(NamedTuple):
    """A transaction that is committed."""

    at: int
    start: int
    committed: int
    """For a transaction that only reads, its start."""
    ended_before: int
    since: int = 0
    """For a new attempt, the timestamp of its reads."""

    @property
    def read_at(self) -> int:
        return self.since or self.start


class History(NamedTuple):
    """What all the transactions of a state have done."""

    outcomes: tuple[Outcome, ...]


def history(state: State) -> History:
    found = []
    for at, client in enumerate(state.clients):
        committed = client.decided
        for record in state.records[at]:
            if record.phase == COMMITTED:
                committed = record.at
        if committed > UNDECIDED:
            ended_before, since = client.ended_before, client.since
            found.append(Outcome(at, client.start, committed, ended_before, since))
    return History(tuple(found))


def not_atomic(state: State) -> str | None:
    for at, client in enumerate(state.clients):
        phases = {it.phase for it in state.records[at]}
        is_committed = client.decided > UNDECIDED or COMMITTED in phases
        if is_committed and (client.decided == ABORT or REFUSED in phases):
            return f"{ATOMIC}: T{at} is committed, and aborted"
    return None


def not_once(case: Case, state: State) -> str | None:
    for at, txn in enumerate(case.txns):
        if txn.again_of is not None and all(
            state.clients[it].decided > UNDECIDED
            or any(record.phase == COMMITTED for record in state.records[it])
            for it in (at, txn.again_of)
        ):
            return f"{ONCE}: T{txn.again_of} is committed, and also as T{at}"
    return None


def not_snapshot(case: Case, past: History) -> str | None:
    for it in past.outcomes:
        for row, version in _changed(case, past, it.at):
            if it.read_at < version.at <= it.start:
                row_name = "abcd"[row]
                return f"{SNAPSHOT}: T{it.at} has read {row_name} too early, before T{version.by}"
        for row, version in _written(case, past, it.at):
            if it.start < version.at < it.committed:
                return f"{SNAPSHOT}: T{it.at} overwrites {'abcd'[row]} of T{version.by}"
    return None


def not_valid(case: Case, past: History) -> str | None:
    for it in past.outcomes:
        for row, version in _read(case, past, it.at):
            if it.read_at < version.at < it.committed:
                row_name = "abcd"[row]
                return f"{VALID}: T{it.at} has read {row_name}, and T{version.by} changed it"
    return None


def not_serial(case: Case, past: History) -> str | None:
    after: dict[int, set[int]] = {it.at: set() for it in past.outcomes}
    for before, later in _edges(case, past):
        after[before].add(later)
    while free := [at for at in after if not any(at in its for its in after.values())]:
        for at in free:
            del after[at]
    if not after:
        return None
    names = " and ".join(f"T{at}" for at in after)
    return f"{SERIALIZABLE}: {names} fit no order"


def waiting(state: State, dead: int = 0) -> str | None:
    """Return what has not ended, or None. Dead clients need not end."""
    for at, client in enumerate(state.clients):
        for cell, record in enumerate(state.records[at]):
            if record.phase not in ENDED and record.phase != "none":
                return f"{DEADLOCK}: T{at} is {record.phase} in cell {cell} for ever"
        is_open = client.start and client.decided == UNDECIDED
        if is_open and not dead >> at & 1:
            return f"{DEADLOCK}: T{at} waits for ever"
    return None


def _edges(case: Case, past: History) -> Iterator[tuple[int, int]]:
    for it in past.outcomes:
        for other in past.outcomes:
            if it.ended_before >> other.at & 1:
                yield other.at, it.at
        for _, version in _read(case, past, it.at):
            is_seen = version.at <= it.read_at
            yield (version.by, it.at) if is_seen else (it.at, version.by)
    for row in range(case.row_count):
        written = [it for it in _versions(case, past, row) if it.by != FROM_START]
        for index, one in enumerate(written):
            yield from ((one.by, it.by) for it in written[index + 1 :] if it.groups & one.groups)


def _read(case: Case, past: History, at: int) -> Iterator[tuple[int, Version]]:
    """Yield the versions of others that have changed what a serializable transaction reads."""
    if case.txns[at].kind == SERIAL:
        yield from _changed(case, past, at)


def _changed(case: Case, past: History, at: int) -> Iterator[tuple[int, Version]]:
    """Yield the versions of others that have changed what the transaction reads."""
    txn = case.txns[at]
    for row, groups in enumerate(groups_by_row(txn.reads, case.row_count)):
        for version in changes(_versions(case, past, row), groups) if groups else ():
            if version.by not in (at, FROM_START):
                yield row, version


def _written(case: Case, past: History, at: int) -> Iterator[tuple[int, Version]]:
    """Yield the versions of others that the transaction overwrites. A blind one may do so."""
    txn = case.txns[at]
    for write in txn.writes if txn.kind != BLIND else ():
        groups = ALL if write.is_delete else write.groups
        for version in _versions(case, past, write.row):
            if version.by != at and version.groups & groups:
                yield write.row, version


def _versions(case: Case, past: History, row: int) -> list[Version]:
    """Return the versions of a row that are committed, applied or not."""
    is_first = case.present >> row & 1
    found = [Version(0, FROM_START, ALL, is_delete=False)] if is_first else []
    for outcome in past.outcomes:
        for it in case.txns[outcome.at].writes:
            if it.row == row:
                groups = ALL if it.is_delete else it.groups
                found.append(Version(outcome.committed, outcome.at, groups, it.is_delete))
    return sorted(found)
