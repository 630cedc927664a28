"""A transaction as its client holds it: a state, and a buffer of writes. Pure.

Owns: the states, the merge rules for several writes of one key, and the limits of a transaction,
which are checked as rows are buffered and not first at commit. Nothing leaves the client before
commit, so abort only drops the buffer, and reads never see it.
Invariants: at most one write a key; every write was checked against its table's schema.
"""

import enum
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from dodona.errors import (
    InvalidRequest,
    LimitExceeded,
    SchemaViolation,
    SnapshotTooOld,
    TransactionClosed,
)
from dodona.schema import TableSchema
from dodona.types import (
    DELETE_MASK,
    SYNC_LAST_COMMITTED,
    Atomicity,
    CellId,
    Durability,
    Key,
    Timestamp,
    TransactionId,
    Write,
)

ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 32 << 20
LIFE_MS_MAX: Final = 60_000
VALUE_BYTES: Final = 9
"""What a number takes at most on the wire; text and bytes take their length besides."""


class TransactionState(enum.Enum):
    """Only an active transaction takes rows; the last two are final."""

    ACTIVE = "active"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"


class TransactionLimits(msgspec.Struct, frozen=True):
    """What one transaction may hold, and for how long it may live."""

    rows_max: int = ROWS_MAX
    bytes_max: int = BYTES_MAX
    life_ms_max: int = LIFE_MS_MAX


class TableBuffer:
    """The writes to one table, by encoded key."""

    __slots__ = ("schema", "writes")

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.writes: dict[Key, Write] = {}


def check_modes(atomicity: str, durability: str) -> None:
    """Raises InvalidRequest for modes that do not exist or do not go together."""
    if atomicity not in ("full", "none"):
        raise InvalidRequest(f'Atomicity must be "full" or "none", not {atomicity!r}')
    if durability not in ("sync", "async"):
        raise InvalidRequest(f'Durability must be "sync" or "async", not {durability!r}')
    if atomicity == "full" and durability == "async":
        raise InvalidRequest(
            'Durability must be "sync" for tablet transactions with "full" atomicity'
        )


class TransactionBuffer:
    """One transaction. `start_timestamp` is None for one without a snapshot: for a non-atomic one,
    and for a blind one, which reads nothing and gets its id when its commit begins."""

    __slots__ = (
        "_begun_us",
        "_limits",
        "atomicity",
        "commit_timestamp",
        "coordinator",
        "durability",
        "id",
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
    ) -> None:
        """`begun_us` is the instant at which the start timestamp was asked for."""
        check_modes(atomicity, durability)
        assert start_timestamp is None or atomicity == "full"
        self.start_timestamp = start_timestamp
        self.id: TransactionId | None = None
        """The start timestamp names a transaction that has one; a non-atomic one has no name."""
        if start_timestamp is not None:
            self.id = TransactionId(start_timestamp)
        self.atomicity = atomicity
        self.durability = durability
        self.state = TransactionState.ACTIVE
        self.commit_timestamp: Timestamp | None = None
        self.coordinator: CellId | None = None
        """The cell that decides on it, once its commit has begun."""
        self.tables: dict[str, TableBuffer] = {}
        self._begun_us = begun_us
        self._limits = limits
        self.row_count = 0
        self.size_bytes = 0

    @property
    def is_blind(self) -> bool:
        return self.start_timestamp is None and self.atomicity == "full"

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
        """What reads in this transaction see. Raises TransactionClosed."""
        self._check_active("read in")
        return SYNC_LAST_COMMITTED if self.start_timestamp is None else self.start_timestamp

    def describe(self, name: str) -> str:
        """For people, under the name of the class that they see."""
        identity = "non-atomic" if self.id is None else str(self.id)
        return f"<{name} {identity} {self.state.value}, {self.row_count} rows written>"

    # ---- buffering

    def insert(
        self, path: str, schema: TableSchema, rows: Iterable[Mapping[str, Any]], *, is_update: bool
    ) -> None:
        """Buffer rows, or none of them: raises SchemaViolation, LimitExceeded."""
        self._check_active("modify rows in")
        _check_rows_argument(rows)
        writes: list[Write] = []
        try:
            for row in islice(rows, self._limits.rows_max + 1):
                if type(row) is not dict:
                    _check_row(row)
                writes.append(schema.write_of(row, is_update=is_update))
        except SchemaViolation as error:
            error.attributes.update(table=path, row_index=len(writes))
            raise
        self._put(path, schema, writes)

    def delete(self, path: str, schema: TableSchema, keys: Iterable[Mapping[str, Any]]) -> None:
        """Buffer deletions, or none of them: raises SchemaViolation, LimitExceeded."""
        self._check_active("modify rows in")
        _check_rows_argument(keys)
        writes: list[Write] = []
        try:
            for key in islice(keys, self._limits.rows_max + 1):
                if type(key) is not dict:
                    _check_row(key)
                writes.append((schema.key_of(key), DELETE_MASK, ()))
        except SchemaViolation as error:
            error.attributes.update(table=path, row_index=len(writes))
            raise
        self._put(path, schema, writes)

    def _put(self, path: str, schema: TableSchema, writes: list[Write]) -> None:
        buffer = self.tables.get(path)
        if buffer is None:
            buffer = TableBuffer(schema)
        elif buffer.schema is not schema and buffer.schema != schema:
            raise SchemaViolation("the table's schema changed during the transaction", table=path)
        changes: dict[Key, Write] = {}
        row_count, size_bytes = self.row_count, self.size_bytes
        for write in writes:
            key = write[0]
            known = changes.get(key) or buffer.writes.get(key)
            if known is None:
                row_count += 1
            else:
                size_bytes -= write_bytes(known)
                write = merge(schema, known, write)
            size_bytes += write_bytes(write)
            changes[key] = write
        self._check_limits(path, row_count, size_bytes)
        if changes:
            buffer.writes.update(changes)
            self.tables[path] = buffer
        self.row_count, self.size_bytes = row_count, size_bytes

    def _check_limits(self, path: str, row_count: int, size_bytes: int) -> None:
        limits = self._limits
        if row_count > limits.rows_max:
            raise LimitExceeded(f"a transaction writes at most {limits.rows_max} rows", table=path)
        if size_bytes > limits.bytes_max:
            raise LimitExceeded(
                f"a transaction writes at most {limits.bytes_max} bytes", table=path
            )

    # ---- ending

    def start_commit(self, instant_us: int) -> None:
        """From here on it takes no rows. Raises TransactionClosed, SnapshotTooOld."""
        self._check_active("commit")
        age_ms = (instant_us - self._begun_us) // 1000
        if age_ms > self._limits.life_ms_max and self.start_timestamp is not None:
            self.abort()
            raise SnapshotTooOld(
                f"a transaction lives at most {self._limits.life_ms_max} ms",
                transaction=self.id,
                age_ms=age_ms,
            )
        self.state = TransactionState.COMMITTING

    def end_committed(self, timestamp: Timestamp | None) -> None:
        """`timestamp` is None if there was nothing to commit."""
        assert self.state is TransactionState.COMMITTING
        self.state = TransactionState.COMMITTED
        self.commit_timestamp = timestamp
        self.tables = {}

    def end_aborted(self) -> None:
        """The commit was refused."""
        assert self.state is TransactionState.COMMITTING
        self.state = TransactionState.ABORTED
        self.tables = {}

    def settle(self, timestamp: Timestamp | None) -> None:
        """The unknown outcome became known: committed at `timestamp`, or aborted for None."""
        if timestamp is None:
            self.end_aborted()
        else:
            self.end_committed(timestamp)

    def abort(self) -> None:
        """Drop the buffer. Repeating it is harmless; raises TransactionClosed after a commit."""
        if self.state is TransactionState.ABORTED:
            return
        self._check_active("abort")
        self.state = TransactionState.ABORTED
        self.tables = {}

    def _check_active(self, action: str) -> None:
        if self.state is TransactionState.ACTIVE:
            return
        name = "the transaction" if self.id is None else f"transaction {self.id}"
        raise TransactionClosed(
            f"cannot {action} {name}: {_CLOSED[self.state]}",
            transaction=self.id,
            state=self.state.value,
        )


_CLOSED: Final = {
    TransactionState.COMMITTING: "it is being committed",
    TransactionState.COMMITTED: "it is already committed",
    TransactionState.ABORTED: "it is already aborted",
}


def merge(schema: TableSchema, old: Write, new: Write) -> Write:
    """What two writes of one key come to.

    Writes merge column by column, a deletion replaces what was before it, and a write after
    a deletion sets every column: those it does not name become null.
    """
    key, mask, values = new
    old_mask, old_values = old[1], old[2]
    if mask in (DELETE_MASK, schema.full_mask) or mask == old_mask:
        return new
    if old_mask == DELETE_MASK:
        old_mask, old_values = schema.full_mask, (None,) * len(schema.value_columns)
    by_bit = dict(zip(_bits(old_mask), old_values, strict=True))
    by_bit.update(zip(_bits(mask), values, strict=True))
    return key, old_mask | mask, tuple([by_bit[bit] for bit in sorted(by_bit)])


def _bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def write_bytes(write: Write) -> int:
    """About how long a write is on the wire, never less."""
    key, _, values = write
    size_bytes = len(key) + VALUE_BYTES * (3 + len(values))
    for value in values:
        kind = type(value)
        if kind is str:
            size_bytes += len(value) if value.isascii() else len(value.encode())
        elif kind is bytes:
            size_bytes += len(value)
        elif kind is list or kind is dict:
            size_bytes += len(msgspec.msgpack.encode(value))
    return size_bytes


def _check_rows_argument(rows: object) -> None:
    if type(rows) is list:
        return
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidRequest(f"rows are given as a list of dicts, not as one {type(rows).__name__}")


def _check_row(row: object) -> None:
    if not isinstance(row, Mapping):
        raise SchemaViolation(f"a row is a dict, not {type(row).__name__}")
