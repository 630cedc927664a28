"""Hold a snapshot: which cells keep it, and when the client renews it. Pure.

Owns: the rounds in which a reader registers with all cells of its tables, and what the reader may
conclude from the answers.
Tablets move between cells, and cells restart. So each round looks up where the tablets are now. For
one lease after a move or a restart, a cell keeps everything (see the cells' `readers`). So a
snapshot stays held if each complete round follows the last one within a lease. If a reader misses
that, it gets an error, and never reads on.
A hold is not renewed after the program has dropped its references to it. Threads may share a hold,
under the rules of `master_transaction`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final
from weakref import ref

from dodona._core.protocol.altered import replaced_error
from dodona._core.protocol.arguments import check_number, check_path
from dodona._core.protocol.attempts import Again, repeated
from dodona._core.protocol.context import Context, error_of, not_mounted
from dodona._core.protocol.retry import Patience
from dodona._core.protocol.routing import TableRoute, is_served, is_soon_served
from dodona._core.protocol.steps import MASTER, Calls, Post, Protocol
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    MetadataChanged,
    SnapshotTooOld,
    TableNotFound,
    TableNotMounted,
    TabletMoved,
    Unavailable,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable, Table
from dodona_wire.messages.data import HoldSnapshot, SnapshotHeld
from dodona_wire.messages.families import Reply
from dodona_wire.shown import shown
from dodona_wire.types import MAX_TIMESTAMP, MIN_TIMESTAMP, CellId, ReaderId, TabletId, Timestamp

LEASE_MS: Final = 60_000
"""The lease if the caller gives none. A cell waits this long for renewals after a tablet has moved
to it."""
LEASE_MS_MAX: Final = 3_600_000
"""The longest lease that cells allow. Their settings may allow less."""
RENEWAL_MS_MAX: Final = LEASE_MS // 4
"""The longest time between renewals, for any lease. So a cell to which a tablet moves knows of the
hold before it removes a version."""
ROUNDS_PER_LEASE: Final = 4
"""How many rounds in a row must fail before versions of the snapshot may be removed."""
AGAIN_MS: Final = 1_000
"""How soon the next round follows a round that was not complete."""
MARGIN: Final = 10
"""One part in ten of a lease is left out, since two clocks never run at the same speed."""
HOLDS_AT_ONCE_MAX: Final = 16
TABLES_MAX: Final = 10_000


class Hold:
    """One held snapshot. All times are microseconds of the client's monotonic clock."""

    __slots__ = (
        "__weakref__",
        "_firm_until_us",
        "_loss",
        "cells",
        "due_us",
        "is_fresh",
        "is_open",
        "lease_ms",
        "reader",
        "routes",
        "tables",
        "timestamp",
    )

    def __init__(
        self,
        reader: ReaderId,
        timestamp: Timestamp,
        paths: Iterable[str],
        is_fresh: bool,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self.reader = reader
        self.timestamp = timestamp
        self.lease_ms = lease_ms
        self.is_fresh = is_fresh
        """Whether the timestamp was made for this hold. Then non-atomic tables are read at their
        newest, since their timestamps may be ahead of the oracle."""
        self.routes: dict[str, TableRoute | None] = dict.fromkeys(paths)
        """The last known route of each table."""
        self.tables: dict[str, int] = {}
        """The ids of the tables, or 0 if an older master sends none. Another table may be at the
        path later."""
        self.cells: dict[CellId, None] = {}
        """All cells that were ever asked. They get a message when the hold ends."""
        self.due_us = 0
        self.is_open = True
        self._firm_until_us: int | None = None
        self._loss = ""

    @property
    def is_renewed(self) -> bool:
        """Whether a renewal is still useful."""
        return self.is_open and not self._loss

    def confirm(self, began_us: int, now_us: int, lease_ms: int) -> None:
        """Note that all cells have answered the round that began at `began_us`."""
        self._notice_gap(now_us)
        self._firm_until_us = began_us + lease_ms * 1000 * (MARGIN - 1) // MARGIN
        self.due_us = began_us + min(lease_ms * 1000 // ROUNDS_PER_LEASE, RENEWAL_MS_MAX * 1000)

    def lose(self, reason: str) -> None:
        """Note that some versions of the snapshot may have been removed."""
        self._loss = self._loss or reason

    def find(self, route: TableRoute) -> None:
        """Note the route of one of the tables. Raises MetadataChanged if it is another table."""
        self.check_table(route)
        self.tables[route.path] = route.table or self.tables.get(route.path, 0)
        self.routes[route.path] = route

    def check_table(self, route: TableRoute) -> None:
        """Check that the path still has the table that is held. Raises MetadataChanged."""
        if route.is_another(self.tables.get(route.path, 0)):
            raise replaced_error(route.path, "the snapshot")

    def check(self, now_us: int) -> None:
        """Check that the snapshot is held, and was held without a gap. Raises SnapshotTooOld, from
        the first gap on. Raises InvalidRequest after the release."""
        if not self.is_open:
            raise InvalidRequest("The snapshot was released. Hold a new snapshot.")
        self.check_at_end(now_us)

    def check_at_end(self, now_us: int) -> None:
        """Check as `check` does. After a release, check the time until the release."""
        if self.is_open:
            self._notice_gap(now_us)
        if self._loss:
            text = f"The snapshot is not held any more: {self._loss}"
            raise SnapshotTooOld(text, timestamp=self.timestamp)

    def end(self, now_us: int) -> None:
        """Release the snapshot."""
        self._notice_gap(now_us)
        self.is_open = False

    def _notice_gap(self, now_us: int) -> None:
        if self._firm_until_us is not None and now_us > self._firm_until_us:
            self.lose("the client could not renew the lease in all cells in time")


class _Round:
    """One question to each cell, and the result of the answers."""

    def __init__(self, hold: Hold, began_us: int) -> None:
        self._hold = hold
        self._began_us = began_us
        self._by_cell: dict[CellId, dict[TabletId, TableRoute]] = {}
        self._error: DodonaError | None = None

    def add(self, route: TableRoute) -> None:
        for tablet in route.tablets:
            if not is_served(tablet, is_write=False):
                self._fail(route, not_mounted(route, tablet, is_write=False))
            elif tablet.cell is not None:
                self._by_cell.setdefault(tablet.cell, {})[tablet.tablet] = route
                self._hold.cells[tablet.cell] = None

    def requests(self) -> list[tuple[CellId, HoldSnapshot]]:
        """Return one request for each cell, in a stable order."""
        hold = self._hold
        return [
            (cell, HoldSnapshot(hold.reader, hold.timestamp, tuple(tablets), hold.lease_ms))
            for cell, tablets in self._by_cell.items()
        ]

    def judge(self, replies: Iterable[Reply], now_us: int) -> DodonaError | None:
        """Return None if the round was complete, or else the worst error of the answers."""
        lease_ms = self._hold.lease_ms
        for (cell, tablets), reply in zip(self._by_cell.items(), replies, strict=True):
            if isinstance(reply, SnapshotHeld):
                lease_ms = min(lease_ms, reply.lease_ms)
                for tablet in reply.missing:
                    text = "The cell does not serve the tablet any more."
                    self._fail(tablets.get(tablet), TabletMoved(text, tablet=tablet, cell=cell))
            else:
                error = _refusal_of(reply)
                for route in tablets.values():
                    self._fail(route if isinstance(error, Unavailable) else None, error)
        if self._error is None:
            self._hold.confirm(self._began_us, now_us, lease_ms)
        return self._error

    def _fail(self, route: TableRoute | None, error: DodonaError) -> None:
        """Note an error. The next round looks up the table's route again."""
        if route is not None:
            route.mark_stale()
        if self._error is None or not isinstance(error, Unavailable):
            self._error = error


def _refusal_of(reply: Reply) -> DodonaError:
    if isinstance(reply, Failure):
        return error_of(reply)
    return Unavailable(f"A cell answered a request to hold a snapshot with {type(reply).__name__}.")


def begin_hold(
    context: Context,
    paths: Iterable[str],
    timestamp: Timestamp | None,
    lease_ms: int = LEASE_MS,
    reader: ReaderId | None = None,
) -> Protocol[Hold]:
    """Register with all cells concerned. With `reader`, join a snapshot that another process holds.
    Raises SnapshotTooOld, TableNotFound, TableNotMounted, Overloaded, Unavailable,
    InvalidRequest."""
    checked = _check_paths(paths)
    check_number(lease_ms, "lease_ms", 1, LEASE_MS_MAX)
    if timestamp is not None:
        check_number(timestamp, "timestamp", MIN_TIMESTAMP, MAX_TIMESTAMP)
    if reader is None:
        fresh = yield from context.generate_timestamp()
        hold = Hold(ReaderId(fresh), timestamp or fresh, checked, timestamp is None, lease_ms)
    else:
        check_number(reader, "reader", MIN_TIMESTAMP, MAX_TIMESTAMP)
        if timestamp is None:
            raise InvalidRequest("With `reader`, also pass the timestamp of the snapshot.")
        hold = Hold(reader, timestamp, checked, False, lease_ms)
    try:
        yield from repeated(context, partial(_register, context, hold), context.patience())
    except DodonaError:
        if reader is None:  # other processes may hold it too
            yield from end_hold(hold, context.instant_us())
        raise
    return hold


def end_hold(hold: Hold, now_us: int) -> Protocol[None]:
    """Release the snapshot. If the message does not arrive, the lease ends by itself."""
    if hold.is_open:
        hold.end(now_us)
        request = HoldSnapshot(hold.reader, hold.timestamp, (), 0)
        cells = list(hold.cells)
        if cells:
            yield Post(tuple([(cell, request) for cell in cells]))


def _check_paths(paths: Iterable[str]) -> list[str]:
    if isinstance(paths, str | bytes | Mapping) or not isinstance(paths, Iterable):
        raise InvalidRequest(f"Pass the paths of tables as a list, not as {shown(paths)}.")
    checked = [check_path(path) for path in islice(paths, TABLES_MAX + 1)]
    if not 0 < len(checked) <= TABLES_MAX:
        raise InvalidRequest(f"Pass the paths of 1 to {TABLES_MAX} tables.")
    return checked


def _register(context: Context, hold: Hold, _: Patience | None) -> Protocol[Again | None]:
    """Do the first round. It may be repeated if a cell did not answer or does not serve a tablet.
    Raises TableNotFound, TableNotMounted, and the refusals of cells."""
    a_round = _Round(hold, context.instant_us())
    for path in hold.routes:
        route = yield from context.route(path)
        if not all(is_served(it, is_write=False) for it in route.tablets):
            route.mark_stale()
            route = yield from context.route(path)
            for tablet in route.tablets:
                if not is_soon_served(tablet, is_write=False):
                    raise not_mounted(route, tablet, is_write=False)
        hold.find(route)
        a_round.add(route)
    requests = a_round.requests()
    replies = (yield Calls(tuple(requests))) if requests else []
    error = a_round.judge(replies, context.instant_us())
    if isinstance(error, TableNotMounted):  # it will be mounted: that was checked above
        error = Unavailable(error.message, **error.attributes)
    if error is not None and not isinstance(error, Unavailable):
        raise error
    return None if error is None else Again(error)


class Holds:
    """The snapshots that one client holds, and the times of their renewals."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._holds: list[ref[Hold]] = []

    def add(self, hold: Hold) -> None:
        """Renew the hold from now on, while it is open and the program holds a reference to it."""
        self._holds = [ref(hold), *[ref(it) for it in self._open()]]

    def wait_ms(self) -> int | None:
        """Return the milliseconds until the next renewal, or None if there is none."""
        due_us = min((hold.due_us for hold in self._open()), default=None)
        now_us = self._context.instant_us()
        return None if due_us is None else max(0, -((now_us - due_us) // 1000))

    def do_due(self) -> Protocol[None]:
        """Renew all holds that are due, with one message to each cell concerned."""
        began_us = self._context.instant_us()
        due = list(islice((it for it in self._open() if it.due_us <= began_us), HOLDS_AT_ONCE_MAX))
        asked: list[tuple[Hold, _Round, int]] = []
        requests: list[tuple[CellId, HoldSnapshot]] = []
        for hold in due:
            hold.due_us = began_us + AGAIN_MS * 1000  # unless the round is complete
            yield from self._find(hold)
            a_round = _Round(hold, began_us)
            for route in hold.routes.values():
                if route is not None:
                    a_round.add(route)
            questions = a_round.requests()
            requests += questions
            asked.append((hold, a_round, len(questions)))
        replies = iter((yield Calls(tuple(requests))) if requests else [])
        now_us = self._context.instant_us()
        for hold, a_round, count in asked:
            error = a_round.judge(list(islice(replies, count)), now_us)
            if isinstance(error, SnapshotTooOld):
                hold.lose(error.message)

    def _find(self, hold: Hold) -> Protocol[None]:
        """Look up the tables of a hold. If the master does not answer, the last known routes
        stay."""
        context = self._context
        unknown = [path for path in hold.routes if context.routing.find(path) is None]
        at_once = context.limits.requests_in_flight_max
        for start in range(0, len(unknown), at_once):
            paths = unknown[start : start + at_once]
            replies = yield Calls(tuple([(MASTER, GetTable(path)) for path in paths]))
            for path, reply in zip(paths, replies, strict=True):
                if isinstance(reply, Table):
                    context.routing.learn(reply)
                elif isinstance(reply, Failure) and reply.kind == TableNotFound.kind:
                    del hold.routes[path]  # there is nothing left to hold
            if any(isinstance(it, Failure) and it.kind == Unavailable.kind for it in replies):
                break
        for path in list(hold.routes):
            route = context.routing.find(path)
            try:
                if route is not None:
                    hold.find(route)
            except MetadataChanged:
                del hold.routes[path]  # as if the table were removed

    def _open(self) -> Iterator[Hold]:
        for known in self._holds:
            hold = known()
            if hold is not None and hold.is_renewed:
                yield hold
