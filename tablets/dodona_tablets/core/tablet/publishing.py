"""Check publications of loads against the transactions that they meet in a tablet.

Owns: when a transaction and a publication conflict, and when one waits for the other.
`publications` has the rows. Conflict checks look in memory only, and a load's rows never were
there.

Invariants:
- One publication at a time holds a tablet. It counts as a writer of the rows of its chunks.
- A load is published only if nothing that it was checked against has changed. Everything that came
  into the tablet after its seal is checked here. If that is not possible, the load must be sealed
  again.
"""

from collections.abc import Iterator
from typing import Final

from dodona_tablets.core.counts import LOAD
from dodona_tablets.core.rows.version import Version
from dodona_tablets.core.tablet.loads import Seal
from dodona_tablets.core.tablet.lock_set import LockSet, locks_of
from dodona_tablets.core.tablet.locks import Lost, check_locks, check_versions, is_met
from dodona_tablets.core.tablet.publications import PublicationRows
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.errors import (
    ConcurrentAppend,
    ConcurrentDeleteDelete,
    ConcurrentDeleteRead,
    SnapshotTooOld,
    TransactionConflict,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Publication, TabletModifications
from dodona_wire.types import DELETE_MASK, MAX_TIMESTAMP, NULL_TIMESTAMP, Key, LoadMode, Timestamp

COMPARED_MAX: Final = 50_000
"""The most rows of other loads that a publication compares one by one. All other work waits for
about 0.1 s meanwhile. For more rows, a seal must decide, which has a thread of its own."""


# Rows of transactions against publications


def check_rows(
    transaction: Transaction, tablet: Tablet, part: TabletModifications
) -> Transaction | None:
    """Check whether a transaction may lock the rows of this part. Return the transaction that it
    must wait for, or None. Raises Lost."""
    schema, start = tablet.schema, transaction.start
    recent = [it.rows for it in tablet.published if it.timestamp > start]
    publishing, waits_for = tablet.publishing, None
    for key, wanted in locks_of(schema, part):
        for rows in recent:
            for version in rows.versions(key):
                check_versions(version, key, schema, start, wanted)
        if publishing is not None and publishing.rows.has(key):
            waits_for = wait_or_lose(transaction, publishing.transaction, tablet, key)
    return waits_for


def wait_or_lose(
    transaction: Transaction, other: Transaction, tablet: Tablet, key: Key | None
) -> Transaction:
    """Return the other transaction if this one may wait for it, as for any holder of a lock. Raises
    Lost."""
    if is_met(other, transaction.start):
        return other
    attributes: dict[str, object] = {"start_timestamp": transaction.start, "winner": other.id}
    text = "Another load is being published in this tablet."
    if key is not None:
        attributes["key"] = _columns(tablet, key)
        text = f"row {attributes['key']} is being published by a load"
    raise Lost(Failure(TransactionConflict.kind, text, attributes), LOAD)


# A publication against transactions and other publications


def check_publication(
    transaction: Transaction,
    tablet: Tablet,
    publication: Publication,
    seal: Seal,
    rows: PublicationRows,
) -> Transaction | None:
    """Check whether a load may be published. Return the transaction that it must wait for, or None.
    Raises Lost."""
    if (seal.chunks, seal.erased) != (publication.chunks, publication.erased):
        raise _stale("the seal has other chunks", publication)
    waits_for = None
    if tablet.publishing is not None:
        other = tablet.publishing.transaction
        waits_for = wait_or_lose(transaction, other, tablet, None)
    schema = tablet.schema
    for key, held in tablet.locks.items():
        if rows.has(key):
            wanted = LockSet(schema.lock_mask_all)
            waits_for = check_locks(held, key, schema, transaction.start, wanted) or waits_for
    if _may_be_stale(seal):
        _check_changes(tablet, publication, seal, rows)
    return waits_for


def _may_be_stale(seal: Seal) -> bool:
    """Return whether changes after the seal matter."""
    is_certain = seal.since == MAX_TIMESTAMP and seal.mode in ("upsert", "delete")
    return bool(seal.erased) or not is_certain


def _check_changes(
    tablet: Tablet, publication: Publication, seal: Seal, rows: PublicationRows
) -> None:
    """Raise Lost if a row of the load was changed after the seal."""
    later = [it for it in tablet.stores.in_memory if it.number >= seal.store]
    published = tablet.publication_count - seal.publication
    is_complete = len(later) == tablet.stores.active.number - seal.store + 1
    if not is_complete or published > len(tablet.published):
        raise _stale("the changes after the seal are not known any more", publication)
    for store in later:
        for key, newest in store.rows.items():
            if rows.has(key):
                _check_change(tablet, publication, seal, rows, key, newest)
    others = tablet.published[len(tablet.published) - published :]
    if sum([other.rows.count_beside(rows) for other in others]) > COMPARED_MAX:
        text = "a load that was published after the seal is too large to compare"
        raise _stale(text, publication)
    for other in others:
        for key, version in _common(other.rows, rows):
            _check_change(tablet, publication, seal, rows, key, version)


def _common(theirs: PublicationRows, ours: PublicationRows) -> Iterator[tuple[Key, Version]]:
    """Yield the rows of one publication that belong to another one, too."""
    for view in theirs.views:
        if not ours.meets(view.lower, view.upper):
            continue
        for batch in view.batches(view.lower, view.upper):
            for raw in batch.column(0).to_pylist():
                key = Key(raw)
                if ours.has(key):
                    yield key, next(theirs.versions(key))


def _check_change(
    tablet: Tablet,
    publication: Publication,
    seal: Seal,
    rows: PublicationRows,
    key: Key,
    newest: Version,
) -> None:
    """Check a row of the load that was changed after the seal. Raises Lost.

    The change is a conflict, except in three cases:
    - the load overwrites rows, so its `since` is MAX_TIMESTAMP;
    - the change was committed before the load's start, and came late;
    - the change deleted a row that was not there, and that the load does not write.

    In these cases, the change may still alter what the load must write. Then the load must be
    sealed again.
    """
    columns, is_deletion = _columns(tablet, key), newest[1] == DELETE_MASK
    is_none = newest[0] <= seal.since
    if is_deletion and not is_none and not any(True for _ in rows.versions(key)):
        before = tablet.stores.versions_between(key, NULL_TIMESTAMP, Timestamp(newest[0] - 1), 1)
        is_none = not before or before[0][1] == DELETE_MASK
    if is_none:
        if seal.mode in ("insert", "update") or rows.erases(key):
            raise _stale(f"row {columns} was changed after the seal", publication)
        return
    kind = conflict_of(seal.mode, is_deletion=is_deletion, is_erased=rows.erases(key))
    attributes = {
        "key": columns,
        "start_timestamp": seal.since,
        "winner_timestamp": newest[0],
        "table": tablet.assignment.path,
    }
    verb = "deleted" if is_deletion else "written"
    text = f"row {columns} was {verb} while the load ran"
    raise Lost(Failure(kind.kind, text, attributes), LOAD)


def conflict_of(mode: LoadMode, *, is_deletion: bool, is_erased: bool) -> type[TransactionConflict]:
    """Return the error for a row of a load that another transaction deleted or wrote."""
    if not is_deletion:
        return ConcurrentAppend
    if is_erased or mode == "update":
        return ConcurrentDeleteRead
    return ConcurrentDeleteDelete if mode == "delete" else ConcurrentAppend


def _stale(reason: str, publication: Publication) -> Lost:
    text = f"The load must be sealed again: {reason}."
    return Lost(Failure(SnapshotTooOld.kind, text, {"load": publication.load}))


def _columns(tablet: Tablet, key: Key) -> dict[str, object]:
    schema = tablet.schema
    return dict(zip(schema.key_names, schema.decode_key(key), strict=True))
