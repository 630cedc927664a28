"""A client's session as a workload uses it, with everything written into the history.

Owns: the translation between the users' rows and the history's records, and what a caller was told:
ok, fail or info. It records what was *asked*, not what the client made of it.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, cast

from dodona._core.messages import CommitOne, Prepare
from dodona._core.session import Session
from dodona._core.steps import Calls, Pause, Protocol, Step
from dodona._core.transaction import TransactionBuffer
from dodona.errors import CommitOutcomeUnknown, DodonaError, TransactionConflict
from dodona.schema import MAIN_LOCK
from dodona.types import KEY_MAX, KEY_MIN, SYNC_LAST_COMMITTED, LockType, Timestamp
from dodona_loadtest.histories.history import (
    Acquisition,
    Conflict,
    History,
    LatestRead,
    Lock,
    Read,
    RowKey,
    Scan,
    Transaction,
    Write,
)
from dodona_loadtest.histories.shape import Row, TableShape

ASK_RATE: Final = 0.7
"""How often a caller that was told nothing sure asks what became of its transaction."""
ASK_LATE_MS_MAX: Final = 8_000
"""Half of them ask late, when it may be forgotten."""
LOOK_RATE: Final = 0.3
"""How often they only look. A pending one leaves them unsure."""


class Recorder:
    """One session. At most one transaction at a time."""

    def __init__(
        self,
        session: Session,
        name: str,
        history: History,
        random: Random,
        instant_us: Callable[[], int],
    ) -> None:
        """`instant_us` is one clock for all sessions of a history."""
        self.name = name
        self.random = random
        self.session = session
        self.history = history
        self._instant_us = instant_us
        self._value_count = 0
        self.on_commit: Callable[[], None] | None = None
        """Told when a commit begins."""
        self.last_commit: int | None = None
        """The timestamp of the last commit that was acknowledged."""

    @property
    def now_us(self) -> int:
        return self._instant_us()

    def unique_value(self) -> str:
        """A value that nobody else ever writes."""
        self._value_count += 1
        return f"{self.name}/{self._value_count}"

    def begin(self) -> Protocol["Attempt"]:
        """Raises DodonaError when the oracle can't be reached."""
        record = self.history.begin(self.name, self.now_us)
        try:
            buffer = yield from self.session.begin()
        except DodonaError as error:
            record.status, record.end_us, record.error = "fail", self.now_us, str(error)
            raise
        assert buffer.start_timestamp is not None
        record.start, record.begun_us = buffer.start_timestamp, self.now_us
        return Attempt(self, buffer, record)

    def begin_at(self, timestamp: int) -> "Attempt":
        """Reads at a timestamp of the caller's choice, past or (refused, if it still is) future."""
        record = self.history.begin(self.name, self.now_us)
        record.start, record.begun_us, record.is_fresh = timestamp, self.now_us, False
        return Attempt(self, None, record)

    def lookup_latest(self, table: TableShape, key: Row) -> Protocol[Row | None]:
        """The last committed state of one row."""
        asked_us = self.now_us
        rows = yield from self.session.lookup_rows(
            table.path, [key], keep_missing=True, timestamp=SYNC_LAST_COMMITTED
        )
        read = Read(table.row_key(key), table.columns_read(rows[0]))
        self.history.latest_reads.append(LatestRead(asked_us, self.now_us, read))
        return rows[0]

    def write(
        self, table: TableShape, rows: Sequence[Row], *, is_update: bool = False
    ) -> Protocol[bool]:
        """Write rows without a transaction. → whether the caller was told that it is committed."""
        writing = self.session.write_rows(table.path, rows, is_update, "sync")
        writes = [table.write(row, is_update=is_update) for row in rows]
        return (yield from self._settle_blind(table, rows, writes, writing))

    def erase(self, table: TableShape, keys: Sequence[Row]) -> Protocol[bool]:
        """Delete rows of one tablet without a transaction. → whether the caller was told that it
        is committed."""
        erasing = self.session.erase_rows(table.path, keys, "sync")
        writes = [Write(table.row_key(key), None) for key in keys]
        return (yield from self._settle_blind(table, keys, writes, erasing))

    def _settle_blind(
        self,
        table: TableShape,
        rows: Sequence[Row],
        writes: Sequence[Write],
        writing: Protocol[Timestamp | None],
    ) -> Protocol[bool]:
        record = self.history.begin(self.name, self.now_us)
        record.is_blind = True
        record.writes.extend(writes)
        texts = [table.key_text(row) for row in rows]
        rows_by_key = {text: write.row for text, write in zip(texts, writes, strict=True)}
        return (yield from self.settle(record, self._watch(record, writing), rows_by_key))

    def _watch(
        self, record: Transaction, writing: Protocol[Timestamp | None]
    ) -> Protocol[Timestamp | None]:
        """Note under which name it goes out. It is blind only if all of it goes to one cell."""
        try:
            step = next(writing)
            while True:
                self._note_name(record, step)
                step = writing.send((yield step))
        except StopIteration as end:
            return cast("Timestamp | None", end.value)
        finally:
            writing.close()

    def _note_name(self, record: Transaction, step: Step) -> None:
        for _, body in step.requests if isinstance(step, Calls) else ():
            if isinstance(body, CommitOne):
                _forget_start(record)
                if record.names[-1:] != [body.transaction]:  # else it goes out once more
                    record.names.append(body.transaction)
            elif isinstance(body, Prepare) and body.transaction != record.start:
                _forget_start(record)
                record.is_blind = False
                record.start, record.begun_us = body.transaction, self.now_us

    def settle(
        self,
        record: Transaction,
        committing: Protocol[Timestamp | None],
        rows_by_key: Mapping[str, RowKey],
    ) -> Protocol[bool]:
        """Record what the caller of a commit is told. → whether that it is committed."""
        record.commit_us = self.now_us
        if self.on_commit is not None:
            self.on_commit()
        try:
            timestamp = yield from committing
        except CommitOutcomeUnknown as error:
            yield from self._ask_outcome(record, error)
        except DodonaError as error:
            _fail(record, error, rows_by_key)
        else:
            record.status, record.commit = "ok", timestamp
        record.end_us = self.now_us
        if record.status == "ok":
            self.last_commit = record.commit
        return record.status == "ok"

    def _ask_outcome(self, record: Transaction, error: CommitOutcomeUnknown) -> Protocol[None]:
        self.history.unknown_count += 1
        record.status, record.error = "info", error.message
        if self.random.random() > ASK_RATE:
            return
        if self.random.random() < 0.5:
            yield Pause(self.random.randrange(1, ASK_LATE_MS_MAX))
        settle = self.random.random() > LOOK_RATE
        try:
            transaction = error.attributes["transaction"]
            outcome = yield from self.session.outcome(transaction, settle=settle)
        except DodonaError:
            return
        if outcome.state == "committed":
            record.status, record.commit = "ok", outcome.timestamp
        elif outcome.state == "aborted":
            record.status = "fail"

    def take_timestamps(self, count: int) -> Protocol[None]:
        """A range for nothing: it moves the oracle's counter ahead."""
        asked_us = self.now_us
        first = yield from self.session.generate_timestamp(count)
        taken = Acquisition(self.name, asked_us, self.now_us, first, first + count - 1)
        self.history.acquisitions.append(taken)


class Attempt:
    """One transaction of one session."""

    def __init__(
        self, recorder: Recorder, buffer: TransactionBuffer | None, record: Transaction
    ) -> None:
        self.record = record
        self._recorder = recorder
        self._session = recorder.session
        self._buffer = buffer
        self._rows_by_key: dict[str, RowKey] = {}

    @property
    def session(self) -> Session:
        """For what is not to be in the history."""
        return self._session

    def lookup(self, table: TableShape, keys: Sequence[Row]) -> Protocol[list[Row | None]]:
        """The rows of these keys, None where no row is."""
        rows = yield from self._session.lookup_rows(
            table.path, keys, keep_missing=True, timestamp=Timestamp(self.record.start)
        )
        for key, row in zip(keys, rows, strict=True):
            self.record.reads.append(Read(table.row_key(key), table.columns_read(row)))
        return list(rows)

    def scan(
        self,
        table: TableShape,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        copy: str | None = None,
    ) -> Protocol[list[dict[str, Any]]]:
        """The rows of lower ≤ key < upper, or what a copy at that path has in their place."""
        found = yield from self._session.select(
            copy or table.path, lower, upper, timestamp=Timestamp(self.record.start)
        )
        rows = [dict(row) for row in found]
        reads = tuple(Read(table.row_key(row), table.columns_read(row) or ()) for row in rows)
        first, end = table.bound(lower, KEY_MIN), table.bound(upper, KEY_MAX)
        self.record.scans.append(Scan(table.path, first, end, reads))
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
        assert self._buffer is not None
        lock_type: LockType = "shared_write" if is_shared else "exclusive"
        yield from self._session.insert_rows(
            self._buffer, table.path, [row], is_update, is_aggregate, lock_type
        )
        write = table.write(
            row, is_update=is_update, is_aggregate=is_aggregate, is_shared=is_shared
        )
        self._keep(table, row, write)

    def delete(self, table: TableShape, key: Row) -> Protocol[None]:
        assert self._buffer is not None
        yield from self._session.delete_rows(self._buffer, table.path, [key])
        self._keep(table, key, Write(table.row_key(key), None))

    def lock(
        self,
        table: TableShape,
        key: Row,
        locks: Sequence[str] | None = None,
        *,
        is_strong: bool = True,
    ) -> Protocol[None]:
        """Buffer a read lock on some lock groups of a row: on the main one, if none is named."""
        assert self._buffer is not None
        lock_type: LockType = "shared_strong" if is_strong else "shared_weak"
        yield from self._session.lock_rows(self._buffer, table.path, [key], locks, lock_type)
        groups = table.groups_named([MAIN_LOCK] if locks is None else locks)
        row = table.row_key(key)
        self.record.locks.append(Lock(row, is_strong, groups))
        self._rows_by_key[table.key_text(key)] = row

    def _keep(self, table: TableShape, row: Row, write: Write) -> None:
        taken = [other.row for other in self.record.writes]
        assert write.row not in taken, "a workload writes a row once a transaction"
        self.record.writes.append(write)
        self._rows_by_key[table.key_text(row)] = write.row

    def end(self) -> None:
        """A reader is done."""
        assert not self.record.is_writer
        self.record.status, self.record.end_us = "ok", self._recorder.now_us

    def commit(self) -> Protocol[bool]:
        """→ whether the caller was told that it is committed."""
        assert self._buffer is not None
        committing = self._session.commit(self._buffer)
        settling = self._recorder.settle(self.record, committing, self._rows_by_key)
        return (yield from settling)

    def give_up(self, error: DodonaError) -> None:
        """Something failed before the commit was asked for."""
        self.record.status, self.record.end_us = "fail", self._recorder.now_us
        self.record.error = f"{error.kind}: {error.message}"


def _forget_start(record: Transaction) -> None:
    """An earlier attempt, to several cells, is aborted: it began then, but this one begins anew."""
    if not record.is_blind:
        record.names.append(record.start)
        record.is_blind, record.start, record.begun_us = True, 0, None


def _fail(record: Transaction, error: DodonaError, rows_by_key: Mapping[str, RowKey]) -> None:
    record.status, record.error = "fail", f"{error.kind}: {error.message}"
    if not isinstance(error, TransactionConflict):
        return
    row = rows_by_key.get(repr(error.attributes.get("key")))
    if row is not None:
        said = error.attributes.get
        record.conflict = Conflict((row,), said("winner"), said("winner_timestamp"))
