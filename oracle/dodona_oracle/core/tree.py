"""The state of the tree: its nodes, its locks, and the master transactions that change it. Pure.

Owns: every change of these, and the records that make the changes durable. `tree_calls` decides
whether a call is allowed. This module puts changes on top of the existing state. A change has one
form in three cases: a call makes it, a transaction hands it to its parent, or it is committed.

Invariants:
- Until a transaction commits, only it and those nested in it see its changes.
- A transaction that changes a node holds a lock on it. A snapshot lock changes nothing.
- A table has the id of its node, and the path that its node has in the committed tree.

Imports no I/O and no clock.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from dodona_oracle.core.attributes import changed_table, own_attributes, pending_settings
from dodona_oracle.core.journal import Journal
from dodona_oracle.core.nodes import (
    ROOT,
    ROOT_NODE,
    Layer,
    View,
    merge,
    restore_children,
    tables_below,
)
from dodona_oracle.core.paths import below
from dodona_oracle.core.records import (
    MasterState,
    StoredLock,
    StoredNode,
    StoredTransaction,
    put_commit,
    put_lock,
    put_node,
    put_transaction,
    remove_commit,
    remove_lock,
    remove_node,
    remove_transaction,
)
from dodona_oracle.core.tables import Tables
from dodona_oracle.core.tree_locks import LOCKS_MAX, SNAPSHOTS_MAX, LockTable, locked
from dodona_oracle.core.tree_transactions import Transactions
from dodona_wire.errors import DataCorrupted, LimitExceeded
from dodona_wire.types import NO_TREE_TRANSACTION, Now, TreeTransactionId

NODES_MAX: Final = 100_000
"""The largest number of committed nodes plus changes of nodes under transactions."""

Claim = tuple[StoredLock, str]
"""A lock that a call needs, and the path of the node that it is on."""


class Tree:
    """All nodes as each transaction sees them. `journal` gets each change."""

    def __init__(self, state: MasterState, journal: Journal, tables: Tables, now: Now) -> None:
        """Restore the state. Raises DataCorrupted if a table has no node."""
        self._journal = journal
        self._tables = tables
        self.locks = LockTable(state.locks)
        self.transactions = Transactions(state.transactions, state.commits, now)
        self._bottom = Layer()
        self._layers: dict[TreeTransactionId, Layer] = {NO_TREE_TRANSACTION: self._bottom}
        self._bottom.nodes[ROOT] = ROOT_NODE
        self._view_of_all = View([self._bottom], tables.by_id)
        self._change_count = 1  # the root
        self._restore(state)

    def _restore(self, state: MasterState) -> None:
        for transaction in state.transactions:
            self._layers[transaction.transaction] = Layer()
        for owner, node in state.nodes:
            self._change_count += node.node not in self._layers[owner].nodes
            self._layers[owner].nodes[node.node] = node
            if node.table is not None:
                self._tables.count(node.table, 1)
        for table in state.tables:
            if table.table not in self._bottom.nodes:
                raise DataCorrupted("A stored table has no node in the tree.", path=table.path)
        restore_children(self._bottom, None)
        for lock in state.locks:
            if lock.snapshot is not None:
                self._layers[lock.transaction].snapshots[lock.node] = lock.snapshot
        for transaction in state.transactions:  # parents come before those nested in them
            restore_children(self._layers[transaction.transaction], self.view(transaction.parent))

    # Reading

    def view(self, transaction: TreeTransactionId) -> View:
        """Return the tree as this transaction sees it. Raises TransactionNotFound."""
        if transaction == NO_TREE_TRANSACTION:
            return self._view_of_all
        kin = (*self.transactions.kin(transaction), NO_TREE_TRANSACTION)
        return View([self._layers[each] for each in kin], self._tables.by_id)

    @property
    def node_count(self) -> int:
        """How many nodes are committed, the root included."""
        return len(self._bottom.nodes)

    # Locks

    def check_claims(self, transaction: TreeTransactionId, claims: Sequence[Claim]) -> None:
        """Raise NodeLocked, InvalidRequest or LimitExceeded if one of these locks is not
        possible."""
        kin = self.transactions.kin(transaction)
        for wanted, path in claims:
            bar = self.locks.find_bar(wanted, kin)
            if bar is not None:
                raise locked(path, bar, self.transactions.get(bar.transaction).title)
        if transaction != NO_TREE_TRANSACTION and self.locks.count + len(claims) > LOCKS_MAX:
            raise LimitExceeded(f"Transactions hold at most {LOCKS_MAX} locks on nodes.")
        if self.locks.snapshot_count >= SNAPSHOTS_MAX:
            for wanted, path in claims:
                if wanted.mode == "snapshot":
                    raise LimitExceeded(
                        f"Transactions hold at most {SNAPSHOTS_MAX} snapshot locks.", path=path
                    )

    def take(self, claims: Sequence[Claim]) -> None:
        """Take these locks, which were checked before. Outside transactions nothing is held."""
        for wanted, _ in claims:
            if wanted.transaction != NO_TREE_TRANSACTION and self.locks.needs(wanted):
                self.locks.add(wanted)
                self._journal.add(put_lock(wanted))
                if wanted.snapshot is not None:
                    self._layers[wanted.transaction].snapshots[wanted.node] = wanted.snapshot

    def check_free(self, node: int, path: str) -> None:
        """Raise NodeLocked if a transaction has more than a snapshot lock on the node."""
        holder = self.locks.find_holder(node)
        if holder is not None:
            raise locked(path, holder, self.transactions.get(holder.transaction).title)

    # Changes

    def check_room(self, node_count: int) -> None:
        """Raise LimitExceeded if so many more nodes cannot be changed."""
        if self._change_count + node_count > NODES_MAX:
            raise LimitExceeded(f"The tree has at most {NODES_MAX} nodes.")

    def apply(self, transaction: TreeTransactionId, changes: Iterable[StoredNode]) -> None:
        """Put these changes on top of what the transaction sees. At most one for each node."""
        changes = tuple(changes)
        layer, view = self._layers[transaction], self.view(transaction)
        is_bottom = layer is self._bottom
        entering: list[StoredNode] = []
        for change in changes:
            was = view.node(change.node)
            is_there = was is not None and (was.parent, was.name) == (change.parent, change.name)
            if was is not None and (change.is_removed or not is_there):
                layer.leave(was, is_bottom=is_bottom)
            if not change.is_removed and not is_there:
                entering.append(change)
        for change in entering:
            layer.enter(change)
        for change in changes:
            own = layer.nodes.get(change.node)
            merged = change if own is None else merge(own, change)
            if is_bottom:
                self._lay_at_bottom(merged)
            else:
                self._lay(transaction, layer, merged)
        if is_bottom:
            self._correct_paths(entering)

    def _lay(self, transaction: TreeTransactionId, layer: Layer, node: StoredNode) -> None:
        was_known = node.node in layer.nodes
        if node.is_removed:
            outer = self.view(self.transactions.get(transaction).parent)
            if outer.node(node.node) is None:
                if was_known:  # made and removed in here: no other client will ever see it
                    self._drop_change(transaction, layer, node.node)
                return
        self._change_count += not was_known
        layer.nodes[node.node] = node
        self._journal.add(put_node(transaction, node))

    def _lay_at_bottom(self, node: StoredNode) -> None:
        table = node.table or self._tables.by_id.get(node.node)
        if node.is_removed:
            if self._bottom.nodes.pop(node.node, None) is not None:
                self._change_count -= 1
                self._journal.add(remove_node(NO_TREE_TRANSACTION, node.node))
            if table is not None:
                self._tables.count(table, -1)
                self._tables.remove(table)
            return
        if table is not None:
            changed = changed_table(table, pending_settings(node))
            if changed is not self._tables.by_id.get(node.node):
                self._tables.store(changed)
        self._change_count += node.node not in self._bottom.nodes
        plain = replace(node, attributes=own_attributes(node), attributes_removed=(), table=None)
        self._bottom.nodes[node.node] = plain
        self._journal.add(put_node(NO_TREE_TRANSACTION, plain))

    def _correct_paths(self, moved: Sequence[StoredNode]) -> None:
        """Store the new paths of the tables below these nodes."""
        tops = [self._bottom.nodes[it.node] for it in moved if it.node in self._bottom.nodes]
        for top in tops:
            path = self.path_for_all(top)
            for found in tables_below(self._view_of_all, [top]):
                table = self._tables.by_id[found.node.node]
                if table.path != path + found.path:
                    self._tables.store(replace(table, path=path + found.path))

    def path_for_all(self, node: StoredNode) -> str:
        """Return the path of a node in the committed tree."""
        names = []
        while node.node != ROOT:
            names.append(node.name)
            node = self._bottom.nodes[node.parent]
        path = "/"
        for name in reversed(names):
            path = below(path, name)
        return path

    def _drop_change(self, transaction: TreeTransactionId, layer: Layer, node_id: int) -> None:
        dropped = layer.nodes.pop(node_id)
        self._change_count -= 1
        self._journal.add(remove_node(transaction, node_id))
        if dropped.table is not None:
            self._tables.count(dropped.table, -1)

    # Transactions

    def begin(
        self, parent: TreeTransactionId, timeout_ms: int, title: str, now: Now
    ) -> StoredTransaction:
        """Begin a transaction. Raises InvalidRequest, LimitExceeded, TransactionNotFound."""
        self.transactions.check_new(parent, timeout_ms, title)
        begun = StoredTransaction(
            TreeTransactionId(self._journal.take_ids()), parent, timeout_ms, title
        )
        self.transactions.add(begun, now)
        self._layers[begun.transaction] = Layer()
        self._journal.add(put_transaction(begun))
        return begun

    def commit(self, transaction: TreeTransactionId) -> None:
        """Hand the transaction's changes to its parent, or commit them to the tree if it has none.
        Transactions that are still nested in it are aborted. A repeated commit does nothing. Raises
        TransactionNotFound."""
        if self.transactions.was_committed(transaction):
            return
        parent = self.transactions.get(transaction).parent
        *inside, _ = self.transactions.with_nested(transaction)
        for nested in inside:
            self._end(nested)
        layer = self._layers[transaction]
        changes = tuple(layer.nodes.values())
        locks = self._end(transaction)
        self._remember(transaction)
        self._readmit(changes)
        self.apply(parent, changes)
        if parent != NO_TREE_TRANSACTION:
            kept = [replace(lock, transaction=parent) for lock in locks if lock.snapshot is None]
            self.take([(lock, "") for lock in kept])

    def _readmit(self, changes: Sequence[StoredNode]) -> None:
        """Count the tables of these changes again, which `_end` has taken from the count."""
        for change in changes:
            if change.table is not None:
                self._tables.count(change.table, 1)

    def abort(self, transaction: TreeTransactionId) -> None:
        """Abort the transaction and those nested in it. An unknown transaction is no error. Raises
        TransactionClosed if it was committed."""
        self.transactions.check_not_committed(transaction)
        if self.transactions.is_alive(transaction):
            for each in self.transactions.with_nested(transaction):
                self._end(each)

    def expire(self, now: Now) -> None:
        """Abort the transactions whose clients did not ping in time."""
        for transaction in self.transactions.expired(now):
            self.abort(transaction)

    def _remember(self, transaction: TreeTransactionId) -> None:
        revision = self._journal.take_revision()
        self._journal.add(put_commit(revision, transaction))
        for forgotten in self.transactions.remember(transaction, revision):
            self._journal.add(remove_commit(forgotten))

    def _end(self, transaction: TreeTransactionId) -> list[StoredLock]:
        """Forget the transaction with its changes. Return the locks that it held."""
        layer = self._layers[transaction]
        for node_id in list(layer.nodes):
            self._drop_change(transaction, layer, node_id)
        locks = self.locks.drop(transaction)
        for lock in locks:
            self._journal.add(remove_lock(lock))
        self.transactions.end(transaction)
        del self._layers[transaction]
        self._journal.add(remove_transaction(transaction))
        return locks
