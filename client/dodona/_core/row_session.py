"""All operations on rows and on the tree, as protocols that any driver can run. Pure.

Owns: the list of these operations, which all facades share. Also the memory of which cell decided
which transaction. The module of each topic has the steps of an operation.
The caller passes the clocks and the random numbers. So the same calls with the same replies give
the same steps.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from dodona._core.beginning import Beginnings
from dodona._core.catalog.catalog import CatalogSession
from dodona._core.catalog.master_transaction import Pings
from dodona._core.protocol.arguments import (
    Row,
    check_flag,
    check_number,
    repeatable,
    repeatable_names,
)
from dodona._core.protocol.attempts import with_route
from dodona._core.protocol.context import DEFAULT_ACKNOWLEDGEMENT, Acknowledgement, Context
from dodona._core.protocol.limits import SessionLimits
from dodona._core.protocol.retry import Dice, InstantClock, Rerun
from dodona._core.protocol.routing import Routing, TableRoute
from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.change_session import ChangeSession
from dodona._core.reading.holding import Holds
from dodona._core.reading.read_session import ReadSession
from dodona._core.writing.committing import Answered, commit_atomic
from dodona._core.writing.conditions import Requirement
from dodona._core.writing.early_locks import release
from dodona._core.writing.fast_path import write_on_fast_path
from dodona._core.writing.outcomes import ABORTED, Outcome, find_outcome
from dodona._core.writing.transaction import ShortMode, TransactionBuffer
from dodona._core.writing.writing import commit_non_atomic
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    SnapshotTooOld,
    TransactionAborted,
    TransactionConflict,
)
from dodona_wire.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    BatchKind,
    CellId,
    Durability,
    Isolation,
    LockType,
    Timestamp,
    TransactionId,
    Write,
)

CELL_MAX: Final = (1 << 31) - 1

Found = TypeVar("Found")


class RowSession(Beginnings, ReadSession, ChangeSession):
    """All operations on rows and on the tree. Threads and tasks may share a session. The state of
    an operation is in its own protocol. Shared state changes by single steps."""

    def __init__(
        self,
        *,
        instant_us: InstantClock,
        unix_us: Callable[[], int],
        dice: Dice,
        routing: Routing | None = None,
        limits: SessionLimits | None = None,
        acknowledgement: Acknowledgement = DEFAULT_ACKNOWLEDGEMENT,
        isolation: Isolation | None = None,
        refreshes: bool | None = None,
        fault_at: FaultAt = no_faults,
    ) -> None:
        """Make a session. `instant_us` and `unix_us` are the clocks of this process in
        microseconds: a monotonic clock and the wall clock. `dice` returns a random number, at least
        0 and below 1."""
        self.routing = Routing() if routing is None else routing
        self.limits = limits or SessionLimits()
        self._context = Context(
            self.routing,
            instant_us=instant_us,
            unix_us=unix_us,
            dice=dice,
            limits=self.limits,
            acknowledgement=acknowledgement,
            isolation=isolation,
            refreshes=refreshes,
            fault_at=fault_at,
        )
        self.catalog = CatalogSession(self._context)
        """The operations on tables, on their tree, and on master transactions."""
        self.pings = Pings(instant_us)
        self.holds = Holds(self._context)
        self._outcomes: OrderedDict[TransactionId, Outcome | CellId] = OrderedDict()
        self._complete()

    def _complete(self) -> None:
        """Make what a subclass adds, after this class has made its own parts."""

    # ---- timestamps

    def generate_timestamp(self, count: int = 1) -> Protocol[Timestamp]:
        """Return a new timestamp, or the first of `count` that follow each other. Raises
        Unavailable."""
        return self._context.generate_timestamp(count)

    # ---- transactions

    def insert_rows(
        self,
        transaction: TransactionBuffer,
        path: str,
        rows: Iterable[Row],
        update: bool = False,
        aggregate: bool = False,
        lock_type: LockType = "exclusive",
        required: Requirement | None = None,
    ) -> Protocol[None]:
        """Put rows into the buffer. Raises SchemaViolation, LimitExceeded, TransactionClosed."""
        given = repeatable(rows)

        def put(route: TableRoute) -> None:
            transaction.insert(
                path,
                route.schema,
                given,
                is_update=update,
                is_aggregate=aggregate,
                lock_type=lock_type,
                required=required,
            )

        return with_route(self._context, path, put)

    def delete_rows(
        self,
        transaction: TransactionBuffer,
        path: str,
        keys: Iterable[Row],
        required: Requirement | None = None,
    ) -> Protocol[None]:
        """Put deletions into the buffer. Raises SchemaViolation, LimitExceeded,
        TransactionClosed."""
        given, delete = repeatable(keys), transaction.delete

        def put(route: TableRoute) -> None:
            delete(path, route.schema, given, required)

        return with_route(self._context, path, put)

    def require_rows(
        self,
        transaction: TransactionBuffer,
        path: str,
        keys: Iterable[Row],
        required: Requirement,
    ) -> Protocol[None]:
        """Put conditions for rows that need not be written into the buffer. Raises SchemaViolation,
        LimitExceeded, InvalidRequest, TransactionClosed."""
        given = repeatable(keys)

        def require(route: TableRoute) -> None:
            transaction.require(path, route.schema, given, required)

        return with_route(self._context, path, require)

    def write_data(
        self, transaction: TransactionBuffer, path: str, data: Any, mode: ShortMode = "upsert"
    ) -> Protocol[None]:
        """Put all rows of data into the buffer, which are whole rows, or keys to delete. Raises
        SchemaViolation, DuplicateKey, LimitExceeded, InvalidRequest, TransactionClosed."""
        from dodona._core.writing.whole import (
            check_at_once,
            check_short,
            check_short_write,
            writes_of,
        )

        check_short_write(data, mode)
        kind: BatchKind = "delete" if mode == "delete" else "write"
        limits = self.limits.transaction

        def put(route: TableRoute) -> None:
            transaction.check_writable("modify rows in")
            try:
                checked = check_at_once(route.schema, data, kind)
            except DodonaError as error:
                error.attributes.setdefault("table", path)
                raise
            check_short(checked, path, limits)
            transaction.put(path, route.schema, writes_of(route.schema, checked, kind))

        return with_route(self._context, path, put)

    def lock_rows(
        self,
        transaction: TransactionBuffer,
        path: str,
        keys: Iterable[Row],
        locks: Sequence[str] | None = None,
        lock_type: LockType = "shared_strong",
    ) -> Protocol[None]:
        """Put row locks into the buffer. Raises InvalidRequest, LimitExceeded,
        TransactionClosed."""
        given, names = repeatable(keys), repeatable_names(locks)

        def put(route: TableRoute) -> None:
            transaction.lock(path, route.schema, given, names, lock_type)

        return with_route(self._context, path, put)

    @traced_as("commit")
    def commit(
        self, transaction: TransactionBuffer, answered: Answered | None = None
    ) -> Protocol[Timestamp | None]:
        """Return the commit timestamp, or None if there was nothing to commit. After
        CommitOutcomeUnknown the transaction stays `committing`: call `outcome`. `answered` is a
        first attempt that the client has already sent, with its reply."""
        try:
            transaction.start_commit(self._context.instant_us())
        except SnapshotTooOld:
            yield from release(transaction.locked)
            raise
        if not transaction.tables and not transaction.publications:
            transaction.end_committed(None)
            yield from release(transaction.locked)
            return None
        try:
            if transaction.atomicity == "full":
                timestamp = yield from commit_atomic(self._context, transaction, answered)
            else:
                timestamp = yield from commit_non_atomic(self._context, transaction)
        except CommitOutcomeUnknown:
            raise
        except DodonaError:
            transaction.end_aborted()
            yield from release(transaction.locked)
            raise
        else:
            transaction.end_committed(timestamp)
        finally:
            self._remember(transaction)
        return timestamp

    @traced_as("insert_rows")
    def write_rows(
        self,
        path: str,
        rows: Iterable[Row],
        update: bool,
        durability: Durability,
        aggregate: bool = False,
        required: Requirement | None = None,
    ) -> Protocol[Timestamp | None]:
        """Insert rows in a transaction of their own, which has the table's atomicity."""
        if aggregate is False and required is None:
            done = yield from write_on_fast_path(self._context, path, rows, update, durability)
            if isinstance(done, Answered):
                made = self._blind(done.route, durability)
                made.put(path, done.route.schema, done.writes)
                return (yield from self._commit_blind(path, made, done))
            if done is not None:
                return done
        given = repeatable(rows)

        def make(route: TableRoute) -> TransactionBuffer:
            made = self._blind(route, durability)
            made.insert(
                path,
                route.schema,
                given,
                is_update=update,
                is_aggregate=aggregate,
                required=required,
            )
            return made

        made = yield from with_route(self._context, path, make)
        return (yield from self._commit_blind(path, made))

    @traced_as("delete_rows")
    def erase_rows(
        self,
        path: str,
        keys: Iterable[Row],
        durability: Durability,
        required: Requirement | None = None,
    ) -> Protocol[Timestamp | None]:
        """Delete rows in a transaction of their own, which has the table's atomicity."""
        given = repeatable(keys)

        def make(route: TableRoute) -> TransactionBuffer:
            made = self._blind(route, durability)
            made.delete(path, route.schema, given, required)
            return made

        made = yield from with_route(self._context, path, make)
        return (yield from self._commit_blind(path, made))

    def write_made(self, route: TableRoute, writes: list[Write]) -> Protocol[Timestamp]:
        """Commit writes, which were made for the schema of the route, in a transaction of their
        own. Raises LimitExceeded before the first request."""
        made = self._blind(route, "sync")
        made.put(route.path, route.schema, writes)
        timestamp = yield from self._commit_blind(route.path, made)
        assert timestamp is not None, "there are writes"
        return timestamp

    def _commit_blind(
        self, path: str, transaction: TransactionBuffer, answered: Answered | None = None
    ) -> Protocol[Timestamp | None]:
        """Commit a transaction that took its mode from the table. If the table's mode has changed
        since then, raises TransactionAborted, since another attempt takes the new mode."""
        try:
            return (yield from self.commit(transaction, answered))
        except InvalidRequest as error:
            route = self.routing.find(path)
            is_mode_known = route is None or route.atomicity == transaction.atomicity
            if is_mode_known or type(error) is not InvalidRequest:
                raise
            text = "The table's atomicity changed during the call. Repeat the call."
            raise TransactionAborted(text, **error.attributes) from error

    def _blind(self, route: TableRoute, durability: Durability) -> TransactionBuffer:
        """Make a transaction with no snapshot, since it reads nothing. It gets its id at its
        commit."""
        return self._buffer(None, route.atomicity, durability, self._context.instant_us())

    def write_arrow(
        self,
        path: str,
        data: Any,
        durability: Durability = "sync",
        stamp: Timestamp | None = None,
    ) -> Protocol[int]:
        """Return how many rows `data` had. See `bulk.write_arrow`."""
        from dodona._core.writing import bulk

        return bulk.write_arrow(self._context, path, data, durability, stamp)

    # ---- outcomes of transactions

    def outcome(
        self,
        transaction: TransactionId,
        coordinator: CellId | None = None,
        settle: bool = False,
    ) -> Protocol[Outcome]:
        """Return the outcome of a transaction. With `settle` the coordinator decides now, and
        without it nothing changes. The session knows its own commits. For others it asks the
        coordinator, or all cells. Raises Unavailable."""
        check_number(transaction, "transaction", MIN_TIMESTAMP, MAX_TIMESTAMP)
        if coordinator is not None:
            check_number(coordinator, "coordinator", 0, CELL_MAX)
        check_flag(settle, "settle")
        known = self._outcomes.get(transaction)
        if isinstance(known, Outcome):
            return known
        cell = coordinator if known is None else known
        outcome = yield from find_outcome(self._context, transaction, cell, settle=settle)
        if known is not None and outcome.is_final:
            self._keep(transaction, outcome)
        return outcome

    def _remember(self, transaction: TransactionBuffer) -> None:
        """Keep the outcome of a commit, also if the caller was interrupted."""
        if transaction.id is None:
            return
        if transaction.is_committed:
            self._keep(transaction.id, Outcome("committed", transaction.commit_timestamp))
        elif transaction.is_aborted:
            self._keep(transaction.id, ABORTED)
        elif transaction.coordinator is not None:
            self._keep(transaction.id, transaction.coordinator)

    def _keep(self, transaction: TransactionId, outcome: Outcome | CellId) -> None:
        self._outcomes[transaction] = outcome
        if len(self._outcomes) > self.limits.outcomes_remembered_max:
            self._outcomes.popitem(last=False)

    # ---- running a function as a transaction until it commits

    def rerun(
        self, attempts_max: int | None, deadline_ms: int, timeout_ms: int | None = None
    ) -> Rerun:
        """Return the limits for one `run_in_transaction`."""
        if attempts_max is not None:
            check_number(attempts_max, "attempts_max", 1)
        check_number(deadline_ms, "deadline_ms", 1)
        return Rerun(
            self._context.instant_us,
            self._context.dice,
            attempts_max=attempts_max,
            deadline_ms=deadline_ms,
            timeout_ms=timeout_ms,
        )

    def after_failure(
        self, rerun: Rerun, transaction: TransactionBuffer | None, error: DodonaError
    ) -> Protocol[bool]:
        """Return whether the failed attempt was committed after all. False comes after a pause: run
        the function again. Raises `error` if the function must not run again, or has no attempt
        left. If the last attempt had too little time, raises the error of the one before it."""
        error = rerun.telling(error)
        if isinstance(error, CommitOutcomeUnknown):
            outcome = yield from self._find_out(transaction, error)
            if outcome.state == "committed":
                return True
        elif not error.is_retryable:
            raise error
        elif transaction is not None and isinstance(error, TransactionConflict):
            rerun.note_rows(transaction.refused_rows)
        pause = rerun.next_pause()
        if pause is None:
            raise error
        if (yield pause):
            raise error  # no time is left for another attempt
        return False

    def _find_out(
        self, transaction: TransactionBuffer | None, error: CommitOutcomeUnknown
    ) -> Protocol[Outcome]:
        """Settle the transaction and return its outcome. Raises `error` if it stays unknown."""
        if transaction is None or transaction.id is None or not transaction.is_committing:
            raise error
        try:
            outcome = yield from self.outcome(transaction.id, settle=True)
        except DodonaError:
            raise error from None
        if outcome.state == "unknown":
            raise error
        transaction.settle(outcome.timestamp)
        return outcome
