"""Format Arrow batches as JSON values, as cells of CSV, and as text for people.

Owns: the text forms of Arrow's types, both of tables and of query results. Columns of type any have
MessagePack, and `Shape` names these columns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow

from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.logical_arrow import text_array, values_of
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import is_shown_otherwise, text_of_value
from dodona_wire.rows.schema import Column
from dodona_wire.rows.text_format import (
    format_any,
    format_bytes,
    format_bytes_as_text,
    format_double,
    format_packed_as_text,
    formatter_of_type,
)

NULL_SHOWN: Final = "null"


class Shape(NamedTuple):
    """The common schema of all batches of an output."""

    schema: Any
    any_names: frozenset[str] = frozenset()
    logical: Mapping[str, LogicalType] = MappingProxyType({})
    """The types of the columns whose values have a text of their own."""
    nested: Mapping[str, LogicalType] = MappingProxyType({})
    """The nested types of columns, whose values are JSON."""

    @classmethod
    def of_columns(cls, columns: Iterable[Column]) -> "Shape":
        columns = list(columns)
        fields = [pyarrow.field(it.name, arrow_type(it), not it.required) for it in columns]
        shown = {it.name: it.logical for it in columns if is_shown_otherwise(it.logical)}
        kinds = {name: kind for name, kind in shown.items() if not kind.members}
        nested = {name: kind for name, kind in shown.items() if kind.members}
        any_names = frozenset(it.name for it in columns if it.type == "any")
        return cls(pyarrow.schema(fields), any_names, kinds, nested)

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def is_any(self, place: int) -> bool:
        return self.schema.field(place).name in self.any_names


def json_columns(shape: Shape, batch: Any) -> list[list[Any]]:
    """Return the values of each column, ready for JSON."""
    return [_json_values(shape, place, batch.column(place)) for place in range(batch.num_columns)]


def _json_values(shape: Shape, place: int, array: Any) -> list[Any]:
    name = shape.schema.field(place).name
    if name in shape.logical:
        texts: list[Any] = text_array(shape.logical[name], array).to_pylist()
        return texts
    if name in shape.nested:
        return _nested_values(shape.nested[name], array)
    values: list[Any] = _plain(array).to_pylist()
    format_value = _json_formatter(shape, place)
    if format_value is None:
        return values
    return [None if value is None else format_value(value) for value in values]


def _json_formatter(shape: Shape, place: int) -> Callable[[Any], Any] | None:
    if shape.is_any(place):
        return _format_packed
    kind, types = shape.schema.field(place).type, pyarrow.types
    if types.is_floating(kind):
        return format_double
    if _is_bytes(kind):
        return format_bytes
    return _format_nested if types.is_nested(kind) or types.is_decimal(kind) else None


def _nested_values(kind: LogicalType, array: Any) -> list[Any]:
    """Return the values of a column of a nested type, ready for JSON."""
    format_value = formatter_of_type(kind)
    assert format_value is not None, "a nested type has a form of its own"
    return [None if it is None else format_value(it) for it in values_of(kind, array)]


def csv_batch(shape: Shape, batch: Any) -> Any:
    """Return the same rows, in columns that Arrow writes to CSV correctly."""
    arrays = [_csv_array(shape, place, batch.column(place)) for place in range(batch.num_columns)]
    return pyarrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _csv_array(shape: Shape, place: int, array: Any) -> Any:
    name = shape.schema.field(place).name
    if name in shape.logical:
        return text_array(shape.logical[name], array)
    if name in shape.nested:
        values = _nested_values(shape.nested[name], array)
        encode = msgspec.json.encode
        texts = [None if it is None else encode(it).decode() for it in values]
        return pyarrow.array(texts, pyarrow.string())
    array = _plain(array)
    format_value: Callable[[Any], str]
    if shape.is_any(place):
        format_value = format_packed_as_text
    elif _is_bytes(array.type):
        format_value = format_bytes_as_text
    elif pyarrow.types.is_nested(array.type):
        format_value = _text_of_nested
    else:
        return array
    texts = [None if value is None else format_value(value) for value in array.to_pylist()]
    return pyarrow.array(texts, pyarrow.string())


def shown_columns(shape: Shape, batch: Any) -> list[list[str]]:
    """Return the values of each column as people see them."""
    return [[shown(value) for value in values] for values in json_columns(shape, batch)]


def shown(value: Any) -> str:
    """Return a JSON value as people see it. Text stays as it is, unless it looks like another value
    or could control the terminal. Then it is quoted."""
    if isinstance(value, str):
        is_plain = value.isprintable() and value == value.strip() and value
        if is_plain and value != NULL_SHOWN and value[0] not in '"{':
            return value
        return _quoted(value)
    return NULL_SHOWN if value is None else _escaped(msgspec.json.encode(value).decode())


def _quoted(text: str) -> str:
    return _escaped(msgspec.json.encode(text).decode())


def _escaped(text: str) -> str:
    """Escape characters that JSON keeps and that no terminal shows."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else _escape(it) for it in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _plain(array: Any) -> Any:
    """Return dates and times as text, and decode dictionaries."""
    types = pyarrow.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_temporal(array.type):
        return _texts(array) if types.is_duration(array.type) else array.cast(pyarrow.string())
    return array


def _texts(array: Any) -> Any:
    texts = [None if value is None else _time_text(value) for value in array.to_pylist()]
    return pyarrow.array(texts, pyarrow.string())


def _time_text(value: Any) -> str:
    """Return the text of a value that Arrow has no text for: an interval in ISO 8601."""
    return str(text_of_value(value) if isinstance(value, timedelta) else value)


def _is_bytes(kind: Any) -> bool:
    types = pyarrow.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _format_packed(value: bytes) -> Any:
    return format_any(msgspec.msgpack.decode(value))


def _text_of_nested(value: Any) -> str:
    return msgspec.json.encode(_format_nested(value)).decode()


def _format_nested(value: Any) -> Any:
    """Format a nested value of a query: lists, structs and maps of any values; decimals with all
    digits."""
    if isinstance(value, dict):
        return {name: _format_nested(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [_format_nested(it) for it in value]
    if isinstance(value, Decimal):
        return msgspec.Raw(format(value, "f").encode())
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return format_any(value)
    return _time_text(value)


def rows_of(shape: Shape, columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return columns as objects."""
    names = shape.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
