"""The promises that hold in each state, or that a step breaks.

Owns: how each promise is checked. The rules under test have no say here. Promises:
- MUTEX: a row has one owner in a cell, and no other commit holds it;
- FIFO: of two overlapping requests in a cell, the first that arrived is granted first;
- WAKE: a request that can be granted is granted;
- OVERTAKEN: no later writer takes a row for which a request waits only for commits;
- EXCLUSION: of two owners of a row that both commit, one began after the commit of the other;
- LOST UPDATE: of two writers of a row that both commit, one began after the commit of the other;
- DIRTY: what a transaction has read is committed if the transaction is;
- NOLOSE: an owner that kept its lock is not refused because of that row;
- DEADLOCK: something can always happen until all is quiet.
Must not import: the model.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Protocol

from early_lock_model.rules import is_next, overlapping
from early_lock_model.state import (
    ASKING,
    BLIND,
    COMMITTED,
    COMMITTING,
    IDLE,
    LOCKED,
    OWNERS,
    PREPARED,
    READING,
    UNDECIDED,
    Case,
    Cell,
    Entry,
    State,
    rows_named,
)
from replication_model.step import Step


class Model(Protocol):
    """What the promises ask of a model."""

    case: Case

    def claimed(self, state: State, at: int) -> int: ...
    def written(self, state: State, at: int) -> int: ...
    def owned(self, state: State, at: int, cell: int) -> int: ...
    def progress(self, state: State, dead: int = 0) -> Iterator[Step[State]]: ...
    def lease_ends(self, state: State, at: int) -> Iterator[Step[State]]: ...
    def recovery(self, state: State, at: int) -> Iterator[Step[State]]: ...


def violation(model: Model, state: State) -> str | None:
    for number, cell in enumerate(state.cells):
        if cell.queue and (broken := _in_cell(model, state, number, cell)):
            return broken
    return _outcomes(model, state) or _ends(model, state)


def lost(at: int, rows: int, cell: int) -> str | None:
    if not rows:
        return None
    return f"NOLOSE: T{at} loses {rows_named(rows)}, which it owns in cell {cell}"


def overtaken(model: Model, state: State, at: int, cell: int) -> str | None:
    """Return whether a commit takes rows past the request that is next."""
    here, txn = state.cells[cell], model.case.txns[at]
    rows = model.written(state, at) | model.claimed(state, at) | txn.requires
    for index, other in overlapping(here, at, rows):
        if not other.granted and is_next(here, index):
            return f"OVERTAKEN: T{at} takes a row for which T{other.at} waits next"
    return None


# ---- a queue


def _in_cell(model: Model, state: State, number: int, cell: Cell) -> str | None:
    for index, entry in enumerate(cell.queue):
        others = overlapping(cell, entry.at, entry.asked)
        earlier = [it for i, it in others if i < index and not it.granted]
        holders = _holders(model, state, number, entry)
        if entry.granted:
            if owners := [it.at for _, it in others if it.granted]:
                return f"MUTEX: T{owners[0]} and T{entry.at} own a row of cell {number}"
            if holders:
                return f"MUTEX: T{entry.at} owns a row of cell {number} that T{holders[0]} commits"
            if earlier:
                return f"FIFO: T{entry.at} is granted before T{earlier[0].at}, which came first"
        elif not holders and not earlier and not any(it.granted for _, it in others):
            return f"WAKE: the rows of T{entry.at} in cell {number} are free"
    return None


def _holders(model: Model, state: State, number: int, entry: Entry) -> list[int]:
    """Return the commits that hold rows of a request in any way."""
    found = []
    for at, record in enumerate(state.cells[number].records):
        if at == entry.at or record.phase not in (LOCKED, PREPARED):
            continue
        rows = model.written(state, at) | model.claimed(state, at)
        rows |= model.case.txns[at].requires
        if rows & entry.asked:
            found.append(at)
    return found


# ---- commits


def _outcomes(model: Model, state: State) -> str | None:
    committed = [at for at, it in enumerate(state.clients) if it.decided > UNDECIDED]
    for at in committed:
        for other in range(len(state.clients)):
            if state.clients[at].saw >> other & 1 and not _is_committed(state, other):
                return f"DIRTY: T{at} has read rows of T{other}, which never were"
    for one, two in combinations(committed, 2):
        if not _overlap(model, state, one, two):
            continue
        if model.written(state, one) & model.written(state, two):
            return f"LOST UPDATE: T{one} and T{two} wrote a row, and overlap"
        if model.claimed(state, one) & model.claimed(state, two):
            return f"EXCLUSION: T{one} and T{two} locked a row early, and overlap"
    return None


def _is_committed(state: State, at: int) -> bool:
    is_there = any(it.records[at].phase == COMMITTED for it in state.cells)
    return is_there or state.clients[at].decided > UNDECIDED


def _overlap(model: Model, state: State, one: int, two: int) -> bool:
    """Return whether each began before the commit of the other. Blind ones begin at the commit."""
    first, second = sorted((state.clients[one], state.clients[two]), key=lambda it: it.decided)
    at = two if second is state.clients[two] else one
    is_blind = model.case.txns[at].kind == BLIND
    return second.start < first.decided and not is_blind


# ---- the end of all


def _ends(model: Model, state: State) -> str | None:
    for dead, who in modes(model):
        if next(settling(model, state, dead), None) is None and (left := rest(state, dead)):
            return f"DEADLOCK: {who}, and {left}"
    return None


def modes(model: Model) -> list[tuple[int, str]]:
    """Return who may be dead while all else goes on, as masks and in words."""
    everyone = (1 << len(model.case.txns)) - 1
    owners = [at for at, txn in enumerate(model.case.txns) if txn.kind in OWNERS]
    return [
        (0, "all messages arrive"),
        (everyone, "all clients are dead"),
        *((1 << at, f"T{at} is dead") for at in owners),
    ]


def settling(model: Model, state: State, dead: int) -> Iterator[Step[State]]:
    """What happens if all messages of the living arrive, and the leases of the dead end."""
    yield from model.progress(state, dead)
    for at in range(len(state.clients)):
        if dead >> at & 1:
            yield from model.lease_ends(state, at)
            yield from model.recovery(state, at)


def rest(state: State, dead: int) -> str | None:
    """Return what has not ended, or None."""
    for number, cell in enumerate(state.cells):
        for at, record in enumerate(cell.records):
            if record.phase in (LOCKED, PREPARED):
                return f"T{at} is {record.phase} in cell {number} for ever"
        if cell.queue:
            waits = "owns rows" if cell.queue[0].granted else "waits"
            return f"T{cell.queue[0].at} {waits} in cell {number} for ever"
    for at, client in enumerate(state.clients):
        if client.phase in (IDLE, ASKING, READING, COMMITTING) and not dead >> at & 1:
            return f"T{at} is {client.phase} for ever"
    return None
