"""Short appends wait in the journal of a replica: durable, to be read, and bounded."""

import shutil
from pathlib import Path
from random import Random

import pytest

from disk_faults.replicating import JOURNAL_BLOCKS, small_journal
from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import (
    EntriesAdded,
    EntriesDropped,
    EpochRaised,
    LogBegun,
    LogCut,
    Record,
    Swept,
)
from dodona_replication.shell import replica_store
from dodona_replication.shell.replica_check import opened_replica, verify_replica
from dodona_replication.shell.replica_journal import (
    BLOCK_BYTES,
    FRAME_BYTES_MAX,
    JOURNAL_BYTES,
    JOURNAL_NAME,
    WAITING_BYTES_MAX,
    WAITING_ENTRIES_MAX,
)
from dodona_replication.shell.replica_store import ReplicaStore
from unit.replication.journals import begun, copied, everything, found, one, transactions
from unit.replication.replicas import CLUSTER, MemoryStore, entries


def test_short_appends_are_durable_before_the_file_has_them(
    store: ReplicaStore, here: Path
) -> None:
    before = transactions(store)
    for index in range(2, 6):
        store.append([one(index), one(index, "b")])
        assert found(copied(here)) == [*range(1, index + 1)]
    assert transactions(store) == before
    store.close()
    assert found(here) == [1, 2, 3, 4, 5]


def test_a_reader_gets_what_waits_without_a_transaction(store: ReplicaStore) -> None:
    before = transactions(store)
    store.append([one(2), one(3)])
    store.append([one(4)])
    assert store.logs()["a"].tail.last_index == 4
    whole = [make_entry(it, 1, b"%d" % it) for it in range(1, 5)]
    for first in range(1, 5):
        for last in range(first, 5):
            assert store.read("a", first, last, 1, 1 << 20) == tuple(whole[first - 1 : last])
    assert len(store.read("a", 1, 4, 1, 2)) == 2
    assert store.read("a", 2, 4, 0, 1 << 20) == ()
    assert transactions(store) == before
    store.close()


def test_a_start_leaves_what_waits_in_the_journal(store: ReplicaStore, here: Path) -> None:
    store.append([one(2)])
    crashed = copied(here)
    store.close()
    again = ReplicaStore.open(crashed, CLUSTER)
    before = transactions(again)
    again.append([one(3)])
    assert len(again.read("a", 1, 3, 1, 1 << 20)) == 3
    assert transactions(again) == before
    assert found(copied(crashed, "twice")) == [1, 2, 3]
    again.close()
    with opened_replica(crashed) as stored:
        assert stored.waiting == {"a": [], "b": []}


def test_a_check_reads_what_waits(store: ReplicaStore, here: Path) -> None:
    store.append([one(2), one(2, "b"), one(3)])
    with opened_replica(copied(here)) as stored:
        assert [it.index for it in stored.entries_behind("a", 0)] == [1, 2, 3]
        assert [it.index for it in stored.entries_behind("a", 2)] == [3]
        assert [it.index for it in stored.entries_behind("b", 1)] == [2]
    store.close()


def other_records() -> dict[str, list[Record]]:
    """What the journal does not take, behind entries 1 to 3 of log a."""
    return {
        "epoch": [EpochRaised("a", 2)],
        "cut": [LogCut("a", 3)],
        "drop": [EntriesDropped("a", 1)],
        "drop and add": [
            EpochRaised("a", 2),
            EntriesDropped("a", 2),
            EntriesAdded("a", entries(2, first_index=3)),
        ],
        "first of an epoch": [EpochRaised("a", 2), EntriesAdded("a", entries(2, first_index=4))],
        "beginning": [LogBegun("a", 1, entries(1, 1, first_index=9))],
        "entries and cut": [one(4), LogCut("a", 4)],
        "long": [one(4, records=bytes(FRAME_BYTES_MAX))],
        "many": [EntriesAdded("a", entries(*[1] * WAITING_ENTRIES_MAX, first_index=4))],
        "new log": [EpochRaised("c", 1), EntriesAdded("c", entries(1))],
        "log that was never fenced": [EntriesAdded("c", entries(1))],
        "nothing": [Swept()],
    }  # fmt: skip


@pytest.mark.parametrize("kind", other_records())
def test_other_records_bring_what_waits_into_the_file(
    store: ReplicaStore, here: Path, kind: str
) -> None:
    records = other_records()[kind]
    store.append([one(2), one(2, "b")])
    store.append([one(3)])
    model = MemoryStore()
    model.append([EpochRaised("a", 1), EpochRaised("b", 1), one(1), one(1, "b")])
    model.append([one(2), one(2, "b"), one(3), *records])
    before = transactions(store)
    store.append(records)
    assert transactions(store) == before + 1
    assert everything(store) == everything(model)
    with opened_replica(copied(here)) as stored:
        assert not any(stored.waiting.values())
    for folder in (copied(here), here):
        if folder == here:
            store.close()
        again = ReplicaStore.open(folder, CLUSTER)
        assert everything(again) == everything(model)
        again.close()
        assert verify_replica(folder).damages == ()


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_after_any_append_leaves_what_was_appended(here: Path, seed: int) -> None:
    random = Random(seed)
    with small_journal():
        store, model = ReplicaStore.open(here, CLUSTER), MemoryStore()
        for _ in range(40):
            records = drawn(random, model)
            store.append(records)
            model.append(records)
            assert everything(store) == everything(model)
            crashed = copied(here)
            assert verify_replica(crashed).damages == ()
            again = ReplicaStore.open(crashed, CLUSTER)
            assert everything(again) == everything(model)
            if random.random() < 0.3:
                store.close()
                shutil.rmtree(here)
                again.close() if random.random() < 0.5 else _kill(again)
                crashed.rename(here)
                store = ReplicaStore.open(here, CLUSTER)
            else:
                again.close()
        store.close()


def _kill(store: ReplicaStore) -> None:
    """Close what the kernel closes if the process is killed."""
    store._has_failed = True
    store.close()


def drawn(random: Random, model: MemoryStore) -> list[Record]:
    """Records that a core could append next."""
    ahead = MemoryStore()
    ahead._states = model.logs()
    ahead._entries = {name: dict(it) for name, it in model._entries.items()}
    records: list[Record] = []
    for _ in range(random.choice((1, 1, 2, 3))):
        log = random.choice("ab")
        state = ahead.logs().get(log)
        record: Record = EpochRaised(log, 1)
        if state is not None:
            tail, kind = state.tail, random.random()
            added = make_entry(tail.last_index + 1, state.epoch, bytes(random.choice((0, 9_000))))
            record = EntriesAdded(log, (added,))
            if kind < 0.1:
                record = EpochRaised(log, state.epoch + 1)
            elif kind < 0.2 and len(tail):
                record = LogCut(log, random.randint(tail.first_index, tail.last_index))
            elif kind < 0.25 and len(tail):
                record = EntriesDropped(log, random.randint(tail.first_index, tail.last_index))
            elif kind < 0.3:
                first = tail.last_index + 5
                record = LogBegun(log, state.epoch, entries(state.epoch, first_index=first))
        ahead.append([record])
        records.append(record)
    return records


def test_the_journal_is_a_ring_that_what_waits_half_fills(store: ReplicaStore, here: Path) -> None:
    """Nothing is written over a frame that waits, nor over the one that the file names."""
    assert WAITING_BYTES_MAX + 2 * FRAME_BYTES_MAX <= JOURNAL_BYTES
    assert (
        JOURNAL_BLOCKS["WAITING_BYTES_MAX"] + 2 * JOURNAL_BLOCKS["FRAME_BYTES_MAX"]
        <= (JOURNAL_BLOCKS["JOURNAL_BYTES"])
    )
    places = set()
    before, count = transactions(store), 0
    for index in range(2, 1_200):
        store.append([one(index)])
        place = store._journal.last
        assert place.offset % BLOCK_BYTES == 0
        places.add(place.offset)
        count += 1
        if transactions(store) > before:
            assert count <= WAITING_BYTES_MAX // BLOCK_BYTES + 1
            before, count = transactions(store), 0
    assert places == {*range(0, JOURNAL_BYTES, BLOCK_BYTES)}
    crashed = copied(here)
    assert found(crashed) == [*range(1, 1_200)]
    assert (here / JOURNAL_NAME).stat().st_size == JOURNAL_BYTES
    assert (here / JOURNAL_NAME).stat().st_mode & 0o777 == 0o600
    store.close()


def test_few_entries_wait(store: ReplicaStore) -> None:
    before = transactions(store)
    for index in range(2, 2 + 99 * 5, 99):
        store.append([EntriesAdded("a", entries(*[1] * 99, first_index=index))])
    assert transactions(store) == before
    store.append([EntriesAdded("a", entries(*[1] * 99, first_index=497))])
    assert transactions(store) == before + 1
    store.close()


@pytest.mark.parametrize("count", [1, 100, 240, 450])
def test_removals_keep_up_with_entries_however_these_come(store: ReplicaStore, count: int) -> None:
    """Each transaction removes more than it adds, as long as there is garbage."""
    last = 1 + 5 * WAITING_ENTRIES_MAX
    store.append([EntriesAdded("b", entries(*[1] * (last - 1), first_index=2))])
    store.append([LogCut("b", last)])
    before, seen, index = transactions(store), piece_count(store), 2
    while transactions(store) == before:
        store.append([EntriesAdded("a", entries(*[1] * count, first_index=index))])
        index += count
    assert piece_count(store) < seen
    store.close()


def piece_count(store: ReplicaStore) -> int:
    found: int = store._environment.stat()["entries"]
    return found


def test_a_map_that_gets_full_loses_nothing_that_waits(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_store, "MAP_BYTES_FIRST", 256 << 10)
    store = begun(here)
    for index in range(2, 1_000):
        store.append([one(index, records=b"%04d" % index * 500)])
    assert store._environment.info()["map_size"] > 256 << 10
    assert found(copied(here)) == [*range(1, 1_000)]
    store.close()


@pytest.mark.parametrize(("size", "appends"), [(1, 128), (50, 10)])
def test_a_start_does_not_let_more_wait(
    store: ReplicaStore, here: Path, size: int, appends: int
) -> None:
    """So processes that are killed again and again don't write over frames that wait."""
    before = transactions(store)
    index = 2
    for _ in range(appends // 2):
        store.append([EntriesAdded("a", entries(*[1] * size, first_index=index))])
        index += size
    again = ReplicaStore.open(copied(here), CLUSTER)
    store.close()
    for _ in range(appends // 2):
        again.append([EntriesAdded("a", entries(*[1] * size, first_index=index))])
        index += size
    assert transactions(again) == before
    again.append([EntriesAdded("a", entries(*[1] * size, first_index=index))])
    assert transactions(again) == before + 1
    again.close()


def test_an_idle_store_brings_what_waits_into_the_file(store: ReplicaStore, here: Path) -> None:
    assert not store.is_idle()
    store.append([one(2)])
    assert not store.is_idle()
    assert store.is_idle()
    store.append([Swept()])
    assert not store.is_idle()
    with opened_replica(copied(here)) as stored:
        assert not any(stored.waiting.values())
    store.close()


def test_all_bytes_of_records_are_counted_once(store: ReplicaStore) -> None:
    before = store.written_bytes
    store.append([one(2, records=b"12345")])
    assert store.written_bytes == before + 5
    store.append([one(3, records=b"123"), Swept()])
    assert store.written_bytes == before + 8
    store.close()
    assert store.written_bytes == before + 8
