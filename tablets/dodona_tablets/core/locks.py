"""Row locks and the conflict rules of snapshot isolation.

Owns: when a transaction may lock a row, must wait, or has lost. Source: the YTsaurus document,
"Checking transaction conflicts", with its asymmetry: locks are acquired on the groups asked for,
but everyone also looks at the main lock, and a holder of the main lock looks at all groups.
Locks are held only while committing. Times of last modification are read off the versions.
"""

from dodona._core.messages import Failure
from dodona.errors import TransactionConflict
from dodona.schema import TableSchema
from dodona.types import MAX_TIMESTAMP, Key, Timestamp
from dodona_tablets.core.row import Holder, Row, bits_of
from dodona_tablets.core.transaction import State, Transaction


class Lost(Exception):
    """The transaction can't have its locks: refuse it with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def check_row(
    row: Row, key: Key, schema: TableSchema, start: Timestamp, exclusive: int, shared: int
) -> Transaction | None:
    """May a transaction lock this row so? Raises Lost if it never may.

    Returns the transaction to wait for, if the row is prepared from before our start (its outcome
    decides: wait, then check again), or None if the locks are free. A blind transaction, whose
    start is `MAX_TIMESTAMP`, waits for any holder: it holds nothing that others could wait for.
    """
    exclusive_check = schema.check_mask(exclusive) if exclusive else 0
    all_check = exclusive_check | (schema.check_mask(shared) if shared else 0)
    for version in reversed(row.versions):
        if version[0] <= start:
            break
        overlap = schema.lock_mask(version[1]) & all_check
        if overlap:
            raise _lost(key, schema, overlap, "written", start, winner_timestamp=version[0])
    if row.read_locked_until is not None and exclusive:
        for group, until in row.read_locked_until.items():
            if until > start and exclusive_check >> group & 1:
                raise _lost(key, schema, 1 << group, "read-locked", start, winner_timestamp=until)
    if row.holders:
        return _check_holders(row.holders, key, schema, start, exclusive_check, all_check)
    return None


def _check_holders(
    holders: list[Holder],
    key: Key,
    schema: TableSchema,
    start: Timestamp,
    exclusive_check: int,
    all_check: int,
) -> Transaction | None:
    waits_for: Transaction | None = None
    for holder in holders:
        overlap = holder.exclusive & all_check | holder.shared & exclusive_check
        if not overlap:
            continue
        other = holder.transaction
        is_before = other.state is State.PREPARED and other.prepare_timestamp < start
        if is_before or start == MAX_TIMESTAMP:
            waits_for = waits_for or other
            continue
        verb = "locked for writing" if holder.exclusive & overlap else "read-locked"
        raise _lost(key, schema, overlap, verb, start, winner=other.id)
    return waits_for


def _lost(
    key: Key, schema: TableSchema, overlap: int, verb: str, start: Timestamp, **winner: int
) -> Lost:
    lock = schema.lock_names[next(bits_of(overlap))]
    columns = dict(zip(schema.key_names, schema.decode_key(key), strict=True))
    message = f"row {columns} was {verb} by a concurrent transaction"
    attributes = {"key": columns, "lock": lock, "start_timestamp": start, **winner}
    return Lost(Failure(TransactionConflict.kind, message, attributes))


def acquire(row: Row, transaction: Transaction, exclusive: int, shared: int, strong: int) -> None:
    """Take the locks, which `check_row` found free."""
    holder = Holder(transaction, exclusive, shared, strong)
    if row.holders is None:
        row.holders = [holder]
    else:
        row.holders.append(holder)
    transaction.held.append((row, holder))


def release(transaction: Transaction, commit_timestamp: Timestamp | None) -> None:
    """Let go of all locks; at a commit strong read locks leave their time behind."""
    for row, holder in transaction.held:
        holders = row.holders
        assert holders is not None
        if len(holders) == 1:
            assert holders[0] is holder
            row.holders = None
        else:
            holders.remove(holder)
        if commit_timestamp is not None and holder.strong:
            until = row.read_locked_until = row.read_locked_until or {}
            for group in bits_of(holder.strong):
                until[group] = max(until.get(group, commit_timestamp), commit_timestamp)
    transaction.held.clear()


def blocking_reader(row: Row, schema_mask: int, timestamp: Timestamp) -> Transaction | None:
    """The transaction that a read of these lock groups (main included) must wait for.

    Only writers block readers: prepared at or below the read's timestamp, or locked without a
    prepare timestamp yet by a transaction that began before the read's timestamp.
    """
    for holder in row.holders or ():
        if holder.exclusive & schema_mask:
            other = holder.transaction
            if other.state is State.PREPARED:
                if other.prepare_timestamp <= timestamp:
                    return other
            elif other.id < timestamp:
                return other
    return None
