"""The client for asyncio: `connect`, `open`, and what they give.

Owns: the public names and arguments of the asyncio API, but for those of tables as a whole, which
are in `dodona.aio_catalog`; `dodona.client` is its twin, name by name, and says what each method
does. Every method is one line over the same protocols. A client belongs to the event loop that it
was made in: any number of its tasks may use it, a transaction one by one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from dodona._core.protocol import steps
from dodona._core.protocol.context import DEFAULT_ACKNOWLEDGEMENT, Acknowledgement
from dodona._core.protocol.retry import RERUN_DEADLINE_MS
from dodona._core.reading.holding import LEASE_MS, Hold
from dodona._core.reading.rows import Rows
from dodona._core.reading.versions import VersionedRow
from dodona._core.session import Session
from dodona._core.writing.outcomes import Outcome
from dodona._core.writing.transaction import TransactionBuffer
from dodona._io.aio_pinger import AsyncPinger
from dodona._io.aio_running import async_answer
from dodona._io.beginning import Beginning
from dodona._io.bounds import AsyncUntil, async_within, check_call_timeout
from dodona._io.running import check_function, finished_async
from dodona._io.sessions import (
    CONNECT_TIMEOUT_MS,
    FolderPath,
    check_folder,
    load_embedded,
    new_session,
)
from dodona.aio_catalog import AsyncDriver
from dodona.aio_catalog import AsyncMasterTransaction as AsyncMasterTransaction
from dodona.aio_changes import AsyncChangeReader
from dodona.aio_changes import AsyncChanges as AsyncChanges
from dodona.aio_loads import AsyncLoads
from dodona.aio_snapshot import AsyncSnapshot as AsyncSnapshot
from dodona.aio_transaction import AsyncTransaction as AsyncTransaction
from dodona_wire.errors import DodonaError
from dodona_wire.net.urls import hide_password
from dodona_wire.types import (
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    Atomicity,
    CellId,
    Durability,
    ReaderId,
    Timestamp,
    TransactionId,
)

Result = TypeVar("Result")
Row = Mapping[str, Any]


async def connect(
    url: str,
    *,
    timeout_ms: int = CONNECT_TIMEOUT_MS,
    acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
    call_timeout_ms: int | None = None,
) -> "AsyncClient":
    """As `dodona.connect`."""
    from dodona._io.making_drivers import asyncio_driver

    session = new_session(acknowledgement)
    check_call_timeout(call_timeout_ms)
    client = AsyncClient(asyncio_driver(url, session.routing), session, url, call_timeout_ms)
    try:
        await client._driver.run(session.catalog.get_cluster(timeout_ms), timeout_ms)
    except BaseException:
        await client.close()
        raise
    return client


async def open(
    path: FolderPath,
    *,
    acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
    call_timeout_ms: int | None = None,
) -> "AsyncClient":
    """As `dodona.open`. Its calls run in threads, so that none of them holds up the loop."""
    folder, session = check_folder(path), new_session(acknowledgement)
    check_call_timeout(call_timeout_ms)
    driver = await load_embedded().open_async(folder, session.routing)
    return AsyncClient(driver, session, folder, call_timeout_ms)


class AsyncClient(AsyncChangeReader):
    """As `dodona.Client`. Make it with `await dodona.aio.connect` or `await dodona.aio.open`."""

    def __init__(
        self,
        driver: AsyncDriver,
        session: Session,
        place: str,
        call_timeout_ms: int | None = None,
    ) -> None:
        pinger = AsyncPinger(driver.run, session.pings)
        super().__init__(driver, pinger, session.catalog, call_timeout_ms)
        self._session = session
        self._holder = AsyncPinger(driver.run, session.holds)
        self._keeper = AsyncPinger(driver.run, session.leases)
        self.loads = AsyncLoads(self._run, session, self._keeper)
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

    def generate_timestamp(self, *, timeout_ms: int | None = None) -> Awaitable[Timestamp]:
        """A fresh timestamp. It is asked for when it is awaited; callers share requests."""
        if self._bound_ms(timeout_ms) is None:
            return self._driver.generate_timestamp()
        return self._run(self._session.generate_timestamp(), timeout_ms)

    # ---- reads

    async def lookup_rows(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> list[dict[str, Any]]:
        """As `dodona.Client.lookup_rows`."""
        lookup = self._session.lookup_rows
        read = lookup(path, keys, columns, keep_missing, timestamp, retention_timestamp)
        return await self._run(read, timeout_ms)

    async def lookup_versions(
        self,
        path: str,
        keys: Iterable[Row],
        columns: Sequence[str] | None = None,
        keep_missing: bool = False,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        since: Timestamp = NULL_TIMESTAMP,
        below: Timestamp | None = None,
        limit: int | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[VersionedRow]:
        """As `dodona.Client.lookup_versions`."""
        lookup = self._session.lookup_versions
        read = lookup(path, keys, columns, keep_missing, timestamp, since, below, limit)
        return await self._run(read, timeout_ms)

    async def select(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Rows:
        """As `dodona.Client.select`."""
        select = self._session.select
        return await self._run(
            select(path, lower, upper, columns, timestamp, retention_timestamp), timeout_ms
        )

    async def read_arrow(
        self,
        path: str,
        lower: Sequence[Any] | None = None,
        upper: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """As `dodona.Client.read_arrow`."""
        read = self._session.read_arrow
        return await self._run(
            read(path, lower, upper, columns, timestamp, retention_timestamp), timeout_ms
        )

    def hold_snapshot(
        self,
        paths: Iterable[str],
        timestamp: Timestamp | None = None,
        lease_ms: int = LEASE_MS,
        reader: ReaderId | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> "Beginning[AsyncSnapshot]":
        """As `dodona.Client.hold_snapshot`: `async with` it, or await it."""
        hold = self._session.hold_snapshot
        return Beginning(
            partial(self._begin_hold, partial(hold, paths, timestamp, lease_ms, reader), timeout_ms)
        )

    async def _begin_hold(
        self, begin: Callable[[], steps.Protocol[Hold]], timeout_ms: int | None
    ) -> AsyncSnapshot:
        run = async_within(self._run, timeout_ms)
        hold = await run(begin())
        self._holder.watch(hold)
        return AsyncSnapshot(run, self._session, hold)

    async def query(
        self,
        sql: str,
        timestamp: Timestamp = SYNC_LAST_COMMITTED,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """As `dodona.Client.query`. DuckDB runs in a thread, and stops if this is cancelled."""
        begin = self._session.prepare_query(sql, timestamp, retention_timestamp)
        return await async_answer(self._run, self._session, begin, None, self._bound_ms(timeout_ms))

    # ---- writes

    async def insert_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        durability: Durability = "sync",
        *,
        timeout_ms: int | None = None,
    ) -> Timestamp | None:
        """As `dodona.Client.insert_rows`."""
        write = self._session.write_rows
        return await self._run(write(path, rows, update, durability, aggregate), timeout_ms)

    async def delete_rows(
        self,
        path: str,
        keys: Iterable[Row],
        durability: Durability = "sync",
        *,
        timeout_ms: int | None = None,
    ) -> Timestamp | None:
        """As `dodona.Client.delete_rows`."""
        return await self._run(self._session.erase_rows(path, keys, durability), timeout_ms)

    async def write_arrow(
        self,
        path: str,
        data: Any,
        durability: Durability = "sync",
        stamp: Timestamp | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> int:
        """As `dodona.Client.write_arrow`."""
        return await self._run(self._session.write_arrow(path, data, durability, stamp), timeout_ms)

    # ---- transactions

    def begin(
        self,
        atomicity: Atomicity = "full",
        durability: Durability = "sync",
        read_own_writes: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> "Beginning[AsyncTransaction]":
        """`async with db.begin() as tx`, or `tx = await db.begin()`."""
        begin = partial(self._session.begin, atomicity, durability, read_own_writes)
        return Beginning(partial(self._begin_rows, begin, timeout_ms))

    async def _begin_rows(
        self, begin: Callable[[], steps.Protocol[TransactionBuffer]], timeout_ms: int | None
    ) -> AsyncTransaction:
        run = async_within(self._run, timeout_ms)
        buffer = await run(begin())
        return AsyncTransaction(run, self._session, buffer, self._bound_ms(timeout_ms))

    async def run_in_transaction(
        self,
        function: "Callable[[AsyncTransaction], Awaitable[Result]]",
        attempts_max: int | None = None,
        deadline_ms: int = RERUN_DEADLINE_MS,
        *,
        timeout_ms: int | None = None,
    ) -> Result:
        """As `dodona.Client.run_in_transaction`."""
        session = self._session
        timeout_ms = self._bound_ms(timeout_ms)
        run = self._run if timeout_ms is None else AsyncUntil(self._run, timeout_ms)
        rerun = session.rerun(attempts_max, deadline_ms, timeout_ms)
        check_function(function, is_async=True)
        while True:
            transaction, results = None, []
            try:
                begun = await run(session.begin())
                transaction = AsyncTransaction(run, session, begun, self._call_timeout_ms)
                async with transaction:
                    results.append(await finished_async(function(transaction)))
                return results[0]
            except DodonaError as error:
                buffer = None if transaction is None else transaction._buffer
                is_committed = await run(session.after_failure(rerun, buffer, error))
                if is_committed and results:
                    return results[0]
                if is_committed:  # by the function itself, which then did not return
                    raise

    async def outcome(
        self,
        transaction: TransactionId,
        coordinator: CellId | None = None,
        settle: bool = False,
        *,
        timeout_ms: int | None = None,
    ) -> Outcome:
        """As `dodona.Client.outcome`."""
        return await self._run(self._session.outcome(transaction, coordinator, settle), timeout_ms)
