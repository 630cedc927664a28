"""The rules for tables: checks before a definition or a change enters the catalog. Pure.

Owns: the rules for schemas and their changes, for pivot keys and for settings. Each check raises a
typed error that names the fault and its place.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded, SchemaViolation
from dodona_wire.messages.catalog import CreateTable
from dodona_wire.rows.logical_types import is_wider_type
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import (
    KEY_MAX,
    KEY_MIN,
    Atomicity,
    InMemoryMode,
    Isolation,
    Key,
    TableSettings,
)

TABLETS_PER_TABLE_MAX: Final = 10_000
PIVOT_KEY_BYTES_MAX: Final = 4096
SETTING_MAX: Final = (1 << 63) - 1
CHOICES: Final = {"in_memory_mode": get_args(InMemoryMode), "isolation": get_args(Isolation)}
"""By name, the values of each setting that is neither a number nor a flag."""


def check_definition(request: CreateTable) -> None:
    """Check a new or a restored table. Raises InvalidRequest, SchemaViolation, LimitExceeded."""
    parse = TableSchema.parse_existing if request.is_restored else TableSchema.parse
    schema = parse(request.columns)
    check_pivots_between(schema.columns, request.pivot_keys, KEY_MIN, KEY_MAX, 0)


def check_pivots_between(
    columns: tuple[Column, ...],
    pivot_keys: tuple[Key, ...],
    lower: Key,
    upper: Key,
    other_count: int,
) -> None:
    """Check that tablets with these pivot keys may replace those from `lower` to `upper`. The table
    has `other_count` other tablets. Raises SchemaViolation, LimitExceeded."""
    if not pivot_keys or pivot_keys[0] != lower:
        if lower == KEY_MIN:
            raise SchemaViolation(
                "First pivot key must be empty: the range of the first tablet begins there."
            )
        raise SchemaViolation(
            "First pivot key must equal the pivot key of the first replaced tablet."
        )
    _check_pivot_keys(pivot_keys, TableSchema(columns), other_count)
    if not pivot_keys[-1] < upper:
        text = "Last pivot key must be less than the pivot key of the next tablet."
        raise SchemaViolation(text, index=len(pivot_keys) - 1)


def _check_pivot_keys(pivot_keys: tuple[Key, ...], schema: TableSchema, other_count: int) -> None:
    if len(pivot_keys) + other_count > TABLETS_PER_TABLE_MAX:
        text = f"A table has at most {TABLETS_PER_TABLE_MAX} tablets."
        raise LimitExceeded(text, tablet_count=len(pivot_keys) + other_count)
    for index in range(1, len(pivot_keys)):
        if not pivot_keys[index - 1] < pivot_keys[index]:
            raise SchemaViolation("Pivot keys must be strictly increasing.", index=index)
        _check_pivot_key(pivot_keys[index], schema, index)


def _check_pivot_key(key: Key, schema: TableSchema, index: int) -> None:
    if len(key) > PIVOT_KEY_BYTES_MAX:
        text = f"A pivot key has at most {PIVOT_KEY_BYTES_MAX} bytes."
        raise LimitExceeded(text, index=index, size_bytes=len(key))
    try:
        schema.stored.check_prefix(key)
    except SchemaViolation as error:
        raise SchemaViolation(
            f"A pivot key must have values of the first key columns: {error.message}.", index=index
        ) from error


# Changes of a schema


def check_alteration(old: tuple[Column, ...], new: tuple[Column, ...]) -> None:
    """Check that a table with the old columns and its rows may change to the new columns. Raises
    SchemaViolation with the reason."""
    before, after = TableSchema(old), TableSchema.parse_existing(new)
    known = {column.name: column for column in old}
    for it in after.computed:
        if it.name not in known:
            it.check_possible()
    _check_key_columns(before, after)
    for column in after.columns:
        was = known.get(column.name)
        if was is not None:
            _check_column(was, column)
        elif column.required:
            raise SchemaViolation(
                "A new column can't be required, since existing rows have no value in it.",
                column=column.name,
            )
    kept = {column.name for column in after.columns}
    for column in before.columns:
        if column.name not in kept:
            text = "A column can't be removed or renamed, since rows have values in it."
            raise SchemaViolation(text, column=column.name)


def _check_key_columns(before: TableSchema, after: TableSchema) -> None:
    """Check that new key columns follow the old ones: rows keep their order, since all have null
    there."""
    kept = after.key_names[: len(before.key_names)]
    if kept != before.key_names:
        raise SchemaViolation(
            "The key columns must stay, in their order. Add new key columns after them.",
            key_columns=before.key_names,
        )
    for column in after.key_columns[len(kept) :]:
        if column.name in before.value_names:
            raise SchemaViolation("A value column can't become a key column.", column=column.name)
        if column.expression is not None:
            raise SchemaViolation(
                "A new column can't be computed, since existing rows have null in it.",
                column=column.name,
            )


def _check_column(was: Column, column: Column) -> None:
    is_text_to_bytes = (was.type, column.type) == ("utf8", "string")
    is_wider = is_text_to_bytes or is_wider_type(was.logical, column.logical)
    if was.type != column.type and not is_wider:
        raise SchemaViolation(
            f"The type of a column can't change from {was.type} to {column.type}.",
            column=column.name,
        )
    if None not in (was.sort_order, column.sort_order) and was.sort_order != column.sort_order:
        raise SchemaViolation(
            f"The order of a key column can't change from {was.sort_order} to {column.sort_order}, "
            "since the table keeps its rows in this order. Copy the rows to a new table.",
            column=column.name,
        )
    if column.expression != was.expression:
        raise SchemaViolation(
            "The expression of a column can't change, since rows are stored by its values. Make a "
            "new table, and copy the rows.",
            column=column.name,
            expression=was.expression,
        )
    if column.required and not was.required:
        raise SchemaViolation(
            "A column can't become required, since rows may have null in it.", column=column.name
        )
    if column.aggregate != was.aggregate and was.aggregate is not None:
        raise SchemaViolation(
            f"The aggregate {was.aggregate} of a column can't change, since some stored changes "
            "may not be combined yet.",
            column=column.name,
        )


# Settings


def changed_settings(
    path: str, settings: TableSettings, changes: Mapping[str, Any]
) -> TableSettings:
    """Return the settings of the table at `path` with changes by name. None sets one back. Raises
    InvalidRequest."""
    defaults = msgspec.structs.asdict(TableSettings())
    values = {}
    for name, value in changes.items():
        if name not in defaults:
            text = f"There is no setting {name!r}."
            raise InvalidRequest(text, table=path, settings=sorted(defaults))
        values[name] = defaults[name] if value is None else value
        fault = None if value is None else _fault_of(name, value, defaults[name])
        if fault is not None:
            raise InvalidRequest(f"Table {path}: {fault}", table=path, attribute=name)
    return msgspec.structs.replace(settings, **values)


def _fault_of(name: str, value: Any, default: Any) -> str | None:
    """Return why a setting can't have this value, None if it can."""
    if name in CHOICES:
        if value in CHOICES[name]:
            return None
        known = " or ".join(f'"{it}"' for it in CHOICES[name])
        return f"{name} must be {known}, not {shown(value)}."
    if type(value) is not type(default):
        return f"{name} takes a value of type {type(default).__name__}, not {shown(value)}."
    if not 0 <= value <= SETTING_MAX:
        return f"{name} must be 0 to {SETTING_MAX}, not {shown(value)}."
    return None


def check_isolation(path: str, atomicity: Atomicity, settings: TableSettings) -> None:
    """Raise InvalidRequest for a table with an isolation and without atomicity, whose readers have
    no snapshots and lock no rows."""
    if atomicity == "none" and settings.isolation is not None:
        raise InvalidRequest(
            f'Table {path}: isolation "{settings.isolation}" needs atomicity "full", and the '
            'atomicity is "none". Set isolation to null, or atomicity to "full".',
            table=path,
            attribute="isolation",
            isolation=settings.isolation,
            atomicity=atomicity,
        )
