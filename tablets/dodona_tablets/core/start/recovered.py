"""List what a cell's start found undecided, and the outcomes since: for operators.

Owns: the list, which has what the start found, `LISTED_MAX` entries at most. It looks at the cell
when time passes and changes nothing. So commits pay nothing for it.
"""

from typing import Final

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.cores.recoveries import TakenOver, TakenOverOutcome, TakenOverState
from dodona_wire.types import LoadId

LISTED_MAX: Final = 200

_FOUND: Final[dict[State, TakenOverState]] = {
    State.PREPARED: "prepared",
    State.COMMITTED: "committed",
}


class Recovered:
    """What one cell found at its start, and the outcomes since."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._began_us = 0
        self._open: list[int] = []
        """The places of the transactions without an outcome."""
        self.transactions: list[TakenOver] = []
        self.transaction_count = 0
        self.loads: tuple[LoadId, ...] = ()
        self.served_after_ms: int | None = None

    def begin(self) -> None:
        """Make the list, after everything was replayed."""
        cell = self._cell
        self._began_us = cell.now.instant_us
        found = [cell.transactions[it] for it in sorted(cell.transactions)]
        self.transaction_count = len(found)
        self.transactions = [_taken_over(it) for it in found[:LISTED_MAX]]
        self._open = list(range(len(self.transactions)))
        self.loads = tuple(cell.loads.open)[:LISTED_MAX]

    def tick(self, *, is_serving: bool) -> None:
        """Note the decisions since the last tick."""
        if is_serving and self.served_after_ms is None:
            self.served_after_ms = self._age_ms()
        still_open = []
        for place in self._open:
            known = self.transactions[place]
            outcome = self._outcome_of(known)
            if outcome is None:
                still_open.append(place)
                continue
            at = None
            if outcome in ("committed", "delivered"):
                at = self._cell.commit_timestamp_of(known.transaction)
            self.transactions[place] = replace(
                known, outcome=outcome, timestamp=at, after_ms=self._age_ms()
            )
        self._open = still_open

    @property
    def is_quiet(self) -> bool:
        """Whether no more outcomes will be noted."""
        return self.served_after_ms is not None and not self._open

    def _age_ms(self) -> int:
        return (self._cell.now.instant_us - self._began_us) // 1000

    def _outcome_of(self, known: TakenOver) -> TakenOverOutcome | None:
        state = self._cell.state_of(known.transaction)
        if state is State.REFUSED:
            return "aborted"
        if state is State.NONE:
            return "forgotten"
        if state is not State.COMMITTED:
            return None
        if known.found == "prepared":
            return "committed"
        return None if known.transaction in self._cell.transactions else "delivered"


def _taken_over(found: Transaction) -> TakenOver:
    return TakenOver(found.id, found.coordinator, found.participants, _FOUND[found.state])
