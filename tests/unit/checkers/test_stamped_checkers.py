"""The checkers on tables without atomicity, by histories made by hand."""

import pytest

from dodona_loadtest.checkers.losses import Answered, check_losses
from dodona_loadtest.checkers.non_atomic import CLOCK_DIFFERENCE_S_MAX, TIMESTAMP_COUNTER_BITS
from dodona_loadtest.checkers.sweep import check
from dodona_loadtest.checkers.violation import Promise
from dodona_loadtest.histories.history import (
    Acquisition,
    Columns,
    Crash,
    History,
    Read,
    RowKey,
    StampedRead,
    StampedWrite,
    Status,
    Version,
    Write,
)

A, B = RowKey("//n", b"a"), RowKey("//n", b"b")
SECOND = 1 << TIMESTAMP_COUNTER_BITS
LOSS_US_MAX = 100


def value(number: int) -> Columns:
    return (("mark", number), ("twin", number))


class Story:
    """Writes and reads of a table without atomicity, one instant after the other."""

    def __init__(self) -> None:
        self.history = History()
        self.dump: list[Version] = []
        self._now_us = 0

    def now(self) -> int:
        self._now_us += 1
        return self._now_us

    def ask(self, number: int, row: RowKey = A, *, is_durable: bool = True) -> StampedWrite:
        write = StampedWrite("s", number, Write(row, value(number)), is_durable, self.now(), cell=0)
        self.history.stamped_writes.append(write)
        return write

    def answer(self, write: StampedWrite, stamp: int | None, status: Status = "ok") -> None:
        """Told, and there in the end (for None: not there)."""
        write.status, write.answered_us = status, self.now()
        if stamp is not None:
            self.dump.append(Version(write.write.row, stamp, write.write.columns))

    def write(
        self, number: int, stamp: int | None, status: Status = "ok", *, is_durable: bool = True
    ) -> StampedWrite:
        write = self.ask(number, is_durable=is_durable)
        self.answer(write, stamp, status)
        return write

    def read(self, columns: Columns | None, row: RowKey = A, session: str = "r") -> None:
        read = StampedRead(session, self.now(), self.now(), Read(row, columns))
        self.history.stamped_reads.append(read)

    def crash(self, cell: int = 0) -> None:
        self.history.crashes.append(Crash(cell, self.now()))

    def promises(self) -> set[Promise]:
        return {violation.promise for violation in check(self.history, self.dump)}


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_clean_story_passes(story: Story) -> None:
    story.read(None)
    story.write(1, 10)
    story.read(value(1))
    late = story.ask(2)
    story.write(3, 20)
    story.read(value(3))
    story.answer(late, 30, "info")
    story.read(value(2))
    story.write(4, None, "fail")
    story.write(5, None, "info")
    story.write(6, None, is_durable=False)
    story.crash()
    story.read(value(2))
    assert story.promises() == set()


def test_rows_of_a_non_atomic_table_are_not_checked_as_transactional_rows(story: Story) -> None:
    story.write(1, 10)
    assert story.promises() == set()
    story.dump.append(Version(RowKey("//t", b"a"), 5, value(1)))
    assert story.promises() == {"GHOST"}


# What is there in the end


def test_a_durable_write_that_is_gone(story: Story) -> None:
    story.write(1, None)
    story.crash()
    assert story.promises() == {"DURABILITY"}


def test_a_failed_write_that_is_there(story: Story) -> None:
    story.write(1, 10, "fail")
    assert story.promises() == {"GHOST"}


def test_the_checker_reports_a_row_without_a_write(story: Story) -> None:
    story.write(1, 10)
    story.dump.append(Version(A, 11, value(2)))
    assert story.promises() == {"GHOST"}


def test_half_of_a_row(story: Story) -> None:
    story.write(1, 10)
    story.dump.append(Version(A, 11, (("mark", 1), ("twin", 2))))
    assert story.promises() == {"GHOST"}


def test_a_write_that_is_there_twice(story: Story) -> None:
    story.write(1, 10)
    story.dump.append(Version(A, 12, value(1)))
    assert story.promises() == {"GHOST"}


def test_a_deletion_that_nobody_made(story: Story) -> None:
    story.write(1, 10)
    story.dump.append(Version(A, 12, None))
    assert story.promises() == {"GHOST"}


# Stamps


def test_a_later_write_below_an_earlier_one(story: Story) -> None:
    story.write(1, 10)
    story.write(2, 9)
    assert story.promises() == {"STAMP"}


def test_writes_at_the_same_time_may_come_in_any_order(story: Story) -> None:
    first, second = story.ask(1), story.ask(2)
    story.answer(first, 10)
    story.answer(second, 9)
    assert story.promises() == set()


def test_a_write_below_one_that_was_seen_before(story: Story) -> None:
    unsure = story.ask(1)
    story.read(value(1))
    story.write(2, 9)
    story.answer(unsure, 10, "info")
    assert story.promises() == {"STAMP"}


def test_the_checker_reports_an_answer_other_than_the_largest_timestamp(story: Story) -> None:
    first, second = story.ask(1), story.ask(1, B)
    story.answer(first, 10)
    story.answer(second, 12)
    first.told = second.told = 12
    assert story.promises() == set()
    first.told = second.told = 10
    assert story.promises() == {"STAMP"}


# Reads


def test_a_stale_read(story: Story) -> None:
    story.write(1, 10)
    story.write(2, 11)
    story.read(value(1))
    assert story.promises() == {"LATEST"}


def test_a_read_without_the_row(story: Story) -> None:
    story.write(1, 10)
    story.read(None)
    assert story.promises() == {"LATEST"}


def test_a_reader_that_goes_back(story: Story) -> None:
    story.write(1, 10)
    unsure = story.ask(2)
    story.read(value(2))
    story.read(value(1))
    story.answer(unsure, 11, "info")
    assert story.promises() == {"LATEST"}


@pytest.mark.parametrize("columns", [value(7), (("mark", 1), ("twin", 2))])
def test_the_checker_reports_a_read_of_values_without_a_write(
    story: Story, columns: Columns
) -> None:
    story.write(1, 10)
    story.read(columns)
    assert story.promises() == {"GHOST"}


def test_a_read_before_the_write(story: Story) -> None:
    story.read(value(1))
    story.write(1, 10)
    assert story.promises() == {"GHOST", "STAMP"}


def test_the_checker_reports_a_read_of_a_write_that_a_crash_lost(story: Story) -> None:
    story.write(1, None, is_durable=False)
    story.read(value(1))
    story.crash()
    assert story.promises() == {"DURABILITY"}


# Clocks


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_checker_reports_a_refusal_of_clocks_within_the_allowed_difference(
    story: Story, sign: int
) -> None:
    write = story.write(1, None, "fail")
    base = 10**6 * SECOND
    write.clocks = base, base + sign * (CLOCK_DIFFERENCE_S_MAX + 1) * SECOND
    assert story.promises() == set()
    write.clocks = base, base + sign * CLOCK_DIFFERENCE_S_MAX * SECOND
    assert story.promises() == {"FALSE-REFUSAL"}


@pytest.mark.parametrize(
    ("ahead_s", "status", "is_wrong"),
    [(-500, "ok", False), (60, "ok", False), (61, "ok", True), (61, "info", False)],
)
def test_the_checker_reports_a_timestamp_too_far_ahead_of_the_oracle(
    story: Story, ahead_s: int, status: Status, is_wrong: bool
) -> None:
    """By what the oracle gave to whoever asked just after it. What was not answered may have been
    written later."""
    base = 10**6
    for first, difference in ((1, -100), (2, 0), (3, 100)):
        if first == 2:
            story.write(1, (base + ahead_s) * SECOND, status)
        asked_us, at = story.now(), (base + difference) * SECOND
        story.history.acquisitions.append(Acquisition("cell", asked_us, story.now(), at, at))
    assert story.promises() == ({"STAMP"} if is_wrong else set())


# What a crash takes back


def answered(
    number: int, asked_us: int, answered_us: int, *, is_there: bool, is_durable: bool = False
) -> Answered:
    row = RowKey("//n", bytes([number]))
    write = StampedWrite("s", number, Write(row, value(number)), is_durable, asked_us, answered_us)
    write.status, write.cell = "ok", 0
    return Answered(write, is_there)


CRASH = Crash(0, 1000)


@pytest.mark.parametrize(
    "story",
    [
        [answered(1, 10, 20, is_there=True), answered(2, 30, 40, is_there=False)],
        [answered(1, 10, 20, is_there=False), answered(2, 119, 140, is_there=False)],
        [answered(1, 10, 20, is_there=False), answered(2, 15, 40, is_there=True)],
        [answered(1, 10, 20, is_there=False), answered(2, 1000, 1001, is_there=True)],
        [answered(1, 900, 1100, is_there=False), answered(2, 1200, 1300, is_there=True)],
    ],
    ids=["a suffix", "a short one", "at the same time", "after the crash", "around the crash"],
)
def test_the_end_may_be_lost(story: list[Answered]) -> None:
    assert check_losses(story, [CRASH, Crash(0, 2000)], LOSS_US_MAX) == []


@pytest.mark.parametrize(
    "story",
    [
        [answered(1, 10, 20, is_there=False), answered(2, 30, 40, is_there=True)],
        [
            answered(1, 10, 20, is_there=False),
            answered(2, 30, 40, is_there=True, is_durable=True),
        ],
        [answered(1, 10, 20, is_there=False), answered(2, 121, 140, is_there=False)],
        [answered(1, 1100, 1200, is_there=False)],
    ],
    ids=["a hole", "a hole below what is durable", "too much", "without a crash"],
)
def test_the_checker_reports_any_loss_except_the_end_before_a_crash(story: list[Answered]) -> None:
    assert [it.promise for it in check_losses(story, [CRASH], LOSS_US_MAX)] == ["HOLE"]


def test_another_cell_s_crash_explains_nothing() -> None:
    lost = [answered(1, 10, 20, is_there=False)]
    assert check_losses(lost, [CRASH], LOSS_US_MAX) == []
    assert check_losses(lost, [CRASH._replace(cell=1)], LOSS_US_MAX) != []
