"""The client for asyncio: `connect`, `open`, and what they give.

Owns: the public names and arguments of the asyncio API, but for those of tables as a whole, which
are in `dodona.aio_catalog`; `dodona.client` is its twin, name by name, and says what each method
does. Every method is one line over the same protocols. A client belongs to the event loop that it
was made in: any number of its tasks may use it, a transaction one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from dodona._core import steps
from dodona._core.context import DEFAULT_ACKNOWLEDGEMENT, Acknowledgement
from dodona._core.holding import LEASE_MS, Hold
from dodona._core.outcomes import Outcome
from dodona._core.retry import RERUN_ATTEMPTS_MAX, RERUN_DEADLINE_MS
from dodona._core.rows import Rows
from dodona._core.session import Session
from dodona._core.sql.query import Query
from dodona._core.transaction import TransactionBuffer, TransactionState
from dodona._core.versions import VersionedRow
from dodona._io.aio_pinger import AsyncPinger
from dodona._io.beginning import Beginning
from dodona._io.sessions import (
    CONNECT_TIMEOUT_MS,
    FolderPath,
    check_folder,
    hide_password,
    load_embedded,
    new_session,
)
from dodona.aio_catalog import AsyncDriver
from dodona.aio_catalog import AsyncMasterTransaction as AsyncMasterTransaction
from dodona.aio_changes import AsyncChangeReader
from dodona.aio_changes import AsyncChanges as AsyncChanges
from dodona.aio_loads import AsyncLoads
from dodona.aio_snapshot import AsyncSnapshot as AsyncSnapshot
from dodona.errors import DodonaError, InvalidRequest
from dodona.types import (
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Atomicity,
    CellId,
    Durability,
    LockType,
    ReaderId,
    Timestamp,
    TransactionId,
)

Result = TypeVar("Result")
Row = Mapping[str, Any]
INTERRUPT_SECONDS: Final = 0.05


async def connect(
    url: str,
    *,
    timeout_ms: int = CONNECT_TIMEOUT_MS,
    acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
) -> "AsyncClient":
    """As `dodona.connect`."""
    from dodona._io.tracing import asyncio_driver

    session = new_session(acknowledgement)
    client = AsyncClient(asyncio_driver(url, session.routing), session, url)
    try:
        await client._run(session.catalog.get_cluster(timeout_ms))
    except BaseException:
        await client.close()
        raise
    return client


async def open(
    path: FolderPath, *, acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT
) -> "AsyncClient":
    """As `dodona.open`. Its calls run in threads, so that none of them holds up the loop."""
    folder, session = check_folder(path), new_session(acknowledgement)
    driver = await load_embedded().open_async(folder, session.routing)
    return AsyncClient(driver, session, folder)


class AsyncClient(AsyncChangeReader):
    """As `dodona.Client`. Make it with `await dodona.aio.connect` or `await dodona.aio.open`."""

    def __init__(self, driver: AsyncDriver, session: Session, place: str) -> None:
        super().__init__(driver, AsyncPinger(driver.run, session.pings), session.catalog)
        self._session = session
        self._holder = AsyncPinger(driver.run, session.holds)
        self._keeper = AsyncPinger(driver.run, session.leases)
        self.loads = AsyncLoads(driver.run, session, self._keeper)
        """Bulk loads."""
        self._place = place

    def __repr__(self) -> str:
        return f"<dodona.aio.AsyncClient {hide_password(self._place)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections. Calls that are under way fail."""
        await self._pinger.close()
        await self._holder.close()
        await self._keeper.close()
        await self._driver.close()

    # ---- timestamps

    def generate_timestamp(self) -> Awaitable[Timestamp]:
        """A fresh timestamp. It is asked for when it is awaited; callers share requests."""
        return self._driver.generate_timestamp()

    # ---- reads

    async def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> list[dict[str, Any]]:
        """As `dodona.Client.lookup_rows`."""
        lookup = self._session.lookup_rows
        read = lookup(path, keys, columns, keep_missing, timestamp, retention_timestamp)
        return await self._run(read)

    async def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
    ) -> list[VersionedRow]:
        """As `dodona.Client.lookup_versions`."""
        lookup = self._session.lookup_versions
        return await self._run(lookup(path, keys, columns, keep_missing, timestamp))

    async def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> Rows:
        """As `dodona.Client.select`."""
        select = self._session.select
        return await self._run(select(path, lower, upper, columns, timestamp, retention_timestamp))

    async def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> Any:
        """As `dodona.Client.read_arrow`."""
        read = self._session.read_arrow
        return await self._run(read(path, lower, upper, columns, timestamp, retention_timestamp))

    def hold_snapshot(
        self,
        paths: Iterable[str],
        timestamp: Timestamp | None = None,
        lease_ms: int = LEASE_MS,
        reader: ReaderId | None = None,
    ) -> "Beginning[AsyncSnapshot]":
        """As `dodona.Client.hold_snapshot`: `async with` it, or await it."""
        hold = self._session.hold_snapshot
        return Beginning(
            partial(self._begin_hold, partial(hold, paths, timestamp, lease_ms, reader))
        )

    async def _begin_hold(self, begin: Callable[[], steps.Protocol[Hold]]) -> AsyncSnapshot:
        hold = await self._run(begin())
        self._holder.watch(hold)
        return AsyncSnapshot(self._run, self._session, hold)

    async def query(
        self,
        sql: str,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
    ) -> Any:
        """As `dodona.Client.query`. DuckDB runs in a thread, and stops if this is cancelled."""
        begin = self._session.prepare_query(sql, timestamp, retention_timestamp)
        return await _answer(self._run, self._session, begin)

    # ---- writes

    async def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        durability: Durability = "sync",
    ) -> Timestamp | None:
        """As `dodona.Client.insert_rows`."""
        write = self._session.write_rows
        return await self._run(write(path, rows, update, durability, aggregate))

    async def delete_rows(
        self, path: str, keys: Iterable[Row], durability: Durability = "sync"
    ) -> Timestamp | None:
        """As `dodona.Client.delete_rows`."""
        return await self._run(self._session.erase_rows(path, keys, durability))

    async def write_arrow(
        self,
        path: str,
        data: Any,
        durability: Durability = "sync",
        stamp: Timestamp | None = None,
    ) -> int:
        """As `dodona.Client.write_arrow`."""
        return await self._run(self._session.write_arrow(path, data, durability, stamp))

    # ---- transactions

    def begin(
        self,
        atomicity: Atomicity = "full",
        durability: Durability = "sync",
        read_own_writes: bool = False,
    ) -> "Beginning[AsyncTransaction]":
        """`async with db.begin() as tx`, or `tx = await db.begin()`."""
        return Beginning(partial(self._begin_rows, atomicity, durability, read_own_writes))

    async def _begin_rows(
        self, atomicity: Atomicity, durability: Durability, read_own_writes: bool
    ) -> "AsyncTransaction":
        begin = self._session.begin(atomicity, durability, read_own_writes)
        return AsyncTransaction(self, await self._run(begin))

    async def run_in_transaction(
        self,
        function: "Callable[[AsyncTransaction], Awaitable[Result]]",
        attempts_max: int = RERUN_ATTEMPTS_MAX,
        deadline_ms: int = RERUN_DEADLINE_MS,
    ) -> Result:
        """As `dodona.Client.run_in_transaction`."""
        session = self._session
        rerun = session.rerun(attempts_max, deadline_ms)
        if not callable(function):
            raise InvalidRequest(f"function is called, which {function!r} can't be")
        while True:
            transaction, results = None, []
            try:
                async with self.begin() as transaction:
                    results.append(await _begun(function(transaction)))
                return results[0]
            except DodonaError as error:
                buffer = None if transaction is None else transaction._buffer
                is_committed = await self._run(session.after_failure(rerun, buffer, error))
                if is_committed and results:
                    return results[0]
                if is_committed:  # by the function itself, which then did not return
                    raise

    async def outcome(
        self,
        transaction: TransactionId,
        coordinator: CellId | None = None,
        settle: bool = False,
    ) -> Outcome:
        """As `dodona.Client.outcome`."""
        return await self._run(self._session.outcome(transaction, coordinator, settle))


class AsyncTransaction:
    """As `dodona.Transaction`."""

    def __init__(self, client: AsyncClient, buffer: TransactionBuffer) -> None:
        self._run = client._run
        self._session = client._session
        self._buffer = buffer

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
    ) -> list[dict[str, Any]]:
        """As `dodona.Transaction.lookup_rows`."""
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_rows
        return await self._run(
            lookup(path, keys, columns, keep_missing, at, transaction=self._buffer)
        )

    async def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
    ) -> list[VersionedRow]:
        """As `dodona.Transaction.lookup_versions`."""
        at, lookup = self._buffer.read_timestamp(), self._session.lookup_versions
        return await self._run(lookup(path, keys, columns, keep_missing, at))

    async def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Rows:
        """As `dodona.Transaction.select`."""
        at = self._buffer.read_timestamp()
        select = self._session.select
        return await self._run(select(path, lower, upper, columns, at, transaction=self._buffer))

    async def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """As `dodona.Transaction.read_arrow`."""
        at = self._buffer.read_timestamp()
        read = self._session.read_arrow
        return await self._run(read(path, lower, upper, columns, at, transaction=self._buffer))

    async def query(self, sql: str) -> Any:
        """As `dodona.Transaction.query`."""
        begin = self._session.prepare_query(sql, self._buffer.read_timestamp())
        return await _answer(self._run, self._session, begin, self._buffer)

    async def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        lock_type: LockType = "exclusive",
    ) -> None:
        """As `dodona.Transaction.insert_rows`."""
        insert = self._session.insert_rows
        await self._run(insert(self._buffer, path, rows, update, aggregate, lock_type))

    async def delete_rows(self, path: str, keys: Iterable[Row]) -> None:
        """As `dodona.Transaction.delete_rows`."""
        await self._run(self._session.delete_rows(self._buffer, path, keys))

    async def lock_rows(
        self,
        path: str,
        keys: Iterable[Row],
        locks: Sequence[str] | None = None,
        lock_type: LockType = "shared_strong",
    ) -> None:
        """As `dodona.Transaction.lock_rows`."""
        lock = self._session.lock_rows
        await self._run(lock(self._buffer, path, keys, locks, lock_type))

    async def commit(self) -> Timestamp | None:
        """As `dodona.Transaction.commit`."""
        return await self._run(self._session.commit(self._buffer))

    async def abort(self) -> None:
        """As `dodona.Transaction.abort`."""
        self._buffer.abort()


def _begun(result: Awaitable[Result]) -> Awaitable[Result]:
    """What a function returned, if it can be awaited. Raises InvalidRequest."""
    if not isinstance(result, Awaitable):
        raise InvalidRequest(f"the function is an async one: its result is awaited, not {result!r}")
    return result


async def _answer(
    run: Callable[[steps.Protocol[Any]], Awaitable[Any]],
    session: Session,
    begin: steps.Protocol[Query],
    buffer: TransactionBuffer | None = None,
) -> Any:
    """The movements of a query. Those that compute do so in a thread."""
    query = await run(begin)
    await _compute(query.plan, query.interrupt)
    await run(session.fetch_query(query, buffer))
    return await _compute(query.answer, query.interrupt)


async def _compute(function: Callable[[], Result], interrupt: Callable[[], None]) -> Result:
    """Its result, computed in a thread, which does not outlive this call: a cancelled one
    interrupts it until it ends, since an interruption before it has begun is lost."""
    computing = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(computing)
    except asyncio.CancelledError:
        while not computing.done():
            interrupt()
            await asyncio.wait([computing], timeout=INTERRUPT_SECONDS)
        computing.exception()  # nobody waits for it any more
        raise
