"""Row locks and the conflict rules of snapshot isolation.

Owns: when a transaction may lock a row, must wait, or has lost. Source: the YTsaurus document,
"Checking transaction conflicts", with its asymmetry: locks are acquired on the groups asked for,
but everyone also looks at the main lock, and a holder of the main lock looks at all groups.
Locks are held only while committing. Times of last modification are read off the versions; locks
without data leave theirs with the row.
"""

from typing import Final

from dodona._core.messages import Failure, RowLock
from dodona.errors import TransactionConflict
from dodona.schema import TableSchema
from dodona.types import MAX_TIMESTAMP, Key, LockType, Timestamp
from dodona_tablets.core.row import Holder, Row, bits_of
from dodona_tablets.core.transaction import State, Transaction

KINDS: Final[dict[LockType, int]] = {
    "exclusive": 0,
    "shared_write": 1,
    "shared_weak": 2,
    "shared_strong": 2,
}
"""The kinds of locks as far as conflicts go, in the order of the masks of a `Watch`."""
DONE: Final = ("written", "written in shared mode", "read-locked")
HELD: Final = ("locked for a write", "locked for a shared write", "locked for reading")

Watch = tuple[int, int, int]
"""The lock groups in which each kind of lock of somebody else stands in our way."""


class Lost(Exception):
    """The transaction can't have its locks: refuse it with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def check_row(
    row: Row,
    key: Key,
    schema: TableSchema,
    start: Timestamp,
    exclusive: int,
    shared_write: int,
    shared: int,
) -> Transaction | None:
    """May a transaction lock these groups of this row so? Raises Lost if it never may.

    Returns the transaction to wait for, if the row is prepared from before our start (its outcome
    decides: wait, then check again), or None if the locks are free. A blind transaction, whose
    start is `MAX_TIMESTAMP`, waits for any holder: it holds nothing that others could wait for.
    """
    alone = schema.check_mask(exclusive) if exclusive else 0
    together = schema.check_mask(shared_write) if shared_write else 0
    reading = schema.check_mask(shared) if shared else 0
    for_exclusive, for_shared_write = alone | together | reading, alone | reading
    for version in reversed(row.versions):
        if version[0] <= start:
            break
        groups = schema.lock_mask(version[1])
        if len(version) == 5:
            overlap = version[4] & for_shared_write
            if overlap:
                raise _lost(key, schema, overlap, DONE[1], start, winner_timestamp=version[0])
            groups &= ~version[4]
        overlap = groups & for_exclusive
        if overlap:
            raise _lost(key, schema, overlap, DONE[0], start, winner_timestamp=version[0])
    if row.lock_times is None and not row.holders:
        return None
    watch = for_exclusive, for_shared_write, alone | together
    _check_times(row, watch, key, schema, start)
    return _check_holders(row, watch, key, schema, start)


def _check_times(row: Row, watch: Watch, key: Key, schema: TableSchema, start: Timestamp) -> None:
    """Raises Lost if a lock without data was committed after our start."""
    for lock_type, times in (row.lock_times or {}).items():
        kind = KINDS[lock_type]
        for group, at in times.items():
            if at > start and watch[kind] >> group & 1:
                raise _lost(key, schema, 1 << group, DONE[kind], start, winner_timestamp=at)


def _check_holders(
    row: Row, watch: Watch, key: Key, schema: TableSchema, start: Timestamp
) -> Transaction | None:
    waits_for: Transaction | None = None
    for holder in row.holders or ():
        held = holder.exclusive, holder.shared_write, holder.shared
        overlaps = [groups & watched for groups, watched in zip(held, watch, strict=True)]
        if not any(overlaps):
            continue
        other = holder.transaction
        is_before = other.state is State.PREPARED and other.prepare_timestamp < start
        if is_before or start == MAX_TIMESTAMP:
            waits_for = waits_for or other
            continue
        kind = next(kind for kind, overlap in enumerate(overlaps) if overlap)
        raise _lost(key, schema, overlaps[kind], HELD[kind], start, winner=other.id)
    return waits_for


def _lost(
    key: Key, schema: TableSchema, overlap: int, verb: str, start: Timestamp, **winner: int
) -> Lost:
    lock = schema.lock_names[next(bits_of(overlap))]
    columns = dict(zip(schema.key_names, schema.decode_key(key), strict=True))
    message = f"row {columns} was {verb} by a concurrent transaction"
    attributes = {"key": columns, "lock": lock, "start_timestamp": start, **winner}
    return Lost(Failure(TransactionConflict.kind, message, attributes))


def groups_of(lock: RowLock) -> tuple[int, int, int]:
    """The groups that a lock without data takes, by kind."""
    kind, mask = KINDS[lock.lock_type], lock.lock_mask
    return mask if kind == 0 else 0, mask if kind == 1 else 0, mask if kind == 2 else 0


def acquire(row: Row, holder: Holder) -> None:
    """Take the locks, which `check_row` found free."""
    if row.holders is None:
        row.holders = [holder]
    else:
        row.holders.append(holder)
    holder.transaction.held.append((row, holder))


def release(transaction: Transaction, commit_timestamp: Timestamp | None) -> None:
    """Let go of all locks; at a commit those without data leave their time behind, except weak
    ones."""
    for row, holder in transaction.held:
        holders = row.holders
        assert holders is not None
        if len(holders) == 1:
            assert holders[0] is holder
            row.holders = None
        else:
            holders.remove(holder)
        lock_type = holder.lock_type
        if lock_type is None or lock_type == "shared_weak" or commit_timestamp is None:
            continue
        groups = holder.exclusive | holder.shared_write | holder.shared
        row.remember(lock_type, groups, commit_timestamp)
    transaction.held.clear()


def blocking_reader(row: Row, schema_mask: int, timestamp: Timestamp) -> Transaction | None:
    """The transaction that a read of these lock groups (main included) must wait for.

    Only writers block readers: prepared at or below the read's timestamp, or locked without a
    prepare timestamp yet by a transaction that began before the read's timestamp.
    """
    for holder in row.holders or ():
        if (holder.exclusive | holder.shared_write) & schema_mask:
            other = holder.transaction
            if other.state is State.PREPARED:
                if other.prepare_timestamp <= timestamp:
                    return other
            elif other.id < timestamp:
                return other
    return None
