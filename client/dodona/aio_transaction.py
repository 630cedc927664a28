"""One transaction on rows, in the asyncio API.

Owns: the public names and arguments of `AsyncTransaction`; `dodona.transaction` is its twin, name
by name, and says what each method does.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from dodona._core.protocol.process_bound import ProcessBound
from dodona._core.reading.rows import Rows
from dodona._core.reading.versions import VersionedRow
from dodona._core.session import Session
from dodona._core.writing.transaction import TransactionBuffer, TransactionState
from dodona._io.aio_running import async_answer
from dodona._io.aio_writes import Writes
from dodona._io.bounds import AsyncRun
from dodona_wire.types import NULL_TIMESTAMP, LockType, Timestamp, TransactionId

Row = Mapping[str, Any]


class AsyncTransaction(ProcessBound):
    """As `dodona.Transaction`."""

    _instead = "begin one in each process"

    def __init__(
        self,
        run: AsyncRun,
        session: Session,
        buffer: TransactionBuffer,
        call_timeout_ms: int | None,
    ) -> None:
        self._run = run
        self._session = session
        self._buffer = buffer
        self._call_timeout_ms = call_timeout_ms
        self._writes = Writes(run)

    @property
    def id(self) -> TransactionId | None:
        """As `dodona.Transaction.id`."""
        return self._buffer.id

    @property
    def start_timestamp(self) -> Timestamp | None:
        """As `dodona.Transaction.start_timestamp`."""
        return self._buffer.start_timestamp

    @property
    def commit_timestamp(self) -> Timestamp | None:
        """As `dodona.Transaction.commit_timestamp`."""
        return self._buffer.commit_timestamp

    @property
    def state(self) -> TransactionState:
        """As `dodona.Transaction.state`."""
        return self._buffer.state

    def __repr__(self) -> str:
        return self._buffer.describe("dodona.aio.AsyncTransaction")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._buffer.is_active:
            if error is None:
                await self.commit()
            else:
                await self.abort()

    async def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """As `dodona.Transaction.lookup_rows`."""
        await self._writes.settle(timeout_ms)
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_rows
        return await self._run(
            lookup(path, keys, columns, keep_missing, at, transaction=self._buffer), timeout_ms
        )

    async def lookup_versions(
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
        """As `dodona.Transaction.lookup_versions`."""
        await self._writes.settle(timeout_ms)
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_versions
        read = lookup(path, keys, columns, keep_missing, at, since, below, limit)
        return await self._run(read, timeout_ms)

    async def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Rows:
        """As `dodona.Transaction.select`."""
        await self._writes.settle(timeout_ms)
        at = self._buffer.read_timestamp()
        select = self._session.select
        return await self._run(
            select(path, lower, upper, columns, at, transaction=self._buffer), timeout_ms
        )

    async def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """As `dodona.Transaction.read_arrow`."""
        await self._writes.settle(timeout_ms)
        at = self._buffer.read_timestamp()
        read = self._session.read_arrow
        return await self._run(
            read(path, lower, upper, columns, at, transaction=self._buffer), timeout_ms
        )

    async def query(self, sql: str, *, timeout_ms: int | None = None) -> Any:
        """As `dodona.Transaction.query`."""
        await self._writes.settle(timeout_ms)
        begin = self._session.prepare_query(sql, self._buffer.read_timestamp())
        limit_ms = self._call_timeout_ms if timeout_ms is None else timeout_ms
        return await async_answer(self._run, self._session, begin, self._buffer, limit_ms)

    def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        lock_type: LockType = "exclusive",
        *,
        timeout_ms: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """As `dodona.Transaction.insert_rows`. Rows are buffered when it is called: what is not
        awaited is committed all the same."""
        insert, buffer = self._session.insert_rows, self._buffer
        return self._writes.begin(
            lambda given: insert(buffer, path, given, update, aggregate, lock_type),
            rows,
            timeout_ms,
        )

    def delete_rows(
        self, path: str, keys: Iterable[Row], *, timeout_ms: int | None = None
    ) -> Coroutine[Any, Any, None]:
        """As `dodona.Transaction.delete_rows`. Buffered when it is called."""
        delete, buffer = self._session.delete_rows, self._buffer
        return self._writes.begin(lambda given: delete(buffer, path, given), keys, timeout_ms)

    def lock_rows(
        self,
        path: str,
        keys: Iterable[Row],
        locks: Sequence[str] | None = None,
        lock_type: LockType = "shared_strong",
        *,
        timeout_ms: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """As `dodona.Transaction.lock_rows`. Buffered when it is called."""
        lock, buffer = self._session.lock_rows, self._buffer
        return self._writes.begin(
            lambda given: lock(buffer, path, given, locks, lock_type), keys, timeout_ms
        )

    async def commit(self, *, timeout_ms: int | None = None) -> Timestamp | None:
        """As `dodona.Transaction.commit`."""
        try:
            await self._writes.settle(timeout_ms)
        except BaseException:
            await self.abort()
            raise
        return await self._run(self._session.commit(self._buffer), timeout_ms)

    async def abort(self) -> None:
        """As `dodona.Transaction.abort`."""
        self._writes.drop()
        self._buffer.abort()
