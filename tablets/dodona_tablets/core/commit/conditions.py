"""Check the conditions of a commit in the step that takes its locks, and lock their rows.

Owns: which conditions a cell takes, what they are checked against, and what holds them. The rules
are in `docs/explanation/commit-protocol.md#conditions`:
- a condition first meets the holders of its row, as a lock does: it waits, or it loses;
- then it is checked against the newest version, in memory or in chunks, and not at the start;
- then a lock `shared_weak` keeps the row as it is until the outcome. The log has this lock among
  the others, so replay takes it again, and no record has a condition.

The presence of a row belongs to all of its lock groups. `tests/prerequisite_model` explores this.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.rows.version import Version
from dodona_tablets.core.tablet.lock_set import lock_locks
from dodona_tablets.core.tablet.locks import Lost, check_holders
from dodona_tablets.core.tablet.publishing import wait_or_lose
from dodona_tablets.core.tablet.snapshot import Look, values_of
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.errors import (
    DataCorrupted,
    InvalidRequest,
    LimitExceeded,
    PrerequisiteFailed,
    SchemaViolation,
)
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.conditions import RowCondition, TabletConditions
from dodona_wire.messages.data import Lookup, RowLock, TabletModifications
from dodona_wire.rows.columns import MAIN_LOCK_MASK
from dodona_wire.rows.conditions import (
    CONDITIONS_MAX,
    SHOWN_COUNT_MAX,
    differing,
    shown_values,
)
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import DELETE_MASK, MAX_TIMESTAMP, NULL_TIMESTAMP, Key, TabletId

Conditions = Mapping[TabletId, tuple[RowCondition, ...]]
"""The conditions of one transaction, by tablet."""


# Whether a cell takes them


def admitted(
    cell: Cell,
    modifications: Sequence[TabletModifications],
    tablets: Sequence[Tablet],
    conditions: Sequence[TabletConditions],
) -> Conditions:
    """Return the conditions of a transaction whose other parts were checked. Raises InvalidRequest,
    SchemaViolation, LimitExceeded."""
    pairs = zip(modifications, tablets, strict=True)
    parts = {part.tablet: (part, tablet) for part, tablet in pairs}
    rows_left = CONDITIONS_MAX
    found: dict[TabletId, tuple[RowCondition, ...]] = {}
    for those in conditions:
        part, tablet = parts.get(those.tablet, (None, None))
        if part is None or tablet is None or those.tablet in found or part.publication is not None:
            text = "Conditions need a part with rows for their tablet, and come once for it."
            raise InvalidRequest(text, cell=cell.id)
        path = tablet.assignment.path
        rows_left -= len(those.rows)
        if rows_left < 0:
            text = f"The transaction has more than {CONDITIONS_MAX} conditions. Split it."
            raise LimitExceeded(text, table=path)
        try:
            for row in those.rows:
                _check_form(tablet, row)
        except SchemaViolation as error:
            error.attributes.setdefault("table", path)
            raise
        if len({it.key for it in those.rows}) < len(those.rows):
            text = "The transaction has two conditions for a key. Send one per key."
            raise InvalidRequest(text, table=path)
        found[those.tablet] = those.rows
    return found


def _check_form(tablet: Tablet, row: RowCondition) -> None:
    path, schema = tablet.assignment.path, tablet.schema
    mask = schema.plain_mask(row.column_mask)
    schema.check_write((row.key, mask, row.values))
    tablet.check_range(row.key)
    if row.version < 0:
        raise InvalidRequest("A condition's version is a timestamp.", table=path)
    if row.is_absent == bool(row.version or mask):
        text = "A condition asks that a row is absent, or it asks for a version or values."
        raise InvalidRequest(text, table=path)


# Checks and locks


def check_conditions(transaction: Transaction, tablet: Tablet) -> Transaction | None:
    """Check whether the conditions for a tablet hold. Return the transaction whose outcome decides
    that, or None. Raises Lost for the first one that does not hold, or that meets a writer."""
    waits_for = None
    rows = transaction.conditions.get(tablet.assignment.tablet, ())
    schema, publishing = tablet.schema, tablet.publishing
    for row in rows:
        held = tablet.locks.get(row.key)
        if held is not None:
            watched = lock_locks(_groups_met(tablet, row), "shared_weak").watched(schema)
            met = check_holders(held, watched, row.key, schema, transaction.start)
            waits_for = met or waits_for
        if publishing is not None and publishing.rows.has(row.key):
            waits_for = wait_or_lose(transaction, publishing.transaction, tablet, row.key)
    if waits_for is None:
        for row in rows:
            _check(tablet, row)
    return waits_for


def with_locks(
    cell: Cell, conditions: Conditions, parts: Sequence[TabletModifications]
) -> list[TabletModifications]:
    """Return the parts with the locks that keep the rows of the conditions."""
    return [_with_locks(cell, part, conditions.get(part.tablet, ())) for part in parts]


def _with_locks(
    cell: Cell, part: TabletModifications, rows: Sequence[RowCondition]
) -> TabletModifications:
    schema = cell.tablets[part.tablet].schema
    locks = [RowLock(row.key, _groups_of(schema, row), "shared_weak") for row in rows]
    return replace(part, locks=(*part.locks, *locks)) if locks else part


def _groups_of(schema: TableSchema, row: RowCondition) -> int:
    """Return the lock groups in which the row must stay as it is. A deletion of the row meets a
    lock of any group."""
    if row.is_absent or row.version:
        return schema.lock_mask_all
    return schema.lock_mask(schema.plain_mask(row.column_mask))


def _groups_met(tablet: Tablet, row: RowCondition) -> int:
    """Return the lock groups whose writers can change whether the condition holds. A writer of any
    group can create a row that is absent (rule 6)."""
    groups = _groups_of(tablet.schema, row)
    if groups & MAIN_LOCK_MASK or _newest(tablet, row.key) is not None:
        return groups  # the main lock stands for all groups
    return tablet.schema.lock_mask_all


def _check(tablet: Tablet, row: RowCondition) -> None:
    """Raise Lost if the condition does not hold."""
    newest = _newest(tablet, row.key)
    version = None if newest is None else newest[0]
    if row.is_absent:
        if version is not None:
            raise _failed(tablet, row, f"is there already, with version {version}", None, version)
    elif row.version and version != row.version:
        has = "is absent" if version is None else f"has version {version}"
        text = f"{has}, and version {row.version} is required"
        raise _failed(tablet, row, text, row.version, version)
    if row.column_mask:
        _check_values(tablet, row)


def _newest(tablet: Tablet, key: Key) -> Version | None:
    """Return the newest version of a row, or None if the row is absent. Raises Lost if a chunk is
    damaged."""
    try:
        found = tablet.stores.versions_between(key, NULL_TIMESTAMP, MAX_TIMESTAMP, 1)
    except DataCorrupted as error:
        raise Lost(failure_of(error)) from None
    return found[0] if found and found[0][1] != DELETE_MASK else None


def _check_values(tablet: Tablet, row: RowCondition) -> None:
    schema = tablet.schema
    mask = schema.plain_mask(row.column_mask)
    number, revision = tablet.assignment.tablet, tablet.assignment.revision
    wanted = Lookup(number, revision, MAX_TIMESTAMP, (row.key,), row.column_mask)
    try:
        values = values_of(tablet.stores, row.key, Look(tablet, wanted))
    except DataCorrupted as error:
        raise Lost(failure_of(error)) from None
    if values is None:
        expected = _first(shown_values(schema, mask, row.values), range(len(row.values)))
        raise _failed(tablet, row, "is absent", expected, None)
    places = differing(values, row.values)
    if places:
        expected = _first(shown_values(schema, mask, row.values), places)
        found = _first(shown_values(schema, mask, values), places)
        name = next(iter(found))
        text = f"has another value in column {name!r} than the required one"
        raise _failed(tablet, row, text, expected, found)


def _first(values: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """Return the values at the first of these places."""
    items = list(values.items())
    return dict([items[place] for place in places[:SHOWN_COUNT_MAX]])


def _failed(tablet: Tablet, row: RowCondition, text: str, expected: Any, found: Any) -> Lost:
    key = tablet.schema.named_key(row.key)
    by_value = "expect" if isinstance(expected, dict) else "if_version"
    name = "if_absent" if row.is_absent else by_value
    text = f"Row {key} {text}. Nothing was committed. Look at the row."
    error = PrerequisiteFailed(text, key=key, condition=name, expected=expected, found=found)
    return Lost(failure_of(error))
