"""Repeat questions, end waits and forget outcomes as time passes.

Owns: when a transaction asks again for an answer, when its wait ends, and the forget watermark.
Time ends no prepared transaction. Must not import: the node, whose tick calls this module.
"""

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.coordinator import Coordinator
from dodona_tablets.core.commit.participant import Participant
from dodona_tablets.core.commit.silence import is_write_over, oracle_failure, oracle_wait_us_max
from dodona_tablets.core.records import WatermarkRaised
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.types import TIMESTAMP_COUNTER_BITS, Timestamp, TransactionId


class Timeouts:
    """The timeouts of transactions. A cell has one instance."""

    def __init__(
        self, cell: Cell, outbox: Outbox, participant: Participant, coordinator: Coordinator
    ) -> None:
        self._cell = cell
        self._outbox = outbox
        self._participant = participant
        self._coordinator = coordinator
        self._watermark_at_us = 0

    def repeat_questions(self) -> None:
        """End the wait of each transaction in progress, or ask again, if it is time."""
        now_us = self._cell.now.instant_us
        for alive in list(self._cell.transactions.values()):
            if alive.waiters:  # some may have ended their wait
                alive.waiters = [it for it in alive.waiters if it.is_waiting]
                if alive.waiters and self._cell.fault_at(FaultPoint.WAKE_FOR_NOTHING):
                    self._cell.wake(alive)
            waited_us = now_us - alive.since_us
            if alive.state is State.WAITING:
                if is_write_over(self._cell, alive, waited_us):
                    self._participant.time_out(alive)
            elif alive.state is State.LOCKED:
                is_over = waited_us > oracle_wait_us_max(self._cell)
                if is_over or self._cell.fault_at(FaultPoint.GIVE_UP_ON_ORACLE):
                    self._participant.refuse(alive, oracle_failure(self._cell, alive))
                elif now_us >= alive.retry_at_us:
                    self._participant.ask_timestamp(alive)
            elif now_us >= alive.retry_at_us:
                self._ask_about(alive)

    def _ask_about(self, alive: Transaction) -> None:
        if alive.state is State.COMMITTED:
            self._coordinator.announce(alive)
        elif alive.coordinator == self._cell.id:
            self._coordinator.recover_again(alive)
        else:
            self._participant.ask_coordinator(alive)

    def maybe_ask_at_once(self, transaction: TransactionId) -> None:
        """Ask about a transaction that was prepared just now, if a fault point says so."""
        alive = self._cell.transactions.get(transaction)
        if alive is None or alive.state is not State.PREPARED:
            return
        if alive.coordinator != self._cell.id:
            if self._cell.fault_at(FaultPoint.ASK_COORDINATOR_AT_ONCE):
                self._participant.ask_coordinator(alive)
        elif self._cell.fault_at(FaultPoint.RECOVER_AT_ONCE):
            self._coordinator.recover(alive)

    def raise_watermark(self) -> None:
        """Raise the watermark by oracle time (rule 12). It stays below every transaction that could
        still be alive."""
        cell, limits = self._cell, self._cell.limits
        is_early = cell.fault_at(FaultPoint.RAISE_WATERMARK_EARLY)
        if cell.now.instant_us < self._watermark_at_us and not is_early:
            return
        self._watermark_at_us = cell.now.instant_us + limits.watermark_period_ms * 1000
        seconds = limits.transaction_life_s_max + limits.forget_slack_s
        watermark = Timestamp(cell.latest - (seconds << TIMESTAMP_COUNTER_BITS))
        is_worth_it = is_early or cell.outcomes.has_bucket_below(watermark)
        if watermark > cell.outcomes.watermark and is_worth_it:
            cell.outcomes.raise_watermark(watermark)
            self._outbox.append(WatermarkRaised(watermark))
