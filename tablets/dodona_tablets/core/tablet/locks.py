"""Take and check row locks, by the conflict rules of snapshot isolation.

Owns: when a transaction may lock a row, must wait, or has lost. Source: the YTsaurus document,
"Checking transaction conflicts". `lock_set` has the types of locks, and which of them conflict. The
rules are not symmetric. A transaction takes locks on the groups that it requests. But every
transaction also checks the main lock, and a holder of the main lock checks all groups.
"""

from collections.abc import Iterable

from dodona_tablets.core.rows.version import Version, bits_of
from dodona_tablets.core.tablet.lock_set import (
    EXCLUSIVE,
    KINDS,
    SHARED_WRITE,
    TYPES,
    WRITTEN,
    WRITTEN_SHARED,
    LockSet,
    Meeting,
    Watched,
    lock_locks,
    shared_groups_of,
    write_locks,
)
from dodona_tablets.core.tablet.transaction import (
    Holder,
    LockTable,
    RowLocks,
    State,
    Transaction,
)
from dodona_wire.errors import TransactionConflict
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import TabletModifications
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import MAX_TIMESTAMP, Key, Timestamp


class Lost(Exception):
    """The transaction cannot have its locks: refuse it with this failure. `conflict` is one of
    `CONFLICTS`, or None if there is no conflict."""

    def __init__(self, failure: Failure, conflict: str | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.conflict = conflict


def check_versions(
    newest: Version | None, key: Key, schema: TableSchema, start: Timestamp, wanted: LockSet
) -> None:
    """Raise Lost if a version newer than a transaction's start is in the way of these locks.
    `newest` is the head of a chain of the row. For a row with several chains, call this for
    each."""
    if newest is None or newest[0] <= start:
        return
    watched = wanted.watched(schema)
    while newest is not None and newest[0] > start:
        groups = schema.lock_mask(newest[1])
        if len(newest) == 6:
            overlap = newest[5] & watched[SHARED_WRITE]
            if overlap:
                raise _lost(key, schema, overlap, WRITTEN_SHARED, start, winner_timestamp=newest[0])
            groups &= ~newest[5]
        overlap = groups & watched[EXCLUSIVE]
        if overlap:
            raise _lost(key, schema, overlap, WRITTEN, start, winner_timestamp=newest[0])
        newest = newest[3]


def check_locks(
    locks: RowLocks, key: Key, schema: TableSchema, start: Timestamp, wanted: LockSet
) -> Transaction | None:
    """Check whether a transaction may take these locks of this row. Raises Lost if it never may.

    Returns the transaction to wait for, if that one was prepared before `start`. Its outcome
    decides: wait, then check again. Returns None if the locks are free. A blind transaction, whose
    start is `MAX_TIMESTAMP`, waits for any holder. It holds nothing that others could wait for.
    """
    watched = wanted.watched(schema)
    if locks.times is not None:
        _check_times(locks, watched, key, schema, start)
    return check_holders(locks, watched, key, schema, start)


def _check_times(
    locks: RowLocks, watched: Watched, key: Key, schema: TableSchema, start: Timestamp
) -> None:
    """Raise Lost if a lock without data that is in the way was committed after `start`."""
    for lock_type, times in (locks.times or {}).items():
        kind = TYPES[lock_type].kind
        for group, at in times.items():
            if at > start and watched[kind] >> group & 1:
                met = KINDS[kind].locked
                raise _lost(key, schema, 1 << group, met, start, winner_timestamp=at)


def check_holders(
    locks: RowLocks, watched: Watched, key: Key, schema: TableSchema, start: Timestamp
) -> Transaction | None:
    """Do what `check_locks` does, for the transactions that hold locks now."""
    waits_for: Transaction | None = None
    for holder in locks.holders:
        overlap = holder.locks.overlap(watched)
        if overlap is None:
            continue
        other = holder.transaction
        if is_met(other, start):
            waits_for = waits_for or other
            continue
        kind, groups = overlap
        raise _lost(key, schema, groups, KINDS[kind].held, start, winner=other.id)
    return waits_for


def awaited(
    locks: RowLocks, schema: TableSchema, start: Timestamp, wanted: LockSet
) -> Transaction | None:
    """Return the first transaction whose outcome a transaction must wait for if it wants these
    locks. Return None if there is none."""
    watched = wanted.watched(schema)
    for holder in locks.holders:
        if holder.locks.overlap(watched) is not None and is_met(holder.transaction, start):
            return holder.transaction
    return None


def is_met(other: Transaction, start: Timestamp) -> bool:
    """Return whether a transaction waits for the outcome of another one in its way. Otherwise it
    loses immediately. It waits if it began after the other one was prepared, or if it begins when
    its locks are free."""
    is_before = other.state is State.PREPARED and other.prepare_timestamp < start
    return is_before or start == MAX_TIMESTAMP


def _lost(
    key: Key, schema: TableSchema, overlap: int, met: Meeting, start: Timestamp, **winner: int
) -> Lost:
    lock = schema.lock_names[next(bits_of(overlap))]
    columns = dict(zip(schema.key_names, schema.decode_key(key), strict=True))
    message = f"row {columns} was {met.verb} by a concurrent transaction"
    attributes = {"key": columns, "lock": lock, "start_timestamp": start, **winner}
    return Lost(Failure(TransactionConflict.kind, message, attributes), met.name)


def acquire_all(
    table: LockTable, schema: TableSchema, transaction: Transaction, part: TabletModifications
) -> None:
    """Take all locks of a transaction in one tablet, which were found free."""
    special, last_mask = part.special, -1
    for key, mask, _ in schema.plain_writes(part.writes):
        if mask != last_mask or special is not None:
            last_mask = mask
            together = 0 if special is None else shared_groups_of(special, key)
            holder = Holder(transaction, write_locks(schema.lock_mask(mask), together))
        acquire(table, key, holder)
    for lock in part.locks:
        wanted = lock_locks(lock.lock_mask, lock.lock_type)
        acquire(table, lock.key, Holder(transaction, wanted, lock.lock_type))


def acquire(table: LockTable, key: Key, holder: Holder) -> None:
    """Take the locks of one row."""
    locks = table.get(key)
    if locks is None:
        locks = table[key] = RowLocks()
    locks.holders.append(holder)
    holder.transaction.held.append((table, key, holder))


def release(transaction: Transaction, commit_timestamp: Timestamp | None) -> None:
    """Release all locks. At a commit, locks without data leave their time behind, if their type
    does."""
    for table, key, holder in transaction.held:
        locks = table[key]
        holders = locks.holders
        if len(holders) == 1:
            assert holders[0] is holder
            holders.clear()
        else:
            holders.remove(holder)
        lock_type = holder.lock_type
        if lock_type is not None and commit_timestamp is not None and TYPES[lock_type].leaves_time:
            locks.remember(lock_type, holder.locks.groups, commit_timestamp)
        if not holders and locks.times is None:
            del table[key]
    transaction.held.clear()


def blocking_reader(
    holders: Iterable[Holder], groups: int, timestamp: Timestamp
) -> Transaction | None:
    """Return the transaction that a read of these lock groups (main included) must wait for, or
    None.

    Only writers block readers. A prepared writer blocks reads at or above its prepare timestamp. A
    writer without a prepare timestamp blocks reads above its start.
    """
    for holder in holders:
        if holder.locks.blocking_reads & groups:
            other = holder.transaction
            if other.state is State.PREPARED:
                if other.prepare_timestamp <= timestamp:
                    return other
            elif other.id < timestamp:
                return other
    return None
