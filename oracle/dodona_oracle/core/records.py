"""The records that the master makes durable: named values in buckets.

Owns: the records that a master appends, their buckets, and the encoding of the values. Each record
is complete: any prefix of the appended records is a correct state. Changes that must become durable
together are one `Group`. Imports no I/O.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.catalog import TabletSource
from dodona_wire.messages.tree import LockMode, NodeKind
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.schema import Column
from dodona_wire.types import (
    NO_CLUSTER,
    Atomicity,
    CellId,
    ClusterId,
    Key,
    Revision,
    TableSettings,
    TabletId,
    Timestamp,
    TreeTransactionId,
)

ORACLE: Final = "oracle"
"""Bucket: `ceiling` → the timestamp above all that were issued; `cluster` → the cluster's permanent
name; `machine` → the machine whose master certainly is the only one."""
CELLS: Final = "cells"
"""Bucket: cell → nothing; the cells whose logs belong to this cluster."""
COUNTERS: Final = "counters"
"""Bucket: `id` and `revision` → the largest that was ever given out."""
TABLES: Final = "tables"
"""Bucket: table id → `StoredTable`. Only committed tables."""
NODES: Final = "nodes"
"""Bucket: transaction, node id → `StoredNode`. Without a transaction it is the whole node, else it
is the transaction's change of the node."""
LOCKS: Final = "locks"
"""Bucket: transaction, node id, part of the node → `StoredLock`."""
TRANSACTIONS: Final = "transactions"
"""Bucket: transaction → `StoredTransaction`, while it is open."""
COMMITS: Final = "commits"
"""Bucket: revision → the transaction that committed with it. Only the last commits."""

CEILING: Final = b"ceiling"
CLUSTER: Final = b"cluster"
MACHINE: Final = b"machine"
LAST_ID: Final = b"id"
LAST_REVISION: Final = b"revision"

NUMBER_BYTES: Final = 8


class Put(msgspec.Struct, frozen=True, gc=False):
    """From now on `key` in `bucket` has this value."""

    bucket: str
    key: bytes
    value: bytes


class Remove(msgspec.Struct, frozen=True, gc=False):
    """From now on `key` in `bucket` has no value."""

    bucket: str
    key: bytes


Change = Put | Remove


class Group(msgspec.Struct, frozen=True, gc=False):
    """Changes of which all become durable, or none."""

    changes: tuple[Change, ...]


Record = Change | Group
Item = tuple[str, bytes, bytes]
"""(bucket, key, value), as a store returns it."""


class StoredTablet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One tablet of a table: its cell, which never changes once it is set, and its state. `sources`
    are the tablets from which it must still take over rows."""

    tablet: TabletId
    pivot_key: Key
    state: str
    cell: CellId | None
    revision: Revision
    sources: tuple[TabletSource, ...] = ()


@preload_decoder
class StoredTable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One table with all its tablets: a change of any tablet is one record. Tablets use
    `settings_mounted`, the settings at the last mount or remount. `revision` is that of the last
    mount, unmount, freeze, reshard or similar command. A report that a cell sent before it knew of
    this revision completes nothing."""

    table: int
    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    tablets: tuple[StoredTablet, ...]
    settings: TableSettings = TableSettings()
    settings_mounted: TableSettings = TableSettings()
    revision: Revision = Revision(0)


@preload_decoder
class StoredNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node of the tree, or a transaction's change of one. In a change, `attributes` are those
    that were set, and `attributes_removed` those that were removed. Attributes are MessagePack. A
    table that an open transaction made is inside its node. Any other table has the id of its
    node."""

    node: int
    parent: int
    name: str
    kind: NodeKind
    created_us: int
    modified_us: int
    attributes: dict[str, bytes] = {}
    attributes_removed: tuple[str, ...] = ()
    is_removed: bool = False
    table: StoredTable | None = None


class StoredSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node as it was when a snapshot lock was taken, and its path at that time."""

    path: str
    node: StoredNode
    children: dict[str, int]


@preload_decoder
class StoredLock(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A lock on a node, or on one of its attributes or the name of one of its children."""

    transaction: TreeTransactionId
    node: int
    mode: LockMode
    child: str | None = None
    attribute: str | None = None
    snapshot: StoredSnapshot | None = None


@preload_decoder
class StoredTransaction(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A master transaction that has not ended."""

    transaction: TreeTransactionId
    parent: TreeTransactionId
    timeout_ms: int
    title: str


class MasterState(msgspec.Struct, frozen=True):
    """All that a master knows after a restart."""

    ceiling: Timestamp = Timestamp(0)
    cluster: ClusterId = NO_CLUSTER
    machine: str = ""
    cells: tuple[CellId, ...] = ()
    """The cells that have joined."""
    last_id: int = 0
    last_revision: int = 0
    tables: tuple[StoredTable, ...] = ()
    nodes: tuple[tuple[TreeTransactionId, StoredNode], ...] = ()
    locks: tuple[StoredLock, ...] = ()
    transactions: tuple[StoredTransaction, ...] = ()
    commits: tuple[tuple[Revision, TreeTransactionId], ...] = ()
    """Sorted by revision."""


def changes_of(record: Record) -> tuple[Change, ...]:
    """Return the single changes of a record."""
    return record.changes if isinstance(record, Group) else (record,)


def encode_number(number: int) -> bytes:
    """Encode a number from 0 to 2^64 - 1, so that bytes sort as numbers do."""
    return number.to_bytes(NUMBER_BYTES, "big")


def decode_number(value: bytes) -> int:
    """Decode a number. Raises DataCorrupted."""
    if len(value) != NUMBER_BYTES:
        raise DataCorrupted("A stored number does not have 8 bytes.", value=value)
    return int.from_bytes(value, "big")


def put_ceiling(ceiling: Timestamp) -> Put:
    """Return the record of a new ceiling."""
    return Put(ORACLE, CEILING, encode_number(ceiling))


def put_cluster(cluster: ClusterId) -> Put:
    """Return the record of the cluster's name."""
    return Put(ORACLE, CLUSTER, encode_number(cluster))


def put_machine(machine: str) -> Put:
    """Return the record that the master on another machine has ended."""
    return Put(ORACLE, MACHINE, machine.encode())


def put_cell(cell: CellId) -> Put:
    """Return the record that a cell has joined."""
    return Put(CELLS, encode_number(cell), b"")


def put_table(table: StoredTable) -> Put:
    """Return the record of a table as it is now."""
    return Put(TABLES, encode_number(table.table), msgspec.msgpack.encode(table))


def remove_table(table: StoredTable) -> Remove:
    """Return the record that a table is removed."""
    return Remove(TABLES, encode_number(table.table))


def node_name(transaction: TreeTransactionId, node: int) -> bytes:
    """Return the key of a node, or of its change in a transaction."""
    return encode_number(transaction) + encode_number(node)


def put_node(transaction: TreeTransactionId, node: StoredNode) -> Put:
    """Return the record of a committed node, or of a transaction's change of a node."""
    return Put(NODES, node_name(transaction, node.node), msgspec.msgpack.encode(node))


def remove_node(transaction: TreeTransactionId, node: int) -> Remove:
    """Return the record that a node is gone, or its change in a transaction."""
    return Remove(NODES, node_name(transaction, node))


def put_lock(lock: StoredLock) -> Put:
    """Return the record of a lock."""
    return Put(LOCKS, _lock_name(lock), msgspec.msgpack.encode(lock))


def remove_lock(lock: StoredLock) -> Remove:
    """Return the record that a lock has ended."""
    return Remove(LOCKS, _lock_name(lock))


def _lock_name(lock: StoredLock) -> bytes:
    """Return the key of a lock. It fits into a key of the store: names are short, and ASCII."""
    part = "" if lock.child is None else f"/{lock.child}"
    part = part if lock.attribute is None else f"@{lock.attribute}"
    return node_name(lock.transaction, lock.node) + f"{lock.mode[:2]}{part}".encode()


def put_transaction(transaction: StoredTransaction) -> Put:
    """Return the record that a transaction has begun."""
    name = encode_number(transaction.transaction)
    return Put(TRANSACTIONS, name, msgspec.msgpack.encode(transaction))


def remove_transaction(transaction: TreeTransactionId) -> Remove:
    """Return the record that a transaction has ended."""
    return Remove(TRANSACTIONS, encode_number(transaction))


def put_commit(revision: Revision, transaction: TreeTransactionId) -> Put:
    """Return the record of a transaction's commit."""
    return Put(COMMITS, encode_number(revision), encode_number(transaction))


def remove_commit(revision: Revision) -> Remove:
    """Return the record that a commit is forgotten."""
    return Remove(COMMITS, encode_number(revision))


def state_from_items(items: Iterable[Item]) -> MasterState:
    """Return the state that a store's items describe. Raises DataCorrupted on an unknown item."""
    names = (ORACLE, CEILING), (ORACLE, CLUSTER), (COUNTERS, LAST_ID), (COUNTERS, LAST_REVISION)
    numbers = dict.fromkeys(names, 0)
    stored: Mapping[str, dict[bytes, Any]] = {bucket: {} for bucket in _kinds}
    commits: list[tuple[Revision, TreeTransactionId]] = []
    cells: list[CellId] = []
    machine = ""
    for bucket, key, value in items:
        if (bucket, key) in numbers:
            numbers[bucket, key] = decode_number(value)
        elif (bucket, key) == (ORACLE, MACHINE):
            machine = value.decode(errors="replace")
        elif bucket == CELLS:
            cells.append(CellId(decode_number(key)))
        elif bucket == COMMITS:
            commits.append((Revision(decode_number(key)), TreeTransactionId(decode_number(value))))
        elif bucket in stored:
            stored[bucket][key] = _decode(value, _kinds[bucket])
        else:
            raise DataCorrupted("The store has an item of an unknown kind.", bucket=bucket, key=key)
    in_order = {bucket: dict(sorted(stored[bucket].items())) for bucket in _kinds}
    return MasterState(
        ceiling=Timestamp(numbers[ORACLE, CEILING]),
        cluster=ClusterId(numbers[ORACLE, CLUSTER]),
        machine=machine,
        cells=tuple(sorted(cells)),
        last_id=numbers[COUNTERS, LAST_ID],
        last_revision=numbers[COUNTERS, LAST_REVISION],
        tables=tuple(in_order[TABLES].values()),
        nodes=tuple((_transaction_of(key), node) for key, node in in_order[NODES].items()),
        locks=tuple(in_order[LOCKS].values()),
        transactions=tuple(in_order[TRANSACTIONS].values()),
        commits=tuple(sorted(commits)),
    )


_kinds: Final[Mapping[str, type[Any]]] = {
    TABLES: StoredTable,
    NODES: StoredNode,
    LOCKS: StoredLock,
    TRANSACTIONS: StoredTransaction,
}


def _transaction_of(key: bytes) -> TreeTransactionId:
    return TreeTransactionId(decode_number(key[:NUMBER_BYTES]))


Stored = TypeVar("Stored")


def _decode(value: bytes, kind: type[Stored]) -> Stored:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataCorrupted(f"A stored {kind.__name__} can't be read: {error}.") from error
