"""One tablet: a key range of one table, its rows, and what may be done to it now.

Owns: mounting state, the checks of what a client sent against schema and range, and the reads.
`apply` is the only way to versions, for live traffic and for replay alike.
"""

from collections.abc import Sequence
from typing import Any

from dodona._core.arrow import arrow_from_rows, rows_from_arrow
from dodona._core.messages import (
    ArrowPage,
    Lookup,
    RowLock,
    Rows,
    Scan,
    ScanArrow,
    ScanPage,
    TabletAssignment,
    TabletModifications,
)
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.keys import successor
from dodona.schema import MAIN_LOCK_MASK, TableSchema
from dodona.types import (
    ASYNC_LAST_COMMITTED,
    NULL_TIMESTAMP,
    Key,
    Timestamp,
    WireWrite,
    Write,
)
from dodona_tablets.core.locks import blocking_reader
from dodona_tablets.core.row import Values
from dodona_tablets.core.store import SortedStore
from dodona_tablets.core.transaction import Transaction

SCAN_ROWS_MAX = 100_000


class Tablet:
    """Rows and their table's schema. Served while `is_mounted`; closing refuses new writers."""

    def __init__(self, assignment: TabletAssignment) -> None:
        self.store = SortedStore()
        self.fence: Timestamp = NULL_TIMESTAMP
        self.active_count = 0
        """Transactions that hold locks here: unmounting waits for them."""
        self.mount(assignment)

    def mount(self, assignment: TabletAssignment) -> None:
        """Take the table's description as of this mount. Serving begins with the fence."""
        self.assignment = assignment
        self.is_atomic = assignment.atomicity == "full"
        self.schema = TableSchema(assignment.columns)
        self.is_mounted = True
        self.is_closing = False
        self.fence = NULL_TIMESTAMP

    def unmount(self) -> None:
        assert self.active_count == 0, "unmounted under a transaction"
        self.is_mounted = False
        self.is_closing = False

    # Checks of what a client sent

    def check_modifications(self, modifications: TabletModifications) -> None:
        """Raises SchemaViolation or InvalidRequest; nothing is changed."""
        writes = modifications.writes
        self.check_writes(writes)
        if len(writes) > 1 and len({write[0] for write in writes}) != len(writes):
            raise InvalidRequest("a transaction writes a key twice", table=self.assignment.path)
        for lock in modifications.locks:
            self._check_lock(lock)

    def check_writes(self, writes: Sequence[WireWrite]) -> None:
        """Raises SchemaViolation or InvalidRequest."""
        check = self.schema.check_write
        lower, upper = self.assignment.lower, self.assignment.upper
        try:
            for write in self.schema.plain_writes(writes):
                check(write)
                if not lower <= write[0] < upper:
                    self._check_range(write[0])
        except SchemaViolation as error:
            error.attributes.setdefault("table", self.assignment.path)
            raise

    def _check_lock(self, lock: RowLock) -> None:
        if not 0 < lock.lock_mask <= self.schema.lock_mask_all:
            raise InvalidRequest("no such lock group", table=self.assignment.path)
        self.schema.check_key(lock.key)
        self._check_range(lock.key)

    def _check_range(self, key: Key) -> None:
        if not self.assignment.lower <= key < self.assignment.upper:
            columns = dict(zip(self.schema.key_names, self.schema.decode_key(key), strict=True))
            raise InvalidRequest(
                "the key lies outside this tablet", table=self.assignment.path, key=columns
            )

    # Versions

    def apply(self, writes: Sequence[WireWrite], timestamp: Timestamp) -> None:
        """Add one committed transaction's versions."""
        row_for_write = self.store.row_for_write
        for key, mask, values in self.schema.plain_writes(writes):
            row_for_write(key).add(timestamp, mask, values)

    def apply_stamped(self, writes: Sequence[WireWrite], stamp: Timestamp) -> Timestamp:
        """Add non-atomic versions, each row's stamp raised so that its versions keep rising."""
        highest = stamp
        row_for_write = self.store.row_for_write
        for key, mask, values in self.schema.plain_writes(writes):
            versions = row_for_write(key).versions
            at = stamp
            if versions and versions[-1][0] >= stamp:
                at = Timestamp(versions[-1][0] + 1)
                highest = max(highest, at)
            versions.append((at, mask, values))
        return highest

    def writes_of_batch(self, batch: bytes) -> list[Write]:
        """An Arrow stream as writes, checked. Raises SchemaViolation, InvalidRequest."""
        writes = rows_from_arrow(self.schema, batch)
        for write in writes:
            self._check_range(write[0])
        return writes

    # Reads: each returns its reply, or the transaction that it must wait for

    def lookup(self, request: Lookup) -> Rows | Transaction:
        wanted, full = self.schema.plain_mask(request.column_mask), self.schema.full_mask
        groups = self.schema.lock_mask(wanted) | MAIN_LOCK_MASK
        found: list[Values | None] = []
        for key in request.keys:
            row = self.store.rows.get(key)
            if row is None:
                found.append(None)
                continue
            if row.holders and request.timestamp != ASYNC_LAST_COMMITTED:
                blocker = blocking_reader(row, groups, request.timestamp)
                if blocker is not None:
                    return blocker
            found.append(row.values_at(request.timestamp, wanted, full))
        return Rows(tuple(found))

    def scan(self, request: Scan | ScanArrow) -> ScanPage | Transaction:
        wanted, full = self.schema.plain_mask(request.column_mask), self.schema.full_mask
        groups = self.schema.lock_mask(wanted) | MAIN_LOCK_MASK
        count_max = min(max(request.row_count_max, 1), SCAN_ROWS_MAX)
        keys: list[Key] = []
        found: list[Values] = []
        for key, row in self.store.walk(request.lower, request.upper):
            if row.holders and request.timestamp != ASYNC_LAST_COMMITTED:
                blocker = blocking_reader(row, groups, request.timestamp)
                if blocker is not None:
                    return blocker
            values = row.values_at(request.timestamp, wanted, full)
            if values is None:
                continue
            keys.append(key)
            found.append(values)
            if len(keys) == count_max:
                return ScanPage(tuple(keys), tuple(found), successor(key))
        return ScanPage(tuple(keys), tuple(found), None)

    def scan_arrow(self, request: ScanArrow) -> ArrowPage | Transaction:
        page = self.scan(request)
        if isinstance(page, Transaction):
            return page
        wanted = self.schema.plain_mask(request.column_mask)
        batch = arrow_from_rows(self.schema, wanted, page.keys, page.rows)
        return ArrowPage(batch, len(page.keys), page.resume)

    def dump(self) -> list[tuple[Key, list[tuple[Timestamp, int, Any]]]]:
        """All versions of all rows in key order: what checkers compare a history with."""
        everything = self.store.walk(self.assignment.lower, self.assignment.upper)
        return [(key, list(row.versions)) for key, row in everything if row.versions]

    def locked_count(self) -> int:
        return sum(1 for row in self.store.rows.values() if row.holders)
