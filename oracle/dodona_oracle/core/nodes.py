"""The nodes of the tree in layers: the committed tree, and the changes of each open transaction.
Pure.

Owns: how to read through layers, and how to put one layer on top of another. The bottom layer has
whole nodes: the committed tree that all clients see. A transaction's layer has an entry for each
node that the transaction changed. It says where the node is now, and which attributes were set or
removed. A transaction reads its own layer, then those of its parents, then the bottom. A snapshot
ends that search: the node is as it was when the snapshot was taken.

Invariants:
- The name of a child is in the same layer as the change that added or removed the child.
- A transaction that changed a node holds a lock on it. So the place of the node does not change in
  the layers below.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from dodona_oracle.core.paths import below
from dodona_oracle.core.records import StoredNode, StoredSnapshot, StoredTable

ROOT: Final = 0
ROOT_NODE: Final = StoredNode(ROOT, ROOT, "", "directory", 0, 0)


class Layer:
    """The changes of one transaction, or the committed nodes."""

    __slots__ = ("children", "nodes", "snapshots")

    def __init__(self) -> None:
        self.nodes: dict[int, StoredNode] = {}
        # Directory → name → node. None in a transaction's layer: the name is gone.
        self.children: dict[int, dict[str, int | None]] = {}
        self.snapshots: dict[int, StoredSnapshot] = {}

    def enter(self, node: StoredNode) -> None:
        """Add the node to its directory."""
        self.children.setdefault(node.parent, {})[node.name] = node.node

    def leave(self, node: StoredNode, *, is_bottom: bool) -> None:
        """Remove the node from its directory."""
        if not is_bottom:
            self.children.setdefault(node.parent, {})[node.name] = None
            return
        names = self.children[node.parent]
        if names.get(node.name) == node.node:
            del names[node.name]
            if not names:
                del self.children[node.parent]


class Below(NamedTuple):
    """A node in a directory's subtree, and its path from that directory."""

    node: StoredNode
    path: str


class View:
    """The tree as one transaction sees it. `layers` go from its own layer to the bottom."""

    def __init__(self, layers: Sequence[Layer], tables: dict[int, StoredTable]) -> None:
        self._layers = layers
        self._tables = tables
        self._has_snapshots = any(layer.snapshots for layer in layers)

    def node(self, node_id: int) -> StoredNode | None:
        """Return the node as this view has it, or None if it has none."""
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
        """Return the table of a node as it was stored. Settings that a transaction changed are in
        the node's attributes."""
        for layer in self._layers:
            snapshot = layer.snapshots.get(node_id)
            node = layer.nodes.get(node_id) if snapshot is None else snapshot.node
            if node is not None and node.table is not None:
                return node.table
        return self._tables.get(node_id)

    def child(self, directory: int, name: str) -> int | None:
        """Return the id of the child with this name, or None."""
        for layer in self._layers:
            snapshot = layer.snapshots.get(directory)
            if snapshot is not None:
                return snapshot.children.get(name)
            names = layer.children.get(directory)
            if names is not None and name in names:
                return names[name]
        return None

    def children(self, directory: int) -> dict[str, int]:
        """Return the ids of all children of a directory, by name, sorted."""
        merged: dict[str, int | None] = {}
        for layer in self._layers:
            snapshot = layer.snapshots.get(directory)
            names = layer.children.get(directory, {}) if snapshot is None else snapshot.children
            merged = {**names, **merged}
            if snapshot is not None:
                break
        return {name: node for name, node in sorted(merged.items()) if node is not None}

    def find(self, names: Sequence[str]) -> StoredNode | None:
        """Return the node at the path of these names, or None."""
        node: int | None = ROOT
        path = "/"
        for name in names:
            path = below(path, name)
            node = self.child_at(node, name, path)
        return None if node is None else self.node(node)

    def child_at(self, directory: int | None, name: str, path: str) -> int | None:
        """Return the id of a child, as `child` does; `path` is the child's path. If the transaction
        has a snapshot of a node at this path, return that node, even if its directory is gone."""
        locked = self._node_in_snapshot(path)
        if locked is not None or directory is None:
            return locked
        return self.child(directory, name)

    def _node_in_snapshot(self, path: str) -> int | None:
        """Return the node that was at this path when a snapshot lock was taken, or None."""
        if self._has_snapshots:
            for layer in self._layers:
                for node_id, snapshot in layer.snapshots.items():
                    if snapshot.path == path:
                        return node_id
        return None

    def walk(self, top: StoredNode) -> Iterator[Below]:
        """Yield the node and all nodes below it, each before its children."""
        waiting = [Below(top, "")]
        while waiting:
            found = waiting.pop()
            yield found
            for name, node_id in reversed(self.children(found.node.node).items()):
                node = self.node(node_id)
                if node is None:
                    continue  # a snapshot may name a node that is gone since
                if (node.parent, node.name) != (found.node.node, name):  # or it was elsewhere then
                    node = replace(node, parent=found.node.node, name=name)
                waiting.append(Below(node, f"{found.path}/{name}"))


def merge(lower: StoredNode, upper: StoredNode) -> StoredNode:
    """Return the node with the changes of the layer above."""
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
    """Return the entry for a node that a transaction has not changed yet."""
    return replace(node, attributes={}, attributes_removed=(), table=None)


def restore_children(layer: Layer, outer: View | None) -> None:
    """Compute the children of a layer whose nodes were read from the store. `outer` is the view
    below the layer, None for the bottom."""
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
    """Yield every table in these subtrees, with its path from the top of the subtree."""
    for top in tops:
        for found in view.walk(top):
            if found.node.kind == "table":
                yield found
