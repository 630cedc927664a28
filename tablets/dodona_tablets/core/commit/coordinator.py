"""The coordinator's half of commit, as a table: (event, state) → what to do.

Owns: decisions, their announcement until all have acknowledged, recovery, and what is answered to
whoever asks what became of a transaction. The coordinator is a transaction's first participant.
Source: `docs/explanation/commit-protocol.md`: `TABLE` is its second table, entry by entry; rule
numbers are its. Decides never by time alone: time only makes it ask.
"""

import enum
from collections.abc import Callable
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell
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
    """What clients and participants say, in the words of the document's table."""

    __hash__ = object.__hash__  # Enum's own is Python code: too slow for every commit

    DECIDE_COMMIT = "decide commit"
    DECIDE_ABORT = "decide abort"
    ASK_OUTCOME = "outcome"
    PEEK_OUTCOME = "peek"
    ASK = "ask, from a participant"
    STATUS = "status, from a participant"
    ACKNOWLEDGE = "acknowledge"


class Coordinator:
    """Handles coordinator events. One instance a cell."""

    def __init__(self, cell: Cell, participant: Participant) -> None:
        self._cell = cell
        self._participant = participant

    # Events

    def answer(self, event: CoordinatorEvent, route: Any, body: Question) -> None:
        """What a client says. It gets an answer, now or once there is an outcome."""
        TABLE[event][self._cell.state_of(body.transaction)](self, route, body)

    def handle(self, event: CoordinatorEvent, body: AskCoordinator | Status | Acknowledge) -> None:
        """What a participant says."""
        TABLE[event][self._cell.state_of(body.transaction)](self, body)

    def _ignore(self, *_: Any) -> None:
        """Late, or repeated, or too early: then it comes again."""

    # The client decides to commit. It holds every Prepared answer: its word is proof (rule 13)

    def _decide_commit(self, route: Any, body: Decide) -> None:
        cell, at = self._cell, body.commit_timestamp
        alive = cell.transactions[body.transaction]
        assert at is not None
        if alive.coordinator != cell.id or at < alive.prepare_timestamp:
            self._answer_violation(route, body)
            return
        if not cell.may_be_issued(at):  # hardly true: hear it from the others
            self._recover_and_answer(route, body)
            return
        self._commit(alive, at)
        cell.reply(route, Committed(alive.id, at))

    def _confirm_forgotten(self, route: Any, body: Decide) -> None:
        """It was forgotten, so all had acknowledged; telling them again is harmless."""
        cell, transaction, at = self._cell, body.transaction, body.commit_timestamp
        assert at is not None
        if transaction > cell.outcomes.watermark:
            self._answer_violation(route, body)
            return
        for other in body.participants:
            if other != cell.id:
                self._send(other, TellCommit(cell.id, transaction, at))
        cell.reply(route, Committed(transaction, at))

    def _answer_violation(self, route: Any, body: Decide) -> None:
        """The model never came here: it is a client's lie, not our broken state."""
        state = self._cell.state_of(body.transaction).value
        text = f"a decision to commit that does not fit the transaction's state ({state})"
        failure = Failure(InvalidRequest.kind, text, {"transaction": body.transaction})
        self._cell.reply(route, failure)

    def _commit(self, alive: Transaction, at: Timestamp) -> None:
        cell = self._cell
        cell.append(CommitDecided(alive.id, at))
        cell.apply(alive, at)
        cell.counts.coordinated += 1
        alive.unacknowledged = tuple([it for it in alive.participants if it != cell.id])
        self._finish_questions(alive, Committed(alive.id, at))
        cell.wake(alive)
        self.announce(alive)

    def announce(self, alive: Transaction) -> None:
        """Rule 19: tell whoever has not acknowledged; again later (see `Timeouts`)."""
        alive.retry_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        body = TellCommit(self._cell.id, alive.id, alive.commit_timestamp)
        for other in alive.unacknowledged:
            if self._cell.fault_at(FaultPoint.ANNOUNCE_TO_SOME):
                continue
            self._send(other, body)
            if self._cell.fault_at(FaultPoint.ANNOUNCE_TWICE):
                self._send(other, body)

    def _count_acknowledgement(self, body: Acknowledge) -> None:
        """A participant has the commit durably. After the last one the record may be forgotten."""
        alive = self._cell.transactions.get(body.transaction)
        if alive is None or body.source not in alive.unacknowledged:
            return
        alive.unacknowledged = tuple([it for it in alive.unacknowledged if it != body.source])
        if not alive.unacknowledged:
            self._cell.append(AllAcknowledged(alive.id))
            self._cell.finish_committed(alive)

    # The client gives up, or asks: rule 16. Whatever is not prepared never will be

    def _answer_outcome(self, route: Any, body: Question) -> None:
        """Committed, or refused: as it is recorded."""
        transaction = body.transaction
        if self._cell.state_of(transaction) is State.REFUSED:
            self._cell.reply(route, Aborted(transaction))
        else:
            at = self._cell.commit_timestamp_of(transaction)
            self._cell.reply(route, Committed(transaction, at))

    def _abort_refused(self, route: Any, body: Decide) -> None:
        self._answer_outcome(route, body)
        self._tell_abort(body)

    def _poison(self, route: Any, body: Question) -> None:
        """Not heard of above the watermark: poisoned. Below it: unknown for ever."""
        cell, transaction = self._cell, body.transaction
        if transaction <= cell.outcomes.watermark:
            cell.reply(route, OutcomeUnknown(transaction))
            return
        participants = body.participants if type(body) is Decide else ()
        cell.turn_away(transaction, participants, POISONED, is_blind=False)
        cell.reply(route, Aborted(transaction))
        if type(body) is Decide:
            self._tell_abort(body)

    def _give_up(self, route: Any, body: Question) -> None:
        alive = self._cell.transactions[body.transaction]
        self._participant.refuse(alive, ABORTED)
        self._tell_abort(alive)
        self._cell.reply(route, Aborted(alive.id))

    def _abandon(self, route: Any, body: Decide) -> None:
        """The client has reported no commit and never will (rule 13). What it can prove is obeyed
        at once, by other participants too: their coordinator may be silent."""
        alive = self._cell.transactions[body.transaction]
        if not body.is_proved:
            alive.is_given_up = True
            self._recover_and_answer(route, body)
        elif alive.coordinator == self._cell.id:
            self._abort(alive)
            self._cell.reply(route, Aborted(alive.id))
        else:
            self._participant.abort_at_its_clients_word(alive)
            self._cell.reply(route, Aborted(alive.id))

    def _recover_and_answer(self, route: Any, body: Question) -> None:
        alive = self._cell.transactions[body.transaction]
        if alive.coordinator != self._cell.id:
            text = "another cell coordinates this transaction: ask it"
            failure = Failure(InvalidRequest.kind, text, {"coordinator": alive.coordinator})
            self._cell.reply(route, failure)
            return
        if not alive.asked_routes:
            alive.asked_at_us = self._cell.now.instant_us
        alive.asked_routes = (*alive.asked_routes[1 - ROUTES_MAX :], route)
        self.recover(alive)

    # Whoever only looks

    def _peek_unheard(self, route: Any, body: PeekOutcome) -> None:
        """Forgotten, or too late to begin here, or perhaps about to."""
        cell, transaction = self._cell, body.transaction
        if transaction <= cell.outcomes.watermark:
            cell.reply(route, OutcomeUnknown(transaction))
        elif can_never_begin(cell, transaction):
            cell.reply(route, Aborted(transaction))
        else:
            cell.reply(route, Undecided(transaction))

    def _peek_undecided(self, route: Any, body: PeekOutcome) -> None:
        alive = self._cell.transactions[body.transaction]
        self._cell.reply(route, Undecided(alive.id, alive.coordinator))

    # A participant asks: rule 15, never silent

    def _ask_commit(self, body: AskCoordinator) -> None:
        at = self._cell.commit_timestamp_of(body.transaction)
        self._send(body.source, TellCommit(self._cell.id, body.transaction, at))

    def _ask_abort(self, body: AskCoordinator) -> None:
        self._send(body.source, TellAbort(self._cell.id, body.transaction))

    def _ask_poison(self, body: AskCoordinator) -> None:
        """If the asker is prepared, this was no commit: it aborts."""
        transaction = body.transaction
        if transaction <= self._cell.outcomes.watermark:  # rule 12: nothing is recorded there
            self._send(body.source, TellAbort(self._cell.id, transaction, is_forgotten=True))
            return
        participants = (self._cell.id, body.source)
        self._cell.turn_away(transaction, participants, POISONED, is_blind=False)
        self._ask_abort(body)

    def _ask_recover(self, body: AskCoordinator) -> None:
        """If another decides it, whoever asks was lied to, and asks again until we know."""
        alive = self._cell.transactions[body.transaction]
        if alive.coordinator == self._cell.id:
            self.recover(alive)
            self._send(body.source, QueryStatus(self._cell.id, alive.id))  # it hears that we live

    # Recovery: the client is slow or gone

    def recover_again(self, alive: Transaction) -> None:
        """Somebody has not answered. Whoever asks for the outcome hears who; if the client has
        given up on it, it is aborted."""
        waited_us = self._cell.now.instant_us - alive.asked_at_us
        if alive.asked_routes and waited_us >= self._cell.limits.tell_silence_after_ms * 1000:
            if alive.is_given_up:
                self._abort(alive)
                return
            failure = undecided_failure(self._cell, alive)
            for route in alive.asked_routes:
                self._cell.reply(route, failure)
            alive.asked_routes = ()
        self.recover(alive)

    def recover(self, alive: Transaction) -> None:
        """Rule 14: ask every participant; whoever is not prepared never will be."""
        assert alive.state is State.PREPARED
        alive.is_recovering = True
        alive.retry_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        heard = [cell for cell, _ in alive.statuses]
        for other in alive.participants:
            if other != self._cell.id and other not in heard:
                self._send(other, QueryStatus(self._cell.id, alive.id))

    def _count_status(self, body: Status) -> None:
        """One participant's answer. All prepared → commit at the largest; one is not, and never
        will be → abort. (Committed it can only be as a transaction of its own, by a client's lie.)
        """
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
        self._cell.append(AbortDecided(alive.id))
        self._cell.finish_refused(alive, ABORTED)
        self._tell_abort(alive)
        for route in asked:
            self._cell.reply(route, Aborted(alive.id))

    def _tell_abort(self, named: Transaction | Decide) -> None:
        """Once: a participant that misses it asks, and is answered from memory or the fence."""
        transaction = named.transaction if isinstance(named, Decide) else named.id
        if named.participants[:1] != (self._cell.id,):
            return  # a client's proof went to every participant
        for other in named.participants:
            if other != self._cell.id:
                self._send(other, TellAbort(self._cell.id, transaction))

    def _finish_questions(self, alive: Transaction, reply: Committed) -> None:
        for route in alive.asked_routes:
            self._cell.reply(route, reply)
        alive.asked_routes = ()

    def _send(self, cell: CellId, body: QueryStatus | TellCommit | TellAbort) -> None:
        self._cell.effects.append(SendToCell(cell, body))


Handler = Callable[..., None]
"""Those of one event take the same arguments."""

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
