"""One tablet: a key range of one table, its rows, and what may be done to it now.

Owns: mounting state, and the checks of what a client sent against schema and range. Reads are in
`snapshot`. `apply` and `apply_stamped` are the only ways to new versions, for live traffic and for
replay alike; `retention` takes old ones away.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from dodona._core.arrow import rows_from_arrow
from dodona._core.messages import RowLock, TabletAssignment, TabletModifications, TabletSource
from dodona.errors import (
    InvalidRequest,
    SchemaViolation,
    TableNotMounted,
    TransactionAborted,
)
from dodona.schema import TableSchema
from dodona.types import (
    DELETE_MASK,
    MIN_TIMESTAMP,
    NULL_TIMESTAMP,
    Key,
    SpecialWrites,
    TableSettings,
    Timestamp,
    WireMask,
    WireWrite,
    Write,
)
from dodona_tablets.core.migration import Migration
from dodona_tablets.core.row import PlainVersion, Values, Version, bits_of
from dodona_tablets.core.store import SortedStore

MOUNTED: Final = "mounted"
FROZEN: Final = "frozen"
UNMOUNTED: Final = "unmounted"


class Tablet:
    """Rows and their table's schema. Served while `is_mounted`; closing and freezing refuse new
    writers, and end when the old ones have."""

    def __init__(self, assignment: TabletAssignment) -> None:
        self.store = SortedStore()
        self.fence: Timestamp = NULL_TIMESTAMP
        self.retained_timestamp: Timestamp = MIN_TIMESTAMP
        """Older versions may be gone: nobody may read below it. It stays when others mount it."""
        self.newest_stamp: Timestamp = NULL_TIMESTAMP
        """Of writes without atomicity: their clients' clocks may have been ahead of the oracle."""
        self.active_count = 0
        """Transactions that hold locks here: unmounting and freezing wait for them."""
        self.missing: dict[TabletSource, Key] = {}
        """The tablets whose rows are still to be taken over, and from which key on."""
        self.schema = TableSchema(assignment.columns)
        self.mount(assignment)

    def mount(self, assignment: TabletAssignment) -> None:
        """Take the table's description as of this mount. Serving begins with the fence."""
        assert self.active_count == 0, "mounted under a transaction"
        if assignment.columns != self.schema.columns:
            schema = TableSchema(assignment.columns)
            self.store = Migration(self.schema, schema).store(self.store)
            self.schema = schema
        self.assignment = assignment
        self.is_atomic = assignment.atomicity == "full"
        self.is_mounted = assignment.mode != UNMOUNTED
        self.is_frozen = assignment.mode == FROZEN
        self.is_closing = False
        self.is_freezing = False
        self.fence = NULL_TIMESTAMP

    def serve_after(self, fence: Timestamp) -> None:
        """Take transactions that begin after this timestamp, and after all stamps of the time when
        the table had no atomicity: what they commit must not lie below what is there."""
        self.fence = max(fence, self.newest_stamp) if self.is_atomic else fence

    def adjust(self, mode: str, settings: TableSettings) -> None:
        """Go on in the same mount."""
        self.is_freezing = False
        self.is_frozen = mode == FROZEN
        self.assignment = replace(self.assignment, mode=mode, settings=settings)

    def unmount(self) -> None:
        assert self.active_count == 0, "unmounted under a transaction"
        self.is_mounted = False
        self.is_closing = False
        self.is_freezing = False

    @property
    def is_settled(self) -> bool:
        """Whether all its rows are here and none of them changes before the next mount."""
        return not self.is_mounted and not self.active_count and not self.missing

    # Checks of whether and what a client may write

    def check_open(self) -> None:
        """Raises TransactionAborted or TableNotMounted if nobody may begin to write here."""
        path, number = self.assignment.path, self.assignment.tablet
        if self.is_closing:
            raise TransactionAborted("the table is being unmounted", table=path, tablet=number)
        if self.is_freezing or self.is_frozen:
            text = f'Tablet {number} of table {path} is in "{FROZEN}" state'
            raise TableNotMounted(text, table=path, tablet=number, state=FROZEN)

    def check_modifications(self, modifications: TabletModifications) -> None:
        """Raises SchemaViolation or InvalidRequest; nothing is changed."""
        writes = modifications.writes
        self.check_writes(writes)
        if len(writes) > 1 and len({write[0] for write in writes}) != len(writes):
            raise InvalidRequest("a transaction writes a key twice", table=self.assignment.path)
        if modifications.special is not None:
            self.check_special(writes, modifications.special)
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

    def check_special(self, writes: Sequence[WireWrite], special: SpecialWrites) -> None:
        """Whether these writes, checked before, can be so special. Raises as `check_writes`."""
        masks = {key: mask for key, mask, _ in self.schema.plain_writes(writes)}
        path = self.assignment.path
        if len(masks) != len(writes):
            raise InvalidRequest("special writes of a key that is written twice", table=path)
        for key, (delta_mask, groups) in special.items():
            mask = masks.get(key)
            if mask is None:
                raise InvalidRequest("a special write that is not there", table=path)
            self._check_deltas(mask, self.schema.plain_mask(delta_mask))
            if groups and self.is_atomic:  # without atomicity there are no locks
                if mask == DELETE_MASK or groups & ~self.schema.lock_mask(mask):
                    raise InvalidRequest("a shared lock that its write does not take", table=path)
                self._check_shared_write()

    def _check_deltas(self, mask: int, delta_mask: int) -> None:
        for bit in bits_of(delta_mask & ~(mask & self.schema.aggregate_mask)):
            column = self.schema.value_columns[bit]
            if column.aggregate is None:
                text = f'"aggregate" flag is set for value in column {column.name} which is not '
                text += "aggregating"
            else:
                text = f"the write has no value for the change of column {column.name}"
            raise SchemaViolation(text, table=self.assignment.path, column=column.name)

    def _check_shared_write(self) -> None:
        if not self.assignment.settings.enable_shared_write_locks:
            text = "Shared write locks are not allowed for the table"
            raise InvalidRequest(text, table=self.assignment.path)

    def _check_lock(self, lock: RowLock) -> None:
        if not 0 < lock.lock_mask <= self.schema.lock_mask_all:
            raise InvalidRequest("no such lock group", table=self.assignment.path)
        if lock.lock_type == "shared_write":
            self._check_shared_write()
        self.schema.check_key(lock.key)
        self._check_range(lock.key)

    def _check_range(self, key: Key) -> None:
        if not self.assignment.lower <= key < self.assignment.upper:
            columns = dict(zip(self.schema.key_names, self.schema.decode_key(key), strict=True))
            raise InvalidRequest(
                "the key lies outside this tablet", table=self.assignment.path, key=columns
            )

    # Versions

    def apply(
        self,
        writes: Sequence[WireWrite],
        timestamp: Timestamp,
        special: SpecialWrites | None = None,
    ) -> None:
        """Add one committed transaction's versions."""
        row_for_write = self.store.row_for_write
        plain = self.schema.plain_writes(writes)
        if special is None:
            for key, mask, values in plain:
                row_for_write(key).add((timestamp, mask, values))
        else:
            for key, mask, values in plain:
                row_for_write(key).add(self._version(timestamp, mask, values, special.get(key)))

    def apply_stamped(
        self,
        writes: Sequence[WireWrite],
        stamp: Timestamp,
        special: SpecialWrites | None = None,
    ) -> Timestamp:
        """Add non-atomic versions, each row's stamp raised so that its versions keep rising."""
        highest = stamp
        row_for_write = self.store.row_for_write
        for key, mask, values in self.schema.plain_writes(writes):
            versions = row_for_write(key).versions
            at = stamp
            if versions and versions[-1][0] >= stamp:
                at = Timestamp(versions[-1][0] + 1)
                highest = max(highest, at)
            if special is None:
                versions.append((at, mask, values))
            else:
                versions.append(self._version(at, mask, values, special.get(key)))
        self.newest_stamp = max(self.newest_stamp, highest)
        return highest

    def _version(
        self, at: Timestamp, mask: int, values: Values, marks: tuple[WireMask, int] | None
    ) -> Version:
        if marks is None:
            return at, mask, values
        delta_mask, groups = marks
        return at, mask, values, self.schema.plain_mask(delta_mask), groups if self.is_atomic else 0

    def writes_of_batch(self, batch: bytes) -> list[Write]:
        """An Arrow stream as writes, checked. Raises SchemaViolation, InvalidRequest."""
        writes = rows_from_arrow(self.schema, batch)
        for write in writes:
            self._check_range(write[0])
        return writes

    # For tests

    def dump(self) -> list[tuple[Key, list[PlainVersion]]]:
        """All versions of all rows in key order, without what makes them special: what checkers
        compare a history with."""
        everything = self.store.walk(self.assignment.lower, self.assignment.upper)
        return [(key, [it[:3] for it in row.versions]) for key, row in everything if row.versions]

    def locked_count(self) -> int:
        return sum(1 for row in self.store.rows.values() if row.holders)
