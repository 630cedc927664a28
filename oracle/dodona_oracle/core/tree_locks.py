"""Locks that master transactions hold on nodes of the tree. Pure.

Owns: which transaction holds which lock, and which locks bar each other. An exclusive lock bars
every other lock but snapshots. A shared lock bars exclusive locks, and shared locks on the same
child's name or the same attribute. The locks of a transaction do not bar those nested in it, but
their locks bar it. No call waits for a lock.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final

from dodona_oracle.core.records import StoredLock
from dodona_wire.errors import InvalidRequest, NodeLocked
from dodona_wire.types import TreeTransactionId

LOCKS_MAX: Final = 100_000
SNAPSHOTS_MAX: Final = 1_000

_Name = tuple[TreeTransactionId, int, str, str | None, str | None]


def _name_of(lock: StoredLock) -> _Name:
    return lock.transaction, lock.node, lock.mode, lock.child, lock.attribute


class LockTable:
    """All locks of all transactions."""

    def __init__(self, locks: Iterable[StoredLock]) -> None:
        self._by_node: dict[int, dict[_Name, StoredLock]] = {}
        self._by_transaction: dict[TreeTransactionId, dict[_Name, StoredLock]] = {}
        self.count = self.snapshot_count = 0
        for lock in locks:
            self.add(lock)

    def add(self, lock: StoredLock) -> None:
        """Add a lock. It may be held already."""
        name = _name_of(lock)
        held = self._by_node.setdefault(lock.node, {})
        if name not in held:
            held[name] = lock
            self._by_transaction.setdefault(lock.transaction, {})[name] = lock
            self.count += 1
            self.snapshot_count += lock.mode == "snapshot"

    def drop(self, transaction: TreeTransactionId) -> list[StoredLock]:
        """Release all locks of the transaction. Return them."""
        dropped = self._by_transaction.pop(transaction, {})
        for name, lock in dropped.items():
            held = self._by_node[lock.node]
            del held[name]
            if not held:
                del self._by_node[lock.node]
            self.count -= 1
            self.snapshot_count -= lock.mode == "snapshot"
        return list(dropped.values())

    def on_node(self, node: int) -> Iterator[StoredLock]:
        """Return all locks on this node."""
        return iter(self._by_node.get(node, {}).values())

    def needs(self, wanted: StoredLock) -> bool:
        """Return whether the transaction holds neither this lock nor one that includes it."""
        held = self._by_node.get(wanted.node, {})
        exclusive = (wanted.transaction, wanted.node, "exclusive", None, None)
        return _name_of(wanted) not in held and (wanted.mode == "snapshot" or exclusive not in held)

    def find_bar(self, wanted: StoredLock, kin: Container[TreeTransactionId]) -> StoredLock | None:
        """Return a lock that bars the wanted one, or None. `kin` are the transaction and its
        parents, whose locks do not bar it. Raises InvalidRequest if one of them has a snapshot lock
        on the node, and the wanted lock is none."""
        for held in self.on_node(wanted.node):
            if held.transaction not in kin:
                if _is_barred(wanted, held):
                    return held
            elif wanted.mode != "snapshot" and held.mode == "snapshot":
                raise InvalidRequest(
                    "The transaction has a snapshot lock on this node, so it can't change the "
                    "node. Change the node in another transaction.",
                    transaction=held.transaction,
                )
        return None

    def find_holder(self, node: int) -> StoredLock | None:
        """Return a lock on the node that is more than a snapshot, or None."""
        return next((it for it in self.on_node(node) if it.mode != "snapshot"), None)


def locked(path: str, held: StoredLock, title: str) -> NodeLocked:
    """Return the error of a call that met this lock at this path."""
    what = ""
    attributes: dict[str, object] = {}
    if held.child is not None:
        what, attributes = f" on its child {held.child!r}", {"child": held.child}
    elif held.attribute is not None:
        what, attributes = f" on its attribute {held.attribute!r}", {"attribute": held.attribute}
    return NodeLocked(
        f"{path} is locked: transaction {held.transaction} holds a lock of mode {held.mode}{what}.",
        path=path,
        mode=held.mode,
        transaction=held.transaction,
        title=title,
        **attributes,
    )


def _is_barred(wanted: StoredLock, held: StoredLock) -> bool:
    if "snapshot" in (wanted.mode, held.mode):
        return False
    if "exclusive" in (wanted.mode, held.mode):
        return True
    is_same_child = wanted.child is not None and wanted.child == held.child
    return is_same_child or (wanted.attribute is not None and wanted.attribute == held.attribute)
