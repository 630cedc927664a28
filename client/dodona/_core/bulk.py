"""Bulk writes of Arrow data to tables of `atomicity=none`, without a Python object for each row.

Owns: fitting a user's columns to the table's (order, types, absent ones), dividing batches among
tablets, and the size of what travels in one message. The data may be longer than memory: it is
taken, sent and let go part by part. What may be repeated is as in `writing`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from dodona._core.arguments import check_number
from dodona._core.arrow import arrow_schema, check_lengths, encode_keys, stream_of
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

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Of Arrow data in one message; a single row may be longer."""
MESSAGE_ROWS_MAX: Final = 10_000
"""A cell takes a message in one go: longer ones would hold up everybody else."""
GATHER_BYTES_MAX: Final = 32 << 20
GATHER_ROWS_MAX: Final = 16 * MESSAGE_ROWS_MAX


def write_arrow(
    context: Context, path: str, data: Any, durability: Durability, stamp: Timestamp | None
) -> Protocol[int]:
    """Write a `pyarrow.Table`, a record batch, or any iterable of these. → rows written.

    Absent columns become null. `stamp` is the client's clock unless given. Raises SchemaViolation
    before anything of the part concerned is sent. An error's attributes say how many rows had been
    written (`row_count`), and of the last part which tablets have theirs.
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
    row_count = 0
    try:
        for part in _gather(route.schema, data):
            account = Account()
            now = stamp or timestamp_from_unix_us(context.unix_us())
            job = _BatchJob(part, now, durability == "sync", account)
            row_count += yield from _write_part(context, route, job, account)
    except DodonaError as error:
        error.attributes.update(table=path, row_count=row_count)
        raise
    return row_count


def _write_part(context: Context, route: TableRoute, job: Job, account: Account) -> Protocol[int]:
    try:
        yield from fan_out(context, [(route, job)])
    except DodonaError as error:
        error.attributes.update(account.attributes())
        raise
    return account.row_count


# ---- from the user's data to batches that fit the table


def _gather(schema: TableSchema, data: Any) -> Iterator[Any]:
    """Join small batches and cut large ones, so that each part fills a wave of messages."""
    import pyarrow

    gathered: list[Any] = []
    size_bytes = row_count = 0
    for batch in _batches(data):
        fitted = _fit(schema, batch)
        gathered.append(fitted)
        size_bytes += fitted.nbytes
        row_count += fitted.num_rows
        if size_bytes >= GATHER_BYTES_MAX or row_count >= GATHER_ROWS_MAX:
            yield _joined(pyarrow.Table.from_batches(gathered))
            gathered, size_bytes, row_count = [], 0, 0
    if row_count:
        yield _joined(pyarrow.Table.from_batches(gathered))


def _joined(table: Any) -> Any:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _batches(data: Any) -> Iterator[Any]:
    """Record batches of bounded length, none of them empty."""
    import pyarrow

    if isinstance(data, pyarrow.RecordBatch):
        for start in range(0, data.num_rows, GATHER_ROWS_MAX):
            yield data.slice(start, GATHER_ROWS_MAX)
    elif isinstance(data, pyarrow.Table):
        for batch in data.to_batches(max_chunksize=GATHER_ROWS_MAX):
            yield from _batches(batch)
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
    if column.required and array.null_count:
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
    """Rows of one batch: all of them, or one message to one tablet."""

    is_write: ClassVar[bool] = True
    __slots__ = ("_account", "_batch", "_is_durable", "_stamp", "_tablet")

    def __init__(
        self,
        batch: Any,
        stamp: Timestamp,
        is_durable: bool,
        account: Account,
        tablet: TabletId = NO_TABLET,
    ) -> None:
        self._batch = batch
        self._stamp = stamp
        self._is_durable = is_durable
        self._account = account
        self._tablet = tablet

    def divide(self, route: TableRoute) -> list[tuple[Tablet, Job]]:
        return [
            (tablet, self._part(tablet, message))
            for tablet, batch in _by_tablet(route, self._batch)
            for message in _messages(batch)
        ]

    def _part(self, tablet: Tablet, batch: Any) -> "_BatchJob":
        self._account.expect(tablet.tablet)
        return _BatchJob(batch, self._stamp, self._is_durable, self._account, tablet.tablet)

    def request(self, tablet: Tablet) -> WriteArrow:
        stream = stream_of(self._batch)
        return WriteArrow(tablet.tablet, tablet.revision, self._stamp, self._is_durable, stream)

    def accept(self, reply: Reply) -> None:
        self._account.apply(self._tablet, expect(reply, Written))

    def refuse(self, failure: Failure) -> bool:
        if failure.kind == "unavailable" and not was_never_sent(failure):
            self._account.lose(self._tablet)
        return may_write_again(failure)


def _by_tablet(route: TableRoute, batch: Any) -> list[tuple[Tablet, Any]]:
    """Each tablet's rows. Rows that all belong to one tablet are not copied."""
    if len(route.tablets) == 1:
        return [(route.tablets[0], batch)]
    import pyarrow

    pivots = route.pivots
    rows_by_tablet: dict[int, list[int]] = {}
    for row, key in enumerate(encode_keys(route.schema, batch)):
        rows_by_tablet.setdefault(bisect_right(pivots, key) - 1, []).append(row)
    if len(rows_by_tablet) == 1:
        return [(route.tablets[at], batch) for at in rows_by_tablet]
    return [
        (route.tablets[at], batch.take(pyarrow.array(rows_by_tablet[at])))
        for at in sorted(rows_by_tablet)
    ]


def _messages(batch: Any) -> Iterator[Any]:
    """Cut a batch so that each part is short enough for one message."""
    if batch.num_rows > MESSAGE_ROWS_MAX:
        for start in range(0, batch.num_rows, MESSAGE_ROWS_MAX):
            yield from _messages(batch.slice(start, MESSAGE_ROWS_MAX))
    elif batch.nbytes > MESSAGE_BYTES_MAX and batch.num_rows > 1:
        middle = batch.num_rows // 2
        yield from _messages(batch.slice(0, middle))
        yield from _messages(batch.slice(middle))
    else:
        yield batch
