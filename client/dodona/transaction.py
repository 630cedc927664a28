"""One transaction on rows, in the blocking API.

Owns: the public names and arguments of `Transaction`; `dodona.aio_transaction` is its twin, name by
name.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.rows import Rows
from dodona._core.reading.versions import VersionedRow
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer, TransactionState
from dodona._io.bounds import Run
from dodona._io.running import answer
from dodona_wire.types import NULL_TIMESTAMP, LockType, Timestamp, TransactionId

Row = Mapping[str, Any]


class Transaction(ProcessBound):
    """One transaction on rows (a *tablet* transaction), of `Client.begin`. Reads see the state at
    its start. Its own writes stay in this process until it commits; reads see them only if it was
    begun with `read_own_writes`. For one thread at a time."""

    _instead = "begin one in each process"

    def __init__(
        self, run: Run, session: Session, buffer: TransactionBuffer, call_timeout_ms: int | None
    ) -> None:
        self._run = run
        self._session = session
        self._buffer = buffer
        self._call_timeout_ms = call_timeout_ms

    @property
    def id(self) -> TransactionId | None:
        """Names the transaction; None for a non-atomic one."""
        return self._buffer.id

    @property
    def start_timestamp(self) -> Timestamp | None:
        """The snapshot that it reads; None for a non-atomic one, which reads the newest."""
        return self._buffer.start_timestamp

    @property
    def commit_timestamp(self) -> Timestamp | None:
        """None until it is committed, and if it wrote nothing. For a non-atomic one, the largest
        timestamp that a row got."""
        return self._buffer.commit_timestamp

    @property
    def state(self) -> TransactionState:
        """Active, committing (also after CommitOutcomeUnknown), committed or aborted."""
        return self._buffer.state

    def __repr__(self) -> str:
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
        """As `Client.lookup_rows`, at the transaction's start."""
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
        """As `Client.lookup_versions`, up to the transaction's start, without its own writes."""
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_versions
        return self._run(
            lookup(path, keys, columns, keep_missing, at, since, below, limit), timeout_ms
        )

    def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Rows:
        """As `Client.select`, at the transaction's start."""
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
        """As `Client.read_arrow`, at the transaction's start."""
        at = self._buffer.read_timestamp()
        read = self._session.read_arrow
        return self._run(
            read(path, lower, upper, columns, at, transaction=self._buffer), timeout_ms
        )

    def query(self, sql: str, *, timeout_ms: int | None = None) -> Any:
        """As `Client.query`, at the transaction's start."""
        begin = self._session.prepare_query(sql, self._buffer.read_timestamp())
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
        timeout_ms: int | None = None,
    ) -> None:
        """Buffer rows: dicts of all key columns (None is null) and at least one other.

        Columns that a row lacks become null, or stay as they are with `update`; required ones must
        be there. With `aggregate`, values of aggregate columns are changes (null is none) instead
        of new values. `lock_type="shared_write"` lets others who say so write the row at the same
        time: the table must allow it, which is checked at commit. All rows are taken or none.
        Raises SchemaViolation, LimitExceeded (100,000 rows, 32 MiB), InvalidRequest, TableNotFound,
        TransactionClosed."""
        insert = self._session.insert_rows
        self._run(insert(self._buffer, path, rows, update, aggregate, lock_type), timeout_ms)

    def delete_rows(self, path: str, keys: Iterable[Row], *, timeout_ms: int | None = None) -> None:
        """Buffer deletions of rows by their keys, which take the main lock; a key that no row has
        is no error. Raises as `insert_rows`."""
        self._run(self._session.delete_rows(self._buffer, path, keys), timeout_ms)

    def lock_rows(
        self,
        path: str,
        keys: Iterable[Row],
        locks: Sequence[str] | None = None,
        lock_type: LockType = "shared_strong",
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Buffer locks of rows, whether or not they are there, for the commit to take: the main
        lock, or the lock groups named. With `shared_weak` the commit fails if another transaction
        wrote the row since this one began; with `shared_strong` so do others that began before it
        and write the row later; `exclusive` and `shared_write` do as writing would. A row that is
        absent is locked as a whole. Conflicts show at commit. Raises InvalidRequest, LimitExceeded,
        TransactionClosed."""
        lock = self._session.lock_rows
        self._run(lock(self._buffer, path, keys, locks, lock_type), timeout_ms)

    def commit(self, *, timeout_ms: int | None = None) -> Timestamp | None:
        """→ the commit timestamp; None if nothing was written. Raises TransactionConflict,
        CommitOutcomeUnknown (then ask `Client.outcome`), and others: nothing was committed."""
        return self._run(self._session.commit(self._buffer), timeout_ms)

    def abort(self) -> None:
        """Drop what is buffered. Raises TransactionClosed once it is committed."""
        self._buffer.abort()
