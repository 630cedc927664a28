"""Convert rows between YTsaurus's values and those of Dodona's client. Pure.

Owns: the form of a value of a logical type in YSON. YTsaurus's clients send and get the stored
form: a date is a number of days, a decimal and a UUID are bytes. A struct is a map, and a dict a
list of pairs, which are YTsaurus's forms by default. Dodona's client takes and gives
users' values. Tables without logical types cost nothing here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import check_of, load_of, store_of
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.type_names import DICT, LIST, STRUCT
from dodona_ytsaurus.yson import Uint64

Convert = Callable[[Any], Any]


def given_rows(schema: TableSchema, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows or keys that YTsaurus's client sent, with users' values. Raises SchemaViolation
    with the row and the column."""
    readers = {it.name: _reader(it) for it in schema.columns if not it.logical.is_stored}
    if not readers:
        return rows
    return [_given(row, readers, place) for place, row in enumerate(rows)]


def _given(row: dict[str, Any], readers: Mapping[str, Convert], place: int) -> dict[str, Any]:
    try:
        return {name: readers[name](it) if name in readers else it for name, it in row.items()}
    except SchemaViolation as error:
        error.attributes["row_index"] = place
        raise


def given_key(schema: TableSchema, values: Sequence[Any]) -> list[Any]:
    """Return leading values of a key in the same way."""
    readers = [_reader(it) for it in schema.key_columns]
    kept = values[len(readers) :]  # too many: the client refuses them
    return [*[read(it) for read, it in zip(readers, values, strict=False)], *kept]


def _reader(column: Column) -> Convert:
    kind, name = column.logical, column.name
    check, load = check_of(kind), load_of(kind)

    def read(value: Any) -> Any:
        if value is None or kind.is_stored:
            return value
        return load(check(_plain(kind, value), name))

    return read


def _plain(kind: LogicalType, value: Any) -> Any:
    """Return the value without its YSON type. Bytes that are UTF-8 came as text."""
    if kind.members:
        return _plain_parts(kind, value)
    if isinstance(value, int) and not isinstance(value, bool):
        if kind.stored != "double":
            return int(value)
        found = float(value)
        return found if found == value else int(value)  # the check refuses it
    if isinstance(value, str) and kind.stored == "string":
        return value.encode()
    return value


def _plain_parts(kind: LogicalType, value: Any) -> Any:
    """Return the value of a nested type without YSON types. The check that follows refuses what has
    another form. Fields may have any order, and absent ones are null. A struct may also be a
    list by place, and a dict with keys of text a map, as YTsaurus reads them."""
    kinds = [it.kind for it in kind.members]
    if kind.form == STRUCT:
        names = [it.name for it in kind.members]
        if isinstance(value, list) and len(value) == len(names):
            value = dict(zip(names, value, strict=True))
        return _plain_fields(kind, value) if isinstance(value, dict) else value
    if kind.form == DICT and isinstance(value, dict):
        value = [[*pair] for pair in value.items()]
    if not isinstance(value, list):
        return value
    if kind.form == LIST:
        return [_plain(kinds[0], it) for it in value]
    return [
        [_plain(*part) for part in zip(kinds, it, strict=True)]
        if isinstance(it, list) and len(it) == len(kinds)
        else it
        for it in value
    ]


def _plain_fields(kind: LogicalType, value: dict[str, Any]) -> dict[str, Any]:
    found = {it.name: _plain(it.kind, value.get(it.name)) for it in kind.members}
    return found | {name: its for name, its in value.items() if name not in found}


def shown_by_name(schema: TableSchema) -> dict[str, Convert]:
    """Return the conversions of users' values to stored ones, for columns of logical types."""
    return {it.name: _writer(it) for it in schema.columns if not it.logical.is_stored}


def _writer(column: Column) -> Convert:
    kind, name = column.logical, column.name
    store = store_of(kind)
    if not kind.members:
        return lambda value: None if value is None else store(value, name)
    return lambda value: None if value is None else _shown(kind, store(value, name))


def _shown(kind: LogicalType, value: Any) -> Any:
    """Return a stored value of a part of a nested type with the YSON type that it has."""
    if value is None:
        return None
    if kind.form == STRUCT:
        return {it.name: _shown(it.kind, value[it.name]) for it in kind.members}
    if kind.form == DICT:
        kinds = [it.kind for it in kind.members]
        return [[_shown(*part) for part in zip(kinds, pair, strict=True)] for pair in value]
    if kind.form == LIST:
        return [_shown(kind.members[0].kind, it) for it in value]
    return Uint64(value) if kind.stored == "uint64" else value


def shown_row(row: Mapping[str, Any], convert: Mapping[str, Convert]) -> Mapping[str, Any]:
    """Return a row of the client with stored values."""
    if not convert:
        return row
    return {name: convert[name](it) if name in convert else it for name, it in row.items()}
