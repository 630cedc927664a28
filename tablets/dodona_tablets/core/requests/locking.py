"""Answer the requests for early locks.

Owns: which requests for early locks a cell takes, when they are granted, and when time ends them.
`early_locks` has the lines of rows. The rules are in
`docs/explanation/commit-protocol.md#early-locks`.

Invariants:
- An owner asks a cell once. A repeated request gets the first answer, and renews the lease.
- A grant may leave before the records before it are durable: it promises nothing about rows, and
  the commit of the owner checks everything again. No other answer may.
"""

from collections.abc import Sequence
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.early_locks import LOCKS_ENDED, LockRequest, Row
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.admission import are_distinct, atomicity_mismatch, check_lease
from dodona_tablets.core.commit.silence import blocked
from dodona_wire.cores.effects import ReplyAtOnce
from dodona_wire.errors import DodonaError, InvalidRequest, LimitExceeded, LocksEnded, Overloaded
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.locks import (
    AcquireLocks,
    LocksAwaited,
    LocksGranted,
    LocksReleased,
    ReleaseLocks,
    TabletKeys,
)
from dodona_wire.types import TIMESTAMP_COUNTER_BITS, Key, Owner, Revision, TabletId, Timestamp

ROWS_MAX: Final = 10_000
"""The most rows of one request. A cell looks at all of them in one step."""
CELL_ROWS_MAX: Final = 100_000
"""The most places in the lines of a cell."""
CELL_REQUESTS_MAX: Final = 10_000
WAIT_MS_MAX: Final = 2_000
"""A request in line is answered after this time at the latest. Its client then repeats it."""
ASKED_MS: Final = 5_000
"""A request in line ends if its client has not repeated it for so long: the client has gone."""
ROUTES_MAX: Final = 8


class Locking:
    """The early locks of one cell, as requests see them."""

    def __init__(self, cell: Cell, outbox: Outbox) -> None:
        self._cell = cell
        self._outbox = outbox

    # Requests

    def acquire(self, route: Any, body: AcquireLocks) -> None:
        """Grant locks, or put the request in line."""
        known = self._cell.early.requests.get(body.owner)
        if known is not None:
            self._repeat(route, body, known)
            return
        ended = self._cell.early.why_ended(body.owner)
        if ended is not None:
            self._outbox.reply(route, ended)
            return
        try:
            self._check(body)
            rows = self._rows(body.tablets)
        except DodonaError as error:
            self._outbox.reply(route, failure_of(error))
            return
        if body.skip_max:
            rows = [row for row in rows if self._cell.early.is_free(row)][: body.skip_max]
        request = LockRequest(body.owner, tuple(rows))
        request.lease_ms = body.lease_ms
        self._cell.early.join(request)
        self._ask(route, request, body)
        self.look(request)
        if request.is_waiting and not body.wait_ms:
            self._refuse(request)

    def _repeat(self, route: Any, body: AcquireLocks, known: LockRequest) -> None:
        """Renew the lease of a request, and answer as before."""
        known.lease_ms = body.lease_ms
        if known.is_waiting:
            self._ask(route, known, body)
            return
        known.leased_until_us = self._cell.now.instant_us + known.lease_ms * 1000
        self._outbox.reply(route, _grant(known))

    def _ask(self, route: Any, request: LockRequest, body: AcquireLocks) -> None:
        now_us = self._cell.now.instant_us
        request.routes = (*request.routes[1 - ROUTES_MAX :], route)
        request.wait_until_us = now_us + min(body.wait_ms, WAIT_MS_MAX) * 1000
        request.asked_until_us = now_us + ASKED_MS * 1000

    def release(self, route: Any, body: ReleaseLocks) -> None:
        """End the locks of an owner. If its request is still on its way, it will be refused."""
        known = self._cell.early.requests.get(body.owner)
        if known is not None:
            self._cell.end_early(known)
        elif self._is_issued(body.owner) and not self._cell.early.why_ended(body.owner):
            self._cell.early.end(body.owner, LOCKS_ENDED)
        self._outbox.reply(route, LocksReleased(body.owner))

    # Checks

    def _check(self, body: AcquireLocks) -> None:
        cell, early = self._cell, self._cell.early
        if not self._is_issued(body.owner):
            raise InvalidRequest("The owner is a timestamp of the oracle.", cell=cell.id)
        if body.owner <= cell.fence:
            raise LocksEnded(LOCKS_ENDED.message)
        check_lease("lock", body.lease_ms, cell.limits.transaction_life_s_max * 1000)
        if body.lease_ms < 1 or body.wait_ms < 0 or body.skip_max < 0:
            raise InvalidRequest("A lease is at least 1 ms, and a wait or a number at least 0.")
        cell.room.check_draining()
        row_count = sum([len(it.keys) for it in body.tablets])
        if row_count > ROWS_MAX:
            text = f"A transaction locks at most {ROWS_MAX} rows before it begins."
            raise LimitExceeded(text, cell=cell.id)
        is_full = len(early.requests) >= CELL_REQUESTS_MAX
        if is_full or early.row_count + row_count > CELL_ROWS_MAX:
            raise Overloaded("Too many rows of this cell are locked early.", cell=cell.id)

    def _is_issued(self, owner: Owner) -> bool:
        return owner > 0 and self._cell.may_be_issued(Timestamp(owner))

    def _rows(self, tablets: Sequence[TabletKeys]) -> list[Row]:
        """Return the rows of a request. Raises TabletMoved, InvalidRequest, SchemaViolation, and
        the errors of a tablet that takes no writers."""
        if not are_distinct([it.tablet for it in tablets]):
            raise InvalidRequest("A tablet comes twice.", cell=self._cell.id)
        rows: list[Row] = []
        for it in tablets:
            tablet = self._cell.tablet(it.tablet, it.revision)
            tablet.check_open()
            if not tablet.is_atomic:
                raise atomicity_mismatch("full", "none", tablet)
            tablet.check_keys(it.keys)
            rows += [Row(tablet, key) for key in it.keys]
        return rows

    # Turns

    def look(self, request: LockRequest) -> None:
        """Grant a request if it is its turn. Answer those who asked, if it has ended."""
        early = self._cell.early
        if early.requests.get(request.owner) is not request:
            self._answer(request, early.why_ended(request.owner) or LOCKS_ENDED)
        elif not request.is_granted and early.may_be_granted(request):
            request.is_granted = True
            if request.transaction is not None:
                self._cell.woken.append(request.transaction)
                return
            request.leased_until_us = self._cell.now.instant_us + request.lease_ms * 1000
            for route in request.routes:
                self._outbox.send(ReplyAtOnce(route, _grant(request)))
            request.routes = ()

    def _refuse(self, request: LockRequest) -> None:
        """Answer that a row is not free, and end the request."""
        self._cell.end_early(request, self._reason(request))

    def _answer(self, request: LockRequest, body: Failure | LocksAwaited) -> None:
        routes, request.routes = request.routes, ()
        for route in routes:
            self._outbox.reply(route, body)

    def _reason(self, request: LockRequest) -> Failure:
        """Return which row a request waits for, and who holds it."""
        row, head = self._cell.early.obstacle(request)
        named = row.tablet.schema.named_key(row.key)
        text = f"Row {named} is locked by another transaction"
        where = {"key": named, "table": row.tablet.assignment.path}
        if head is not None:
            return failure_of(blocked(self._cell, None, text, owner=head.owner, **where))
        return failure_of(blocked(self._cell, row.holder, text, **where))

    # Time

    def tick(self) -> None:
        """End the requests whose lease is over, or whose client has gone. Answer those that have
        waited long enough."""
        cell, now_us = self._cell, self._cell.now.instant_us
        life_s = cell.limits.transaction_life_s_max + cell.limits.forget_slack_s
        cell.early.forget(Timestamp(cell.latest - (life_s << TIMESTAMP_COUNTER_BITS)))
        for request in list(cell.early.requests.values()):
            if request.transaction is not None:
                continue  # its wait has the bound of any writer
            if request.is_granted:
                is_over = now_us >= request.leased_until_us
            else:
                is_over = now_us >= request.asked_until_us
            if is_over:
                self._cell.end_early(request)
            elif request.routes and now_us >= request.wait_until_us:
                self._answer(request, LocksAwaited(request.owner, self._reason(request)))


def _grant(request: LockRequest) -> LocksGranted:
    keys: dict[tuple[TabletId, Revision], list[Key]] = {}
    for tablet, key in request.rows:
        it = tablet.assignment
        keys.setdefault((it.tablet, it.revision), []).append(key)
    return LocksGranted(request.owner, tuple([TabletKeys(*it, tuple(keys[it])) for it in keys]))
