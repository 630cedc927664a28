"""Convert rows and histories to the gateway's JSON. Pure.

Owns: which values of a row are converted, by the types of its columns. The text forms are in
`dodona_wire.rows.text_format`, which the command line uses too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dodona._core.reading.versions import VersionedRow, VersionedValue
from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_values import is_shown_otherwise
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.text_format import formatter_of, reader_of, unmarked

Convert = Callable[[Any], Any]
_HOLDERS: Final = (dict, list)


def converters(columns: Iterable[Column]) -> dict[str, Convert]:
    """Return by column name the conversion of values, for columns whose values JSON may lack."""
    pairs = [(it.name, formatter_of(it)) for it in columns]
    return {name: convert for name, convert in pairs if convert is not None}


def text_converters(columns: Iterable[Column]) -> dict[str, Convert]:
    """Return the conversions for MessagePack, which has all values but those of some logical
    types."""
    return converters([it for it in columns if is_shown_otherwise(it.logical)])


def given_rows(
    schema: TableSchema, rows: Sequence[Any], table: str, *, is_json: bool
) -> Sequence[Any]:
    """Return rows or keys of a body with users' values for the texts of logical types, and for
    JSON's objects with reserved names. Only the type of a column says what such an object is: the
    name may be one of a dict or a struct. The client checks all else. Raises SchemaViolation with
    the place."""
    readers = {it.name: reader_of(it) for it in schema.columns if is_shown_otherwise(it.logical)}
    if not readers and not is_json:
        return rows
    convert = _read_json if is_json else _read
    return [_given_row(row, readers, convert, place, table) for place, row in enumerate(rows)]


def _read(row: dict[str, Any], readers: Mapping[str, Convert]) -> dict[str, Any]:
    return {name: readers[name](it) if name in readers else it for name, it in row.items()}


def _read_json(row: dict[str, Any], readers: Mapping[str, Convert]) -> dict[str, Any]:
    return {
        name: readers[name](it)
        if name in readers
        else unmarked(it, name)
        if type(it) in _HOLDERS
        else it
        for name, it in row.items()
    }


def _given_row(
    row: Any,
    readers: Mapping[str, Convert],
    convert: Callable[[dict[str, Any], Mapping[str, Convert]], dict[str, Any]],
    place: int,
    table: str,
) -> Any:
    if not isinstance(row, dict):
        return row
    try:
        return convert(row, readers)
    except SchemaViolation as error:
        error.attributes.update(table=table, row_index=place)
        raise


def given_bound(schema: TableSchema, values: Any) -> Any:
    """Return leading key values of a body in the same way."""
    if not isinstance(values, list | tuple) or not schema.has_logical:
        return values
    kept = values[len(schema.key_columns) :]  # too many: the client refuses them
    readers = [
        reader_of(it) if is_shown_otherwise(it.logical) else _same for it in schema.key_columns
    ]
    return [*[read(it) for read, it in zip(readers, values, strict=False)], *kept]


def _same(value: Any) -> Any:
    return value


def convert_rows(
    rows: Iterable[Mapping[str, Any] | None], convert: Mapping[str, Convert]
) -> list[dict[str, Any] | None]:
    """Convert rows to JSON. A None stays None."""
    if not convert:
        return [None if row is None else dict(row) for row in rows]
    return [None if row is None else _row(row, convert) for row in rows]


def _row(row: Mapping[str, Any], convert: Mapping[str, Convert]) -> dict[str, Any]:
    return {
        name: value if value is None or name not in convert else convert[name](value)
        for name, value in row.items()
    }


def convert_history(row: VersionedRow, convert: Mapping[str, Convert]) -> VersionedRow:
    """Convert all versions of a row to JSON."""
    values = {
        name: [_converted(it, convert[name]) for it in items] if name in convert else items
        for name, items in row.values.items()
    }
    return msgspec.structs.replace(row, key=_row(row.key, convert), values=values)


def _converted(item: VersionedValue, convert: Convert) -> VersionedValue:
    value = None if item.value is None else convert(item.value)
    return msgspec.structs.replace(item, value=value)
