"""The coordinator's half of commit, as a table: (event, state) → what to do.

Owns: decisions, their announcement until all have acknowledged, and recovery. The coordinator is
a transaction's first participant. Source: `docs/commit-protocol.md`; rule numbers are its.
Decides never by time alone: time only makes it ask.
"""

import enum
from collections.abc import Callable
from typing import Any

from dodona._core.effects import Append, SendToCell
from dodona._core.messages import (
    Aborted,
    Committed,
    Decide,
    Failure,
    OutcomeUnknown,
    QueryStatus,
    Status,
    TellAbort,
    TellCommit,
)
from dodona._core.mischief import Point
from dodona.errors import InvalidRequest
from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.cell import Cell
from dodona_tablets.core.participant import ABORTED, POISONED, ROUTES_MAX, Participant
from dodona_tablets.core.records import AbortDecided, AllAcknowledged, CommitDecided
from dodona_tablets.core.transaction import State, Transaction


class Question(enum.Enum):
    OUTCOME = "outcome"
    ASK = "ask"


class Coordinator:
    """Handles coordinator events. One instance a cell."""

    def __init__(self, cell: Cell, participant: Participant) -> None:
        self._cell = cell
        self._participant = participant

    # The client decides to commit

    def decide_commit(self, route: Any, request: Decide, at: Timestamp) -> None:
        """The client holds every Prepared answer: its word is proof (rule 13)."""
        cell, transaction = self._cell, request.transaction
        state = cell.state_of(transaction)
        if state is State.PREPARED:
            alive = cell.transactions[transaction]
            if alive.coordinator != cell.id or at < alive.prepare_timestamp:
                cell.reply(route, _nonsense(transaction, state))
                return
            if not cell.may_be_issued(at):  # hardly true: hear it from the others
                self._recover_answer(route, transaction)
                return
            self._commit(alive, at)
            cell.reply(route, Committed(transaction, at))
        elif state is State.COMMITTED:
            cell.reply(route, self._outcome_reply(transaction))
        elif state is State.NONE and transaction <= cell.outcomes.watermark:
            # It was forgotten, so all had acknowledged; telling them again is harmless.
            for other in request.participants:
                if other != cell.id:
                    self._send(other, TellCommit(cell.id, transaction, at))
            cell.reply(route, Committed(transaction, at))
        else:
            # The model never came here: such a decision is a client's lie, not our broken state.
            cell.reply(route, _nonsense(transaction, state))

    def _commit(self, alive: Transaction, at: Timestamp) -> None:
        cell = self._cell
        cell.effects.append(Append(CommitDecided(alive.id, at)))
        cell.apply(alive, at)
        alive.unacknowledged = tuple([it for it in alive.participants if it != cell.id])
        self._finish_questions(alive, Committed(alive.id, at))
        cell.wake(alive)
        self.announce(alive)

    def announce(self, alive: Transaction) -> None:
        """Rule 19: tell whoever has not acknowledged; again after a while (see `nag`)."""
        alive.nag_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        body = TellCommit(self._cell.id, alive.id, alive.commit_timestamp)
        for other in alive.unacknowledged:
            if self._cell.mischief(Point.ANNOUNCE_TO_SOME):
                continue
            self._send(other, body)
            if self._cell.mischief(Point.ANNOUNCE_TWICE):
                self._send(other, body)

    def acknowledge(self, source: CellId, transaction: TransactionId) -> None:
        """A participant has the commit durably. After the last one the record may be forgotten."""
        alive = self._cell.transactions.get(transaction)
        if alive is None or alive.state is not State.COMMITTED:
            return
        if source in alive.unacknowledged:
            alive.unacknowledged = tuple([it for it in alive.unacknowledged if it != source])
            if not alive.unacknowledged:
                self._cell.effects.append(Append(AllAcknowledged(transaction)))
                self._cell.finish_committed(alive)

    # Questions: the client's decide(abort) and outcome, and a participant's ask

    def decide_abort(self, route: Any, request: Decide) -> None:
        """The client gave up: settle the outcome, and if it is abort, let the others go at once."""
        cell, transaction = self._cell, request.transaction
        self.question(Question.OUTCOME, route, transaction)
        if cell.state_of(transaction) is State.REFUSED:
            for other in request.participants:
                if other != cell.id:
                    self._send(other, TellAbort(cell.id, transaction))

    def question(self, question: Question, asker: Any, transaction: TransactionId) -> None:
        """`asker` is a route for OUTCOME and a cell for ASK."""
        TABLE[question, self._cell.state_of(transaction)](self, asker, transaction)

    def _outcome_reply(self, transaction: TransactionId) -> Committed | Aborted:
        alive = self._cell.transactions.get(transaction)
        outcome = alive.commit_timestamp if alive else self._cell.outcomes.get(transaction)
        assert outcome is not None
        if isinstance(outcome, Failure):
            return Aborted(transaction)
        return Committed(transaction, outcome)

    def _answer(self, route: Any, transaction: TransactionId) -> None:
        self._cell.reply(route, self._outcome_reply(transaction))

    def _poison_answer(self, route: Any, transaction: TransactionId) -> None:
        """Rule 16: unknown above the watermark is poisoned, below it is unknown for ever."""
        if transaction <= self._cell.outcomes.watermark:
            self._cell.reply(route, OutcomeUnknown(transaction))
            return
        self._cell.refuse(transaction, POISONED)
        self._cell.reply(route, Aborted(transaction))

    def _give_up_answer(self, route: Any, transaction: TransactionId) -> None:
        alive = self._cell.transactions[transaction]
        self._participant.refuse(alive, ABORTED)
        self._tell_abort(alive)
        self._cell.reply(route, Aborted(transaction))

    def _recover_answer(self, route: Any, transaction: TransactionId) -> None:
        alive = self._cell.transactions[transaction]
        if alive.coordinator != self._cell.id:
            self._cell.reply(
                route,
                Failure(
                    InvalidRequest.kind,
                    "another cell coordinates this transaction: ask it",
                    {"coordinator": alive.coordinator},
                ),
            )
            return
        alive.asked_routes = (*alive.asked_routes[1 - ROUTES_MAX :], route)
        self.recover(alive)

    def _ask_commit(self, asker: CellId, transaction: TransactionId) -> None:
        reply = self._outcome_reply(transaction)
        assert isinstance(reply, Committed)
        self._send(asker, TellCommit(self._cell.id, transaction, reply.timestamp))

    def _ask_abort(self, asker: CellId, transaction: TransactionId) -> None:
        self._send(asker, TellAbort(self._cell.id, transaction))

    def _ask_poison(self, asker: CellId, transaction: TransactionId) -> None:
        """Rule 15: never silent. If the asker is prepared, this was no commit: it aborts."""
        if transaction <= self._cell.outcomes.watermark:  # rule 12: nothing is recorded there
            self._send(asker, TellAbort(self._cell.id, transaction, is_forgotten=True))
            return
        self._cell.refuse(transaction, POISONED)
        self._ask_abort(asker, transaction)

    def _ask_ignore(self, asker: CellId, transaction: TransactionId) -> None:
        """Locked only: our prepare is under way, and the asker will ask again."""

    def _ask_recover(self, asker: CellId, transaction: TransactionId) -> None:
        """If another decides it, whoever asks was lied to, and asks again until we know."""
        alive = self._cell.transactions[transaction]
        if alive.coordinator == self._cell.id:
            self.recover(alive)

    # Recovery: the client is slow or gone

    def recover(self, alive: Transaction) -> None:
        """Rule 14: ask every participant; whoever is not prepared never will be."""
        assert alive.state is State.PREPARED
        alive.is_recovering = True
        alive.nag_at_us = self._cell.now.instant_us + self._cell.limits.repeat_after_ms * 1000
        heard = [cell for cell, _ in alive.statuses]
        for other in alive.participants:
            if other != self._cell.id and other not in heard:
                self._send(other, QueryStatus(self._cell.id, alive.id))

    def status(self, body: Status) -> None:
        """One participant's answer. All prepared → commit at the largest; one is not, and never
        will be → abort. (Committed it can only be as a transaction of its own, by a client's lie.)
        """
        alive = self._cell.transactions.get(body.transaction)
        if alive is None or alive.state is not State.PREPARED or not alive.is_recovering:
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
        self._cell.effects.append(Append(AbortDecided(alive.id)))
        self._cell.finish_refused(alive, ABORTED)
        self._tell_abort(alive)
        for route in asked:
            self._cell.reply(route, Aborted(alive.id))

    def _tell_abort(self, alive: Transaction) -> None:
        """Once: a participant that misses it asks, and is answered from memory or the fence."""
        for other in alive.participants:
            if other != self._cell.id:
                self._send(other, TellAbort(self._cell.id, alive.id))

    def _finish_questions(self, alive: Transaction, reply: Committed) -> None:
        for route in alive.asked_routes:
            self._cell.reply(route, reply)
        alive.asked_routes = ()

    def _send(self, cell: CellId, body: QueryStatus | TellCommit | TellAbort) -> None:
        self._cell.effects.append(SendToCell(cell, body))


Handler = Callable[[Coordinator, Any, TransactionId], None]


TABLE: dict[tuple[Question, State], Handler] = {
    (Question.OUTCOME, State.NONE): Coordinator._poison_answer,
    (Question.OUTCOME, State.WAITING): Coordinator._give_up_answer,
    (Question.OUTCOME, State.LOCKED): Coordinator._give_up_answer,
    (Question.OUTCOME, State.PREPARED): Coordinator._recover_answer,
    (Question.OUTCOME, State.COMMITTED): Coordinator._answer,
    (Question.OUTCOME, State.REFUSED): Coordinator._answer,
    (Question.ASK, State.NONE): Coordinator._ask_poison,
    (Question.ASK, State.WAITING): Coordinator._ask_ignore,
    (Question.ASK, State.LOCKED): Coordinator._ask_ignore,
    (Question.ASK, State.PREPARED): Coordinator._ask_recover,
    (Question.ASK, State.COMMITTED): Coordinator._ask_commit,
    (Question.ASK, State.REFUSED): Coordinator._ask_abort,
}


def _nonsense(transaction: TransactionId, state: State) -> Failure:
    return Failure(
        InvalidRequest.kind,
        f"a decision to commit that does not fit the transaction's state ({state.value})",
        {"transaction": transaction},
    )
