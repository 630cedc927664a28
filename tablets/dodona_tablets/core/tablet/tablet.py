"""Hold one tablet: a key range of one table, its stores and locks, and which operations it allows.

Owns: the mount state, and the checks of a client's changes against schema and range. `snapshot` has
the reads. New versions come into memory through `apply` and `apply_stamped` only, in live traffic
and in replay. The exception is rows that `importing` takes over. Whole chunks come from `flushing`,
`compaction`, `loading`, `importing` and published loads.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from dodona_tablets.core.rows.recent_keys import RecentKeys
from dodona_tablets.core.rows.store import DynamicStore, Marks
from dodona_tablets.core.rows.stores import Stores
from dodona_tablets.core.rows.version import Values, bits_of
from dodona_tablets.core.tablet.publications import Published, Publishing
from dodona_tablets.core.tablet.read_holds import ReadHolds
from dodona_tablets.core.tablet.transaction import LockTable
from dodona_wire.errors import (
    InvalidRequest,
    SchemaViolation,
    TableNotMounted,
    TransactionAborted,
)
from dodona_wire.messages.catalog import TabletAssignment, TabletSource
from dodona_wire.messages.data import RowLock, TabletModifications
from dodona_wire.messages.reads import ReadRange
from dodona_wire.rows.arrow import rows_from_arrow
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.sizes import wire_bytes, write_bytes
from dodona_wire.types import (
    DELETE_MASK,
    MIN_TIMESTAMP,
    NULL_TIMESTAMP,
    Key,
    SpecialWrites,
    TableSettings,
    Timestamp,
    WireWrite,
    Write,
)

MOUNTED: Final = "mounted"
FROZEN: Final = "frozen"
UNMOUNTED: Final = "unmounted"

TABLET_BYTES: Final = 4_096
"""About the bytes of a node's memory that a tablet without rows takes: for its description, its
stores and its schema. Tablets with the same columns share most of the schema."""

DumpedVersion = tuple[Timestamp, int, Values]


class CheckedWrites(NamedTuple):
    """Writes without atomicity in the form that a store takes. Everything that can fail for writes
    fails when this is made, before the log has the writes. To apply them cannot fail."""

    writes: Sequence[Write]
    size_bytes: int
    """The length on the wire."""
    marks: Marks | None
    has_repeated_keys: bool


class Tablet:
    """A tablet: its stores, and the schema of its table. It is served while `is_mounted`. A tablet
    that closes or freezes refuses new writers. Closing and freezing end when the old writers have
    finished."""

    def __init__(self, assignment: TabletAssignment, flushed_ahead: int = 0) -> None:
        """Make and mount a tablet. `flushed_ahead` is as in `Stores`."""
        self.schema = TableSchema(assignment.columns).stored
        self.stores = Stores(self.schema, flushed_ahead)
        self.locks: LockTable = {}
        self.read_holds: ReadHolds | None = None
        """What serializable transactions have read that commit now. None if there is nothing."""
        self.recent: RecentKeys | None = None
        """The rows that were changed lately, if ranges were validated lately."""
        self.fence: Timestamp = NULL_TIMESTAMP
        self.retained_timestamp: Timestamp = MIN_TIMESTAMP
        """Older versions may be gone, so no read below it is allowed. A new mount does not change
        it."""
        self.newest_stamp: Timestamp = NULL_TIMESTAMP
        """The newest timestamp of writes without atomicity. Clocks of clients may have been ahead
        of the oracle."""
        self.publishing: Publishing | None = None
        """The load that is being published here, until its outcome."""
        self.published: list[Published] = []
        """Recent publications, oldest first. Each stays while a transaction could come that must be
        checked against it."""
        self.publication_count = 0
        """The number of publications since the cell started."""
        self.shown_timestamp: Timestamp = NULL_TIMESTAMP
        """Reads up to here may have been answered, now or before, and their answers must stay true.
        This is not logged: all reads before this mount lie below its fence."""
        self.has_been_served = bool(assignment.sources)
        """Whether the tablet, or a source of its rows, was served before. Then a reader may hold a
        snapshot."""
        self.active_count = 0
        """The number of transactions that hold locks here, and of batches under way. Unmounting and
        freezing wait for them."""
        self.missing: dict[TabletSource, Key] = {}
        """The tablets whose rows are still to be taken over, each with the key where the missing
        rows begin."""
        self.mount(assignment)

    def mount(self, assignment: TabletAssignment) -> None:
        """Take the table's description as of this mount. Serving begins with the fence."""
        assert self.active_count == 0, "mounted under a transaction"
        schema = TableSchema(assignment.columns).stored
        if schema != self.schema:
            self.schema = schema
            self.stores.alter(self.schema)
        self.assignment = assignment
        self.is_atomic = assignment.atomicity == "full"
        self.is_mounted = assignment.mode != UNMOUNTED
        self.is_frozen = assignment.mode == FROZEN
        self.is_closing = False
        self.is_freezing = False
        self.fence = NULL_TIMESTAMP

    def serve_after(self, fence: Timestamp) -> None:
        """Serve transactions that begin after this timestamp.

        If the table had no atomicity before, transactions must also begin after all timestamps of
        that time: their commits must not lie below existing versions. Writes without atomicity get
        timestamps above everything that was read before.
        """
        self.shown_timestamp = max(self.shown_timestamp, Timestamp(fence - 1))
        self.fence = max(fence, self.newest_stamp) if self.is_atomic else fence

    def adjust(self, mode: str, settings: TableSettings) -> None:
        """Change the mode and the settings within the same mount."""
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
        """Whether chunks have all rows of the tablet, and no row changes before the next mount."""
        is_unused = not self.is_mounted and not self.active_count and not self.missing
        return is_unused and not self.stores.has_unflushed_rows

    # Checks of a client's writes

    def check_open(self, *, is_reader: bool = False) -> None:
        """Raise TransactionAborted or TableNotMounted if no writer may begin here. A transaction
        that only reads here may begin in a frozen tablet. It would keep a tablet from freezing."""
        path, number = self.assignment.path, self.assignment.tablet
        if self.is_closing:
            raise TransactionAborted("The table is being unmounted.", table=path, tablet=number)
        if is_reader and self.is_freezing:
            raise TransactionAborted("The table is being frozen.", table=path, tablet=number)
        if not is_reader and (self.is_freezing or self.is_frozen):
            text = f'Tablet {number} of table {path} is in "{FROZEN}" state'
            raise TableNotMounted(text, table=path, tablet=number, state=FROZEN)

    def check_modifications(self, modifications: TabletModifications) -> None:
        """Check a transaction's changes. Nothing is changed here. Raises SchemaViolation or
        InvalidRequest."""
        writes = modifications.writes
        others = writes or modifications.locks or modifications.reads
        if modifications.publication is not None and others:
            text = "A publication can't have writes, locks or reads in the same tablet."
            raise InvalidRequest(text, table=self.assignment.path)
        self.check_writes(writes)
        if len(writes) > 1 and len({write[0] for write in writes}) != len(writes):
            text = "The transaction writes a key twice. Send one write per key."
            raise InvalidRequest(text, table=self.assignment.path)
        if modifications.special is not None:
            self.check_special(writes, modifications.special)
        for lock in modifications.locks:
            self._check_lock(lock)
        for read in modifications.reads:
            self._check_read(read)

    def check_keys(self, keys: Sequence[Key]) -> None:
        """Check the keys of rows that a client wants to lock. Raises SchemaViolation or
        InvalidRequest."""
        try:
            for key in keys:
                self.schema.check_key(key)
                self.check_range(key)
        except SchemaViolation as error:
            error.attributes.setdefault("table", self.assignment.path)
            raise
        if len(set(keys)) < len(keys):
            text = "The request locks a row twice. Send one lock per row."
            raise InvalidRequest(text, table=self.assignment.path)

    def check_writes(self, writes: Sequence[WireWrite]) -> None:
        """Check writes against schema and range. Raises SchemaViolation or InvalidRequest."""
        lower, upper = self.assignment.lower, self.assignment.upper
        if self.schema.code.are_plain(writes, lower, upper):
            return
        check = self.schema.check_write
        try:
            for write in self.schema.plain_writes(writes):
                check(write)
                if not lower <= write[0] < upper:
                    self.check_range(write[0])
        except SchemaViolation as error:
            error.attributes.setdefault("table", self.assignment.path)
            raise

    def check_special(self, writes: Sequence[WireWrite], special: SpecialWrites) -> None:
        """Check whether these writes, which were checked before, may have these marks. Raises as
        `check_writes`."""
        masks = {key: mask for key, mask, _ in self.schema.plain_writes(writes)}
        path = self.assignment.path
        if len(masks) != len(writes):
            text = "The request has special writes, and writes a key twice. Send one write per key."
            raise InvalidRequest(text, table=path)
        for key, (delta_mask, groups) in special.items():
            mask = masks.get(key)
            if mask is None:
                raise InvalidRequest("A special write has no write of its key.", table=path)
            self._check_deltas(mask, self.schema.plain_mask(delta_mask))
            if groups and self.is_atomic:  # without atomicity there are no locks
                if mask == DELETE_MASK or groups & ~self.schema.lock_mask(mask):
                    text = "A shared write deletes its row, or locks a group that it does not set."
                    raise InvalidRequest(text, table=path)
                self._check_shared_write()

    def _check_deltas(self, mask: int, delta_mask: int) -> None:
        for bit in bits_of(delta_mask & ~(mask & self.schema.aggregate_mask)):
            column = self.schema.value_columns[bit]
            if column.aggregate is None:
                text = f'"aggregate" flag is set for value in column {column.name} which is not '
                text += "aggregating"
            else:
                text = f"The write has no value for the change of column {column.name}."
            raise SchemaViolation(text, table=self.assignment.path, column=column.name)

    def _check_shared_write(self) -> None:
        if not self.assignment.settings.enable_shared_write_locks:
            text = "Shared write locks are not allowed for the table"
            raise InvalidRequest(text, table=self.assignment.path)

    def _check_lock(self, lock: RowLock) -> None:
        if not 0 < lock.lock_mask <= self.schema.lock_mask_all:
            raise InvalidRequest("No such lock group.", table=self.assignment.path)
        if lock.lock_type == "shared_write":
            self._check_shared_write()
        self.schema.check_key(lock.key)
        self.check_range(lock.key)

    def _check_read(self, read: ReadRange) -> None:
        if not 0 < read.lock_mask <= self.schema.lock_mask_all:
            raise InvalidRequest("No such lock group.", table=self.assignment.path)
        if not self.assignment.lower <= read.lower < read.upper <= self.assignment.upper:
            text = "A range that was read is empty, or lies outside this tablet."
            raise InvalidRequest(text, table=self.assignment.path)

    def check_range(self, key: Key) -> None:
        """Raise InvalidRequest if the key lies outside this tablet."""
        if not self.assignment.lower <= key < self.assignment.upper:
            columns = dict(zip(self.schema.key_names, self.schema.decode_key(key), strict=True))
            raise InvalidRequest(
                "The key lies outside this tablet.", table=self.assignment.path, key=columns
            )

    # Versions

    def apply(
        self,
        writes: Sequence[WireWrite],
        timestamp: Timestamp,
        special: SpecialWrites | None = None,
    ) -> None:
        """Add the versions of one committed transaction. This cannot fail: the check of the same
        writes did the same steps before."""
        marks = None if special is None else self._marks(special)
        plain = self.schema.plain_writes(writes)
        if timestamp <= self.stores.hot_rows.newest_timestamp:
            self.stores.hot_rows.forget(plain, timestamp)
        self.active.apply(plain, timestamp, wire_bytes(writes), marks)
        if self.recent is not None and not self.recent.add(plain, timestamp):
            self.recent = None

    def apply_stamped(self, checked: CheckedWrites, stamp: Timestamp) -> Timestamp:
        """Add versions without atomicity, and return their timestamp. It is `stamp`, raised above
        everything that was written or shown here before. So the last write wins, and earlier
        answers of reads stay true. If one batch writes a row twice, each write of the batch gets
        its own timestamp. The last one is returned."""
        at = self.next_stamp(stamp)
        if not checked.has_repeated_keys:
            self.active.apply(checked.writes, at, checked.size_bytes, checked.marks)
        else:
            for place, write in enumerate(checked.writes):
                at = Timestamp(at + (place > 0))
                self.active.apply((write,), at, write_bytes(write), checked.marks)
        self.newest_stamp = at
        return at

    def checked(
        self, writes: Sequence[WireWrite], special: SpecialWrites | None = None
    ) -> CheckedWrites:
        """Convert writes to the form that a store takes. They come from the log, or `check_writes`
        and `check_special` have accepted them."""
        marks = None if special is None else self._marks(special)
        plain = self.schema.plain_writes(writes)
        return CheckedWrites(plain, wire_bytes(writes), marks, _has_repeated_keys(plain))

    def checked_batch(self, batch: bytes) -> CheckedWrites:
        """Convert an Arrow stream to rows. Raises SchemaViolation, InvalidRequest."""
        writes = rows_from_arrow(self.schema, batch)
        for write in writes:
            self.check_range(write[0])
        size_bytes = wire_bytes(self.schema.pack_writes(writes))
        return CheckedWrites(writes, size_bytes, None, _has_repeated_keys(writes))

    def next_stamp(self, stamp: Timestamp) -> Timestamp:
        """Return the timestamp that rows with this `stamp` get if they are written now. It is never
        below the retained timestamp, since a feed that goes on from there must see these rows."""
        shown = max(self.newest_stamp, self.shown_timestamp, self.retained_timestamp - 1)
        return Timestamp(max(stamp, shown + 1))

    def _marks(self, special: SpecialWrites) -> Marks:
        plain_mask = self.schema.plain_mask
        if self.is_atomic:
            return {key: (plain_mask(mask), groups) for key, (mask, groups) in special.items()}
        return {key: (plain_mask(mask), 0) for key, (mask, _) in special.items()}

    @property
    def active(self) -> DynamicStore:
        """The store that takes writes."""
        return self.stores.active

    # For tests

    def dump(self) -> list[tuple[Key, list[DumpedVersion]]]:
        """Return all versions of all rows in key order, oldest first, without marks. Checkers
        compare a history with them."""
        return [
            (key, [it[:3] for it in reversed(versions)]) for key, versions in self.stores.rows()
        ]

    def locked_count(self) -> int:
        return sum(1 for locks in self.locks.values() if locks.holders)


def _has_repeated_keys(writes: Sequence[Write]) -> bool:
    return len(writes) > 1 and len({write[0] for write in writes}) != len(writes)
