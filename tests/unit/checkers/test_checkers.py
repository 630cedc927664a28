"""The checkers on histories made by hand: each broken promise is named, clean ones pass."""

import dataclasses

import pytest

from dodona_loadtest.histories.history import (
    Acquisition,
    Conflict,
    History,
    LatestRead,
    Lock,
    Read,
    Scan,
    Transaction,
    Version,
    Write,
)
from unit.checkers.script import TABLE, A, B, C, Script, value


@pytest.fixture
def script() -> Script:
    return Script()


def test_nothing_breaks_nothing(script: Script) -> None:
    assert script.check() == []


def test_a_clean_history_passes(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)))
    script.read(3, Read(A, value(1)), Read(C, None))
    script.write(4, 5, Write(A, None), Write(C, value(3)), locks=(Lock(B, is_strong=True),))
    whole = Scan(TABLE, b"", b"z", (Read(B, value(2)), Read(C, value(3))))
    script.read(6, Read(A, None), scans=(whole,))
    script.write(7, None, Write(B, value(4)), status="fail")
    script.write(8, None, Write(B, value(5)), status="info")
    script.write(9, 10, Write(B, value(6)), status="info")
    script.read(11, Read(B, value(6)))
    assert script.check() == []


def test_write_skew_is_allowed(script: Script) -> None:
    """Snapshot isolation, not serializability: disjoint writes of overlapping reads both commit."""
    first, second = script.begin(1, "x"), script.begin(2, "y")
    first.reads, second.reads = [Read(B, None)], [Read(A, None)]
    script.finish(first, 3, Write(A, value(1)))
    script.finish(second, 4, Write(B, value(2)))
    assert script.check() == []


def test_concurrent_writers_of_different_groups_are_allowed(script: Script) -> None:
    first, second = script.begin(1, "x"), script.begin(2, "y")
    script.finish(first, 3, Write(A, (("p", 1),), (1,)))
    script.finish(second, 4, Write(A, (("q", 2),), (2,)))
    script.read(5, Read(A, (("p", 1), ("q", 2))))
    assert script.check() == []


def test_null_reads_as_absent_and_an_update_keeps_the_rest(script: Script) -> None:
    script.write(1, 2, Write(A, (("p", 1), ("q", None))))
    script.read(3, Read(A, (("p", 1),)))
    script.write(4, 5, Write(A, (("q", 2),)))
    script.read(6, Read(A, (("p", 1), ("q", 2))))
    script.write(7, 8, Write(A, None), Write(B, value(3)))
    script.write(9, 10, Write(A, (("q", 4),)))
    script.read(11, Read(A, (("q", 4),)))
    assert script.check() == []


# Timestamps


def test_a_timestamp_given_out_twice(script: Script) -> None:
    script.read(1)
    script.history.acquisitions.append(Acquisition("cell", script.now(), script.now(), 5, 9))
    script.read(9)
    assert "UNIQUE" in script.promises()


def test_two_commits_at_one_timestamp(script: Script) -> None:
    first, second = script.begin(1, "x"), script.begin(2, "y")
    script.finish(first, 3, Write(A, value(1)))
    script.finish(second, 3, Write(B, value(2)))
    assert "UNIQUE" in script.promises()


def test_overlapping_ranges(script: Script) -> None:
    asked_us, received_us = script.now(), script.now()
    script.history.acquisitions += [
        Acquisition("p", asked_us, received_us, 1, 10),
        Acquisition("q", asked_us, received_us, 10, 12),
    ]
    assert script.promises() == {"UNIQUE"}


def test_the_checker_reports_a_start_timestamp_that_is_too_small(script: Script) -> None:
    script.read(10)
    script.read(9)
    assert script.promises() == {"MONOTONIC"}


def test_a_start_below_an_acknowledged_commit_of_another_session(script: Script) -> None:
    late = script.begin(1, "x")
    script.finish(late, 10, Write(A, value(1)))
    script.begin(9, "y").status = "fail"
    assert "MONOTONIC" in script.promises()


def test_timestamps_asked_for_at_the_same_time_may_come_in_any_order(script: Script) -> None:
    script.history.acquisitions += [
        Acquisition("p", 1, 10, 7, 7),
        Acquisition("q", 10, 12, 3, 3),
        Acquisition("r", 11, 13, 8, 8),
    ]
    assert script.check() == []


def test_an_unacknowledged_commit_bounds_no_later_start(script: Script) -> None:
    script.write(1, 10, Write(A, value(1)), status="info")
    script.read(5, Read(A, None))
    assert script.check() == []


def test_the_checker_reports_a_commit_below_its_start(script: Script) -> None:
    script.write(5, 4, Write(A, value(1)))
    assert "ORDER" in script.promises()


def test_a_session_that_goes_back(script: Script) -> None:
    t = script.write(1, 10, Write(A, value(1)))
    t.end_us = None  # told, but at an unknown instant: only the session's order counts
    script.read(5, Read(A, None))
    assert script.promises() == {"SESSION"}


# What reads see


def test_a_stale_read(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    script.read(3, Read(A, None))
    assert script.promises() == {"EXT"}


def test_a_read_from_the_future(script: Script) -> None:
    early = script.begin(1, "x")
    script.write(2, 3, Write(A, value(1)), session="y")
    early.reads, early.status = [Read(A, value(1))], "ok"
    assert script.promises() == {"EXT"}


def test_a_dirty_read(script: Script) -> None:
    script.write(1, None, Write(A, value(1)), status="fail")
    script.read(2, Read(A, value(1)))
    assert script.promises() == {"EXT"}


def test_read_skew(script: Script) -> None:
    script.write(1, 3, Write(A, value(1)), Write(B, value(1)))
    script.read(4, Read(A, value(1)), Read(B, None))
    assert script.promises() == {"EXT"}


def test_the_checker_reports_wrong_reads_of_failed_transactions(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    t = script.begin(3)
    t.reads = [Read(A, None)]
    script.finish(t, None, Write(B, value(2)), status="fail")
    assert script.promises() == {"EXT"}


@pytest.mark.parametrize(
    "reads",
    [
        (),
        (Read(A, value(1)),),
        (Read(B, value(2)), Read(A, value(1))),
        (Read(A, value(1)), Read(B, value(1))),
        (Read(A, value(1)), Read(B, value(2)), Read(C, value(3))),
    ],
    ids=["empty", "row missing", "wrong order", "wrong value", "row of the future"],
)
def test_the_checker_reports_a_scan_that_does_not_match_its_range(
    script: Script, reads: tuple[Read, ...]
) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)))
    script.read(4, scans=(Scan(TABLE, b"", b"z", reads),))
    script.write(5, 6, Write(C, value(3)))
    assert script.promises() == {"EXT"}


def test_a_scan_of_part_of_the_rows(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)), Write(C, value(3)))
    script.read(4, scans=(Scan(TABLE, b"b", b"c", (Read(B, value(2)),)),))
    assert script.check() == []


# The last commit


def test_a_read_of_the_last_commit(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    asked_us = script.now()
    second = script.write(3, 4, Write(A, value(2)))
    for number in (1, 2):  # the second commit came while the read was under way
        latest = LatestRead(asked_us, script.now(), Read(A, value(number)))
        script.history.latest_reads.append(latest)
    assert script.check() == []
    stale = LatestRead(script.now(), script.now(), Read(A, value(1)))
    script.history.latest_reads.append(stale)
    assert script.promises() == {"LATEST"}
    assert second.end_us is not None


def test_the_checker_reports_a_latest_read_of_a_later_commit(script: Script) -> None:
    latest = LatestRead(script.now(), script.now(), Read(A, value(1)))
    script.history.latest_reads.append(latest)
    script.write(1, 2, Write(A, value(1)))
    assert script.promises() == {"LATEST"}


# Conflicts


def test_a_lost_update(script: Script) -> None:
    first, second = script.begin(1, "x"), script.begin(2, "y")
    script.finish(first, 3, Write(A, value(1)))
    script.finish(second, 4, Write(A, value(2)))
    assert script.promises() == {"NOCONFLICT"}


@pytest.mark.parametrize("is_strong", [False, True])
def test_the_checker_reports_a_read_lock_on_a_row_written_meanwhile(
    script: Script, is_strong: bool
) -> None:
    locker, writer = script.begin(1, "x"), script.begin(2, "y")
    script.finish(writer, 3, Write(A, value(1)))
    script.finish(locker, 4, Write(B, value(2)), locks=(Lock(A, is_strong),))
    assert script.promises() == {"NOCONFLICT"}


@pytest.mark.parametrize("is_strong", [False, True])
def test_a_writer_older_than_a_reader_s_commit(script: Script, is_strong: bool) -> None:
    locker, writer = script.begin(1, "x"), script.begin(2, "y")
    script.finish(locker, 3, Write(B, value(1)), locks=(Lock(A, is_strong),))
    script.finish(writer, 4, Write(A, value(2)))
    assert script.promises() == ({"RWLOCK"} if is_strong else set())


@pytest.mark.parametrize(
    ("first", "second", "is_conflict"),
    [((0,), (1,), True), ((1,), (0,), True), ((1,), (2,), False), ((1, 2), (2,), True)],
)
def test_lock_groups(
    script: Script, first: tuple[int, ...], second: tuple[int, ...], is_conflict: bool
) -> None:
    """The main group (0) stands against all others."""
    one, other = script.begin(1, "x"), script.begin(2, "y")
    script.finish(one, 3, Write(A, (("p", 1),), first))
    script.finish(other, 4, Write(A, (("q", 2),), second))
    assert script.promises() == ({"NOCONFLICT"} if is_conflict else set())


def test_a_refusal_must_name_a_real_winner(script: Script) -> None:
    winner = script.write(1, 5, Write(A, value(1)), session="x")
    loser = script.write(2, None, Write(A, value(2)), session="y", status="fail")
    for conflict in (Conflict((A,), winner_start=1), Conflict((A,), winner_commit=5)):
        loser.conflict = conflict
        assert [v for v in script.check() if v.promise == "FALSE-CONFLICT"] == []
    false = [
        Conflict((B,), winner_start=1),
        Conflict((A,), winner_start=3),
        Conflict((A,), winner_start=2),
        Conflict((A,), winner_commit=6),
    ]
    for conflict in false:
        loser.conflict = conflict
        assert "FALSE-CONFLICT" in script.promises(), conflict
    loser.conflict = Conflict((A,), winner_commit=5)
    loser.start = 5
    assert "FALSE-CONFLICT" in script.promises()
    assert winner.commit == 5


# What is there in the end


def test_a_commit_that_is_gone(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)))
    script.dump.clear()
    assert script.promises() == {"DURABILITY"}


def test_half_of_a_commit_is_gone(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)))
    script.dump.pop()
    assert script.promises() == {"ATOMICITY"}


def test_half_of_an_unsure_commit_is_there(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)), status="info")
    script.dump.pop()
    assert script.promises() == {"ATOMICITY"}


def test_two_halves_at_two_timestamps(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), Write(B, value(2)), status="info")
    script.dump[1] = script.dump[1]._replace(timestamp=3)
    assert script.promises() == {"ATOMICITY", "GHOST"}


def test_the_checker_reports_a_commit_at_another_timestamp_than_answered(script: Script) -> None:
    t = script.write(1, 3, Write(A, value(1)))
    t.commit = 2
    assert script.promises() == {"DURABILITY", "GHOST"}


def test_a_failed_transaction_that_left_a_version(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)), status="fail")
    assert script.promises() == {"GHOST"}


def test_the_checker_reports_a_version_without_a_write(script: Script) -> None:
    script.dump.append(Version(A, 7, value(1)))
    assert script.promises() == {"GHOST"}


def test_a_deletion_that_nobody_made(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    script.dump.append(Version(A, 7, None))
    assert script.promises() == {"GHOST"}


def test_a_write_applied_twice(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    script.dump.append(Version(A, 3, value(1)))
    assert script.promises() == {"GHOST"}


def test_a_version_listed_twice(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    script.dump.append(script.dump[0])
    assert script.promises() == {"GHOST"}


def test_a_transaction_of_a_killed_session_may_have_committed_or_not(script: Script) -> None:
    """An open transaction is as unsure as one that was told nothing."""
    script.write(1, 2, Write(A, value(1)), status="open")
    script.write(3, None, Write(A, value(2)), status="open")
    assert script.check() == []


# The checkers' own demands


def test_equal_values_are_refused(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    script.write(3, 4, Write(A, value(1)))
    with pytest.raises(AssertionError, match="write the same"):
        script.check()


def test_an_unsure_transaction_must_write_a_value(script: Script) -> None:
    script.write(1, None, Write(A, None), status="info")
    with pytest.raises(AssertionError, match="only deletes"):
        script.check()


def test_the_digest_sees_every_change(script: Script) -> None:
    script.write(1, 2, Write(A, value(1)))
    before = script.history.digest()
    assert script.history.digest() == before
    for field in dataclasses.fields(Transaction):
        changed = History([dataclasses.replace(script.history.transactions[0])])
        setattr(changed.transactions[0], field.name, "something else")
        assert changed.digest() != before, field.name
