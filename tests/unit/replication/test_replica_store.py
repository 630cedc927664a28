"""The store of a replica: durable when it says so, for many logs at once, and loud about damage."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from dodona.errors import DataCorrupted, FolderInUse, InvalidRequest
from dodona_local.checking import check_folder
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
from dodona_replication.shell import replica_writing
from dodona_replication.shell.replica_check import verify_replica
from dodona_replication.shell.replica_keys import FORMAT_KEY, PIECE_BYTES, piece_key, state_key
from dodona_replication.shell.replica_store import FILE_NAME, ReplicaStore
from dodona_wire.messages.replicas import Entry
from unit.replication.journals import transactions
from unit.replication.replicas import CLUSTER, MemoryStore, entries

SIZES = (0, 1, 1_500, PIECE_BYTES - 20, PIECE_BYTES - 19, 3 * PIECE_BYTES, 100_000)
"""Records of these sizes take one piece, fill it, and need several."""
LOGS = ("a", "b")


def sized(epoch: int, first_index: int = 1) -> tuple[Entry, ...]:
    return tuple(
        [make_entry(first_index + at, epoch, bytes([at]) * it) for at, it in enumerate(SIZES)]
    )


def history() -> Iterator[list[Record]]:
    """Appends of all kinds to two logs."""
    for epoch, log in enumerate(LOGS, start=1):
        yield [EpochRaised(log, epoch), EntriesAdded(log, sized(epoch))]
    yield [EpochRaised("a", 3), EntriesDropped("a", 4), EntriesAdded("a", sized(3, 5))]
    yield [LogCut("a", 5), LogCut("b", 2), EpochRaised("c", 7)]
    yield [EntriesAdded("a", entries(3, 3, first_index=12)), LogCut("a", 12)]
    yield [LogBegun("b", 2, entries(2, 2, first_index=30))]
    yield [EntriesDropped("b", 29), Swept(), EntriesAdded("b", entries(2, first_index=30))]


def everything(store: ReplicaStore | MemoryStore) -> dict[str, object]:
    """What a core learns from a store."""
    return {
        name: (
            state.epoch,
            state.tail.first_index,
            state.tail.epoch_before,
            state.tail.last_indexes,
            store.read(name, state.tail.first_index, state.tail.last_index, 1 << 40, 1 << 40),
        )
        for name, state in sorted(store.logs().items())
    }


def open_store(folder: Path) -> ReplicaStore:
    return ReplicaStore.open(folder, CLUSTER)


def raw(folder: Path) -> lmdb.Environment:
    return lmdb.open(str(folder / FILE_NAME), subdir=False, lock=False)


def test_a_store_has_what_a_store_in_memory_has(tmp_path: Path) -> None:
    store, model = open_store(tmp_path), MemoryStore()
    for records in history():
        store.append(records)
        model.append(records)
        assert everything(store) == everything(model)
        store.close()
        store = open_store(tmp_path)
        assert everything(store) == everything(model)
    store.close()
    summary = verify_replica(tmp_path)
    assert (summary.log_count, summary.damages) == (3, ())
    assert summary.entry_count == sum(len(it.tail) for it in model.logs().values())


def test_records_of_many_logs_share_one_transaction_or_one_frame(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    before = transactions(store)
    store.append([EpochRaised(f"log-{it}", 1) for it in range(50)])
    assert transactions(store) == before + 1
    store.append([EntriesAdded(f"log-{it}", entries(1, 1)) for it in range(50)])
    assert transactions(store) == before + 2
    store.append([EntriesAdded(f"log-{it}", entries(1, first_index=3)) for it in range(50)])
    assert (transactions(store), store._journal.last.number) == (before + 2, 1)
    store.close()


def test_one_append_is_all_or_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append([EpochRaised("a", 1), EntriesAdded("a", entries(1))])
    with pytest.raises(AssertionError, match="an entry is missing"):
        store.append([EpochRaised("b", 1), EntriesAdded("a", entries(1, first_index=7))])
    store.close()
    store = open_store(tmp_path)
    with pytest.raises(AssertionError, match="an entry is missing"):
        store.append([EntriesAdded("a", entries(1, first_index=7))])
    store.close()
    store = open_store(tmp_path)
    assert everything(store) == {"a": (1, 1, 0, ((1, 1),), entries(1))}
    store.close()


def test_a_new_folder_is_a_new_replica(tmp_path: Path) -> None:
    ids = []
    for folder in (tmp_path / "1", tmp_path / "2", tmp_path / "1"):
        store = open_store(folder)
        ids.append(store.identity.replica)
        store.close()
    assert ids[0] == ids[2] != ids[1]
    assert verify_replica(tmp_path / "1").replica == ids[0]


def test_a_folder_belongs_to_one_cluster(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with pytest.raises(InvalidRequest, match="is of cluster home"):
        ReplicaStore.open(tmp_path, "away")
    with pytest.raises(InvalidRequest, match="can't be the name of this cluster"):
        ReplicaStore.open(tmp_path / "new", "no/name")
    open_store(tmp_path).close()


def test_one_process_has_the_folder_and_nobody_else_the_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(FolderInUse, match=str(os.getpid())):
        open_store(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    store.close()


def test_another_format_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with raw(tmp_path) as environment, environment.begin(write=True) as transaction:
        transaction.put(FORMAT_KEY, b"3")
    for look in (open_store, verify_replica):
        with pytest.raises(DataCorrupted, match="has format 3"):
            look(tmp_path)


def test_a_full_map_grows_and_no_record_is_written_twice(tmp_path: Path) -> None:
    store, model = ReplicaStore.open(tmp_path, CLUSTER, 100 << 20), MemoryStore()
    for number in range(1, 5):  # 80 MiB into a map of 64
        added = (make_entry(number, 1, bytes([number]) * (20 << 20)),)
        records: list[Record] = [EntriesAdded("a", added)]
        if number == 1:
            records.insert(0, EpochRaised("a", 1))
        store.append(records)
        model.append(records)
    assert everything(store) == everything(model)
    too_much = (make_entry(5, 1, bytes(20 << 20)),)
    with pytest.raises(lmdb.MapFullError, match="limit"):
        store.append([EntriesAdded("a", too_much)])
    store.close()


def test_a_full_store_says_so_before_it_fails(tmp_path: Path) -> None:
    store = ReplicaStore.open(tmp_path, CLUSTER, 200 << 20)
    assert store.shortage() is None
    store.append([EpochRaised("a", 1)])
    for number in range(1, 4):
        store.append([EntriesAdded("a", (make_entry(number, 1, bytes(20 << 20)),))])
    assert "it may have 200 MiB" in (store.shortage() or "")
    store.append([LogCut("a", 3)])
    while store.has_garbage:
        store.append([Swept()])
    assert store.shortage() is None
    store.close()


def test_a_cut_is_removed_in_steps_and_its_space_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_writing, "SWEEP_PIECES", 100)
    store = open_store(tmp_path)
    store.append([EpochRaised("a", 1)])
    store.append([EntriesAdded("a", tuple([make_entry(it, 1, b"") for it in range(1, 1_001)]))])
    store.append([LogCut("a", 1_000)])
    assert store.has_garbage
    store.close()
    store = open_store(tmp_path)  # the garbage is found again
    assert store.has_garbage
    assert store.read("a", 1, 1_000, 1, 1_000) == ()
    for _ in range(9):
        store.append([Swept()])
    assert not store.has_garbage
    # format, identity and place in the journal; a state, an entry
    assert store._environment.stat()["entries"] == 3 + 2
    full_bytes = (tmp_path / FILE_NAME).stat().st_size
    index = 1_000
    for _ in range(20):
        added = tuple([make_entry(index + at, 1, bytes(5_000)) for at in range(1, 11)])
        index += 10
        store.append([EntriesAdded("a", added), LogCut("a", index)])
    assert (tmp_path / FILE_NAME).stat().st_size < full_bytes + (1 << 20)
    store.close()


def test_entries_of_a_log_that_began_anew_are_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append([EpochRaised("a", 2), EntriesAdded("a", entries(1, 1, 1))])
    store.append([LogBegun("a", 1, entries(2, first_index=2))])
    store.append([Swept()])
    assert not store.has_garbage
    assert everything(store) == {"a": (2, 2, 1, ((2, 2),), entries(2, first_index=2))}
    store.close()
    assert verify_replica(tmp_path).entry_count == 1


def damage(folder: Path, key: bytes, value: bytes | None) -> None:
    with raw(folder) as environment, environment.begin(write=True) as transaction:
        if value is None:
            assert transaction.delete(key)
        else:
            assert transaction.get(key) is not None
            transaction.put(key, value)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (3, b"", "lacks a part"),
        (0, bytes(PIECE_BYTES), "lacks a part"),
        (1, bytes(PIECE_BYTES), "wrong checksum"),
        (1, None, "lacks a part"),
        (0, None, "is missing"),
    ],
)
def test_damage_to_an_entry_names_the_log_and_the_index(
    tmp_path: Path, place: int, value: bytes | None, says: str
) -> None:
    store = open_store(tmp_path)
    store.append([EpochRaised("a", 1), EntriesAdded("a", sized(1)), EpochRaised("b", 1)])
    store.close()
    damage(tmp_path, piece_key(0, 6, place), value)
    store = open_store(tmp_path)
    assert store.read("a", 1, 5, 1, 1 << 30) == sized(1)[:5]
    with pytest.raises(DataCorrupted, match=says) as told:
        store.read("a", 6, 7, 1, 1 << 30)
    assert (told.value.attributes["log"], told.value.attributes["index"]) == ("a", 6)
    store.close()
    (found,) = verify_replica(tmp_path).damages
    assert (found.attributes["log"], found.attributes["index"]) == ("a", 6)


def test_a_damaged_state_is_refused_at_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append([EpochRaised("a", 1), EntriesAdded("a", entries(1))])
    store.close()
    damage(tmp_path, state_key("a"), b"0000 something else")
    for look in (open_store, verify_replica):
        with pytest.raises(DataCorrupted, match="state of log a is wrong"):
            look(tmp_path)


def test_a_log_without_its_last_epoch_is_refused_at_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append([EpochRaised("a", 2), EntriesAdded("a", entries(1, 2))])
    store.close()
    damage(tmp_path, piece_key(0, 2), None)
    with pytest.raises(DataCorrupted, match="is missing"):
        open_store(tmp_path)


def test_dodona_check_knows_the_folder_of_a_replica(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append([EpochRaised("a", 1), EntriesAdded("a", sized(1))])
    store.close()
    (part,) = check_folder(tmp_path)
    assert part.contents.endswith(f"of cluster home: 1 logs, {len(SIZES)} entries, 0.1 MiB")
    assert part.columns[2] == "sound"
    damage(tmp_path, piece_key(0, 6, 1), None)
    assert check_folder(tmp_path)[0].columns[2] == "1 damaged"


def test_there_is_nothing_to_verify_in_another_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no log replica"):
        verify_replica(tmp_path)
