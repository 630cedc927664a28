"""The checkers on bulk loads: transactions with rules of their own about rows, locks and ranges."""

import pytest

from dodona_loadtest.histories.history import (
    Conflict,
    Erased,
    Lock,
    Presence,
    Read,
    Transaction,
    Version,
    Write,
)
from unit.checkers.script import TABLE, A, B, C, Script, value

ALL = Erased(TABLE, b"a", b"z")
ELSEWHERE = A._replace(table="//other")


@pytest.fixture
def script() -> Script:
    return Script()


def load(
    script: Script, start: int, *names: int, presence: Presence = "any", erases: bool = False
) -> Transaction:
    """One that begins; 0 for a start: it overwrites."""
    t = script.begin(start, "x")
    t.load, t.names, t.presence = 1_000 + start, list(names), presence
    if not start:
        t.is_blind, t.begun_us = True, None
    t.erased = [ALL] if erases else []
    return t


def test_loads_pass(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)))
    script.finish(load(script, 3, 4, erases=True), 5, Write(A, value(3)))
    script.dump.append(Version(B, 5, None))
    script.read(6, Read(A, value(3)), Read(B, None))
    script.finish(load(script, 7, 8, presence="there"), 9, Write(A, value(4)))
    script.finish(load(script, 10, 11, presence="absent"), 12, Write(B, value(5)))
    between = load(script, 0, 14, erases=True)
    script.write(13, 15, Write(C, value(6)))
    script.finish(between, 16)
    script.dump += [Version(row, 16, None) for row in (A, B, C)]
    script.read(17, Read(A, None), Read(B, None), Read(C, None))
    assert script.check() == []


@pytest.mark.parametrize(("presence", "is_there"), [("absent", True), ("there", False)])
def test_rows_that_must_not_or_must_be_there(
    script: Script, presence: Presence, is_there: bool
) -> None:
    if is_there:
        script.write(1, 2, Write(A, value(1)))
    script.finish(load(script, 3, 4, presence=presence), 5, Write(A, value(2)))
    assert script.promises() == {"LOAD"}


def test_a_row_that_stays_where_a_load_erased(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)))
    script.finish(load(script, 3, 4, erases=True), 5, Write(A, value(3)))
    assert script.promises() == {"LOAD"}


def test_the_checker_reports_a_deletion_outside_the_range_a_load_erased(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    script.finish(load(script, 3, 4), 5, Write(B, value(3)))
    script.dump.append(Version(A, 5, None))
    assert script.promises() == {"GHOST"}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_change_in_an_erased_range_that_a_load_did_not_see(
    script: Script, is_deleted: bool
) -> None:
    """Also of a row that is not there any more."""
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)))
    late = load(script, 3, 10, erases=True)
    change = None if is_deleted else value(3)
    script.write(4, 5, Write(B, change), Write(C, value(4)))
    script.write(6, 7, Write(C, None))
    script.finish(late, 11, Write(A, value(5)))
    if not is_deleted:
        script.dump.append(Version(B, 11, None))
    assert script.promises() == {"NOCONFLICT"}


def test_the_deletion_of_nothing_is_no_change(script: Script) -> None:
    late = load(script, 3, 6, erases=True)
    script.write(4, 5, Write(B, None), Write(ELSEWHERE, value(1)))
    script.finish(late, 8, Write(A, value(5)))
    assert script.check() == []


def test_read_locks_conflict_with_a_load_only_after_the_load_takes_its_locks(
    script: Script,
) -> None:
    early = load(script, 1, 4)
    script.write(2, 3, locks=(Lock(A, is_strong=True),))
    script.finish(early, 5, Write(A, value(1)))
    assert script.check() == []
    late = load(script, 6, 7)
    script.write(8, 9, locks=(Lock(A, is_strong=True),))
    script.finish(late, 10, Write(A, value(2)))
    assert script.promises() == {"RWLOCK"}


@pytest.mark.parametrize("erases", [False, True])
def test_a_row_may_conflict_with_a_load_only_if_the_load_erases_it(
    script: Script, erases: bool
) -> None:
    script.write(1, 2, Write(B, value(1)))
    winner = load(script, 3, 4, erases=erases)
    loser = script.begin(5, "y")
    asked_us = script.now()
    loser.conflict = Conflict((B,), winner_start=4)
    script.finish(loser, None, Write(B, value(2)), status="fail")
    script.finish(winner, 7, Write(A, value(3)))
    winner.commit_us = asked_us
    script.dump += [Version(B, 7, None)] if erases else []
    assert script.promises() == (set() if erases else {"FALSE-CONFLICT"})
