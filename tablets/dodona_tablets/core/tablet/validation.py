"""Validate what a serializable transaction has read, and keep writers off it until the outcome.

Owns: when a read is not valid any more. Also owns when a transaction waits for a writer of what it
has read, and when for a reader of what it writes. `read_holds` has the reads of transactions that
commit now. Source: `docs/explanation/commit-protocol.md#serializable`. `tests/serializable_model`
explores this.

Invariants:
- A read is checked and held in one step. So no writer comes between.
- Everything that a transaction could find changed is in memory (see `locks`), or in a load that was
  published lately.
- The presence of a row belongs to all of its lock groups. A change in another group counts if the
  row was absent.
- No chain of waiting is a circle. A writer that holds locks elsewhere waits only for readers that
  began before it.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from dodona_tablets.core.rows.recent_keys import RecentKeys
from dodona_tablets.core.rows.version import Version
from dodona_tablets.core.tablet.lock_set import LockSet, Watched, lock_locks
from dodona_tablets.core.tablet.locks import Lost, check_versions, is_met
from dodona_tablets.core.tablet.publications import PublicationRows
from dodona_tablets.core.tablet.publishing import wait_or_lose
from dodona_tablets.core.tablet.read_holds import ReadHold, ReadHolds, is_one_row
from dodona_tablets.core.tablet.snapshot import Look, values_of
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import RowLocks, Transaction
from dodona_wire.errors import DataCorrupted, TransactionConflict
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Lookup, TabletModifications
from dodona_wire.messages.reads import ReadRange
from dodona_wire.rows.columns import MAIN_LOCK_MASK
from dodona_wire.types import KEY_MAX, KEY_MIN, MAX_TIMESTAMP, Key, Timestamp

READ_CHANGED, READ_MET, HELD = "read_changed", "read_met", "held_by_reader"
"""The names under which conflicts are counted: what was read has changed, a writer held it, or a
reader held what the transaction writes."""


# The reads of a transaction


def check_reads(
    transaction: Transaction, tablet: Tablet, part: TabletModifications
) -> Transaction | None:
    """Check whether all that was read is as it was then. Return the transaction whose outcome
    decides that, or None. Raises Lost for the first read that is not valid."""
    waits_for = None
    for read in part.reads:
        try:
            waits_for = _check_read(transaction, tablet, read) or waits_for
        except Lost as lost:
            lost.failure.attributes.update(_named(tablet, read))
            raise
    return waits_for


def _check_read(transaction: Transaction, tablet: Tablet, read: ReadRange) -> Transaction | None:
    since, waits_for = transaction.read_at, None
    for key in _changed_keys(tablet, read, since):
        _check_changes(tablet, read, key, since)
    for it in tablet.published:
        if it.timestamp > since and _has_rows(it.rows, read):
            raise _changed_by_load(it.timestamp, since)
    for key, held in _locked_rows(tablet, read):
        waits_for = _check_writers(transaction, tablet, read, key, held) or waits_for
    publishing = tablet.publishing
    if publishing is not None and publishing.rows.meets(read.lower, read.upper):
        waits_for = wait_or_lose(transaction, publishing.transaction, tablet, None)
    return waits_for


def _changed_keys(tablet: Tablet, read: ReadRange, since: Timestamp) -> Iterable[Key]:
    """Return the rows of a read that have a version above a timestamp."""
    stores = [it for it in tablet.stores.in_memory if it.max_timestamp > since]
    if not stores:
        return ()
    if is_one_row(read):
        return (read.lower,)
    if tablet.recent is None:
        tablet.recent = RecentKeys(max([it.max_timestamp for it in stores]))
    known = tablet.recent.changed_after(since, read.lower, read.upper)
    if known is not None:
        return known
    return chain(*[it.changed_after(since, read.lower, read.upper) for it in stores])


def _check_changes(tablet: Tablet, read: ReadRange, key: Key, since: Timestamp) -> None:
    """Raise Lost if a change of a row above a timestamp is one of what was read."""
    heads = [it.rows.get(key) for it in tablet.stores.in_memory]
    newer: list[Version] = [it for it in heads if it is not None and it[0] > since]
    if not newer:
        return
    wanted = lock_locks(_groups(tablet, key, read.lock_mask, since), "shared_weak")
    for newest in newer:
        try:
            check_versions(newest, key, tablet.schema, since, wanted)
        except Lost as lost:
            raise Lost(lost.failure, READ_CHANGED) from None


def _locked_rows(tablet: Tablet, read: ReadRange) -> Iterator[tuple[Key, RowLocks]]:
    """Yield the rows of a read that transactions hold."""
    locks = tablet.locks
    if is_one_row(read):
        if read.lower in locks:
            yield read.lower, locks[read.lower]
        return
    for key, held in locks.items():
        if read.lower <= key < read.upper:
            yield key, held


def _check_writers(
    transaction: Transaction, tablet: Tablet, read: ReadRange, key: Key, held: RowLocks
) -> Transaction | None:
    """Check the writers that hold a row of a read. A lock without data changes nothing."""
    writers = [it for it in held.holders if it.lock_type is None]
    if not writers:
        return None
    watched = _watched(tablet, key, read.lock_mask)
    waits_for = None
    for writer in writers:
        if writer.locks.overlap(watched) is None:
            continue
        other = writer.transaction
        if not is_met(other, transaction.start):
            text = f"row {tablet.schema.named_key(key)} is being written by a transaction"
            attributes = {"key": tablet.schema.named_key(key), "winner": other.id}
            raise _lost(text, transaction.start, READ_MET, attributes)
        waits_for = waits_for or other
    return waits_for


# The writes of a transaction, where others have read


def check_holds(
    transaction: Transaction, tablet: Tablet, part: TabletModifications, holds: ReadHolds
) -> Transaction | None:
    """Check whether a transaction may write its rows, which others may have read. Return the
    transaction to wait for, or None. Raises Lost."""
    waits_for, schema = None, tablet.schema
    for key, mask, _ in schema.plain_writes(part.writes):
        for hold in holds.of(key):
            groups = LockSet(schema.lock_mask(mask))
            if groups.overlap(_watched(tablet, key, hold.read.lock_mask)) is not None:
                waits_for = _wait_for(transaction, tablet, hold, key)
    return waits_for


def check_holds_of_load(
    transaction: Transaction, tablet: Tablet, rows: PublicationRows, holds: ReadHolds
) -> Transaction | None:
    """Do the same for the publication of a load."""
    waits_for = None
    for hold in holds:
        if rows.meets(hold.read.lower, hold.read.upper):
            waits_for = _wait_for(transaction, tablet, hold, None)
    return waits_for


def _wait_for(
    transaction: Transaction, tablet: Tablet, hold: ReadHold, key: Key | None
) -> Transaction:
    """Return the reader, if a writer may wait for it. Raises Lost."""
    reader = hold.transaction
    is_alone = len(transaction.participants) == 1  # it holds nothing while it waits
    if is_alone or reader.start < transaction.start:  # a blind one begins last of all
        return reader
    attributes: dict[str, Any] = {"winner": reader.id}
    what = "rows of the load were"
    if key is not None:
        attributes["key"] = tablet.schema.named_key(key)
        what = f"row {attributes['key']} was"
    text = f"{what} read by a concurrent serializable transaction"
    raise _lost(text, transaction.start, HELD, attributes)


def awaited_by_reads(
    waiter: Transaction, tablet: Tablet, part: TabletModifications
) -> tuple[Key, Transaction] | None:
    """Return the key of a row in the way of a transaction, and who holds it. That is a reader of a
    row that it writes, or a writer of one that it has read. Return None if there is none. For
    errors: lock groups are not compared again."""
    holds = tablet.read_holds
    for key, _, _ in tablet.schema.plain_writes(part.writes):
        for hold in () if holds is None else holds.of(key):
            return key, hold.transaction
    for read in part.reads:
        for key, held in _locked_rows(tablet, read):
            for holder in held.holders:
                if holder.lock_type is None and is_met(holder.transaction, waiter.start):
                    return key, holder.transaction
    return None


# Rows, loads and errors


def _watched(tablet: Tablet, key: Key, groups: int) -> Watched:
    """Return which writers can change what was read of a row: those of these lock groups, or all of
    them if the row is absent."""
    groups = _groups(tablet, key, groups, MAX_TIMESTAMP)
    return lock_locks(groups, "shared_weak").watched(tablet.schema)


def _groups(tablet: Tablet, key: Key, groups: int, at: Timestamp) -> int:
    """Return the lock groups that a read of a row is about: these, or all of them if the row is
    absent at a timestamp. Raises DataCorrupted."""
    if groups == tablet.schema.lock_mask_all or groups & MAIN_LOCK_MASK:
        return groups  # the main lock stands for all groups
    nothing = Lookup(tablet.assignment.tablet, tablet.assignment.revision, at, (key,), 0)
    is_there = values_of(tablet.stores, key, Look(tablet, nothing)) is not None
    return groups if is_there else tablet.schema.lock_mask_all


def _has_rows(rows: PublicationRows, read: ReadRange) -> bool:
    """Return whether a load has rows in a range. Deletions are among them."""
    if is_one_row(read):
        return rows.has(read.lower)
    return any(view.count(read.lower, read.upper) for view in rows.views)


def _changed_by_load(at: Timestamp, since: Timestamp) -> Lost:
    text = "rows that the transaction has read were published by a load"
    return _lost(text, since, READ_CHANGED, {"winner_timestamp": at})


def _lost(text: str, start: Timestamp, conflict: str, attributes: dict[str, Any]) -> Lost:
    attributes["start_timestamp"] = start
    return Lost(Failure(TransactionConflict.kind, text, attributes), conflict)


def _named(tablet: Tablet, read: ReadRange) -> dict[str, Any]:
    """Return the attributes that name a read in errors. A row has its key there already."""
    if is_one_row(read):
        return {}
    return {"range": [_bound(tablet, read.lower), _bound(tablet, read.upper)]}


def _bound(tablet: Tablet, bound: Key) -> list[Any] | None:
    """Return the values of an end of a range. None stands for the end of the table, and for bytes
    that are no key."""
    if bound in (KEY_MIN, KEY_MAX):
        return None
    for key in (bound, Key(bound.removesuffix(b"\0"))):  # a read ends behind its last row
        try:
            return list(tablet.schema.decode_prefix(key))
        except DataCorrupted:
            continue
    return None
