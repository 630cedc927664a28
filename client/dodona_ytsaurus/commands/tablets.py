"""Mount, unmount and change tables, in YTsaurus's commands.

Owns: these commands. As in YTsaurus, the answer to a command comes when the change of a table's
state has begun. Clients look at `@tablet_state` to see its end.
"""

from typing import Any, Final

from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.catalog import (
    FreezeTable,
    MountTable,
    RemountTable,
    TableLifeRequest,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.types import Timestamp
from dodona_ytsaurus.commands.commands import Value, YtCall, command
from dodona_ytsaurus.terms.parameters import plain
from dodona_ytsaurus.terms.schemas import columns_of, pivot_keys_of
from dodona_ytsaurus.terms.stored_rows import given_key
from dodona_ytsaurus.yson import Uint64


async def mount_table(call: YtCall) -> None:
    await _begin(call, MountTable(_path(call), call.parameters.flag("freeze"), *_range(call)))


async def unmount_table(call: YtCall) -> None:
    if call.parameters.flag("force"):
        raise InvalidRequest("force would lose rows that are not flushed. Unmount without force.")
    await _begin(call, UnmountTable(_path(call), *_range(call)))


async def freeze_table(call: YtCall) -> None:
    await _begin(call, FreezeTable(_path(call), *_range(call)))


async def unfreeze_table(call: YtCall) -> None:
    await _begin(call, UnfreezeTable(_path(call), *_range(call)))


async def remount_table(call: YtCall) -> None:
    await _begin(call, RemountTable(_path(call), *_range(call)))


async def reshard_table(call: YtCall) -> None:
    path, parameters = _path(call), call.parameters
    pivots = parameters.raw("pivot_keys")
    keys = None if pivots is None else pivot_keys_of(pivots)
    if keys is not None:
        schema = (await call.client.get_table(path)).schema
        keys = [given_key(schema, it) for it in keys]
    reshard = call.client.reshard_table
    await reshard(path, keys, parameters.number("tablet_count"), *_range(call))


async def alter_table(call: YtCall) -> None:
    path, parameters = _path(call), call.parameters
    if parameters.flag("dynamic", default=True) is False:
        raise InvalidRequest("Dodona has dynamic tables only. Leave out dynamic=false.", path=path)
    if "schema" in parameters:
        await call.client.alter_table(path, columns_of(parameters.raw("schema")))


async def get_tablet_infos(call: YtCall) -> Value:
    """Return infos of tablets. As in YTsaurus, only ordered tables have row counts. A write that
    begins after this answer has a timestamp above `barrier_timestamp`."""
    path, parameters = call.parameters.table(), call.parameters
    call.principal.check("read", path)
    table = await call.client.get_table(path)
    indexes = parameters.items("tablet_indexes")
    if indexes is None:
        raise InvalidRequest("Missing required parameter 'tablet_indexes'")
    barrier = await call.client.generate_timestamp()
    infos = [_tablet_info(plain(it), len(table.tablets), barrier) for it in indexes]
    return Value({"tablets": infos})


def _tablet_info(index: Any, count: int, barrier: Timestamp) -> dict[str, Any]:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count:
        text = f"Invalid tablet index: there are {count} tablets"
        raise InvalidRequest(text, index=str(index)[:40])
    return {
        "total_row_count": 0,
        "trimmed_row_count": 0,
        "barrier_timestamp": Uint64(barrier),
    }


async def get_tablet_errors(call: YtCall) -> Value:
    """Return no errors. A node tries a failed flush or compaction again, and its statistics have
    the last failure."""
    path = call.parameters.table()
    call.principal.check("read", path)
    await call.client.get_table(path)
    return Value({"tablet_errors": {}, "replication_errors": {}})


def _path(call: YtCall) -> str:
    path = call.parameters.table()
    call.principal.check("admin", path)
    return path


def _range(call: YtCall) -> tuple[int | None, int | None]:
    parameters = call.parameters
    return parameters.number("first_tablet_index"), parameters.number("last_tablet_index")


async def _begin(call: YtCall, request: TableLifeRequest) -> None:
    await call.run(call.catalog.begin_change(request))


COMMANDS: Final = (
    command(mount_table, "admin", is_volatile=True),
    command(unmount_table, "admin", is_volatile=True),
    command(freeze_table, "admin", is_volatile=True),
    command(unfreeze_table, "admin", is_volatile=True),
    command(remount_table, "admin", is_volatile=True),
    command(reshard_table, "admin", is_volatile=True),
    command(alter_table, "admin", is_volatile=True),
    command(get_tablet_infos, "read", is_volatile=True),
    command(get_tablet_errors, "read"),
)
