"""Bulk loads in the blocking API: many rows, visible at one commit timestamp or not at all.

Owns: the public names and arguments of `Loads` and `Load`; `dodona.aio_loads` is their twin, name
by name.
"""

from collections.abc import Iterable, Mapping, Sequence
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
from dodona._io.bounds import Run, within
from dodona._io.pinger import Pinger
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError
from dodona_wire.types import Atomicity, Durability, LoadId, LoadMode, Timestamp


class Loads(ProcessBound):
    """Bulk loads of a client, of `Client.loads`: many rows, from many processes, that become
    visible at one commit timestamp or not at all; or, to tables of atomicity none, as they come."""

    _instead = MAKE_ONE_THERE

    def __init__(self, run: Run, session: Session, keeper: Pinger[Lease]) -> None:
        self._run = run
        self._session = session
        self._keeper = keeper

    def begin(
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
    ) -> "Load":
        """Begin a load into these tables, all of one atomicity.

        `mode` says what its rows do: "upsert" writes whole rows; "insert" too, and a key that is
        there is an error; "update" sets the columns that are given, of rows that must be there;
        "delete" takes keys. What others committed to the same rows after `start_timestamp` (its
        beginning unless given: a DataFrame that was made of a snapshot has that one's) is a
        conflict, unless it `overwrites`. In the ranges that are `erased` (by path: lower ≤ key <
        upper, leading key values or None) the load's rows will be the only ones.

        Of an `application` every `version` is published once in each table, and none that is below
        the last: `Load.is_recorded` then says that there is nothing to do. If only some of the
        tables have the version, that is ConcurrentTransaction, with lists of them.

        It is kept for `lease_ms` (an hour at most) beyond the last sign of life of any process that
        has part in it. `owner` is for people who look at `list_loads`.

        Raises InvalidRequest, TableNotFound, TableNotMounted, SnapshotTooOld,
        ConcurrentTransaction, Overloaded (1,000 loads), Unavailable.
        """
        begin = self._session.loads.begin
        ticket = self._run(
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
        return self._join(ticket, within(self._run, timeout_ms))

    def join(self, ticket: LoadTicket) -> "Load":
        """Take part in a load that another process began: `Load.ticket` can be pickled."""
        return self._join(ticket, self._run)

    def _join(self, ticket: LoadTicket, run: Run) -> "Load":
        lease = Lease(ticket)
        if not ticket.is_recorded:
            self._keeper.watch(lease)
        return Load(run, self._session, lease)

    def find(self, load: LoadId, *, timeout_ms: int | None = None) -> LoadRecord | None:
        """What is remembered of a load; None if it was none, or one without atomicity."""
        return self._run(self._session.loads.find(load), timeout_ms)

    def list_loads(self, *, timeout_ms: int | None = None) -> list[LoadRecord]:
        """The loads of the last thirty days, oldest first; those without atomicity are not
        recorded."""
        return self._run(self._session.loads.list_loads(), timeout_ms)

    def list_recoveries(self, *, timeout_ms: int | None = None) -> list[LoadRecovery]:
        """What was made of loads whose owners died, oldest first."""
        return self._run(self._session.loads.list_recoveries(), timeout_ms)

    def recover(self, owner: str = "", *, timeout_ms: int | None = None) -> list[LoadRecovery]:
        """Clear up behind loads whose lease has ended: those that had been published are finished,
        the others are aborted. → what was recovered. Every atomic load that begins does so for
        those of the last day. Raises Unavailable."""
        return self._run(self._session.loads.recover(owner), timeout_ms)

    def abort(
        self, load: LoadId, reason: str = "it was aborted", *, timeout_ms: int | None = None
    ) -> Published | None:
        """As `Load.abort`, for a load that another process began, without its ticket. Raises
        LoadEnded if there is no such load, Unavailable."""
        return self._run(self._session.loads.abort_load(load, reason), timeout_ms)


class Load(ProcessBound):
    """A load that this process takes part in, of `Client.loads`. It is renewed in the background
    while it is open and referred to. Used in a `with` block it is published at the end, with what
    was written in the block, or aborted on an exception."""

    _instead = "send its `ticket`, and give that to `loads.join` there"

    def __init__(self, run: Run, session: Session, lease: Lease) -> None:
        self._run = run
        self._session = session
        self._lease = lease
        self._staged: list[StagedBatch] = []
        self._is_over = False

    @property
    def ticket(self) -> LoadTicket:
        """What another process needs to take part in it (`Loads.join`)."""
        return self._lease.ticket

    @property
    def id(self) -> LoadId:
        """Its start timestamp."""
        return self.ticket.load

    @property
    def is_recorded(self) -> bool:
        """Whether its application's version was published before: there is nothing to do."""
        return self.ticket.is_recorded

    def __repr__(self) -> str:
        return f"<dodona.Load {self.id}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        if error is not None:
            with suppress(DodonaError):  # what went wrong before is what there is to say
                self.abort(f"{type(error).__name__}: {error}")
            return
        try:
            self.publish()
        except DodonaError as refused:
            if not isinstance(refused, CommitOutcomeUnknown):
                with suppress(DodonaError):
                    self.abort(refused.message)
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
    ) -> list[StagedBatch]:
        """Bring rows: a `pyarrow.Table`, a record batch, or an iterable of these. → what was
        staged, for `publish`, wherever that is called; of this object it is remembered. Nobody sees
        it before. Without atomicity the rows are written at once, and nothing is returned.

        `partition` and `attempt` tell apart who brings what: give each process one of its own.
        No key may come twice in a load: that shows here, or when it is published; without atomicity
        the last row counts, and `durability` may be "async". Raises LoadEnded, DuplicateKey,
        InvalidRequest, SchemaViolation, TableNotMounted, Overloaded, Unavailable."""
        loads, ticket = self._session.loads, self.ticket
        if ticket.atomicity == "none":
            self._run(loads.write(ticket, path, data, durability), timeout_ms)
            return []
        stage = loads.stage(ticket, path, data, partition, attempt, durability)
        staged = self._run(stage, timeout_ms)
        self._staged += staged
        return staged

    def publish(
        self, staged: Iterable[StagedBatch] | None = None, *, timeout_ms: int | None = None
    ) -> Published:
        """Make what was staged visible: of this object, unless given. → the commit timestamp, and
        how many rows. Raises DuplicateKey, RowNotFound, ConcurrentAppend and its kin, LoadEnded,
        and nothing of it ever is visible once it is aborted; CommitOutcomeUnknown: publish it again
        or abort it, and both tell what happened."""
        loads, ticket = self._session.loads, self.ticket
        if ticket.atomicity == "none":
            self._run(loads.finish(ticket), timeout_ms)
            self._end()
            return Published(ticket.stamp, 0)
        chosen = self._staged if staged is None else staged
        published = self._run(loads.publish(ticket, chosen), timeout_ms)
        self._end()
        return published

    def abort(
        self, reason: str = "it was aborted", *, timeout_ms: int | None = None
    ) -> Published | None:
        """Drop all that was staged. A load that was published stays so: → what it was. Repeating
        it is harmless."""
        published = self._run(self._session.loads.abort(self.ticket, reason), timeout_ms)
        self._end()
        return published

    def _end(self) -> None:
        """Nothing more is to be done for it."""
        self._is_over = True
        self._lease.is_open = False
