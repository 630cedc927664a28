"""What is written down of a write without a transaction that is sent more than once."""

from random import Random
from typing import Any, cast

from dodona._core.protocol.limits import TransactionLimits
from dodona._core.protocol.steps import Calls, Protocol
from dodona._core.session import Session
from dodona._core.writing.outcomes import Outcome
from dodona._core.writing.transaction import TransactionBuffer
from dodona.errors import CommitOutcomeUnknown
from dodona.schema import Column
from dodona.types import CellId, Timestamp, TransactionId
from dodona_loadtest.histories.history import History, Read, RowKey, Scan, Transaction
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.shape import TableShape
from dodona_wire.messages.data import CommitOne, Prepare

TABLE = TableShape(
    "//t", (Column("id", "int64", sort_order="ascending"), Column("v", "utf8")), ((),)
)
CELLS = (CellId(0), CellId(1))


def commit_one(name: int) -> Calls:
    return Calls(((CELLS[0], CommitOne(TransactionId(name), (), True)),))


def prepare(name: int) -> Calls:
    return Calls(tuple((cell, Prepare(TransactionId(name), CELLS, ())) for cell in CELLS))


class Sender:
    """A session that sends these, one after the other, and says that all is committed."""

    def __init__(self, *steps: Calls, is_sure: bool = True) -> None:
        self._steps = steps
        self._is_sure = is_sure

    def write_rows(self, *_: Any) -> Protocol[Timestamp]:
        for step in self._steps:
            replies = yield step
            assert replies == []
        if not self._is_sure:
            raise CommitOutcomeUnknown("nobody answers", transaction=7)
        return Timestamp(100)


class NeverAsks(Random):
    def random(self) -> float:
        return 1.0


def history_of(sender: Sender) -> History:
    """One write, at an instant that is later at each look."""
    instants = iter(range(1_000))
    history = History()
    session = cast("Session", sender)
    recorder = Recorder(session, "s", history, NeverAsks(), lambda: next(instants))
    writing = recorder.write(TABLE, [{"id": 1, "v": "x"}])
    try:
        next(writing)
        while True:
            writing.send([])
    except StopIteration:
        return history


def recorded(*steps: Calls) -> Transaction:
    (transaction,) = history_of(Sender(*steps)).transactions
    return transaction


def test_a_write_to_one_cell_is_blind_and_is_recorded_with_all_its_names() -> None:
    transaction = recorded(commit_one(5), commit_one(5), commit_one(6))
    assert transaction.is_blind
    assert transaction.names == [5, 6]


def test_a_write_to_several_cells_begins_at_its_name() -> None:
    transaction = recorded(commit_one(5), prepare(8))
    assert not transaction.is_blind
    assert transaction.start == 8


def test_a_renamed_write_to_several_cells_begins_at_its_last_name() -> None:
    """What it was called before is aborted: nothing between the two stands in its way."""
    transaction, sent_once = recorded(prepare(8), prepare(8), prepare(9)), recorded(prepare(8))
    assert transaction.start == 9
    assert transaction.begun_us is not None
    assert sent_once.begun_us is not None
    assert transaction.begun_us > sent_once.begun_us


def test_an_unsure_answer_is_counted_although_the_outcome_is_known_later() -> None:
    assert history_of(Sender(commit_one(5), is_sure=False)).unknown_count == 1
    assert history_of(Sender(commit_one(5))).unknown_count == 0


def test_the_recorder_measures_the_time_of_questions_for_an_outcome() -> None:
    """The caller had his answer before: it is no part of what he waited."""
    instant_us = 0

    class Asked(Sender):
        def outcome(self, *_: Any, **__: Any) -> Protocol[Outcome]:
            nonlocal instant_us
            instant_us += 40
            yield from ()
            return Outcome("committed", Timestamp(9))

    class Curious(NeverAsks):
        def random(self) -> float:
            return 0.5  # asks, at once

    recorder = Recorder(
        cast("Session", Asked(is_sure=False)), "s", History(), Curious(), lambda: instant_us
    )
    for _ in range(2):
        assert list(recorder.write(TABLE, [{"id": 1, "v": "x"}])) == []
    assert recorder.aside_us == 80
    assert recorder.refusal is None


def test_long_scans_and_large_states_count_for_more_than_one_record() -> None:
    """A history ends a load test before memory is full of it."""
    history = History()
    row = RowKey("//t", b"k")
    small, large = Read(row, (("v", "x"),)), Read(row, (("v", "x" * 16_384),))
    assert history.shared(small) is small
    assert history.record_count == 1
    for _ in range(3):
        history.shared(Read(row, (("v", "x" * 16_384),)))
    assert history.shared(large) == large
    assert history.record_count == 1 + 1 + 16
    history.weigh(Scan("//t", b"", b"z", (small,) * 10_000))
    assert history.record_count == 18 + 101


def test_a_recorder_s_scans_count() -> None:
    class Scanned(Sender):
        def begin(self) -> Protocol[Any]:
            yield from ()
            return TransactionBuffer(
                Timestamp(5), atomicity="full", durability="sync", begun_us=0,
                limits=TransactionLimits(),
            )  # fmt: skip

        def select(self, *_: Any, **__: Any) -> Protocol[list[Any]]:
            yield from ()
            return [{"id": number, "v": "x"} for number in range(1_000)]

    history = History()
    recorder = Recorder(cast("Session", Scanned()), "s", history, NeverAsks(), lambda: 1)

    def scan() -> Protocol[None]:
        attempt = yield from recorder.begin()
        yield from attempt.scan(TABLE)

    before = history.record_count
    assert list(scan()) == []
    states = 1_000
    assert history.record_count - before == 1 + states + 11
