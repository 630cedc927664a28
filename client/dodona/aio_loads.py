"""Bulk loads in the asyncio API.

Owns: the public names and arguments of `AsyncLoads` and `AsyncLoad`; `dodona.loads` is their twin,
name by name, and says what each method does.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from dodona._core.loads.leases import Lease
from dodona._core.loads.records import LoadRecord, LoadRecovery
from dodona._core.loads.session import Range
from dodona._core.loads.ticket import LEASE_MS, LoadTicket, Published
from dodona._core.protocol.process_bound import MAKE_ONE_THERE, ProcessBound
from dodona._core.session import Session
from dodona._core.writing.senders import StagedBatch
from dodona._io.aio_pinger import AsyncPinger
from dodona._io.aio_writes import LoadWrites
from dodona._io.bounds import AsyncRun, async_within
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError
from dodona_wire.types import Atomicity, Durability, LoadId, LoadMode, Timestamp


class AsyncLoads(ProcessBound):
    """As `dodona.Loads`."""

    _instead = MAKE_ONE_THERE

    def __init__(self, run: AsyncRun, session: Session, keeper: AsyncPinger[Lease]) -> None:
        self._run = run
        self._session = session
        self._keeper = keeper

    async def begin(
        self,
        paths: Sequence[str],
        *,
        atomicity: Atomicity = "full",
        mode: LoadMode = "upsert",
        overwrites: bool = False,
        start_timestamp: Timestamp | None = None,
        erased: Mapping[str, Range] | None = None,
        application: str | None = None,
        version: int | None = None,
        lease_ms: int = LEASE_MS,
        owner: str = "",
        timeout_ms: int | None = None,
    ) -> "AsyncLoad":
        """As `dodona.Loads.begin`."""
        begin = self._session.loads.begin
        ticket = await self._run(
            begin(
                paths,
                atomicity=atomicity,
                mode=mode,
                overwrites=overwrites,
                start_timestamp=start_timestamp,
                erased=erased,
                application=application,
                version=version,
                lease_ms=lease_ms,
                owner=owner,
            ),
            timeout_ms,
        )
        return self._join(ticket, async_within(self._run, timeout_ms))

    def join(self, ticket: LoadTicket) -> "AsyncLoad":
        """As `dodona.Loads.join`."""
        return self._join(ticket, self._run)

    def _join(self, ticket: LoadTicket, run: AsyncRun) -> "AsyncLoad":
        lease = Lease(ticket)
        if not ticket.is_recorded:
            self._keeper.watch(lease)
        return AsyncLoad(run, self._session, lease)

    async def find(self, load: LoadId, *, timeout_ms: int | None = None) -> LoadRecord | None:
        """As `dodona.Loads.find`."""
        return await self._run(self._session.loads.find(load), timeout_ms)

    async def list_loads(self, *, timeout_ms: int | None = None) -> list[LoadRecord]:
        """As `dodona.Loads.list_loads`."""
        return await self._run(self._session.loads.list_loads(), timeout_ms)

    async def list_recoveries(self, *, timeout_ms: int | None = None) -> list[LoadRecovery]:
        """As `dodona.Loads.list_recoveries`."""
        return await self._run(self._session.loads.list_recoveries(), timeout_ms)

    async def recover(
        self, owner: str = "", *, timeout_ms: int | None = None
    ) -> list[LoadRecovery]:
        """As `dodona.Loads.recover`."""
        return await self._run(self._session.loads.recover(owner), timeout_ms)

    async def abort(
        self, load: LoadId, reason: str = "it was aborted", *, timeout_ms: int | None = None
    ) -> Published | None:
        """As `dodona.Loads.abort`."""
        return await self._run(self._session.loads.abort_load(load, reason), timeout_ms)


class AsyncLoad(ProcessBound):
    """As `dodona.Load`."""

    _instead = "send its `ticket`, and give that to `loads.join` there"

    def __init__(self, run: AsyncRun, session: Session, lease: Lease) -> None:
        self._run = run
        self._session = session
        self._lease = lease
        self._staged: list[StagedBatch] = []
        self._writes = LoadWrites()
        self._is_over = False

    @property
    def ticket(self) -> LoadTicket:
        """As `dodona.Load.ticket`."""
        return self._lease.ticket

    @property
    def id(self) -> LoadId:
        """As `dodona.Load.id`."""
        return self.ticket.load

    @property
    def is_recorded(self) -> bool:
        """As `dodona.Load.is_recorded`."""
        return self.ticket.is_recorded

    def __repr__(self) -> str:
        return f"<dodona.aio.AsyncLoad {self.id}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        if error is not None:
            with suppress(DodonaError):  # what went wrong before is what there is to say
                await self.abort(f"{type(error).__name__}: {error}")
            return
        try:
            await self.publish()
        except CommitOutcomeUnknown:
            raise
        except Exception as refused:
            reason = refused.message if isinstance(refused, DodonaError) else f"{refused!r}"
            with suppress(DodonaError):
                await self.abort(reason)
            raise

    def write(
        self,
        path: str,
        data: Any,
        partition: int = 0,
        attempt: int = 0,
        durability: Durability = "sync",
        *,
        timeout_ms: int | None = None,
    ) -> Coroutine[Any, Any, list[StagedBatch]]:
        """As `dodona.Load.write`. It begins when it is called; `publish` waits for it, also if
        nobody awaits it, and raises what it could not do."""
        return self._writes.begin(
            self._write(path, data, partition, attempt, durability, timeout_ms)
        )

    async def _write(
        self,
        path: str,
        data: Any,
        partition: int,
        attempt: int,
        durability: Durability,
        timeout_ms: int | None,
    ) -> list[StagedBatch]:
        loads, ticket = self._session.loads, self.ticket
        if ticket.atomicity == "none":
            await self._run(loads.write(ticket, path, data, durability), timeout_ms)
            return []
        stage = loads.stage(ticket, path, data, partition, attempt, durability)
        staged = await self._run(stage, timeout_ms)
        self._staged += staged
        return staged

    async def publish(
        self, staged: Iterable[StagedBatch] | None = None, *, timeout_ms: int | None = None
    ) -> Published:
        """As `dodona.Load.publish`."""
        await self._writes.settle(timeout_ms)
        loads, ticket = self._session.loads, self.ticket
        if ticket.atomicity == "none":
            await self._run(loads.finish(ticket), timeout_ms)
            self._end()
            return Published(ticket.stamp, 0)
        chosen = self._staged if staged is None else staged
        published = await self._run(loads.publish(ticket, chosen), timeout_ms)
        self._end()
        return published

    async def abort(
        self, reason: str = "it was aborted", *, timeout_ms: int | None = None
    ) -> Published | None:
        """As `dodona.Load.abort`."""
        self._writes.drop()
        published = await self._run(self._session.loads.abort(self.ticket, reason), timeout_ms)
        self._end()
        return published

    def _end(self) -> None:
        """Nothing more is to be done for it."""
        self._is_over = True
        self._lease.is_open = False
