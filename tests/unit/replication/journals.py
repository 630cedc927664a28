"""Stores with a journal, and what becomes of their folders.

Owns: how a test looks at such a folder, or makes one.
"""

import shutil
from pathlib import Path

import lmdb

from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import EntriesAdded, EpochRaised
from dodona_replication.shell.replica_check import verify_replica
from dodona_replication.shell.replica_journal import JOURNAL_NAME
from dodona_replication.shell.replica_keys import FORMAT_KEY, PLACE_KEY
from dodona_replication.shell.replica_store import FILE_NAME, ReplicaStore
from unit.replication.replicas import CLUSTER, MemoryStore


def begun(folder: Path) -> ReplicaStore:
    """A store with entry 1 of two logs. Their epochs have begun, so short appends can wait."""
    made = ReplicaStore.open(folder, CLUSTER)
    made.append([EpochRaised("a", 1), EpochRaised("b", 1), one(1), one(1, "b")])
    return made


def one(index: int, log: str = "a", records: bytes | None = None) -> EntriesAdded:
    return EntriesAdded(log, (make_entry(index, 1, records or b"%d" % index),))


def transactions(store: ReplicaStore) -> int:
    number: int = store._environment.info()["last_txnid"]
    return number


def copied(folder: Path, name: str = "copy") -> Path:
    """Return a copy of the folder as its process leaves it if it is killed now."""
    copy = folder.with_name(name)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


def found(folder: Path) -> list[int]:
    """The indexes of log a, by a check and by a store that opens the folder."""
    summary = verify_replica(folder)
    assert summary.damages == ()
    store = ReplicaStore.open(folder, CLUSTER)
    had = {name: len(it.tail) for name, it in store.logs().items()}
    assert sum(had.values()) == summary.entry_count
    read = store.read("a", store.logs()["a"].tail.first_index, 1 << 40, 1, 1 << 40)
    assert len(read) == had["a"]
    store.close()
    return [it.index for it in read]


def everything(store: ReplicaStore | MemoryStore) -> dict[str, object]:
    return {
        name: (
            *(state.epoch, state.tail.epoch_before, state.tail.last_indexes),
            store.read(name, state.tail.first_index, state.tail.last_index, 1 << 40, 1 << 40),
        )
        for name, state in sorted(store.logs().items())
    }


def old_folder(folder: Path) -> None:
    """A folder of format 1, with entries 1 to 3 of log a."""
    store = ReplicaStore.open(folder, CLUSTER)
    store.append([EpochRaised("a", 1), EpochRaised("b", 1), one(1), one(2), one(3)])
    store.close()
    make_format_1(folder)


def make_format_1(folder: Path) -> None:
    """Make a closed store one of the format without a journal."""
    with (
        lmdb.open(str(folder / FILE_NAME), subdir=False, lock=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        transaction.put(FORMAT_KEY, b"1")
        assert transaction.delete(PLACE_KEY)
    (folder / JOURNAL_NAME).unlink()
