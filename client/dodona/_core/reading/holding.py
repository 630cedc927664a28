"""A snapshot that is held: the cells that keep it, and when they are asked to again. Pure.

Owns: the rounds by which a reader registers with all cells that have tablets of its tables, and
what it may conclude from their answers. Tablets move between cells and cells restart: each round
asks where the tablets are now, and until a lease after such a move everything is kept (see the
cells' `readers`). So what is held stays held as long as one complete round follows another within
a lease; a reader that did not manage that is told so, and never reads on as if nothing were.
A hold whose holder let go of it is not renewed. Threads may share it: as with `master_transaction`.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final
from weakref import ref

from dodona._core.protocol.altered import replaced_error
from dodona._core.protocol.arguments import check_number, check_path
from dodona._core.protocol.context import Context, error_of, not_mounted, wait_or_raise
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
"""Unless another is asked for: what cells wait for a renewal of where a tablet was moved to."""
LEASE_MS_MAX: Final = 3_600_000
"""Cells allow no longer one, and may be set to allow less."""
RENEWAL_MS_MAX: Final = LEASE_MS // 4
"""However long the lease is: so a tablet that moves is held where it is before anything goes."""
ROUNDS_PER_LEASE: Final = 4
"""So many in a row have to fail before what is held may go."""
AGAIN_MS: Final = 1_000
"""How soon a round that was not complete is followed by the next."""
MARGIN: Final = 10
"""A tenth of a lease is left out: two clocks are never equally fast."""
HOLDS_AT_ONCE_MAX: Final = 16
TABLES_MAX: Final = 10_000


class Hold:
    """One snapshot that is held. All instants are microseconds of the client's monotonic clock."""

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
        """Whether the timestamp was made for it: then non-atomic tables are read at their newest,
        since their stamps may be ahead of the oracle."""
        self.routes: dict[str, TableRoute | None] = dict.fromkeys(paths)
        """Where its tables were when last looked."""
        self.tables: dict[str, int] = {}
        """Their ids, 0 where an older master does not say: another may be at a path later."""
        self.cells: dict[CellId, None] = {}
        """All that were ever asked: they are told when it ends."""
        self.due_us = 0
        self.is_open = True
        self._firm_until_us: int | None = None
        self._loss = ""

    @property
    def is_renewed(self) -> bool:
        """Whether there is any use in that."""
        return self.is_open and not self._loss

    def confirm(self, began_us: int, now_us: int, lease_ms: int) -> None:
        """A round that began then has been answered by all."""
        self._notice_gap(now_us)
        self._firm_until_us = began_us + lease_ms * 1000 * (MARGIN - 1) // MARGIN
        self.due_us = began_us + min(lease_ms * 1000 // ROUNDS_PER_LEASE, RENEWAL_MS_MAX * 1000)

    def lose(self, reason: str) -> None:
        """Something of it may have gone."""
        self._loss = self._loss or reason

    def find(self, route: TableRoute) -> None:
        """One of its tables is there. Raises MetadataChanged if it is another."""
        self.check_table(route)
        self.tables[route.path] = route.table or self.tables.get(route.path, 0)
        self.routes[route.path] = route

    def check_table(self, route: TableRoute) -> None:
        """That a path still has the table that is held. Raises MetadataChanged."""
        if route.is_another(self.tables.get(route.path, 0)):
            raise replaced_error(route.path, "the snapshot")

    def check(self, now_us: int) -> None:
        """That it is held, and was without a break. Raises SnapshotTooOld: from then on always;
        InvalidRequest once it was let go of."""
        if not self.is_open:
            raise InvalidRequest("the snapshot was let go of: its block has ended")
        self.check_at_end(now_us)

    def check_at_end(self, now_us: int) -> None:
        """As `check`, until it was let go of, if it was."""
        if self.is_open:
            self._notice_gap(now_us)
        if self._loss:
            text = f"the snapshot is not held any more: {self._loss}"
            raise SnapshotTooOld(text, timestamp=self.timestamp)

    def end(self, now_us: int) -> None:
        """It is let go of."""
        self._notice_gap(now_us)
        self.is_open = False

    def _notice_gap(self, now_us: int) -> None:
        if self._firm_until_us is not None and now_us > self._firm_until_us:
            self.lose("the cells that keep it could not all be reached in time to renew it")


class _Round:
    """A question to each cell, and what comes of the answers."""

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
        """One for each cell, in a stable order."""
        hold = self._hold
        return [
            (cell, HoldSnapshot(hold.reader, hold.timestamp, tuple(tablets), hold.lease_ms))
            for cell, tablets in self._by_cell.items()
        ]

    def judge(self, replies: Iterable[Reply], now_us: int) -> DodonaError | None:
        """→ why it was not complete, if it was not: the worst of what was answered."""
        lease_ms = self._hold.lease_ms
        for (cell, tablets), reply in zip(self._by_cell.items(), replies, strict=True):
            if isinstance(reply, SnapshotHeld):
                lease_ms = min(lease_ms, reply.lease_ms)
                for tablet in reply.missing:
                    text = "the tablet is not served by the cell where it was"
                    self._fail(tablets.get(tablet), TabletMoved(text, tablet=tablet, cell=cell))
            else:
                error = _refusal_of(reply)
                for route in tablets.values():
                    self._fail(route if isinstance(error, Unavailable) else None, error)
        if self._error is None:
            self._hold.confirm(self._began_us, now_us, lease_ms)
        return self._error

    def _fail(self, route: TableRoute | None, error: DodonaError) -> None:
        """The next round asks anew where the table is."""
        if route is not None:
            route.is_stale = True
        if self._error is None or not isinstance(error, Unavailable):
            self._error = error


def _refusal_of(reply: Reply) -> DodonaError:
    if isinstance(reply, Failure):
        return error_of(reply)
    return Unavailable(f"a cell answered {type(reply).__name__} to who holds a snapshot")


def begin_hold(
    context: Context,
    paths: Iterable[str],
    timestamp: Timestamp | None,
    lease_ms: int = LEASE_MS,
    reader: ReaderId | None = None,
) -> Protocol[Hold]:
    """Register with all cells concerned, or renew what another process holds as `reader`. Raises
    SnapshotTooOld, TableNotFound, TableNotMounted, Overloaded, Unavailable, InvalidRequest."""
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
            raise InvalidRequest("whoever shares a reader's snapshot says at which timestamp")
        hold = Hold(reader, timestamp, checked, False, lease_ms)
    patience = context.patience()
    try:
        while (error := (yield from _register(context, hold))) is not None:
            if not isinstance(error, Unavailable):
                raise error
            yield from wait_or_raise(patience, error)
    except DodonaError:
        if reader is None:  # what others hold too is not ours to let go of
            yield from end_hold(hold, context.instant_us())
        raise
    return hold


def end_hold(hold: Hold, now_us: int) -> Protocol[None]:
    """Let go of it. Where that does not arrive the lease ends by itself."""
    if hold.is_open:
        hold.end(now_us)
        request = HoldSnapshot(hold.reader, hold.timestamp, (), 0)
        cells = list(hold.cells)
        if cells:
            yield Post(tuple([(cell, request) for cell in cells]))


def _check_paths(paths: Iterable[str]) -> list[str]:
    if isinstance(paths, str | bytes | Mapping) or not isinstance(paths, Iterable):
        raise InvalidRequest(f"paths of tables are given as a list, not as {shown(paths)}")
    checked = [check_path(path) for path in islice(paths, TABLES_MAX + 1)]
    if not 0 < len(checked) <= TABLES_MAX:
        raise InvalidRequest(f"a snapshot is held of 1 to {TABLES_MAX} tables")
    return checked


def _register(context: Context, hold: Hold) -> Protocol[DodonaError | None]:
    """The first round, or what is made of it. Raises TableNotFound, TableNotMounted."""
    a_round = _Round(hold, context.instant_us())
    for path in hold.routes:
        route = yield from context.route(path)
        if not all(is_served(it, is_write=False) for it in route.tablets):
            route.is_stale = True
            route = yield from context.route(path)
            for tablet in route.tablets:
                if not is_soon_served(tablet, is_write=False):
                    raise not_mounted(route, tablet, is_write=False)
        hold.find(route)
        a_round.add(route)
    requests = a_round.requests()
    replies = (yield Calls(tuple(requests))) if requests else []
    error = a_round.judge(replies, context.instant_us())
    if isinstance(error, TableNotMounted):  # it will be: that was looked at
        return Unavailable(error.message, **error.attributes)
    return error


class Holds:
    """Which snapshots of one client are held, and when they are to be renewed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._holds: list[ref[Hold]] = []

    def add(self, hold: Hold) -> None:
        """Renew it from now on, as long as it is open and somebody has it."""
        self._holds = [ref(hold), *[ref(it) for it in self._open()]]

    def wait_ms(self) -> int | None:
        """How long until the next renewal. None if there is to be none."""
        due_us = min((hold.due_us for hold in self._open()), default=None)
        now_us = self._context.instant_us()
        return None if due_us is None else max(0, -((now_us - due_us) // 1000))

    def do_due(self) -> Protocol[None]:
        """Renew those whose time has come, all with one question to each cell concerned."""
        began_us = self._context.instant_us()
        due = list(islice((it for it in self._open() if it.due_us <= began_us), HOLDS_AT_ONCE_MAX))
        asked: list[tuple[Hold, _Round, int]] = []
        requests: list[tuple[CellId, HoldSnapshot]] = []
        for hold in due:
            hold.due_us = began_us + AGAIN_MS * 1000  # unless all goes well
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
        """Where its tables are now; where they were last, if the master does not say."""
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
                    del hold.routes[path]  # with all that there was to hold
            if any(isinstance(it, Failure) and it.kind == Unavailable.kind for it in replies):
                break
        for path in list(hold.routes):
            route = context.routing.find(path)
            try:
                if route is not None:
                    hold.find(route)
            except MetadataChanged:
                del hold.routes[path]  # as if it were removed

    def _open(self) -> Iterator[Hold]:
        for known in self._holds:
            hold = known()
            if hold is not None and hold.is_renewed:
                yield hold
