"""The checkers on blind writes: no start, and so nothing that could stand in their way."""

import pytest

from dodona_loadtest.histories.history import Acquisition, Conflict, Lock, Read, Version, Write
from unit.checkers.script import A, B, C, Script, value


@pytest.fixture
def script() -> Script:
    return Script()


def test_blind_writes_pass(script: Script) -> None:
    """Names come out of a reserve: they say nothing of when, nor who came first."""
    script.write(1, 50, Write(A, value(1)))
    script.blind([30], 51, Write(A, value(2)))
    script.read(52, Read(A, value(2)))
    script.blind([20, 31], 53, Write(A, None), Write(B, value(3)))
    script.blind([32], None, Write(A, value(4)), status="fail")
    script.blind([], None, Write(A, value(5)), status="fail")
    script.blind([33], None, Write(A, value(6)), status="info")
    script.blind([34], 54, Write(C, value(7)), status="open")
    script.read(55, Read(A, None), Read(B, value(3)), Read(C, value(7)))
    assert script.check() == []


def test_a_blind_write_may_overwrite_rows_that_others_wrote_or_locked(script: Script) -> None:
    other = script.begin(1, "x")
    written = script.blind([2], 3, Write(B, value(1)))
    script.finish(other, 4, Write(A, value(2)), locks=(Lock(C, is_strong=True),))
    script.blind([5], 6, Write(A, value(3)), Write(C, value(4)))
    assert written.status == "ok"
    assert script.check() == []


def test_an_update_lost_to_a_blind_write(script: Script) -> None:
    reader = script.begin(2, "x")
    reader.reads = [Read(A, None)]
    script.blind([1], 3, Write(A, value(1)))
    script.finish(reader, 4, Write(A, value(2)))
    assert script.promises() == {"NOCONFLICT"}


def test_a_blind_write_that_is_not_seen(script: Script) -> None:
    script.blind([1], 3, Write(A, value(1)))
    script.read(4, Read(A, None))
    assert script.promises() == {"EXT"}


def test_a_blind_write_that_is_half_there(script: Script) -> None:
    script.blind([1], 3, Write(A, value(1)), Write(B, None), status="info")
    script.dump.pop()
    assert script.promises() == {"ATOMICITY"}


def test_a_blind_write_that_failed_and_is_there(script: Script) -> None:
    script.blind([1], 3, Write(A, value(1)), status="fail")
    assert script.promises() == {"GHOST"}


def test_the_checker_reports_a_blind_write_that_exists_twice(script: Script) -> None:
    script.blind([1, 2], 3, Write(A, value(1)))
    script.dump.append(Version(A, 4, value(1)))
    assert script.promises() == {"GHOST"}


def test_a_name_given_out_twice(script: Script) -> None:
    script.blind([1], 3, Write(A, value(1)))
    script.blind([1], 4, Write(B, value(1)))
    assert script.promises() == {"UNIQUE"}


@pytest.mark.parametrize("name", [5, 6, 20])
def test_the_checker_reports_a_name_that_equals_another_timestamp(
    script: Script, name: int
) -> None:
    script.write(5, 6, Write(A, value(1)))
    script.history.acquisitions.append(Acquisition("cell", script.now(), script.now(), 20, 29))
    script.blind([name], 30, Write(B, value(1)))
    assert script.promises() == {"UNIQUE"}


def test_the_checker_reports_a_blind_write_committed_below_its_name(script: Script) -> None:
    script.blind([5], 4, Write(A, value(1)))
    assert script.promises() == {"ORDER"}


def test_a_blind_write_committed_in_the_past(script: Script) -> None:
    script.read(10)
    script.blind([5], 9, Write(A, value(1)))
    assert script.promises() == {"MONOTONIC"}


def test_a_session_that_goes_back_with_a_blind_write(script: Script) -> None:
    t = script.write(1, 10, Write(A, value(1)))
    t.end_us = None
    script.blind([2], 5, Write(B, value(1)))
    assert script.promises() == {"SESSION"}


def test_a_session_that_goes_back_behind_a_blind_write(script: Script) -> None:
    t = script.blind([1], 10, Write(A, value(1)))
    t.end_us = None
    script.read(5)
    assert script.promises() == {"SESSION"}


def test_a_refusal_may_name_a_blind_winner(script: Script) -> None:
    loser = script.begin(4, "x")
    script.blind([1, 3], 5, Write(A, value(1)))
    script.finish(loser, None, Write(A, value(2)), status="fail")
    for conflict in (Conflict((A,), winner_start=3), Conflict((A,), winner_commit=5)):
        loser.conflict = conflict
        assert script.check() == []
    loser.conflict = Conflict((A,), winner_start=2)
    assert script.promises() == {"FALSE-CONFLICT"}


def test_a_refusal_may_name_an_attempt_that_the_loser_gave_up(script: Script) -> None:
    """A write to several cells that began anew: its first attempt may still hold rows somewhere."""
    loser = script.write(4, None, Write(A, value(1)), status="fail")
    loser.names = [2, 3]
    loser.conflict = Conflict((A,), winner_start=3)
    assert script.check() == []
    loser.conflict = Conflict((A,), winner_start=4)
    assert script.promises() == {"FALSE-CONFLICT"}


def test_a_blind_write_never_loses_a_row_to_a_commit(script: Script) -> None:
    script.write(2, 5, Write(A, value(1)), session="x")
    loser = script.blind([1], None, Write(A, value(2)), status="fail")
    loser.conflict = Conflict((A,), winner_commit=5)
    assert script.promises() == {"FALSE-CONFLICT"}


def test_a_blind_write_may_time_out_on_a_row_that_another_transaction_holds(script: Script) -> None:
    """Rule 20: it waits a bounded time."""
    script.write(3, 9, Write(A, value(1)), session="x")
    loser = script.blind([1], None, Write(A, value(2)), Write(B, value(2)), status="fail")
    loser.conflict = Conflict((A,), winner_start=3)
    assert script.check() == []
    for conflict in (Conflict((A,), winner_start=2), Conflict((B,), winner_start=3)):
        loser.conflict = conflict
        assert script.promises() == {"FALSE-CONFLICT"}


# Deletions that nobody was told about


def test_an_unsure_blind_deletion_may_be_there_or_not(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(1)))
    script.blind([3], None, Write(A, None), status="info")
    script.blind([4], 6, Write(A, None), Write(B, None), status="open")
    script.read(7, Read(A, None), Read(B, None))
    assert script.check() == []


def test_real_time_distinguishes_unsure_blind_deletions_of_one_row(script: Script) -> None:
    script.blind([1], 10, Write(A, None), status="info")
    script.read(11)
    script.blind([2], 12, Write(A, None), status="info")
    script.dump.reverse()
    assert script.check() == []


def test_the_checker_reports_a_deletion_earlier_than_its_only_possible_write(
    script: Script,
) -> None:
    script.read(11)
    script.blind([1], 10, Write(A, None), status="info")
    assert script.promises() == {"MONOTONIC"}


def test_a_blind_deletion_made_twice(script: Script) -> None:
    script.blind([1], 10, Write(A, None), status="info")
    script.dump.append(Version(A, 11, None))
    assert script.promises() == {"GHOST"}


def test_half_of_an_unsure_blind_deletion(script: Script) -> None:
    script.blind([1], 10, Write(A, None), Write(B, None), status="info")
    script.dump.pop()
    assert script.promises() == {"GHOST"}


def test_a_deletion_that_failed_and_is_there(script: Script) -> None:
    script.blind([1], 10, Write(A, None), status="fail")
    assert script.promises() == {"GHOST"}


def test_an_unsure_deletion_belongs_to_a_blind_write_with_a_smaller_name(script: Script) -> None:
    """Found by seed 60132: the first to come waited for its name, the second had one in reserve."""
    script.blind([20], None, Write(A, None), status="open")
    script.blind([3], 10, Write(A, None), status="info")
    assert script.check() == []


@pytest.mark.parametrize("names", [[], [15], [5, 15]])
def test_the_checker_reports_a_deletion_by_a_write_that_had_no_name_yet(
    script: Script, names: list[int]
) -> None:
    script.blind(names, 10, Write(A, None), status="open")
    assert script.promises() == {"GHOST"}
