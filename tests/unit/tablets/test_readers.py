"""Readers that registered: what they see stays, for as long as their leases, and no longer."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dodona.errors import Overloaded
from dodona.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    SYNC_LAST_COMMITTED,
    CellId,
    ReaderId,
    Revision,
    TableSettings,
    TabletId,
    Timestamp,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.cell.readers import Readers
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import HoldSnapshot, Lookup, SnapshotHeld
from unit.tablets.cells import ATOMIC, NON_ATOMIC, Bench, key, put

CELL = CellId(0)
AT_ONCE = TableSettings(min_data_ttl=0, max_data_ttl=0, dynamic_store_auto_flush_period=1_000)
CLEANING = CellLimits(clean_period_ms=5_000)
LEASE_MS = 60_000
FIRST, SECOND_READER = ReaderId(1), ReaderId(2)


def hold(
    bench: Bench,
    at: Timestamp,
    *,
    reader: ReaderId = FIRST,
    tablets: Sequence[TabletId] = (ATOMIC,),
    lease_ms: int = LEASE_MS,
) -> object:
    route = bench.ask(HoldSnapshot(reader, at, tuple(tablets), lease_ms))
    return bench.answer(route)


def let_time_pass(bench: Bench, seconds: int, *, renewed: Timestamp | None = None) -> None:
    """A reader of that timestamp renews three times in a lease."""
    for second in range(seconds):
        if renewed is not None and second % 20 == 0:
            assert hold(bench, renewed) == SnapshotHeld(LEASE_MS)
        bench.pass_time(1)
        bench.answer_oracle()


def is_kept(bench: Bench, at: Timestamp) -> bool:
    reply = bench.answer(bench.lookup(1, at=at))
    if isinstance(reply, Failure):
        assert reply.kind == "snapshot_too_old"
        return False
    return reply.rows == ((1, None),)  # type: ignore[union-attr]


def two_versions(bench: Bench) -> Timestamp:
    first = bench.commit(put(1, 1))
    bench.commit(put(1, 2))
    return first


# ---- a cell


def test_versions_for_a_reader_are_kept_until_the_reader_releases_the_snapshot() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    let_time_pass(bench, 400, renewed=first)
    assert is_kept(bench, first)
    assert hold(bench, first, lease_ms=0) == SnapshotHeld(0)
    assert hold(bench, first, lease_ms=0) == SnapshotHeld(0), "repeating it is harmless"
    let_time_pass(bench, 150)
    assert not is_kept(bench, first)


def test_versions_older_than_the_oldest_reader_are_removed() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    bench.commit(put(1, 3))
    let_time_pass(bench, 2)  # into a chunk
    later = bench.timestamp()
    bench.commit(put(1, 4))
    let_time_pass(bench, 300, renewed=later)
    assert not is_kept(bench, first)
    assert bench.read(1, later) == (3, None)
    versions = dict(bench.nodes[CELL].cell.tablets[ATOMIC].dump())[key(1)]
    assert [values[0] for _, _, values in versions] == [3, 4]


def test_a_lease_that_is_not_renewed_ends() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    let_time_pass(bench, 120, renewed=first)
    assert is_kept(bench, first)
    let_time_pass(bench, 30)
    assert is_kept(bench, first)
    let_time_pass(bench, 120)
    assert not is_kept(bench, first)
    reply = hold(bench, first)
    assert isinstance(reply, Failure)
    assert reply.kind == "snapshot_too_old"
    assert reply.attributes["retained_timestamp"] > first


def test_one_reader_does_not_stand_for_another() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    newest = bench.timestamp()
    hold(bench, newest, reader=SECOND_READER)
    let_time_pass(bench, 300, renewed=first)
    assert is_kept(bench, first)


def test_a_reader_holds_only_the_tablets_of_its_last_request() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    assert hold(bench, first) == SnapshotHeld(LEASE_MS)
    for _ in range(8):
        assert hold(bench, first, tablets=[NON_ATOMIC]) == SnapshotHeld(LEASE_MS)
        let_time_pass(bench, 20)
    assert not is_kept(bench, first)


def test_after_a_restart_everything_is_kept_for_as_long_as_a_lease() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    let_time_pass(bench, 200, renewed=first)
    bench.start(CELL)
    let_time_pass(bench, 59)
    assert is_kept(bench, first)
    let_time_pass(bench, 100, renewed=first)
    assert is_kept(bench, first), "its renewal counts as if there had been no restart"
    bench.start(CELL)
    let_time_pass(bench, 150)
    assert not is_kept(bench, first), "nobody came back"


def test_after_a_mount_old_versions_are_kept_for_the_length_of_a_lease() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    let_time_pass(bench, 200, renewed=first)
    bench.assign(CELL, [])
    bench.pass_time(1)
    bench.assign(CELL, [replace(bench.tables[0], revision=Revision(2))])
    bench.answer_oracle()
    hold(bench, first, lease_ms=0)
    let_time_pass(bench, 59)
    reply = bench.answer(bench.ask(Lookup(ATOMIC, Revision(2), first, (key(1),), 3)))
    assert reply.rows == ((1, None),)  # type: ignore[union-attr]


@pytest.mark.parametrize("is_held", [True, False])
def test_a_snapshot_held_during_a_compaction_keeps_its_versions(*, is_held: bool) -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = two_versions(bench)
    let_time_pass(bench, 60, renewed=first)
    hold(bench, first, lease_ms=0)
    bench.holds_jobs = True
    while not bench.jobs:
        bench.pass_time(0.1)
        bench.answer_oracle()
    ((_, effect),) = bench.jobs
    assert effect.token.terms.retained > first
    if is_held:
        assert hold(bench, first) == SnapshotHeld(LEASE_MS)
    bench.finish_jobs()
    assert is_kept(bench, first) == is_held
    assert (effect.job.number in bench.files[CELL]) != is_held


def test_nothing_expires_under_a_reader() -> None:
    settings = replace(AT_ONCE, min_data_versions=0)
    bench = Bench(settings=settings, limits=CLEANING)
    bench.commit(put(1, 1))
    at = bench.timestamp()
    let_time_pass(bench, 300, renewed=at)
    assert is_kept(bench, at)
    hold(bench, at, lease_ms=0)
    let_time_pass(bench, 150)
    assert bench.read(1) is None


def test_tablets_that_are_not_served_are_named() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    at = bench.timestamp()
    unknown = TabletId(77)
    assert hold(bench, at, tablets=[unknown, ATOMIC]) == SnapshotHeld(LEASE_MS, (unknown,))
    assert bench.nodes[CELL].statistics().readers == 1
    assert hold(bench, at, tablets=[unknown]) == SnapshotHeld(LEASE_MS, (unknown,))
    assert bench.nodes[CELL].statistics().readers == 0
    bench.assign(CELL, [])
    assert hold(bench, at) == SnapshotHeld(LEASE_MS, (ATOMIC,))


def test_a_lease_that_is_too_long_is_refused_with_the_limit() -> None:
    """It was shortened without a word, where that of a load was refused."""
    bench = Bench(settings=AT_ONCE, limits=CellLimits(reader_lease_ms_max=2_000))
    for lease_ms in (2_001, 1 << 62):
        reply = hold(bench, bench.timestamp(), lease_ms=lease_ms)
        assert isinstance(reply, Failure)
        assert reply.kind == "invalid_request"
        assert reply.message == f"A snapshot has a lease of at most 2000 ms, not {lease_ms}."
        assert reply.attributes == {"lease_ms": lease_ms, "lease_ms_max": 2_000}
    assert hold(bench, bench.timestamp(), lease_ms=2_000) == SnapshotHeld(2_000)
    assert hold(bench, bench.timestamp(), lease_ms=500) == SnapshotHeld(500)


@pytest.mark.parametrize("at", [0, -1, MAX_TIMESTAMP + 1, SYNC_LAST_COMMITTED])
def test_only_a_timestamp_can_be_held(at: int) -> None:
    reply = hold(Bench(), Timestamp(at))
    assert isinstance(reply, Failure)
    assert reply.kind == "invalid_request"


def test_readers_are_bounded_in_number() -> None:
    bench = Bench(limits=CellLimits(readers_max=2))
    at = bench.timestamp()
    for number in (1, 2, 1, 2):
        assert isinstance(hold(bench, at, reader=ReaderId(number)), SnapshotHeld)
    reply = hold(bench, at, reader=ReaderId(3))
    assert isinstance(reply, Failure)
    assert reply.kind == Overloaded.kind
    assert reply.attributes["readers"] == 2
    hold(bench, at, reader=ReaderId(1), lease_ms=0)
    assert isinstance(hold(bench, at, reader=ReaderId(3)), SnapshotHeld)


# ---- the register


def test_readers_are_bounded_in_tablets() -> None:
    readers = Readers(10, 3, LEASE_MS)
    two, three = [TabletId(1), TabletId(2)], [TabletId(it) for it in (1, 2, 3)]
    readers.hold(FIRST, Timestamp(5), two, LEASE_MS, 0)
    with pytest.raises(Overloaded):
        readers.hold(SECOND_READER, Timestamp(4), two, LEASE_MS, 0)
    assert readers.oldest(TabletId(2)) == 5, "who was refused left no trace"
    readers.hold(FIRST, Timestamp(5), three, LEASE_MS, 0)
    readers.let_go(FIRST)
    readers.hold(SECOND_READER, Timestamp(4), three, LEASE_MS, 0)
    assert readers.oldest(TabletId(3)) == 4


def test_the_oldest_timestamp_is_that_of_the_registered_readers() -> None:
    readers = Readers(10, 100, LEASE_MS)
    tablet, other = TabletId(1), TabletId(2)
    assert readers.oldest(tablet) is None
    readers.hold(FIRST, Timestamp(9), [tablet], 1_000, 0)
    readers.hold(SECOND_READER, Timestamp(3), [tablet, other], 2_000, 0)
    assert (readers.oldest(tablet), readers.oldest(other)) == (3, 3)
    readers.tick(1_999_999)
    assert len(readers) == 1
    readers.hold(FIRST, Timestamp(9), [tablet], 1_000, 1_999_999)
    readers.tick(2_000_000)
    assert (readers.oldest(tablet), readers.oldest(other)) == (9, None)


def test_a_tablet_is_served_for_a_lease_before_anything_goes() -> None:
    readers = Readers(10, 100, LEASE_MS)
    tablet = TabletId(1)
    readers.expect_renewals(tablet, 5)
    readers.hold(FIRST, Timestamp(9), [tablet], LEASE_MS, 10)
    readers.tick(5 + LEASE_MS * 1000 - 1)
    assert readers.oldest(tablet) == MIN_TIMESTAMP
    readers.tick(5 + LEASE_MS * 1000)
    assert readers.oldest(tablet) == 9
