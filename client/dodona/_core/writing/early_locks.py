"""Lock rows before a transaction begins, and release them. Pure.

Owns: which cells are asked for early locks, in which order, and what happens when one of them
refuses. The cells have the lines of rows. The rules are in
`docs/explanation/commit-protocol.md#early-locks`.

Invariants:
- Cells are asked one after another, in the order of their numbers, each for all of its rows. So no
  two owners wait for each other.
- The start timestamp is asked for after the last grant. So the newest versions of the locked rows
  belong to the snapshot.
- An owner that has not got everything releases what it has.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from dodona._core.protocol.arguments import Row, check_flag, check_number, check_path
from dodona._core.protocol.attempts import WRITE_AGAIN_KINDS, Again, repeated
from dodona._core.protocol.context import Context, is_recorded, not_mounted
from dodona._core.protocol.retry import Patience, has_time
from dodona._core.protocol.routing import TableRoute, is_served
from dodona._core.protocol.steps import Calls, Post, Protocol
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    LocksEnded,
    TableNotMounted,
    Unavailable,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.locks import (
    AcquireLocks,
    LocksAwaited,
    LocksGranted,
    ReleaseLocks,
    StoredRow,
    TabletKeys,
)
from dodona_wire.rows.schema import TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import (
    NO_OWNER,
    NULL_TIMESTAMP,
    Atomicity,
    CellId,
    Key,
    Owner,
    Revision,
    TabletId,
    Timestamp,
)

WAIT_MS: Final = 10_000
WAIT_MS_MAX: Final = 30_000
ASK_MS_MAX: Final = 2_000
"""How long one request waits in a cell. Then the client renews its other locks, and asks again."""
LEASE_MS: Final = 10_000
ROWS_MAX: Final = 10_000
AGAIN_KINDS: Final = frozenset({*WRITE_AGAIN_KINDS, LocksEnded.kind})
"""Refusals after which the owner begins anew, under a new name."""


class Waiting(NamedTuple):
    """How a caller waits for rows."""

    wait_ms: int = WAIT_MS
    skip_max: int = 0
    """Above 0: take rows that are free now, no more than so many."""


class LockedRows(NamedTuple):
    """Rows of a table at a start timestamp."""

    schema: TableSchema
    rows: dict[Key, StoredRow | None]
    """The stored values of all value columns, or None for a row that is absent."""


class Locked(NamedTuple):
    """The locks of an owner."""

    owner: Owner = NO_OWNER
    cells: tuple[CellId, ...] = ()
    rows: Mapping[str, Sequence[Key]] = {}
    """By path. These are the rows that the owner has, of those that it asked for."""
    start: Timestamp = NULL_TIMESTAMP
    """The start timestamp that came with the last grant, or none."""
    found: Mapping[str, LockedRows] = {}
    """The rows at the start that came with the last grant, by path."""


AS_USUAL: Final = Waiting()
NOTHING_LOCKED: Final = Locked()
Parts = dict[CellId, dict[TabletId, tuple[Revision, list[Key]]]]


def waiting_of(
    has_locks: bool,
    wait_ms: int | None,
    nowait: bool,
    skip_locked: int | None,
    timeout_ms: int | None = None,
) -> Waiting:
    """Return how these arguments of a caller say to wait. The wait ends before the time of the call
    does: then the error names the row. Raises InvalidRequest."""
    check_flag(nowait, "nowait")
    if not has_locks and (nowait or wait_ms is not None or skip_locked is not None):
        raise InvalidRequest("wait_ms, nowait and skip_locked are about locks: give locks, too.")
    if sum([wait_ms is not None, nowait, skip_locked is not None]) > 1:
        raise InvalidRequest("Give only one of wait_ms, nowait and skip_locked.")
    if skip_locked is not None:
        check_number(skip_locked, "skip_locked", 1, ROWS_MAX)
        return Waiting(0, skip_locked)
    if nowait:
        return Waiting(0)
    wait_ms = WAIT_MS if wait_ms is None else wait_ms
    check_number(wait_ms, "wait_ms", 1, WAIT_MS_MAX)
    if type(timeout_ms) is int and timeout_ms > 0:  # the call itself refuses other values
        wait_ms = max(1, min(wait_ms, timeout_ms * 3 // 4))
    return Waiting(wait_ms)


def check_locks(
    locks: Mapping[str, Iterable[Row]], atomicity: Atomicity
) -> Mapping[str, Iterable[Row]]:
    """Return the rows to lock, if they are given by path. Raises InvalidRequest."""
    given: object = locks
    if not isinstance(given, Mapping) or not given:
        text = f"locks are a dict from paths to lists of keys, with a path, not {shown(given)}"
        raise InvalidRequest(text)
    for path in locks:
        check_path(path)
    if atomicity != "full":
        raise InvalidRequest("Locks need a transaction with atomicity full.")
    return locks


def acquire(
    context: Context,
    wanted: Mapping[str, Sequence[Key]],
    waiting: Waiting,
    asked: list[Locked] | None = None,
) -> Protocol[Locked]:
    """Lock these rows for a new owner. Raises RowBlocked if a row is not free in time, and names
    the row. Raises TableNotMounted, TableNotFound, InvalidRequest, Overloaded, Unavailable.

    `asked` has what a caller must release that gives the protocol up in the middle."""
    deadline_us = context.instant_us() + waiting.wait_ms * 1000
    left = [] if asked is None else asked
    return repeated(context, partial(_attempt, context, wanted, waiting, deadline_us, left))


def release(locked: Locked) -> Protocol[None]:
    """Release the locks. No answer is awaited: a lease ends them too."""
    if locked.cells:
        yield Post(tuple([(cell, ReleaseLocks(locked.owner)) for cell in locked.cells]))


def _attempt(
    context: Context,
    wanted: Mapping[str, Sequence[Key]],
    waiting: Waiting,
    deadline_us: int,
    left: list[Locked],
    patience: Patience | None,
) -> Protocol[Locked | Again]:
    routes: list[TableRoute] = []
    for path in wanted:
        route = yield from context.route(path, patience)
        routes.append(route)
    parts = _parts(routes, wanted)
    if isinstance(parts, TableNotMounted):
        return Again(parts, routes, is_write=True)
    owner = Owner(context.take_reserved_id() or (yield from context.reserve_ids()))
    asking = _Asking(context, owner, waiting, deadline_us)
    left[:] = [Locked(owner, tuple(parts))]
    done = yield from asking.ask_all(parts)
    if done is None:
        return _locked(owner, routes, asking.granted)
    yield from release(Locked(owner, tuple(asking.asked)))
    left.clear()
    if done.kind not in AGAIN_KINDS:
        raise done
    context.drop_reserve()  # other names may be older than the cell's start, too
    return Again(done, routes, is_write=True)


def _parts(
    routes: Sequence[TableRoute], wanted: Mapping[str, Sequence[Key]]
) -> Parts | TableNotMounted:
    """Return the rows by cell, in ascending order, then by tablet. Return the error if no cell
    serves a tablet."""
    parts: Parts = {}
    row_count = 0
    for route in routes:
        if route.atomicity != "full":
            text = "Rows of a table with atomicity none have no locks."
            raise InvalidRequest(text, table=route.path)
        row_count += len(wanted[route.path])
        if row_count > ROWS_MAX:
            text = f"A transaction locks at most {ROWS_MAX} rows before it begins."
            raise LimitExceeded(text, table=route.path)
        for key in dict.fromkeys(wanted[route.path]):
            tablet = route.tablet_of(key)
            if not is_served(tablet, is_write=True):
                return not_mounted(route, tablet, is_write=True)
            assert tablet.cell is not None
            of_cell = parts.setdefault(tablet.cell, {})
            of_cell.setdefault(tablet.tablet, (tablet.revision, []))[1].append(key)
    return {cell: parts[cell] for cell in sorted(parts)}


def _locked(
    owner: Owner, routes: Sequence[TableRoute], granted: Mapping[CellId, LocksGranted]
) -> Locked:
    """Return what an owner has when all of its cells have granted."""
    grants = [(it, known) for grant in granted.values() for it, known in _parts_of(grant)]
    by_tablet = {it.tablet: (it.keys, known) for it, known in grants}
    rows: dict[str, list[Key]] = {}
    found: dict[str, LockedRows] = {}
    for route in routes:
        rows[route.path] = []
        for tablet in route.tablets:
            keys, known = by_tablet.get(tablet.tablet, ((), None))
            rows[route.path] += keys
            if known is not None:
                of_table = found.setdefault(route.path, LockedRows(route.schema, {}))
                of_table.rows.update(zip(keys, known, strict=True))
    start = max([it.start for it in granted.values()], default=NULL_TIMESTAMP)
    return Locked(owner, tuple(granted), rows, start, found if start else {})


def _parts_of(
    grant: LocksGranted,
) -> Iterator[tuple[TabletKeys, tuple[StoredRow | None, ...] | None]]:
    """Yield the rows of a grant by tablet, with their values if the grant has them."""
    for at, it in enumerate(grant.tablets):
        yield it, grant.rows[at] if grant.rows else None


class _Asking:
    """The questions of one owner to its cells."""

    def __init__(self, context: Context, owner: Owner, waiting: Waiting, deadline_us: int) -> None:
        self._context = context
        self._owner = owner
        self._waiting = waiting
        self._deadline_us = deadline_us
        self._patience: Patience | None = None
        self.asked: dict[CellId, AcquireLocks] = {}
        self.granted: dict[CellId, LocksGranted] = {}
        self._lease_ms = min(LEASE_MS, context.limits.transaction.life_ms_max)

    def ask_all(self, parts: Parts) -> Protocol[DodonaError | None]:
        """Ask each cell in turn. Return the error of the first one that does not grant."""
        skip_left = self._waiting.skip_max
        for cell, tablets in parts.items():
            keys = [TabletKeys(it, rev, tuple(keys)) for it, (rev, keys) in tablets.items()]
            is_last = cell == max(parts)
            asked = self._owner, tuple(keys), self._lease_ms, 0, skip_left, is_last
            request = AcquireLocks(*asked)
            self.asked[cell] = request
            done = yield from self._ask(cell, request)
            if isinstance(done, DodonaError):
                return done
            self.granted[cell] = done
            if self._waiting.skip_max:
                skip_left -= sum([len(it.keys) for it in done.tablets])
                if not skip_left:
                    break
        return None

    def _ask(self, cell: CellId, request: AcquireLocks) -> Protocol[LocksGranted | DodonaError]:
        """Ask one cell until it has answered. Renew the locks in the cells before it meanwhile."""
        context = self._context
        while True:
            wait_ms = min(self._left_ms, ASK_MS_MAX)
            asked = _with_wait(request, wait_ms)
            renewals = [(it, _with_wait(self.asked[it], 0)) for it in self.granted]
            replies = yield Calls(((cell, asked), *renewals))
            if any(_has_ended(it) for it in replies[1:]):
                return LocksEnded("The locks of this owner have ended. Begin again.")
            reply = replies[0]
            if isinstance(reply, LocksGranted):
                if context.injects_faults and context.fault_at(FaultPoint.REPEAT_LOCKS):
                    continue
                return reply
            if isinstance(reply, LocksAwaited):
                if not self._left_ms:
                    return context.error_of(reply.reason)
                continue
            assert isinstance(reply, Failure)
            error = context.error_of(reply)
            if is_recorded(reply) or not isinstance(error, Unavailable):
                return error
            self._patience = self._patience or context.patience()
            if not (yield from has_time(self._patience, reply)):
                return error

    @property
    def _left_ms(self) -> int:
        return max(0, (self._deadline_us - self._context.instant_us()) // 1000)


def _with_wait(request: AcquireLocks, wait_ms: int) -> AcquireLocks:
    return replace(request, wait_ms=wait_ms)


def _has_ended(reply: object) -> bool:
    return isinstance(reply, Failure) and reply.kind == LocksEnded.kind
