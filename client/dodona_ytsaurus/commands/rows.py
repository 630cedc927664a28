"""Read and write rows, in YTsaurus's commands.

Owns: these commands, each a few lines over the client or a held transaction. As in YTsaurus, a
write names its atomicity, which must be that of the table.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from dodona._core.reading.versions import VersionedRow
from dodona.aio import AsyncTransaction
from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import SYNC_LAST_COMMITTED, Timestamp
from dodona_ytsaurus.commands.commands import RowsOut, YtCall, command
from dodona_ytsaurus.commands.transactions import modes_of, tablet_transaction
from dodona_ytsaurus.terms.parameters import Parameters
from dodona_ytsaurus.terms.stored_rows import given_rows, shown_by_name, shown_row
from dodona_ytsaurus.yson import Attributed, Uint64

WITH_TIMESTAMPS: Final = "latest_timestamp"
TIMESTAMP_PREFIX: Final = "$timestamp:"

Row = Mapping[str, Any]
Result = TypeVar("Result")


# ---- writes


async def insert_rows(call: YtCall) -> None:
    path, parameters = _table(call, "write"), call.parameters
    is_update, is_aggregate = parameters.flag("update"), parameters.flag("aggregate")
    lock_type: Any = parameters.text("lock_type", "exclusive")
    rows = await call.read_rows()
    if not is_update:
        add_a_null(rows, await call.gateway.schema(path))

    async def insert(transaction: AsyncTransaction) -> None:
        async def put(given: list[dict[str, Any]]) -> None:
            await transaction.insert_rows(path, given, is_update, is_aggregate, lock_type)

        await with_whole_keys(call, path, rows, put)

    await _modify(call, insert)


async def delete_rows(call: YtCall) -> None:
    path = _table(call, "write")
    keys = await call.read_rows()

    async def delete(transaction: AsyncTransaction) -> None:
        await with_whole_keys(call, path, keys, partial(transaction.delete_rows, path))

    await _modify(call, delete)


async def lock_rows(call: YtCall) -> None:
    path, parameters = _table(call, "write"), call.parameters
    if tablet_transaction(call) is None:
        raise InvalidRequest("A lock on rows needs a tablet transaction. Start one first.")
    locks = parameters.texts("locks") or None
    lock_type: Any = parameters.text("lock_type", "shared_strong")
    keys = await call.read_rows()

    async def lock(transaction: AsyncTransaction) -> None:
        async def take(given: list[dict[str, Any]]) -> None:
            await transaction.lock_rows(path, given, locks, lock_type)

        await with_whole_keys(call, path, keys, take)

    await _modify(call, lock)


async def _modify(call: YtCall, buffer: Any) -> None:
    """Buffer a change in the command's transaction, or run it in a separate one."""
    its_id = tablet_transaction(call)
    if its_id is not None:
        async with call.gateway.transactions.use(its_id, call.owner) as transaction:
            await buffer(transaction)
        return
    atomicity, durability = modes_of(call)
    transaction = await call.client.begin(atomicity, durability)
    await buffer(transaction)
    await transaction.commit()


async def with_whole_keys(
    call: YtCall,
    path: str,
    rows: list[dict[str, Any]],
    use: Callable[[list[dict[str, Any]]], Awaitable[Result]],
) -> Result:
    """Use rows that name all key columns, with the values that the client takes. If the client
    refuses the rows, it has asked for the schema again. The table may have more key columns, or
    wider types. Then the use is tried once more."""
    schema = await call.gateway.schema(path)
    name_all_keys(rows, schema)
    try:
        return await use(given_rows(schema, rows))
    except SchemaViolation:
        by_now = await call.gateway.schema(path)
        if not name_all_keys(rows, by_now) and by_now.columns == schema.columns:
            raise
    return await use(given_rows(by_now, rows))


def name_all_keys(rows: list[dict[str, Any]], schema: TableSchema) -> bool:
    """Add null for each key column that a row does not name, but not for computed ones. This is
    YTsaurus's rule; Dodona's own interfaces refuse such a row. A required key column stays missing,
    and the error names it. Return whether any column was added."""
    names = [it.name for it in schema.key_columns if not (it.required or it.expression)]
    count = sum(map(len, rows))
    for row in rows:
        for name in names:
            row.setdefault(name)
    return sum(map(len, rows)) > count


def add_a_null(rows: list[dict[str, Any]], schema: TableSchema) -> None:
    """Add a null to rows that have keys only. An insert that is no update writes null to all
    columns that are not given."""
    keys = schema.key_names
    empty = next((it.name for it in schema.value_columns if not it.required), None)
    if empty is None:
        return  # a required column is missing, and the error names it
    for row in rows:
        if len(row) <= len(keys) and all(name in keys for name in row):
            row[empty] = None


async def trim_rows(call: YtCall) -> None:
    _table(call, "write")
    raise InvalidRequest(
        "Only ordered tables can be trimmed, and Dodona has sorted tables only. Delete the rows."
    )


# ---- reads


async def lookup_rows(call: YtCall) -> RowsOut:
    path, parameters = _table(call, "read"), call.parameters
    keys = await call.read_rows()
    columns = parameters.texts("column_names")
    keep_missing = parameters.flag("keep_missing_rows")
    mode = read_mode(call)
    if parameters.flag("versioned"):
        if mode != "default":
            raise InvalidRequest("Pass either versioned or read_mode, not both.")
        look = partial(_versions, call, path, columns, keep_missing)
        schema, versions = await _stored_versions(call, path, keys, look)
        return _versioned(schema, versions, columns)
    if mode == WITH_TIMESTAMPS:
        look = partial(_versions, call, path, columns, True)
        schema, versions = await _stored_versions(call, path, keys, look)
        shown = _with_timestamps(schema, versions, columns)
        return shown if keep_missing else shown._replace(rows=[it for it in shown.rows if it])
    look = partial(_lookup, call, path, columns, keep_missing)
    rows = await with_whole_keys(call, path, keys, look)
    schema = await call.gateway.schema(path)
    convert = shown_by_name(schema)
    if convert:
        rows = [None if row is None else shown_row(row, convert) for row in rows]
    return RowsOut(_columns(schema, columns), rows)


async def _stored_versions(
    call: YtCall, path: str, keys: list[Any], look: Callable[[list[Any]], Awaitable[Any]]
) -> tuple[TableSchema, list[VersionedRow | None]]:
    """Return the table's schema, and histories with stored values."""
    versions = await with_whole_keys(call, path, keys, look)
    schema = await call.gateway.schema(path)
    convert = shown_by_name(schema)
    if convert:
        versions = [None if it is None else _stored_history(it, convert) for it in versions]
    return schema, versions


def _stored_history(row: VersionedRow, convert: Mapping[str, Callable[[Any], Any]]) -> VersionedRow:
    values = {
        name: [replace(it, value=convert[name](it.value)) for it in items]
        if name in convert
        else items
        for name, items in row.values.items()
    }
    return replace(row, key=shown_row(row.key, convert), values=values)


async def _lookup(
    call: YtCall, path: str, columns: Sequence[str] | None, keep_missing: bool, keys: list[Any]
) -> Any:
    its_id = tablet_transaction(call)
    retention = retention_timestamp(call)
    look_up = partial(call.gateway.session.lookup_rows, path, keys, columns, keep_missing)
    if its_id is None:
        return await call.gateway.look_up(look_up(read_timestamp(call), retention))
    async with call.gateway.transactions.use(its_id, call.owner) as transaction:
        buffer = call.gateway.buffer_of(transaction)
        if retention:  # the transaction's own writes are not visible either way
            return await call.gateway.look_up(look_up(buffer.read_timestamp(), retention))
        return await call.gateway.look_up(look_up(buffer.read_timestamp(), transaction=buffer))


async def _versions(
    call: YtCall, path: str, columns: Sequence[str] | None, keep_missing: bool, keys: list[Any]
) -> Any:
    if retention_timestamp(call):
        raise InvalidRequest(
            "retention_timestamp can't be combined with versions or timestamps of rows. "
            "Leave it out."
        )
    its_id = tablet_transaction(call)
    look_up = partial(call.gateway.session.lookup_versions, path, keys, columns, keep_missing)
    if its_id is None:
        return await call.gateway.look_up(look_up(read_timestamp(call)))
    async with call.gateway.transactions.use(its_id, call.owner) as transaction:
        at = call.gateway.buffer_of(transaction).read_timestamp()
        return await call.gateway.look_up(look_up(at))


def read_timestamp(call: YtCall) -> Timestamp:
    """Return the timestamp of a read outside a transaction."""
    given = call.parameters.number("timestamp")
    return SYNC_LAST_COMMITTED if given is None else Timestamp(given)


def read_mode(call: YtCall) -> str:
    """Return the read mode: values alone, or with timestamps. Raises InvalidRequest."""
    options = Parameters(call.parameters.map("versioned_read_options"))
    mode = options.text("read_mode", "default")
    if mode not in ("default", WITH_TIMESTAMPS):
        raise InvalidRequest(f"read_mode must be default or {WITH_TIMESTAMPS}, not {mode[:40]!r}.")
    return mode


def retention_timestamp(call: YtCall) -> Timestamp:
    """Return the timestamp below which versions are not read; 0 to read all versions."""
    return Timestamp(call.parameters.number("retention_timestamp") or 0)


def _table(call: YtCall, role: Any) -> str:
    path = call.parameters.table()
    call.principal.check(role, path)
    return path


# ---- how rows are shown


def _columns(schema: TableSchema, names: Sequence[str] | None) -> list[tuple[str, Any]]:
    if names is None:
        return [(it.name, it.stored) for it in schema.columns]
    if not names:
        raise InvalidRequest("column_names is empty. Leave it out to get all columns.")
    types = {it.name: it.stored for it in schema.columns}
    for name in names:
        if name not in types:
            raise SchemaViolation(f"no such column: {name[:200]!r}")
    return [(name, types[name]) for name in dict.fromkeys(names)]


def _versioned(
    schema: TableSchema, rows: Sequence[VersionedRow | None], names: Sequence[str] | None
) -> RowsOut:
    columns = _columns(schema, names)
    shown = [None if row is None else _history(schema, row, columns) for row in rows]
    return RowsOut(columns, shown)


def _history(
    schema: TableSchema, row: VersionedRow, columns: Sequence[tuple[str, Any]]
) -> Attributed:
    attributes = {
        "write_timestamps": [Uint64(it) for it in row.write_timestamps],
        "delete_timestamps": [Uint64(it) for it in row.delete_timestamps],
    }
    values: dict[str, Any] = {}
    for name, _ in columns:
        if name in schema.key_names:
            values[name] = row.key[name]
        else:
            versions = row.values.get(name, [])
            values[name] = [_version(it.value, it.timestamp, it.aggregate) for it in versions]
    return Attributed(values, attributes)


def _version(value: Any, timestamp: Timestamp, is_aggregate: bool) -> Attributed:
    attributes: dict[str, Any] = {"timestamp": Uint64(timestamp)}
    if is_aggregate:
        attributes["aggregate"] = True
    return Attributed(value, attributes)


def _with_timestamps(
    schema: TableSchema, rows: Sequence[VersionedRow | None], names: Sequence[str] | None
) -> RowsOut:
    """Return each column's newest value with the timestamp of its write. Raises InvalidRequest if a
    value is made of several writes."""
    columns = _columns(schema, names)
    values = [name for name, _ in columns if name not in schema.key_names]
    for column in schema.value_columns:
        if column.aggregate is not None and column.name in values:
            raise InvalidRequest(
                "An aggregate column has no single timestamp. Leave out the column.",
                column=column.name,
            )
    shown = [None if row is None else _newest(row, columns, values) for row in rows]
    stamped: list[tuple[str, Any]] = [(TIMESTAMP_PREFIX + name, "uint64") for name in values]
    return RowsOut([*columns, *stamped], shown)


def _newest(
    row: VersionedRow, columns: Sequence[tuple[str, Any]], values: Sequence[str]
) -> dict[str, Any] | None:
    deleted = max(row.delete_timestamps, default=0)
    if not any(it > deleted for it in row.write_timestamps):
        return None
    found: dict[str, Any] = {name: row.key.get(name) for name, _ in columns}
    for name in values:
        newest = next((it for it in row.values.get(name, []) if it.timestamp > deleted), None)
        found[name] = None if newest is None else newest.value
        found[TIMESTAMP_PREFIX + name] = None if newest is None else newest.timestamp
    return found


COMMANDS: Final = (
    command(insert_rows, "write", takes="tabular", is_volatile=True, is_heavy=True),
    command(delete_rows, "write", takes="tabular", is_volatile=True, is_heavy=True),
    command(lock_rows, "write", takes="tabular", is_volatile=True, is_heavy=True),
    command(lookup_rows, "read", takes="tabular", gives="tabular", is_heavy=True),
    command(trim_rows, "write", is_volatile=True, is_heavy=True),
)
