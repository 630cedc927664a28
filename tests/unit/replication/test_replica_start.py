"""The start of a store with a journal: failing and full disks, and the format without one."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from dodona.errors import DataCorrupted, DiskFull, DodonaError, InvalidRequest, Overloaded
from dodona_replication.shell import replica_journal, replica_store
from dodona_replication.shell.replica_check import opened_replica, verify_replica
from dodona_replication.shell.replica_journal import JOURNAL_BYTES, JOURNAL_NAME
from dodona_replication.shell.replica_keys import FORMAT_KEY
from dodona_replication.shell.replica_store import FILE_NAME, ReplicaStore
from dodona_server import disk_space
from dodona_server.disk_space import BALLAST_BYTES, BALLAST_NAME
from dodona_wire.net.folder import UNFINISHED_NAME
from unit.replication.journals import copied, found, old_folder, one, transactions
from unit.replication.replicas import CLUSTER


@pytest.mark.parametrize("name", ["pwrite", "fdatasync"])
def test_after_a_failed_write_nothing_is_written_any_more(
    store: ReplicaStore, here: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store.append([one(2)])
    before = transactions(store), store.logs()["a"].tail.last_index
    real = getattr(os, name)
    monkeypatch.setattr(os, name, failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        store.append([one(3)])
    monkeypatch.setattr(os, name, real)
    assert (transactions(store), store.logs()["a"].tail.last_index) == before
    with pytest.raises(AssertionError, match="has failed before"):
        store.append([one(3)])
    store.close()
    assert found(here) in ([1, 2], [1, 2, 3])


def failing(number: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_write_of_a_part_is_an_error(
    store: ReplicaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 512)
    with pytest.raises(OSError, match="of 4096 bytes of the journal 512 were written"):
        store.append([one(2)])
    monkeypatch.undo()
    store.close()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EMFILE, Overloaded),
        (errno.EIO, InvalidRequest),
        (errno.EROFS, InvalidRequest),
    ],
)
@pytest.mark.parametrize("name", ["pwrite", "fdatasync"])
def test_a_start_whose_disk_fails_says_why(
    store: ReplicaStore,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    number: int,
    expected: type[DodonaError],
) -> None:
    store.append([one(2)])
    crashed = copied(here)
    store.close()
    monkeypatch.setattr(os, name, failing(number))
    if name == "pwrite":  # the folder's lock uses it, too
        monkeypatch.setattr("dodona_wire.net.folder.note_holder", lambda _: None)
    with pytest.raises(expected) as told:
        ReplicaStore.open(crashed, CLUSTER)
    assert str(crashed) in str(told.value)
    monkeypatch.undo()
    assert found(crashed) == [1, 2]


def test_a_start_writes_the_journal_again(
    store: ReplicaStore, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a start would believe what a failed sync has left in the kernel's memory only."""
    store.append([one(2)])
    crashed = copied(here)
    store.close()
    data = (crashed / JOURNAL_NAME).read_bytes()
    steps: list[object] = []
    real = os.pwrite

    def watched(descriptor: int, written: bytes, offset: int) -> int:
        steps.append((written, offset))
        return real(descriptor, written, offset)

    monkeypatch.setattr(os, "pwrite", watched)
    monkeypatch.setattr(os, "fdatasync", lambda _: steps.append("synced"))
    again = ReplicaStore.open(crashed, CLUSTER)
    assert steps[-2:] == [(data, 0), "synced"]
    again.close()


def full(unfinished: Path, mode: str) -> object:
    unfinished.write_bytes(b"a part")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("is_new", [True, False])
def test_a_disk_without_space_for_a_journal_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    if not is_new:
        old_folder(here)
    monkeypatch.setattr(replica_journal, "private_file", full)
    with pytest.raises(DiskFull, match="Make room"):
        ReplicaStore.open(here, CLUSTER)
    assert not (here / JOURNAL_NAME).exists()
    assert not (here / UNFINISHED_NAME).exists()
    monkeypatch.undo()
    store = ReplicaStore.open(here, CLUSTER)
    assert len(store.logs()) == (0 if is_new else 2)
    store.close()


def test_the_ballast_makes_way_for_a_journal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_folder(here)
    (here / BALLAST_NAME).write_bytes(bytes(BALLAST_BYTES))
    with monkeypatch.context() as patch:
        patch.setattr(disk_space, "_has_space", lambda _, size_bytes: size_bytes < JOURNAL_BYTES)
        ReplicaStore.open(here, CLUSTER).close()
    assert not (here / BALLAST_NAME).exists()


@pytest.mark.parametrize(
    ("error", "says"),
    [(lmdb.MapFullError("full"), "Raise map-mib-max"), (OSError(errno.ENOSPC, ""), "Make room")],
)
def test_a_file_without_space_for_its_place_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    old_folder(here)
    with monkeypatch.context() as patch:
        patch.setattr(ReplicaStore, "_name_journal", raising(error))
        with pytest.raises(DiskFull, match=says):
            ReplicaStore.open(here, CLUSTER, replica_store.MAP_BYTES_FIRST)
    assert found(here) == [1, 2, 3]


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_without_space_in_the_file_a_stop_leaves_entries_in_the_journal(
    store: ReplicaStore, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append([one(2)])
    monkeypatch.setattr(store, "_write", raising(lmdb.MapFullError("limit")))
    monkeypatch.setattr(store, "_grow", raising(lmdb.MapFullError("limit")))
    store.close()
    assert found(here) == [1, 2]


def test_a_folder_without_a_journal_gets_one(here: Path) -> None:
    old_folder(here)
    assert verify_replica(here).entry_count == 3
    with opened_replica(here) as stored:
        assert [it.index for it in stored.entries_behind("a", 1)] == [2, 3]
        identity = stored.identity
    store = ReplicaStore.open(here, CLUSTER)
    assert store.identity == identity
    before = transactions(store)
    store.append([one(4)])
    assert transactions(store) == before
    assert found(copied(here)) == [1, 2, 3, 4]
    store.close()
    with lmdb.open(str(here / FILE_NAME), subdir=False, lock=False) as it, it.begin() as reader:
        assert reader.get(FORMAT_KEY) == b"2"


def test_an_old_file_beside_a_journal_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """The file is from before the release that makes journals, and so older than the journal."""
    here = tmp_path / "here"
    old_folder(here)
    old = (here / FILE_NAME).read_bytes()
    ReplicaStore.open(here, CLUSTER).close()
    store = ReplicaStore.open(here, CLUSTER)
    store.append([one(4)])
    store.close()
    used = (here / JOURNAL_NAME).read_bytes()
    (here / FILE_NAME).write_bytes(old)
    with pytest.raises(DataCorrupted, match="of another file than the one beside it, or newer"):
        ReplicaStore.open(here, CLUSTER)
    assert (here / JOURNAL_NAME).read_bytes() == used


def test_a_journal_in_use_without_its_file_is_refused(store: ReplicaStore, here: Path) -> None:
    store.append([one(2)])
    crashed = copied(here)
    store.close()
    file = (crashed / FILE_NAME).rename(crashed.with_name("aside"))
    with pytest.raises(DataCorrupted, match="of another file than the one beside it"):
        ReplicaStore.open(crashed, CLUSTER)
    file.rename(crashed / FILE_NAME)
    assert found(crashed) == [1, 2]


def test_a_crash_between_the_journal_and_its_name_in_the_file_is_harmless(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_folder(here)
    with monkeypatch.context() as patch:
        patch.setattr(ReplicaStore, "_name_journal", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            ReplicaStore.open(here, CLUSTER)
    assert (here / JOURNAL_NAME).exists()
    assert verify_replica(here).entry_count == 3
    assert found(here) == [1, 2, 3]
