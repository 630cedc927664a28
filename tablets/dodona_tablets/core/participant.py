"""The participant's half of commit, as a table: (event, state) → what to do.

Owns: locking, preparing, one-cell commit, and obeying decisions. Source: `docs/commit-protocol.md`
in full; rule numbers below are its. Knows nothing of who decides (see `coordinator`) but for
whom to answer. "Misfit" entries were never reached in the model: only a client that lies to several
cells about one transaction gets there, and harms nobody's transaction but its own.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any

from dodona._core.effects import Append, AskTimestamps, SendToCell
from dodona._core.messages import (
    Acknowledge,
    AskCoordinator,
    Committed,
    Failure,
    OutcomeUnknown,
    Prepared,
    Reply,
    Status,
    TabletModifications,
)
from dodona._core.mischief import Point
from dodona._core.sizes import wire_bytes
from dodona.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    SnapshotTooOld,
    TabletMoved,
    TransactionAborted,
    TransactionConflict,
)
from dodona.types import (
    MAX_TIMESTAMP,
    TIMESTAMP_COUNTER_BITS,
    CellId,
    Key,
    SpecialWrites,
    Timestamp,
    TransactionId,
)
from dodona_tablets.core.cell import Cell, failure_of
from dodona_tablets.core.locks import Lost, acquire, check_row, groups_of
from dodona_tablets.core.records import AbortDecided, CommitDecided, CommittedHere, PreparedHere
from dodona_tablets.core.row import Holder
from dodona_tablets.core.tablet import Tablet
from dodona_tablets.core.transaction import State, Transaction

ROUTES_MAX = 8


class Event(enum.Enum):
    """What other cells say. A prepare comes from a client, with a request: see `prepare`."""

    QUERY_STATUS = "status"
    TELL_COMMIT = "commit"
    TELL_ABORT = "abort"


POISONED = Failure(TransactionAborted.kind, "the transaction was given up before it was prepared")
ABORTED = Failure(TransactionAborted.kind, "the transaction was aborted")


class Participant:
    """Handles participant events. One instance a cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    # Prepare and one-cell commit: the same thing with one participant or several

    def prepare(
        self,
        route: Any,
        transaction: TransactionId,
        participants: tuple[CellId, ...],
        modifications: tuple[TabletModifications, ...],
        *,
        is_blind: bool = False,
    ) -> None:
        """Rules 1 to 4, 9, 11, 12 and 20, by the transaction's state here."""
        cell = self._cell
        alive = cell.transactions.get(transaction)
        if alive is not None:
            self._prepare_again(route, alive)
            return
        outcome = cell.outcomes.get(transaction)
        if isinstance(outcome, Failure):
            cell.reply(route, outcome)
        elif outcome is not None:
            cell.reply(route, Committed(transaction, outcome))
        elif transaction <= cell.outcomes.watermark:
            cell.reply(route, OutcomeUnknown(transaction))
        else:
            start = MAX_TIMESTAMP if is_blind else Timestamp(transaction)
            self._begin(route, transaction, start, participants, modifications)

    def _prepare_again(self, route: Any, alive: Transaction) -> None:
        """Rule 11: a repeat gets the same answer."""
        if alive.state is State.PREPARED:
            self._cell.reply(route, Prepared(alive.id, alive.prepare_timestamp))
        elif alive.state is State.COMMITTED:
            self._cell.reply(route, Committed(alive.id, alive.commit_timestamp))
        else:
            alive.routes = (*alive.routes[1 - ROUTES_MAX :], route)

    def _begin(
        self,
        route: Any,
        transaction: TransactionId,
        start: Timestamp,
        participants: tuple[CellId, ...],
        modifications: tuple[TabletModifications, ...],
    ) -> None:
        cell = self._cell
        try:
            tablets = tuple([cell.tablet(part.tablet, part.revision) for part in modifications])
            if cell.may_misbehave and len(participants) > 1 and cell.mischief(Point.PRETEND_MOVED):
                raise TabletMoved("the tablet is about to be mounted elsewhere", cell=cell.id)
        except TabletMoved as error:  # nothing is recorded: the client may try elsewhere
            cell.reply(route, failure_of(error))
            return
        try:
            self._check_admission(transaction, participants)
            self._check_parts(transaction, modifications, tablets)
        except DodonaError as error:
            failure = failure_of(error)
            cell.refuse(transaction, failure)
            cell.reply(route, failure)
            return
        now_us = cell.now.instant_us
        begun = Transaction(transaction, start, participants, modifications, now_us, (route,))
        begun.tablets = tablets
        cell.transactions[transaction] = begun
        self.lock(begun)

    def _check_admission(
        self, transaction: TransactionId, participants: tuple[CellId, ...]
    ) -> None:
        cell, limits = self._cell, self._cell.limits
        is_alone = len(participants) == 1
        if cell.id not in participants or not (is_alone or are_distinct(participants)):
            raise InvalidRequest("this cell is not a participant", cell=cell.id)
        is_full = len(cell.transactions) >= limits.transactions_alive_max
        if is_full or (cell.may_misbehave and cell.mischief(Point.PRETEND_OVERLOADED)):
            raise Overloaded("too many transactions are committing in this cell", cell=cell.id)
        if cell.latest - transaction > limits.transaction_life_s_max << TIMESTAMP_COUNTER_BITS:
            raise SnapshotTooOld(f"the transaction is older than {limits.transaction_life_s_max} s")

    def _check_parts(
        self,
        transaction: TransactionId,
        modifications: tuple[TabletModifications, ...],
        tablets: tuple[Tablet, ...],
    ) -> None:
        limits = self._cell.limits
        if len(modifications) > 1 and not are_distinct([part.tablet for part in modifications]):
            raise InvalidRequest("a transaction names a tablet twice", cell=self._cell.id)
        rows_left, bytes_left = limits.transaction_rows_max, limits.transaction_bytes_max
        for tablet, part in zip(tablets, modifications, strict=True):
            rows_left -= len(part.writes) + len(part.locks)
            if rows_left < 0:
                raise LimitExceeded(f"a transaction has at most {limits.transaction_rows_max} rows")
            if transaction <= tablet.fence:  # rule 9
                text = "the transaction began before the tablet was mounted or its cell restarted"
                raise SnapshotTooOld(text, table=tablet.assignment.path)
            tablet.check_open()
            if not tablet.is_atomic:
                raise atomicity_mismatch("full", "none", tablet)
            tablet.check_modifications(part)
            bytes_left -= wire_bytes(part.writes)
            if bytes_left < 0:
                text = f"a transaction writes at most {limits.transaction_bytes_max} bytes"
                raise LimitExceeded(text, table=tablet.assignment.path)
        if transaction <= self._cell.fence:  # one that touches no tablet
            text = "the transaction began before the cell restarted"
            raise SnapshotTooOld(text, cell=self._cell.id)

    def lock(self, transaction: Transaction) -> None:
        """Check everything, then take everything (so that a refusal has nothing to undo)."""
        waits_for: Transaction | None = None
        try:
            for tablet, part in zip(transaction.tablets, transaction.modifications, strict=True):
                waits_for = _check_rows(transaction, tablet, part) or waits_for
        except Lost as lost:
            self.refuse(transaction, lost.failure)
            return
        if waits_for is not None:
            if self._cell.mischief(Point.TIRE_OF_HOLDER):
                self.refuse(transaction, timed_out_waiting(transaction))
                return
            transaction.state = State.WAITING
            waits_for.waiters.append(transaction)
            return
        acquire_all(transaction)
        transaction.state = State.LOCKED
        self.ask_timestamp(transaction)  # rule 1: only now

    def retry(self, transaction: Transaction) -> None:
        """Whom it waited for has moved on; meanwhile its tablets may have closed."""
        try:
            for part in transaction.modifications:
                self._cell.tablet(part.tablet, part.revision).check_open()
        except TabletMoved as error:
            text = "the table was unmounted while the transaction waited"
            self.refuse(transaction, failure_of(TransactionAborted(text, **error.attributes)))
        except DodonaError as error:
            self.refuse(transaction, failure_of(error))
        else:
            self.lock(transaction)

    def ask_timestamp(self, transaction: Transaction) -> None:
        """Ask the oracle; asked again if no answer comes, and the first answer counts."""
        cell = self._cell
        transaction.nag_at_us = cell.now.instant_us + cell.limits.repeat_after_ms * 1000
        cell.effects.append(AskTimestamps(transaction.id))
        if cell.may_misbehave and cell.mischief(Point.ASK_ORACLE_TWICE):
            cell.effects.append(AskTimestamps(transaction.id))

    def refuse(self, transaction: Transaction, failure: Failure) -> None:
        """End what is merely waiting or locked, and say so to whoever waits for it."""
        assert transaction.state in (State.NONE, State.WAITING, State.LOCKED)
        if transaction.state is not State.LOCKED:
            transaction.tablets = ()  # not counted as active there yet
        routes, asked = transaction.routes, transaction.asked_routes
        self._cell.finish_refused(transaction, failure)
        for route in (*routes, *asked):
            self._cell.reply(route, failure)

    def handle_timestamp(self, transaction: TransactionId, timestamp: Timestamp) -> None:
        """The oracle's answer: the prepare timestamp, or the commit timestamp of one cell alone."""
        cell = self._cell
        alive = cell.transactions.get(transaction)
        if alive is None or alive.state is not State.LOCKED:
            return  # rule 10: it was refused or poisoned meanwhile
        if cell.may_misbehave and cell.mischief(Point.LOSE_PREPARE_TIMESTAMP):
            return
        if timestamp <= transaction:  # rule 3
            self.refuse(alive, failure_of(SnapshotTooOld("the start timestamp is in the future")))
            return
        reply: Reply
        if alive.is_one_cell:
            record = CommittedHere(transaction, timestamp, alive.modifications)
            cell.effects.append(Append(record))
            cell.apply(alive, timestamp)
            cell.finish_committed(alive)
            reply = Committed(transaction, timestamp)
        else:
            alive.prepare_timestamp = timestamp
            alive.state = State.PREPARED
            alive.nag_at_us = cell.now.instant_us + self._nag_delay_us(alive)
            cell.effects.append(
                Append(
                    PreparedHere(transaction, timestamp, alive.participants, alive.modifications)
                )
            )
            cell.wake(alive)
            reply = Prepared(transaction, timestamp)
        for route in alive.routes:
            cell.reply(route, reply)

    def _nag_delay_us(self, transaction: Transaction) -> int:
        limits = self._cell.limits
        is_mine = transaction.coordinator == self._cell.id
        return (limits.recover_after_ms if is_mine else limits.ask_coordinator_after_ms) * 1000

    def ask_coordinator(self, alive: Transaction) -> None:
        """Rule 15: prepared and told nothing. Ask, again and again."""
        assert alive.state is State.PREPARED
        alive.nag_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        body = AskCoordinator(self._cell.id, alive.id)
        self._cell.effects.append(SendToCell(alive.coordinator, body))

    # Decisions and questions from other cells

    def handle(
        self, event: Event, source: CellId, transaction: TransactionId, at: Timestamp
    ) -> None:
        state = self._cell.state_of(transaction)
        TABLE[event, state](self, source, transaction, at)

    def _status_poison(self, source: CellId, transaction: TransactionId, _: Timestamp) -> None:
        """Rule 14: whoever is not prepared never will be. At or below the watermark that needs no
        record, and must not have one (rule 12): it may have been a commit that was forgotten."""
        alive = self._cell.transactions.get(transaction)
        if alive is not None:
            self.refuse(alive, POISONED)
        elif transaction > self._cell.outcomes.watermark:
            self._cell.refuse(transaction, POISONED)
        self._status_refused(source, transaction, _)

    def _status_refused(self, source: CellId, transaction: TransactionId, _: Timestamp) -> None:
        self._send_status(source, transaction, State.REFUSED, Timestamp(0))

    def _status_prepared(self, source: CellId, transaction: TransactionId, _: Timestamp) -> None:
        alive = self._cell.transactions[transaction]
        self._send_status(source, transaction, State.PREPARED, alive.prepare_timestamp)

    def _status_committed(self, source: CellId, transaction: TransactionId, _: Timestamp) -> None:
        alive = self._cell.transactions.get(transaction)
        at = alive.commit_timestamp if alive else self._cell.outcomes.get(transaction)
        assert at is not None
        assert not isinstance(at, Failure)
        self._send_status(source, transaction, State.COMMITTED, at)

    def _send_status(
        self, to: CellId, transaction: TransactionId, state: State, at: Timestamp
    ) -> None:
        body = Status(self._cell.id, transaction, state.value, at)
        self._cell.effects.append(SendToCell(to, body))

    def _commit(self, source: CellId, transaction: TransactionId, at: Timestamp) -> None:
        cell = self._cell
        alive = cell.transactions[transaction]
        if alive.coordinator != source:
            self._misfit(source, transaction, at)
            return
        if not cell.may_be_issued(at):
            return  # we are behind, or it is a lie: whoever has decided so says it again
        if at < alive.prepare_timestamp:  # a lie: our readers have seen what was before
            cell.misfit_count += 1
            at = alive.prepare_timestamp
        cell.effects.append(Append(CommitDecided(transaction, at)))
        cell.apply(alive, at)
        cell.finish_committed(alive)
        self._acknowledge(source, transaction, at)

    def _abort_prepared(self, source: CellId, transaction: TransactionId, at: Timestamp) -> None:
        alive = self._cell.transactions[transaction]
        if alive.coordinator != source:
            self._misfit(source, transaction, at)
            return
        self._cell.effects.append(Append(AbortDecided(transaction)))
        self._cell.finish_refused(alive, ABORTED)
        self._acknowledge(source, transaction, at)

    def abort_forgotten(self, source: CellId, transaction: TransactionId) -> None:
        """The coordinator has no record of it: only whoever is still prepared learns from that."""
        if self._cell.state_of(transaction) is State.PREPARED:
            self._abort_prepared(source, transaction, Timestamp(0))

    def _abort_unprepared(self, source: CellId, transaction: TransactionId, at: Timestamp) -> None:
        self.refuse(self._cell.transactions[transaction], ABORTED)
        self._acknowledge(source, transaction, at)

    def _acknowledge(self, source: CellId, transaction: TransactionId, _: Timestamp) -> None:
        if self._cell.mischief(Point.FORGET_TO_ACKNOWLEDGE):
            return
        self._cell.effects.append(SendToCell(source, Acknowledge(self._cell.id, transaction)))

    def _misfit(self, source: CellId, transaction: TransactionId, at: Timestamp) -> None:
        """Decided by one who does not decide this, or against what we said. It is not obeyed, and
        need not be said again."""
        self._cell.misfit_count += 1
        self._acknowledge(source, transaction, at)


Handler = Callable[[Participant, CellId, TransactionId, Timestamp], None]


TABLE: dict[tuple[Event, State], Handler] = {
    (Event.QUERY_STATUS, State.NONE): Participant._status_poison,
    (Event.QUERY_STATUS, State.WAITING): Participant._status_poison,
    (Event.QUERY_STATUS, State.LOCKED): Participant._status_poison,
    (Event.QUERY_STATUS, State.PREPARED): Participant._status_prepared,
    (Event.QUERY_STATUS, State.COMMITTED): Participant._status_committed,
    (Event.QUERY_STATUS, State.REFUSED): Participant._status_refused,
    (Event.TELL_COMMIT, State.NONE): Participant._acknowledge,
    (Event.TELL_COMMIT, State.WAITING): Participant._misfit,
    (Event.TELL_COMMIT, State.LOCKED): Participant._misfit,
    (Event.TELL_COMMIT, State.PREPARED): Participant._commit,
    (Event.TELL_COMMIT, State.COMMITTED): Participant._acknowledge,
    (Event.TELL_COMMIT, State.REFUSED): Participant._misfit,
    (Event.TELL_ABORT, State.NONE): Participant._acknowledge,
    (Event.TELL_ABORT, State.WAITING): Participant._abort_unprepared,
    (Event.TELL_ABORT, State.LOCKED): Participant._abort_unprepared,
    (Event.TELL_ABORT, State.PREPARED): Participant._abort_prepared,
    (Event.TELL_ABORT, State.COMMITTED): Participant._misfit,
    (Event.TELL_ABORT, State.REFUSED): Participant._acknowledge,
}


def _check_rows(
    transaction: Transaction, tablet: Tablet, part: TabletModifications
) -> Transaction | None:
    """Raises Lost on the first row that is lost; else returns whom to wait for, if anybody."""
    waits_for: Transaction | None = None
    rows, schema, special = tablet.store.rows, tablet.schema, part.special
    start = transaction.start
    try:
        for key, mask, _ in schema.plain_writes(part.writes):
            row = rows.get(key)
            if row is not None:
                groups = schema.lock_mask(mask)
                together = 0 if special is None else shared_groups(special, key)
                blocker = check_row(row, key, schema, start, groups & ~together, together, 0)
                waits_for = waits_for or blocker
        for lock in part.locks:
            row = rows.get(lock.key)
            if row is not None:
                blocker = check_row(row, lock.key, schema, start, *groups_of(lock))
                waits_for = waits_for or blocker
    except Lost as lost:
        lost.failure.attributes.update(
            table=tablet.assignment.path, tablet=tablet.assignment.tablet
        )
        raise
    return waits_for


def acquire_all(transaction: Transaction) -> None:
    """Take all locks of a transaction that `_check_rows` let through, or that replay prepared."""
    for tablet, part in zip(transaction.tablets, transaction.modifications, strict=True):
        tablet.active_count += 1
        row_for_write, lock_mask = tablet.store.row_for_write, tablet.schema.lock_mask
        special = part.special
        for key, mask, _ in tablet.schema.plain_writes(part.writes):
            together = 0 if special is None else shared_groups(special, key)
            holder = Holder(transaction, lock_mask(mask) & ~together, together)
            acquire(row_for_write(key), holder)
        for lock in part.locks:
            holder = Holder(transaction, *groups_of(lock), lock.lock_type)
            acquire(row_for_write(lock.key), holder)


def shared_groups(special: SpecialWrites, key: Key) -> int:
    """The lock groups that the write of this key takes by shared_write."""
    return special[key][1] if key in special else 0


def are_distinct(numbers: Sequence[int]) -> bool:
    return len(set(numbers)) == len(numbers)


def atomicity_mismatch(given: str, wanted: str, tablet: Tablet) -> DodonaError:
    return InvalidRequest(
        f'Invalid atomicity mode: "{given}" instead of "{wanted}"', table=tablet.assignment.path
    )


def timed_out_waiting(transaction: Transaction) -> Failure:
    """A bounded wait is over (rule 4)."""
    return Failure(
        TransactionConflict.kind,
        "timed out waiting for a transaction that holds a row",
        {"start_timestamp": transaction.id},
    )
