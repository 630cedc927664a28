"""What all client protocols share: routes, a clock, random numbers, limits. Pure.

Owns: how to find a route and wait for it, and how a reply becomes a value or an error.
The caller passes the clocks and the random numbers.
If many protocols find a route stale at the same time, one of them asks the master.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Final, Literal, TypeVar, get_args

from dodona._core.protocol.arguments import check_path
from dodona._core.protocol.limits import SessionLimits
from dodona._core.protocol.reserve import RESERVE_COUNT, Reserve
from dodona._core.protocol.retry import Dice, InstantClock, Patience, backoff_ms, wait_or_raise
from dodona._core.protocol.routing import (
    REFRESH_MS_MAX,
    SETTLED_STATES,
    Routing,
    TableRoute,
)
from dodona._core.protocol.steps import MASTER, ORACLE, Calls, Pause, Protocol
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    TableNotMounted,
    Unavailable,
    error_from_wire,
)
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import (
    CatalogRequest,
    Cluster,
    GetCluster,
    GetTable,
    Table,
    Tablet,
)
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply
from dodona_wire.shown import shown
from dodona_wire.types import Isolation, Timestamp, TransactionId

BULK_PAUSE_MS_MAX: Final = 2_000
"""The longest pause for bulk data. It is long because each attempt sends the whole message
again."""
POLL_MS_MAX: Final = 100
UNENDING_MS: Final = 1 << 40
"""A time that is longer than any server is silent."""
SILENT_KINDS: Final = ("unavailable", "row_blocked")
NAMING_ATTRIBUTES: Final = ("cell", "cells", "address", "server", "silent_ms")
"""The attributes by which an error names the server that does not answer."""

Wanted = TypeVar("Wanted")


Acknowledgement = Literal["decided", "prepared"]
"""When the client reports the commit of several cells. `decided`: once the coordinator's decision
is durable. `prepared`: once every participant is prepared, since commit is then the only
outcome."""
DEFAULT_ACKNOWLEDGEMENT: Final[Acknowledgement] = "prepared"


def check_acknowledgement(value: str) -> None:
    """Check that `value` is an Acknowledgement. Raises InvalidRequest."""
    if value not in get_args(Acknowledgement):
        raise InvalidRequest(
            f"acknowledgement is one of {get_args(Acknowledgement)}, not {shown(value)}"
        )


class Context:
    """What every protocol of one session gets from the session."""

    def __init__(
        self,
        routing: Routing,
        *,
        instant_us: InstantClock,
        unix_us: Callable[[], int],
        dice: Dice,
        limits: SessionLimits,
        acknowledgement: Acknowledgement,
        isolation: Isolation | None,
        refreshes: bool | None,
        fault_at: FaultAt,
    ) -> None:
        self.fault_at = fault_at
        self.injects_faults = fault_at is not no_faults
        self.acknowledgement = acknowledgement
        self.isolation = isolation
        """The isolation of tables that have none of their own, in transactions without one."""
        self.refreshes = refreshes
        """Whether a transaction that was refused may be sent again, in place of a rerun. None: only
        a serializable one."""
        self.routing = routing
        self.instant_us = instant_us
        self.unix_us = unix_us
        self.dice = dice
        self.limits = limits
        self._reserve = Reserve()

    def patience(self) -> Patience:
        """Return limits for the retries of one operation, from now on."""
        limits = self.limits
        return Patience(
            self.instant_us,
            self.dice,
            duration_ms=limits.retry_ms_max,
            attempts_max=limits.attempts_max,
        )

    def patience_with_full(self) -> Patience:
        """Return limits for retries of bulk data with full cells. They allow a longer wait than
        `patience`: writers may be faster than cells, and then wait."""
        return Patience(
            self.instant_us,
            self.dice,
            duration_ms=self.limits.bulk_wait_ms_max,
            attempts_max=self.limits.bulk_wait_ms_max,
            pause_ms_max=BULK_PAUSE_MS_MAX,
        )

    def polling(self, duration_ms: int) -> Patience:
        """Return limits for a wait for a state: short pauses for `duration_ms` ms. Raises
        InvalidRequest."""
        if type(duration_ms) is not int or duration_ms <= 0:
            raise InvalidRequest(f"A timeout is a positive number of ms, not {shown(duration_ms)}")
        return Patience(
            self.instant_us,
            self.dice,
            duration_ms=duration_ms,
            attempts_max=duration_ms,
            pause_ms_max=POLL_MS_MAX,
            outage_ms_max=duration_ms + UNENDING_MS,
        )

    def error_of(self, failure: Failure) -> DodonaError:
        """Return the error that a failure describes. The server names a silent cell, and this
        client adds the address of the cell."""
        error = error_of(failure)
        cell = error.attributes.get("cell")
        if failure.kind in SILENT_KINDS and "address" not in error.attributes:
            address = None if cell is None else self.routing.addresses.get(cell)
            if address is not None:
                error.attributes["address"] = address
        return error

    # ---- the oracle

    def generate_timestamp(self, count: int = 1) -> Protocol[Timestamp]:
        """Return a fresh timestamp, or the first of `count` consecutive timestamps. Raises
        Unavailable."""
        patience = None
        while True:
            (reply,) = yield Calls(((ORACLE, GenerateTimestamps(count)),))
            if type(reply) is TimestampRange:
                return reply.first
            try:
                expect(reply, TimestampRange)
            except Unavailable as error:
                patience = patience or self.patience()
                yield from wait_or_raise(patience, error)

    def take_reserved_id(self) -> TransactionId | None:
        """Return an id for a blind transaction, or None if the reserve has none."""
        return self._reserve.take(self.instant_us())

    def reserve_ids(self) -> Protocol[TransactionId]:
        """Fill the reserve and return an id for a blind transaction. Raises Unavailable."""
        asked_us = self.instant_us()
        first = yield from self.generate_timestamp(RESERVE_COUNT)
        return self._reserve.fill(first, asked_us)

    def drop_reserve(self) -> None:
        """Drop all reserved ids, after a cell has refused one as too old."""
        self._reserve.clear()

    # ---- the catalog

    def ask_master(self, request: CatalogRequest, wanted: type[Wanted]) -> Protocol[Wanted]:
        """Send one request to the catalog and return its reply. Raises the error that the master
        answers."""
        (reply,) = yield Calls(((MASTER, request),))
        return expect(reply, wanted)

    def ask_master_patiently(
        self, request: CatalogRequest, wanted: type[Wanted], patience: Patience
    ) -> Protocol[Wanted]:
        """Send a request as `ask_master` does, again while the master does not answer. The request
        must be safe to repeat."""
        while True:
            try:
                return (yield from self.ask_master(request, wanted))
            except Unavailable as error:
                yield from wait_or_raise(patience, error)

    def route(self, path: str, patience: Patience | None = None) -> Protocol[TableRoute]:
        """Return the table's route, from the cache or the master. Raises TableNotFound,
        Unavailable."""
        waiting_since_us = None
        if self.injects_faults and self.fault_at(FaultPoint.FORGET_ROUTE_OF_READ):
            self.routing.forget(path)
        while True:
            known = self.routing.find(path)
            if known is not None:
                return known
            check_path(path)
            now_us = self.instant_us()
            waiting_since_us = waiting_since_us or now_us
            is_tired = now_us - waiting_since_us >= REFRESH_MS_MAX * 1000
            if self.routing.begin_refresh(path, now_us) or is_tired:
                try:
                    return (yield from self._refresh(path, patience))
                finally:
                    self.routing.end_refresh(path)
            if (yield Pause(backoff_ms(1, self.dice, 10, 10))):
                return (yield from self._refresh(path, patience))  # no time is left: this raises

    def _refresh(self, path: str, patience: Patience | None) -> Protocol[TableRoute]:
        table = yield from self.ask_master_patiently(
            GetTable(path), Table, patience or self.patience()
        )
        return self.routing.learn(table)

    def fresh_route(self, path: str, patience: Patience | None = None) -> Protocol[TableRoute]:
        """Return the table's route as the master has it now."""
        self.routing.forget(path)
        return self.route(path, patience)

    def find_cells(self) -> Protocol[None]:
        """Ask the master once for the addresses of all cells. If it does not answer, change
        nothing."""
        (reply,) = yield Calls(((MASTER, GetCluster()),))
        if type(reply) is Cluster:
            self.routing.learn_cells(reply)


def expect(reply: Reply, wanted: type[Wanted]) -> Wanted:
    """Return the reply if it has the wanted type. Otherwise raises the error that it describes."""
    if isinstance(reply, wanted):
        return reply
    if isinstance(reply, Failure):
        raise error_of(reply)
    raise Unavailable(f"The server answered with {type(reply).__name__}, not {wanted.__name__}.")


def error_of(failure: Failure) -> DodonaError:
    """Return the error that a failure describes. The attributes are a copy: an embedded cell may
    keep the failure, to give the same answer to a repeated request. If a full disk left a request
    without an answer, the error is that of the full disk. Callers that need the outcome of the
    request have asked for it before."""
    kind = failure.attributes.get("cause", failure.kind)
    return error_from_wire(kind, failure.message, deepcopy(failure.attributes))


def is_recorded(failure: Failure) -> bool:
    """Return whether the server itself refused, so that the request will have no effect."""
    return failure.kind != "unavailable" or failure.attributes.get("is_refused") is True


def was_never_sent(failure: Failure) -> bool:
    """Return whether the request certainly never left this process, so that it had no effect."""
    return failure.kind == "unavailable" and failure.attributes.get("is_sent") is False


def not_mounted(route: TableRoute, tablet: Tablet, *, is_write: bool) -> TableNotMounted:
    number, path, state = tablet.tablet, route.path, tablet.state
    if is_write:
        text = f'Tablet {number} of table {path} is in "{state}" state'
    else:
        text = f'Cannot read from tablet {number} of table {path} while it is in "{state}" state'
    if state in SETTLED_STATES or tablet.cell is None:
        text = f"{text}. Mount or unfreeze the table."
        return TableNotMounted(text, table=path, tablet=number, state=state)
    text, cell = f"{text}: the master waits for cell {tablet.cell}", int(tablet.cell)
    return TableNotMounted(text, table=path, tablet=number, state=state, cell=cell)
