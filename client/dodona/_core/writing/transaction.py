"""A transaction in the client that holds it: a state, and a buffer of writes. Pure.

Owns: the states, the checks of buffered rows, and the limits of a transaction. The limits are
checked when rows are buffered, not only at the commit. `buffer` decides the result of more than one
write of a key.
Before the commit, the client sends nothing. So an abort only drops the buffer. Reads see the buffer
only if the transaction was begun with `read_own_writes`.
Invariant: of the rows of one call, all are taken or none.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from dodona._core.protocol.arguments import bounded, check_flag, check_row
from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.retry import LOCKED_ROWS_MAX
from dodona._core.writing.buffer import TableBuffer, merge
from dodona._core.writing.conditions import NOTHING, Conditions, Requirement, conditions_of
from dodona._core.writing.early_locks import NOTHING_LOCKED
from dodona._core.writing.modes import check_modes
from dodona._core.writing.reads import TableReads, TransactionReads
from dodona_wire.errors import (
    InvalidRequest,
    LimitExceeded,
    SchemaViolation,
    SnapshotTooOld,
    TransactionAborted,
    TransactionClosed,
)
from dodona_wire.messages.data import Publication
from dodona_wire.rows.columns import MAIN_LOCK_MASK
from dodona_wire.rows.conditions import CONDITIONS_MAX
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.shown import named
from dodona_wire.types import (
    DELETE_MASK,
    SYNC_LAST_COMMITTED,
    Atomicity,
    CellId,
    Durability,
    Isolation,
    Key,
    LockType,
    TabletId,
    Timestamp,
    TransactionId,
    Write,
)

ShortMode = Literal["upsert", "delete"]
"""The modes of a write of data in a transaction."""
WRITE_LOCK_TYPES: Final = ("exclusive", "shared_write")
ROW_LOCK_TYPES: Final[tuple[str, ...]] = get_args(LockType)


class TransactionState(enum.Enum):
    """The state of a transaction. Only an active one takes rows. The last two states are final."""

    ACTIVE = "active"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionBuffer:
    """One transaction. `start_timestamp` is None if it has no snapshot. This is so for a non-atomic
    one, and for a blind one. A blind one reads nothing, and gets its id when its commit begins."""

    __slots__ = (
        "_begun_us",
        "_limits",
        "atomicity",
        "commit_timestamp",
        "coordinator",
        "durability",
        "former",
        "id",
        "is_id_known",
        "is_refused",
        "isolation",
        "locked",
        "locked_rows",
        "only_reads",
        "publications",
        "reads",
        "reads_own_writes",
        "refused_rows",
        "row_count",
        "size_bytes",
        "start_timestamp",
        "state",
        "tables",
    )

    def __init__(
        self,
        start_timestamp: Timestamp | None,
        *,
        atomicity: Atomicity,
        durability: Durability,
        begun_us: int,
        limits: TransactionLimits,
        reads_own_writes: bool = False,
    ) -> None:
        """Make a buffer. `begun_us` is the time at which the client asked for the start
        timestamp."""
        check_modes(atomicity, durability)
        assert start_timestamp is None or atomicity == "full"
        self.start_timestamp = start_timestamp
        self.id: TransactionId | None = None
        """The start timestamp is the id, if there is one. A non-atomic transaction has no id."""
        if start_timestamp is not None:
            self.id = TransactionId(start_timestamp)
        self.atomicity = atomicity
        self.durability = durability
        self.reads_own_writes = reads_own_writes
        self.state = TransactionState.ACTIVE
        self.commit_timestamp: Timestamp | None = None
        self.coordinator: CellId | None = None
        """The cell that decides the outcome, after the commit has begun."""
        self.tables: dict[str, TableBuffer] = {}
        self.publications: dict[str, dict[TabletId, Publication]] = {}
        """The parts of a bulk load that become visible with this transaction, by path."""
        self.locked = NOTHING_LOCKED
        """The early locks of the transaction."""
        self.locked_rows: dict[str, list[dict[str, Any]]] = {}
        """The keys of the rows that are locked early, by path."""
        self.isolation: Isolation | None = None
        """The isolation that the transaction was given, if it was."""
        self.reads: TransactionReads | None = None
        """What was read. None: reads are not recorded."""
        self.only_reads = False
        """Whether it only reads, at a timestamp that the caller chose. Then it has no id."""
        self.former: tuple[TransactionId, ...] = ()
        """The ids of earlier attempts, which were refused."""
        self.is_refused = False
        """Whether the attempt with the present id was refused, and the next one gets a new id."""
        self.is_id_known = False
        """Whether the program has the id of the transaction. Then the id is final."""
        self.refused_rows: dict[str, list[Key]] = {}
        """After a refusal, the rows that it wrote or locked, by path, unless they are many. Also
        the recorded reads of single rows, unless they are many together."""
        self._begun_us = begun_us
        self._limits = limits
        self.row_count = 0
        self.size_bytes = 0

    @property
    def is_blind(self) -> bool:
        return self.start_timestamp is None and self.atomicity == "full"

    @property
    def is_again(self) -> bool:
        """Whether this is a new attempt after a refusal. It has an id that is later than its reads,
        or gets one."""
        return bool(self.former) or self.is_refused

    def begin_again(self, timestamp: Timestamp) -> None:
        """Take a new id for a new attempt."""
        assert self.is_refused
        assert self.id is not None
        self.former, self.is_refused = (*self.former, self.id), False
        self.id = TransactionId(timestamp)

    @property
    def validated(self) -> Mapping[str, TableReads]:
        """What the attempt must find as it was read, by path."""
        return {} if self.reads is None else self.reads.validated(is_again=self.is_again)

    @property
    def is_active(self) -> bool:
        return self.state is TransactionState.ACTIVE

    @property
    def is_committing(self) -> bool:
        return self.state is TransactionState.COMMITTING

    @property
    def is_committed(self) -> bool:
        return self.state is TransactionState.COMMITTED

    @property
    def is_aborted(self) -> bool:
        return self.state is TransactionState.ABORTED

    def read_timestamp(self) -> Timestamp:
        """Return the timestamp of reads in this transaction. Raises TransactionClosed."""
        self.check_active("read in")
        return SYNC_LAST_COMMITTED if self.start_timestamp is None else self.start_timestamp

    def own_writes(self, path: str) -> TableBuffer | None:
        """Return the writes that reads of the table also see, or None."""
        return self.tables.get(path) if self.reads_own_writes else None

    def describe(self, name: str) -> str:
        """Return a text for people, under the class name that they see."""
        identity = "non-atomic" if self.id is None else str(self.id)
        if self.only_reads:
            identity = f"at {self.start_timestamp}"
        return f"<{name} {identity} {self.state.value}, {self.row_count} rows written>"

    # ---- buffering

    def insert(
        self,
        path: str,
        schema: TableSchema,
        rows: Iterable[Mapping[str, Any]],
        *,
        is_update: bool,
        is_aggregate: bool = False,
        lock_type: LockType = "exclusive",
        required: Requirement | None = None,
    ) -> None:
        """Buffer all of the rows, or none. Raises SchemaViolation, LimitExceeded,
        InvalidRequest."""
        self.check_writable("modify rows in")
        if type(is_update) is not bool:
            check_flag(is_update, "update")
        if type(is_aggregate) is not bool:
            check_flag(is_aggregate, "aggregate")
        is_shared = lock_type != "exclusive"
        if is_shared:
            self._check_lock_type(lock_type, WRITE_LOCK_TYPES, "write modification")
        write_of = schema.change_of if is_aggregate else schema.write_of
        writes: list[Write] = []
        try:
            for row in bounded(rows, self._limits.rows_max):
                if type(row) is not dict:
                    check_row(row)
                writes.append(write_of(row, is_update=is_update))
        except SchemaViolation as error:
            error.attributes.update(table=path, row_index=len(writes))
            raise
        delta_mask = schema.aggregate_mask if is_aggregate else 0
        conditions = NOTHING
        if required is not None:
            conditions = self._conditions(path, schema, [it[0] for it in writes], required)
        self.put(path, schema, writes, delta_mask, is_shared, conditions)

    def delete(
        self,
        path: str,
        schema: TableSchema,
        keys: Iterable[Mapping[str, Any]],
        required: Requirement | None = None,
    ) -> None:
        """Buffer all of the deletions, or none. Raises SchemaViolation, LimitExceeded,
        InvalidRequest."""
        self.check_writable("modify rows in")
        writes = [(key, DELETE_MASK, ()) for key in self._keys_of(path, schema, keys)]
        conditions = NOTHING
        if required is not None:
            conditions = self._conditions(path, schema, [it[0] for it in writes], required)
        self.put(path, schema, writes, conditions=conditions)

    def require(
        self,
        path: str,
        schema: TableSchema,
        keys: Iterable[Mapping[str, Any]],
        required: Requirement,
    ) -> None:
        """Buffer conditions for rows that need not be written. Raises SchemaViolation,
        LimitExceeded, InvalidRequest."""
        self.check_writable("add conditions to")
        encoded = self._keys_of(path, schema, keys)
        buffer = self.tables.get(path) or TableBuffer(schema)
        check_schema(path, buffer, schema)
        conditions = self._conditions(path, schema, encoded, required)
        self._count(path, len(conditions.by_key), conditions.size_bytes)
        buffer.conditions.update(conditions.by_key)
        if conditions.by_key:
            self.tables[path] = buffer

    def _conditions(
        self, path: str, schema: TableSchema, keys: Iterable[Key], required: Requirement
    ) -> Conditions:
        if self.atomicity == "none":
            text = "Conditions need a table and a transaction with atomicity full."
            raise InvalidRequest(text, table=path)
        buffer = self.tables.get(path)
        known = {} if buffer is None else buffer.conditions
        try:
            made = conditions_of(schema, keys, required, known)
        except (InvalidRequest, SchemaViolation) as error:
            error.attributes.update(table=path)
            raise
        there = sum([len(it.conditions) for it in self.tables.values()])
        if there + len(made.by_key.keys() - known.keys()) > CONDITIONS_MAX:
            text = f"A transaction has at most {CONDITIONS_MAX} conditions. Split it."
            raise LimitExceeded(text, table=path)
        return made

    def lock(
        self,
        path: str,
        schema: TableSchema,
        keys: Iterable[Mapping[str, Any]],
        locks: Sequence[str] | None,
        lock_type: LockType,
    ) -> None:
        """Buffer all of the row locks, or none. Raises InvalidRequest, LimitExceeded."""
        self.check_writable("lock rows in")
        self._check_lock_type(lock_type, ROW_LOCK_TYPES, "row lock")
        lock_mask = schema.lock_mask_of(locks)
        encoded = self._keys_of(path, schema, keys)
        buffer = self.tables.get(path) or TableBuffer(schema)
        check_schema(path, buffer, schema)
        if lock_mask and encoded:
            changes = buffer.after_locks(encoded, lock_mask, lock_type)
            self._count(path, changes.row_count, changes.size_bytes)
            buffer.take(changes)
            self.tables[path] = buffer

    def _check_lock_type(self, lock_type: str, known: Sequence[str], use: str) -> None:
        if lock_type not in known:
            raise InvalidRequest(f'Inappropriate lock type "{named(lock_type)}" given for {use}')
        if self.atomicity == "none":
            raise InvalidRequest("A non-atomic transaction takes no locks.", lock_type=lock_type)

    def _keys_of(
        self, path: str, schema: TableSchema, keys: Iterable[Mapping[str, Any]]
    ) -> list[Key]:
        encoded: list[Key] = []
        try:
            for key in bounded(keys, self._limits.rows_max):
                if type(key) is not dict:
                    check_row(key)
                encoded.append(schema.key_of(key))
        except SchemaViolation as error:
            error.attributes.update(table=path, row_index=len(encoded))
            raise
        return encoded

    def hold(self, path: str, schema: TableSchema, keys: Sequence[Key]) -> None:
        """Buffer exclusive locks of rows that were locked early, so that the commit excludes others
        also if the early locks were lost. Raises LimitExceeded."""
        buffer = self.tables.get(path) or TableBuffer(schema)
        changes = buffer.after_locks(keys, MAIN_LOCK_MASK, "exclusive")
        self._count(path, changes.row_count, changes.size_bytes)
        buffer.take(changes)
        names = schema.key_names
        self.locked_rows[path] = [
            dict(zip(names, schema.decode_key(it), strict=True)) for it in keys
        ]
        if keys:
            self.tables[path] = buffer

    def put(
        self,
        path: str,
        schema: TableSchema,
        writes: list[Write],
        delta_mask: int = 0,
        is_shared: bool = False,
        conditions: Conditions = NOTHING,
    ) -> None:
        """Buffer writes that were made for the schema, and conditions for their rows. In nearly all
        calls nothing is special about them. Raises LimitExceeded."""
        buffer = self.tables.get(path) or TableBuffer(schema)
        if buffer.schema is not schema:
            check_schema(path, buffer, schema)
        if delta_mask or is_shared or buffer.special:
            changes = buffer.after_special_writes(writes, delta_mask, is_shared)
            self._count(path, changes.row_count, changes.size_bytes + conditions.size_bytes)
            buffer.take(changes)
        else:
            here = buffer.writes
            changed: dict[Key, Write] = {}
            row_count, size_bytes = 0, conditions.size_bytes
            for write in writes:
                key = write[0]
                known = changed.get(key) or here.get(key)
                if known is not None:
                    size_bytes -= write_bytes(known)
                    write = merge(schema, known, write)
                elif key not in buffer.locks:
                    row_count += 1
                size_bytes += write_bytes(write)
                changed[key] = write
            self._count(path, row_count, size_bytes)
            here.update(changed)
        if conditions.by_key:
            buffer.conditions.update(conditions.by_key)
        if writes:
            self.tables[path] = buffer

    def _count(self, path: str, row_count: int, size_bytes: int) -> None:
        """Add to the counts. Raises LimitExceeded if there are then too many rows or bytes."""
        limits = self._limits
        row_count += self.row_count
        size_bytes += self.size_bytes
        if row_count > limits.rows_max:
            text = (
                f"A transaction writes and locks at most {limits.rows_max} rows. "
                "Split the rows among transactions."
            )
            raise LimitExceeded(text, table=path)
        if size_bytes > limits.bytes_max:
            text = (
                f"A transaction writes and locks at most {limits.bytes_max} bytes. "
                "Split the rows among transactions."
            )
            raise LimitExceeded(text, table=path)
        self.row_count, self.size_bytes = row_count, size_bytes

    # ---- ending

    def start_commit(self, instant_us: int) -> None:
        """Begin the commit: the transaction takes no more rows. Raises TransactionClosed,
        SnapshotTooOld."""
        self.check_active("commit")
        age_ms = (instant_us - self._begun_us) // 1000
        is_bounded = self.start_timestamp is not None and not self.only_reads
        if is_bounded and age_ms > self._limits.life_ms_max:
            self.abort()
            raise SnapshotTooOld(
                f"A transaction lives at most {self._limits.life_ms_max} ms. "
                "Begin a new transaction.",
                transaction=self.id,
                age_ms=age_ms,
            )
        self.state = TransactionState.COMMITTING

    def end_committed(self, timestamp: Timestamp | None) -> None:
        """End the commit. `timestamp` is None if there was nothing to commit."""
        assert self.state is TransactionState.COMMITTING
        self.state = TransactionState.COMMITTED
        self.commit_timestamp = timestamp
        self.tables, self.reads = {}, None

    def end_aborted(self) -> None:
        """End the commit after a refusal."""
        assert self.state is TransactionState.COMMITTING
        if self.former:
            self.id = self.former[0]
        if self.row_count <= LOCKED_ROWS_MAX:
            rows = {path: [*{**it.writes, **it.locks}] for path, it in self.tables.items()}
            reads = self.reads
            self.refused_rows = rows if reads is None else reads.with_keys(rows, LOCKED_ROWS_MAX)
        self.state = TransactionState.ABORTED
        self.tables, self.reads = {}, None

    def settle(self, timestamp: Timestamp | None) -> None:
        """End a commit whose outcome was unknown: committed at `timestamp`, or aborted for None."""
        if timestamp is None:
            self.end_aborted()
        else:
            self.end_committed(timestamp)

    def abort(self) -> None:
        """Drop the buffer. A repetition changes nothing. Raises TransactionClosed after a
        commit."""
        if self.state is TransactionState.ABORTED:
            return
        self.check_active("abort")
        self.state = TransactionState.ABORTED
        self.tables, self.reads = {}, None

    def check_writable(self, action: str) -> None:
        """Raise TransactionClosed or InvalidRequest, which name the refused action, unless rows may
        be buffered."""
        self.check_active(action)
        if self.only_reads:
            raise InvalidRequest(
                f"Cannot {action} a transaction that began with a timestamp: it only reads. "
                "Begin one without `timestamp`.",
                timestamp=self.start_timestamp,
            )

    def check_active(self, action: str) -> None:
        """Raise TransactionClosed, which names the refused action, unless it is active."""
        if self.state is TransactionState.ACTIVE:
            return
        name = "the transaction" if self.id is None else f"transaction {self.id}"
        raise TransactionClosed(
            f"Cannot {action} {name}: {_CLOSED[self.state]}",
            transaction=self.id,
            state=self.state.value,
        )


_CLOSED: Final = {
    TransactionState.COMMITTING: "the transaction is being committed",
    TransactionState.COMMITTED: "the transaction is already committed",
    TransactionState.ABORTED: "the transaction is already aborted",
}


def check_schema(path: str, buffer: TableBuffer, schema: TableSchema) -> None:
    """Check that the table still has the schema of the buffered rows. Raises TransactionAborted: a
    new transaction makes its rows for the new schema."""
    if buffer.schema is not schema and buffer.schema != schema:
        raise TransactionAborted(
            "The table's schema changed during the transaction. Run the transaction again.",
            table=path,
        )
