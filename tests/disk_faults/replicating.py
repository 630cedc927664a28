"""The store of a log replica under the same eyes: entries of two logs, some of them in its journal.

Owns: what is appended, drawn: short appends, which the journal takes, and others, which the store's
file takes. A small journal is full, and at its end, often. With every other seed the folder is of
the format without a journal at first. The groups of the story are the entries of one log. Another
log has entries, too, and it is also cut, and loses entries. All of a group is there, or nothing: so
the first log tells what the other one must be. Must not import: the tracer, or disks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import lmdb
import pytest

from disk_faults.promises import Promises, live
from disk_faults.stores import FOLDER, Mark, Wrong
from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import (
    EntriesAdded,
    EntriesDropped,
    EpochRaised,
    LogCut,
    Record,
)
from dodona_replication.shell import replica_journal, replica_store
from dodona_replication.shell.replica_check import verify_replica
from dodona_replication.shell.replica_journal import BLOCK_BYTES
from dodona_replication.shell.replica_keys import FORMAT_KEY, IDENTITY_KEY, Identity, sealed
from dodona_replication.shell.replica_store import ReplicaStore, _open_environment
from dodona_server.environment import make_environment
from dodona_wire.messages.replicas import Entry

GROUPS: Final = 60
JOURNAL_BLOCKS: Final = {"JOURNAL_BYTES": 16, "WAITING_BYTES_MAX": 6, "FRAME_BYTES_MAX": 3}
CLUSTER: Final = "home"
LOG: Final = "a"
OTHER: Final = "b"
SIZES: Final = (0, 100, 100, 100, 600, 5_000)
LARGE_BYTES: Final = 3 * BLOCK_BYTES


@dataclass(slots=True)
class OtherLog:
    """The log that tells no groups, as it must be."""

    epoch: int = 1
    first_index: int = 1
    entries: list[Entry] = field(default_factory=list)
    """From the first one on."""

    @classmethod
    def after(cls, seed: int, count: int) -> "OtherLog":
        """Return the log after so many groups."""
        log = cls()
        for number in range(1, count + 1):
            for record in log.changes(_random(seed, number, OTHER), number):
                log.apply(record)
        return log

    def changes(self, random: Random, number: int) -> list[Record]:
        """Return what the group with this number changes: one thing, or nothing."""
        draw = random.random()
        next_index = self.first_index + len(self.entries)
        if draw < 0.3:
            return [EntriesAdded(OTHER, (make_entry(next_index, self.epoch, b"%d" % number),))]
        if draw < 0.4:
            return [EpochRaised(OTHER, self.epoch + 1)]
        if draw < 0.5 and len(self.entries) > 1:
            return [LogCut(OTHER, random.randrange(self.first_index + 1, next_index))]
        if draw < 0.6 and self.entries:
            return [EntriesDropped(OTHER, random.randrange(self.first_index - 1, next_index - 1))]
        return []

    def apply(self, record: Record) -> None:
        match record:
            case EntriesAdded(entries=entries):
                self.entries += entries
            case EpochRaised(epoch=epoch):
                self.epoch = epoch
            case LogCut(first_index=first_index):
                del self.entries[: first_index - self.first_index]
                self.first_index = first_index
            case EntriesDropped(last_index=last_index):
                del self.entries[last_index + 1 - self.first_index :]

    def check(self, store: ReplicaStore) -> None:
        """Raise Wrong if the store has another log than this one."""
        state = store.logs()[OTHER]
        tail = state.tail
        entries = store.read(OTHER, tail.first_index, tail.last_index, state.epoch, 1 << 40)
        if (state.epoch, tail.first_index, [*entries]) != (
            self.epoch,
            self.first_index,
            self.entries,
        ):
            raise Wrong(f"the other log is {state} with {entries}, and should be {self}")


class ReplicaStoreStory:
    """Appends to the store of a replica. The groups are entries of one log, by their indexes."""

    name = "store of a log replica"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        path = folder / FOLDER
        with small_journal():
            store = _open(path, seed)
            found = _lives(store)
            if LOG not in store.logs():
                store.append([EpochRaised(LOG, 1), EpochRaised(OTHER, 1)])
            live(
                store.append,
                lambda number, life: _group(seed, number, life, store),
                range(len(found) + 1, GROUPS + 1),
                mark,
            )
            store.close()

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        path = folder / FOLDER
        with small_journal():
            # A start reads no entry, so only a check notices all damage to the file.
            checked = verify_replica(path) if marks else None
            for damage in checked.damages if checked else ():
                raise damage
            store = ReplicaStore.open(path, CLUSTER)
            found = _lives(store)
            if found:
                OtherLog.after(seed, len(found)).check(store)
            if checked and checked.entry_count != sum(len(it.tail) for it in store.logs().values()):
                raise Wrong("a check and a start find different entries")
            if found:
                store.append([_added(store, LOG, b"0")])
            store.close()
            if found:
                again = ReplicaStore.open(path, CLUSTER)
                if _lives(again) != [*found, 0]:
                    raise Wrong("an entry that was added after the recovery is not there")
                again.close()
        Promises.of(marks).check(found)


@contextmanager
def small_journal() -> Iterator[None]:
    """Give replicas a journal of a few blocks in the block."""
    with pytest.MonkeyPatch.context() as patch:
        for name, blocks in JOURNAL_BLOCKS.items():
            patch.setattr(replica_journal, name, blocks * BLOCK_BYTES)
        yield


def _open(path: Path, seed: int) -> ReplicaStore:
    """Open the store. With every other seed, a new one has the format without a journal first."""

    def open_older(file: Path, map_bytes_max: int) -> lmdb.Environment:
        if not file.exists():
            identity = sealed(IDENTITY_KEY, Identity("older", CLUSTER))
            make_environment(file, 1 << 20, [(FORMAT_KEY, b"1"), (IDENTITY_KEY, identity)])
        return _open_environment(file, map_bytes_max)

    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(replica_store, "_open_environment", open_older)
        return ReplicaStore.open(path, CLUSTER)


def _lives(store: ReplicaStore) -> list[int]:
    """Of each entry the life that wrote it."""
    if LOG not in store.logs():
        return []
    tail = store.logs()[LOG].tail
    entries = store.read(LOG, 1, tail.last_index, tail.last_epoch, 1 << 40)
    if len(entries) != tail.last_index:
        raise Wrong(f"{len(entries)} entries of {tail.last_index} can be read")
    return [int(it.records.split(b" ")[0]) for it in entries]


def _group(seed: int, number: int, life: int, store: ReplicaStore) -> list[Record]:
    random = _random(seed, number, LOG)
    size = LARGE_BYTES if random.random() < 0.03 else random.choice(SIZES)
    added = _added(store, LOG, b"%d %s" % (life, bytes(size)))
    other = OtherLog.after(seed, number - 1)
    return [added, *other.changes(_random(seed, number, OTHER), number)]


def _random(seed: int, number: int, log: str) -> Random:
    return Random(f"{seed}/{number}/{log}")


def _added(store: ReplicaStore, log: str, records: bytes) -> EntriesAdded:
    state = store.logs()[log]
    return EntriesAdded(log, (make_entry(state.tail.last_index + 1, state.epoch, records),))
