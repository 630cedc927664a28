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
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.early_locks import LOCKS_ENDED, LockRequest, Row
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.admission import are_distinct, atomicity_mismatch
from dodona_tablets.core.commit.silence import blocked
from dodona_tablets.core.rows.chunks.chunk import ChunkAway
from dodona_tablets.core.tablet.snapshot import lookup
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.cores.effects import AskTimestamps, ReplyAtOnce
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    LocksEnded,
    Overloaded,
    RowBlocked,
)
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.data import Lookup
from dodona_wire.messages.locks import (
    AcquireLocks,
    LocksAwaited,
    LocksGranted,
    LocksReleased,
    ReleaseLocks,
    StoredRow,
    TabletKeys,
)
from dodona_wire.rows.values import size_bytes_of
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
ROWS_TOLD_MAX: Final = 100
BYTES_TOLD_MAX: Final = 1 << 20
"""Up to so many rows, and bytes of values, come with a grant."""


class OwnerToken(NamedTuple):
    """The question for the start timestamp of an owner."""

    owner: Owner


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
            if not rows:  # a late copy of the request must lock nothing
                self._cell.early.end(body.owner, LOCKS_ENDED)
                self._outbox.reply(route, LocksGranted(body.owner))
                return
        request = LockRequest(body.owner, tuple(rows))
        request.lease_ms, request.is_last = self._lease_ms(body), body.is_last
        self._cell.early.join(request)
        self._ask(route, request, body)
        self.look(request)
        if request.is_waiting and not body.wait_ms:
            self._refuse(request)

    def _repeat(self, route: Any, body: AcquireLocks, known: LockRequest) -> None:
        """Renew the lease of a request, and answer as before."""
        known.lease_ms = self._lease_ms(body)
        if known.is_waiting:
            self._ask(route, known, body)
            return
        known.leased_until_us = self._cell.now.instant_us + known.lease_ms * 1000
        if known.routes:
            self._ask(route, known, body)
            self._outbox.send(AskTimestamps(OwnerToken(known.owner)))
        else:
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

    def _lease_ms(self, body: AcquireLocks) -> int:
        """Return the lease of an owner, which is not longer than the life of a transaction."""
        return min(body.lease_ms, self._cell.limits.transaction_life_s_max * 1000)

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
            self._cell.counts.early_grants += 1
            request.leased_until_us = self._cell.now.instant_us + request.lease_ms * 1000
            if request.is_last:
                self._outbox.send(AskTimestamps(OwnerToken(request.owner)))
            else:
                self._tell(request, _grant(request))

    def start(self, token: OwnerToken, start: Timestamp) -> None:
        """Tell an owner its start timestamp, with its grant. Nothing has changed its rows since the
        grant, so their newest versions are those at the start."""
        request = self._cell.early.requests.get(token.owner)
        if request is not None and request.is_granted:
            grant = _grant(request)
            self._tell(request, replace(grant, start=start, rows=self._read(grant, start)))

    def _tell(self, request: LockRequest, grant: LocksGranted) -> None:
        routes, request.routes = request.routes, ()
        for route in routes:
            self._outbox.send(ReplyAtOnce(route, grant))

    def _read(
        self, grant: LocksGranted, start: Timestamp
    ) -> tuple[tuple[StoredRow | None, ...], ...]:
        """Return the rows of a grant, or nothing if they are many or not in reach. Then the owner
        reads them by itself."""
        if sum([len(it.keys) for it in grant.tablets]) > ROWS_TOLD_MAX:
            return ()
        rows: list[tuple[StoredRow | None, ...]] = []
        left = BYTES_TOLD_MAX
        for number, revision, keys in [(it.tablet, it.revision, it.keys) for it in grant.tablets]:
            tablet = self._cell.tablets[number]
            schema = tablet.schema
            mask = schema.pack_mask(schema.full_mask)
            try:
                found = lookup(tablet, Lookup(number, revision, start, keys, mask))
            except (ChunkAway, DodonaError):
                return ()
            if isinstance(found, Transaction):
                return ()
            left -= sum([size_bytes_of(it) for row in found.rows if row for it in row])
            if left < 0:
                return ()
            rows.append(found.rows)
        return tuple(rows)

    def _refuse(self, request: LockRequest) -> None:
        """Answer that a row is not free, and end the request."""
        reason = self._reason(request)
        assert reason is not None, "the cell has just looked at it"
        self._cell.end_early(request, reason)

    def _answer(self, request: LockRequest, body: Failure | LocksAwaited | LocksGranted) -> None:
        routes, request.routes = request.routes, ()
        for route in routes:
            self._outbox.reply(route, body)

    def _reason(self, request: LockRequest) -> Failure | None:
        """Return which row a request waits for, and who holds it. None: it is about to be
        granted."""
        found = self._cell.early.obstacle(request)
        if found is None:
            return None
        row, head = found
        named = row.tablet.schema.named_key(row.key)
        text = f"Row {named} is locked by another transaction"
        where = {"key": named, "table": row.tablet.assignment.path}
        if head is not None:
            return failure_of(RowBlocked(text, owner=head.name, **where))
        holder = row.holder
        assert holder is not None
        age_us = self._cell.now.instant_us - holder.since_us
        if age_us < self._cell.limits.repeat_after_ms * 1000:  # too early to blame a server
            return failure_of(RowBlocked(text, winner=holder.id, **where))
        return failure_of(blocked(self._cell, holder, text, **where))

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
            if is_over or cell.fault_at(FaultPoint.END_LOCKS_EARLY):
                cell.end_early(request)
                continue
            is_answered = now_us >= request.wait_until_us
            if request.routes and (is_answered or cell.fault_at(FaultPoint.ANSWER_LINE_EARLY)):
                self._answer_those_in_line(request)

    def _answer_those_in_line(self, request: LockRequest) -> None:
        """Say that the owner still waits. If it waits for the oracle alone, it gets its grant, and
        asks the oracle by itself."""
        if request.is_granted:
            self._answer(request, _grant(request))
        elif (reason := self._reason(request)) is not None:
            self._answer(request, LocksAwaited(request.owner, reason))


def _grant(request: LockRequest) -> LocksGranted:
    keys: dict[tuple[TabletId, Revision], list[Key]] = {}
    for tablet, key in request.rows:
        it = tablet.assignment
        keys.setdefault((it.tablet, it.revision), []).append(key)
    return LocksGranted(request.owner, tuple([TabletKeys(*it, tuple(keys[it])) for it in keys]))
