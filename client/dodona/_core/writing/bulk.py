"""Rows in bulk, as Arrow data, without a Python object for each: written at once, or for a load.

Owns: fitting a user's columns to the table's (order, types, absent ones), putting rows in the order
of their keys, dividing them among tablets, and the size of what travels in one message.
The data may be longer than memory: it is taken part by part, and one part is under way at a time.
Of rows with one key that are written at once the last one wins. Within a part the others are left
out before it is divided, so that no two messages have a key in common, and it does not matter which
of them comes first; the next part is sent when all of the last one is written. What may be repeated
is as in `writing`. Of what a load publishes no key comes twice: in a part that is refused here.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, ClassVar, Final

from dodona._core.protocol.arguments import INTEGER_MAX, check_number
from dodona._core.protocol.context import Context
from dodona._core.protocol.fan_out import Job, fan_out
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.steps import Protocol
from dodona._core.writing.arrow_casting import cast_column
from dodona._core.writing.committing import check_mode
from dodona._core.writing.senders import Sender, StagedBatch, Stager, Writer
from dodona._core.writing.writing import NO_TABLET
from dodona_wire.errors import DodonaError, DuplicateKey, InvalidRequest, SchemaViolation
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import DataRequest
from dodona_wire.messages.families import Reply
from dodona_wire.rows.arrow import arrow_schema, check_lengths, stream_of
from dodona_wire.rows.arrow_keys import cut_at, encode_keys, in_order
from dodona_wire.rows.row_rules import missing_key_column
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    NO_LOAD,
    Atomicity,
    BatchKind,
    Durability,
    Key,
    LoadId,
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
LOAD_PART_BYTES_MAX: Final = 2 * MESSAGE_BYTES
"""Of a load, which many processes of a machine may bring at once: each needs four times as much
memory."""
PART_ROWS_MAX: Final = 4 * MESSAGE_ROWS_MAX
PART_MS: Final = 2_000
"""What a part is to take. It is far less than a call waits for its answer, since the last message
of a part is answered when all of it has come through."""
SAMPLE_ROWS: Final = 1024


def write_arrow(
    context: Context,
    path: str,
    data: Any,
    durability: Durability,
    stamp: Timestamp | None,
    load: LoadId = NO_LOAD,
    kind: BatchKind = "write",
) -> Protocol[int]:
    """Write a `pyarrow.Table`, a record batch, or any iterable of these. → how many rows it had.

    Absent columns become null. `stamp` is the client's clock unless given. Raises SchemaViolation
    before anything of the part concerned is sent. An error's attributes say how many rows from the
    first one on had been written (`row_count`), and of the part behind them which tablets have
    theirs.
    """
    if durability not in ("sync", "async"):
        raise InvalidRequest(f'Durability must be "sync" or "async", not {shown(durability)}')
    if stamp is not None:
        check_number(stamp, "stamp", MIN_TIMESTAMP, MAX_TIMESTAMP)

    def sender() -> Sender:
        now = stamp or timestamp_from_unix_us(context.unix_us())
        return Writer(now, durability == "sync", load, kind)

    part_bytes_max = LOAD_PART_BYTES_MAX if load else PART_BYTES_MAX
    return send_parts(context, path, "none", data, kind, sender, part_bytes_max)


def stage_arrow(
    context: Context,
    path: str,
    data: Any,
    load: LoadId,
    kind: BatchKind,
    partition: int,
    attempt: int,
) -> Protocol[list[StagedBatch]]:
    """As `write_arrow`, for a load that publishes them later: a row is of the key columns alone to
    delete it, and has some others or all to be updated or written. → what is staged, which is
    nothing that counts before `publish` is given it. Raises DuplicateKey where that shows here."""
    for name, number in (("partition", partition), ("attempt", attempt)):
        check_number(number, name, 0, INTEGER_MAX >> 1)
    call = yield from context.generate_timestamp()
    stager = Stager(path, load, kind, (partition, attempt), call, context.fault_at)
    yield from send_parts(context, path, "full", data, kind, lambda: stager, is_exact=True)
    return stager.staged


def send_parts(
    context: Context,
    path: str,
    atomicity: Atomicity,
    data: Any,
    kind: BatchKind,
    sender: Callable[[], Sender],
    part_bytes_max: int = PART_BYTES_MAX,
    *,
    is_exact: bool = False,
) -> Protocol[int]:
    """Bring data to the tablets of a table, part by part, each with a sender. → how many rows.
    If it is exact, no key may come twice in a part; else the last row of each is taken."""
    route = yield from context.route(path)
    arrow_schema(route.schema)  # says what to install where pyarrow is missing
    pace = _Pace(part_bytes_max)
    row_count = 0
    try:
        batches = _batches(data)
        first = list(islice(batches, 1))
        route = yield from _suited(context, route, atomicity, first, kind)
        for part in _parts(route.schema, chain(first, batches), pace, kind):
            began_us = context.instant_us()
            batch, keys = _in_order(route.schema, part, row_count, is_exact=is_exact)
            job = _BatchJob(batch, keys, sender())
            yield from _send_part(context, route, job)
            row_count += part.num_rows
            pace.learn((context.instant_us() - began_us) // 1000)
    except DodonaError as error:
        error.attributes.update(table=path, row_count=row_count)
        raise
    return row_count


def _suited(
    context: Context, route: TableRoute, atomicity: Atomicity, first: list[Any], kind: BatchKind
) -> Protocol[TableRoute]:
    """The route, or a fresh one if what comes first does not suit: others may have altered the
    table. Raises InvalidRequest if its atomicity is another."""
    try:
        check_mode(route, atomicity)
        for batch in first:
            fit(route.schema, batch.slice(0, 0), kind)
    except InvalidRequest:
        route = yield from context.fresh_route(route.path)
        check_mode(route, atomicity)
    return route


def _send_part(context: Context, route: TableRoute, job: "_BatchJob") -> Protocol[None]:
    try:
        yield from fan_out(context, [(route, job)], is_bulk=True)
    except DodonaError as error:
        error.attributes.update(job.sender.attributes())
        raise


class _Pace:
    """How much of the data makes a part: little at first, then what takes about `PART_MS`, however
    slow the link and busy the cells are."""

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes = PART_BYTES_FIRST
        self._size_bytes_max = size_bytes_max

    def learn(self, took_ms: int) -> None:
        if took_ms > PART_MS:
            self.size_bytes = max(self.size_bytes // 2, PART_BYTES_MIN)
        elif 2 * took_ms <= PART_MS:
            self.size_bytes = min(self.size_bytes * 2, self._size_bytes_max)


# ---- from the user's data to batches that fit the table


def _parts(schema: TableSchema, data: Iterable[Any], pace: _Pace, kind: BatchKind) -> Iterator[Any]:
    """Join small batches and cut large ones. → record batches that fit the table."""
    gathered: list[Any] = []
    size_bytes, row_count = pace.size_bytes, PART_ROWS_MAX
    for batch in data:
        if not batch.num_rows:
            fit(schema, batch, kind)  # it has no rows, and columns all the same
        while batch.num_rows:
            head = _head(schema, batch, size_bytes, row_count, kind)
            gathered.append(head)
            batch = batch.slice(head.num_rows)
            size_bytes -= head.nbytes
            row_count -= head.num_rows
            if batch.num_rows or size_bytes <= 0 or row_count <= 0:
                yield _joined(gathered)
                size_bytes, row_count = pace.size_bytes, PART_ROWS_MAX
    if gathered:
        yield _joined(gathered)


def _head(schema: TableSchema, batch: Any, size_bytes: int, row_count: int, kind: BatchKind) -> Any:
    """The first rows of a batch, fitted to the table: about as many as there is room for, at least
    one. How long they are comes out by fitting some, since types may change and columns come."""
    row_count = min(row_count, batch.num_rows)
    head = fit(schema, batch.slice(0, min(SAMPLE_ROWS, row_count)), kind)
    row_count = max(min(row_count, head.num_rows * size_bytes // max(head.nbytes, 1)), 1)
    if row_count > head.num_rows:
        head = fit(schema, batch.slice(0, row_count), kind)
    else:
        head = head.slice(0, row_count)
    while head.num_rows > 1 and head.nbytes > 2 * size_bytes:  # longer rows came later
        head = head.slice(0, head.num_rows // 2)
    return head


def _joined(batches: list[Any]) -> Any:
    """→ one batch. The list is empty then: nothing is in memory twice while that is sent."""
    import pyarrow

    joined = batches[0] if len(batches) == 1 else pyarrow.concat_batches(batches)
    batches.clear()
    return joined


def _in_order(schema: TableSchema, part: Any, first_row: int, *, is_exact: bool) -> tuple[Any, Any]:
    """→ the part in the order of its keys, the last row of each, and these keys. What is in order
    already is not copied. Raises SchemaViolation with the place of a row in all of the data;
    DuplicateKey."""
    try:
        given = encode_keys(schema, part)
    except SchemaViolation as error:
        error.attributes["row_index"] += first_row
        raise
    rows, keys = in_order(given)
    if is_exact and len(keys) < len(given):
        raise _repeated(schema, given)
    return part if rows is None else part.take(rows), keys


def _repeated(schema: TableSchema, keys: Any) -> DuplicateKey:
    import pyarrow.compute

    counted = keys.value_counts()
    is_repeated = pyarrow.compute.greater(counted.field("counts"), 1)
    key = schema.named_key(Key(counted.field("values").filter(is_repeated)[0].as_py()))
    return DuplicateKey(f"the key {key} is written twice by one load", key=key)


def _batches(data: Any) -> Iterator[Any]:
    """Record batches as they come."""
    import pyarrow

    if isinstance(data, pyarrow.RecordBatch):
        yield data
    elif isinstance(data, pyarrow.Table):
        yield from data.to_batches() or [_empty(data.schema)]
    elif isinstance(data, pyarrow.RecordBatchReader):
        yield _empty(data.schema)  # it may have no batch, and columns all the same
        yield from data
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        for batch in data:
            if not isinstance(batch, pyarrow.Table | pyarrow.RecordBatch):
                raise _not_arrow(batch)
            yield from _batches(batch)
    else:
        raise _not_arrow(data)


def _empty(schema: Any) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.nulls(0, it) for it in schema.types], schema=schema
    )


def _not_arrow(data: Any) -> InvalidRequest:
    return InvalidRequest(
        "rows in bulk are a pyarrow.Table, a RecordBatch or an iterable of these, "
        f"not {type(data).__name__}"
    )


def fit(schema: TableSchema, batch: Any, kind: BatchKind) -> Any:
    """The batch with all columns of the table, in its order and types; with the key columns only
    to delete rows, and those that are given to update them. Raises SchemaViolation."""
    import pyarrow

    names = batch.schema.names
    if len(set(names)) != len(names):
        raise SchemaViolation("two columns have one name", columns=names)
    known = {column.name for column in schema.columns}
    strangers = sorted(name for name in names if name not in known)
    if strangers:
        raise SchemaViolation("no such column", columns=strangers)
    places = {name: place for place, name in enumerate(names)}
    is_given = [column.name in places for column in schema.value_columns]
    if kind != "delete" and not any(is_given):
        raise SchemaViolation("at least one column that is not a key must be given")
    if kind == "delete" and any(is_given):
        raise SchemaViolation("rows are deleted by their key columns alone", columns=names)
    columns = [
        it
        for it in schema.columns
        if kind == "write" or it.sort_order is not None or it.name in places
    ]
    fields = arrow_schema(schema)
    wanted = pyarrow.schema([fields.field(column.name) for column in columns])
    arrays = [
        _fit_column(column, field.type, batch, places.get(column.name))
        for column, field in zip(columns, wanted, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=wanted)


def _fit_column(column: Column, wanted: Any, batch: Any, place: int | None) -> Any:
    """`place` is the column's in the batch, if it is there."""
    import pyarrow

    name = column.name
    if place is None:
        if column.sort_order is not None:
            raise missing_key_column(name, column.required)
        if column.required:
            raise SchemaViolation("required column is missing", column=name)
        return pyarrow.nulls(batch.num_rows, wanted)
    array = batch.column(place)
    if not array.type.equals(wanted):
        array = cast_column(column, wanted, array)  # dictionaries and runs do not count their nulls
    if column.required and column.sort_order is None and array.null_count:
        raise SchemaViolation("required column is null", column=name)
    check_lengths(column, array)
    return array


# ---- from batches to messages


class _BatchJob:
    """Rows of one part in the order of their keys: all of them, or one message to one tablet."""

    is_write: ClassVar[bool] = True
    __slots__ = ("_batch", "_keys", "_place", "_tablet", "sender")

    def __init__(
        self, batch: Any, keys: Any, sender: Sender, tablet: TabletId = NO_TABLET, place: int = 0
    ) -> None:
        self._batch = batch
        self._keys = keys
        self.sender = sender
        self._tablet = tablet
        self._place = place

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        return [
            (route.tablets[place], self._part(route.tablets[place], *message))
            for place, start, end in cut_at(self._keys, route.pivots)
            for message in _messages(self._batch, start, end)
        ]

    def _part(self, tablet: Tablet, start: int, end: int) -> "_BatchJob":
        place = self.sender.expect(tablet.tablet)
        batch, keys = (it.slice(start, end - start) for it in (self._batch, self._keys))
        return _BatchJob(batch, keys, self.sender, tablet.tablet, place)

    def request(self, tablet: Tablet) -> DataRequest:
        return self.sender.request(tablet, stream_of(self._batch), self._place)

    def accept(self, reply: Reply) -> "_BatchJob | None":
        return None if self.sender.accept(self._tablet, reply) else self

    def refuse(self, failure: Failure) -> bool:
        return self.sender.refuse(self._tablet, failure)


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
