"""Bulk loads in the asyncio API: many rows become visible at one commit timestamp, or not at all.

Owns: the public names and arguments of `AsyncLoads` and `AsyncLoad`.
"""

# `python -m twins` makes loads.py of this module.

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from dodona._core.loads.leases import Lease
from dodona._core.loads.records import LoadRecord, LoadRecovery
from dodona._core.loads.ticket import LEASE_MS, LoadTicket, Published, Range
from dodona._core.protocol.process_bound import MAKE_ONE_THERE, ProcessBound
from dodona._core.session import Session
from dodona._core.writing.senders import StagedBatch
from dodona._io.aio_pinger import AsyncPinger
from dodona._io.aio_writes import LoadWrites, begun_at_call
from dodona._io.bounds import AsyncRun, async_within
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError
from dodona_wire.types import Atomicity, Durability, LoadId, LoadMode, Timestamp


class AsyncLoads(ProcessBound):
    """The bulk loads of a client, from `AsyncClient.loads`.

    A load takes many rows from many processes. The rows become visible at one commit timestamp, or
    not at all. In tables with atomicity `"none"`, they become visible as they arrive."""

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
        """Begin a load into these tables, which must all have this atomicity.

        - `mode`: `"upsert"` writes whole rows. `"insert"` does the same, but a key that exists is
          an error. `"update"` sets the given columns of rows that must exist. `"delete"` takes
          keys.
        - `start_timestamp`: changes that others commit to the same rows after this timestamp are
          conflicts. The default is the beginning of the load. If you computed the rows from a
          snapshot, pass its timestamp.
        - `overwrites`: overwrite such changes. Then they are no conflict.
        - `erased`: ranges of keys by path, as (lower, upper): leading key values, or None. In these
          ranges, lower ≤ key < upper, the rows of the load will be the only rows.
        - `application`, `version`: the name of a program, and the number that it gives to this
          load. Each table takes each version once, and no version below the last one. If all tables
          have this version or a later one, `AsyncLoad.is_recorded` is true: there is nothing to
          do. If only some have it, the call raises ConcurrentTransaction, which lists them.
        - `lease_ms`: how long cells keep the load without a renewal by any process that takes part,
          in ms. At most an hour.
        - `owner`: a text for people who read `list_loads`.

        Raises InvalidRequest, TableNotFound, TableNotMounted, SnapshotTooOld,
        ConcurrentTransaction, Overloaded (1,000 loads), Unavailable."""
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
        """Join a load that another process began. Its `AsyncLoad.ticket` can be pickled."""
        return self._join(ticket, self._run)

    def _join(self, ticket: LoadTicket, run: AsyncRun) -> "AsyncLoad":
        lease = Lease(ticket)
        if not ticket.is_recorded:
            self._keeper.watch(lease)
        return AsyncLoad(run, self._session, lease)

    async def find(self, load: LoadId, *, timeout_ms: int | None = None) -> LoadRecord | None:
        """Return the record of a load. None if there is no such load, or if it has atomicity
        `"none"`."""
        return await self._run(self._session.loads.find(load), timeout_ms)

    async def list_loads(self, *, timeout_ms: int | None = None) -> list[LoadRecord]:
        """Return the loads of the last thirty days, oldest first. Loads with atomicity `"none"` are
        not recorded."""
        return await self._run(self._session.loads.list_loads(), timeout_ms)

    async def list_recoveries(self, *, timeout_ms: int | None = None) -> list[LoadRecovery]:
        """Return the recoveries of loads that their owner left unfinished, oldest first."""
        return await self._run(self._session.loads.list_recoveries(), timeout_ms)

    async def recover(
        self, owner: str = "", *, timeout_ms: int | None = None
    ) -> list[LoadRecovery]:
        """Recover the loads whose lease has ended, and return these recoveries. Loads that were
        published are finished. The others are aborted. Each atomic load that begins also recovers
        the loads of the last day. Raises Unavailable."""
        return await self._run(self._session.loads.recover(owner), timeout_ms)

    async def abort(
        self, load: LoadId, reason: str = "it was aborted", *, timeout_ms: int | None = None
    ) -> Published | None:
        """Abort a load that another process began, without its ticket. Otherwise as
        `AsyncLoad.abort`. Raises LoadEnded if there is no such load, Unavailable."""
        return await self._run(self._session.loads.abort_load(load, reason), timeout_ms)


class AsyncLoad(ProcessBound):
    """A load in which this process takes part, from `AsyncClient.loads`.

    The client renews its lease in the background while the load is open and the program refers to
    it. In an `async with` block, the load is published at the end with the rows that the block
    wrote, or aborted on an exception."""

    _instead = "send its `ticket`, and give that to `loads.join` there"

    def __init__(self, run: AsyncRun, session: Session, lease: Lease) -> None:
        self._run = run
        self._session = session
        self._lease = lease
        self._staged: list[StagedBatch] = []
        self._writes = LoadWrites()  # asyncio only
        self._is_over = False

    @property
    def ticket(self) -> LoadTicket:
        """The ticket, with which another process can join the load (`AsyncLoads.join`)."""
        return self._lease.ticket

    @property
    def id(self) -> LoadId:
        """The id of the load: the timestamp at which it began."""
        return self.ticket.load

    @property
    def is_recorded(self) -> bool:
        """Whether the version of its application was published before. Then there is nothing to
        do."""
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
            with suppress(DodonaError):  # the caller needs the first error, not this one
                await self.abort(f"{type(error).__name__}: {error}")
            return
        try:
            await self.publish()
        except CommitOutcomeUnknown:
            raise
        except Exception as refused:  # blocking: except DodonaError as refused:
            with suppress(DodonaError):
                await self.abort(_reason(refused))
            raise

    @begun_at_call  # asyncio only
    async def write(
        self,
        path: str,
        data: Any,
        partition: int = 0,
        attempt: int = 0,
        durability: Durability = "sync",
        *,
        timeout_ms: int | None = None,
    ) -> list[StagedBatch]:
        """Send rows to the load. They stay invisible until the load is published.

        - `data`: as in `AsyncClient.write`. A load must not have a key twice. This call or
          `publish` raises the error.
        - `partition`, `attempt`: numbers that tell writers apart. Give each process its own.
        - `durability`: `"async"` is for atomicity `"none"` only.

        Returns the staged batches, which `publish` takes in any process. This object also remembers
        them. With atomicity `"none"`, the rows are written and visible immediately, the last row of
        a key wins, and the list is empty.

        Raises LoadEnded, DuplicateKey, InvalidRequest, SchemaViolation, TableNotMounted,
        Overloaded, Unavailable.

        With asyncio, the write begins at the call. `publish` waits for it, also if it is not
        awaited, and raises its error. Do not change the data before the write is done."""
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
        """Make the staged rows visible. Returns the commit timestamp and the number of rows.

        - `staged`: the batches to publish. The default is the batches that this object wrote.

        Raises DuplicateKey, RowNotFound, ConcurrentAppend and similar conflicts, LoadEnded. Then
        abort the load, and none of its rows is ever visible. If it raises CommitOutcomeUnknown,
        publish the load again or abort it. Both report what happened."""
        await self._writes.settle(timeout_ms)  # asyncio only
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
        """Abort the load, and drop all staged rows. Repeating the call is harmless. A load that was
        published stays published. Then the call returns its `Published`, else None."""
        self._writes.drop()  # asyncio only
        published = await self._run(self._session.loads.abort(self.ticket, reason), timeout_ms)
        self._end()
        return published

    def _end(self) -> None:
        """Note that the load needs no more work."""
        self._is_over = True
        self._lease.is_open = False


def _reason(refused: Exception) -> str:
    return refused.message if isinstance(refused, DodonaError) else f"{refused!r}"
