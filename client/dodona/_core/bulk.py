"""Bulk writes of Arrow data to tables of `atomicity=none`, without a Python object for each row.

Owns: fitting a user's columns to the table's (order, types, absent ones), putting rows in the order
of their keys, dividing them among tablets, and the size of what travels in one message.
The data may be longer than memory: it is taken part by part, and one part is under way at a time.
Of rows with one key the last one wins. Within a part the others are left out before it is divided,
so that no two messages have a key in common, and it does not matter which of them comes first;
the next part is sent when all of the last one is written. What may be repeated is as in `writing`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from dodona._core.arguments import check_number
from dodona._core.arrow import arrow_schema, check_lengths, stream_of
from dodona._core.arrow_keys import cut_at, encode_keys, in_order
from dodona._core.context import Context, expect, was_never_sent
from dodona._core.fan_out import Job, fan_out, may_write_again
from dodona._core.messages import Failure, Reply, Tablet, WriteArrow, Written
from dodona._core.routing import TableRoute
from dodona._core.steps import Protocol
from dodona._core.writing import NO_TABLET, Account
from dodona.errors import DodonaError, InvalidRequest, SchemaViolation
from dodona.schema import Column, TableSchema
from dodona.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Durability,
    TabletId,
    Timestamp,
    timestamp_from_unix_us,
)

MESSAGE_BYTES: Final = 16 << 20
"""Of Arrow data in one message, about, and half as much again at the most: a frame takes 64 MiB.
A single row may be longer. A message becomes a chunk of its tablet: the fewer, the better. But a
tablet writes one while the next is on its way, and memory of more than 32 MiB is made anew by the
system, page by page, each time that a program asks for it."""
MESSAGE_ROWS_MAX: Final = 1 << 20
PART_BYTES_FIRST: Final = 16 << 20
PART_BYTES_MIN: Final = 1 << 20
PART_BYTES_MAX: Final = 8 * MESSAGE_BYTES
PART_ROWS_MAX: Final = 4 * MESSAGE_ROWS_MAX
PART_MS: Final = 2_000
"""What a part is to take. It is far less than a call waits for its answer, since the last message
of a part is answered when all of it has come through."""
SAMPLE_ROWS: Final = 1024


def write_arrow(
    context: Context, path: str, data: Any, durability: Durability, stamp: Timestamp | None
) -> Protocol[int]:
    """Write a `pyarrow.Table`, a record batch, or any iterable of these. → how many rows it had.

    Absent columns become null. `stamp` is the client's clock unless given. Raises SchemaViolation
    before anything of the part concerned is sent. An error's attributes say how many rows from the
    first one on had been written (`row_count`), and of the part behind them which tablets have
    theirs.
    """
    if durability not in ("sync", "async"):
        raise InvalidRequest(f'Durability must be "sync" or "async", not {durability!r}')
    if stamp is not None:
        check_number(stamp, "stamp", MIN_TIMESTAMP, MAX_TIMESTAMP)
    route = yield from context.route(path)
    if route.atomicity != "none":
        text = f'Invalid atomicity mode: "none" instead of "{route.atomicity}"'
        raise InvalidRequest(text, table=path)
    arrow_schema(route.schema)  # says what to install where pyarrow is missing
    pace = _Pace()
    row_count = 0
    try:
        for part in _parts(route.schema, data, pace):
            began_us = context.instant_us()
            now = stamp or timestamp_from_unix_us(context.unix_us())
            batch, keys = _in_order(route.schema, part, row_count)
            account = Account()
            job = _BatchJob(batch, keys, now, durability == "sync", account)
            yield from _write_part(context, route, job, account)
            row_count += part.num_rows
            pace.learn((context.instant_us() - began_us) // 1000)
    except DodonaError as error:
        error.attributes.update(table=path, row_count=row_count)
        raise
    return row_count


def _write_part(context: Context, route: TableRoute, job: Job, account: Account) -> Protocol[None]:
    try:
        yield from fan_out(context, [(route, job)])
    except DodonaError as error:
        error.attributes.update(account.attributes())
        raise


class _Pace:
    """How much of the data makes a part: little at first, then what takes about `PART_MS`, however
    slow the link and busy the cells are."""

    def __init__(self) -> None:
        self.size_bytes = PART_BYTES_FIRST

    def learn(self, took_ms: int) -> None:
        if took_ms > PART_MS:
            self.size_bytes = max(self.size_bytes // 2, PART_BYTES_MIN)
        elif 2 * took_ms <= PART_MS:
            self.size_bytes = min(self.size_bytes * 2, PART_BYTES_MAX)


# ---- from the user's data to batches that fit the table


def _parts(schema: TableSchema, data: Any, pace: _Pace) -> Iterator[Any]:
    """Join small batches and cut large ones. → record batches that fit the table."""
    gathered: list[Any] = []
    size_bytes, row_count = pace.size_bytes, PART_ROWS_MAX
    for batch in _batches(data):
        while batch.num_rows:
            head = _head(schema, batch, size_bytes, row_count)
            gathered.append(head)
            batch = batch.slice(head.num_rows)
            size_bytes -= head.nbytes
            row_count -= head.num_rows
            if batch.num_rows or size_bytes <= 0 or row_count <= 0:
                yield _joined(gathered)
                gathered, size_bytes, row_count = [], pace.size_bytes, PART_ROWS_MAX
    if gathered:
        yield _joined(gathered)


def _head(schema: TableSchema, batch: Any, size_bytes: int, row_count: int) -> Any:
    """The first rows of a batch, fitted to the table: about as many as there is room for, at least
    one. How long they are comes out by fitting some, since types may change and columns come."""
    row_count = min(row_count, batch.num_rows)
    head = _fit(schema, batch.slice(0, min(SAMPLE_ROWS, row_count)))
    row_count = max(min(row_count, head.num_rows * size_bytes // max(head.nbytes, 1)), 1)
    if row_count > head.num_rows:
        head = _fit(schema, batch.slice(0, row_count))
    else:
        head = head.slice(0, row_count)
    while head.num_rows > 1 and head.nbytes > 2 * size_bytes:  # longer rows came later
        head = head.slice(0, head.num_rows // 2)
    return head


def _joined(batches: list[Any]) -> Any:
    import pyarrow

    return batches[0] if len(batches) == 1 else pyarrow.concat_batches(batches)


def _in_order(schema: TableSchema, part: Any, first_row: int) -> tuple[Any, Any]:
    """→ the part in the order of its keys, the last row of each, and these keys. What is in order
    already is not copied. Raises SchemaViolation with the place of a row in all of the data."""
    try:
        rows, keys = in_order(encode_keys(schema, part))
    except SchemaViolation as error:
        error.attributes["row_index"] += first_row
        raise
    return part if rows is None else part.take(rows), keys


def _batches(data: Any) -> Iterator[Any]:
    """Record batches as they come."""
    import pyarrow

    if isinstance(data, pyarrow.RecordBatch):
        yield data
    elif isinstance(data, pyarrow.Table):
        yield from data.to_batches()
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        for batch in data:
            if not isinstance(batch, pyarrow.Table | pyarrow.RecordBatch):
                raise _not_arrow(batch)
            yield from _batches(batch)
    else:
        raise _not_arrow(data)


def _not_arrow(data: Any) -> InvalidRequest:
    return InvalidRequest(
        "write_arrow takes a pyarrow.Table, a RecordBatch or an iterable of these, "
        f"not {type(data).__name__}"
    )


def _fit(schema: TableSchema, batch: Any) -> Any:
    """The batch with all columns of the table, in its order and types. Raises SchemaViolation."""
    import pyarrow

    names = batch.schema.names
    if len(set(names)) != len(names):
        raise SchemaViolation("two columns have one name", columns=names)
    known = {column.name for column in schema.columns}
    strangers = sorted(name for name in names if name not in known)
    if strangers:
        raise SchemaViolation("no such column", columns=strangers)
    if all(column.name not in names for column in schema.value_columns):
        raise SchemaViolation("at least one column that is not a key must be given")
    wanted = arrow_schema(schema)
    arrays = [
        _fit_column(column, wanted.field(column.name).type, batch) for column in schema.columns
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=wanted)


def _fit_column(column: Column, wanted: Any, batch: Any) -> Any:
    import pyarrow

    name = column.name
    if name not in batch.schema.names:
        if column.sort_order is not None:
            raise SchemaViolation("missing key column", column=name)
        if column.required:
            raise SchemaViolation("required column is missing", column=name)
        return pyarrow.nulls(batch.num_rows, wanted)
    array = batch.column(batch.schema.get_field_index(name))
    if column.required and column.sort_order is None and array.null_count:
        raise SchemaViolation("required column is null", column=name)
    if not array.type.equals(wanted):
        array = _cast(column, wanted, array)
    check_lengths(column, array)
    return array


def _cast(column: Column, wanted: Any, array: Any) -> Any:
    import pyarrow

    given = array.type
    if pyarrow.types.is_dictionary(given):
        array = array.dictionary_decode()
    if not _may_cast(column.type, array.type):
        raise SchemaViolation(
            f"column {column.name!r} is {column.type} and takes Arrow's {wanted}, not {given}",
            column=column.name,
        )
    try:
        return array.cast(wanted, safe=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise SchemaViolation(
            f"a value does not fit in {column.type}: {error}", column=column.name
        ) from error


def _may_cast(wanted: str, given: Any) -> bool:
    """Only where each value stays what it was."""
    import pyarrow

    types = pyarrow.types
    if types.is_null(given):
        return True
    is_text = types.is_string(given) or types.is_large_string(given)
    is_bytes = (
        types.is_binary(given) or types.is_large_binary(given) or types.is_fixed_size_binary(given)
    )
    allowed: dict[str, bool] = {
        "int64": types.is_integer(given),
        "uint64": types.is_integer(given),
        "double": types.is_floating(given) or types.is_integer(given),
        "boolean": types.is_boolean(given),
        "string": is_text or is_bytes,
        "utf8": is_text,
        "any": is_bytes,
    }
    return allowed[wanted]


# ---- from batches to messages


class _BatchJob:
    """Rows of one part in the order of their keys: all of them, or one message to one tablet."""

    is_write: ClassVar[bool] = True
    __slots__ = ("_account", "_batch", "_is_durable", "_keys", "_stamp", "_tablet")

    def __init__(
        self,
        batch: Any,
        keys: Any,
        stamp: Timestamp,
        is_durable: bool,
        account: Account,
        tablet: TabletId = NO_TABLET,
    ) -> None:
        self._batch = batch
        self._keys = keys
        self._stamp = stamp
        self._is_durable = is_durable
        self._account = account
        self._tablet = tablet

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        return [
            (route.tablets[place], self._part(route.tablets[place], *message))
            for place, start, end in cut_at(self._keys, route.pivots)
            for message in _messages(self._batch, start, end)
        ]

    def _part(self, tablet: Tablet, start: int, end: int) -> "_BatchJob":
        self._account.expect(tablet.tablet)
        batch, keys = (it.slice(start, end - start) for it in (self._batch, self._keys))
        return _BatchJob(batch, keys, self._stamp, self._is_durable, self._account, tablet.tablet)

    def request(self, tablet: Tablet) -> WriteArrow:
        stream = stream_of(self._batch)
        return WriteArrow(tablet.tablet, tablet.revision, self._stamp, self._is_durable, stream)

    def accept(self, reply: Reply) -> None:
        self._account.apply(self._tablet, expect(reply, Written))

    def refuse(self, failure: Failure) -> bool:
        if failure.kind == "unavailable" and not was_never_sent(failure):
            self._account.lose(self._tablet)
        return may_write_again(failure)


def _messages(batch: Any, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut rows so that each piece is short enough for one message, all about equally long."""
    row_count = end - start
    size_bytes = batch.slice(start, row_count).nbytes
    is_short = size_bytes <= MESSAGE_BYTES * 3 // 2 and row_count <= MESSAGE_ROWS_MAX
    if is_short or row_count == 1:
        yield start, end
        return
    pieces = max(-(-size_bytes // MESSAGE_BYTES), -(-row_count // MESSAGE_ROWS_MAX))
    step = -(-row_count // min(pieces, row_count))
    for at in range(start, end, step):
        yield from _messages(batch, at, min(at + step, end))
