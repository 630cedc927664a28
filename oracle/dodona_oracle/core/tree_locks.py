"""Locks that master transactions hold on nodes of the tree. Pure.

Owns: who holds what, and which locks bar which. An exclusive lock bars every other but snapshots; a
shared one bars exclusive ones, and others on the same child's name or the same attribute. The
locks of a transaction do not bar those inside it; theirs bar it. Nobody waits.
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
        """The lock is held from now on. It may be already."""
        name = _name_of(lock)
        held = self._by_node.setdefault(lock.node, {})
        if name not in held:
            held[name] = lock
            self._by_transaction.setdefault(lock.transaction, {})[name] = lock
            self.count += 1
            self.snapshot_count += lock.mode == "snapshot"

    def drop(self, transaction: TreeTransactionId) -> list[StoredLock]:
        """The transaction holds nothing any more. → what it held."""
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
        """All locks on this node."""
        return iter(self._by_node.get(node, {}).values())

    def needs(self, wanted: StoredLock) -> bool:
        """Whether the transaction does not hold this lock yet, nor one that includes it."""
        held = self._by_node.get(wanted.node, {})
        exclusive = (wanted.transaction, wanted.node, "exclusive", None, None)
        return _name_of(wanted) not in held and (wanted.mode == "snapshot" or exclusive not in held)

    def find_bar(self, wanted: StoredLock, kin: Container[TreeTransactionId]) -> StoredLock | None:
        """A lock that bars this one, held by somebody else than `kin`: the transaction itself and
        those around it. Raises InvalidRequest where one of these reads the node as it was."""
        for held in self.on_node(wanted.node):
            if held.transaction not in kin:
                if _is_barred(wanted, held):
                    return held
            elif wanted.mode != "snapshot" and held.mode == "snapshot":
                raise InvalidRequest(
                    "the transaction has a snapshot lock on this node: it reads it as it was, and "
                    "does not change it",
                    transaction=held.transaction,
                )
        return None

    def find_holder(self, node: int) -> StoredLock | None:
        """A lock on the node that is more than a snapshot."""
        return next((it for it in self.on_node(node) if it.mode != "snapshot"), None)


def locked(path: str, held: StoredLock, title: str) -> NodeLocked:
    """The error of whoever met this lock at this path."""
    what = ""
    attributes: dict[str, object] = {}
    if held.child is not None:
        what, attributes = f" on its child {held.child!r}", {"child": held.child}
    elif held.attribute is not None:
        what, attributes = f" on its attribute {held.attribute!r}", {"attribute": held.attribute}
    return NodeLocked(
        f"{path} is locked: transaction {held.transaction} holds a lock of mode {held.mode}{what}",
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
