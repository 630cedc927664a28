"""The calls that change the tree: they make, remove, move, copy, set and lock nodes. Pure.

Owns: which locks each call needs, and every reason to refuse a call. A call is checked in full
before anything changes.

- To make, remove or move a node takes a shared lock on the child's name in its directory.
- To remove or move a node also takes an exclusive lock on the node and all nodes below it.
- To set an attribute takes a shared lock on the attribute. To set the isolation of a table also
  takes one on its atomicity, so two transactions can't make them contradict each other.
- A transaction that copies a table takes a shared lock on it. So the table stays unmounted until
  the transaction ends: the rows are taken over after the commit.

Errors are raised as `DodonaError`. Imports no I/O and no clock.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from dodona_oracle.core import mounting
from dodona_oracle.core.attributes import changed_table, own_attributes, pending_settings
from dodona_oracle.core.journal import Journal
from dodona_oracle.core.nodes import ROOT, Below, View, unchanged
from dodona_oracle.core.paths import (
    DEPTH_MAX,
    PATH_LENGTH_MAX,
    TreePath,
    below,
    check_name,
    check_new_path,
    parse_node_path,
    path_of,
)
from dodona_oracle.core.records import StoredLock, StoredNode, StoredSnapshot, StoredTable
from dodona_oracle.core.tables import Tables
from dodona_oracle.core.tree import Claim, Tree
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    NodeExists,
    NodeNotFound,
    TableExists,
    TableNotFound,
)
from dodona_wire.messages.tree import CopyNode, LockMode, LockNode, MoveNode, NodeKind
from dodona_wire.types import NO_TREE_TRANSACTION, Now, Timestamp, TreeTransactionId

_Change = dict[int, StoredNode]


class Site(NamedTuple):
    """The place of a new node: an existing directory, its path, and the names below it. The last
    name is the node's own."""

    directory: StoredNode
    path: str
    names: tuple[str, ...]


class TreeCalls:
    """The calls that change the tree, each for one transaction or for none."""

    def __init__(self, tree: Tree, journal: Journal, tables: Tables) -> None:
        self._tree = tree
        self._journal = journal
        self._tables = tables

    # Making

    def create(
        self,
        path: TreePath,
        transaction: TreeTransactionId,
        now: Now,
        attributes: dict[str, bytes],
        table: StoredTable | None = None,
        *,
        is_recursive: bool = True,
    ) -> StoredTable | None:
        """Make a directory, or this table. Return the table with its ids. Raises NodeExists,
        NodeNotFound, NodeLocked, InvalidRequest, LimitExceeded, TransactionNotFound."""
        site = self.find_site(path, transaction)
        check_new_path(path.names, path.node_path)
        if len(site.names) > 1 and not is_recursive:
            raise _no_directory(site, path)
        claims = [_on_child(transaction, site)]
        self._tree.check_claims(transaction, claims)
        self._tree.check_room(len(site.names) + 1)
        if table is not None:
            self._tables.check_room(1, len(table.tablets))
        kind: NodeKind = "directory" if table is None else "table"
        count = 1 if table is None else 1 + len(table.tablets)
        first_id = self._journal.take_ids(count)
        if table is not None:
            table = _with_ids(table, first_id)
            self._tables.count(table, 1)
        changes, parent = self._touched_site(site, now)
        changes[first_id] = replace(
            _new_node(first_id, parent, site.names[-1], kind, now),
            attributes=attributes,
            table=table,
        )
        self._tree.take(claims)
        self._tree.apply(transaction, changes.values())
        return table

    def find_site(self, path: TreePath, transaction: TreeTransactionId) -> Site:
        """Return the place of a new node. Raises NodeExists if the node exists, NodeNotFound or
        InvalidRequest if it is not possible."""
        view = self._tree.view(transaction)
        if not path.names:
            raise NodeExists("The root directory exists already.", path=path.node_path)
        directory, at = ROOT, "/"
        for index, name in enumerate(path.names):
            node = view.node(directory)
            assert node is not None, "a directory is there as long as what is in it"
            if node.kind == "table":
                text = f"{at} is a table, not a directory. It can't contain nodes."
                raise InvalidRequest(text, path=path.node_path)
            child = view.child_at(directory, name, below(at, name))
            if child is None or view.node(child) is None:
                return Site(node, at, path.names[index:])
            directory, at = child, below(at, name)
        node = view.node(directory)
        assert node is not None
        raise _exists(node, path.node_path)

    def _touched_site(self, site: Site, now: Now) -> tuple[_Change, int]:
        """Return the changes that make missing directories, and the id of the last directory."""
        changes = {site.directory.node: _touched(site.directory, now)}
        parent = site.directory.node
        for name in site.names[:-1]:
            node_id = self._journal.take_ids()
            changes[node_id] = _new_node(node_id, parent, name, "directory", now)
            parent = node_id
        return changes, parent

    # Removing, moving, copying

    def remove(
        self,
        path: TreePath,
        transaction: TreeTransactionId,
        now: Now,
        *,
        is_recursive: bool,
        is_forced: bool,
    ) -> None:
        """Remove a node. Raises TableNotFound, InvalidRequest, NodeLocked, LimitExceeded."""
        view = self._tree.view(transaction)
        node = view.find(path.names)
        if node is None:
            if is_forced:
                return
            raise TableNotFound(
                f"There is no table and no directory {path.node_path}.", path=path.node_path
            )
        _check_not_root(node, "removed")
        gone = list(view.walk(node))
        if len(gone) > 1 and not is_recursive:
            raise InvalidRequest(
                f"Directory {path.node_path} is not empty. Empty it, or remove it with "
                "`recursive`.",
                path=path.node_path,
                count=len(gone) - 1,
            )
        directory = _directory_of(view, node, path)
        claims = [
            _on_child(transaction, Site(directory, path_of(path.names[:-1]), (node.name,))),
            *_on_all("exclusive", transaction, path, gone),
        ]
        self._tree.check_claims(transaction, claims)
        changes = {it.node.node: replace(unchanged(it.node), is_removed=True) for it in gone}
        changes[directory.node] = _touched(directory, now)
        self._tree.take(claims)
        self._tree.apply(transaction, changes.values())

    def move(self, request: MoveNode, now: Now) -> None:
        """Move a node. Raises NodeNotFound, NodeExists, NodeLocked, InvalidRequest,
        InvalidTabletState, LimitExceeded."""
        transaction = request.transaction
        view, source, node, site, carried = self._carry(request, "move")
        directory = _directory_of(view, node, source)
        claims = [
            _on_child(transaction, Site(directory, path_of(source.names[:-1]), (node.name,))),
            _on_child(transaction, site),
            *_on_all("exclusive", transaction, source, carried),
        ]
        self._tree.check_claims(transaction, claims)
        self._tree.check_room(len(site.names) + 2)
        changes, parent = self._touched_site(site, now)
        changes[directory.node] = _touched(directory, now)
        changes[node.node] = replace(unchanged(node), parent=parent, name=site.names[-1])
        self._tree.take(claims)
        self._tree.apply(transaction, changes.values())

    def copy(self, request: CopyNode, now: Now) -> None:
        """Copy a node. Raises as `move`, and Unavailable while a table waits for its rows."""
        transaction = request.transaction
        view, source, _, site, carried = self._carry(request, "copy")
        tables = {
            it.node.node: self.table_of(view, it.node) for it in carried if it.node.kind == "table"
        }
        claims = [_on_child(transaction, site)]
        if transaction != NO_TREE_TRANSACTION:
            held = [it for it in carried if it.node.node in tables]
            claims += _on_all("shared", transaction, source, held)
        self._tree.check_claims(transaction, claims)
        self._tree.check_room(len(site.names) + len(carried))
        tablet_count = sum(len(table.tablets) for table in tables.values())
        self._tables.check_room(len(tables), tablet_count)
        for table in tables.values():  # find what cannot be copied before any id is used
            self._copied(table, 0)
        changes, parent = self._touched_site(site, now)
        self._copy_into(changes, parent, site.names[-1], carried, tables, now)
        self._tree.take(claims)
        self._tree.apply(transaction, changes.values())

    def _copy_into(
        self,
        changes: _Change,
        parent: int,
        name: str,
        carried: Sequence[Below],
        tables: dict[int, StoredTable],
        now: Now,
    ) -> None:
        copies = {carried[0].node.parent: parent}
        for node, _ in carried:
            table = tables.get(node.node)
            count = 1 if table is None else 1 + len(table.tablets)
            node_id = self._journal.take_ids(count)
            is_top = node is carried[0].node
            copied = _new_node(
                node_id, copies[node.parent], name if is_top else node.name, node.kind, now
            )
            if table is not None:
                table = self._copied(table, node_id)
                self._tables.count(table, 1)
            copies[node.node] = node_id
            changes[node_id] = replace(copied, attributes=own_attributes(node), table=table)

    def _copied(self, table: StoredTable, first_id: int) -> StoredTable:
        """Return a copy of a table. If the table is an uncommitted copy, one lock on the first
        source is held for both."""
        is_seen = table.table in self._tables.by_id
        return mounting.copied(table, table.path, first_id, is_seen=is_seen)

    def _carry(
        self, request: MoveNode | CopyNode, verb: str
    ) -> tuple[View, TreePath, StoredNode, Site, list[Below]]:
        """Check what moving and copying have in common, and return what both need."""
        source, target = parse_node_path(request.source), parse_node_path(request.destination)
        view = self._tree.view(request.transaction)
        node = self.find(view, source)
        _check_not_root(node, "moved" if verb == "move" else "copied")
        site = self.find_site(target, request.transaction)
        check_new_path(target.names, target.node_path)
        if target.names[: len(source.names)] == source.names:
            text = f"Can't {verb} {source.node_path} into itself. Choose another destination."
            raise InvalidRequest(text, path=source.node_path, destination=target.node_path)
        if len(site.names) > 1 and not request.is_recursive:
            raise _no_directory(site, target)
        carried = list(view.walk(node))
        for it in carried:
            path = target.node_path + it.path
            if len(path) > PATH_LENGTH_MAX or path.count("/") - 1 > DEPTH_MAX:
                text = f"A path has at most {PATH_LENGTH_MAX} characters and {DEPTH_MAX} names."
                raise LimitExceeded(text, path=path[:80])
            if it.node.kind == "table":
                mounting.check_all_unmounted(self.table_of(view, it.node), f"{verb} table")
        return view, source, node, site, carried

    # Attributes

    def set_attributes(
        self,
        path: TreePath,
        node: StoredNode,
        transaction: TreeTransactionId,
        now: Now,
        change: StoredNode,
    ) -> None:
        """Set and remove the attributes of `change`, which was checked. Raises NodeLocked,
        LimitExceeded, InvalidRequest."""
        names = {*change.attributes, *change.attributes_removed}
        if node.kind == "table" and "isolation" in names:
            names.add("atomicity")
        claims = [
            (StoredLock(transaction, node.node, "shared", attribute=name), path.node_path)
            for name in sorted(names)
        ]
        self._tree.check_claims(transaction, claims)
        self._tree.check_room(1)
        self._tree.take(claims)
        self._tree.apply(transaction, [replace(change, modified_us=now.unix_us)])

    # Locks

    def lock(self, request: LockNode) -> int:
        """Lock a node. → its id. Raises NodeNotFound, NodeLocked, InvalidRequest, LimitExceeded."""
        transaction = request.transaction
        if transaction == NO_TREE_TRANSACTION:
            raise InvalidRequest(
                "A lock needs a master transaction. Begin one with `begin_master()`.",
                path=request.path,
            )
        if request.mode != "shared" and (request.child, request.attribute) != (None, None):
            text = "Only a shared lock can be on a child or on an attribute alone."
            raise InvalidRequest(text, path=request.path, mode=request.mode)
        if request.child is not None and request.attribute is not None:
            text = "A lock can be on a child or on an attribute, not on both. Take two locks."
            raise InvalidRequest(text, path=request.path)
        path = parse_node_path(request.path)
        for name in (request.child, request.attribute):
            if name is not None:
                check_name(name, request.path)
        view = self._tree.view(transaction)
        node = self.find(view, path)
        snapshot = None
        if request.mode == "snapshot":
            seen = replace(node, table=view.table(node.node))
            snapshot = StoredSnapshot(path.node_path, seen, view.children(node.node))
        lock = StoredLock(
            transaction, node.node, request.mode, request.child, request.attribute, snapshot
        )
        claims = [(lock, path.node_path)]
        self._tree.check_claims(transaction, claims)
        self._tree.take(claims)
        return node.node

    # Finding

    def find(self, view: View, path: TreePath) -> StoredNode:
        """Return the node at this path. Raises NodeNotFound."""
        node = view.find(path.names)
        if node is None:
            raise NodeNotFound(
                f"There is no table and no directory {path.node_path}.", path=path.node_path
            )
        return node

    def find_table(self, view: View, path: TreePath) -> StoredTable:
        """Return the table at this path, as this view has it. Raises TableNotFound."""
        node = view.find(path.names)
        if node is None:
            raise TableNotFound(f"There is no table {path.node_path}.", path=path.node_path)
        if node.kind == "directory":
            text = f"{path.node_path} is a directory, not a table."
            raise TableNotFound(text, path=path.node_path)
        table = self.table_of(view, node)
        return table if table.path == path.node_path else replace(table, path=path.node_path)

    def retained_timestamps(self, table: StoredTable) -> Sequence[Timestamp]:
        """Return the same as `Tables.retained_timestamps`."""
        return self._tables.retained_timestamps(table)

    def table_of(self, view: View, node: StoredNode) -> StoredTable:
        """Return the table of a node, with the settings that a transaction gave it."""
        table = view.table(node.node)
        assert table is not None, "a node of a table without one"
        pending = pending_settings(node)
        return changed_table(table, pending) if pending else table


def _new_node(node_id: int, parent: int, name: str, kind: NodeKind, now: Now) -> StoredNode:
    return StoredNode(node_id, parent, name, kind, now.unix_us, now.unix_us)


def _touched(directory: StoredNode, now: Now) -> StoredNode:
    return replace(unchanged(directory), modified_us=now.unix_us)


def _with_ids(table: StoredTable, first_id: int) -> StoredTable:
    tablets = tuple(
        replace(tablet, tablet=type(tablet.tablet)(first_id + 1 + at))
        for at, tablet in enumerate(table.tablets)
    )
    return replace(table, table=first_id, tablets=tablets)


def _directory_of(view: View, node: StoredNode, path: TreePath) -> StoredNode:
    directory = view.find(path.names[:-1])
    if directory is None or (directory.node, path.names[-1]) != (node.parent, node.name):
        raise NodeNotFound(
            f"{path.node_path} was removed or moved: only a snapshot shows it.", path=path.node_path
        )
    return directory


def _on_child(transaction: TreeTransactionId, site: Site) -> Claim:
    lock = StoredLock(transaction, site.directory.node, "shared", child=site.names[0])
    return lock, site.path


def _on_all(
    mode: LockMode, transaction: TreeTransactionId, path: TreePath, nodes: Iterable[Below]
) -> list[Claim]:
    return [(StoredLock(transaction, it.node.node, mode), path.node_path + it.path) for it in nodes]


def _check_not_root(node: StoredNode, done: str) -> None:
    if node.node == ROOT:
        raise InvalidRequest(f"The root directory can't be {done}.", path="/")


def _exists(node: StoredNode, path: str) -> DodonaError:
    error: Callable[..., DodonaError] = TableExists if node.kind == "table" else NodeExists
    return error(f"There is a {node.kind} {path} already.", path=path)


def _no_directory(site: Site, path: TreePath) -> NodeNotFound:
    missing = below(site.path, site.names[0])
    return NodeNotFound(
        f"There is no directory {missing}. Create it, or repeat the call with `recursive`.",
        path=path.node_path,
        missing=missing,
    )
