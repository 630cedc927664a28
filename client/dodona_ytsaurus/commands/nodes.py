"""Change the tree ("Cypress"), in YTsaurus's commands.

Owns: these commands: create, remove, copy and move nodes, set attributes and parts of their values,
lock nodes. Nodes are directories (`map_node` in YTsaurus) and dynamic tables. A change in several
steps is done as a whole or not at all: in a master transaction. If the command is in a master
transaction already, this one is nested.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from dodona._core.catalog.tree import MasterTransactionSession, TreeSession
from dodona_wire.errors import InvalidRequest, NodeExists, NodeNotFound
from dodona_wire.messages.attribute_names import warnings_about
from dodona_wire.rows.schema import TableSchema
from dodona_ytsaurus.commands.commands import Value, YtCall, command
from dodona_ytsaurus.commands.master_transactions import note_lock
from dodona_ytsaurus.commands.transactions import owned_master, transaction_of, tree_changed
from dodona_ytsaurus.terms.inside import MISSING, inside, put
from dodona_ytsaurus.terms.parameters import YtPath, plain
from dodona_ytsaurus.terms.schemas import (
    LOCK_KIND,
    MOUNT_CONFIG,
    check_settable,
    check_setting,
    columns_of,
    object_id,
    own_attributes,
    pivot_keys_of,
    plain_key,
    stored,
    yt_attributes,
)
from dodona_ytsaurus.terms.stored_rows import given_key


@asynccontextmanager
async def _as_a_whole(
    call: YtCall, tree: TreeSession, title: str
) -> AsyncIterator[MasterTransactionSession]:
    """Yield the tree under a master transaction, which commits at the end of the block."""
    run = call.run
    begun = await run(tree.begin(title=title))
    has_failed = True
    try:
        yield begun
        has_failed = False
    finally:
        await run(begun.leave(has_failed))


async def _attributes(call: YtCall, tree: TreeSession, path: str) -> dict[str, Any]:
    return yt_attributes(await call.run(tree.get(_attribute_path(path))))


def _attribute_path(path: str) -> str:
    return f"{path.removesuffix('/')}/@" if path != "/" else "//@"


# ---- making


class _NewNode(NamedTuple):
    """A node to create."""

    kind: str
    path: str
    is_recursive: bool
    attributes: dict[str, Any]


async def create(call: YtCall) -> Value:
    parameters = call.parameters
    kind = parameters.text("type")
    if kind not in ("table", "map_node"):
        text = (
            f"Dodona has dynamic tables and map_nodes only, not {kind[:40]}. "
            "Use type table or map_node."
        )
        raise InvalidRequest(text, type=kind[:40])
    tree = tree_changed(call)
    path = parameters.table()
    is_forced = parameters.flag("force")
    call.principal.check("admin", path, subtree=is_forced)
    new = _NewNode(kind, path, parameters.flag("recursive"), parameters.map("attributes"))
    if is_forced:
        async with _as_a_whole(call, tree, "create with force") as whole:
            await call.run(whole.remove(path, True, True))
            return Value({"node_id": await _make(call, whole, new)})
    return Value({"node_id": await _make_or_find(call, tree, new)})


async def _make_or_find(call: YtCall, tree: TreeSession, new: _NewNode) -> str:
    found = await _existing(call, tree, new)
    if found is not None:
        return found
    try:
        return await _make(call, tree, new)
    except NodeExists:  # another caller was faster
        found = await _existing(call, tree, new)
        if found is None:
            raise
        return found


async def _existing(call: YtCall, tree: TreeSession, new: _NewNode) -> str | None:
    """Return the id of the node that exists, if that is no error."""
    parameters = call.parameters
    if not await call.run(tree.exists(new.path)):
        return None
    shown = await _attributes(call, tree, new.path)
    is_alike = shown["type"] == new.kind or parameters.flag("ignore_type_mismatch")
    if parameters.flag("ignore_existing") and is_alike:
        return str(shown["id"])
    raise NodeExists(f"Node {new.path} already exists", path=new.path, type=shown["type"])


async def _make(call: YtCall, tree: TreeSession, new: _NewNode) -> str:
    await _check_parent(call, tree, new)
    call.warnings += warnings_about(it for it in new.attributes if it != MOUNT_CONFIG)
    if new.kind == "table":
        await _create_table(call, tree, new)
    else:
        own = own_attributes(new.attributes, new.kind)
        await call.run(tree.create_directory(new.path, own, True, False))
    return str((await _attributes(call, tree, new.path))["id"])


async def _check_parent(call: YtCall, tree: TreeSession, new: _NewNode) -> None:
    parent = new.path.rpartition("/")[0]
    if new.is_recursive or parent in ("", "/"):
        return
    if not await call.run(tree.exists(parent)):
        raise NodeNotFound(
            f"Node {parent} does not exist. Create it first, or set recursive.", path=parent
        )


async def _create_table(call: YtCall, tree: TreeSession, new: _NewNode) -> None:
    attributes = new.attributes
    if plain(attributes.get("dynamic")) is not True or "schema" not in attributes:
        text = (
            "A table in Dodona is dynamic and has a schema. "
            "Set the attributes dynamic=%true; schema=..."
        )
        raise InvalidRequest(text, path=new.path)
    pivots = plain(attributes.get("pivot_keys"))
    schema = TableSchema.parse(columns_of(attributes["schema"]))
    keys = None if pivots is None else [given_key(schema, it) for it in pivot_keys_of(pivots)]
    create_table = tree.create_table(
        new.path,
        schema,
        plain(attributes.get("atomicity")) or "full",
        keys,
        plain_key(plain(attributes.get("tablet_count"))),
        False,
        own_attributes(attributes, new.kind),
    )
    await call.run(create_table)


# ---- removing, copying, moving


async def remove(call: YtCall) -> None:
    parameters, tree = call.parameters, tree_changed(call)
    path = parameters.path()
    is_recursive, is_forced = parameters.flag("recursive"), parameters.flag("force")
    call.principal.check("admin", path.node, subtree=path.attribute is None and is_recursive)
    if path.inside:
        await _change_inside(call, tree, path, MISSING)
        return
    await call.run(tree.remove(path.text, is_recursive, is_forced))


async def copy(call: YtCall) -> Value:
    return await _to_destination(call, is_moved=False)


async def move(call: YtCall) -> Value:
    return await _to_destination(call, is_moved=True)


async def _to_destination(call: YtCall, *, is_moved: bool) -> Value:
    parameters, tree = call.parameters, tree_changed(call)
    source, destination = parameters.table("source_path"), parameters.table("destination_path")
    call.principal.check("admin" if is_moved else "read", source, subtree=True)
    call.principal.check("admin", destination, subtree=True)
    run, is_recursive = call.run, parameters.flag("recursive")
    is_enough = not is_moved and parameters.flag("ignore_existing")
    if is_enough and await run(tree.exists(destination)):
        return Value({"node_id": (await _attributes(call, tree, destination))["id"]})
    if not parameters.flag("force"):
        act = tree.move if is_moved else tree.copy
        await run(act(source, destination, is_recursive))
        return Value({"node_id": (await _attributes(call, tree, destination))["id"]})
    async with _as_a_whole(call, tree, "copy or move with force") as whole:
        await run(whole.remove(destination, True, True))
        act = whole.move if is_moved else whole.copy
        await run(act(source, destination, is_recursive))
        return Value({"node_id": (await _attributes(call, whole, destination))["id"]})


# ---- attributes


async def set_(call: YtCall) -> None:
    path, tree = call.parameters.path(), tree_changed(call)
    call.principal.check("admin", path.node)
    value = stored(await call.read_value())
    if path.attribute is None:
        raise InvalidRequest(
            "Only attributes can be set. Use a path such as //name/@attribute.", path=path.text
        )
    if path.attribute == MOUNT_CONFIG and len(path.inside) == 1:
        check_setting(path.inside[0])
        path = YtPath(path.node, path.inside[0])
    assert path.attribute is not None
    check_settable(path.attribute)
    call.warnings += warnings_about([path.attribute])
    if path.inside:
        await _change_inside(call, tree, path, value)
    else:
        await call.run(tree.set(path.text, value))


async def _change_inside(call: YtCall, tree: TreeSession, path: YtPath, value: Any) -> None:
    """Set or remove a part of an attribute's value. A lock keeps other callers from changing the
    attribute meanwhile."""
    run = call.run
    async with _as_a_whole(call, tree, "change a part of an attribute") as whole:
        await run(whole.lock(path.node, "shared", None, path.attribute))
        changed = await run(whole.get(path.text))
        *outer, last = path.inside
        target = changed
        for name in outer:
            target = inside(target, name)
        if not put(target, last, value):
            way = "/".join(path.inside)
            raise NodeNotFound(f"Attribute {path.text} has no {way[:200]}.", path=path.text)
        await run(whole.set(path.text, changed))


# ---- locks


async def lock(call: YtCall) -> Value:
    tree, path = tree_changed(call), call.parameters.table()
    call.principal.check("admin", path)
    text = transaction_of(call)
    if text is None or not isinstance(tree, MasterTransactionSession):
        raise InvalidRequest(
            "A lock on a node needs a master transaction. Start one first.", path=path
        )
    parameters = call.parameters
    mode: Any = parameters.text("mode", "exclusive")
    child = parameters.optional_text("child_key")
    attribute = parameters.optional_text("attribute_key")
    node = await call.run(tree.lock(path, mode, child, attribute))
    lock_id = object_id(node, LOCK_KIND)
    note_lock(owned_master(call, text), lock_id)
    return Value({"lock_id": lock_id, "node_id": (await _attributes(call, tree, path))["id"]})


COMMANDS: Final = (
    command(create, "admin", is_volatile=True),
    command(remove, "admin", is_volatile=True),
    command(copy, "admin", is_volatile=True),
    command(move, "admin", is_volatile=True),
    command(set_, "admin", takes="structured", is_volatile=True),
    command(lock, "admin", is_volatile=True),
)
