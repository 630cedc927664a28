"""Serve timestamps, the cluster, and whole tables over REST.

Owns: these operations, each a few lines over the client, and the roles that they need.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dodona._io.bounds import AsyncUntil
from dodona_gateway.core import answers, requests
from dodona_gateway.core.answers import TableView, view_table
from dodona_gateway.core.json_values import given_bound
from dodona_gateway.shell.routes import Call, route
from dodona_wire.messages.attribute_names import warnings_about
from dodona_wire.rows.logical_values import text_of_value
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.text_format import format_any


async def generate_timestamps(call: Call, asked: requests.GenerateTimestamps) -> answers.Timestamps:
    """Return fresh timestamps."""
    call.principal.check_somewhere("read")
    generate = call.service.session.generate_timestamp(asked.count)
    first = await call.service.run(generate, asked.timeout_ms)
    return answers.Timestamps(first, asked.count)


async def get_cluster(call: Call, asked: requests.GetCluster) -> answers.ClusterView:
    """Return the proxies and the cells."""
    call.principal.check_somewhere("read")
    cluster = await call.service.client.get_cluster(timeout_ms=asked.timeout_ms)
    cells = [
        answers.CellView(it.cell, it.address, it.is_alive, it.tablet_count) for it in cluster.cells
    ]
    return answers.ClusterView(list(cluster.proxies), cells)


# ---- tables


async def create_table(call: Call, asked: requests.CreateTable) -> TableView:
    """Create a table."""
    call.principal.check("admin", asked.path)
    schema = TableSchema.parse(asked.schema)
    left_ms = _left_ms(call, asked)
    await call.service.client.create_table(
        asked.path,
        schema,
        asked.atomicity,
        _pivots(schema, asked.pivot_keys),
        asked.tablet_count,
        asked.mount,
        asked.attributes,
        timeout_ms=left_ms(),
    )
    view = await _view(call, asked.path, left_ms())
    return msgspec.structs.replace(view, warnings=warnings_about(asked.attributes or ()))


async def list_tables(call: Call, asked: requests.Prefix) -> answers.Paths:
    """Return the paths of all tables that you may read and that begin with the prefix."""
    paths = await call.service.client.list_tables(asked.prefix, timeout_ms=asked.timeout_ms)
    return answers.Paths([it for it in paths if call.principal.allows("read", it)])


async def get_table(call: Call, asked: requests.Path) -> TableView:
    """Return a table with its schema, tablets and settings."""
    call.principal.check("read", asked.path)
    return await _view(call, asked.path, asked.timeout_ms)


async def mount_table(call: Call, asked: requests.MountTable) -> TableView:
    """Mount tablets, so that cells serve them."""
    call.principal.check("admin", asked.path)
    await call.service.client.mount_table(
        asked.path,
        asked.freeze,
        asked.first_tablet_index,
        asked.last_tablet_index,
        asked.timeout_ms,
    )
    return await _view(call, asked.path)


async def unmount_table(call: Call, asked: requests.ChangeTable) -> TableView:
    """Unmount tablets, so that cells stop serving them."""
    call.principal.check("admin", asked.path)
    await call.service.client.unmount_table(*_range_of(asked))
    return await _view(call, asked.path)


async def freeze_table(call: Call, asked: requests.ChangeTable) -> TableView:
    """Freeze tablets, so that they can be read and not written."""
    call.principal.check("admin", asked.path)
    await call.service.client.freeze_table(*_range_of(asked))
    return await _view(call, asked.path)


async def unfreeze_table(call: Call, asked: requests.ChangeTable) -> TableView:
    """Unfreeze tablets, so that they can be written again."""
    call.principal.check("admin", asked.path)
    await call.service.client.unfreeze_table(*_range_of(asked))
    return await _view(call, asked.path)


async def remount_table(call: Call, asked: requests.ChangeTable) -> TableView:
    """Make mounted tablets use changed settings of their table."""
    call.principal.check("admin", asked.path)
    await call.service.client.remount_table(*_range_of(asked))
    return await _view(call, asked.path)


async def reshard_table(call: Call, asked: requests.ReshardTable) -> TableView:
    """Divide an unmounted table into other tablets with the same rows."""
    call.principal.check("admin", asked.path)
    client, left_ms = call.service.client, _left_ms(call, asked)
    pivots = asked.pivot_keys
    if pivots is not None:
        table = await client.get_table(asked.path, timeout_ms=left_ms())
        pivots = _pivots(table.schema, pivots)
    await client.reshard_table(
        asked.path,
        pivots,
        asked.tablet_count,
        asked.first_tablet_index,
        asked.last_tablet_index,
        timeout_ms=left_ms(),
    )
    return await _view(call, asked.path, left_ms())


async def alter_table(call: Call, asked: requests.AlterTable) -> TableView:
    """Change the schema of an unmounted table."""
    call.principal.check("admin", asked.path)
    left_ms = _left_ms(call, asked)
    await call.service.client.alter_table(asked.path, asked.schema, timeout_ms=left_ms())
    return await _view(call, asked.path, left_ms())


def _left_ms(call: Call, asked: requests.Timed) -> Callable[[], int | None]:
    """Return a function that returns how long the next call of the client may take, in ms. The
    deadline is `timeout_ms` from now, for all of them. None is no limit."""
    if asked.timeout_ms is None:
        return lambda: None
    return AsyncUntil(call.service.run, asked.timeout_ms).left_ms


def _range_of(asked: requests.ChangeTable) -> tuple[str, int | None, int | None, int]:
    return asked.path, asked.first_tablet_index, asked.last_tablet_index, asked.timeout_ms


def _pivots(schema: TableSchema, pivots: list[list[Any]] | None) -> list[Any] | None:
    return None if pivots is None else [given_bound(schema, it) for it in pivots]


async def _view(call: Call, path: str, timeout_ms: int | None = None) -> TableView:
    view = view_table(await call.service.client.get_table(path, timeout_ms=timeout_ms))
    for tablet in view.tablets:
        shown = [text_of_value(it) for it in tablet.pivot_key]
        tablet.pivot_key[:] = [format_any(it) for it in shown] if call.form == "json" else shown
    return view


ROUTES: Final = (
    route("POST", "/v1/timestamps", generate_timestamps, "read"),
    route("POST", "/v1/tables", create_table, "admin", status=201),
    route("GET", "/v1/tables", list_tables, "read"),
    route("GET", "/v1/table", get_table, "read"),
    route("POST", "/v1/table/mount", mount_table, "admin"),
    route("POST", "/v1/table/unmount", unmount_table, "admin"),
    route("POST", "/v1/table/freeze", freeze_table, "admin"),
    route("POST", "/v1/table/unfreeze", unfreeze_table, "admin"),
    route("POST", "/v1/table/remount", remount_table, "admin"),
    route("POST", "/v1/table/reshard", reshard_table, "admin"),
    route("POST", "/v1/table/alter", alter_table, "admin"),
    route("GET", "/v1/cluster", get_cluster, "read"),
)
