"""Items 23 to 36: two-phase commit and recovery at the nodes. Those of clients are in `client`."""

from typing import Any

import pytest

from dodona.types import TIMESTAMP_COUNTER_BITS, Timestamp, TransactionId
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outcomes import Outcome, Outcomes
from dodona_tablets.core.commit import participant
from dodona_tablets.core.commit.coordinator import TABLE as COORDINATOR
from dodona_tablets.core.commit.coordinator import Coordinator, CoordinatorEvent
from dodona_tablets.core.commit.participant import ABORTED, POISONED, Participant, ParticipantEvent
from dodona_tablets.core.commit.participant import TABLE as PARTICIPANT
from dodona_tablets.core.commit.timeouts import Timeouts
from dodona_tablets.core.records import AbortDecided
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import Acknowledge
from dodona_wire.messages.data import Aborted
from negative.bug import BUSY, PlantedBug, Where

LONG_US = 1 << 60
DEDUPE_TICKS = (1 << TIMESTAMP_COUNTER_BITS) * 3 // 10
GUESS_US = 2_000_000

PATIENT = {"call_timeout_us": 5_000_000, "patience_ms": 10_000}
LONG_LIVED = {
    "transaction_life_s_max": 60,
    "session_life_us_mean": 0,
    "commit_death_rate": 0.0,
    "remount_us_mean": 0,
}
SLOW = {"slow_rate": 0.05, "slow_us_max": 5_000_000, "repeat_rate": 0.0, "loss_rate": 0.0}
REPEATING = {"slow_rate": 0.05, "slow_us_max": 2_000_000, "repeat_rate": 0.3}
LOSSY = {"loss_rate": 0.05}
SHORT_LIFE = {"transaction_life_s_max": 3}
LATE = {"repeat_rate": 0.3, "slow_us_max": 20_000_000, "slow_rate": 0.0}
"""Repeats come long after."""


def never_recover(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Coordinator, alive: Transaction) -> None:
        alive.retry_at_us = LONG_US

    patch.setattr(Coordinator, "recover", planted)


def answer_without_poison(patch: pytest.MonkeyPatch) -> None:
    """Recovery is told that nothing was prepared, and a prepare that is late still is let in."""
    row = PARTICIPANT[ParticipantEvent.QUERY_STATUS]
    for state in (State.NONE, State.WAITING, State.LOCKED):
        patch.setitem(row, state, Participant._status_refused)


def leave_no_tombstone(patch: pytest.MonkeyPatch) -> None:
    refuse = Cell.refuse

    def planted(self: Cell, transaction: TransactionId, failure: Failure) -> None:
        if failure not in (ABORTED, POISONED):
            refuse(self, transaction, failure)

    patch.setattr(Cell, "refuse", planted)


def abort_by_force(patch: pytest.MonkeyPatch) -> None:
    """A client's decision to abort stands above what is prepared, or recorded."""
    answer = Coordinator.answer

    def planted(self: Coordinator, event: CoordinatorEvent, route: Any, body: Any) -> None:
        if event is CoordinatorEvent.DECIDE_ABORT:
            alive = self._cell.transactions.get(body.transaction)
            if alive is not None and alive.state is State.PREPARED:
                self._abort(alive)
            if self._cell.state_of(body.transaction) is State.COMMITTED:
                self._outbox.reply(route, Aborted(body.transaction))
                return
        answer(self, event, route, body)

    patch.setattr(Coordinator, "answer", planted)


def always_recover_to_abort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "recover", Coordinator._abort)


def recover_at_another_timestamp(patch: pytest.MonkeyPatch) -> None:
    commit = Coordinator._commit

    def planted(self: Coordinator, alive: Transaction, at: Timestamp) -> None:
        if alive.is_recovering:
            at = max(at, self._cell.latest)
        commit(self, alive, at)

    patch.setattr(Coordinator, "_commit", planted)


def prepare_again(patch: pytest.MonkeyPatch) -> None:
    """A repeated request is taken for a new one."""

    patch.setattr(Participant, "prepare", Participant._begin)


def ask_only_once(patch: pytest.MonkeyPatch) -> None:
    ask = Participant.ask_coordinator

    def planted(self: Participant, alive: Transaction) -> None:
        ask(self, alive)
        alive.retry_at_us = LONG_US

    patch.setattr(Participant, "ask_coordinator", planted)


def begin_what_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A repeat that comes after its outcome was forgotten is taken for a new transaction."""
    prepare = Participant.prepare

    def planted(self: Participant, *asked: Any) -> None:
        outcomes = self._cell.outcomes
        watermark, outcomes.watermark = outcomes.watermark, Timestamp(0)
        prepare(self, *asked)
        outcomes.watermark = watermark

    patch.setattr(Participant, "prepare", planted)
    patch.setattr(participant, "check_transaction", lambda *_: None)


def forget_early(patch: pytest.MonkeyPatch) -> None:
    """Repeats are known by what was finished in the last 0.3 s, and not by the watermark."""
    newest: dict[Outcomes, TransactionId] = {}
    get, put = Outcomes.get, Outcomes.put

    def planted(self: Outcomes, transaction: TransactionId) -> Outcome | None:
        if newest.get(self, transaction) - transaction > DEDUPE_TICKS:
            return None
        return get(self, transaction)

    def planted_put(self: Outcomes, transaction: TransactionId, outcome: Outcome) -> None:
        newest[self] = max(newest.get(self, transaction), transaction)
        if planted(self, transaction) is not None or get(self, transaction) is None:
            put(self, transaction, outcome)

    patch.setattr(Outcomes, "get", planted)
    patch.setattr(Outcomes, "put", planted_put)


def give_up_by_time(patch: pytest.MonkeyPatch) -> None:
    """What stays prepared for so long was surely aborted."""
    repeat = Timeouts.repeat_questions

    def planted(self: Timeouts) -> None:
        cell = self._cell
        for alive in list(cell.transactions.values()):
            is_old = cell.now.instant_us - alive.since_us > GUESS_US
            if is_old and alive.state is State.PREPARED and alive.coordinator != cell.id:
                self._outbox.append(AbortDecided(alive.id))
                cell.finish_refused(alive, ABORTED)
        repeat(self)

    patch.setattr(Timeouts, "repeat_questions", planted)
    row = PARTICIPANT[ParticipantEvent.TELL_COMMIT]
    patch.setitem(row, State.REFUSED, Participant._acknowledge)


def remove_the_decision_early(patch: pytest.MonkeyPatch) -> None:
    """As soon as one participant has acknowledged it, nothing is known of a commit any more."""
    row = COORDINATOR[CoordinatorEvent.ACKNOWLEDGE]
    acknowledge = row[State.COMMITTED]

    def planted(self: Coordinator, body: Acknowledge) -> None:
        alive = self._cell.transactions.get(body.transaction)
        if alive is not None:
            alive.unacknowledged = (body.source,)
        acknowledge(self, body)
        for bucket in self._cell.outcomes._buckets.values():
            bucket.pop(body.transaction, None)

    patch.setitem(row, State.COMMITTED, planted)


BUGS = (
    PlantedBug(
        23,
        "no cell recovers a prepared transaction after its client has crashed",
        never_recover,
        ("LIVENESS",),
    ),
    PlantedBug(
        24,
        "recovery does not poison what is not prepared yet",
        answer_without_poison,
        ("DURABILITY", "GHOST", "ATOMICITY"),
        Where(seconds=30, changes=BUSY | PATIENT | LONG_LIVED, network=SLOW),
    ),
    PlantedBug(
        25,
        "an abort leaves no tombstone: a late prepare is let in",
        leave_no_tombstone,
        ("GHOST", "DURABILITY", "ATOMICITY", "LIVENESS", "CRASH"),
        Where(changes=BUSY, network=REPEATING),
    ),
    PlantedBug(
        26,
        "a decision to abort overrides what is prepared or recorded",
        abort_by_force,
        ("GHOST", "DURABILITY", "ATOMICITY"),
        Where(changes=BUSY | PATIENT, network=LOSSY),
    ),
    PlantedBug(
        26,
        "recovery always aborts",
        always_recover_to_abort,
        ("DURABILITY", "ATOMICITY"),
        Where(network=LOSSY),
    ),
    PlantedBug(
        29,
        "recovery commits at a timestamp of its own",
        recover_at_another_timestamp,
        ("DURABILITY", "ATOMICITY", "UNIQUE"),
        Where(network=LOSSY),
    ),
    PlantedBug(
        30,
        "a repeated prepare or commit is taken for a new one",
        prepare_again,
        ("CRASH", "GHOST", "DURABILITY", "ATOMICITY", "LIVENESS"),
    ),
    PlantedBug(
        31,
        "a prepared participant asks for the outcome only once",
        ask_only_once,
        ("LIVENESS",),
        Where(network=LOSSY),
    ),
    PlantedBug(
        32,
        "a repeat is taken for a new transaction once the outcome was forgotten",
        begin_what_is_forgotten,
        ("GHOST", "DURABILITY"),
        Where("blind", seconds=25, changes=SHORT_LIFE | BUSY, network=LATE),
    ),
    PlantedBug(
        33,
        "outcomes are remembered for a shorter time than a repeat may take",
        forget_early,
        ("GHOST", "DURABILITY", "ATOMICITY"),
        Where(changes=BUSY, network=REPEATING),
    ),
    PlantedBug(
        34,
        "a participant that stays prepared for some seconds guesses an abort",
        give_up_by_time,
        ("ATOMICITY", "DURABILITY"),
    ),
    PlantedBug(
        36,
        "a decision is removed when one participant has acknowledged it",
        remove_the_decision_early,
        ("ATOMICITY",),
        Where("blind", changes=BUSY | {"cell_count": 4}, network=LOSSY),
    ),
)
