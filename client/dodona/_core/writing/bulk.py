"""Write rows in bulk, as Arrow data without a Python object for each: directly, or for a load.

Owns: how a user's columns are fitted to the table's (order, types, absent columns), and how rows
are sorted by key and divided among tablets. Also the size of the data in one message.
The data may be longer than memory. It is taken part by part, and one part is in progress at a time.
If rows that are written directly have the same key, the last one wins. The others of a part are
left out before it is divided. So no two messages have a key in common, and their order does not
matter. The next part is sent after all of the last one is written. `writing` says what may be
repeated.
A load has no key twice. A part that has one twice is refused here.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, ClassVar, Final, NamedTuple

from dodona._core.protocol.arguments import INTEGER_MAX, check_number
from dodona._core.protocol.context import Context
from dodona._core.protocol.fan_out import Job, fan_out
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import Protocol
from dodona._core.writing.arrow_casting import cast_column, check_text
from dodona._core.writing.committing import check_mode
from dodona._core.writing.nested_casting import stored_nested
from dodona._core.writing.senders import Sender, StagedBatch, Stager, Writer
from dodona._core.writing.tabular import batches_of, converted
from dodona._core.writing.writing import NO_TABLET
from dodona_wire.errors import (
    DodonaError,
    DuplicateKey,
    InvalidRequest,
    MetadataChanged,
    SchemaViolation,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Tablet
from dodona_wire.messages.data import DataRequest
from dodona_wire.messages.families import Reply
from dodona_wire.rows.arrow import arrow_schema, arrow_type, check_lengths, stream_of
from dodona_wire.rows.arrow_keys import cut_at, encode_keys, in_order
from dodona_wire.rows.logical_arrow import stored_array, stored_arrow_type
from dodona_wire.rows.logical_checks import check_stored_array
from dodona_wire.rows.packed_names import nulls_in_packed
from dodona_wire.rows.row_rules import check_update, missing_key_column
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
"""About how many bytes of Arrow data one message has. It has at most half as much again, since a
frame holds 64 MiB. A single row may be longer.
A message becomes a chunk of its tablet, so fewer messages are better. But a tablet writes one while
the next one arrives. And each time that a program asks for more than 32 MiB of memory, the system
makes it anew, page by page."""
MESSAGE_ROWS_MAX: Final = 1 << 20
PART_BYTES_FIRST: Final = 16 << 20
PART_BYTES_MIN: Final = 1 << 20
PART_BYTES_MAX: Final = 8 * MESSAGE_BYTES
LOAD_PART_BYTES_MAX: Final = 2 * MESSAGE_BYTES
"""The limit for a part of a load. Many processes of a machine may send a load at the same time, and
each needs four times as much memory as its part."""
PART_ROWS_MAX: Final = 4 * MESSAGE_ROWS_MAX
PART_MS: Final = 2_000
"""How long a part should take. It is far less than the time that a call waits for its answer. The
last message of a part is answered after the whole part has arrived."""
SAMPLE_ROWS: Final = 1024


class Fitted(NamedTuple):
    """Batches that fit a schema, in the form in which cells store them. Users' data of logical
    types has another form."""

    schema: TableSchema
    parts: list[Any]


def write_arrow(
    context: Context,
    path: str,
    data: Any,
    durability: Durability,
    stamp: Timestamp | None,
    load: LoadId = NO_LOAD,
    kind: BatchKind = "write",
) -> Protocol[int]:
    """Write data of any kind in `tabular`. Return how many rows it had.
    Absent columns become null. `stamp` is the timestamp of the rows, by default from the client's
    clock. Raises SchemaViolation before any row of the part concerned is sent. The attributes of an
    error say how many rows from the first one on were written (`row_count`). For the part after
    these rows, they say which tablets have written their rows.
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
    """Send rows as `write_arrow` does, for a load that publishes them later. To be deleted, a row
    has its key columns only. To be updated or written, it also has some or all of the other
    columns.
    Return the staged batches. They count only after `publish` gets them. Raises DuplicateKey if a
    part has a key twice."""
    for name, number in (("partition", partition), ("attempt", attempt)):
        check_number(number, name, 0, INTEGER_MAX >> 1)
    call = yield from context.generate_timestamp()
    stager = Stager(path, load, kind, (partition, attempt), call, context.fault_at)
    yield from send_parts(context, path, "full", data, kind, lambda: stager, is_exact=True)
    return stager.staged


@traced_as("write_arrow")
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
    """Send data to the tablets of a table, part by part. `sender` gives the sender of each part.
    Return the number of rows. With `is_exact` a part must not have a key twice. Otherwise the last
    row of each key is taken."""
    route = yield from context.route(path)
    arrow_schema(route.schema)  # if pyarrow is missing, says what to install
    pace = Pace(part_bytes_max)
    row_count, is_checked = 0, isinstance(data, Fitted)
    try:
        if isinstance(data, Fitted):
            schema, batches = _schema_of_fitted(route, atomicity, data), iter(data.parts)
        else:
            route, data = yield from _converted(context, route, data, kind)
            batches = batches_of(data)
            first = list(islice(batches, 1))
            route = yield from _suited(context, route, atomicity, first, kind)
            schema, batches = route.schema, chain(first, batches)
        for part in parts_of(schema, batches, pace, kind):
            began_us = context.instant_us()
            if not is_checked:
                with counted_from(row_count):
                    check_values(schema, part)
            batch, keys = _in_order(schema, part, row_count, is_exact=is_exact)
            job = _BatchJob(batch, keys, sender())
            yield from _send_part(context, route, job)
            row_count += part.num_rows
            pace.learn((context.instant_us() - began_us) // 1000)
    except DodonaError as error:
        error.attributes.update(table=path, row_count=row_count)
        raise
    return row_count


def _schema_of_fitted(route: TableRoute, atomicity: Atomicity, data: Fitted) -> TableSchema:
    """Return the schema of the stored form. Raises MetadataChanged if the table has another schema
    by now."""
    check_mode(route, atomicity)
    if route.schema != data.schema:
        text = "the table was altered while its rows were checked"
        raise MetadataChanged(text, table=route.path)
    return route.schema.stored


def _converted(
    context: Context, route: TableRoute, data: Any, kind: BatchKind
) -> Protocol[tuple[TableRoute, Any]]:
    """Return Python values and frames as Arrow data, by the table's schema, and the route. Another
    client may have altered the table, so a refusal is tried again with a fresh route."""
    is_update = kind == "update"
    try:
        return route, converted(route.schema, data, is_update=is_update)
    except InvalidRequest:
        route = yield from context.fresh_route(route.path)
        return route, converted(route.schema, data, is_update=is_update)


def _suited(
    context: Context, route: TableRoute, atomicity: Atomicity, first: list[Any], kind: BatchKind
) -> Protocol[TableRoute]:
    """Return the route, or a fresh one if the first data does not fit: another client may have
    altered the table. Raises InvalidRequest if the table has the other atomicity."""
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


class Pace:
    """How many bytes make a part: few at first, then as many as take about `PART_MS`. So it adapts
    to the speed of the link and of the cells."""

    def __init__(self, size_bytes_max: int) -> None:
        self.size_bytes = PART_BYTES_FIRST
        self._size_bytes_max = size_bytes_max

    def learn(self, took_ms: int) -> None:
        if took_ms > PART_MS:
            self.size_bytes = max(self.size_bytes // 2, PART_BYTES_MIN)
        elif 2 * took_ms <= PART_MS:
            self.size_bytes = min(self.size_bytes * 2, self._size_bytes_max)


# ---- from the user's data to batches that fit the table


def parts_of(
    schema: TableSchema, data: Iterable[Any], pace: Pace, kind: BatchKind
) -> Iterator[Any]:
    """Join small batches and divide large ones. Yield record batches that fit the table. An error
    names the row in the whole data."""
    gathered: list[Any] = []
    size_bytes, row_count = pace.size_bytes, PART_ROWS_MAX
    passed = 0
    for batch in data:
        if not batch.num_rows:
            fit(schema, batch, kind)  # it has no rows, but it has columns
        while batch.num_rows:
            with counted_from(passed):
                head = _head(schema, batch, size_bytes, row_count, kind)
            if gathered and gathered[0].schema != head.schema:  # an update of other columns
                yield _joined(gathered)
                size_bytes, row_count = pace.size_bytes, PART_ROWS_MAX
            passed += head.num_rows
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
    """Return the first rows of a batch, fitted to the table: about as many as there is room for,
    but at least one. A sample of fitted rows gives their size, since types may change and columns
    may be added."""
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


def check_values(schema: TableSchema, part: Any) -> None:
    """Check the values of a fitted part that only a look at each one shows to be right. Cells check
    them again, but a cell knows the row in its own message only. Raises SchemaViolation."""
    given = set(part.schema.names)
    for column in [it for it in schema.columns if it.name in given]:
        if column.type == "any":
            nulls_in_packed(part.column(column.name).to_pylist(), column.name)
        elif column.type == "json":
            check_stored_array(column.logical, column.name, part.column(column.name))


def _joined(batches: list[Any]) -> Any:
    """Return one batch, and empty the list. So no rows are in memory twice while the batch is
    sent."""
    import pyarrow

    joined = batches[0] if len(batches) == 1 else pyarrow.concat_batches(batches)
    batches.clear()
    return joined


def _in_order(schema: TableSchema, part: Any, first_row: int, *, is_exact: bool) -> tuple[Any, Any]:
    """Return the part in key order, with the last row of each key, and these keys. A part that is
    already in order is not copied. Raises SchemaViolation with the place of the row in the whole
    data, DuplicateKey."""
    with counted_from(first_row):
        given = encode_keys(schema, part)
    rows, keys = in_order(given)
    if is_exact and len(keys) < len(given):
        raise _repeated(schema, given)
    return part if rows is None else part.take(rows), keys


@contextmanager
def counted_from(first_row: int) -> Iterator[None]:
    """Let errors name a row by its place in the whole data. `first_row` is the first of a part."""
    try:
        yield
    except DodonaError as error:
        if isinstance(index := error.attributes.get("row_index"), int):
            error.attributes["row_index"] = index + first_row
        raise


def _repeated(schema: TableSchema, keys: Any) -> DuplicateKey:
    import pyarrow.compute

    counted = keys.value_counts()
    is_repeated = pyarrow.compute.greater(counted.field("counts"), 1)
    key = schema.named_key(Key(counted.field("values").filter(is_repeated)[0].as_py()))
    return DuplicateKey(f"the key {key} is written twice by one load", key=key)


def fit(schema: TableSchema, batch: Any, kind: BatchKind) -> Any:
    """Return the batch with all columns of the table, in its order and stored types. To delete
    rows, take the key columns only. To update rows, take the given columns only. Computed columns
    are made, and those that are given must be right. Raises SchemaViolation."""
    import pyarrow

    names = batch.schema.names
    if len(set(names)) != len(names):
        raise SchemaViolation("two columns have the same name", columns=names)
    known = {column.name for column in schema.columns}
    strangers = sorted(name for name in names if name not in known)
    if strangers:
        raise SchemaViolation("no such column", columns=strangers)
    places = {name: place for place, name in enumerate(names)}
    is_given = [column.name in places for column in schema.value_columns]
    if kind != "delete" and not any(is_given):
        raise SchemaViolation("at least one column that is not a key must be given")
    if kind == "delete" and any(is_given):
        raise SchemaViolation("to delete rows, pass only the key columns", columns=names)
    if kind == "update":
        check_update(schema.columns, places)
    columns = [
        it
        for it in schema.columns
        if kind == "write" or it.sort_order is not None or it.name in places
    ]
    fields = arrow_schema(schema.stored)
    wanted = pyarrow.schema([fields.field(column.name) for column in columns])
    computed = schema.computed_by_name
    arrays = [
        _fit_column(it, batch, places.get(it.name))
        if it.name in places or it.name not in computed
        else pyarrow.nulls(batch.num_rows, stored_arrow_type(it.logical))
        for it in columns
    ]
    fitted = pyarrow.RecordBatch.from_arrays(arrays, schema=wanted)
    if not computed:
        return fitted
    from dodona_wire.rows.computed_arrow import with_computed

    return with_computed(schema, fitted, names)


def _fit_column(column: Column, batch: Any, place: int | None) -> Any:
    """Return the array of one column, in the form in which cells store it. `place` is its index in
    the batch, or None if it is absent."""
    import pyarrow

    name, kind, wanted = column.name, column.logical, arrow_type(column)
    if place is None:
        if column.sort_order is not None:
            raise missing_key_column(name, column.required)
        if column.required:
            raise SchemaViolation("required column is missing", column=name)
        return pyarrow.nulls(batch.num_rows, stored_arrow_type(kind))
    array = batch.column(place)
    if kind.members:
        array = stored_nested(column, array)
        _check_required(column, array)
        check_lengths(column, array)
        return array
    if not array.type.equals(wanted):
        array = cast_column(column, wanted, array)  # dictionaries and runs do not count their nulls
    check_text(column, array)
    _check_required(column, array)
    array = stored_array(kind, name, array)
    check_lengths(column, array)
    return array


def _check_required(column: Column, array: Any) -> None:
    if column.required and column.sort_order is None and array.null_count:
        row = array.is_null().index(True).as_py()
        raise SchemaViolation("required column is null", column=column.name, row_index=row)


# ---- from batches to messages


class _BatchJob:
    """Rows of one part in key order: all rows, or one message to one tablet."""

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
    """Yield pieces of the rows that are short enough for one message, all of about the same
    size."""
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
