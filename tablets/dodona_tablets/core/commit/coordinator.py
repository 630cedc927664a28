"""Handle the coordinator's half of a commit, as a table: (event, state) → handler.

Owns: decisions, the announcement of a commit until all participants have acknowledged it, recovery,
and the answers to questions for an outcome. The coordinator of a transaction is its first
participant.
Source: `docs/explanation/commit-protocol.md`. `TABLE` is the second state table of that page, entry
by entry. Rule numbers below are the page's.
Invariant: time alone never decides. It only makes the coordinator ask.
"""

import enum
from collections.abc import Callable
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.admission import can_never_begin
from dodona_tablets.core.commit.participant import ABORTED, POISONED, ROUTES_MAX, Participant
from dodona_tablets.core.commit.silence import undecided_failure
from dodona_tablets.core.records import AbortDecided, AllAcknowledged, CommitDecided
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.cores.effects import SendToCell
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import (
    Acknowledge,
    AskCoordinator,
    QueryStatus,
    Status,
    TellAbort,
    TellCommit,
)
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    Committed,
    Decide,
    OutcomeUnknown,
    PeekOutcome,
    Undecided,
)
from dodona_wire.types import CellId, Timestamp

Question = Decide | AskOutcome | PeekOutcome


class CoordinatorEvent(enum.Enum):
    """An event from a client or a participant, as the state table names it."""

    __hash__ = object.__hash__  # Enum's own hash is Python code: too slow for every commit

    DECIDE_COMMIT = "decide commit"
    DECIDE_ABORT = "decide abort"
    ASK_OUTCOME = "outcome"
    PEEK_OUTCOME = "peek"
    ASK = "ask, from a participant"
    STATUS = "status, from a participant"
    ACKNOWLEDGE = "acknowledge"


class Coordinator:
    """The handler of coordinator events. A cell has one instance."""

    def __init__(self, cell: Cell, outbox: Outbox, participant: Participant) -> None:
        self._cell = cell
        self._outbox = outbox
        self._participant = participant

    # Events

    def answer(self, event: CoordinatorEvent, route: Any, body: Question) -> None:
        """Handle an event from a client. The client gets its answer now, or when there is an
        outcome."""
        TABLE[event][self._cell.state_of(body.transaction)](self, route, body)

    def handle(self, event: CoordinatorEvent, body: AskCoordinator | Status | Acknowledge) -> None:
        """Handle an event from a participant."""
        TABLE[event][self._cell.state_of(body.transaction)](self, body)

    def _ignore(self, *_: Any) -> None:
        """Ignore a message that is late, repeated or too early. If it was too early, it comes
        again."""

    # The client decides to commit. It has every Prepared answer, so its word is proof (rule 13).

    def _decide_commit(self, route: Any, body: Decide) -> None:
        cell, at = self._cell, body.commit_timestamp
        alive = cell.transactions[body.transaction]
        assert at is not None
        if alive.coordinator != cell.id or at < alive.prepare_timestamp:
            self._answer_violation(route, body)
            return
        if not cell.may_be_issued(at):  # not credible: ask the participants
            self._recover_and_answer(route, body)
            return
        self._commit(alive, at)
        self._outbox.reply(route, Committed(alive.id, at))

    def _confirm_forgotten(self, route: Any, body: Decide) -> None:
        """Confirm a commit that was forgotten, at or below the watermark. All participants
        acknowledged it before, so that a second announcement is harmless."""
        cell, transaction, at = self._cell, body.transaction, body.commit_timestamp
        assert at is not None
        if transaction > cell.outcomes.watermark:
            self._answer_violation(route, body)
            return
        for other in body.participants:
            if other != cell.id:
                self._send(other, TellCommit(cell.id, transaction, at))
        self._outbox.reply(route, Committed(transaction, at))

    def _answer_violation(self, route: Any, body: Decide) -> None:
        """Answer with an error. The model never reached this entry, so the client lied. The state
        of this cell is sound."""
        state = self._cell.state_of(body.transaction).value
        text = f"The decision to commit does not fit the transaction, which is {state} here."
        failure = Failure(InvalidRequest.kind, text, {"transaction": body.transaction})
        self._outbox.reply(route, failure)

    def _commit(self, alive: Transaction, at: Timestamp) -> None:
        cell = self._cell
        self._outbox.append(CommitDecided(alive.id, at))
        cell.apply(alive, at)
        cell.counts.coordinated += 1
        alive.unacknowledged = tuple([it for it in alive.participants if it != cell.id])
        self._finish_questions(alive, Committed(alive.id, at))
        cell.wake(alive)
        self.announce(alive)

    def announce(self, alive: Transaction) -> None:
        """Announce a commit to all participants that have not acknowledged it (rule 19). `Timeouts`
        repeats this."""
        alive.retry_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        body = TellCommit(self._cell.id, alive.id, alive.commit_timestamp)
        for other in alive.unacknowledged:
            if self._cell.fault_at(FaultPoint.ANNOUNCE_TO_SOME):
                continue
            self._send(other, body)
            if self._cell.fault_at(FaultPoint.ANNOUNCE_TWICE):
                self._send(other, body)

    def _count_acknowledgement(self, body: Acknowledge) -> None:
        """Note that a participant has the commit durably. After the last one, the record may be
        forgotten."""
        alive = self._cell.transactions.get(body.transaction)
        if alive is None or body.source not in alive.unacknowledged:
            return
        alive.unacknowledged = tuple([it for it in alive.unacknowledged if it != body.source])
        if not alive.unacknowledged:
            self._outbox.append(AllAcknowledged(alive.id))
            self._cell.finish_committed(alive)

    # The client aborts or asks (rule 16). A transaction that is not prepared never will be.

    def _answer_outcome(self, route: Any, body: Question) -> None:
        """Answer with the recorded outcome: committed, or aborted if it was refused."""
        transaction = body.transaction
        if self._cell.state_of(transaction) is State.REFUSED:
            self._outbox.reply(route, Aborted(transaction))
        else:
            at = self._cell.commit_timestamp_of(transaction)
            self._outbox.reply(route, Committed(transaction, at))

    def _abort_refused(self, route: Any, body: Decide) -> None:
        self._answer_outcome(route, body)
        self._tell_abort(body)

    def _poison(self, route: Any, body: Question) -> None:
        """Poison a transaction without a record. At or below the watermark, answer "unknown" and
        record nothing."""
        cell, transaction = self._cell, body.transaction
        if transaction <= cell.outcomes.watermark:
            self._outbox.reply(route, OutcomeUnknown(transaction))
            return
        participants = body.participants if type(body) is Decide else ()
        cell.turn_away(transaction, participants, POISONED, is_blind=False)
        self._outbox.reply(route, Aborted(transaction))
        if type(body) is Decide:
            self._tell_abort(body)

    def _give_up(self, route: Any, body: Question) -> None:
        alive = self._cell.transactions[body.transaction]
        self._participant.refuse(alive, ABORTED)
        self._tell_abort(alive)
        self._outbox.reply(route, Aborted(alive.id))

    def _abandon(self, route: Any, body: Decide) -> None:
        """Handle the abort of a prepared transaction: its client has reported no commit and never
        will (rule 13). A cell obeys a proof immediately. Participants obey it, too, because the
        coordinator may be silent. Without a proof, the coordinator asks the participants."""
        alive = self._cell.transactions[body.transaction]
        if not body.is_proved:
            alive.is_given_up = True
            self._recover_and_answer(route, body)
        elif alive.coordinator == self._cell.id:
            self._abort(alive)
            self._outbox.reply(route, Aborted(alive.id))
        else:
            self._participant.abort_at_its_clients_word(alive)
            self._outbox.reply(route, Aborted(alive.id))

    def _recover_and_answer(self, route: Any, body: Question) -> None:
        alive = self._cell.transactions[body.transaction]
        if alive.coordinator != self._cell.id:
            text = f"Another cell coordinates this transaction. Ask cell {alive.coordinator}."
            failure = Failure(InvalidRequest.kind, text, {"coordinator": alive.coordinator})
            self._outbox.reply(route, failure)
            return
        if not alive.asked_routes:
            alive.asked_at_us = self._cell.now.instant_us
        alive.asked_routes = (*alive.asked_routes[1 - ROUTES_MAX :], route)
        self.recover(alive)

    # Questions that change nothing

    def _peek_unheard(self, route: Any, body: PeekOutcome) -> None:
        """Answer a peek without a record: forgotten, never to begin here, or perhaps still to
        come."""
        cell, transaction = self._cell, body.transaction
        if transaction <= cell.outcomes.watermark:
            self._outbox.reply(route, OutcomeUnknown(transaction))
        elif can_never_begin(cell, transaction):
            self._outbox.reply(route, Aborted(transaction))
        else:
            self._outbox.reply(route, Undecided(transaction))

    def _peek_undecided(self, route: Any, body: PeekOutcome) -> None:
        alive = self._cell.transactions[body.transaction]
        self._outbox.reply(route, Undecided(alive.id, alive.coordinator))

    # A participant asks for the outcome (rule 15)

    def _ask_commit(self, body: AskCoordinator) -> None:
        at = self._cell.commit_timestamp_of(body.transaction)
        self._send(body.source, TellCommit(self._cell.id, body.transaction, at))

    def _ask_abort(self, body: AskCoordinator) -> None:
        self._send(body.source, TellAbort(self._cell.id, body.transaction))

    def _ask_poison(self, body: AskCoordinator) -> None:
        """Poison a transaction without a record, and answer abort. If the participant that asks is
        prepared, there was no commit."""
        transaction = body.transaction
        if transaction <= self._cell.outcomes.watermark:  # rule 12: record nothing there
            self._send(body.source, TellAbort(self._cell.id, transaction, is_forgotten=True))
            return
        participants = (self._cell.id, body.source)
        self._cell.turn_away(transaction, participants, POISONED, is_blind=False)
        self._ask_abort(body)

    def _ask_recover(self, body: AskCoordinator) -> None:
        """Recover a transaction that this cell coordinates. If another cell does, a client lied to
        the participant that asks. It asks again until this cell knows the outcome."""
        alive = self._cell.transactions[body.transaction]
        if alive.coordinator == self._cell.id:
            self.recover(alive)
            self._send(body.source, QueryStatus(self._cell.id, alive.id))  # a sign of life

    # Recovery: the client is slow or gone

    def recover_again(self, alive: Transaction) -> None:
        """Repeat the question to participants that have not answered. After
        `tell_silence_after_ms`, first answer the callers that asked for the outcome: the error
        names the silent cells. If the client abandoned the transaction, abort it instead."""
        waited_us = self._cell.now.instant_us - alive.asked_at_us
        if alive.asked_routes and waited_us >= self._cell.limits.tell_silence_after_ms * 1000:
            if alive.is_given_up:
                self._abort(alive)
                return
            failure = undecided_failure(self._cell, alive)
            for route in alive.asked_routes:
                self._outbox.reply(route, failure)
            alive.asked_routes = ()
        self.recover(alive)

    def recover(self, alive: Transaction) -> None:
        """Ask every participant (rule 14). A participant that is not prepared never will be."""
        assert alive.state is State.PREPARED
        alive.is_recovering = True
        alive.retry_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        heard = [cell for cell, _ in alive.statuses]
        for other in alive.participants:
            if other != self._cell.id and other not in heard:
                self._send(other, QueryStatus(self._cell.id, alive.id))

    def _count_status(self, body: Status) -> None:
        """Note the answer of one participant. If all are prepared, commit at the largest timestamp.
        If one is not prepared, it never will be: abort. (It can be committed only as a transaction
        of its own, after a client's lie.)"""
        alive = self._cell.transactions[body.transaction]
        if not alive.is_recovering:
            return
        if body.state != State.PREPARED.value:
            self._abort(alive)
            return
        others = [status for status in alive.statuses if status[0] != body.source]
        alive.statuses = (*others, (body.source, body.timestamp))
        if len(alive.statuses) == len(alive.participants) - 1:
            self._commit(alive, max(alive.prepare_timestamp, *[at for _, at in alive.statuses]))

    def _abort(self, alive: Transaction) -> None:
        asked = alive.asked_routes
        self._outbox.append(AbortDecided(alive.id))
        self._cell.finish_refused(alive, ABORTED)
        self._tell_abort(alive)
        for route in asked:
            self._outbox.reply(route, Aborted(alive.id))

    def _tell_abort(self, named: Transaction | Decide) -> None:
        """Announce an abort once. A participant that misses it asks. It gets its answer from
        memory, or by the fence."""
        transaction = named.transaction if isinstance(named, Decide) else named.id
        if named.participants[:1] != (self._cell.id,):
            return  # a client's proof went to every participant
        for other in named.participants:
            if other != self._cell.id:
                self._send(other, TellAbort(self._cell.id, transaction))

    def _finish_questions(self, alive: Transaction, reply: Committed) -> None:
        for route in alive.asked_routes:
            self._outbox.reply(route, reply)
        alive.asked_routes = ()

    def _send(self, cell: CellId, body: QueryStatus | TellCommit | TellAbort) -> None:
        self._outbox.send(SendToCell(cell, body))


Handler = Callable[..., None]
"""A method of the table. All handlers of one event take the same arguments."""

TABLE: Final[dict[CoordinatorEvent, dict[State, Handler]]] = {
    CoordinatorEvent.DECIDE_COMMIT: {
        State.NONE: Coordinator._confirm_forgotten,
        State.WAITING: Coordinator._answer_violation,
        State.LOCKED: Coordinator._answer_violation,
        State.PREPARED: Coordinator._decide_commit,
        State.COMMITTED: Coordinator._answer_outcome,
        State.REFUSED: Coordinator._answer_violation,
    },
    CoordinatorEvent.DECIDE_ABORT: {
        State.NONE: Coordinator._poison,
        State.WAITING: Coordinator._give_up,
        State.LOCKED: Coordinator._give_up,
        State.PREPARED: Coordinator._abandon,
        State.COMMITTED: Coordinator._answer_outcome,
        State.REFUSED: Coordinator._abort_refused,
    },
    CoordinatorEvent.ASK_OUTCOME: {
        State.NONE: Coordinator._poison,
        State.WAITING: Coordinator._give_up,
        State.LOCKED: Coordinator._give_up,
        State.PREPARED: Coordinator._recover_and_answer,
        State.COMMITTED: Coordinator._answer_outcome,
        State.REFUSED: Coordinator._answer_outcome,
    },
    CoordinatorEvent.PEEK_OUTCOME: {
        State.NONE: Coordinator._peek_unheard,
        State.WAITING: Coordinator._peek_undecided,
        State.LOCKED: Coordinator._peek_undecided,
        State.PREPARED: Coordinator._peek_undecided,
        State.COMMITTED: Coordinator._answer_outcome,
        State.REFUSED: Coordinator._answer_outcome,
    },
    CoordinatorEvent.ASK: {
        State.NONE: Coordinator._ask_poison,
        State.WAITING: Coordinator._ignore,
        State.LOCKED: Coordinator._ignore,
        State.PREPARED: Coordinator._ask_recover,
        State.COMMITTED: Coordinator._ask_commit,
        State.REFUSED: Coordinator._ask_abort,
    },
    CoordinatorEvent.STATUS: {
        State.NONE: Coordinator._ignore,
        State.WAITING: Coordinator._ignore,
        State.LOCKED: Coordinator._ignore,
        State.PREPARED: Coordinator._count_status,
        State.COMMITTED: Coordinator._ignore,
        State.REFUSED: Coordinator._ignore,
    },
    CoordinatorEvent.ACKNOWLEDGE: {
        State.NONE: Coordinator._ignore,
        State.WAITING: Coordinator._ignore,
        State.LOCKED: Coordinator._ignore,
        State.PREPARED: Coordinator._ignore,
        State.COMMITTED: Coordinator._count_acknowledgement,
        State.REFUSED: Coordinator._ignore,
    },
}
