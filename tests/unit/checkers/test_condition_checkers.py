"""The checkers on conditions: what a commit requires of rows, and the locks that keep them."""

import pytest

from dodona_loadtest.histories.history import Condition, Conflict, Lock, Transaction, Version, Write
from unit.checkers.script import A, B, Script, value


@pytest.fixture
def script() -> Script:
    return Script()


def required(script: Script, start: int, *conditions: Condition) -> Transaction:
    """A transaction under conditions that begins."""
    t = script.begin(start, "x")
    t.conditions += conditions
    t.locks += [Lock(it.row, False, is_condition=True) for it in conditions]
    return t


def finish(script: Script, t: Transaction, commit: int, *writes: Write) -> None:
    script.finish(t, commit, *writes, locks=tuple(t.locks))


def test_conditions_that_hold_pass(script: Script) -> None:
    finish(script, required(script, 1, Condition(A, None)), 2, Write(A, value(1)))
    finish(script, required(script, 3, Condition(A, value(1))), 4, Write(B, value(2)))
    finish(script, required(script, 5, Condition(A, ())), 6, Write(B, value(3)))
    script.write(7, 8, Write(A, None))
    finish(script, required(script, 9, Condition(A, None)), 10, Write(B, value(4)))
    assert script.check() == []


def test_the_state_at_the_commit_counts_and_not_that_at_the_start(script: Script) -> None:
    t = required(script, 1, Condition(A, value(1)))
    script.write(2, 3, Write(A, value(1)))
    finish(script, t, 4, Write(B, value(2)))
    assert script.check() == []


@pytest.mark.parametrize(
    "condition", [Condition(A, None), Condition(A, value(2)), Condition(B, value(1))]
)
def test_a_condition_that_does_not_hold_is_seen(script: Script, condition: Condition) -> None:
    script.write(1, 2, Write(A, value(1)))
    finish(script, required(script, 3, condition), 4, Write(B, value(3)))
    assert script.promises() == {"CONDITION"}


def test_a_change_between_check_and_commit_is_seen(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    t = required(script, 3, Condition(A, value(1)))
    script.write(4, 5, Write(A, value(2)))
    finish(script, t, 6, Write(B, value(3)))
    assert script.promises() == {"CONDITION"}


def test_a_condition_leaves_no_lock_behind(script: Script) -> None:
    loser = script.begin(1, "loser")
    script.write(2, 3, Write(A, value(1)))
    winner = required(script, 4, Condition(A, value(1)))
    finish(script, winner, 5, Write(B, value(2)))
    loser.status, loser.commit_us = "fail", 60
    loser.writes.append(Write(A, value(9)))
    loser.conflict = Conflict((A,), None, 5)
    assert script.promises() == {"FALSE-CONFLICT"}


def test_a_row_of_a_condition_is_held_until_the_outcome(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    winner = required(script, 3, Condition(A, value(1)))
    loser = script.begin(4, "loser")
    finish(script, winner, 6, Write(B, value(2)))
    loser.status, loser.commit_us, loser.end_us = "fail", script.now(), script.now()
    loser.writes.append(Write(A, value(9)))
    loser.conflict = Conflict((A,), winner.start, None)
    assert script.check() == []


def test_a_refused_transaction_that_left_a_version_is_seen(script: Script) -> None:
    t = required(script, 1, Condition(A, None))
    t.status, t.commit_us, t.error = "fail", 20, "prerequisite_failed: it is there"
    t.writes.append(Write(A, value(1)))
    script.dump.append(Version(A, 3, value(1)))
    assert script.promises() == {"GHOST"}
