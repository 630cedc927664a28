"""Name the server that keeps a transaction from its outcome, in the errors of callers.

Owns: the errors of bounded waits in a cell. Such an error names the server that does not answer:
another cell, or the oracle. If all servers answer, the wait is a conflict with the transaction that
holds the row. This module ends no transaction: see `participant`, `coordinator` and `reads`.
"""

from typing import Any

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.commit.presence import widened
from dodona_tablets.core.rows.chunks.chunk import ChunkAway
from dodona_tablets.core.tablet.lock_set import locks_of
from dodona_tablets.core.tablet.locks import Lost, awaited
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_tablets.core.tablet.validation import awaited_by_reads
from dodona_wire.errors import RowBlocked, TransactionConflict, Unavailable
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.data import TabletModifications
from dodona_wire.types import MAX_TIMESTAMP, CellId, Key


def silent_cells(cell: Cell, holder: Transaction) -> tuple[CellId, ...]:
    """Return the cells that a prepared transaction has waited for in vain. Empty while it is
    young."""
    wait_us = _wait_us(cell)
    if holder.state is not State.PREPARED or cell.now.instant_us - holder.since_us < wait_us:
        return ()
    others = [it for it in holder.participants if it != cell.id]
    if holder.coordinator == cell.id:
        answered = [it for it, _ in holder.statuses]
        return tuple([it for it in others if it not in answered])
    heard_us = cell.heard.cells.get(holder.coordinator)
    if heard_us is None or cell.now.instant_us - heard_us > wait_us:
        return (holder.coordinator,)
    return tuple(others[1:])  # the coordinator answers, so it waits for another cell


def _wait_us(cell: Cell) -> int:
    return (cell.limits.ask_coordinator_after_ms + cell.limits.repeat_after_ms) * 1000


def is_in_vain(cell: Cell, holder: Transaction, waited_us: int) -> bool:
    """Return whether a wait for this transaction ends before its bound. A cell that it needs is
    silent, and has had time for one more question and its answer."""
    again_us = cell.limits.repeat_after_ms * 1000
    age_us = cell.now.instant_us - holder.since_us
    is_long = waited_us >= again_us and age_us >= _wait_us(cell) + 3 * again_us // 2
    return is_long and bool(silent_cells(cell, holder))


def is_write_over(cell: Cell, waiter: Transaction, waited_us: int) -> bool:
    """Return whether the wait of a writer ends: at its bound (rule 4), or because it is in vain."""
    limits = cell.limits
    if waited_us > limits.blocked_wait_ms_max * 1000:
        return True
    if waited_us < limits.repeat_after_ms * 1000:
        return False  # too early to look at its locks
    found = _holder_of(cell, waiter)
    return found is not None and is_in_vain(cell, found[2], waited_us)


def blocked(
    cell: Cell, holder: Transaction | None, text: str, **where: Any
) -> RowBlocked | Unavailable:
    """Return the error for a caller that waited for a row in vain. If a server is silent, the error
    names it: RowBlocked names the oracle, and Unavailable names cells."""
    attributes = {name: value for name, value in where.items() if value is not None}
    if holder is None:
        return RowBlocked(text, **attributes)
    attributes["winner"] = holder.id
    silent = silent_cells(cell, holder)
    if holder.state is State.LOCKED:
        return RowBlocked(f"{text}: the oracle does not answer", server="oracle", **attributes)
    if not silent:
        return RowBlocked(text, **attributes)
    attributes["silent_ms"] = (cell.now.instant_us - holder.since_us) // 1000
    return Unavailable(f"{text}: {silence_of(silent)}", **named(silent), **attributes)


def silence_of(silent: tuple[CellId, ...]) -> str:
    """Return the silent cells in words."""
    if len(silent) == 1:
        return f"cell {silent[0]} does not answer"
    return f"one of the cells {', '.join(map(str, silent))} does not answer"


def named(silent: tuple[CellId, ...]) -> dict[str, Any]:
    """Return the silent cells as attributes of an error."""
    if len(silent) == 1:
        return {"cell": silent[0]}
    return {"cell": silent[0], "cells": list(silent)}


def wait_failure(cell: Cell, waiter: Transaction) -> Failure:
    """Return why a writer ends its bounded wait (rule 4). It is a conflict with the transaction
    that holds the row, or the silence of a server that this transaction needs."""
    attributes: dict[str, Any] = {"start_timestamp": waiter.id}
    chunk = cell.chunks.waiting_writers.pop(waiter.id, None)
    if chunk is not None:
        text = f"The object store does not give chunk {chunk}, which has the rows of a recent load"
        attributes.update(cell=cell.id, chunk=chunk, is_refused=True)
        return Failure(Unavailable.kind, text, attributes)
    found = _holder_of(cell, waiter)
    if found is None:
        text = "Timed out waiting for a transaction that holds a row"
        return Failure(TransactionConflict.kind, text, attributes | _place_in_line(cell, waiter))
    tablet, key, holder = found
    columns = dict(zip(tablet.schema.key_names, tablet.schema.decode_key(key), strict=True))
    attributes.update(key=columns, table=tablet.assignment.path, tablet=tablet.assignment.tablet)
    text = f"Timed out waiting for a transaction that holds row {columns}"
    if holder.state is State.LOCKED or silent_cells(cell, holder):
        error = blocked(cell, holder, text, **attributes)
        if type(error) is Unavailable:
            error.attributes["is_refused"] = True  # the cell has recorded it: see `oracle_failure`
        return failure_of(error)
    return Failure(TransactionConflict.kind, text, {**attributes, "winner": holder.id})


def _place_in_line(cell: Cell, waiter: Transaction) -> dict[str, Any]:
    """Return the row that a transaction in line waits for, and the owner that has locked it
    early."""
    request = cell.early.requests.get(waiter.owner)
    if request is None or request.is_granted:
        return {}
    obstacle = cell.early.obstacle(request)
    if obstacle is None:
        return {}
    row, head = obstacle
    named_key = row.tablet.schema.named_key(row.key)
    found = {"key": named_key, "table": row.tablet.assignment.path}
    return found if head is None else {**found, "winner": head.name}


def _holder_of(cell: Cell, waiter: Transaction) -> tuple[Tablet, Key, Transaction] | None:
    """Return the first row on which a transaction waits: its tablet, its key and its holder."""
    for part in waiter.modifications:
        tablet = cell.tablets.get(part.tablet)
        if tablet is None:
            continue
        for key, wanted in locks_of(tablet.schema, _widened(tablet, part, waiter)):
            locks = tablet.locks.get(key)
            if locks is not None:
                holder = awaited(locks, tablet.schema, waiter.start, wanted)
                if holder is not None:
                    return tablet, key, holder
        met = awaited_by_reads(waiter, tablet, part)
        if met is not None:
            return tablet, *met
    return None


def _widened(tablet: Tablet, part: TabletModifications, waiter: Transaction) -> TabletModifications:
    """Return the part with the locks that it waits for. If the chunk that says whether a row exists
    can't be read now, these are the locks that its client asked for."""
    try:
        return widened(tablet, part, waiter.start)
    except (ChunkAway, Lost):
        return part


def oracle_wait_us_max(cell: Cell) -> int:
    """Return how long a transaction waits for its timestamp. The wait is short if the oracle is
    known to be silent."""
    limits = cell.limits
    silent_us = cell.now.instant_us - cell.heard.oracle_us
    is_silent = silent_us > limits.oracle_wait_ms_max * 1000
    return (limits.repeat_after_ms if is_silent else limits.oracle_wait_ms_max) * 1000


def oracle_failure(cell: Cell, waiter: Transaction) -> Failure:
    """Return why a transaction with all its locks gets no timestamp. The cell has recorded the
    refusal, so that a later answer of the oracle does not commit the transaction."""
    text = f"Cell {cell.id} got no timestamp for the commit from the oracle"
    if cell.heard.oracle_failure is not None:
        text = f"{text}: {cell.heard.oracle_failure}"
    attributes = {"server": "oracle", "asked_by": cell.id, "is_refused": True}
    if waiter.start != MAX_TIMESTAMP:
        attributes["start_timestamp"] = waiter.id
    return Failure(Unavailable.kind, text, attributes)


def unproven_failure(cell: Cell) -> Failure:
    """Return why a read fails if the oracle does not prove its timestamp."""
    text = f"The oracle does not answer cell {cell.id}"
    if cell.heard.oracle_failure is not None:
        text = f"{text}: {cell.heard.oracle_failure}"
    return Failure(Unavailable.kind, text, {"server": "oracle", "asked_by": cell.id})


def undecided_failure(cell: Cell, alive: Transaction) -> Failure:
    """Return the answer of a coordinator to questions while it can't find the outcome itself."""
    answered = [it for it, _ in alive.statuses]
    silent = tuple([it for it in alive.participants if it != cell.id and it not in answered])
    text = f"Transaction {alive.id} is undecided: {silence_of(silent)}"
    attributes = {**named(silent), "transaction": alive.id, "coordinator": cell.id}
    return Failure(Unavailable.kind, text, attributes)
