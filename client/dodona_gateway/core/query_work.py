"""Messages between a gateway and a process that computes its queries, and result forms. Pure.

Owns: the messages, and the limit on a result in the form in which it is sent. The gateway does not
trust a process that ran a user's query. Its messages are data of these types, of a limited length.
pyarrow is imported on first use.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.pushdown import ScanRange
from dodona_gateway.core.answer_budget import too_much
from dodona_gateway.core.content import Form, encode_body
from dodona_gateway.core.results import query_result
from dodona_wire.errors import DodonaError, LimitExceeded, error_from_wire
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.arrow import stream_of
from dodona_wire.rows.schema import Column
from dodona_wire.rows.text_format import unmarked

LENGTH_BYTES: Final = 8
"""The bytes before a frame that hold its length, little-endian."""
NOT_READ: Final = -1
VALUE_BYTES: Final = 48
"""About the memory that a value takes as a Python object."""
OBJECTS_FACTOR: Final = 8
"""As Python objects, an answer may take this many times its limit in bytes."""


# ---- to the process


class QueryTable(msgspec.Struct, frozen=True):
    """A table of the query."""

    path: str
    columns: tuple[Column, ...]


class Plan(msgspec.Struct, frozen=True, tag="plan"):
    """A request: begin a query, and say what it needs of its tables."""

    text: str
    tables: list[QueryTable]
    limits: QueryLimits
    cpu_seconds_max: int
    rows_max: int | None = None
    """The number of result rows that are enough; None if all are needed."""
    parameters: dict[str, Any] = {}
    """The checked values of the query's parameters, by name. MessagePack has their types, because
    they came in JSON or in MessagePack."""


class Encoded(msgspec.Struct, frozen=True, tag="encoded"):
    """A shape: the result as the body of an answer."""

    form: Form


class FirstRows(msgspec.Struct, frozen=True, tag="first"):
    """A shape for people: the first rows and columns, as a `Shown`."""

    rows_max: int
    columns_max: int


class TypedRows(msgspec.Struct, frozen=True, tag="typed"):
    """A shape: the rows as a list of lists, of columns of Dodona's types."""

    types: tuple[str, ...]
    rows_max: int | None
    """The largest number of rows; None means no limit."""
    is_cut: bool
    """Whether more rows are left out. Otherwise a result with more rows is refused."""


Shape = Encoded | FirstRows | TypedRows


class Compute(msgspec.Struct, frozen=True, tag="compute"):
    """A request: go on with the query. The rows of its tables follow. Each table that was read has
    a frame with the schema, and as many frames with batches as `batch_counts` says."""

    shape: Shape
    batch_counts: list[int]


# ---- from the process


class Planned(msgspec.Struct, frozen=True, tag="planned"):
    """A reply: what the query needs of each table."""

    wanted: list[ScanRange | None]


class Computed(msgspec.Struct, frozen=True, tag="computed"):
    """A reply: the result, in the requested shape."""

    content: bytes
    is_last: bool = False
    """Whether the process ends after this message."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A reply: the error with which the query ended."""

    kind: str
    message: str
    attributes: dict[str, Any]
    is_last: bool = False

    def error(self) -> DodonaError:
        """Return the error, to be raised."""
        return error_from_wire(self.kind, self.message, self.attributes)


Asked = Plan | Compute
Said = Planned | Computed | Refused

decode_asked: Final = msgspec.msgpack.Decoder(Asked).decode
decode_said: Final = msgspec.msgpack.Decoder(Said).decode


def frame(message: Asked | Said) -> bytes:
    """Return a message with its length before it."""
    content = msgspec.msgpack.encode(message, enc_hook=str)
    return len(content).to_bytes(LENGTH_BYTES, "little") + content


def refused(error: DodonaError) -> Refused:
    """Return the reply that carries an error."""
    return Refused(error.kind, error.message, error.attributes)


# ---- results


@preload_decoder
class Shown(msgspec.Struct, frozen=True):
    """The first rows of a result."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    row_count: int
    column_count: int
    """The number of columns in the whole result; `row_count` counts its rows."""


def shaped(table: Any, shape: Shape, bytes_max: int) -> bytes:
    """Return a `pyarrow.Table` in that shape. Raises LimitExceeded if it is longer than
    `bytes_max`."""
    if isinstance(shape, Encoded):
        content = _encoded(table, shape.form)
    elif isinstance(shape, FirstRows):
        content = msgspec.msgpack.encode(_shown(table, shape))
    else:
        content = msgspec.msgpack.encode(_typed(table, shape, bytes_max))
    if len(content) > bytes_max:
        raise too_much(bytes_max)
    return content


def _encoded(table: Any, form: Form) -> bytes:
    if form == "arrow":
        return bytes(stream_of(table))
    return encode_body(query_result(table, is_json=form == "json"), form)


def _shown(table: Any, shape: FirstRows) -> Shown:
    places = range(min(table.num_columns, shape.columns_max))
    found = query_result(table.slice(0, shape.rows_max).select(list(places)), is_json=False)
    return Shown(found.columns, found.types, found.rows, table.num_rows, table.num_columns)


def _typed(table: Any, shape: TypedRows, bytes_max: int) -> list[tuple[Any, ...]]:
    table = _limited(table, shape)
    # The gateway makes Python objects of these rows again.
    if table.num_rows * (table.num_columns + 1) * VALUE_BYTES > bytes_max * OBJECTS_FACTOR:
        raise too_much(bytes_max)
    columns = zip(table.columns, shape.types, strict=True)
    return list(zip(*[_values(column, kind) for column, kind in columns], strict=True))


def _limited(table: Any, shape: TypedRows) -> Any:
    """Return the table with at most `rows_max` rows. If it has more, cut it or raise LimitExceeded,
    as the shape says."""
    rows_max = shape.rows_max
    if rows_max is None or table.num_rows <= rows_max:
        return table
    if rows_max < 0 or not shape.is_cut:
        text = f"The result has {table.num_rows} rows, and output_row_limit is {rows_max}."
        raise LimitExceeded(
            f"{text} Raise it, or add LIMIT to the query.", output_row_limit=rows_max
        )
    return table.slice(0, rows_max)


def _values(column: Any, kind: str) -> Sequence[Any]:
    """Return the values of a column. Those of type any are JSON text of SQL, whose bytes become
    bytes again."""
    values: list[Any] = column.to_pylist()
    if kind != "any":
        return values
    return [None if it is None else unmarked(msgspec.json.decode(it), "") for it in values]
