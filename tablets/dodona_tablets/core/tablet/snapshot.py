"""Return what a read of keys sees of one tablet at a timestamp: lookups, with or without all
versions.

Owns: the answers, and which transaction a read must wait for instead. `scans` has the reads of
ranges. `reads` does the waiting, and proves that a timestamp was issued. Changes nothing.
Source: the YTsaurus document, "Reading" and "Aggregation columns".
"""

from collections.abc import Iterable, Sequence
from typing import Final

from dodona_tablets.core.rows.stores import Stores
from dodona_tablets.core.rows.version import (
    ALL_VERSIONS,
    LongHistory,
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
from dodona_tablets.core.tablet.locks import blocking_reader
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.errors import InvalidRequest, LimitExceeded, SnapshotTooOld
from dodona_wire.messages.data import (
    CountVersions,
    Lookup,
    LookupReply,
    LookupVersions,
    RowVersion,
    Scan,
    ScanArrow,
    ScanVersions,
    VersionedRows,
)
from dodona_wire.rows.columns import MAIN_LOCK_MASK, Column
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.types import (
    ASYNC_LAST_COMMITTED,
    DELETE_MASK,
    KEY_MIN,
    NULL_TIMESTAMP,
    Key,
    Timestamp,
)

PAGE_VERSIONS: Final = 10_000
"""The most versions in one answer. All other work waits for about 20 ms meanwhile. The next answer
has more."""
UNPAGED_VERSIONS_MAX: Final = 65_535
"""The most versions in the only answer to a client that knows no pages."""
PAGE_BYTES_MAX: Final = 8 << 20
"""About the most bytes of values in an answer: it ends with the version that exceeds them."""

Read = Lookup | LookupVersions | Scan | ScanArrow | ScanVersions | CountVersions


def too_old(tablet: Tablet, timestamp: Timestamp) -> SnapshotTooOld:
    """Return the refusal of a read below the retained timestamp, where versions may be gone."""
    number, retained = tablet.assignment.tablet, tablet.retained_timestamp
    return SnapshotTooOld(
        f"timestamp {timestamp} is less than tablet {number} retained timestamp {retained}",
        tablet=number,
        table=tablet.assignment.path,
        timestamp=timestamp,
        retained_timestamp=retained,
    )


class Look:
    """What one read wants to see of each row: columns, timestamps and lock groups."""

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


def lookup(tablet: Tablet, request: Lookup) -> LookupReply | Transaction:
    look = Look(tablet, request)
    blocker = blocker_of_keys(tablet, request.keys, look.groups, look.at, look)
    if blocker is not None:
        return blocker
    stores, values = tablet.stores, look.values
    if stores.is_flat and not stores.hot_rows.newest_timestamp:
        rows = stores.active.rows
        try:
            return LookupReply(tuple([values(rows.get(key)) for key in request.keys]))
        except LongHistory:
            pass
    return LookupReply(tuple([values_of(stores, key, look) for key in request.keys]))


def values_of(stores: Stores, key: Key, look: Look) -> Values | None:
    """Return what a read sees of one row, wherever its versions are."""
    if key in stores.hot_rows:
        return values_of_hot_row(stores, key, look)
    try:
        if stores.is_flat:
            return look.values(stores.active.rows.get(key))
        return look.values(chain_of(stores.versions(key, look.at, look.wanted)))
    except LongHistory:
        return values_of_hot_row(stores, key, look)


def values_of_hot_row(stores: Stores, key: Key, look: Look) -> Values | None:
    """Do the same as `values_of`, for a row with very many versions: see `hot_rows`. If the read
    has a retention timestamp, it looks at all versions from there on."""
    columns, oldest = stores.schema.value_columns, look.oldest
    base = None if oldest else stores.hot_rows.base(key, look.at)
    since = oldest - 1 if oldest else NULL_TIMESTAMP if base is None else base[0]
    newer = stores.versions_between(key, Timestamp(since), look.at)
    chain = chain_of(newer) if oldest else stores.hot_rows.chain(key, base, newer, columns)
    return values_between(chain, oldest, look.at, look.wanted, columns, ALL_VERSIONS)


def blocker_of_keys(
    tablet: Tablet, keys: Iterable[Key], groups: int, at: Timestamp, look: Look | None = None
) -> Transaction | None:
    """Return the transaction that a read of these groups of these rows must wait for, or None. If a
    `look` finds a row absent, a writer of any group counts: each can create the row (rule 6)."""
    locks, publishing = tablet.locks, tablet.publishing
    if at == ASYNC_LAST_COMMITTED or (not locks and publishing is None):
        return None
    for key in keys:
        if publishing is not None and publishing.blocks(key, at):
            return publishing.transaction
        held = locks.get(key)
        if held is None:
            continue
        blocker = blocking_reader(held.holders, groups, at)
        if blocker is None and look is not None:
            creator = blocking_reader(held.holders, tablet.schema.lock_mask_all, at)
            if creator is not None and values_of(tablet.stores, key, look) is None:
                blocker = creator
        if blocker is not None:
            return blocker
    return None


def blocker_of_range(
    tablet: Tablet, lower: Key, upper: Key, groups: int, at: Timestamp, look: Look | None = None
) -> Transaction | None:
    """Do the same as `blocker_of_keys`, for a read of `lower ≤ key < upper`."""
    if at != ASYNC_LAST_COMMITTED and tablet.publishing is not None:
        blocker = tablet.publishing.blocker_of_range(lower, upper, at)
        if blocker is not None:
            return blocker
    locked = [key for key in tablet.locks if lower <= key < upper]
    return blocker_of_keys(tablet, locked, groups, at, look)


def _columns_to_fold(
    tablet: Tablet, request: Lookup | Scan | ScanArrow, wanted: int
) -> Sequence[Column] | None:
    """Return the value columns if the read must fold values, and None if not, which is the usual
    case.

    Raises InvalidRequest if the retention timestamp is not valid.
    """
    oldest = request.retention_timestamp
    if not NULL_TIMESTAMP <= oldest <= request.timestamp:
        raise InvalidRequest(
            "The retention timestamp is not valid, or is greater than the read timestamp.",
            timestamp=request.timestamp,
            retention_timestamp=oldest,
        )
    must_fold = oldest or tablet.schema.aggregate_mask & wanted
    return tablet.schema.value_columns if must_fold else None


def lookup_versions(tablet: Tablet, request: LookupVersions) -> VersionedRows | Transaction:
    schema = tablet.schema
    wanted = schema.plain_mask(request.column_mask)
    # The answer has versions of all groups, also those without any of the wanted columns.
    blocker = blocker_of_keys(tablet, request.keys, schema.lock_mask_all, request.timestamp)
    if blocker is not None:
        return blocker
    page = _VersionPage(schema, wanted, PAGE_VERSIONS if request.is_paged else UNPAGED_VERSIONS_MAX)
    for place, _key in enumerate(request.keys):
        if not page.add(_versions_of(tablet.stores, request, place, page.room), request.count_max):
            break
    is_whole = len(page.rows) == len(request.keys) and not page.is_within
    if not (is_whole or request.is_paged):
        raise LimitExceeded(
            "These keys have more versions than fit into one answer, and this client is too old to"
            " read them in pages: ask for fewer keys, or upgrade the client.",
            table=tablet.assignment.path,
        )
    return VersionedRows(tuple(page.rows), page.is_within, tuple(page.cut), is_paged=True)


def _versions_of(stores: Stores, request: LookupVersions, place: int, room: int) -> list[Version]:
    """Return the versions of a key that may be shown, and one more if there are more."""
    bounds = [it for it in (request.below, request.first_below if place == 0 else 0) if it]
    at = min([request.timestamp, *[Timestamp(it - 1) for it in bounds]])
    shown = min(room, request.count_max or room)
    return stores.versions_between(request.keys[place], request.since, at, shown + 1)


class _VersionPage:
    """The versions of some keys, up to the limits of one answer."""

    def __init__(self, schema: TableSchema, wanted: int, room: int) -> None:
        self._schema = schema
        self._wanted = wanted
        self._bytes_left = PAGE_BYTES_MAX
        self.room = room
        self.rows: list[tuple[RowVersion, ...]] = []
        self.cut: list[int] = []
        self.is_within = False

    def add(self, versions: list[Version], count_max: int) -> bool:
        """Add the versions of a key. If there are more than fit, the caller passes one more than
        fits. Return whether there is room for another key."""
        shown: list[RowVersion] = []
        for version in versions[: min(self.room, count_max or self.room)]:
            shown.append(_masked(self._schema, version, self._wanted))
            self._bytes_left -= write_bytes((KEY_MIN, 0, shown[-1].values))
            if self._bytes_left <= 0:
                break
        self.room -= len(shown)
        if len(shown) < len(versions):
            if len(shown) == count_max:
                self.cut.append(len(self.rows))
            else:
                self.is_within = True
        self.rows.append(tuple(shown))
        return self.room > 0 and self._bytes_left > 0 and not self.is_within


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
