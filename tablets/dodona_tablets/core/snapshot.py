"""What a read of keys sees of one tablet at a timestamp: lookups, with all versions or without.

Owns: the answers, and which transaction a read must wait for instead. Ranges are in `scans`.
Waiting itself, and the proof that a timestamp was issued, are `reads`'. Changes nothing.
Source: the YTsaurus document, "Reading" and "Aggregation columns".
"""

from collections.abc import Iterable, Sequence
from typing import Final

from dodona._core.messages import (
    CountVersions,
    Lookup,
    LookupVersions,
    Rows,
    RowVersion,
    Scan,
    ScanArrow,
    ScanVersions,
    VersionedRows,
)
from dodona.errors import InvalidRequest, LimitExceeded, SnapshotTooOld
from dodona.schema import MAIN_LOCK_MASK, Column, TableSchema
from dodona.types import ASYNC_LAST_COMMITTED, DELETE_MASK, NULL_TIMESTAMP, Key, Timestamp
from dodona_tablets.core.locks import blocking_reader
from dodona_tablets.core.tablet import Tablet
from dodona_tablets.core.transaction import Transaction
from dodona_tablets.core.version import (
    Values,
    Version,
    bits_of,
    chain_of,
    delta_mask_of,
    shared_groups_of,
    value_of,
    values_at,
    values_between,
)

VERSIONS_MAX: Final = 65_535
"""Of one answer: so many a row may have in YTsaurus."""

Read = Lookup | LookupVersions | Scan | ScanArrow | ScanVersions | CountVersions


def too_old(tablet: Tablet, timestamp: Timestamp) -> SnapshotTooOld:
    """The refusal of a read below the retained timestamp: what was there then may be gone."""
    number, retained = tablet.assignment.tablet, tablet.retained_timestamp
    return SnapshotTooOld(
        f"timestamp {timestamp} is less than tablet {number} retained timestamp {retained}",
        tablet=number,
        table=tablet.assignment.path,
        timestamp=timestamp,
        retained_timestamp=retained,
    )


class Look:
    """What one read wants to see of each row."""

    __slots__ = ("at", "columns", "full", "groups", "oldest", "wanted")

    def __init__(self, tablet: Tablet, request: Lookup | Scan | ScanArrow) -> None:
        schema = tablet.schema
        self.wanted, self.full = schema.plain_mask(request.column_mask), schema.full_mask
        self.at, self.oldest = request.timestamp, request.retention_timestamp
        self.columns: Sequence[Column] | None = None
        if self.oldest or schema.aggregate_mask:
            self.columns = _columns_to_fold(tablet, request, self.wanted)
        self.groups = schema.lock_mask(self.wanted) | MAIN_LOCK_MASK

    def values(self, newest: Version | None) -> Values | None:
        if self.columns is None:
            return values_at(newest, self.at, self.wanted, self.full)
        return values_between(newest, self.oldest, self.at, self.wanted, self.columns)


def lookup(tablet: Tablet, request: Lookup) -> Rows | Transaction:
    look = Look(tablet, request)
    blocker = blocker_of_keys(tablet, request.keys, look.groups, look.at)
    if blocker is not None:
        return blocker
    stores, values = tablet.stores, look.values
    if stores.is_flat:
        rows = stores.active.rows
        return Rows(tuple([values(rows.get(key)) for key in request.keys]))
    at, needed = look.at, look.wanted or -1
    chains = [chain_of(stores.versions(key, at, needed)) for key in request.keys]
    return Rows(tuple([values(chain) for chain in chains]))


def blocker_of_keys(
    tablet: Tablet, keys: Iterable[Key], groups: int, at: Timestamp
) -> Transaction | None:
    """The transaction that a read of these rows must wait for."""
    locks, publishing = tablet.locks, tablet.publishing
    if at == ASYNC_LAST_COMMITTED or (not locks and publishing is None):
        return None
    for key in keys:
        if publishing is not None and publishing.blocks(key, at):
            return publishing.transaction
        held = locks.get(key)
        if held is not None:
            blocker = blocking_reader(held.holders, groups, at)
            if blocker is not None:
                return blocker
    return None


def blocker_of_range(
    tablet: Tablet, lower: Key, upper: Key, groups: int, at: Timestamp
) -> Transaction | None:
    """The transaction that a read of lower ≤ key < upper must wait for."""
    if at != ASYNC_LAST_COMMITTED and tablet.publishing is not None:
        blocker = tablet.publishing.blocker_of_range(lower, upper, at)
        if blocker is not None:
            return blocker
    locked = [key for key in tablet.locks if lower <= key < upper]
    return blocker_of_keys(tablet, locked, groups, at)


def _columns_to_fold(
    tablet: Tablet, request: Lookup | Scan | ScanArrow, wanted: int
) -> Sequence[Column] | None:
    """The value columns where reading takes folding, None where it does not: almost always.

    Raises InvalidRequest if the retention timestamp is none.
    """
    oldest = request.retention_timestamp
    if not NULL_TIMESTAMP <= oldest <= request.timestamp:
        raise InvalidRequest(
            "the retention timestamp is greater than the read timestamp, or no timestamp",
            timestamp=request.timestamp,
            retention_timestamp=oldest,
        )
    must_fold = oldest or tablet.schema.aggregate_mask & wanted
    return tablet.schema.value_columns if must_fold else None


def lookup_versions(tablet: Tablet, request: LookupVersions) -> VersionedRows | Transaction:
    schema = tablet.schema
    wanted = schema.plain_mask(request.column_mask)
    groups = schema.lock_mask(wanted) | MAIN_LOCK_MASK
    blocker = blocker_of_keys(tablet, request.keys, groups, request.timestamp)
    if blocker is not None:
        return blocker
    found: list[tuple[RowVersion, ...]] = []
    left = VERSIONS_MAX
    for key in request.keys:
        known = tablet.stores.versions(key, request.timestamp)
        left -= len(known)
        if left < 0:
            raise LimitExceeded(
                f"the keys asked for have more than {VERSIONS_MAX} versions: ask for fewer",
                table=tablet.assignment.path,
            )
        found.append(tuple([_masked(schema, version, wanted) for version in known]))
    return VersionedRows(tuple(found))


def _masked(schema: TableSchema, version: Version, wanted: int) -> RowVersion:
    mask = version[1] & wanted
    return RowVersion(
        version[0],
        schema.pack_mask(mask),
        tuple([value_of(version, bit) for bit in bits_of(mask)]),
        schema.pack_mask(delta_mask_of(version) & wanted),
        shared_groups_of(version),
        version[1] == DELETE_MASK,
    )
