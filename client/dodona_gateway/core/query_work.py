"""What a gateway and a process that computes queries for it say to each other, and the form that a
result leaves that process in. Pure.

Owns: the messages, and the bound on a result in the form that it is sent in. A process that ran
somebody's query is not trusted: what comes from it is data of these types, of a bounded length.
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
"""Of a frame, in front of it, little-endian."""
NOT_READ: Final = -1
VALUE_BYTES: Final = 48
"""What a value costs as a Python object, about."""
OBJECTS_FACTOR: Final = 8
"""So many times as much as its bytes an answer may take as Python objects."""


# ---- to the process


class QueryTable(msgspec.Struct, frozen=True):
    """A table of the query."""

    path: str
    columns: tuple[Column, ...]


class Plan(msgspec.Struct, frozen=True, tag="plan"):
    """Begin a query: say what it needs of its tables."""

    text: str
    tables: list[QueryTable]
    limits: QueryLimits
    cpu_seconds_max: int
    rows_max: int | None = None
    """If it is enough to have so many of its rows."""


class Encoded(msgspec.Struct, frozen=True, tag="encoded"):
    """The result as the body of an answer."""

    form: Form


class FirstRows(msgspec.Struct, frozen=True, tag="first"):
    """The first rows and columns, for people: a `Shown`."""

    rows_max: int
    columns_max: int


class TypedRows(msgspec.Struct, frozen=True, tag="typed"):
    """The rows, of columns of Dodona's types: a list of lists."""

    types: tuple[str, ...]
    rows_max: int | None
    """How many there may be."""
    is_cut: bool
    """Whether more are left out; else they are refused."""


Shape = Encoded | FirstRows | TypedRows


class Compute(msgspec.Struct, frozen=True, tag="compute"):
    """Go on with the query: what it needs of each table follows. Of each that was read come a frame
    with the schema, and so many with batches."""

    shape: Shape
    batch_counts: list[int]


# ---- from the process


class Planned(msgspec.Struct, frozen=True, tag="planned"):
    """What the query needs of each table."""

    wanted: list[ScanRange | None]


class Computed(msgspec.Struct, frozen=True, tag="computed"):
    """The result, in the shape that was asked for."""

    content: bytes
    is_last: bool = False
    """Whether the process ends behind it."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The error that the query ended with."""

    kind: str
    message: str
    attributes: dict[str, Any]
    is_last: bool = False

    def error(self) -> DodonaError:
        """To be raised."""
        return error_from_wire(self.kind, self.message, self.attributes)


Asked = Plan | Compute
Said = Planned | Computed | Refused

decode_asked: Final = msgspec.msgpack.Decoder(Asked).decode
decode_said: Final = msgspec.msgpack.Decoder(Said).decode


def frame(message: Asked | Said) -> bytes:
    """A message with its length in front."""
    content = msgspec.msgpack.encode(message, enc_hook=str)
    return len(content).to_bytes(LENGTH_BYTES, "little") + content


def refused(error: DodonaError) -> Refused:
    """An error, to be sent."""
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
    """Of the whole result."""


def shaped(table: Any, shape: Shape, bytes_max: int) -> bytes:
    """A `pyarrow.Table` in that shape. Raises LimitExceeded if it is longer than that."""
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
    # The other end has to make objects of them again.
    if table.num_rows * (table.num_columns + 1) * VALUE_BYTES > bytes_max * OBJECTS_FACTOR:
        raise too_much(bytes_max)
    columns = zip(table.columns, shape.types, strict=True)
    return list(zip(*[_values(column, kind) for column, kind in columns], strict=True))


def _limited(table: Any, shape: TypedRows) -> Any:
    """Of a result with more rows than were wanted, so many, or an error, as was asked for."""
    rows_max = shape.rows_max
    if rows_max is None or table.num_rows <= rows_max:
        return table
    if rows_max < 0 or not shape.is_cut:
        text = f"the result has {table.num_rows} rows, and output_row_limit is {rows_max}"
        raise LimitExceeded(text, output_row_limit=rows_max)
    return table.slice(0, rows_max)


def _values(column: Any, kind: str) -> Sequence[Any]:
    """Of type any they are JSON, spelled as SQL has them: bytes are bytes again."""
    values: list[Any] = column.to_pylist()
    if kind != "any":
        return values
    return [None if it is None else unmarked(msgspec.json.decode(it), "") for it in values]
