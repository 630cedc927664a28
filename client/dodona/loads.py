"""Bulk loads in the blocking API: many rows become visible at one commit timestamp, or not at all.

Owns: the public names and arguments of `Loads` and `Load`.
"""

# Generated from aio_loads.py by python -m twins: change that, and run it.

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
from dodona._io.bounds import Run, within
from dodona._io.pinger import Pinger
from dodona_wire.errors import CommitOutcomeUnknown, DodonaError
from dodona_wire.types import Atomicity, Durability, LoadId, LoadMode, Timestamp


class Loads(ProcessBound):
    """The bulk loads of a client, from `Client.loads`.

    A load takes many rows from many processes. The rows become visible at one commit timestamp, or
    not at all. In tables with atomicity `"none"`, they become visible as they arrive."""

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
          have this version or a later one, `Load.is_recorded` is true: there is nothing to
          do. If only some have it, the call raises ConcurrentTransaction, which lists them.
        - `lease_ms`: how long cells keep the load without a renewal by any process that takes part,
          in ms. At most an hour.
        - `owner`: a text for people who read `list_loads`.

        Raises InvalidRequest, TableNotFound, TableNotMounted, SnapshotTooOld,
        ConcurrentTransaction, Overloaded (1,000 loads), Unavailable."""
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
        """Join a load that another process began. Its `Load.ticket` can be pickled."""
        return self._join(ticket, self._run)

    def _join(self, ticket: LoadTicket, run: Run) -> "Load":
        lease = Lease(ticket)
        if not ticket.is_recorded:
            self._keeper.watch(lease)
        return Load(run, self._session, lease)

    def find(self, load: LoadId, *, timeout_ms: int | None = None) -> LoadRecord | None:
        """Return the record of a load. None if there is no such load, or if it has atomicity
        `"none"`."""
        return self._run(self._session.loads.find(load), timeout_ms)

    def list_loads(self, *, timeout_ms: int | None = None) -> list[LoadRecord]:
        """Return the loads of the last thirty days, oldest first. Loads with atomicity `"none"` are
        not recorded."""
        return self._run(self._session.loads.list_loads(), timeout_ms)

    def list_recoveries(self, *, timeout_ms: int | None = None) -> list[LoadRecovery]:
        """Return the recoveries of loads that their owner left unfinished, oldest first."""
        return self._run(self._session.loads.list_recoveries(), timeout_ms)

    def recover(self, owner: str = "", *, timeout_ms: int | None = None) -> list[LoadRecovery]:
        """Recover the loads whose lease has ended, and return these recoveries. Loads that were
        published are finished. The others are aborted. Each atomic load that begins also recovers
        the loads of the last day. Raises Unavailable."""
        return self._run(self._session.loads.recover(owner), timeout_ms)

    def abort(
        self, load: LoadId, reason: str = "it was aborted", *, timeout_ms: int | None = None
    ) -> Published | None:
        """Abort a load that another process began, without its ticket. Otherwise as
        `Load.abort`. Raises LoadEnded if there is no such load, Unavailable."""
        return self._run(self._session.loads.abort_load(load, reason), timeout_ms)


class Load(ProcessBound):
    """A load in which this process takes part, from `Client.loads`.

    The client renews its lease in the background while the load is open and the program refers to
    it. In a `with` block, the load is published at the end with the rows that the block
    wrote, or aborted on an exception."""

    _instead = "send its `ticket`, and give that to `loads.join` there"

    def __init__(self, run: Run, session: Session, lease: Lease) -> None:
        self._run = run
        self._session = session
        self._lease = lease
        self._staged: list[StagedBatch] = []
        self._is_over = False

    @property
    def ticket(self) -> LoadTicket:
        """The ticket, with which another process can join the load (`Loads.join`)."""
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
            with suppress(DodonaError):  # the caller needs the first error, not this one
                self.abort(f"{type(error).__name__}: {error}")
            return
        try:
            self.publish()
        except CommitOutcomeUnknown:
            raise
        except DodonaError as refused:
            with suppress(DodonaError):
                self.abort(_reason(refused))
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
        """Send rows to the load. They stay invisible until the load is published.

        - `data`: as in `Client.write`. A load must not have a key twice. This call or
          `publish` raises the error.
        - `partition`, `attempt`: numbers that tell writers apart. Give each process its own.
        - `durability`: `"async"` is for atomicity `"none"` only.

        Returns the staged batches, which `publish` takes in any process. This object also remembers
        them. With atomicity `"none"`, the rows are written and visible immediately, the last row of
        a key wins, and the list is empty.

        Raises LoadEnded, DuplicateKey, InvalidRequest, SchemaViolation, TableNotMounted,
        Overloaded, Unavailable."""
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
        """Make the staged rows visible. Returns the commit timestamp and the number of rows.

        - `staged`: the batches to publish. The default is the batches that this object wrote.

        Raises DuplicateKey, RowNotFound, ConcurrentAppend and similar conflicts, LoadEnded. Then
        abort the load, and none of its rows is ever visible. If it raises CommitOutcomeUnknown,
        publish the load again or abort it. Both report what happened."""
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
        """Abort the load, and drop all staged rows. Repeating the call is harmless. A load that was
        published stays published. Then the call returns its `Published`, else None."""
        published = self._run(self._session.loads.abort(self.ticket, reason), timeout_ms)
        self._end()
        return published

    def _end(self) -> None:
        """Note that the load needs no more work."""
        self._is_over = True
        self._lease.is_open = False


def _reason(refused: Exception) -> str:
    return refused.message if isinstance(refused, DodonaError) else f"{refused!r}"
