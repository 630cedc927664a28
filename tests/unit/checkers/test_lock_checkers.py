"""The checkers on lock groups, read locks, shared writes and sums: who must lose, and who not."""

from typing import Any

import pytest

from dodona_loadtest.checkers.real_time import check_false_conflicts
from dodona_loadtest.histories.history import (
    Conflict,
    LatestRead,
    Lock,
    Read,
    Transaction,
    Write,
    after,
)
from unit.checkers.script import A, B, Script, value


@pytest.fixture
def script() -> Script:
    return Script()


def there(script: Script) -> None:
    """Row A, before all else: one that is not there is locked as a whole."""
    script.finish(script.begin(-2, "w"), -1, Write(A, (("p", 0),), (0,)))


def p(number: int, *groups: int) -> Write:
    return Write(A, (("p", number),), groups)


def q(number: int, *groups: int) -> Write:
    return Write(A, (("q", number),), groups)


def locked(*groups: int, is_strong: bool = True) -> Lock:
    return Lock(A, is_strong, groups)


# Read locks by group

OVERLAPS = [((1,), (1,), True), ((1,), (2,), False), ((0,), (2,), True), ((1,), (0,), True)]


@pytest.mark.parametrize(("held", "written", "is_conflict"), OVERLAPS)
def test_a_strong_lock_conflicts_with_an_older_writer_of_its_group(
    script: Script, held: tuple[int, ...], written: tuple[int, ...], is_conflict: bool
) -> None:
    there(script)
    locker, writer = script.begin(1, "x"), script.begin(2, "y")
    script.finish(locker, 3, Write(B, value(1)), locks=(locked(*held),))
    script.finish(writer, 4, p(2, *written))
    assert script.promises() == ({"RWLOCK"} if is_conflict else set())


@pytest.mark.parametrize("is_strong", [False, True])
@pytest.mark.parametrize(("written", "held", "is_conflict"), OVERLAPS)
def test_a_read_lock_conflicts_with_a_write_of_its_group_meanwhile(
    script: Script,
    written: tuple[int, ...],
    held: tuple[int, ...],
    is_conflict: bool,
    is_strong: bool,
) -> None:
    there(script)
    locker, writer = script.begin(1, "x"), script.begin(2, "y")
    script.finish(writer, 3, p(1, *written))
    script.finish(locker, 4, Write(B, value(2)), locks=(locked(*held, is_strong=is_strong),))
    assert script.promises() == ({"NOCONFLICT"} if is_conflict else set())


def test_a_lock_on_a_missing_row_covers_all_lock_groups(script: Script) -> None:
    """Whoever writes another group creates the row."""
    locker, writer = script.begin(1, "x"), script.begin(2, "y")
    script.finish(writer, 3, p(1, 1))
    script.finish(locker, 4, Write(B, value(2)), locks=(locked(2),))
    assert script.promises() == {"NOCONFLICT"}
    other = Script()
    locker, writer = other.begin(1, "x"), other.begin(2, "y")
    other.finish(locker, 3, Write(B, value(1)), locks=(locked(2),))
    other.finish(writer, 4, p(2, 1))
    assert other.promises() == {"RWLOCK"}


def test_a_deletion_conflicts_with_locks_of_every_group(script: Script) -> None:
    locker, eraser = script.begin(1, "x"), script.begin(2, "y")
    script.finish(locker, 3, Write(B, value(1)), locks=(locked(2),))
    script.finish(eraser, 4, Write(A, None), Write(B, value(2)))
    assert script.promises() == {"RWLOCK", "NOCONFLICT"}


def test_readers_that_lock_the_same_row_get_along(script: Script) -> None:
    first, second = script.begin(1, "x"), script.begin(2, "y")
    script.finish(first, 3, Write(B, value(1)), locks=(locked(0),))
    script.finish(second, 4, p(2, 0), locks=(Lock(A, True, (1,)),))
    assert script.promises() == {"RWLOCK"}, "its own write, but not its lock"
    other = Script()
    first, second = other.begin(1, "x"), other.begin(2, "y")
    other.finish(first, 3, locks=(locked(0),))
    other.finish(second, 4, locks=(locked(0),))
    assert other.check() == []


# Refusals


def refused(
    script: Script, loser: tuple[Write | Lock, ...], winner: tuple[Write | Lock, ...], *, held: bool
) -> bool:
    """Whether it is false that the winner stood in the loser's way."""

    def finish(t: Transaction, items: tuple[Write | Lock, ...], commit: int | None) -> None:
        writes = [item for item in items if isinstance(item, Write)]
        locks = tuple(item for item in items if isinstance(item, Lock))
        status = "fail" if commit is None else "ok"
        script.finish(t, commit, *writes, locks=locks, status="ok" if status == "ok" else "fail")

    first, second = script.begin(1, "x"), script.begin(2, "y")
    finish(first, winner, 3)
    finish(second, loser, None)
    second.conflict = Conflict((A,), 1 if held else None, None if held else 3)
    return bool(check_false_conflicts([first, second], [(first, 3)], {}))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    ("loser", "winner", "is_false"),
    [
        ((p(1, 1),), (q(2, 2),), True),
        ((p(1, 1),), (p(2, 1),), False),
        ((p(1, 1),), (q(2, 0),), False),
        ((p(1, 0),), (q(2, 2),), False),
        ((p(1, 1, 2),), (q(2, 2, 3),), False),
        ((p(1, 1),), (locked(2),), True),
        ((p(1, 1),), (locked(1),), False),
        ((locked(1),), (p(2, 1),), False),
        ((locked(1),), (p(2, 2),), True),
        ((locked(1),), (locked(1),), True),
        ((locked(1), q(2, 2)), (locked(1), p(3, 1)), False),
        ((p(1, 1)._replace(is_shared=True),), (p(2, 1)._replace(is_shared=True),), True),
        ((p(1, 1)._replace(is_shared=True),), (p(2, 1),), False),
        ((p(1, 1),), (p(2, 1)._replace(is_shared=True),), False),
        ((locked(1),), (p(2, 1)._replace(is_shared=True),), False),
    ],
)
def test_a_conflict_is_false_if_the_locks_of_loser_and_winner_are_compatible(
    script: Script,
    loser: tuple[Write | Lock, ...],
    winner: tuple[Write | Lock, ...],
    is_false: bool,
    held: bool,
) -> None:
    assert refused(script, loser, winner, held=held) is is_false


def test_a_weak_lock_conflicts_only_while_it_is_held(script: Script) -> None:
    weak = (locked(1, is_strong=False),)
    assert not refused(Script(), (p(1, 1),), weak, held=True)
    assert refused(script, (p(1, 1),), weak, held=False)


# Shared writes and sums


def shared(number: int) -> Write:
    return Write(A, (("n", number),), (0,), ("n",), is_shared=True)


def added(number: int, mark: int) -> Write:
    return Write(A, (("m", mark), ("n", number)), (0,), ("n",))


def test_shared_writes_of_one_row_go_together(script: Script) -> None:
    first, second = script.begin(1, "x"), script.begin(2, "y")
    script.finish(first, 3, shared(5))
    script.finish(second, 4, shared(6))
    script.read(5, Read(A, (("n", 11),)))
    assert script.check() == []


@pytest.mark.parametrize("is_first_shared", [False, True])
def test_shared_and_other_writes_do_not(script: Script, is_first_shared: bool) -> None:
    first, second = script.begin(1, "x"), script.begin(2, "y")
    script.finish(first, 3, shared(5)._replace(is_shared=is_first_shared))
    script.finish(second, 4, shared(6)._replace(is_shared=not is_first_shared))
    assert script.promises() == {"NOCONFLICT"}


def test_a_read_lock_and_a_shared_write_do_not(script: Script) -> None:
    first, second = script.begin(1, "x"), script.begin(2, "y")
    script.finish(first, 3, shared(5))
    script.finish(second, 4, Write(B, value(1)), locks=(locked(0),))
    assert script.promises() == {"NOCONFLICT"}


@pytest.mark.parametrize("seen", [5, 6, 10, 12])
def test_changes_add_up(script: Script, seen: int) -> None:
    script.write(1, 2, added(5, 1))
    script.write(3, 4, added(6, 2))
    script.read(5, Read(A, (("m", 2), ("n", seen))))
    assert script.promises() == {"EXT"}


def test_plain_values_take_the_place_of_changes(script: Script) -> None:
    script.write(1, 2, added(5, 1))
    script.read(3, Read(A, (("m", 1), ("n", 5))))
    script.write(4, 5, Write(A, (("m", 2), ("n", 7))))
    script.write(6, 7, added(1, 3))
    script.read(8, Read(A, (("m", 3), ("n", 8))))
    script.write(9, 10, Write(A, None), Write(B, value(1)))
    script.write(11, 12, added(2, 4))
    script.read(13, Read(A, (("m", 4), ("n", 2))))
    asked_us = script.now()
    latest = LatestRead(asked_us, script.now(), Read(A, (("m", 4), ("n", 2))))
    script.history.latest_reads.append(latest)
    assert script.check() == []
    script.history.latest_reads.append(latest._replace(read=Read(A, (("m", 4), ("n", 10)))))
    assert script.promises() == {"LATEST"}


@pytest.mark.parametrize(
    ("state", "write", "expected"),
    [
        (None, Write(A, None), None),
        ({"n": 1}, Write(A, None), None),
        (None, added(5, 1), {"m": 1, "n": 5}),
        ({"n": None, "x": 1}, added(5, 1), {"m": 1, "n": 5, "x": 1}),
        ({"n": 2}, added(5, 1), {"m": 1, "n": 7}),
        ({"n": 2}, Write(A, (("n", 5),)), {"n": 5}),
    ],
)
def test_the_model_computes_the_row_after_a_write(
    state: dict[str, Any] | None, write: Write, expected: dict[str, Any] | None
) -> None:
    assert after(state, write) == expected
