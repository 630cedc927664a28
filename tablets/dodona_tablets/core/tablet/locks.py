"""Keep row locks, with the conflict rules of snapshot isolation.

Owns: when a transaction may lock a row, must wait, or has lost. Source: the YTsaurus document,
"Checking transaction conflicts". The rules are not symmetric. A transaction takes locks on the
groups that it requests. But every transaction also checks the main lock, and a holder of the main
lock checks all groups.
Locks are held only while a transaction commits, in a table of their own. So rows without locks pay
nothing for them. The times of last changes are in the versions in memory. Locks without data leave
their times behind, until no transaction could conflict with them any more.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from dodona_tablets.core.counts import CONFLICTS
from dodona_tablets.core.rows.version import Version, bits_of
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.errors import TransactionConflict
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import RowLock, TabletModifications
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import MAX_TIMESTAMP, Key, LockType, SpecialWrites, Timestamp

KINDS: Final[dict[LockType, int]] = {
    "exclusive": 0,
    "shared_write": 1,
    "shared_weak": 2,
    "shared_strong": 2,
}
"""The kind of each type of lock. Types of one kind conflict in the same way. The numbers are places
of masks in a `Watch`."""
WRITTEN: Final = ("written", "written in shared mode")
LOCKED: Final = ("locked", "locked in shared mode", "read-locked")
"""Verbs for committed locks without data."""
HELD: Final = ("locked for a write", "locked for a shared write", "locked for reading")
CONFLICT_BY_VERB: Final = dict(zip((*WRITTEN, *LOCKED, *HELD), CONFLICTS, strict=False))

Watch = tuple[int, int, int]
"""For each kind of lock that another transaction has: the lock groups in which it is in the way."""


class Holder:
    """A transaction's locks on one row while it commits, as masks of lock groups.

    `lock_type` is the type of a lock without data, which leaves its time behind at a commit. It is
    None for a write, which leaves a version instead.
    """

    __slots__ = ("exclusive", "lock_type", "shared", "shared_write", "transaction")

    def __init__(
        self,
        transaction: Transaction,
        exclusive: int,
        shared_write: int = 0,
        shared: int = 0,
        lock_type: LockType | None = None,
    ) -> None:
        self.transaction = transaction
        self.exclusive = exclusive
        self.shared_write = shared_write
        self.shared = shared
        self.lock_type = lock_type


class RowLocks:
    """The transactions that hold locks on one row, and the times when locks without data were last
    committed on it. The times are by type, then by group."""

    __slots__ = ("holders", "times")

    def __init__(self) -> None:
        self.holders: list[Holder] = []
        self.times: dict[LockType, dict[int, Timestamp]] | None = None

    def remember(self, lock_type: LockType, groups: int, timestamp: Timestamp) -> None:
        """Note that a lock without data was committed."""
        if self.times is None:
            self.times = {}
        times = self.times.setdefault(lock_type, {})
        for group in bits_of(groups):
            times[group] = max(times.get(group, timestamp), timestamp)

    def forget(self, needed: Timestamp) -> None:
        """Forget the times if all are at or below `needed`: no transaction can conflict with
        them."""
        if self.times is not None and all(max(it.values()) <= needed for it in self.times.values()):
            self.times = None

    @property
    def is_idle(self) -> bool:
        """Whether the row looks like one that was never locked."""
        return not self.holders and self.times is None


LockTable = dict[Key, RowLocks]
"""The locks of one tablet: the rows that are locked, or were read-locked recently."""


class Lost(Exception):
    """The transaction cannot have its locks: refuse it with this failure. `conflict` is one of
    `CONFLICTS`, or None if there is no conflict."""

    def __init__(self, failure: Failure, conflict: str | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.conflict = conflict


def check_versions(
    newest: Version | None,
    key: Key,
    schema: TableSchema,
    start: Timestamp,
    exclusive: int,
    shared_write: int,
    shared: int,
) -> None:
    """Raise Lost if a version newer than a transaction's start is in the way of these locks.
    `newest` is the head of a chain of the row. For a row with several chains, call this for
    each."""
    if newest is None or newest[0] <= start:
        return
    watch = _watch(schema, exclusive, shared_write, shared)
    while newest is not None and newest[0] > start:
        groups = schema.lock_mask(newest[1])
        if len(newest) == 6:
            overlap = newest[5] & watch[1]
            if overlap:
                raise _lost(key, schema, overlap, WRITTEN[1], start, winner_timestamp=newest[0])
            groups &= ~newest[5]
        overlap = groups & watch[0]
        if overlap:
            raise _lost(key, schema, overlap, WRITTEN[0], start, winner_timestamp=newest[0])
        newest = newest[3]


def check_locks(
    locks: RowLocks,
    key: Key,
    schema: TableSchema,
    start: Timestamp,
    exclusive: int,
    shared_write: int,
    shared: int,
) -> Transaction | None:
    """Check whether a transaction may take these locks of this row. Raises Lost if it never may.

    Returns the transaction to wait for, if that one was prepared before `start`. Its outcome
    decides: wait, then check again. Returns None if the locks are free. A blind transaction, whose
    start is `MAX_TIMESTAMP`, waits for any holder. It holds nothing that others could wait for.
    """
    watch = _watch(schema, exclusive, shared_write, shared)
    if locks.times is not None:
        _check_times(locks, watch, key, schema, start)
    return _check_holders(locks, watch, key, schema, start)


def _watch(schema: TableSchema, exclusive: int, shared_write: int, shared: int) -> Watch:
    alone = schema.check_mask(exclusive) if exclusive else 0
    together = schema.check_mask(shared_write) if shared_write else 0
    reading = schema.check_mask(shared) if shared else 0
    return alone | together | reading, alone | reading, alone | together


def _check_times(
    locks: RowLocks, watch: Watch, key: Key, schema: TableSchema, start: Timestamp
) -> None:
    """Raise Lost if a lock without data that is in the way was committed after `start`."""
    for lock_type, times in (locks.times or {}).items():
        kind = KINDS[lock_type]
        for group, at in times.items():
            if at > start and watch[kind] >> group & 1:
                raise _lost(key, schema, 1 << group, LOCKED[kind], start, winner_timestamp=at)


def _check_holders(
    locks: RowLocks, watch: Watch, key: Key, schema: TableSchema, start: Timestamp
) -> Transaction | None:
    waits_for: Transaction | None = None
    for holder in locks.holders:
        overlaps = _overlaps(holder, watch)
        if not any(overlaps):
            continue
        other = holder.transaction
        if is_met(other, start):
            waits_for = waits_for or other
            continue
        kind = next(kind for kind, overlap in enumerate(overlaps) if overlap)
        raise _lost(key, schema, overlaps[kind], HELD[kind], start, winner=other.id)
    return waits_for


def _overlaps(holder: Holder, watch: Watch) -> list[int]:
    """Return, by kind, the groups that the holder has and that are in the way."""
    held = holder.exclusive, holder.shared_write, holder.shared
    return [groups & watched for groups, watched in zip(held, watch, strict=True)]


def awaited(
    locks: RowLocks, schema: TableSchema, start: Timestamp, kinds: tuple[int, int, int]
) -> Transaction | None:
    """Return the first transaction whose outcome a transaction must wait for if it wants these
    groups, by kind. Return None if there is none."""
    watch = _watch(schema, *kinds)
    for holder in locks.holders:
        if any(_overlaps(holder, watch)) and is_met(holder.transaction, start):
            return holder.transaction
    return None


def is_met(other: Transaction, start: Timestamp) -> bool:
    """Return whether a transaction waits for the outcome of another one in its way. Otherwise it
    loses immediately. It waits if it began after the other one was prepared, or if it begins when
    its locks are free."""
    is_before = other.state is State.PREPARED and other.prepare_timestamp < start
    return is_before or start == MAX_TIMESTAMP


def _lost(
    key: Key, schema: TableSchema, overlap: int, verb: str, start: Timestamp, **winner: int
) -> Lost:
    lock = schema.lock_names[next(bits_of(overlap))]
    columns = dict(zip(schema.key_names, schema.decode_key(key), strict=True))
    message = f"row {columns} was {verb} by a concurrent transaction"
    attributes = {"key": columns, "lock": lock, "start_timestamp": start, **winner}
    return Lost(Failure(TransactionConflict.kind, message, attributes), CONFLICT_BY_VERB[verb])


def groups_of(lock: RowLock) -> tuple[int, int, int]:
    """Return the groups that a lock without data takes, by kind."""
    kind, mask = KINDS[lock.lock_type], lock.lock_mask
    return mask if kind == 0 else 0, mask if kind == 1 else 0, mask if kind == 2 else 0


def shared_groups(special: SpecialWrites, key: Key) -> int:
    """Return the lock groups that the write of this key takes by `shared_write`."""
    return special[key][1] if key in special else 0


def locks_of(
    schema: TableSchema, part: TabletModifications
) -> Iterator[tuple[Key, tuple[int, int, int]]]:
    """Yield each row with the groups to lock, by kind."""
    special = part.special
    for key, mask, _ in schema.plain_writes(part.writes):
        together = 0 if special is None else shared_groups(special, key)
        yield key, (schema.lock_mask(mask) & ~together, together, 0)
    for lock in part.locks:
        yield lock.key, groups_of(lock)


def acquire(table: LockTable, key: Key, holder: Holder) -> None:
    """Take the locks, which were found free."""
    locks = table.get(key)
    if locks is None:
        locks = table[key] = RowLocks()
    locks.holders.append(holder)
    holder.transaction.held.append((table, key, holder))


def release(transaction: Transaction, commit_timestamp: Timestamp | None) -> None:
    """Release all locks. At a commit, locks without data leave their time behind, except weak
    ones."""
    for table, key, holder in transaction.held:
        locks = table[key]
        holders = locks.holders
        if len(holders) == 1:
            assert holders[0] is holder
            holders.clear()
        else:
            holders.remove(holder)
        lock_type = holder.lock_type
        if lock_type is not None and lock_type != "shared_weak" and commit_timestamp is not None:
            groups = holder.exclusive | holder.shared_write | holder.shared
            locks.remember(lock_type, groups, commit_timestamp)
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
        if (holder.exclusive | holder.shared_write) & groups:
            other = holder.transaction
            if other.state is State.PREPARED:
                if other.prepare_timestamp <= timestamp:
                    return other
            elif other.id < timestamp:
                return other
    return None
