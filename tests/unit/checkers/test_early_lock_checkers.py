"""The checkers on early locks: who excludes whom, and what a refusal may name."""

import pytest

from dodona_loadtest.histories.history import Conflict, Lock, Transaction, Write
from unit.checkers.script import A, B, C, Script, value


@pytest.fixture
def script() -> Script:
    return Script()


def owner(script: Script, start: int, name: int) -> Transaction:
    """A transaction that begins with an early lock of row A."""
    t = script.begin(start, f"owner-{name}")
    t.owners, t.asked, t.locked_early = [name], [A], [A]
    return t


def finish(script: Script, t: Transaction, commit: int, *writes: Write) -> None:
    script.finish(t, commit, *writes, locks=(Lock(A, True, is_exclusive=True),))


def test_owners_one_after_the_other_pass(script: Script) -> None:
    finish(script, owner(script, 2, 1), 3, Write(B, value(1)))
    finish(script, owner(script, 5, 4), 6, Write(C, value(2)))
    assert script.check() == []


def test_owners_that_overlap_are_seen_even_if_they_write_other_rows(script: Script) -> None:
    first, second = owner(script, 3, 1), owner(script, 4, 2)
    finish(script, first, 5, Write(B, value(1)))
    finish(script, second, 6, Write(C, value(2)))
    assert script.promises() == {"EXCLUSION", "NOCONFLICT"}


@pytest.mark.parametrize(("row", "is_real"), [(A, True), (B, False)])
def test_a_refusal_may_name_an_owner_that_asked_for_the_row(
    script: Script, row: object, is_real: bool
) -> None:
    owner(script, 0, 1)
    loser = script.begin(2)
    key = A if row == A else B
    script.finish(loser, None, Write(key, value(1)), status="fail")
    loser.conflict = Conflict((key,), 1, None)
    assert script.promises() == (set() if is_real else {"FALSE-CONFLICT"})


def test_the_name_of_an_owner_is_a_timestamp_of_its_own(script: Script) -> None:
    owner(script, 2, 1)
    owner(script, 3, 1)
    assert "UNIQUE" in script.promises()
