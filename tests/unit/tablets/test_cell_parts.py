"""Small parts of a cell by themselves: the room, the outbox, the chunks, a transaction's state."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dodona.errors import DiskFull, Overloaded, Unavailable
from dodona.types import CellId, Timestamp, TransactionId
from dodona_tablets.core.cell.chunks import Chunks
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.cell.room import Room
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.cores.effects import Append, AskTimestamps, ReplyTo
from dodona_wire.messages.data import Aborted

CELL = CellId(3)


def chunk() -> Chunk:
    return cast(Chunk, SimpleNamespace(is_away=True))


# Room


def test_a_new_cell_has_room() -> None:
    room = Room(CELL, CellLimits())
    room.check_log()
    room.check_draining()
    assert (room.log_bytes, room.log_fill_ratio, room.memory_bytes) == (0, 0.0, 0)
    assert room.is_log_writable
    assert not room.is_memory_full


def test_a_disk_with_little_space_still_has_a_writable_log() -> None:
    room = Room(CELL, CellLimits())
    room.note_disk("little space")
    assert room.is_log_writable
    with pytest.raises(DiskFull, match="little space") as caught:
        room.check_log()
    assert caught.value.attributes["cell"] == CELL
    room.note_disk("no space", is_log_writable=False)
    assert not room.is_log_writable
    room.note_disk(None)
    assert room.is_log_writable
    room.check_log()


def test_a_full_log_says_how_full_it_is() -> None:
    room = Room(CELL, CellLimits(log_fill_ratio_max=0.5))
    room.note_log(700, 1.0)
    assert room.log_bytes == 700
    with pytest.raises(Overloaded) as caught:
        room.check_log()
    assert caught.value.attributes == {"cell": CELL, "log_fill_percent": 100}


def test_a_cell_that_drains_says_so() -> None:
    room = Room(CELL, CellLimits())
    room.drain()
    with pytest.raises(Unavailable, match="about to stop"):
        room.check_draining()


# Outbox


def test_effects_are_taken_once_in_their_order_and_records_are_counted() -> None:
    outbox = Outbox()
    assert (outbox.appended_count, outbox.take()) == (0, [])
    record: Any = object()
    answer = Aborted(TransactionId(1))
    question = AskTimestamps(7)
    outbox.append(record)
    outbox.reply("route", answer)
    outbox.send(question)
    outbox.append(record)
    assert outbox.appended_count == 2
    assert outbox.take() == [Append(record), ReplyTo("route", answer), question, Append(record)]
    assert outbox.take() == []
    assert outbox.appended_count == 2


# Chunks


def test_a_chunk_never_gets_a_number_that_was_used() -> None:
    chunks = Chunks()
    assert [chunks.take_number() for _ in range(3)] == [1, 2, 3]
    chunks.note_number(9)
    assert chunks.take_number() == 10
    chunks.note_number(4)
    assert chunks.take_number() == 11
    chunks.restore_numbers(20)
    assert chunks.take_number() == 20


def test_files_of_a_start_keep_their_numbers() -> None:
    chunks, first = Chunks(), chunk()
    chunks.open_found({1: first}, (), 1)
    assert chunks.take_number() == 1, "the log has noted the chunks that it names"
    chunks.open_found({1: first}, (5, 9, 7), 8)
    assert chunks.take_number() == 10
    assert chunks.take_orphans() == (5, 9, 7)
    assert chunks.take_orphans() == ()
    assert chunks.get(1) is first
    assert chunks.get(5) is None
    chunks.open_found({}, (), 100)
    assert chunks.take_number() == 100


def test_unused_chunks_are_looked_for_only_after_a_release() -> None:
    chunks = Chunks()
    assert not chunks.may_have_unused
    for number in (1, 2, 3):
        chunks.add(number, chunk())
    chunks.note_released()
    assert chunks.may_have_unused
    assert chunks.drop_unused([2, 7]) == (1, 3)
    assert [*chunks.open] == [2]
    assert not chunks.may_have_unused


def test_batches_count_until_they_end() -> None:
    chunks = Chunks()
    chunks.begin_batch(1, 100)
    chunks.begin_batch(2, 0)
    assert (chunks.batch_count, chunks.batch_bytes) == (2, 100)
    chunks.end_batch(1)
    assert (chunks.batch_count, chunks.batch_bytes) == (1, 0)


# Transactions


@pytest.mark.parametrize("state", State)
def test_a_transaction_has_locks_from_its_locking_to_its_outcome(state: State) -> None:
    made = Transaction(TransactionId(5), Timestamp(5), (CELL,), (), 0)
    assert made.state is State.NONE
    assert not made.is_given_up
    assert not made.is_recovering
    made.state = state
    assert made.has_locks is (state in (State.LOCKED, State.PREPARED))
    assert made.is_waiting is (state is State.WAITING)


def test_the_first_participant_is_the_coordinator() -> None:
    for participants in ((CELL,), (CELL, CellId(1))):
        made = Transaction(TransactionId(5), Timestamp(5), participants, (), 0)
        assert made.coordinator == CELL
