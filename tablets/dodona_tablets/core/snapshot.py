"""What a read sees of one tablet: lookups, scans, and versions, at one timestamp.

Owns: the answers, and which transaction a read must wait for instead. Waiting itself, and the proof
that a timestamp was issued, are `reads`'. Changes nothing.
Source: the YTsaurus document, "Reading" and "Aggregation columns".
"""

from collections.abc import Sequence
from typing import Final

from dodona._core.arrow import arrow_from_rows
from dodona._core.messages import (
    ArrowPage,
    Lookup,
    LookupVersions,
    Rows,
    RowVersion,
    Scan,
    ScanArrow,
    ScanPage,
    VersionedRows,
)
from dodona.errors import InvalidRequest, LimitExceeded, SnapshotTooOld
from dodona.keys import successor
from dodona.schema import MAIN_LOCK_MASK, Column, TableSchema
from dodona.types import ASYNC_LAST_COMMITTED, DELETE_MASK, NULL_TIMESTAMP, Key, Timestamp
from dodona_tablets.core.locks import blocking_reader
from dodona_tablets.core.row import Values, Version, bits_of, delta_mask_of, value_of
from dodona_tablets.core.tablet import Tablet
from dodona_tablets.core.transaction import Transaction

SCAN_ROWS_MAX: Final = 100_000
VERSIONS_MAX: Final = 65_535
"""Of one answer: so many a row may have in YTsaurus."""

Read = Lookup | LookupVersions | Scan | ScanArrow


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


def lookup(tablet: Tablet, request: Lookup) -> Rows | Transaction:
    wanted, full = tablet.schema.plain_mask(request.column_mask), tablet.schema.full_mask
    at, oldest = request.timestamp, request.retention_timestamp
    columns = None
    if oldest or tablet.schema.aggregate_mask:
        columns = _columns_to_fold(tablet, request, wanted)
    groups = tablet.schema.lock_mask(wanted) | MAIN_LOCK_MASK
    rows = tablet.store.rows
    found: list[Values | None] = []
    for key in request.keys:
        row = rows.get(key)
        if row is None:
            found.append(None)
            continue
        if row.holders and at != ASYNC_LAST_COMMITTED:
            blocker = blocking_reader(row, groups, at)
            if blocker is not None:
                return blocker
        if columns is None:
            found.append(row.values_at(at, wanted, full))
        else:
            found.append(row.values_between(oldest, at, wanted, columns))
    return Rows(tuple(found))


def scan(tablet: Tablet, request: Scan | ScanArrow) -> ScanPage | Transaction:
    wanted, full = tablet.schema.plain_mask(request.column_mask), tablet.schema.full_mask
    at, oldest = request.timestamp, request.retention_timestamp
    columns = None
    if oldest or tablet.schema.aggregate_mask:
        columns = _columns_to_fold(tablet, request, wanted)
    groups = tablet.schema.lock_mask(wanted) | MAIN_LOCK_MASK
    count_max = min(max(request.row_count_max, 1), SCAN_ROWS_MAX)
    keys: list[Key] = []
    found: list[Values] = []
    for key, row in tablet.store.walk(request.lower, request.upper):
        if row.holders and at != ASYNC_LAST_COMMITTED:
            blocker = blocking_reader(row, groups, at)
            if blocker is not None:
                return blocker
        if columns is None:
            values = row.values_at(at, wanted, full)
        else:
            values = row.values_between(oldest, at, wanted, columns)
        if values is None:
            continue
        keys.append(key)
        found.append(values)
        if len(keys) == count_max:
            return ScanPage(tuple(keys), tuple(found), successor(key))
    return ScanPage(tuple(keys), tuple(found), None)


def scan_arrow(tablet: Tablet, request: ScanArrow) -> ArrowPage | Transaction:
    page = scan(tablet, request)
    if isinstance(page, Transaction):
        return page
    wanted = tablet.schema.plain_mask(request.column_mask)
    batch = arrow_from_rows(tablet.schema, wanted, page.keys, page.rows)
    return ArrowPage(batch, len(page.keys), page.resume)


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
    found: list[tuple[RowVersion, ...]] = []
    left = VERSIONS_MAX
    for key in request.keys:
        row = tablet.store.rows.get(key)
        if row is None:
            found.append(())
            continue
        if row.holders and request.timestamp != ASYNC_LAST_COMMITTED:
            blocker = blocking_reader(row, groups, request.timestamp)
            if blocker is not None:
                return blocker
        left -= len(row.versions)
        if left < 0:
            raise LimitExceeded(
                f"the keys asked for have more than {VERSIONS_MAX} versions: ask for fewer",
                table=tablet.assignment.path,
            )
        known = [it for it in reversed(row.versions) if it[0] <= request.timestamp]
        found.append(tuple([_masked(schema, version, wanted) for version in known]))
    return VersionedRows(tuple(found))


def _masked(schema: TableSchema, version: Version, wanted: int) -> RowVersion:
    mask = version[1] & wanted
    return RowVersion(
        version[0],
        schema.pack_mask(mask),
        tuple([value_of(version, bit) for bit in bits_of(mask)]),
        schema.pack_mask(delta_mask_of(version) & wanted),
        0 if len(version) == 3 else version[4],
        version[1] == DELETE_MASK,
    )
