"""A client's session as a workload uses it, with everything written into the history.

Owns: the translation of users' rows to the history's records, and the answer of a caller: ok, fail
or info. It records what the caller *asked* for, not what the client made. The work is done by the
Python client's session, or by another with the same few operations (`RowSession`).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, TypeVar, cast

from dodona._core.protocol.steps import Calls, Pause, Protocol, Step
from dodona._core.session import Session
from dodona._core.writing.conditions import Requirement
from dodona._core.writing.transaction import TransactionBuffer
from dodona_loadtest.histories.conditions import note_condition
from dodona_loadtest.histories.history import (
    Acquisition,
    History,
    LatestRead,
    Lock,
    Read,
    RowKey,
    Scan,
    Transaction,
    Write,
)
from dodona_loadtest.histories.refusals import RowsByKey, fail, forget_start, kind_of
from dodona_loadtest.histories.row_session import RowSession
from dodona_loadtest.histories.shape import Row, TableShape
from dodona_loadtest.histories.watching import watched
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError
from dodona_wire.messages.data import CommitOne, Prepare, bare_commit
from dodona_wire.rows.columns import MAIN_LOCK
from dodona_wire.types import (
    KEY_MAX,
    KEY_MIN,
    SYNC_LAST_COMMITTED,
    Isolation,
    LockType,
    Timestamp,
)

ASK_RATE: Final = 0.7
"""How often a caller without a sure answer asks for the outcome of its transaction."""
ASK_LATE_MS_MAX: Final = 8_000
"""Half of them ask late, when the outcome may be forgotten."""
LOOK_RATE: Final = 0.3
"""How often they only look. A pending outcome leaves them unsure."""

Result = TypeVar("Result")


class Recorder:
    """One session. It has at most one transaction at a time."""

    def __init__(
        self,
        session: RowSession,
        name: str,
        history: History,
        random: Random,
        instant_us: Callable[[], int],
    ) -> None:
        """`instant_us` is one clock for all sessions of a history."""
        self.name = name
        self.random = random
        self.rows = session
        self.history = history
        self._instant_us = instant_us
        self._value_count = 0
        self.on_commit: Callable[[], None] | None = None
        """Called when a commit begins."""
        self.last_commit: int | None = None
        """The timestamp of the last commit that was acknowledged."""
        self.doing = ""
        """The current work, in the words of its workload: for statistics."""
        self.failure: DodonaError | None = None
        """The error of its last write; None if the write was acknowledged without a question."""
        self.refusal: str | None = None
        """The kind of the error of its last write; None if the write was acknowledged."""
        self.aside_us = 0
        """How long it has asked for outcomes, pauses included: it counts as no latency."""

    @property
    def is_watched(self) -> bool:
        """Whether the recorder sees where each row goes."""
        return isinstance(self.rows, Session)

    @property
    def session(self) -> Session:
        """The Python client's session, for operations that others lack."""
        return cast("Session", self.rows)

    @session.setter
    def session(self, session: Session) -> None:
        self.rows = session

    @property
    def now_us(self) -> int:
        return self._instant_us()

    def unique_value(self) -> str:
        """Return a value that no other session ever writes."""
        self._value_count += 1
        return f"{self.name}/{self._value_count}"

    def begin(self, isolation: Isolation | None = None) -> Protocol["Attempt"]:
        """Begin a transaction. Only the Python client has isolations. Raises DodonaError if the
        oracle can't be reached."""
        record = self.history.begin(self.name, self.now_us)
        record.is_serializable = isolation == "serializable"
        try:
            if isolation is None:
                buffer = yield from self.rows.begin()
            else:  # its reads get the buffer
                buffer = yield from self.session.begin(isolation=isolation, is_repeatable=True)
        except DodonaError as error:
            record.status, record.end_us, record.error = "fail", self.now_us, str(error)
            raise
        assert buffer.start_timestamp is not None
        record.start, record.begun_us = buffer.start_timestamp, self.now_us
        return Attempt(self, buffer, record)

    def begin_reading(self) -> Protocol["Attempt"]:
        """Read the present as a snapshot that no server holds. Raises DodonaError."""
        record = self.history.begin(self.name, self.now_us)
        try:
            start = yield from self.rows.generate_timestamp(1)
        except DodonaError as error:
            record.status, record.end_us, record.error = "fail", self.now_us, str(error)
            raise
        record.start, record.begun_us = start, self.now_us
        return Attempt(self, None, record)

    def begin_at(self, timestamp: int) -> "Attempt":
        """Read at a timestamp of the caller's choice, past or future (refused while it is)."""
        record = self.history.begin(self.name, self.now_us)
        record.start, record.begun_us, record.is_fresh = timestamp, self.now_us, False
        return Attempt(self, None, record)

    def lookup_latest(self, table: TableShape, key: Row) -> Protocol[Row | None]:
        """Read the last committed state of one row."""
        asked_us = self.now_us
        rows = yield from self.rows.lookup_rows(
            table.path, [key], keep_missing=True, timestamp=SYNC_LAST_COMMITTED
        )
        read = self.history.shared(Read(table.row_key(key), table.columns_read(rows[0])))
        self.history.latest_reads.append(LatestRead(asked_us, self.now_us, read))
        row: Row | None = rows[0]
        return row

    def write(
        self,
        table: TableShape,
        rows: Sequence[Row],
        *,
        is_update: bool = False,
        required: Requirement | None = None,
    ) -> Protocol[bool]:
        """Write rows without a transaction. Return whether the answer says that it is committed.
        Only the Python client has conditions."""
        if required is None:
            writing = self.rows.write_rows(table.path, rows, is_update, "sync")
        else:
            write = self.session.write_rows
            writing = write(table.path, rows, is_update, "sync", required=required)
        writes = [table.write(row, is_update=is_update) for row in rows]
        return (yield from self._settle_blind(table, rows, writes, writing, required))

    def erase(
        self, table: TableShape, keys: Sequence[Row], required: Requirement | None = None
    ) -> Protocol[bool]:
        """Delete rows of one tablet without a transaction. Return whether the answer says that it
        is committed."""
        if required is None:
            erasing = self.rows.erase_rows(table.path, keys, "sync")
        else:
            erasing = self.session.erase_rows(table.path, keys, "sync", required)
        writes = [Write(table.row_key(key), None) for key in keys]
        return (yield from self._settle_blind(table, keys, writes, erasing, required))

    def _settle_blind(
        self,
        table: TableShape,
        rows: Sequence[Row],
        writes: Sequence[Write],
        writing: Protocol[Timestamp | None],
        required: Requirement | None,
    ) -> Protocol[bool]:
        record = self.history.begin(self.name, self.now_us)
        record.is_blind = True
        record.writes.extend(writes)
        if required is not None:
            for row in rows:
                note_condition(record, table, row, required)
        texts = [table.key_text(row) for row in rows]
        rows_by_key = {text: [write.row] for text, write in zip(texts, writes, strict=True)}
        noted = watched(writing, lambda step: self._note_name(record, step))
        return (yield from self.settle(record, noted, rows_by_key))

    def _note_name(self, record: Transaction, step: Step) -> None:
        """Note the names of a write. It is blind only if the whole write goes to one cell."""
        for _, sent in step.requests if isinstance(step, Calls) else ():
            body = bare_commit(sent)
            if isinstance(body, CommitOne):
                forget_start(record)
                if record.names[-1:] != [body.transaction]:  # else it is sent once more
                    record.names.append(body.transaction)
            elif isinstance(body, Prepare) and body.transaction != record.start:
                forget_start(record)
                record.is_blind = False
                record.start, record.begun_us = body.transaction, self.now_us

    def settle(
        self,
        record: Transaction,
        committing: Protocol[Timestamp | None],
        rows_by_key: RowsByKey,
    ) -> Protocol[bool]:
        """Record the answer that the caller of a commit gets. Return whether it says committed."""
        record.commit_us, self.failure = self.now_us, None
        if self.on_commit is not None:
            self.on_commit()
        try:
            timestamp = yield from committing
        except CommitOutcomeUnknown as error:
            answered_us, self.failure = self.now_us, error
            yield from self._ask_outcome(record, error)
            self.aside_us += self.now_us - answered_us
        except DodonaError as error:
            self.failure = error
            fail(record, error, rows_by_key, is_watched=self.is_watched)
        else:
            record.status, record.commit = "ok", timestamp
        record.end_us = self.now_us
        self.refusal = None if record.status == "ok" else kind_of(record.error)
        if record.status == "ok":
            self.last_commit = record.commit
        return record.status == "ok"

    def _ask_outcome(self, record: Transaction, error: CommitOutcomeUnknown) -> Protocol[None]:
        self.history.unknown_count += 1
        record.status, record.error = "info", f"{error.kind}: {error.message}"
        transaction = error.attributes.get("transaction")
        if transaction is None or self.random.random() > ASK_RATE:
            return
        if self.random.random() < 0.5:
            yield Pause(self.random.randrange(1, ASK_LATE_MS_MAX))
        settle = self.random.random() > LOOK_RATE
        try:
            outcome = yield from self.rows.outcome(transaction, settle=settle)
        except DodonaError:
            return
        if outcome.state == "committed":
            record.status, record.commit = "ok", outcome.timestamp
        elif outcome.state == "aborted":
            record.status = "fail"

    def take_timestamps(self, count: int) -> Protocol[None]:
        """Take a range of timestamps for nothing: this moves the oracle's counter ahead."""
        asked_us = self.now_us
        first = yield from self.rows.generate_timestamp(count)
        taken = Acquisition(self.name, asked_us, self.now_us, first, first + count - 1)
        self.history.acquisitions.append(taken)


class Attempt:
    """One transaction of one session."""

    def __init__(
        self, recorder: Recorder, buffer: TransactionBuffer | None, record: Transaction
    ) -> None:
        self.record = record
        self._recorder = recorder
        self._rows = recorder.rows
        self.buffer = buffer
        self._within: dict[str, Any] = {"transaction": buffer} if record.is_serializable else {}
        self._rows_by_key: dict[str, list[RowKey]] = {}
        self.locked_keys: list[dict[str, Any]] = []
        """The keys of the rows of all tables that it locked before it began."""
        self._written: dict[RowKey, None] = {}

    @property
    def session(self) -> Session:
        """The client's session, for calls that are not in the history."""
        return self._recorder.session

    def lookup(self, table: TableShape, keys: Sequence[Row]) -> Protocol[list[Row | None]]:
        """Read the rows of these keys, None for a missing row."""
        at = Timestamp(self.record.start)
        rows = yield from self._rows.lookup_rows(
            table.path, keys, keep_missing=True, timestamp=at, **self._within
        )
        shared = self._recorder.history.shared
        for key, row in zip(keys, rows, strict=True):
            self.record.reads.append(shared(Read(table.row_key(key), table.columns_read(row))))
        return list(rows)

    def glance(self, table: TableShape, key: Row, columns: Sequence[str]) -> Protocol[Row | None]:
        """Read some columns of a row. The history does not have this read: the caller judges it."""
        at = Timestamp(self.record.start)
        (row,) = yield from self._rows.lookup_rows(
            table.path, [key], columns, keep_missing=True, timestamp=at, **self._within
        )
        found: Row | None = row
        return found

    def scan(
        self,
        table: TableShape,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        copy: str | None = None,
    ) -> Protocol[list[dict[str, Any]]]:
        """Read the rows of lower ≤ key < upper, or those of a copy of the table at that path."""
        at, path = Timestamp(self.record.start), copy or table.path
        found = yield from self._rows.select(path, lower, upper, timestamp=at, **self._within)
        rows = [dict(row) for row in found]
        shared = self._recorder.history.shared
        reads = tuple(
            shared(Read(table.row_key(row), table.columns_read(row) or ())) for row in rows
        )
        first, end = table.bound(lower, KEY_MIN), table.bound(upper, KEY_MAX)
        scan = Scan(table.path, first, end, reads)
        self.record.scans.append(scan)
        self._recorder.history.weigh(scan)
        return rows

    def insert(
        self,
        table: TableShape,
        row: Row,
        *,
        is_update: bool = False,
        is_aggregate: bool = False,
        is_shared: bool = False,
    ) -> Protocol[None]:
        """Buffer one row. A workload writes each row at most once a transaction."""
        assert self.buffer is not None
        lock_type: LockType = "shared_write" if is_shared else "exclusive"
        yield from self._rows.insert_rows(
            self.buffer, table.path, [row], is_update, is_aggregate, lock_type
        )
        write = table.write(
            row, is_update=is_update, is_aggregate=is_aggregate, is_shared=is_shared
        )
        self._keep(table, row, write)

    def delete(self, table: TableShape, key: Row) -> Protocol[None]:
        assert self.buffer is not None
        yield from self._rows.delete_rows(self.buffer, table.path, [key])
        self._keep(table, key, Write(table.row_key(key), None))

    def lock(
        self,
        table: TableShape,
        key: Row,
        locks: Sequence[str] | None = None,
        *,
        is_strong: bool = True,
        is_exclusive: bool = False,
    ) -> Protocol[None]:
        """Buffer a lock without data on some lock groups of a row: on the main one, if none is
        named. It is for reading, unless it is exclusive."""
        assert self.buffer is not None
        lock_type: LockType = "shared_strong" if is_strong else "shared_weak"
        if is_exclusive:
            lock_type = "exclusive"
        yield from self._rows.lock_rows(self.buffer, table.path, [key], locks, lock_type)
        groups = table.groups_named([MAIN_LOCK] if locks is None else locks)
        row = table.row_key(key)
        self.record.locks.append(Lock(row, is_strong, groups, is_exclusive))
        self._rows_by_key.setdefault(table.key_text(key), []).append(row)

    def name_row(self, text: str, row: RowKey) -> None:
        """Know the row by the text that errors have of its key."""
        self._rows_by_key.setdefault(text, []).append(row)

    def require(self, table: TableShape, key: Row, required: Requirement) -> Protocol[None]:
        """Buffer a condition for a row that this transaction does not write."""
        assert self.buffer is not None
        yield from self.session.require_rows(self.buffer, table.path, [key], required)
        note_condition(self.record, table, key, required)
        self._rows_by_key.setdefault(table.key_text(key), []).append(table.row_key(key))

    def _keep(self, table: TableShape, row: Row, write: Write) -> None:
        assert write.row not in self._written, "a workload writes a row once a transaction"
        self._written[write.row] = None
        self.record.writes.append(write)
        self._rows_by_key.setdefault(table.key_text(row), []).append(write.row)

    def end(self) -> None:
        """End a reader."""
        assert not self.record.is_writer
        self.record.status, self.record.end_us = "ok", self._recorder.now_us

    def commit(self) -> Protocol[bool]:
        """Commit. Return whether the answer says that it is committed."""
        assert self.buffer is not None
        committing = watched(self._rows.commit(self.buffer), self._note_again)
        settling = self._recorder.settle(self.record, committing, self._rows_by_key)
        return (yield from settling)

    def _note_again(self, step: Step) -> None:
        """Note the id of a new attempt after a refusal."""
        for _, sent in step.requests if isinstance(step, Calls) else ():
            body = bare_commit(sent)
            if not isinstance(body, CommitOne | Prepare):
                continue
            if body.transaction not in (self.record.start, *self.record.again[-1:]):
                self.record.again.append(body.transaction)

    def abort(self, error: DodonaError | None = None) -> Protocol[None]:
        """Abort, which releases the locks that it took before it began."""
        assert self.buffer is not None
        self._end_failed("aborted" if error is None else f"{error.kind}: {error.message}")
        yield from self.session.abort(self.buffer)

    def vanish(self) -> None:
        """End without a word to any server."""
        self._end_failed("vanished")

    def _end_failed(self, text: str) -> None:
        self.record.status, self.record.end_us = "fail", self._recorder.now_us
        self.record.error = text

    def give_up(self, error: DodonaError) -> None:
        """Note an error from before the request of the commit."""
        self._end_failed(f"{error.kind}: {error.message}")
