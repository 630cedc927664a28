"""Tables as a whole: making, mounting, listing, describing and removing them. Pure.

Owns: the checks that are better made here than by the master (a schema in the user's words,
pivot keys), and the waits for tablets to be mounted or unmounted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dodona._core.context import Context, wait_or_raise
from dodona._core.messages import (
    Cluster,
    CreateTable,
    Done,
    GetCluster,
    GetTable,
    ListTables,
    MountTable,
    RemoveNode,
    Table,
    TableList,
    UnmountTable,
)
from dodona._core.retry import Patience
from dodona._core.routing import MOUNTED, UNMOUNTED
from dodona._core.steps import Protocol
from dodona._core.tables import TableInfo, describe
from dodona.errors import InvalidRequest, TableNotFound, Unavailable
from dodona.keys import encode_key
from dodona.schema import Column, TableSchema
from dodona.types import Atomicity, Key

TABLETS_MAX: Final = 10_000
MOUNT_TIMEOUT_MS: Final = 30_000


def create_table(
    context: Context,
    path: str,
    schema: Iterable[Column | Mapping[str, Any]] | TableSchema,
    atomicity: Atomicity,
    pivot_keys: Sequence[Sequence[Any]] | None,
    tablet_count: int | None,
) -> Protocol[None]:
    """Raises SchemaViolation, TableExists, InvalidRequest."""
    parsed = schema if isinstance(schema, TableSchema) else TableSchema.parse(schema)
    if atomicity not in ("full", "none"):
        raise InvalidRequest(f'Atomicity must be "full" or "none", not {atomicity!r}')
    pivots = pivots_of(parsed, pivot_keys, tablet_count)
    request = CreateTable(path, parsed.columns, atomicity, pivots)
    table = yield from context.ask_master(request, Table)
    context.routing.forget(path)
    context.routing.learn(table)


def pivots_of(
    schema: TableSchema, pivot_keys: Sequence[Sequence[Any]] | None, tablet_count: int | None
) -> tuple[Key, ...]:
    """The first keys of all tablets. One tablet unless something else is asked for."""
    if pivot_keys is not None and tablet_count is not None:
        raise InvalidRequest("give either pivot_keys or tablet_count, not both")
    if pivot_keys is not None:
        return tuple([schema.bound_of(values) for values in pivot_keys])
    if tablet_count is None:
        return (Key(b""),)
    if not 0 < tablet_count <= TABLETS_MAX:
        raise InvalidRequest(f"a table has 1 to {TABLETS_MAX} tablets", tablet_count=tablet_count)
    return _even_pivots(schema.key_columns[0], tablet_count)


def _even_pivots(column: Column, count: int) -> tuple[Key, ...]:
    """Divide all values that the first key column can take: good for hashes and the like."""
    if column.type == "string":
        values: list[Any] = [(at * (1 << 16) // count).to_bytes(2, "big") for at in range(count)]
    elif column.type in ("int64", "uint64"):
        lowest = -(1 << 63) if column.type == "int64" else 0
        values = [lowest + at * (1 << 64) // count for at in range(count)]
    else:
        raise InvalidRequest(
            f"tablet_count can't divide a first key column of type {column.type}: give pivot_keys",
            column=column.name,
        )
    return (Key(b""), *(encode_key([value], [column.type]) for value in values[1:]))


def remove_table(context: Context, path: str) -> Protocol[None]:
    """Raises TableNotFound, InvalidRequest if it is still mounted."""
    yield from context.ask_master(RemoveNode(path), Done)
    context.routing.forget(path)


def list_tables(context: Context, prefix: str) -> Protocol[list[str]]:
    """Paths that begin with `prefix`, in order."""
    listed = yield from context.ask_master_patiently(
        ListTables(prefix), TableList, context.patience()
    )
    return list(listed.paths)


def get_table(context: Context, path: str) -> Protocol[TableInfo]:
    """What the master knows of the table now. Raises TableNotFound."""
    table = yield from _get(context, path, context.patience())
    return describe(table)


def exists(context: Context, path: str) -> Protocol[bool]:
    """Whether there is such a table."""
    try:
        yield from _get(context, path, context.patience())
    except TableNotFound:
        return False
    return True


def get_cluster(context: Context, timeout_ms: int | None) -> Protocol[Cluster]:
    """The proxies and cells that the master hears from."""
    patience = context.patience() if timeout_ms is None else context.polling(timeout_ms)
    cluster = yield from context.ask_master_patiently(GetCluster(), Cluster, patience)
    context.routing.learn_cells(cluster)
    return cluster


def mount_table(context: Context, path: str, timeout_ms: int) -> Protocol[None]:
    """Mount, and wait until all tablets are served. Raises TableNotFound, Unavailable."""
    patience = context.polling(timeout_ms)
    yield from context.ask_master_patiently(MountTable(path), Table, patience)
    yield from _wait_for_state(context, path, MOUNTED, patience, timeout_ms)


def unmount_table(context: Context, path: str, timeout_ms: int) -> Protocol[None]:
    """Unmount, and wait until no cell serves a tablet. Raises TableNotFound, Unavailable."""
    patience = context.polling(timeout_ms)
    yield from context.ask_master_patiently(UnmountTable(path), Table, patience)
    yield from _wait_for_state(context, path, UNMOUNTED, patience, timeout_ms)


def _wait_for_state(
    context: Context, path: str, state: str, patience: Patience, timeout_ms: int
) -> Protocol[None]:
    while True:
        context.routing.forget(path)
        table = yield from _get(context, path, patience)
        waiting = [tablet for tablet in table.tablets if tablet.state != state]
        if not waiting:
            return
        text = f"{len(waiting)} tablets of {path} are not {state} after {timeout_ms} ms"
        yield from wait_or_raise(patience, Unavailable(text, tablets=[it.tablet for it in waiting]))


def _get(context: Context, path: str, patience: Patience) -> Protocol[Table]:
    table = yield from context.ask_master_patiently(GetTable(path), Table, patience)
    context.routing.learn(table)
    return table
