"""The columns of a table as DuckDB sees them: their types, and the conversion of the data. Pure.

Owns: what DuckDB gets for a type that Arrow or DuckDB does not have. Values of type any are JSON
text. A UUID is one of DuckDB's. A long interval is a number of microseconds, because DuckDB returns
intervals in nanoseconds. The same holds inside lists, structs and dicts. DuckDB has no decimals of
more than 38 digits, and no structs whose names differ in case only. So a query that uses such a
column is refused. pyarrow is imported on first use.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_arrow import array_of_values, arrow_type_of, stored_values
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX, LogicalType
from dodona_wire.rows.nested_arrow import array_of_nested, nested_arrow_type
from dodona_wire.rows.nested_types import leaves_of, structs_of
from dodona_wire.rows.text_format import format_packed_as_text, format_value_as_text


def shown_schema(ids: Sequence[str], columns: Sequence[Column]) -> Any:
    """Return the schema of columns as DuckDB gets them, with these ids as names."""
    import pyarrow

    types = [_shown_type(it.logical) for it in columns]
    return pyarrow.schema(list(zip(ids, types, strict=True)))


def sql_type(column: Column) -> str:
    """Return DuckDB's name of a column's type."""
    return "VARCHAR" if _reason_against(column.logical) else column.logical.sql


def _shown_type(kind: LogicalType) -> Any:
    import pyarrow

    if kind.name == "any" or _reason_against(kind):
        return pyarrow.string()
    if kind.members:
        return nested_arrow_type(kind, _shown_type)
    if kind.form == "uuid":
        return pyarrow.uuid()
    return pyarrow.int64() if _is_long(kind) else arrow_type_of(kind)


def _is_long(kind: LogicalType) -> bool:
    return kind.form == "interval" and kind.sql == "BIGINT"


def _reason_against(kind: LogicalType) -> str:
    """Return why DuckDB has no such type; an empty text if it has."""
    if any(it.precision > SQL_PRECISION_MAX for it in leaves_of(kind)):
        return f"SQL has decimals of at most {SQL_PRECISION_MAX} digits"
    for struct in structs_of(kind):
        if len({it.name.lower() for it in struct.members}) < len(struct.members):
            return "SQL has no structs whose fields differ in case only"
    return ""


def check_shown(columns: Iterable[Column], names: Iterable[str]) -> None:
    """Check that DuckDB has the types of the columns with these names. Raises InvalidRequest."""
    wanted = {*names}
    for column in columns:
        reason = _reason_against(column.logical) if column.name in wanted else ""
        if reason:
            text = (
                f"{reason}, and column {column.name!r} is {column.type}. Leave the column out, or "
                "read it with read_arrow."
            )
            raise InvalidRequest(text, column=column.name)


def shown_columns(columns: Sequence[Column], data: Any) -> Any:
    """Return a `pyarrow.Table` of these columns, in their order, as DuckDB gets it."""
    for place, column in enumerate(columns):
        array, kind = data.column(place), column.logical
        if any(_is_shown_otherwise(it) for it in leaves_of(kind)):
            data = data.set_column(place, column.name, _shown(kind, array))
    return data


def _is_shown_otherwise(kind: LogicalType) -> bool:
    return kind.name == "any" or kind.form == "uuid" or _is_long(kind)


def _shown(kind: LogicalType, array: Any) -> Any:
    """Return a column of the Arrow type of `kind` as DuckDB gets it."""
    import pyarrow

    if kind.members:
        return array_of_nested(kind, stored_values(kind, "", array), _shown_part, _shown_type)
    if kind.name == "any":
        return json_texts(array)
    if kind.form == "uuid":
        wrap = pyarrow.ExtensionArray.from_storage
        chunks = [wrap(pyarrow.uuid(), it) for it in array.chunks]
        return pyarrow.chunked_array(chunks, pyarrow.uuid())
    return array.cast(pyarrow.int64())


def _shown_part(kind: LogicalType, values: Sequence[Any]) -> Any:
    """Return stored values of one part of a nested type as DuckDB gets them."""
    import pyarrow

    if kind.name == "any":
        texts = [None if it is None else format_value_as_text(it) for it in values]
        return pyarrow.array(texts, pyarrow.string())
    if _is_long(kind):
        return pyarrow.array(values, pyarrow.int64())
    array = array_of_values(kind, values)
    if kind.form == "uuid":
        return pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), array)
    return array


def json_texts(column: Any) -> Any:
    """Return MessagePack values as JSON text, in the usual text format: no two values look
    alike."""
    import pyarrow

    texts = [None if it is None else format_packed_as_text(it) for it in column.to_pylist()]
    return pyarrow.array(texts, pyarrow.string())
