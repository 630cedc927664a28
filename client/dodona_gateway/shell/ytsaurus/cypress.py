"""The tree ("Cypress"), in YTsaurus's commands.

Owns: what these commands do. Nodes are directories (`map_node` there) and dynamic tables. Under a
master transaction commands see and change what it does. Attributes are shown in YTsaurus's words
(`core.ytsaurus.schemas`), and what is inside one's value has a path of its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dodona._core.tree import MasterTransactionSession, TreeSession
from dodona.errors import InvalidRequest, NodeExists, NodeNotFound
from dodona_gateway.core.yson import Attributed
from dodona_gateway.core.ytsaurus.parameters import YtPath, plain
from dodona_gateway.core.ytsaurus.schemas import (
    CELL_KIND,
    MAP_NODE_KIND,
    TABLE_KIND,
    columns_of,
    object_id,
    own_attributes,
    stored,
    yt_attributes,
)
from dodona_gateway.shell.ytsaurus.commands import YtCall, command
from dodona_gateway.shell.ytsaurus.tablets import plain_key
from dodona_gateway.shell.ytsaurus.transactions import tree_of

CELLS: Final = "//sys/tablet_cells"
NODES_WITH_ATTRIBUTES_MAX: Final = 1_000
"""One answer asks the master for the attributes of so many nodes at most."""
AT_A_TIME: Final = 16
_MISSING: Final = object()


# ---- making and removing


async def create(call: YtCall) -> Any:
    kind = call.parameters.text("type")
    if kind not in ("table", "map_node"):
        raise InvalidRequest(
            f"nodes are tables (of type table, dynamic) and map_nodes here, not {kind}", type=kind
        )
    path, tree = call.parameters.table(), tree_of(call)
    call.principal.check("admin", path)
    found = await _existing(call, tree, path, kind)
    if found is not None:
        return {"node_id": found}
    await _check_parent(call, tree, path)
    if kind == "table":
        await _create_table(call, tree, path)
    else:
        own = {name: stored(it) for name, it in call.parameters.map("attributes").items()}
        await call.client._run(tree.create_directory(path, own, True, False))
    number = await call.client._run(tree.get(f"{path}/@id"))
    return {"node_id": object_id(number, TABLE_KIND if kind == "table" else MAP_NODE_KIND)}


async def _existing(call: YtCall, tree: TreeSession, path: str, kind: str) -> str | None:
    """The id of what is there, if that is no error; removed, if that was asked for."""
    parameters = call.parameters
    if not await call.client._run(tree.exists(path)):
        return None
    if parameters.flag("force"):
        await call.client._run(tree.remove(path, True, True))
        return None
    shown = yt_attributes(await call.client._run(tree.get(f"{path}/@")))
    is_alike = shown["type"] == kind or parameters.flag("ignore_type_mismatch")
    if parameters.flag("ignore_existing") and is_alike:
        return str(shown["id"])
    raise NodeExists(f"Node {path} already exists", path=path, type=shown["type"])


async def _check_parent(call: YtCall, tree: TreeSession, path: str) -> None:
    parent = path.rpartition("/")[0]
    if call.parameters.flag("recursive") or parent in ("", "/"):
        return
    if not await call.client._run(tree.exists(parent)):
        raise NodeNotFound(f"Node {parent} has no child: it is not there", path=parent)


async def _create_table(call: YtCall, tree: TreeSession, path: str) -> None:
    attributes = call.parameters.map("attributes")
    if plain(attributes.get("dynamic")) is not True or "schema" not in attributes:
        text = "tables are dynamic and have a schema here: attributes are dynamic=%true; schema=..."
        raise InvalidRequest(text, path=path)
    pivots = plain(attributes.get("pivot_keys"))
    keys = None if pivots is None else [[plain_key(it) for it in plain(key)] for key in pivots]
    create_table = tree.create_table(
        path,
        columns_of(attributes["schema"]),
        plain(attributes.get("atomicity")) or "full",
        keys,
        plain_key(plain(attributes.get("tablet_count"))),
        False,
        own_attributes(attributes),
    )
    await call.client._run(create_table)


async def remove(call: YtCall) -> None:
    parameters, tree = call.parameters, tree_of(call)
    path = parameters.path()
    is_recursive, is_forced = parameters.flag("recursive"), parameters.flag("force")
    call.principal.check("admin", path.node, subtree=path.attribute is None and is_recursive)
    if path.inside:
        await _change_inside(call, tree, path, _MISSING)
        return
    await call.client._run(tree.remove(path.text, is_recursive, is_forced))


async def copy(call: YtCall) -> Any:
    return await _to_destination(call, is_moved=False)


async def move(call: YtCall) -> Any:
    return await _to_destination(call, is_moved=True)


async def _to_destination(call: YtCall, *, is_moved: bool) -> Any:
    parameters, tree = call.parameters, tree_of(call)
    source, destination = parameters.table("source_path"), parameters.table("destination_path")
    call.principal.check("admin" if is_moved else "read", source, subtree=True)
    call.principal.check("admin", destination, subtree=True)
    if parameters.flag("force"):
        await call.client._run(tree.remove(destination, True, True))
    is_recursive = parameters.flag("recursive")
    act = tree.move if is_moved else tree.copy
    await call.client._run(act(source, destination, is_recursive))
    shown = yt_attributes(await call.client._run(tree.get(f"{destination}/@")))
    return {"node_id": shown["id"]}


# ---- looking


async def exists(call: YtCall) -> Any:
    path, tree = call.parameters.path(), tree_of(call)
    call.principal.check("read", path.node)
    if _is_virtual(path):
        return {"value": await _virtual(call, path) is not _MISSING}
    if not path.attribute:
        return {"value": await call.client._run(tree.exists(path.node))}
    try:
        return {"value": await _attribute(call, tree, path) is not _MISSING}
    except NodeNotFound:
        return {"value": False}


async def get(call: YtCall) -> Any:
    path, tree = call.parameters.path(), tree_of(call)
    call.principal.check("read", path.node, subtree=path.attribute is None)
    value = await _get(call, tree, path)
    return value if call.parameters.flag("return_only_value") else {"value": value}


async def _get(call: YtCall, tree: TreeSession, path: YtPath) -> Any:
    if _is_virtual(path):
        value = await _virtual(call, path)
    elif path.attribute is not None:
        value = await _attribute(call, tree, path)
    else:
        return await _node(call, tree, path.node)
    if value is _MISSING:
        raise NodeNotFound(f"Attribute or node {path.text} is not found", path=path.text)
    return value


async def _node(call: YtCall, tree: TreeSession, path: str) -> Any:
    """A table is an entity, a directory nested maps; with attributes if they were asked for."""
    kind = await call.client._run(tree.get(f"{path}/@type"))
    shown = None if kind == "table" else await call.client._run(tree.get(path))
    names = call.parameters.texts("attributes")
    if not names:
        return shown
    paths = list(_paths(path, shown))
    if len(paths) > NODES_WITH_ATTRIBUTES_MAX:
        text = (
            f"attributes are shown of {NODES_WITH_ATTRIBUTES_MAX} nodes at most: list directories"
        )
        raise InvalidRequest(text, path=path)
    return _with_attributes(path, shown, await _chosen(call, tree, paths, names))


def _paths(path: str, shown: Any) -> Sequence[str]:
    if not isinstance(shown, dict):
        return [path]
    inner = [it for name, child in shown.items() for it in _paths(f"{path}/{name}", child)]
    return [path, *inner]


def _with_attributes(path: str, shown: Any, chosen: Mapping[str, dict[str, Any]]) -> Any:
    if isinstance(shown, dict):
        shown = {name: _with_attributes(f"{path}/{name}", it, chosen) for name, it in shown.items()}
    return Attributed(shown, chosen[path]) if chosen[path] else shown


async def list_(call: YtCall) -> Any:
    path, tree = call.parameters.path(), tree_of(call)
    call.principal.check("read", path.node)
    names = await _names(call, tree, path)
    wanted = call.parameters.texts("attributes")
    if wanted and path.attribute is None and not _is_virtual(path):
        paths = {name: f"{path.node.removesuffix('/')}/{name}" for name in names}
        paths = {name: it if it.startswith("//") else f"/{it}" for name, it in paths.items()}
        chosen = await _chosen(call, tree, list(paths.values()), wanted)
        names = [Attributed(it, chosen[at]) if chosen[at := paths[it]] else it for it in names]
    return names if call.parameters.flag("return_only_value") else {"value": names}


async def _names(call: YtCall, tree: TreeSession, path: YtPath) -> list[Any]:
    if _is_virtual(path) or path.attribute is not None:
        value = await _get(call, tree, path)
        if not isinstance(value, dict | list):
            raise InvalidRequest("only maps and lists are listed", path=path.text)
        return list(value)
    return list(await call.client._run(tree.list(path.node)))


async def _chosen(
    call: YtCall, tree: TreeSession, paths: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """By path, those of the attributes that the node has."""
    slots = asyncio.Semaphore(AT_A_TIME)

    async def ask(path: str) -> dict[str, Any]:
        async with slots:
            known = yt_attributes(await call.client._run(tree.get(f"{path}/@")))
        return {name: known[name] for name in names if name in known}

    found = await asyncio.gather(*map(ask, paths))
    return dict(zip(paths, found, strict=True))


# ---- attributes


async def _attribute(call: YtCall, tree: TreeSession, path: YtPath) -> Any:
    """An attribute, all of them, or what is inside one's value."""
    shown = yt_attributes(await call.client._run(tree.get(f"{path.node}/@")))
    value: Any = shown.get(path.attribute, _MISSING) if path.attribute else shown
    for name in path.inside:
        value = _inside(value, name)
    return value


def _inside(value: Any, name: str) -> Any:
    if isinstance(value, Attributed):
        if name.startswith("@"):
            return value.attributes.get(name[1:], value.attributes if name == "@" else _MISSING)
        value = value.value
    if isinstance(value, dict):
        return value.get(name, _MISSING)
    if isinstance(value, list):
        try:
            return value[int(name)]
        except (ValueError, IndexError):
            return _MISSING
    return _MISSING


async def set_(call: YtCall) -> None:
    path, tree = call.parameters.path(), tree_of(call)
    call.principal.check("admin", path.node)
    value = stored(plain(await call.read_value()))
    if path.attribute is None:
        raise InvalidRequest("only attributes are set: //name/@attribute", path=path.text)
    if path.inside:
        await _change_inside(call, tree, path, value)
    else:
        await call.client._run(tree.set(path.text, value))


async def _change_inside(call: YtCall, tree: TreeSession, path: YtPath, value: Any) -> None:
    """Set, or remove, what is inside an attribute's value: in a master transaction, so that nobody
    else changes the rest meanwhile."""
    run = call.client._run
    begun = await run(tree.begin(title="an attribute is changed inside"))
    has_failed = True
    try:
        await run(begun.lock(path.node, "shared", None, path.attribute))
        whole = await run(begun.get(path.text))
        *outer, last = path.inside
        target = whole
        for name in outer:
            target = _inside(target, name)
        _put(target, last, value, path)
        await run(begun.set(path.text, whole))
        has_failed = False
    finally:
        await run(begun.leave(has_failed))


def _put(target: Any, name: str, value: Any, path: YtPath) -> None:
    if not isinstance(target, dict) or (value is _MISSING and name not in target):
        inside = "/".join(path.inside)
        raise NodeNotFound(f"Attribute {path.text} has no {inside}", path=path.text)
    if value is _MISSING:
        del target[name]
    else:
        target[name] = value


# ---- locks


async def lock(call: YtCall) -> Any:
    tree, path = tree_of(call), call.parameters.table()
    call.principal.check("admin", path)
    if not isinstance(tree, MasterTransactionSession):
        raise InvalidRequest("nodes are locked in a master transaction", path=path)
    parameters = call.parameters
    mode: Any = parameters.text("mode", "exclusive")
    child, attribute = (
        parameters.optional_text("child_key"),
        parameters.optional_text("attribute_key"),
    )
    node = await call.client._run(tree.lock(path, mode, child, attribute))
    shown = yt_attributes(await call.client._run(tree.get(f"{path}/@")))
    return {"lock_id": object_id(node, 200), "node_id": shown["id"]}


# ---- what is there in YTsaurus only


def _is_virtual(path: YtPath) -> bool:
    return path.node == CELLS or path.node.startswith(CELLS + "/")


async def _virtual(call: YtCall, path: YtPath) -> Any:
    """Cells, as YTsaurus shows them in its tree."""
    cluster = await call.client.get_cluster()
    cells = {
        object_id(it.cell, CELL_KIND): {
            "id": object_id(it.cell, CELL_KIND),
            "type": "tablet_cell",
            "health": "good" if it.is_alive else "failed",
            "tablet_count": it.tablet_count,
            "peers": [{"address": it.address, "state": "leading" if it.is_alive else "none"}],
        }
        for it in cluster.cells
    }
    if path.node == CELLS:
        whole: Any = {"count": len(cells), "type": "tablet_cell_map"}
        return dict.fromkeys(cells) if path.attribute is None else _of_virtual(whole, path)
    cell = cells.get(path.node.removeprefix(CELLS + "/"))
    if cell is None:
        return _MISSING
    return None if path.attribute is None else _of_virtual(cell, path)


def _of_virtual(attributes: dict[str, Any], path: YtPath) -> Any:
    value: Any = attributes.get(path.attribute, _MISSING) if path.attribute else attributes
    for name in path.inside:
        value = _inside(value, name)
    return value


COMMANDS: Final = (
    command(create, "admin", is_volatile=True),
    command(remove, "admin", is_volatile=True),
    command(copy, "admin", is_volatile=True),
    command(move, "admin", is_volatile=True),
    command(exists, "read"),
    command(get, "read"),
    command(list_, "read"),
    command(set_, "admin", takes="structured", is_volatile=True),
    command(lock, "admin", is_volatile=True),
)
