"""All operations on bulk loads, as protocols. Pure.

Owns: the order of the steps of a load. First the cells accept its batches. Then it gets a record.
Only then does a task run. So if a record's load is open in no cell, its owner has ended. A
published load is cleaned up immediately, or by the next process that begins a load.
This module remembers nothing between calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, get_args

from msgspec.structs import replace

from dodona._core.loads import cells
from dodona._core.loads.publishing import Publisher
from dodona._core.loads.records import (
    UNFINISHED,
    LoadPhase,
    LoadRecord,
    LoadRecovery,
    Records,
)
from dodona._core.loads.tables import explain
from dodona._core.loads.ticket import (
    KINDS,
    LEASE_MS,
    LEASE_MS_MAX,
    LoadTable,
    LoadTicket,
    Published,
    Range,
)
from dodona._core.loads.versions import read_versions, skipped
from dodona._core.protocol.arguments import INTEGER_MAX, check_number, check_path, check_text
from dodona._core.protocol.context import Context
from dodona._core.protocol.routing import is_soon_served
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.reading import range_of
from dodona._core.row_session import RowSession
from dodona._core.writing import bulk
from dodona._core.writing.committing import check_mode
from dodona._core.writing.modes import check_modes
from dodona._core.writing.senders import StagedBatch
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LoadEnded,
    SchemaViolation,
    TableNotFound,
    TableNotMounted,
)
from dodona_wire.shown import shown
from dodona_wire.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    NO_LOAD,
    TIMESTAMP_COUNTER_BITS,
    Atomicity,
    Durability,
    Key,
    LoadId,
    LoadMode,
    Timestamp,
    timestamp_from_unix_us,
)

HEALED_AGE_S_MAX: Final = 24 * 3600
"""A new load recovers loads of ended owners that began at most this long ago. Older ones wait for a
call of `recover`."""
TABLES_MAX: Final = 100
"""The most tables in one load."""
VERSION_MAX: Final = INTEGER_MAX >> 1
REASON_LENGTH_MAX: Final = 10_000
ENDS: Final = 2


class LoadSession:
    """The operations on bulk loads of one client."""

    def __init__(self, session: RowSession, context: Context) -> None:
        self._context = context
        self._records = Records(session, context)

    # ---- one load

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
    ) -> Protocol[LoadTicket]:
        """Begin a load, and return its ticket. Raises InvalidRequest, TableNotFound,
        TableNotMounted, Overloaded, Unavailable. Raises ConcurrentTransaction if some of the tables
        have the version and others do not."""
        self._check(paths, mode, application, version, lease_ms)
        erased = _checked_ranges(paths, erased)
        if erased and mode != "upsert":
            text = f"Erased ranges need mode 'upsert', not {shown(mode)}."
            raise InvalidRequest(text)
        if atomicity == "none":
            _check_without_atomicity(mode, overwrites, start_timestamp, erased, application)
        tables = []
        for path in paths:
            table = yield from self._table(path, atomicity, erased.get(path))
            tables.append(table)
        load = LoadId((yield from self._context.generate_timestamp()))
        stamp = Timestamp(load)
        if atomicity == "none":
            stamp = timestamp_from_unix_us(self._context.unix_us())
        elif start_timestamp is not None:
            check_number(start_timestamp, "start_timestamp", MIN_TIMESTAMP, load)
            stamp = start_timestamp
        ticket = LoadTicket(
            load, atomicity, mode, stamp, overwrites, lease_ms, tuple(tables), application, version
        )
        if atomicity == "none":
            try:
                yield from cells.open_everywhere(self._context, ticket)
            except DodonaError:
                yield from cells.close_everywhere(self._context, load)
                raise
            return ticket
        return (yield from self._begin_atomic(ticket, owner))

    def _begin_atomic(self, ticket: LoadTicket, owner: str) -> Protocol[LoadTicket]:
        context, records = self._context, self._records
        yield from records.ensure()
        yield from self._heal(ticket.load, owner)
        if ticket.application is not None:
            at = skipped(ticket, (yield from read_versions(records, ticket)))
            if at is not None:
                return replace(ticket, recorded_at=at)
        try:
            yield from cells.open_everywhere(context, ticket)
            yield from records.add(ticket.load, _fields(ticket, owner))
        except DodonaError:
            yield from cells.close_everywhere(context, ticket.load)
            raise
        return ticket

    def stage(
        self,
        ticket: LoadTicket,
        path: str,
        data: Any,
        partition: int = 0,
        attempt: int = 0,
        durability: Durability = "sync",
    ) -> Protocol[list[StagedBatch]]:
        """Send rows to an atomic load, where they are staged. Return what `publish` needs of
        them."""
        check_modes(ticket.atomicity, durability)
        table, kind = self._check_table(ticket, path), KINDS[ticket.mode]
        try:
            staged = yield from bulk.stage_arrow(
                self._context, path, data, ticket.load, kind, partition, attempt
            )
        except (TableNotFound, TableNotMounted, SchemaViolation) as error:
            raise (yield from explain(self._context, table, error)) from error
        return staged

    def write(
        self, ticket: LoadTicket, path: str, data: Any, durability: Durability
    ) -> Protocol[int]:
        """Write rows of a load without atomicity. Return how many rows there were."""
        self._check_table(ticket, path)
        return (
            yield from bulk.write_arrow(
                self._context,
                path,
                data,
                durability,
                ticket.stamp,
                ticket.load,
                KINDS[ticket.mode],
            )
        )

    def publish(self, ticket: LoadTicket, staged: Iterable[StagedBatch]) -> Protocol[Published]:
        """Make the staged rows visible. Raises DuplicateKey, RowNotFound, TransactionConflict and
        errors of its kind, LoadEnded. Then the load can be aborted, and none of its rows is seen.
        After CommitOutcomeUnknown, publish or abort the load again: both report what happened."""
        if ticket.is_recorded:
            return Published(ticket.recorded_at, 0, is_skipped=True)
        publisher = Publisher(self._context, self._records, ticket, staged)
        published = yield from publisher.publish()
        if published.is_skipped:
            reason = "another load published the version of the application"
            yield from self._give_up(ticket.load, reason)
        else:
            yield from self._finish(ticket.load, published.timestamp)
        return published

    def abort(self, ticket: LoadTicket, reason: str) -> Protocol[Published | None]:
        """Abort the load, unless it was published. Return how it was published, or None."""
        if ticket.atomicity == "none":
            yield from cells.close_everywhere(self._context, ticket.load)
            return None
        if ticket.is_recorded:
            return None
        return (yield from self.abort_load(ticket.load, reason))

    def abort_load(self, load: LoadId, reason: str) -> Protocol[Published | None]:
        """Abort a load by its id, as `abort` does. Raises LoadEnded if the id is unknown."""
        check_number(load, "load", MIN_TIMESTAMP, MAX_TIMESTAMP)
        record = yield from self._records.find(load)
        if record is not None:
            yield from self._give_up(load, reason)
            published = yield from self._records.find_published(load)
            if published is not None:
                yield from self._finish(load, published.timestamp)
            return published
        is_alive = yield from cells.is_alive(self._context, load)
        yield from cells.close_everywhere(self._context, load)
        if is_alive is False:
            raise LoadEnded("No load with this id is open or recorded. Check the id.", load=load)
        return None

    def finish(self, ticket: LoadTicket) -> Protocol[None]:
        """End a load without atomicity after all of its rows are written. The cells then take no
        more rows."""
        return cells.close_everywhere(self._context, ticket.load)

    # ---- all loads

    def find(self, load: LoadId) -> Protocol[LoadRecord | None]:
        """Return the record of a load, or None."""
        return self._records.find(load)

    def list_loads(self) -> Protocol[list[LoadRecord]]:
        """Return all records of loads, oldest first."""
        return self._records.list_loads()

    def list_recoveries(self) -> Protocol[list[LoadRecovery]]:
        """Return the recoveries of loads whose owners had ended, oldest first."""
        return self._records.list_recoveries()

    def recover(self, owner: str = "", since: LoadId = NO_LOAD) -> Protocol[list[LoadRecovery]]:
        """Recover loads whose owners have ended: those that are open in no cell and have no end in
        their record. Return the recoveries."""
        recovered: dict[LoadId, None] = {}
        found = yield from self._records.list_loads(since)
        for record in [it for it in found if it.state in UNFINISHED]:
            if (yield from self._recover(record, owner)):
                recovered[record.load] = None
        if not recovered:
            return []
        recoveries = yield from self._records.list_recoveries()
        return [it for it in recoveries if it.load in recovered]

    # ---- recovery and cleanup

    def _heal(self, load: LoadId, owner: str) -> Protocol[None]:
        """Recover other loads before a new one begins. If this fails, the next load tries again."""
        since = LoadId(max(load - (HEALED_AGE_S_MAX << TIMESTAMP_COUNTER_BITS), 0))
        try:
            yield from self.recover(owner, since)
        except DodonaError:
            return

    def _recover(self, record: LoadRecord, owner: str) -> Protocol[bool]:
        """Recover a load if no cell has it open. Return whether this call ended it."""
        if (yield from cells.is_alive(self._context, record.load)) is not False:
            return False
        audit: dict[str, Any] = {"owner": owner, "tables": list(record.tables)}
        if record.state != "published":
            reason = "the lease expired before the load was published"
            audit.update(outcome="rolled_back", reason=reason)
            before = yield from self._records.move(
                record.load, ("running", "publishing"), "aborted", {"reason": reason}, audit
            )
            if before is not None:
                return True
        reason = "the load was published, and its owner did not clean up in time"
        audit.update(outcome="rolled_forward", reason=reason)
        timestamp = yield from self._records.published_at(record.load)
        before = yield from self._records.move(
            record.load, ("published",), "finished", {"commit_timestamp": timestamp}, audit
        )
        return before is not None

    def _finish(self, load: LoadId, timestamp: Timestamp) -> Protocol[None]:
        """Clean up a published load. Errors do not matter: the load stays published, and the next
        load cleans up."""
        with suppress(DodonaError):
            fields = {"commit_timestamp": timestamp}
            yield from self._records.move(load, ("published",), "finished", fields)
        yield from cells.close_everywhere(self._context, load)

    def _give_up(self, load: LoadId, reason: str) -> Protocol[None]:
        """Abort a load unless it was published. The record comes first. If a cell closed the load
        before that, it could not be published any more, and no record would say why."""
        states: tuple[LoadPhase, ...] = ("running", "publishing")
        fields = {"reason": _recordable(reason)}
        yield from self._records.move(load, states, "aborted", fields)
        yield from cells.close_everywhere(self._context, load)

    # ---- checks

    def _check(
        self,
        paths: Any,
        mode: str,
        application: str | None,
        version: int | None,
        lease_ms: int,
    ) -> None:
        is_list = isinstance(paths, Sequence) and not isinstance(paths, str | bytes)
        if not is_list or not 0 < len(paths) <= TABLES_MAX:
            raise InvalidRequest(
                f"A load needs a list of 1 to {TABLES_MAX} tables, not {shown(paths)}."
            )
        for path in paths:
            check_path(path)
        if len(set(paths)) != len(paths):
            raise InvalidRequest("The list of tables has a table twice.", tables=list(paths))
        if mode not in get_args(LoadMode):
            raise InvalidRequest(f"mode is one of {get_args(LoadMode)}, not {shown(mode)}")
        if (application is None) != (version is None):
            raise InvalidRequest("Pass both application and version, or neither.")
        if application is not None and version is not None:
            check_text(application, "application")
            check_number(version, "version", 0, VERSION_MAX)
        check_number(lease_ms, "lease_ms", 1, LEASE_MS_MAX)

    def _table(self, path: str, atomicity: Atomicity, erased: Range | None) -> Protocol[LoadTable]:
        route = yield from self._context.fresh_route(path)
        check_mode(route, atomicity)
        for tablet in route.tablets:
            if not is_soon_served(tablet, is_write=True):
                text = f"Table {path} is not mounted. Mount it before the load."
                raise TableNotMounted(text, table=path, tablet=tablet.tablet, state=tablet.state)
        ranges: tuple[tuple[Key, Key], ...] = ()
        if erased is not None:
            ranges = (range_of(route.schema, *erased),)
        tablets = tuple([tablet.tablet for tablet in route.tablets])
        return LoadTable(path, tuple(route.schema.columns), tablets, ranges, route.settings)

    def _check_table(self, ticket: LoadTicket, path: str) -> LoadTable:
        """Forget the cached route if it does not match the load. Return the table as it was when
        the load began."""
        table, known = ticket.table(path), self._context.routing.find(path)
        if table is None:
            raise InvalidRequest(
                "The table is not in the load. Begin a load with this table.", table=path
            )
        if ticket.is_recorded:
            text = "The load's version was published before. Skip the rows of this load."
            raise LoadEnded(text, load=ticket.load)
        if known is None:
            return table
        tablets = tuple([tablet.tablet for tablet in known.tablets])
        columns = tuple(known.schema.columns)
        if (tablets, columns, known.atomicity) != (table.tablets, table.columns, ticket.atomicity):
            known.mark_stale()
        return table


def _checked_ranges(paths: Sequence[str], erased: Any) -> Mapping[str, Range]:
    """Check the ranges to erase. Raises InvalidRequest."""
    if erased is None:
        return {}
    if not isinstance(erased, Mapping) or not all(
        isinstance(it, Sequence) and not isinstance(it, str | bytes) and len(it) == ENDS
        for it in erased.values()
    ):
        raise InvalidRequest("Pass erased ranges as a dict from path to (lower, upper).")
    for path in erased:
        if path not in paths:
            text = "A range is erased in a table that is not in the load."
            raise InvalidRequest(text, table=path)
    return erased


def _check_without_atomicity(mode: LoadMode, *others: Any) -> None:
    if mode not in ("upsert", "delete") or any(others):
        raise InvalidRequest(
            "A load without atomicity can only upsert or delete rows. It detects no conflicts, "
            "erases no ranges, and records no version."
        )


def _recordable(reason: str) -> str:
    """Return a reason that fits into a record. It may be the text of any error, of any length and
    with invalid Unicode. A bad reason must not keep a load open."""
    if not isinstance(reason, str):
        raise InvalidRequest(f"reason is a str, not {type(reason).__name__}")
    return reason[:REASON_LENGTH_MAX].encode(errors="backslashreplace").decode()


def _fields(ticket: LoadTicket, owner: str) -> dict[str, Any]:
    return {
        "tables": [table.path for table in ticket.tables],
        "mode": ticket.mode,
        "owner": owner,
        "lease_ms": ticket.lease_ms,
        "application": ticket.application,
        "version": ticket.version,
    }
