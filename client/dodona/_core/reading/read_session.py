"""The reads of one session. Pure.

Owns: the names of these protocols, which `Session` has, and when a scan takes its own snapshot. The
module of each kind of read knows how to ask for rows.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dodona._core.protocol.arguments import (
    Parameters,
    Row,
    check_flag,
    check_path,
    repeatable,
    repeatable_names,
)
from dodona._core.protocol.attempts import unless_stale
from dodona._core.protocol.context import Context
from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import Protocol
from dodona._core.reading import reading
from dodona._core.reading.holding import LEASE_MS, Hold, begin_hold, end_hold
from dodona._core.reading.pages import FirstRows, Pages, first_rows
from dodona._core.reading.reading import ReadAt
from dodona._core.reading.rows import Rows
from dodona._core.reading.splitting import split
from dodona._core.reading.versions import VersionedRow, lookup_versions, version_range
from dodona._core.writing.buffer import TableBuffer
from dodona._core.writing.early_locks import LockedRows
from dodona._core.writing.reads import CallReads
from dodona._core.writing.transaction import TransactionBuffer
from dodona_wire.errors import MetadataChanged
from dodona_wire.types import NULL_TIMESTAMP, SYNC_LAST_COMMITTED, ReaderId, Timestamp

if TYPE_CHECKING:
    from dodona._core.reading.query import Query

Found = TypeVar("Found")


class ReadSession:
    """The part of a session that reads rows."""

    _context: Context

    @traced_as("lookup_rows")
    def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        transaction: TransactionBuffer | None = None,
    ) -> Protocol[list[dict[str, Any]]]:
        """Return the rows of these keys. Missing rows are left out, or None with `keep_missing`.
        This and the following reads also see the own writes of a transaction that reads its own
        writes."""
        check_flag(keep_missing, "keep_missing")
        timestamp = reading.check_timestamp(timestamp)
        retention = reading.check_retention(retention_timestamp, timestamp)
        own, known = _own_writes(transaction, path), _known(transaction, path)
        at = ReadAt(timestamp, retention, own, known, _recorder(transaction))
        given, context = repeatable(keys), self._context
        rows, columns = None, repeatable_names(columns)
        if columns is None and at.own is None and at.known is None:
            rows = yield from reading.lookup_on_fast_path(context, path, given, at)
        if rows is None:
            lookup = partial(reading.lookup, context, path, given, columns, at)
            rows = yield from unless_stale(context, path, lookup)
        return _found(rows, keep_missing)

    @traced_as("lookup_versions")
    def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        since: Timestamp = NULL_TIMESTAMP,
        below: Timestamp | None = None,
        limit: int | None = None,
        transaction: TransactionBuffer | None = None,
    ) -> Protocol[list[VersionedRow]]:
        """Return the versions of rows up to `timestamp`, or some of them. Missing rows are treated
        as in `lookup_rows`. A serializable transaction records the read."""
        check_flag(keep_missing, "keep_missing")
        at, asked = reading.check_timestamp(timestamp), version_range(since, below, limit)
        given, context = repeatable(keys), self._context
        names = repeatable_names(columns)
        reads = _recorder(transaction)
        lookup = partial(lookup_versions, context, path, given, names, at, asked, reads)
        rows = yield from unless_stale(context, path, lookup)
        return _found(rows, keep_missing)

    @traced_as("select")
    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        transaction: TransactionBuffer | None = None,
    ) -> Protocol[Rows]:
        """Return the rows of lower ≤ key < upper, in key order."""
        columns = repeatable_names(columns)
        select = partial(reading.select, self._context, path, lower, upper, columns)
        asked = path, timestamp, retention_timestamp, transaction
        return (yield from self._at_one_state(select, *asked))[0]

    @traced_as("select")
    def first_rows(
        self,
        path: str,
        count: int,
        bytes_max: int,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        transaction: TransactionBuffer | None = None,
    ) -> Protocol[tuple[FirstRows, Timestamp]]:
        """Read as `select` does, at most `count` rows and about `bytes_max` bytes. Return also the
        timestamp of the read: a read of the next rows at this timestamp sees the same state."""
        columns = repeatable_names(columns)
        read = partial(first_rows, self._context, path, count, bytes_max, lower, upper, columns)
        asked = path, timestamp, retention_timestamp, transaction
        return (yield from self._at_one_state(read, *asked))

    def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        transaction: TransactionBuffer | None = None,
    ) -> Protocol[Any]:
        """Read as `select` does. Return a `pyarrow.Table`, made without Python objects for rows."""
        asked = timestamp, retention_timestamp, transaction
        return self.read_ranges(path, [(lower, upper)], columns, *asked)

    @traced_as("read_arrow")
    def read_ranges(
        self,
        path: str,
        ranges: reading.Ranges,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        transaction: TransactionBuffer | None = None,
    ) -> Protocol[Any]:
        """Read several ranges of keys, which are apart and in their order, at one state."""
        names = repeatable_names(columns)
        read = partial(reading.read_arrow, self._context, path, ranges, names)
        asked = path, timestamp, retention_timestamp, transaction
        return (yield from self._at_one_state(read, *asked))[0]

    def hold_snapshot(
        self,
        paths: Iterable[str],
        timestamp: Timestamp | None = None,
        lease_ms: int = LEASE_MS,
        reader: ReaderId | None = None,
    ) -> Protocol[Hold]:
        """Keep the snapshot of these tables at a timestamp, or at a fresh one for None."""
        return begin_hold(self._context, paths, timestamp, lease_ms, reader)

    def split(
        self,
        path: str,
        rows_per_part: int,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
    ) -> Protocol[list[tuple[Any, ...]]]:
        """Return the keys that divide a scan into parts. See `splitting`."""
        cut = partial(split, self._context, path, rows_per_part, lower, upper)
        return unless_stale(self._context, path, cut)

    def check_hold(self, hold: Hold) -> None:
        """Check that the snapshot is held. Raises SnapshotTooOld, InvalidRequest."""
        hold.check(self._context.instant_us())

    def check_hold_at_end(self, hold: Hold) -> None:
        """Check at the end of a `with` block that the snapshot was held, until its release if there
        was one. Raises SnapshotTooOld."""
        hold.check_at_end(self._context.instant_us())

    def release_hold(self, hold: Hold) -> Protocol[None]:
        """Release the snapshot. A repetition changes nothing."""
        return end_hold(hold, self._context.instant_us())

    def read_pages(
        self,
        hold: Hold,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Pages:
        """Return the rows of a table in a held snapshot, to read page by page."""
        return Pages(self._context, hold, path, lower, upper, repeatable_names(columns))

    def prepare_query(
        self,
        sql: str,
        parameters: Parameters | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        is_stored: bool = False,
    ) -> "Protocol[Query]":
        """Run the first phase of a query: see `query`."""
        from dodona._core.reading.query import prepare

        return prepare(self._context, sql, parameters, timestamp, retention_timestamp, is_stored)

    def fetch_query(
        self, prepared: "Query", transaction: TransactionBuffer | None
    ) -> Protocol[None]:
        """Run the third phase of a query. With a transaction, it reads as that transaction does."""
        retention = prepared.retention_timestamp
        return prepared.fetch(
            partial(self.read_ranges, retention_timestamp=retention, transaction=transaction)
        )

    def _at_one_state(
        self,
        read: Callable[[ReadAt], Protocol[Found]],
        path: str,
        timestamp: Timestamp,
        retention: Timestamp,
        transaction: TransactionBuffer | None,
    ) -> Protocol[tuple[Found, Timestamp]]:
        """Read at one timestamp, and return the result and the timestamp. If the table has become
        atomic meanwhile, choose the timestamp again."""
        asked = path, timestamp, retention, transaction, _recorder(transaction)
        at = yield from self._scan_at(*asked)
        try:
            found = yield from unless_stale(self._context, path, partial(read, at))
        except MetadataChanged:
            at = yield from self._scan_at(*asked)
            found = yield from read(at)
        return found, at.timestamp

    def _scan_at(
        self,
        path: str,
        timestamp: Timestamp,
        retention: Timestamp,
        transaction: TransactionBuffer | None,
        reads: CallReads | None,
    ) -> Protocol[ReadAt]:
        """Return the timestamp of a scan. The many requests of a scan must see one state.
        Non-atomic tables have no such state, and their timestamps may be ahead of the oracle, so
        there the newest is read."""
        timestamp = reading.check_timestamp(timestamp)
        retention = reading.check_retention(retention, timestamp)
        if timestamp == SYNC_LAST_COMMITTED:
            route = yield from self._context.route(path)
            if route.atomicity == "full":
                timestamp = yield from self._context.generate_timestamp()
                reading.check_retention(retention, timestamp)
        return ReadAt(timestamp, retention, _own_writes(transaction, path), None, reads)


def _known(transaction: TransactionBuffer | None, path: str) -> LockedRows | None:
    """Return the rows of a table that came to the transaction with its locks, or None."""
    if transaction is None or not transaction.locked.found:
        return None
    check_path(path)
    return transaction.locked.found.get(path)


def _recorder(transaction: TransactionBuffer | None) -> CallReads | None:
    """Return the recorder of one read in the transaction, or None if it records no reads."""
    reads = None if transaction is None else transaction.reads
    return None if reads is None else CallReads(reads)


def _own_writes(transaction: TransactionBuffer | None, path: str) -> TableBuffer | None:
    return None if transaction is None else transaction.own_writes(path)


def _found(rows: list[Found | None], keep_missing: bool) -> list[Found]:
    if keep_missing:
        return cast("list[Found]", rows)  # the caller wants None for missing rows
    return [row for row in rows if row is not None]
