"""What the process of a replica does between its core and its disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import EntriesAdded, EpochRaised, LogCut, Swept
from dodona_replication.core.replica import ReplicaCore
from dodona_replication.shell import replica_service, replica_writing
from dodona_replication.shell.replica_keys import piece_key
from dodona_replication.shell.replica_service import LOOK_US, ReplicaDisk, owners_silent_ms
from dodona_replication.shell.replica_store import ReplicaStore
from dodona_wire.cores.effects import Append, ReadEntries
from dodona_wire.messages.base import Failure
from dodona_wire.messages.families import Reply
from dodona_wire.messages.replicas import LogEntries
from dodona_wire.types import Now
from unit.replication.replicas import CLUSTER, entries

NOW = Now(0, 0)


class Caller:
    """Keeps the answer that it gets."""

    answer: Reply

    def reply(self, request_id: int, body: Reply) -> None:
        assert request_id == 7
        self.answer = body


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ReplicaStore]:
    made = ReplicaStore.open(tmp_path, CLUSTER, 200 << 20)
    made.append([EpochRaised("a", 1), EntriesAdded("a", entries(1, 1, 1))])
    yield made
    made.close()


def core_of(store: ReplicaStore) -> ReplicaCore:
    return ReplicaCore(CLUSTER, store.identity.replica, store.logs(), NOW)


def read(store: ReplicaStore) -> Reply:
    caller = Caller()
    ReplicaDisk(core_of(store), store).read(ReadEntries((caller, 7), "a", 1, 3, 1, 1_000))
    return caller.answer


def test_an_owner_gets_the_entries(store: ReplicaStore) -> None:
    assert read(store) == LogEntries(entries(1, 1, 1))


def test_an_owner_is_told_about_damage_and_the_process_goes_on(store: ReplicaStore) -> None:
    with store._environment.begin(write=True) as transaction:
        transaction.put(piece_key(0, 2), b"something else, and long enough")
    answer = read(store)
    assert isinstance(answer, Failure)
    assert answer.kind == "data_corrupted"
    assert (answer.attributes["log"], answer.attributes["index"]) == ("a", 2)


def test_the_core_learns_that_the_store_is_full(
    store: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str | None] = []
    core = core_of(store)
    monkeypatch.setattr(core, "note_disk", lambda shortage, _: told.append(shortage))
    disk = ReplicaDisk(core, store)
    disk.keep_posted(NOW)
    long = tuple([make_entry(index, 1, bytes(20 << 20)) for index in range(4, 7)])
    store.append([EntriesAdded("a", long)])
    disk.keep_posted(Now(LOOK_US - 1, 0))
    assert told == [None], "it looks a few times a second, not after each flush"
    disk.keep_posted(Now(LOOK_US, 0))
    _, second = told
    assert "it may have 200 MiB" in (second or "")


def test_a_long_removal_goes_on_without_appends(
    store: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_writing, "SWEEP_PIECES", 1)
    core = core_of(store)
    disk = ReplicaDisk(core, store)
    store.append([LogCut("a", 3)])
    disk.sweep(NOW)
    assert core.take_effects() == [Append(Swept())]
    store.append([Swept()])
    store.append([Swept()])
    disk.sweep(NOW)
    assert core.take_effects() == []


def test_entries_leave_the_journal_without_appends(
    store: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = core_of(store)
    disk = ReplicaDisk(core, store)
    store.append([EntriesAdded("a", entries(1, first_index=4))])
    disk.sweep(NOW)
    assert core.take_effects() == []
    disk.sweep(NOW)
    assert core.take_effects() == [Append(Swept())]
    store.append([Swept()])
    disk.sweep(NOW)
    assert core.take_effects() == []


def test_the_first_look_that_finds_little_space_empties_the_journal(
    store: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = core_of(store)
    disk = ReplicaDisk(core, store)
    store.append([EntriesAdded("a", entries(1, first_index=4))])
    monkeypatch.setattr(disk.space, "shortage", lambda: "the disk is full")
    disk.sweep(NOW)
    assert core.take_effects() == [Append(Swept())]
    disk.sweep(NOW)
    assert core.take_effects() == [], "it is not tried again without space"


def test_the_disk_is_measured_by_each_look(store: ReplicaStore) -> None:
    disk = ReplicaDisk(core_of(store), store)
    assert disk.space.free_bytes is None
    disk.keep_posted(NOW)
    assert disk.space.free_bytes is not None
    assert disk.space.free_ratio is not None
    assert disk.space.free_bytes > 1 << 20
    assert 0 < disk.space.free_ratio < 1


def test_a_replica_of_many_logs_has_no_metric_for_each(
    store: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of them would look as if the owners of the others were silent."""
    store.append([EpochRaised("b", 1)])
    core = core_of(store)
    later = Now(2_500_000, 0)
    assert owners_silent_ms(core, later) == {"a": 2_500, "b": 2_500}
    monkeypatch.setattr(replica_service, "LOGS_SHOWN_MAX", 1)
    assert owners_silent_ms(core, later) == {}
