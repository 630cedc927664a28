"""Watches the early locks of one cell: after each step, who has rows, who waits, and for whom.

Owns: the checks MUTEX, FIFO and NOLOSE. They follow the rules of the protocol, by what a look into
the cell shows, and use none of its judgments. What a step begins and ends within itself is not
seen. Owners of before a crash have ended.
"""

from typing import Final, NamedTuple

from dodona.types import Key, TabletId, TransactionId
from dodona_loadtest.checkers.violation import Promise, Violation
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.early_locks import LockRequest, Row
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.errors import TransactionConflict
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import ConditionalCommit
from dodona_wire.types import NO_OWNER, Owner

VIOLATIONS_MAX: Final = 20
"""Of one cell: one that breaks a promise breaks it after each step."""

Place = tuple[TabletId, Key]


class _Known(NamedTuple):
    request: LockRequest
    places: frozenset[Place]


class LineWatch:
    """Of one cell, over all of its restarts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[Owner, _Known] = {}
        self._ended: set[Owner] = set()
        self._owners: dict[TransactionId, Owner] = {}
        """Of transactions that were asked for and have no outcome yet."""
        self.violations: list[Violation] = []
        self.grant_count = 0

    def note_crash(self) -> None:
        """All early locks are gone."""
        self._ended.update(self._known)
        self._known.clear()
        self._owners.clear()

    def note_request(self, body: object) -> None:
        """A request has come, and is not handled yet."""
        if isinstance(body, ConditionalCommit) and body.owner != NO_OWNER:
            self._owners[body.request.transaction] = body.owner

    def look(self, cell: Cell) -> None:
        """A step is over."""
        if self._owners:
            self._check_refusals(cell)
        requests = cell.early.requests
        if not requests and not self._known:
            return
        self._take_over(requests)
        if cell.woken:
            return  # the step goes on at the next tick
        taken: dict[Place, Owner] = {}
        before: dict[Place, Owner] = {}
        for owner, known in self._known.items():
            earlier = [before[place] for place in known.places if place in before]
            if known.request.is_granted:
                self._check_grant(owner, known, taken, earlier)
            elif not earlier and not any(it in taken for it in known.places):
                self._check_turn(owner, known)
            for place in known.places:
                if not known.request.is_granted:
                    before.setdefault(place, owner)

    def _take_over(self, requests: dict[Owner, LockRequest]) -> None:
        """Know the requests of now, in the order in which they came."""
        for owner in [it for it in self._known if it not in requests]:
            self._end(owner)
        for owner, request in requests.items():
            known = self._known.get(owner)
            if known is not None and known.request is not request:
                self._end(owner)
                known = None
            if known is None:
                if owner in self._ended:
                    self._flag("MUTEX", f"owner {owner} had ended, and asks or has rows again")
                rows = request.rows
                places = frozenset([(it.tablet.assignment.tablet, it.key) for it in rows])
                self._known[owner] = _Known(request, places)

    def _end(self, owner: Owner) -> None:
        del self._known[owner]
        self._ended.add(owner)

    def _check_grant(
        self, owner: Owner, known: _Known, taken: dict[Place, Owner], earlier: list[Owner]
    ) -> None:
        for place in known.places:
            other = taken.setdefault(place, owner)
            if other != owner:
                self._flag("MUTEX", f"owners {other} and {owner} both have row {place}")
        for row in known.request.rows:
            holder = _holder(row)
            if holder is not None and holder.owner != owner:
                text = f"transaction {holder.id} holds row {row.key!r}, which {owner} locked early"
                self._flag("MUTEX", text)
        if earlier:
            self._flag("FIFO", f"owner {owner} has its rows before {earlier[0]}, which came first")

    def _check_turn(self, owner: Owner, known: _Known) -> None:
        if all(_holder(row) is None for row in known.request.rows):
            self._flag("FIFO", f"owner {owner} still waits, with nobody before it")

    def _check_refusals(self, cell: Cell) -> None:
        for transaction, owner in list(self._owners.items()):
            outcome = cell.outcomes.get(transaction)
            if outcome is None:
                continue
            del self._owners[transaction]
            request = cell.early.requests.get(owner)
            if request is None or not request.is_granted or not isinstance(outcome, Failure):
                continue
            if outcome.kind == TransactionConflict.kind:
                self._check_conflict(transaction, request, outcome)

    def _check_conflict(
        self, transaction: TransactionId, request: LockRequest, failure: Failure
    ) -> None:
        said = failure.attributes.get
        for row in request.rows:
            table, named = row.tablet.assignment.path, row.tablet.schema.named_key(row.key)
            if said("key") != named or said("table") not in (None, table):
                continue
            text = f"{transaction} of owner {request.owner} lost {named}: {failure.message}"
            self._flag("NOLOSE", text)

    def _flag(self, promise: Promise, text: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(promise, f"{self._name}: {text}"))


def _holder(row: Row) -> Transaction | None:
    """Who holds a row at commit time."""
    locks = row.tablet.locks.get(row.key)
    return locks.holders[0].transaction if locks is not None and locks.holders else None
