"""The nodes of the tree in layers: what everybody sees, and what each open transaction changed of
it. Pure.

Owns: how layers are read through, and how one is laid over another. The bottom layer has whole
nodes; a transaction's layer has, for each node that it changed, where the node is now and which
attributes it set or removed. A transaction reads its own layer, its parents' and the bottom, in
this order. A snapshot ends that search: the node is as it was then.

Invariants:
- A directory's children are in the same layer as the change that put or removed them there.
- Who changed a node holds a lock on it, so that where it is does not change below that layer.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from dodona_oracle.core.paths import below
from dodona_oracle.core.records import StoredNode, StoredSnapshot, StoredTable

ROOT: Final = 0
ROOT_NODE: Final = StoredNode(ROOT, ROOT, "", "directory", 0, 0)


class Layer:
    """One transaction's changes, or the nodes that everybody sees."""

    __slots__ = ("children", "nodes", "snapshots")

    def __init__(self) -> None:
        self.nodes: dict[int, StoredNode] = {}
        # Directory → name → node; None where the name is gone, in a transaction's layer.
        self.children: dict[int, dict[str, int | None]] = {}
        self.snapshots: dict[int, StoredSnapshot] = {}

    def enter(self, node: StoredNode) -> None:
        """The node is where it says."""
        self.children.setdefault(node.parent, {})[node.name] = node.node

    def leave(self, node: StoredNode, *, is_bottom: bool) -> None:
        """The node is not there any more."""
        if not is_bottom:
            self.children.setdefault(node.parent, {})[node.name] = None
            return
        names = self.children[node.parent]
        if names.get(node.name) == node.node:
            del names[node.name]
            if not names:
                del self.children[node.parent]


class Below(NamedTuple):
    """A node in a directory's subtree, and its path from there."""

    node: StoredNode
    path: str


class View:
    """The tree as one transaction sees it: `layers` from its own to the bottom."""

    def __init__(self, layers: Sequence[Layer], tables: dict[int, StoredTable]) -> None:
        self._layers = layers
        self._tables = tables
        self._has_snapshots = any(layer.snapshots for layer in layers)

    def node(self, node_id: int) -> StoredNode | None:
        """The node as it is here, or None if it is not."""
        found: list[StoredNode] = []
        for layer in self._layers:
            snapshot = layer.snapshots.get(node_id)
            if snapshot is not None:
                found.append(snapshot.node)
                break
            node = layer.nodes.get(node_id)
            if node is not None:
                found.append(node)
        if not found or found[0].is_removed:
            return None
        merged = found.pop()
        while found:
            merged = merge(merged, found.pop())
        return merged

    def table(self, node_id: int) -> StoredTable | None:
        """The table of a node, as it was stored: settings that a transaction changed are in the
        attributes of the node."""
        for layer in self._layers:
            snapshot = layer.snapshots.get(node_id)
            node = layer.nodes.get(node_id) if snapshot is None else snapshot.node
            if node is not None and node.table is not None:
                return node.table
        return self._tables.get(node_id)

    def child(self, directory: int, name: str) -> int | None:
        """The id of the node that has this name there."""
        for layer in self._layers:
            snapshot = layer.snapshots.get(directory)
            if snapshot is not None:
                return snapshot.children.get(name)
            names = layer.children.get(directory)
            if names is not None and name in names:
                return names[name]
        return None

    def children(self, directory: int) -> dict[str, int]:
        """The ids of all that is in a directory, by name, sorted."""
        merged: dict[str, int | None] = {}
        for layer in self._layers:
            snapshot = layer.snapshots.get(directory)
            names = layer.children.get(directory, {}) if snapshot is None else snapshot.children
            merged = {**names, **merged}
            if snapshot is not None:
                break
        return {name: node for name, node in sorted(merged.items()) if node is not None}

    def find(self, names: Sequence[str]) -> StoredNode | None:
        """The node at the path of these names."""
        node: int | None = ROOT
        path = "/"
        for name in names:
            path = below(path, name)
            node = self.child_at(node, name, path)
        return None if node is None else self.node(node)

    def child_at(self, directory: int | None, name: str, path: str) -> int | None:
        """As `child`, where `path` is the child's: what was there when it was locked is there
        still, for whoever has the snapshot, even if the directory is not."""
        locked = self._node_in_snapshot(path)
        if locked is not None or directory is None:
            return locked
        return self.child(directory, name)

    def _node_in_snapshot(self, path: str) -> int | None:
        """The node that was at this path when it was locked, whatever came of it since."""
        if self._has_snapshots:
            for layer in self._layers:
                for node_id, snapshot in layer.snapshots.items():
                    if snapshot.path == path:
                        return node_id
        return None

    def walk(self, top: StoredNode) -> Iterator[Below]:
        """The node and all below it, each before what is in it."""
        waiting = [Below(top, "")]
        while waiting:
            found = waiting.pop()
            yield found
            for name, node_id in reversed(self.children(found.node.node).items()):
                node = self.node(node_id)
                if node is None:
                    continue  # a snapshot may name what is gone since
                if (node.parent, node.name) != (found.node.node, name):  # or was elsewhere then
                    node = replace(node, parent=found.node.node, name=name)
                waiting.append(Below(node, f"{found.path}/{name}"))


def merge(lower: StoredNode, upper: StoredNode) -> StoredNode:
    """The node with the changes of the layer above it."""
    attributes = {
        name: value
        for name, value in (lower.attributes | upper.attributes).items()
        if name not in upper.attributes_removed
    }
    removed = dict.fromkeys((*lower.attributes_removed, *upper.attributes_removed))
    return replace(
        upper,
        modified_us=max(lower.modified_us, upper.modified_us),
        attributes=attributes,
        attributes_removed=tuple(sorted(name for name in removed if name not in attributes)),
        table=lower.table if upper.table is None else upper.table,
    )


def unchanged(node: StoredNode) -> StoredNode:
    """What a transaction knows of a node that it has not changed yet."""
    return replace(node, attributes={}, attributes_removed=(), table=None)


def restore_children(layer: Layer, outer: View | None) -> None:
    """Find the children of a layer whose nodes were read from the store; `outer` is what is below
    it, None for the bottom."""
    moved: list[StoredNode] = []
    for node in layer.nodes.values():
        was = None if outer is None else outer.node(node.node)
        is_there = was is not None and (was.parent, was.name) == (node.parent, node.name)
        if was is not None and (node.is_removed or not is_there):
            layer.leave(was, is_bottom=False)
        if not node.is_removed and not is_there and node.node != ROOT:
            moved.append(node)
    for node in moved:
        layer.enter(node)


def tables_below(view: View, tops: Iterable[StoredNode]) -> Iterator[Below]:
    """Every table in these subtrees, with its path from the subtree's top."""
    for top in tops:
        for found in view.walk(top):
            if found.node.kind == "table":
                yield found
