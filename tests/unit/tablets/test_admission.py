"""The checks before a commit at their bounds: number, size, age, fence, memory and chunks."""

import pytest

from dodona.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    SnapshotTooOld,
    Unavailable,
)
from dodona.types import CellId, Revision, TabletId, Timestamp, TransactionId, Write
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.commit import admission
from dodona_tablets.core.commit.admission import (
    can_never_begin,
    check_lease,
    check_parts,
    check_room,
    check_transaction,
    has_outlived,
)
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.messages.data import TabletModifications
from dodona_wire.rows.sizes import wire_bytes
from dodona_wire.types import TIMESTAMP_COUNTER_BITS
from unit.tablets.cells import ATOMIC, Bench, changes, put

HERE, OTHER = CellId(0), CellId(1)


def tablet_of(bench: Bench) -> Tablet:
    return bench.nodes[HERE].cell.tablets[ATOMIC]


def check(bench: Bench, start: int, *parts: TabletModifications) -> None:
    tablets = tuple(tablet_of(bench) for _ in parts)
    check_parts(bench.nodes[HERE].cell, TransactionId(start), parts, tablets)


def text_of(error: type[DodonaError], bench: Bench, start: int, *writes: Write) -> str:
    with pytest.raises(error) as caught:
        check(bench, start, changes(*writes))
    return str(caught.value)


def test_a_cell_has_so_many_transactions_at_a_time() -> None:
    bench = Bench(limits=CellLimits(transactions_alive_max=2))
    cell = bench.nodes[HERE].cell
    for number in (1, 2):
        check_transaction(cell, bench.begin(), (HERE,))
        bench.commit_one(bench.begin(), put(number, 1))
    with pytest.raises(Overloaded, match="Too many transactions are committing") as caught:
        check_transaction(cell, bench.begin(), (HERE,))
    assert caught.value.attributes["cell"] == HERE
    bench.answer_oracle()
    check_transaction(cell, bench.begin(), (HERE,))


@pytest.mark.parametrize(
    ("participants", "is_allowed"),
    [
        ((HERE,), True),
        ((HERE, OTHER), True),
        ((OTHER,), False),
        ((), False),
        ((HERE, HERE), False),
        ((HERE, OTHER, OTHER), False),
    ],
)
def test_a_cell_is_a_participant_once(participants: tuple[CellId, ...], is_allowed: bool) -> None:
    bench = Bench()
    start = bench.begin()
    if is_allowed:
        check_transaction(bench.nodes[HERE].cell, start, participants)
    else:
        with pytest.raises(InvalidRequest, match="not a participant"):
            check_transaction(bench.nodes[HERE].cell, start, participants)


def test_a_transaction_lives_for_exactly_its_life() -> None:
    bench = Bench()
    cell = bench.nodes[HERE].cell
    oldest = cell.latest - (cell.limits.transaction_life_s_max << TIMESTAMP_COUNTER_BITS)
    for start, is_too_old in ((oldest, False), (oldest - 1, True)):
        name = TransactionId(start)
        assert has_outlived(cell, name) is is_too_old
        cell.fence = Timestamp(start - 1)
        assert can_never_begin(cell, name) is is_too_old
        if is_too_old:
            with pytest.raises(SnapshotTooOld, match="older than 60 s"):
                check_transaction(cell, name, (HERE,))
        else:
            check_transaction(cell, name, (HERE,))


def test_a_fence_refuses_the_transaction_with_its_own_timestamp_and_none_above() -> None:
    """Rule 9."""
    bench = Bench()
    cell, tablet = bench.nodes[HERE].cell, tablet_of(bench)
    cell.fence, tablet.fence = Timestamp(100), Timestamp(120)
    check(bench, 121, changes(put(1, 1)))
    assert "the tablet was mounted" in text_of(SnapshotTooOld, bench, 120, put(1, 1))
    tablet.fence = Timestamp(90)
    assert "the cell restarted" in text_of(SnapshotTooOld, bench, 100, put(1, 1))
    for start, is_refused in ((101, False), (100, True)):
        cell.latest = Timestamp(start)
        assert can_never_begin(cell, TransactionId(start)) is is_refused


def test_all_parts_together_have_so_many_rows_and_bytes() -> None:
    first, second = put(1, 1), put(2, 2, "x" * 100)
    parts = [changes(first), TabletModifications(TabletId(7), Revision(1), (second,), ())]
    size = sum(wire_bytes(it.writes) for it in parts)
    for rows_max, bytes_max, text in (
        (2, size, ""),
        (1, size, "more than 1 rows"),
        (2, size - 1, f"writes more than {size - 1} bytes"),
    ):
        limits = CellLimits(transaction_rows_max=rows_max, transaction_bytes_max=bytes_max)
        bench = Bench(limits=limits)
        if not text:
            check(bench, bench.begin(), *parts)
        else:
            with pytest.raises(LimitExceeded, match=text):
                check(bench, bench.begin(), *parts)


def test_a_tablet_has_one_part() -> None:
    bench = Bench()
    with pytest.raises(InvalidRequest, match="two parts for one tablet"):
        check(bench, bench.begin(), changes(put(1, 1)), changes(put(2, 2)))


def test_one_part_with_exactly_the_bytes_of_the_limit_is_taken() -> None:
    size = wire_bytes((put(1, 1),))
    for bytes_max in (size, size - 1):
        bench = Bench(limits=CellLimits(transaction_bytes_max=bytes_max))
        if bytes_max == size:
            check(bench, bench.begin(), changes(put(1, 1)))
        else:
            assert "Split it" in text_of(LimitExceeded, bench, bench.begin(), put(1, 1))


def test_a_tablet_with_too_many_chunks_takes_no_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    cell, tablet = bench.nodes[HERE].cell, tablet_of(bench)
    monkeypatch.setattr(admission, "CHUNKS_MAX", len(tablet.stores.chunks) + 1)
    check_room(cell, tablet)
    monkeypatch.setattr(admission, "CHUNKS_MAX", len(tablet.stores.chunks))
    with pytest.raises(Overloaded, match="Too many stores in tablet, all writes disabled") as error:
        check_room(cell, tablet)
    where = {"table": "//test/full", "tablet": ATOMIC, "cell": HERE}
    assert error.value.attributes == where


def test_a_cell_that_is_about_to_stop_takes_no_writes() -> None:
    bench = Bench()
    bench.nodes[HERE].cell.room.drain()
    assert "about to stop" in text_of(Unavailable, bench, bench.begin(), put(1, 1))


def test_memory_is_full_above_its_limit_and_not_at_it() -> None:
    bench = Bench(limits=CellLimits(memory_bytes_max=1_000, log_fill_ratio_max=0.5))
    room = bench.nodes[HERE].cell.room
    for size_bytes, is_full in ((1_000, False), (1_001, True)):
        room.note_memory(size_bytes)
        assert room.is_memory_full is is_full
    for ratio, is_full in ((0.5, False), (0.51, True)):
        room.note_log(7, ratio)
        assert room.is_log_full is is_full


def test_a_lease_of_exactly_the_limit_is_given() -> None:
    check_lease("load", 1_000, 1_000)
    with pytest.raises(InvalidRequest, match="A load has a lease of at most 1000 ms, not 1001"):
        check_lease("load", 1_001, 1_000)
