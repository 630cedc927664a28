"""The columns of a table as DuckDB sees them: their types, and the conversion of the data. Pure.

Owns: what DuckDB gets for a type that Arrow or DuckDB does not have. Values of type any are JSON
text. A UUID is one of DuckDB's. A long interval is a number of microseconds, because DuckDB returns
intervals in nanoseconds. DuckDB has no decimals of more than 38 digits, so a query that uses such a
column is refused. pyarrow is imported on first use.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX
from dodona_wire.rows.text_format import format_packed_as_text


def shown_schema(ids: Sequence[str], columns: Sequence[Column]) -> Any:
    """Return the schema of columns as DuckDB gets them, with these ids as names."""
    import pyarrow

    return pyarrow.schema(list(zip(ids, map(_shown_type, columns), strict=True)))


def sql_type(column: Column) -> str:
    """Return DuckDB's name of a column's type."""
    return "VARCHAR" if column.logical.precision > SQL_PRECISION_MAX else column.logical.sql


def _shown_type(column: Column) -> Any:
    import pyarrow

    kind = column.logical
    if kind.name == "any" or kind.precision > SQL_PRECISION_MAX:
        return pyarrow.string()
    if kind.form == "uuid":
        return pyarrow.uuid()
    return pyarrow.int64() if _is_long(column) else arrow_type(column)


def _is_long(column: Column) -> bool:
    return column.logical.form == "interval" and column.logical.sql == "BIGINT"


def check_shown(columns: Iterable[Column], names: Iterable[str]) -> None:
    """Check that DuckDB has the types of the columns with these names. Raises InvalidRequest."""
    wanted = {*names}
    for column in columns:
        if column.name in wanted and column.logical.precision > SQL_PRECISION_MAX:
            text = (
                f"SQL has decimals of at most {SQL_PRECISION_MAX} digits, and column "
                f"{column.name!r} is {column.type}. Leave the column out, or read it with "
                "read_arrow."
            )
            raise InvalidRequest(text, column=column.name)


def shown_columns(columns: Sequence[Column], data: Any) -> Any:
    """Return a `pyarrow.Table` of these columns, in their order, as DuckDB gets it."""
    import pyarrow

    for place, column in enumerate(columns):
        array = data.column(place)
        if column.type == "any":
            data = data.set_column(place, column.name, json_texts(array))
        elif column.logical.form == "uuid":
            wrap = pyarrow.ExtensionArray.from_storage
            chunks = [wrap(pyarrow.uuid(), it) for it in array.chunks]
            found = pyarrow.chunked_array(chunks, pyarrow.uuid())
            data = data.set_column(place, column.name, found)
        elif _is_long(column):
            data = data.set_column(place, column.name, array.cast(pyarrow.int64()))
    return data


def json_texts(column: Any) -> Any:
    """Return MessagePack values as JSON text, in the usual text format: no two values look
    alike."""
    import pyarrow

    texts = [None if it is None else format_packed_as_text(it) for it in column.to_pylist()]
    return pyarrow.array(texts, pyarrow.string())
