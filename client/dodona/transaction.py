"""Transactions of rows in the blocking API.

Owns: the public names and arguments of `Transaction`.
"""

# Generated from aio_transaction.py by python -m twins: change that, and run it.

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.rows import Rows
from dodona._core.reading.versions import VersionedRow
from dodona._core.session import Session
from dodona._core.writing.conditions import requirement_of
from dodona._core.writing.transaction import ShortMode, TransactionBuffer, TransactionState
from dodona._io.bounds import Run
from dodona._io.running import answer
from dodona_wire.types import NULL_TIMESTAMP, Isolation, LockType, Timestamp, TransactionId

Row = Mapping[str, Any]


class Transaction(ProcessBound):
    """A transaction of rows (a *tablet* transaction), from `Client.begin`.

    Its reads see the snapshot at its start. Its writes stay in this process until it commits. Its
    reads see its own writes only if it began with `read_own_writes`. Only one thread at a time may
    use it."""

    _instead = "begin one in each process"

    def __init__(
        self,
        run: Run,
        session: Session,
        buffer: TransactionBuffer,
        call_timeout_ms: int | None,
    ) -> None:
        self._run = run
        self._session = session
        self._buffer = buffer
        self._call_timeout_ms = call_timeout_ms

    @property
    def id(self) -> TransactionId | None:
        """The id of the transaction. None if the transaction is not atomic, or began with a
        timestamp. A transaction whose id was read is not sent again after a conflict: see
        `connect`."""
        self._buffer.is_id_known = True
        return self._buffer.id

    @property
    def start_timestamp(self) -> Timestamp | None:
        """The timestamp of the snapshot that the transaction reads. None if the transaction is not
        atomic: then it reads the newest rows. Who reads with it outside of the transaction, or asks
        for the outcome of it, has the id: see `id`."""
        self._buffer.is_id_known = True
        return self._buffer.start_timestamp

    @property
    def commit_timestamp(self) -> Timestamp | None:
        """The commit timestamp. None before the commit, and if the transaction wrote nothing. If
        the transaction is not atomic, the largest timestamp of its rows."""
        return self._buffer.commit_timestamp

    @property
    def isolation(self) -> Isolation | None:
        """The `isolation` that the transaction began with. None: each table has its own, or else
        that of the client."""
        return self._buffer.isolation

    @property
    def locked_rows(self) -> dict[str, list[dict[str, Any]]]:
        """The keys of the rows that were locked before the transaction began, by path."""
        return self._buffer.locked_rows

    @property
    def state(self) -> TransactionState:
        """The state: active, committing (also after CommitOutcomeUnknown), committed or aborted."""
        return self._buffer.state

    def __repr__(self) -> str:
        self._buffer.is_id_known = True
        return self._buffer.describe("dodona.Transaction")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._buffer.is_active:
            if error is None:
                self.commit()
            else:
                self.abort()

    def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the rows that have these keys, as of the start of the transaction. Otherwise as
        `Client.lookup_rows`."""
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_rows
        return self._run(
            lookup(path, keys, columns, keep_missing, at, transaction=self._buffer), timeout_ms
        )

    def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        since: Timestamp = NULL_TIMESTAMP,
        below: Timestamp | None = None,
        limit: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[VersionedRow]:
        """Return the history of each row up to the start of the transaction, without its own
        writes. Otherwise as `Client.lookup_versions`."""
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_versions
        asked = keys, columns, keep_missing, at, since, below, limit
        read = lookup(path, *asked, transaction=self._buffer)
        return self._run(read, timeout_ms)

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Rows:
        """Return the rows with lower ≤ key < upper, as of the start of the transaction. Otherwise
        as `Client.select`."""
        at = self._buffer.read_timestamp()
        select = self._session.select
        return self._run(
            select(path, lower, upper, columns, at, transaction=self._buffer), timeout_ms
        )

    def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Return the same rows as `select`, as a `pyarrow.Table`. Otherwise as
        `Client.read_arrow`."""
        at = self._buffer.read_timestamp()
        read = self._session.read_arrow
        return self._run(
            read(path, lower, upper, columns, at, transaction=self._buffer), timeout_ms
        )

    def query(
        self,
        sql: str,
        parameters: Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Run one SELECT in DuckDB's SQL, as of the start of the transaction. Otherwise as
        `Client.query`."""
        begin = self._session.prepare_query(sql, parameters, self._buffer.read_timestamp())
        limit_ms = self._call_timeout_ms if timeout_ms is None else timeout_ms
        return answer(self._run, self._session, begin, self._buffer, limit_ms)

    def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        lock_type: LockType = "exclusive",
        *,
        if_absent: bool = False,
        if_version: Timestamp | None = None,
        expect: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Buffer rows for the commit.

        - `rows`: dicts with all key columns and at least one other column. None is null.
        - `update`: columns that a row lacks keep their values. By default, they become null.
          Required columns must be there in both cases.
        - `aggregate`: values of aggregate columns are changes, and null is no change. By default,
          they are new values.
        - `lock_type`: with `"shared_write"`, other transactions that also use it may write the row
          at the same time. The table must allow it, which the commit checks.
        - `if_absent`: the commit fails if one of the rows exists.
        - `if_version`: the commit fails unless this is the version of each row. The version of a
          row is the commit timestamp of its newest change, in any column.
        - `expect`: the commit fails unless each row exists and has these values in these columns.

        The commit checks conditions against the newest committed rows, not against the snapshot of
        the transaction or its own writes. If one does not hold, it raises PrerequisiteFailed.

        The call buffers all rows or none. Raises SchemaViolation, LimitExceeded (100,000 rows, 32
        MiB), InvalidRequest, TableNotFound, TransactionClosed."""
        insert, required = self._session.insert_rows, requirement_of(if_absent, if_version, expect)
        return self._run(
            insert(self._buffer, path, rows, update, aggregate, lock_type, required), timeout_ms
        )

    def write(
        self, path: str, data: Any, mode: ShortMode = "upsert", *, timeout_ms: int | None = None
    ) -> None:
        """Buffer all rows of a data frame, or of other data, for the commit.

        - `data`: as in `Client.write`, but no stream.
        - `mode`: `"upsert"` writes whole rows. `"delete"` takes the key columns only.

        The call buffers all rows or none. Raises SchemaViolation, DuplicateKey, LimitExceeded
        (100,000 rows, 32 MiB), InvalidRequest, TableNotFound, TransactionClosed."""
        return self._run(self._session.write_data(self._buffer, path, data, mode), timeout_ms)

    def delete_rows(
        self,
        path: str,
        keys: Iterable[Row],
        *,
        if_version: Timestamp | None = None,
        expect: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Buffer deletions of rows by key for the commit. A deletion takes the main lock. A key
        that no row has is no error. `if_version` and `expect` are as in `insert_rows`. Raises as
        `insert_rows`."""
        delete, required = self._session.delete_rows, requirement_of(False, if_version, expect)
        return self._run(delete(self._buffer, path, keys, required), timeout_ms)

    def lock_rows(
        self,
        path: str,
        keys: Iterable[Row],
        locks: Sequence[str] | None = None,
        lock_type: LockType = "shared_strong",
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Buffer locks of rows for the commit. The rows need not exist.

        - `locks`: the lock groups to lock. The default is the main lock. A row that does not exist
          is locked as a whole.
        - `lock_type`: with `"shared_weak"`, the commit fails if another transaction wrote the row
          after this one began. With `"shared_strong"`, another transaction also fails if it began
          before this commit and writes the row later. `"exclusive"` and `"shared_write"` lock as a
          write does.

        The commit raises conflicts. Raises InvalidRequest, LimitExceeded, TransactionClosed."""
        lock = self._session.lock_rows
        return self._run(lock(self._buffer, path, keys, locks, lock_type), timeout_ms)

    def commit(self, *, timeout_ms: int | None = None) -> Timestamp | None:
        """Commit the transaction. Returns the commit timestamp, or None if nothing was written.

        Raises TransactionConflict, PrerequisiteFailed and other errors: then nothing is committed.
        If the transaction is not atomic, some tablets may have its rows: the attributes of the
        error list them. After CommitOutcomeUnknown, ask `Client.outcome`."""
        return self._run(self._session.commit(self._buffer), timeout_ms)

    def abort(self) -> None:
        """Discard the buffered writes and locks. Raises TransactionClosed after a commit."""
        if self._buffer.locked.cells and self._buffer.is_active:
            self._run(self._session.abort(self._buffer), None)
        else:
            self._buffer.abort()
