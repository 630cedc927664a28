"""Bugs of conditions: what a commit requires of rows is checked too early, or is not held."""

from pathlib import Path
from typing import Any

import pytest

from dodona_loadtest.checkers.violation import Promise
from dodona_tablets.core.commit import conditions
from dodona_tablets.core.commit.conditions import check_conditions
from dodona_tablets.core.commit.participant import Participant
from dodona_tablets.core.commit.taking import take_locks
from dodona_tablets.core.tablet.lock_set import LockSet
from dodona_tablets.core.tablet.locks import Lost
from dodona_tablets.core.tablet.transaction import State, Transaction
from negative.bug import BUSY, CheckedBug, Plant, PlantedBug, Where
from unit.tablets.cells import Bench, update
from unit.tablets.test_conditions import (
    A,
    expect,
    test_the_row_of_a_condition_stays_until_the_outcome,
)

FENCING = Where("fencing", changes=BUSY)
PARTICIPANT = "dodona_tablets.core.commit.participant"
HOLDER = 2
"""The mask of the lock group of the columns that a slot is claimed by."""


def ignore_conditions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(f"{PARTICIPANT}.admitted", lambda *_: {})


def check_at_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    def check(transaction: Any, tablet: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(conditions, "MAX_TIMESTAMP", transaction.start)
            return check_conditions(transaction, tablet)

    patch.setattr("dodona_tablets.core.commit.taking.check_conditions", check)


def pass_holders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conditions, "check_holders", lambda *_: None)


def hold_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(f"{PARTICIPANT}.with_locks", lambda cell, given, parts: parts)


def let_go(transaction: Transaction) -> None:
    for _, _, holder in transaction.held:
        if holder.lock_type == "shared_weak":
            holder.locks = LockSet()


def forget_at_replay(patch: pytest.MonkeyPatch) -> None:
    def take(cell: Any, transaction: Transaction) -> None:
        take_locks(cell, transaction)
        let_go(transaction)

    patch.setattr("dodona_tablets.core.start.replay.take_locks", take)


def release_when_prepared(patch: pytest.MonkeyPatch) -> None:
    handle = Participant.handle_timestamp

    def prepare(participant: Participant, transaction: Any, timestamp: Any) -> None:
        handle(participant, transaction, timestamp)
        alive = participant._cell.transactions.get(transaction)
        if alive is not None and alive.state is State.PREPARED:
            let_go(alive)

    patch.setattr(Participant, "handle_timestamp", prepare)


def check_repeats(patch: pytest.MonkeyPatch) -> None:
    """A request that comes again is checked against what the first one wrote."""
    prepare = Participant.prepare_if

    def again(participant: Participant, route: Any, body: Any) -> None:
        cell = participant._cell
        if cell.state_of(body.request.transaction) is State.COMMITTED:
            try:
                for those in body.conditions:
                    for row in those.rows:
                        conditions._check(cell.tablets[those.tablet], row)
            except Lost as lost:
                participant._outbox.reply(route, lost.failure)
                return
        prepare(participant, route, body)

    patch.setattr(Participant, "prepare_if", again)


def lock_one_group(patch: pytest.MonkeyPatch) -> None:
    """A writer of another lock group may create the row."""
    patch.setattr(conditions, "_groups_of", lambda schema, row: HOLDER)


def kept_over_a_restart(_: Path) -> None:
    """The other cell's prepare timestamp must lie above the restart, which few runs bring."""
    condition, write = expect(1, A, 1), update(1, a=2)
    test_the_row_of_a_condition_stays_until_the_outcome(Bench(2), True, condition, write)


_RUNS: tuple[tuple[str, Plant, Promise, Where], ...] = (
    ("conditions are not checked", ignore_conditions, "CONDITION", FENCING),
    ("conditions are checked at the snapshot", check_at_the_snapshot, "CONDITION", FENCING),
    ("a condition passes the holders of its row", pass_holders, "CONDITION", FENCING),
    ("the rows of conditions are not locked", hold_nothing, "CONDITION", FENCING),
    (
        "the locks of conditions end when the transaction is prepared",
        release_when_prepared,
        "CONDITION",
        FENCING,
    ),
    ("a repeated commit is checked against its own write", check_repeats, "GHOST", FENCING),
    ("an absent row is locked in one lock group", lock_one_group, "CONDITION", FENCING),
)


BUGS: tuple[PlantedBug | CheckedBug, ...] = (
    *(PlantedBug(None, title, plant, (it,), where) for title, plant, it, where in _RUNS),
    CheckedBug(
        None,
        "a restart forgets the locks of conditions",
        forget_at_replay,
        kept_over_a_restart,
        "test_the_row_of_a_condition_stays_until_the_outcome",
    ),
)
