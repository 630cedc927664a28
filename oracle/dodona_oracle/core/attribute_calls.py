"""The calls that read the tree, and the calls that set attributes. Pure.

Owns: the answers to `list`, `get` and `exists`, and the changes that setting and removing
attributes make. Errors are raised as `DodonaError`. Imports no I/O and no clock.
"""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dodona_oracle.core import attributes
from dodona_oracle.core.attributes import Facts
from dodona_oracle.core.nodes import View, unchanged
from dodona_oracle.core.paths import TreePath, parse_path
from dodona_oracle.core.records import StoredNode
from dodona_oracle.core.tree import Tree
from dodona_oracle.core.tree_calls import TreeCalls
from dodona_wire.errors import InvalidRequest, LimitExceeded, NodeNotFound
from dodona_wire.types import Now, TreeTransactionId

SHOWN_MAX: Final = 10_000
"""The largest number of nodes that one answer shows as nested maps."""


class AttributeCalls:
    """The calls that read nodes and change attributes, for one transaction or for none."""

    def __init__(self, tree: Tree, calls: TreeCalls) -> None:
        self._tree = tree
        self._calls = calls

    def names(self, path: str, transaction: TreeTransactionId) -> tuple[str, ...]:
        """List a directory, or all attributes. Raises NodeNotFound, InvalidRequest."""
        parsed, view, node = self._find(path, transaction)
        if parsed.attribute == "":
            return attributes.all_names(self._facts(parsed, view, node))
        if parsed.attribute is not None or node.kind == "table":
            what = "an attribute" if parsed.attribute else "a table"
            raise InvalidRequest(
                f"{path} is {what}, not a directory. Only a directory has a list.", path=path
            )
        return tuple(view.children(node.node))

    def exists(self, path: str, transaction: TreeTransactionId) -> bool:
        """Return whether there is such a node or attribute. Raises InvalidRequest,
        TransactionNotFound."""
        parsed = parse_path(path)
        view = self._tree.view(transaction)
        node = view.find(parsed.names)
        if node is None or not parsed.attribute:
            return node is not None
        return attributes.has_attribute(self._facts(parsed, view, node), parsed.attribute)

    def value(self, path: str, transaction: TreeTransactionId) -> Any:
        """Return one attribute, all attributes, or the content of a directory. Raises NodeNotFound,
        InvalidRequest, LimitExceeded."""
        parsed, view, node = self._find(path, transaction)
        if parsed.attribute is None:
            return _shown(view, node, path)
        facts = self._facts(parsed, view, node)
        if parsed.attribute == "":
            names = attributes.all_names(facts)
            return {name: attributes.value_of(facts, name) for name in names}
        if not attributes.has_attribute(facts, parsed.attribute):
            raise _no_attribute(path)
        return attributes.value_of(facts, parsed.attribute)

    def set(self, path: str, packed: bytes, transaction: TreeTransactionId, now: Now) -> None:
        """Set one attribute, or all that users may set. In the second case the user's own
        attributes that are not given are removed. Raises NodeNotFound, InvalidRequest,
        InvalidTabletState, NodeLocked, LimitExceeded."""
        parsed, view, node = self._find(path, transaction)
        if parsed.attribute is None:
            text = "Only attributes can be set. Name one (//name/@attribute), or all (//name/@)."
            raise InvalidRequest(text, path=path)
        removed: tuple[str, ...] = ()
        own = attributes.own_attributes(node)
        if parsed.attribute:
            values = {parsed.attribute: attributes.unpack(packed, path)}
        else:
            values = attributes.unpack_map(packed, path)
            removed = tuple(name for name in own if name not in values)
        wanted = attributes.sort_out(values, node.kind, path)
        kept = {name: value for name, value in own.items() if name not in removed}
        attributes.check_count(kept | wanted.own, path)
        if wanted.settings:
            attributes.changed_table(self._calls.table_of(view, node), wanted.settings)
        settings = {name: msgspec.msgpack.encode(it) for name, it in wanted.settings.items()}
        change = replace(
            unchanged(node), attributes=wanted.own | settings, attributes_removed=removed
        )
        if values or removed:
            self._calls.set_attributes(parsed, node, transaction, now, change)

    def remove(
        self, path: str, transaction: TreeTransactionId, now: Now, *, is_forced: bool
    ) -> None:
        """Remove an own attribute. Raises NodeNotFound, InvalidRequest, NodeLocked."""
        parsed, view, node = self._find(path, transaction)
        if not parsed.attribute:
            text = "Name one attribute (//name/@attribute), or set all with //name/@."
            raise InvalidRequest(text, path=path)
        if parsed.attribute not in attributes.own_attributes(node):
            if attributes.has_attribute(self._facts(parsed, view, node), parsed.attribute):
                raise InvalidRequest(
                    f"{path} is a system attribute. It can't be removed.", path=path
                )
            if is_forced:
                return
            raise _no_attribute(path)
        change = replace(unchanged(node), attributes_removed=(parsed.attribute,))
        self._calls.set_attributes(parsed, node, transaction, now, change)

    def _find(self, path: str, transaction: TreeTransactionId) -> tuple[TreePath, View, StoredNode]:
        parsed = parse_path(path)
        view = self._tree.view(transaction)
        return parsed, view, self._calls.find(view, parsed)

    def _facts(self, path: TreePath, view: View, node: StoredNode) -> Facts:
        locks = tuple(self._tree.locks.on_node(node.node))
        if node.kind == "directory":
            return Facts(node, path.node_path, None, len(view.children(node.node)), locks)
        table = self._calls.table_of(view, node)
        retained = self._calls.retained_timestamps(table)
        return Facts(node, path.node_path, table, 0, locks, retained)


def _no_attribute(path: str) -> NodeNotFound:
    return NodeNotFound(f"There is no attribute {path}.", path=path)


def _shown(view: View, top: StoredNode, path: str) -> dict[str, Any] | None:
    shown: dict[int, dict[str, Any]] = {}
    for count, (node, _) in enumerate(view.walk(top), 1):
        if count > SHOWN_MAX:
            text = f"More than {SHOWN_MAX} nodes are below {path}. List the directories one by one."
            raise LimitExceeded(text, path=path)
        inside: dict[str, Any] | None = None
        if node.kind == "directory":
            inside = shown[node.node] = {}
        if node is not top:
            shown[node.parent][node.name] = inside
    return shown.get(top.node)
