"""Handle the participant's half of a commit, as a table: (event, state) → handler.

Owns: locks, prepares, commits in one cell, and obedience to decisions. Source: all of
`docs/explanation/commit-protocol.md`. `TABLE` is the first state table of that page, entry by
entry. Rule numbers below are the page's. This module does not decide (see `coordinator`): it only
knows which cell to answer. `admission` says which transactions may begin. The model never reached
"violation" entries. A client reaches them only if it lies to several cells about one transaction,
and it harms only that transaction.
"""

import enum
from collections.abc import Callable
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.admission import (
    check_parts,
    check_transaction,
    why_never,
)
from dodona_tablets.core.commit.chunk_waits import wait_for_chunk
from dodona_tablets.core.commit.conditions import admitted, with_locks
from dodona_tablets.core.commit.lines import leave_line, stands_in_line
from dodona_tablets.core.commit.presence import widened
from dodona_tablets.core.commit.silence import wait_failure
from dodona_tablets.core.commit.taking import check_part, take_locks
from dodona_tablets.core.records import AbortDecided, CommitDecided, CommittedHere, PreparedHere
from dodona_tablets.core.rows.chunks.chunk import ChunkAway
from dodona_tablets.core.tablet.locks import Lost
from dodona_tablets.core.tablet.transaction import NO_CONDITIONS, State, Transaction
from dodona_tablets.core.upkeep.caching import Caching, Need
from dodona_wire.cores.effects import AskTimestamps, SendToCell
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    SnapshotTooOld,
    TabletMoved,
    TransactionAborted,
    TransactionConflict,
)
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.cells import (
    Acknowledge,
    AskCoordinator,
    QueryStatus,
    Status,
    TellAbort,
    TellCommit,
)
from dodona_wire.messages.data import (
    CommitOne,
    Committed,
    ConditionalCommit,
    OutcomeUnknown,
    Prepare,
    Prepared,
    TabletModifications,
    ValidatedCommit,
)
from dodona_wire.messages.families import Reply
from dodona_wire.types import (
    MAX_TIMESTAMP,
    NO_OWNER,
    NULL_TIMESTAMP,
    CellId,
    Timestamp,
    TransactionId,
)

ROUTES_MAX = 8


class ParticipantEvent(enum.Enum):
    """An event from a client, the oracle or another cell, as the state table names it."""

    __hash__ = object.__hash__  # Enum's own hash is Python code: too slow for every commit

    PREPARE = "prepare, commit-one"
    TIMESTAMP = "timestamp p"
    QUERY_STATUS = "status, with poison"
    TELL_COMMIT = "commit at c"
    TELL_ABORT = "abort"
    TELL_FORGOTTEN = "abort, forgotten"


POISONED = Failure(TransactionAborted.kind, "The transaction was aborted before prepare. Rerun it.")
ABORTED = Failure(TransactionAborted.kind, "The transaction was aborted.")


class Participant:
    """The handler of participant events. A cell has one instance."""

    def __init__(self, cell: Cell, outbox: Outbox, caching: Caching) -> None:
        self._cell = cell
        self._outbox = outbox
        self._caching = caching

    # Events

    def prepare(self, route: Any, body: CommitOne | Prepare) -> None:
        """Handle a prepare or a one-cell commit. Only the number of participants differs."""
        if (text := why_never(body)) is not None:
            self._outbox.reply(route, Failure(InvalidRequest.kind, text))
            return
        _ON_PREPARE[self._cell.state_of(body.transaction)](self, route, body)

    def prepare_if(self, route: Any, body: ConditionalCommit) -> None:
        """Handle a request with conditions, or with the owner of early locks. These count at the
        first request. A repeated one gets the first answer (rule 11)."""
        self._prepare_under(route, body, NULL_TIMESTAMP)

    def prepare_validated(self, route: Any, body: ValidatedCommit) -> None:
        """Handle a request whose parts have reads."""
        request = body.request
        if not isinstance(request, ConditionalCommit):
            request = ConditionalCommit(request, ())
        self._prepare_under(route, request, body.since)

    def _prepare_under(self, route: Any, given: ConditionalCommit, since: Timestamp) -> None:
        request = given.request
        if (text := why_never(request, given.owner)) is not None:
            self._outbox.reply(route, Failure(InvalidRequest.kind, text))
        elif self._cell.state_of(request.transaction) is State.NONE:
            self._begin(route, request, given, since)
        else:
            self.prepare(route, request)

    def handle_timestamp(self, transaction: TransactionId, timestamp: Timestamp) -> None:
        """Handle a timestamp from the oracle."""
        _ON_TIMESTAMP[self._cell.state_of(transaction)](self, transaction, timestamp)

    def handle(self, event: ParticipantEvent, body: QueryStatus | TellCommit | TellAbort) -> None:
        """Handle a message from another cell."""
        TABLE[event][self._cell.state_of(body.transaction)](self, body)

    def _ignore(self, *_: Any) -> None:
        """Ignore the event (rule 10). A sender that needs an answer asks again."""

    # Prepare (rules 1 to 4, 9, 11, 12 and 20)

    def _begin(
        self,
        route: Any,
        body: CommitOne | Prepare,
        given: ConditionalCommit | None = None,
        since: Timestamp = NULL_TIMESTAMP,
    ) -> None:
        cell, transaction, modifications = self._cell, body.transaction, body.modifications
        if transaction <= cell.outcomes.watermark:
            self._outbox.reply(route, OutcomeUnknown(transaction))
            return
        start = Timestamp(transaction)
        participants: tuple[CellId, ...]
        if type(body) is Prepare:
            participants = body.participants
        else:
            participants = (cell.id,)
            if body.is_blind:  # type: ignore[union-attr]  # it is a CommitOne
                start = MAX_TIMESTAMP
        try:
            tablets = tuple([cell.tablet(part.tablet, part.revision) for part in modifications])
            are_several = len(participants) > 1
            if cell.injects_faults and are_several and cell.fault_at(FaultPoint.PRETEND_MOVED):
                raise TabletMoved("the tablet is about to be mounted elsewhere", cell=cell.id)
        except TabletMoved as error:  # no record: the client may try another cell
            self._outbox.reply(route, failure_of(error))
            return
        try:
            oldest = TransactionId(min(since or transaction, transaction))
            check_transaction(cell, oldest, participants)
            check_parts(cell, oldest, modifications, tablets)
            required = NO_CONDITIONS
            if given is not None:
                required = admitted(cell, modifications, tablets, given.conditions)
        except DodonaError as error:
            failure = failure_of(error)
            is_blind = start == MAX_TIMESTAMP
            cell.turn_away(transaction, participants, failure, is_blind=is_blind)
            self._outbox.reply(route, failure)
            return
        now_us = cell.now.instant_us
        begun = Transaction(transaction, start, participants, modifications, now_us, (route,))
        begun.conditions, begun.read_at = required, Timestamp(oldest)
        begun.owner = NO_OWNER if given is None else given.owner
        cell.begin(begun)
        cell.counts.refreshes += since != NULL_TIMESTAMP and begun.coordinator == cell.id
        self.lock(begun)

    def _answer_later(self, route: Any, body: CommitOne | Prepare) -> None:
        alive = self._cell.transactions[body.transaction]
        alive.routes = (*alive.routes[1 - ROUTES_MAX :], route)

    def _answer_prepared(self, route: Any, body: CommitOne | Prepare) -> None:
        alive = self._cell.transactions[body.transaction]
        self._outbox.reply(route, Prepared(alive.id, alive.prepare_timestamp))

    def _answer_committed(self, route: Any, body: CommitOne | Prepare) -> None:
        at = self._cell.commit_timestamp_of(body.transaction)
        self._outbox.reply(route, Committed(body.transaction, at))

    def _answer_refused(self, route: Any, body: CommitOne | Prepare) -> None:
        failure = self._cell.outcomes.get(body.transaction)
        assert isinstance(failure, Failure)
        self._outbox.reply(route, failure)

    # Locks

    def lock(self, transaction: Transaction, after: Need | None = None) -> None:
        """Check all locks, then take all locks, so that a refusal has nothing to undo. `after` is
        the need for chunks for which it has waited."""
        waits_for: Transaction | None = None
        parts: list[TabletModifications] = []
        try:
            if self._cell.early.requests and stands_in_line(self._cell, transaction):
                return
            for part in transaction.modifications:
                tablet = self._cell.tablets[part.tablet]
                parts.append(widened(tablet, part, transaction.start))
                waits_for = check_part(self._cell, transaction, tablet, parts[-1]) or waits_for
        except Lost as lost:
            if lost.conflict is not None:
                self._cell.counts.conflicts[lost.conflict] += 1
            self.refuse(transaction, lost.failure)
            return
        except ChunkAway as away:
            shared = self._cell, self._caching
            wait_for_chunk(*shared, transaction, away, self.retry, self.refuse, after)
            return
        if waits_for is not None:
            if self._cell.fault_at(FaultPoint.TIRE_OF_HOLDER):
                self.time_out(transaction)
            else:
                self._cell.wait(transaction, waits_for)
            return
        if transaction.conditions:
            parts = with_locks(self._cell, transaction.conditions, parts)
        transaction.modifications = tuple(parts)
        take_locks(self._cell, transaction)
        if transaction.owner:
            leave_line(self._cell, transaction)
        transaction.state = State.LOCKED
        transaction.since_us = self._cell.now.instant_us
        self.ask_timestamp(transaction)  # rule 1: only now

    def retry(self, transaction: Transaction, after: Need | None = None) -> None:
        """Check a waiting transaction again. Its tablets may have closed meanwhile."""
        try:
            for part in transaction.modifications:
                tablet = self._cell.tablet(part.tablet, part.revision)
                tablet.check_open(is_reader=part.only_reads)
        except TabletMoved as error:
            text = "The table was unmounted while the transaction waited."
            self.refuse(transaction, failure_of(TransactionAborted(text, **error.attributes)))
        except DodonaError as error:
            self.refuse(transaction, failure_of(error))
        else:
            self.lock(transaction, after)

    def ask_timestamp(self, transaction: Transaction) -> None:
        """Ask the oracle. If no answer comes, the cell asks again. The first answer counts."""
        cell = self._cell
        transaction.retry_at_us = cell.now.instant_us + cell.limits.repeat_after_ms * 1000
        self._outbox.send(AskTimestamps(transaction.id))
        if cell.injects_faults and cell.fault_at(FaultPoint.ASK_ORACLE_TWICE):
            self._outbox.send(AskTimestamps(transaction.id))

    def refuse(self, transaction: Transaction, failure: Failure) -> None:
        """Refuse a transaction that is not prepared, and answer its callers."""
        assert transaction.state in (State.NONE, State.WAITING, State.LOCKED)
        routes, asked = transaction.routes, transaction.asked_routes
        self._cell.finish_refused(transaction, failure)
        for route in (*routes, *asked):
            self._outbox.reply(route, failure)

    def time_out(self, transaction: Transaction) -> None:
        """Refuse a transaction whose bounded wait is over (rule 4)."""
        failure = wait_failure(self._cell, transaction)
        if failure.kind == TransactionConflict.kind:
            self._cell.counts.conflicts["timeout"] += 1
        self.refuse(transaction, failure)

    # The oracle's answer

    def _stamp(self, transaction: TransactionId, timestamp: Timestamp) -> None:
        """Take the prepare timestamp, or the commit timestamp of a one-cell transaction."""
        cell = self._cell
        alive = cell.transactions[transaction]
        if cell.injects_faults and cell.fault_at(FaultPoint.LOSE_PREPARE_TIMESTAMP):
            return
        if timestamp <= transaction:  # rule 3
            self.refuse(alive, failure_of(SnapshotTooOld("the start timestamp is in the future")))
            return
        reply: Reply
        if len(alive.participants) == 1:
            record = CommittedHere(transaction, timestamp, alive.modifications)
            self._outbox.append(record)
            cell.apply(alive, timestamp)
            cell.counts.blind += alive.start == MAX_TIMESTAMP
            cell.finish_committed(alive)
            reply = Committed(transaction, timestamp)
        else:
            alive.prepare_timestamp = timestamp
            alive.state = State.PREPARED
            alive.retry_at_us = cell.now.instant_us + self._retry_delay_us(alive)
            self._outbox.append(
                PreparedHere(transaction, timestamp, alive.participants, alive.modifications)
            )
            cell.wake(alive)
            reply = Prepared(transaction, timestamp)
        for route in alive.routes:
            self._outbox.reply(route, reply)

    def _retry_delay_us(self, transaction: Transaction) -> int:
        limits = self._cell.limits
        is_mine = transaction.coordinator == self._cell.id
        return (limits.recover_after_ms if is_mine else limits.ask_coordinator_after_ms) * 1000

    def ask_coordinator(self, alive: Transaction) -> None:
        """Ask for the outcome of a prepared transaction, again and again (rule 15)."""
        assert alive.state is State.PREPARED
        alive.retry_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        body = AskCoordinator(self._cell.id, alive.id)
        self._outbox.send(SendToCell(alive.coordinator, body))

    # Recovery's question

    def _status_poison(self, body: QueryStatus) -> None:
        """Refuse a transaction without a record, so that it never prepares (rule 14). At or below
        the watermark, record nothing (rule 12): it may be a commit that was forgotten."""
        if body.transaction > self._cell.outcomes.watermark:
            self._cell.refuse(body.transaction, POISONED)
        self._status_refused(body)

    def _status_give_up(self, body: QueryStatus) -> None:
        """Refuse a transaction that is not prepared (rule 14)."""
        self.refuse(self._cell.transactions[body.transaction], POISONED)
        self._status_refused(body)

    def _status_refused(self, body: QueryStatus) -> None:
        self._send_status(body, State.REFUSED, NULL_TIMESTAMP)

    def _status_prepared(self, body: QueryStatus) -> None:
        alive = self._cell.transactions[body.transaction]
        self._send_status(body, State.PREPARED, alive.prepare_timestamp)

    def _status_committed(self, body: QueryStatus) -> None:
        at = self._cell.commit_timestamp_of(body.transaction)
        self._send_status(body, State.COMMITTED, at)

    def _send_status(self, body: QueryStatus, state: State, at: Timestamp) -> None:
        status = Status(self._cell.id, body.transaction, state.value, at)
        self._outbox.send(SendToCell(body.source, status))

    # Decisions

    def _commit(self, body: TellCommit) -> None:
        cell, at = self._cell, body.timestamp
        alive = cell.transactions[body.transaction]
        if alive.coordinator != body.source:
            self._violation(body)
            return
        if not cell.may_be_issued(at):
            return  # this cell is behind, or it is a lie: the sender repeats it
        if at < alive.prepare_timestamp:  # a lie: readers here saw older rows
            cell.counts.note_protocol_violation(alive.id, body.source)
            at = alive.prepare_timestamp
        self._outbox.append(CommitDecided(alive.id, at))
        cell.apply(alive, at)
        cell.counts.participated += 1
        cell.finish_committed(alive)
        self._acknowledge(body)

    def _abort(self, body: TellAbort) -> None:
        alive = self._cell.transactions[body.transaction]
        if alive.coordinator != body.source:
            self._violation(body)
            return
        self._outbox.append(AbortDecided(alive.id))
        self._cell.finish_refused(alive, ABORTED)
        self._acknowledge(body)

    def abort_at_its_clients_word(self, alive: Transaction) -> None:
        """Abort. The client knows that a participant never will be prepared (rule 13)."""
        assert alive.state is State.PREPARED
        self._outbox.append(AbortDecided(alive.id))
        self._cell.finish_refused(alive, ABORTED)

    def _abort_unprepared(self, body: TellAbort) -> None:
        self.refuse(self._cell.transactions[body.transaction], ABORTED)
        self._acknowledge(body)

    def _acknowledge(self, body: TellCommit | TellAbort) -> None:
        if self._cell.fault_at(FaultPoint.FORGET_TO_ACKNOWLEDGE):
            return
        done = Acknowledge(self._cell.id, body.transaction)
        self._outbox.send(SendToCell(body.source, done))

    def _violation(self, body: TellCommit | TellAbort) -> None:
        """Count a decision, acknowledge it, and do not obey it. Its sender does not coordinate the
        transaction, or it contradicts an answer of this cell."""
        self._cell.counts.note_protocol_violation(body.transaction, body.source)
        self._acknowledge(body)


Handler = Callable[..., None]
"""A method of the table. All handlers of one event take the same arguments."""

TABLE: Final[dict[ParticipantEvent, dict[State, Handler]]] = {
    ParticipantEvent.PREPARE: {
        State.NONE: Participant._begin,
        State.WAITING: Participant._answer_later,
        State.LOCKED: Participant._answer_later,
        State.PREPARED: Participant._answer_prepared,
        State.COMMITTED: Participant._answer_committed,
        State.REFUSED: Participant._answer_refused,
    },
    ParticipantEvent.TIMESTAMP: {
        State.NONE: Participant._ignore,
        State.WAITING: Participant._ignore,
        State.LOCKED: Participant._stamp,
        State.PREPARED: Participant._ignore,
        State.COMMITTED: Participant._ignore,
        State.REFUSED: Participant._ignore,
    },
    ParticipantEvent.QUERY_STATUS: {
        State.NONE: Participant._status_poison,
        State.WAITING: Participant._status_give_up,
        State.LOCKED: Participant._status_give_up,
        State.PREPARED: Participant._status_prepared,
        State.COMMITTED: Participant._status_committed,
        State.REFUSED: Participant._status_refused,
    },
    ParticipantEvent.TELL_COMMIT: {
        State.NONE: Participant._acknowledge,
        State.WAITING: Participant._violation,
        State.LOCKED: Participant._violation,
        State.PREPARED: Participant._commit,
        State.COMMITTED: Participant._acknowledge,
        State.REFUSED: Participant._violation,
    },
    ParticipantEvent.TELL_ABORT: {
        State.NONE: Participant._acknowledge,
        State.WAITING: Participant._abort_unprepared,
        State.LOCKED: Participant._abort_unprepared,
        State.PREPARED: Participant._abort,
        State.COMMITTED: Participant._violation,
        State.REFUSED: Participant._acknowledge,
    },
    ParticipantEvent.TELL_FORGOTTEN: {
        State.NONE: Participant._ignore,
        State.WAITING: Participant._ignore,
        State.LOCKED: Participant._ignore,
        State.PREPARED: Participant._abort,
        State.COMMITTED: Participant._ignore,
        State.REFUSED: Participant._ignore,
    },
}
_ON_PREPARE: Final = TABLE[ParticipantEvent.PREPARE]
_ON_TIMESTAMP: Final = TABLE[ParticipantEvent.TIMESTAMP]
"""Two rows of the table that each commit needs: to look one up costs as much as a lock."""
