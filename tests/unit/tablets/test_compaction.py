"""Chunks become one, and old versions go: which are chosen, what stays, and who is waited for."""

import msgspec
import pytest

from dodona.errors import Overloaded
from dodona.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    NULL_TIMESTAMP,
    CellId,
    TableSettings,
    Timestamp,
)
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.records import ChunksCompacted
from dodona_tablets.core.rows.chunks.info import AttachedChunk, ChunkInfo
from dodona_tablets.core.rows.chunks.jobs import build
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.compaction import CompactionToken, expired_chunks, tier_of
from dodona_wire.cores.effects import RemoveChunks
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import CommitOne, Lookup, RowLock, WriteNonAtomic, Written
from unit.tablets.cells import (
    ATOMIC,
    NON_ATOMIC,
    REVISION,
    SECOND,
    Bench,
    changes,
    delete,
    key,
    put,
)
from unit.tablets.cold import SOON, let_time_pass
from unit.tablets.loads import Loading

CELL = CellId(0)
AT_ONCE = TableSettings(dynamic_store_auto_flush_period=1_000, min_data_ttl=0, max_data_ttl=0)
EXPIRING = msgspec.structs.replace(AT_ONCE, min_data_versions=0)
CLEANING = CellLimits(clean_period_ms=10_000)


def compacted(bench: Bench) -> list[ChunksCompacted]:
    return [record for record in bench.appended[CELL] if isinstance(record, ChunksCompacted)]


def tablet_of(bench: Bench) -> Tablet:
    return bench.nodes[CELL].cell.tablets[ATOMIC]


def flush_each(bench: Bench, *values: int) -> list[Timestamp]:
    """Each value of row 1 in a chunk of its own."""
    stamps = []
    for value in values:
        stamps.append(bench.commit(put(1, value), put(value, value)))
        let_time_pass(bench, 2)
    return stamps


def test_chunks_of_one_size_become_one_that_reads_the_same() -> None:
    bench = Bench(settings=SOON)
    stamps = flush_each(bench, 10, 20, 30, 40)
    assert len(tablet_of(bench).stores.chunks) == 4
    assert compacted(bench) == []  # their stores are still there for those who look for conflicts
    let_time_pass(bench, 90)
    (record,) = compacted(bench)
    assert len(record.removed) == 4
    assert len(tablet_of(bench).stores.chunks) == 1
    assert sorted(bench.files[CELL]) == sorted(bench.nodes[CELL].chunks_needed())
    for at, value in zip(stamps, (10, 20, 30, 40), strict=True):
        assert bench.read(1, at) == (value, None)
    bench.start(CELL)
    for at, value in zip(stamps, (10, 20, 30, 40), strict=True):
        assert bench.read(1, at) == (value, None)


def test_few_chunks_stay_as_they_are() -> None:
    bench = Bench(settings=SOON)
    flush_each(bench, 10, 20, 30)
    let_time_pass(bench, 200)
    assert compacted(bench) == []


def test_a_table_may_be_spared() -> None:
    settings = TableSettings(
        dynamic_store_auto_flush_period=1_000, enable_compaction_and_partitioning=False
    )
    bench = Bench(settings=settings)
    flush_each(bench, 10, 20, 30, 40, 50)
    let_time_pass(bench, 200)
    assert compacted(bench) == []
    assert len(tablet_of(bench).stores.chunks) == 5


def test_old_versions_are_removed_and_reads_below_are_refused() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = bench.commit(put(1, 1))
    bench.commit(put(1, 2))
    bench.commit(delete(2))
    let_time_pass(bench, 60)
    assert bench.read(1, first) == (1, None)
    let_time_pass(bench, 60)
    (record,) = compacted(bench)
    assert tablet_of(bench).retained_timestamp == record.retained
    assert [len(versions) for _, versions in tablet_of(bench).dump()] == [1]
    reply = bench.answer(bench.lookup(1, at=first))
    assert isinstance(reply, Failure)
    assert reply.attributes["retained_timestamp"] == record.retained
    assert bench.read(1, record.retained) == bench.read(1) == (2, None)
    bench.start(CELL)
    assert isinstance(bench.answer(bench.lookup(1, at=first)), Failure)
    assert bench.read(1) == (2, None)


def test_a_chunk_that_was_cleaned_is_not_cleaned_again() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    bench.commit(put(1, 1))
    bench.commit(put(1, 2))
    let_time_pass(bench, 400)
    assert len(compacted(bench)) == 1


def test_a_chunk_without_garbage_is_not_compacted_and_keeps_its_history() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    first = bench.commit(put(1, 1))
    let_time_pass(bench, 200)
    assert compacted(bench) == []
    assert bench.read(1, Timestamp(first - 1)) is None


def test_a_chunk_of_which_nothing_is_left_goes() -> None:
    bench = Bench(settings=EXPIRING, limits=CLEANING)
    bench.commit(put(1, 1))
    let_time_pass(bench, 200)
    assert tablet_of(bench).stores.chunks == []
    assert bench.files[CELL] == {}
    assert bench.read(1) is None


def commit_lock(bench: Bench, number: int) -> None:
    start = bench.begin()
    bench.ask(CommitOne(start, (changes(locks=(RowLock(key(number), 1, "exclusive"),)),)))
    bench.answer_oracle()


@pytest.mark.parametrize("is_beside_locks", [False, True])
def test_rows_of_a_load_expire_and_their_chunk_is_written_once(is_beside_locks: bool) -> None:
    """A publication writes no row, and a lock none either: there is nothing older in memory."""
    bench = Bench(settings=EXPIRING, limits=CLEANING)
    if is_beside_locks:
        commit_lock(bench, 7)
    load = Loading(bench)
    load.seal(load.stage({1: 1, 2: 2}))
    load.publish()
    if is_beside_locks:
        commit_lock(bench, 8)
    assert bench.read(1) == (1, None)
    let_time_pass(bench, 200)
    assert tablet_of(bench).stores.chunks == []
    assert bench.read(1) is None
    assert len(compacted(bench)) == 1
    bench.start(CELL)
    assert bench.read(1) is None


def test_rows_that_only_lock_leave_no_timestamp_in_a_store() -> None:
    bench = Bench()
    commit_lock(bench, 7)
    store = tablet_of(bench).active
    assert (len(store), store.max_timestamp) == (0, NULL_TIMESTAMP)
    assert store.min_timestamp == MAX_TIMESTAMP


@pytest.mark.parametrize(
    ("spans", "chosen"),
    [
        ([(1, 5)], [0]),
        ([(1, 5), (4, 9)], [0, 1]),  # each has something older than the newest of the other
        ([(1, 5), (4, 20)], []),  # the second does not go yet, and may have what the first hides
        ([(1, 3), (4, 20)], [0]),
        ([(11, 20)], []),
    ],
)
def test_expired_chunks_are_chosen_if_one_of_them_goes_as_a_whole(
    spans: list[tuple[int, int]], chosen: list[int]
) -> None:
    """Nothing is written again for nothing."""
    tablet = tablet_of(Bench(settings=EXPIRING))
    for number, span in enumerate(spans):
        first, last = map(Timestamp, span)
        info = ChunkInfo(number, 1, 1, key(1), key(1), first, last, 0, 0)
        tablet.stores.attach(AttachedChunk(info), None)
    terms = Terms(Timestamp(15), Timestamp(10), EXPIRING)
    found = expired_chunks(tablet, tablet.stores.chunks, terms)
    assert [it.attached.info.number for it in found] == chosen
    kept = Terms(Timestamp(15), Timestamp(10), AT_ONCE)
    assert expired_chunks(tablet, tablet.stores.chunks, kept) == ()


def test_an_expired_chunk_waits_for_older_rows_and_is_not_rewritten_meanwhile() -> None:
    """Rows in memory that are older keep it: its versions may hide theirs."""
    settings = msgspec.structs.replace(EXPIRING, dynamic_store_auto_flush_period=300_000)
    bench = Bench(settings=settings, limits=CLEANING)
    load = Loading(bench)
    load.seal(load.stage({1: 1}))
    bench.commit(put(9, 9))
    load.publish()
    let_time_pass(bench, 250)
    assert compacted(bench) == []
    let_time_pass(bench, 250)
    assert tablet_of(bench).stores.chunks == []
    assert (bench.read(1), bench.read(9)) == (None, None)
    assert len(compacted(bench)) <= 2


def test_a_transaction_that_stays_prepared_holds_everything_back() -> None:
    bench = Bench(2, settings=AT_ONCE, limits=CLEANING)
    for value in (1, 2):
        bench.commit(put(1, value))
    bench.timestamp()
    start = bench.begin()
    bench.prepare(start, put(2, 2), cell=0)
    bench.answer_oracle()
    for value in (3, 4):
        bench.commit(put(1, value))
    bench.nodes.pop(CellId(1))  # the coordinator can't recover it
    let_time_pass(bench, 200)
    assert all(record.retained < start for record in compacted(bench))
    assert tablet_of(bench).retained_timestamp < start
    (versions,) = [it for row, it in tablet_of(bench).dump() if row == key(1)]
    assert [version[2][0] for version in versions][-3:] == [2, 3, 4]


def test_the_retained_timestamp_leaves_room_for_every_transaction() -> None:
    bench = Bench(settings=AT_ONCE, limits=CLEANING)
    for value in range(3):
        bench.commit(put(1, value))
    while not compacted(bench):  # at that instant, and not long after, it has to be so far behind
        let_time_pass(bench, 1)
    assert compacted(bench)[0].retained <= bench.oracle - 75 * SECOND


def write_stamped(bench: Bench, value: int, behind_s: int = 0) -> Timestamp:
    stamp = Timestamp(bench.oracle - behind_s * SECOND)
    reply = bench.answer(
        bench.ask(WriteNonAtomic(NON_ATOMIC, REVISION, stamp, True, (put(1, value),)))
    )
    assert isinstance(reply, Written)
    return reply.timestamp


@pytest.mark.parametrize("merges", [False, True])
def test_without_atomicity_old_versions_go_within_seconds(merges: bool) -> None:
    """No transaction lives that could need them: so neither at a flush nor at a compaction does
    anything wait for the end of one."""
    settings = msgspec.structs.replace(AT_ONCE, merge_rows_on_flush=merges)
    bench = Bench(settings=settings, limits=CLEANING)
    tablet = bench.nodes[CELL].cell.tablets[NON_ATOMIC]
    first = write_stamped(bench, 1)
    for value in range(2, 60):
        let_time_pass(bench, 1)
        write_stamped(bench, value)
        assert tablet.retained_timestamp <= bench.oracle - 5 * SECOND
    ((_, versions),) = tablet.dump()
    assert len(versions) < 20
    assert tablet.retained_timestamp > bench.oracle - 20 * SECOND
    reply = bench.answer(bench.ask(Lookup(NON_ATOMIC, REVISION, first, (key(1),), 3)))
    assert isinstance(reply, Failure)
    assert reply.kind == "snapshot_too_old"


def test_a_slow_clock_writes_no_non_atomic_row_below_the_retained_timestamp() -> None:
    settings = msgspec.structs.replace(EXPIRING, merge_rows_on_flush=True)
    bench = Bench(settings=settings, limits=CLEANING)
    tablet = bench.nodes[CELL].cell.tablets[NON_ATOMIC]
    write_stamped(bench, 1)
    let_time_pass(bench, 40)
    assert tablet.dump() == []
    retained = tablet.retained_timestamp
    assert retained > bench.oracle - 50 * SECOND
    assert write_stamped(bench, 2, behind_s=55) >= retained
    bench.start(CELL)
    ((_, versions),) = bench.nodes[CELL].cell.tablets[NON_ATOMIC].dump()
    assert versions[0][0] >= retained


def test_a_new_tablet_waits_for_no_reader_and_one_that_is_mounted_again_does() -> None:
    """Nobody can hold a snapshot of what never was: only of a tablet that was served before."""
    bench = Bench()
    readers = bench.nodes[CELL].cell.readers
    assert readers.oldest(NON_ATOMIC) is None
    bench.start(CELL)
    assert bench.nodes[CELL].cell.readers.oldest(NON_ATOMIC) == MIN_TIMESTAMP


def test_a_compaction_that_fails_is_tried_again_later() -> None:
    bench = Bench(settings=SOON)
    flush_each(bench, 10, 20, 30, 40)
    bench.holds_jobs = True
    let_time_pass(bench, 90)
    ((_, effect),) = bench.jobs
    assert isinstance(effect.token, CompactionToken)
    assert bench.nodes[CELL].statistics().compacting["chunks"] == 4
    bench.jobs.clear()
    node = bench.nodes[CELL]
    node.handle_job(effect.token, Failure(Overloaded.kind, "no space"), bench.now)
    assert node.statistics().compacting == {}
    assert node.statistics().last_failure == "no space"
    assert bench.read(10) == (10, None)
    let_time_pass(bench, 40)
    bench.finish_jobs()
    assert len(compacted(bench)) == 1


def test_a_compaction_of_a_removed_tablet_has_no_effect_and_its_file_is_removed() -> None:
    """The tablet was altered so that its chunks are others' meanwhile: the new file goes."""
    bench = Bench(settings=SOON)
    flush_each(bench, 10, 20, 30, 40)
    bench.holds_jobs = True
    let_time_pass(bench, 90)
    ((_, effect),) = bench.jobs
    node = bench.nodes[CELL]
    del node.cell.tablets[ATOMIC]
    bench.finish_jobs()
    assert compacted(bench) == []
    assert effect.job.number not in bench.files[CELL]


def test_read_locks_are_forgotten_when_no_transaction_could_meet_them() -> None:
    bench = Bench(settings=AT_ONCE)
    bench.commit(put(3, 3))
    start = bench.begin()
    lock = RowLock(key(3), 1, "shared_strong")
    bench.ask(CommitOne(start, (changes(locks=(lock,)),)))
    bench.answer_oracle()
    let_time_pass(bench, 60)
    assert len(tablet_of(bench).locks) == 1  # it may still stop somebody
    let_time_pass(bench, 60)
    assert tablet_of(bench).locks == {}


def test_tiers_grow_by_a_ratio() -> None:
    def tier(size_bytes: int) -> int:
        stamp = Timestamp(1)
        info = ChunkInfo(1, 1, size_bytes, key(1), key(1), stamp, stamp, 0, 0)
        return tier_of(AttachedChunk(info))

    assert [tier(size) for size in (1, (1 << 20) - 1, 1 << 20, 4 << 20, 16 << 20)] == [
        0,
        0,
        1,
        2,
        3,
    ]


def test_files_go_behind_the_record_that_replaced_them() -> None:
    bench = Bench(settings=SOON)
    flush_each(bench, 10, 20, 30, 40)
    bench.holds_jobs = True
    let_time_pass(bench, 90)
    ((_, effect),) = bench.jobs
    bench.jobs.clear()
    result = build(effect.job)
    bench.nodes[CELL].handle_job(effect.token, result, bench.now)
    kinds = [type(it).__name__ for it in bench.nodes[CELL].take_effects()]
    assert kinds.index("Append") < kinds.index(RemoveChunks.__name__)
