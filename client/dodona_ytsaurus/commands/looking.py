"""Look at the tree ("Cypress"), in YTsaurus's commands.

Owns: `get`, `list` and `exists`, for nodes, for attributes under YTsaurus's names
(`terms.schemas`), and for parts of an attribute's value. In a master transaction they see
its changes. Objects that are no nodes of Dodona, such as cells and transactions, are in `objects`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dodona._core.catalog.tree import TreeSession
from dodona_wire.errors import InvalidRequest, NodeNotFound
from dodona_ytsaurus.commands.commands import Value, YtCall, command
from dodona_ytsaurus.commands.objects import find_object, is_object
from dodona_ytsaurus.commands.transactions import tree_seen
from dodona_ytsaurus.terms.inside import MISSING, inside
from dodona_ytsaurus.terms.parameters import YtPath
from dodona_ytsaurus.terms.refusals import refuse_statistics
from dodona_ytsaurus.terms.schemas import yt_attributes
from dodona_ytsaurus.yson import Attributed

NODES_WITH_ATTRIBUTES_MAX: Final = 1_000
"""The number of nodes whose attributes one answer may ask the master for."""
AT_A_TIME: Final = 16
ROW_COUNT: Final = "row_count"
CLIENT_CONFIG: Final = "//sys/client_config"
"""Every client asks for this path, even if its token does not allow that. The client works without
it."""


async def exists(call: YtCall) -> Value:
    path = call.parameters.path()
    if is_object(path):
        return Value({"value": await find_object(call, path) is not MISSING})
    call.principal.check("read", path.node)
    tree = tree_seen(call)
    if not path.attribute:
        return Value({"value": await call.run(tree.exists(path.node))})
    try:
        return Value({"value": await _attribute(call, tree, path) is not MISSING})
    except NodeNotFound:
        return Value({"value": False})


async def get(call: YtCall) -> Value:
    path = call.parameters.path()
    return _answer(call, await _get(call, path))


def _answer(call: YtCall, value: Any) -> Value:
    return Value(value if call.parameters.flag("return_only_value") else {"value": value})


async def _get(call: YtCall, path: YtPath) -> Any:
    if is_object(path):
        value = await find_object(call, path)
    elif path.node == CLIENT_CONFIG and not call.principal.allows("read", path.node):
        value = MISSING
    else:
        call.principal.check("read", path.node)
        refuse_statistics(call.parameters.texts("attributes") or ())
        tree = tree_seen(call)
        if path.attribute is None:
            return await _node(call, tree, path.node)
        if path.attribute == ROW_COUNT and not path.inside:
            return await _row_count(call, path.node)
        value = await _attribute(call, tree, path)
    if value is MISSING:
        raise NodeNotFound(f"Attribute or node {path.text} is not found", path=path.text)
    return value


async def _node(call: YtCall, tree: TreeSession, path: str) -> Any:
    """Return a table as an entity, and a directory as nested maps, with the attributes that the
    caller asked for."""
    run, shown = call.run, None
    if await run(tree.get(_attributes_path(path) + "type")) != "table":
        call.principal.check("read", path, subtree=True)
        shown = await run(tree.get(path))
    names = call.parameters.texts("attributes")
    if not names:
        return shown
    paths = list(_paths(path, shown))
    return _with_attributes(path, shown, await _chosen(call, tree, paths, names))


async def _row_count(call: YtCall, path: str) -> int:
    """Return the exact number of rows of a table. Dodona keeps no such number, so this reads and
    counts the rows now."""
    table = await call.client.get_table(path)
    key = table.schema.key_names[0]
    count = 0
    async with call.client.hold_snapshot([path]) as snapshot:
        async for batch in snapshot.read_batches(path, columns=[key]):
            count += batch.num_rows
    return count


def _paths(path: str, shown: Any) -> Sequence[str]:
    if not isinstance(shown, dict):
        return [path]
    inner = [it for name, child in shown.items() for it in _paths(_child(path, name), child)]
    return [path, *inner]


def _child(path: str, name: str) -> str:
    return f"{path.removesuffix('/') or '/'}/{name}"


def _attributes_path(path: str) -> str:
    return _child(path, "@")


def _with_attributes(path: str, shown: Any, chosen: Mapping[str, dict[str, Any]]) -> Any:
    if isinstance(shown, dict):
        shown = {
            name: _with_attributes(_child(path, name), it, chosen) for name, it in shown.items()
        }
    return Attributed(shown, chosen[path]) if chosen[path] else shown


async def list_(call: YtCall) -> Value:
    path, parameters = call.parameters.path(), call.parameters
    names = await _names(call, path)
    count_max = parameters.number("max_size")
    is_whole = count_max is None or len(names) <= max(0, count_max)
    names = names if is_whole else names[: max(0, count_max or 0)]
    wanted = parameters.texts("attributes")
    refuse_statistics(wanted or ())
    if wanted and path.attribute is None and not is_object(path):
        names = await _names_with_attributes(call, path.node, names, wanted)
    return _answer(call, names if is_whole else Attributed(names, {"incomplete": True}))


async def _names_with_attributes(
    call: YtCall, node: str, names: list[str], wanted: Sequence[str]
) -> list[Any]:
    """Return the names with attributes. A child that the caller may not read has its name only."""
    paths = {name: _child(node, name) for name in names}
    readable = [it for it in paths.values() if call.principal.allows("read", it)]
    chosen = await _chosen(call, tree_seen(call), readable, wanted)
    return [Attributed(it, found) if (found := chosen.get(paths[it])) else it for it in names]


async def _names(call: YtCall, path: YtPath) -> list[Any]:
    if is_object(path) or path.attribute is not None:
        value = await _get(call, path)
        if not isinstance(value, dict | list):
            raise InvalidRequest(
                "Only maps and lists can be listed. Read this value with get.", path=path.text
            )
        return list(value)
    call.principal.check("read", path.node)
    return list(await call.run(tree_seen(call).list(path.node)))


async def _chosen(
    call: YtCall, tree: TreeSession, paths: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return, by path, the wanted attributes that each node has. A node that was removed meanwhile
    has none."""
    if len(paths) > NODES_WITH_ATTRIBUTES_MAX:
        text = (
            f"One command shows the attributes of at most {NODES_WITH_ATTRIBUTES_MAX} nodes. "
            "Ask for fewer nodes."
        )
        raise InvalidRequest(text, count=len(paths))
    slots = asyncio.Semaphore(AT_A_TIME)

    async def ask(path: str) -> dict[str, Any]:
        async with slots:
            try:
                known = yt_attributes(await call.run(tree.get(_attributes_path(path))))
            except NodeNotFound:
                return {}
        return {name: known[name] for name in names if name in known}

    found = await asyncio.gather(*map(ask, paths))
    return dict(zip(paths, found, strict=True))


async def _attribute(call: YtCall, tree: TreeSession, path: YtPath) -> Any:
    """Return an attribute, all attributes, or a part of an attribute's value."""
    shown = yt_attributes(await call.run(tree.get(_attributes_path(path.node))))
    value: Any = shown.get(path.attribute, MISSING) if path.attribute else shown
    for name in path.inside:
        value = inside(value, name)
    return value


COMMANDS: Final = (
    command(exists, "read"),
    command(get, "read"),
    command(list_, "read"),
)
