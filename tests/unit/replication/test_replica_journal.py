"""The journal of a replica: its frames, damage to them, and files that do not belong together."""

import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from dodona.errors import DataCorrupted, InvalidRequest
from dodona_replication.core.records import EntriesAdded, EpochRaised, LogCut, Swept
from dodona_replication.shell import replica_journal
from dodona_replication.shell.replica_check import verify_replica
from dodona_replication.shell.replica_journal import (
    BLOCK_BYTES,
    JOURNAL_NAME,
    Journal,
    make_journal,
    read_journal,
)
from dodona_replication.shell.replica_keys import PLACE_KEY, Place, sealed, unsealed_place
from dodona_replication.shell.replica_store import FILE_NAME, ReplicaStore
from dodona_wire.messages.replicas import Entry
from unit.replication.journals import copied, found, one
from unit.replication.replicas import CLUSTER, entries


def flip(folder: Path, at: int) -> None:
    with (folder / JOURNAL_NAME).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def refused(folder: Path, says: str) -> None:
    looks: tuple[Callable[[Path], object], ...] = (
        lambda it: ReplicaStore.open(it, CLUSTER),
        verify_replica,
    )
    for look in looks:
        with pytest.raises(DataCorrupted, match=says) as told:
            look(folder)
        assert told.value.attributes["path"].startswith(str(folder))


BYTES = [0, 7, 8, 15, 16, 20, 24, 30]
"""Places in a frame: its number, salt, length, checksum and body."""


@pytest.mark.parametrize("at", BYTES)
def test_a_frame_that_is_not_whole_ends_the_journal(
    store: ReplicaStore, here: Path, at: int
) -> None:
    for index in (2, 3, 4):
        store.append([one(index)])
    crashed = copied(here)
    flip(crashed, store._journal.last.offset + at)
    assert found(copied(crashed, "twice")) == [1, 2, 3]
    again = ReplicaStore.open(crashed, CLUSTER)
    again.append([one(4, records=b"other")])
    assert again.read("a", 4, 4, 1, 1 << 20) == one(4, records=b"other").entries
    again.close()
    store.close()


@pytest.mark.parametrize("at", BYTES)
@pytest.mark.parametrize("count", [1, 2])
def test_damage_before_a_later_frame_is_refused(
    store: ReplicaStore, here: Path, at: int, count: int
) -> None:
    first = store._journal.last.number + 1
    for index in (2, 3, 4, 5):
        store.append([one(index)])
    crashed = copied(here)
    last = store._journal.last.offset
    for back in range(1, count + 1):
        flip(crashed, last - back * BLOCK_BYTES + at)
    refused(crashed, f"no whole frame {first + 3 - count}, but a later one")
    store.close()


@pytest.mark.parametrize("at", BYTES)
@pytest.mark.parametrize("is_closed", [True, False])
def test_damage_to_the_frame_that_the_file_names_is_refused(
    store: ReplicaStore, here: Path, at: int, is_closed: bool
) -> None:
    """So is damage to the last frame of a replica that stopped in order."""
    store.append([one(2)])
    store.append([one(3)])
    named = store._journal.last
    store.append([Swept()])
    if is_closed:
        store.close()
    crashed = copied(here)
    flip(crashed, named.offset + at)
    refused(crashed, f"lacks frame {named.number}, which the file beside it names")
    if not is_closed:
        store.close()


def mixed(journal: Path, file: Path) -> Path:
    """A folder with the journal of one, and the file of another."""
    folder = copied(file, "mixed")
    shutil.copy(journal / JOURNAL_NAME, folder / JOURNAL_NAME)
    return folder


def test_the_journal_of_another_folder_is_refused(store: ReplicaStore, here: Path) -> None:
    other = ReplicaStore.open(here.with_name("other"), CLUSTER)
    refused(mixed(other.path, here), "lacks frame 0")
    other.append([EpochRaised("a", 1), EpochRaised("b", 1), one(1), one(1, "b")])
    refused(mixed(other.path, here), "lacks frame 0")
    for it in (store, other):
        it.append([one(2)])
        it.close()
    refused(mixed(other.path, here), "lacks frame 1")


def test_a_journal_that_is_older_than_its_file_is_refused(store: ReplicaStore, here: Path) -> None:
    begin = copied(here, "begin")
    store.append([one(2)])
    older = copied(here, "older")
    store.append([one(3)])
    store.append([Swept()])
    for journal in (begin, older):
        refused(mixed(journal, here), "lacks frame 2")
    store.append([one(4)])
    refused(mixed(older, here), "lacks frame 2")
    store.close()
    refused(mixed(older, here), "lacks frame 3")


def test_a_journal_that_is_newer_than_its_file_is_refused(store: ReplicaStore, here: Path) -> None:
    store.append([one(2)])
    older = copied(here, "older")
    store.append([one(3), EpochRaised("b", 2)])
    store.append([one(4)])
    refused(mixed(here, older), "is newer than the file beside it")
    store.append([LogCut("a", 4)])
    store.append([one(5)])
    refused(mixed(here, older), "is newer than the file beside it")
    store.close()
    refused(mixed(here, older), "is newer than the file beside it")


def test_another_frame_of_the_same_number_is_refused(store: ReplicaStore, here: Path) -> None:
    """The file names frame 1 of this history, and the journal has frame 1 of another one."""
    other = ReplicaStore.open(copied(here, "other"), CLUSTER)
    store.append([one(2)])
    other.append([one(2, records=b"other")])
    store.append([Swept()])
    refused(mixed(other.path, here), "lacks frame 1")
    store.close()
    other.close()


def test_a_file_that_went_another_way_is_refused(store: ReplicaStore, here: Path) -> None:
    """Both have frame 2 of the same journal. But the file has epochs of another history."""
    store.append([one(2)])
    other = ReplicaStore.open(copied(here, "other"), CLUSTER)
    for it in (store, other):
        it.append([EpochRaised("b", 2)])
        it.append([one(3)])
    refused(mixed(other.path, here), "is newer than the file beside it")
    store.close()
    other.close()


def test_a_missing_or_short_journal_is_refused(store: ReplicaStore, here: Path) -> None:
    store.close()
    (here / JOURNAL_NAME).write_bytes(b"")
    refused(here, "has 0 bytes")
    (here / JOURNAL_NAME).unlink()
    refused(here, "is missing")


def test_a_journal_that_can_not_be_read_is_told(store: ReplicaStore, here: Path) -> None:
    store.close()
    (here / JOURNAL_NAME).unlink()
    (here / JOURNAL_NAME).mkdir()
    for look in (lambda it: ReplicaStore.open(it, CLUSTER), verify_replica):
        with pytest.raises(InvalidRequest, match="can't be used: Is a directory"):
            look(here)


def test_a_file_without_its_place_in_the_journal_is_refused(
    store: ReplicaStore, here: Path
) -> None:
    store.close()
    with (
        lmdb.open(str(here / FILE_NAME), subdir=False, lock=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        assert transaction.delete(PLACE_KEY)
    refused(here, "place in the journal is missing")


@pytest.mark.parametrize(
    ("added", "says", "index"),
    [
        (one(3), "is missing before those of the journal", 2),
        (EntriesAdded("z", entries(1)), "is missing before those of the journal", 0),
        (EntriesAdded("a", entries(2, first_index=2)), "has another epoch", 2),
        (EntriesAdded("a", (Entry(2, 1, 7, b"x"),)), "has a wrong checksum", 2),
    ],
)
def test_entries_that_do_not_go_on_with_those_of_the_file_are_refused(
    store: ReplicaStore, here: Path, added: EntriesAdded, says: str, index: int
) -> None:
    assert store._journal.append([added])
    crashed = copied(here)
    store.close()
    with pytest.raises(DataCorrupted, match=says) as told:
        ReplicaStore.open(crashed, CLUSTER)
    assert (told.value.attributes["log"], told.value.attributes["index"]) == (added.log, index)
    if added.log == "a":
        assert len(verify_replica(crashed).damages) == 1
    else:
        with pytest.raises(DataCorrupted, match=says):
            verify_replica(crashed)


FIRST_FRAME = "0000000000000000382072616e646f6d010000008a321bd790"
"""Number, salt, length, checksum; an empty list."""
ONE_FRAME = (
    "0100000000000000382072616e646f6d2b0000001aef4b2d"
    "9292a663656c6c2d3191940701cedc49df55c40361626392a663656c6c2d3191940801ce89fc2549c40164"
)
"""A list of logs, each with a list of entries: index, epoch, checksum, records."""
PLACE_BYTES = "1675133995c408382072616e646f6d0000ced71b328ac408382072616e646f6d"
"""A checksum; key, number, offset, checksum of the frame, salt."""


def test_the_bytes_of_a_frame_are_those_of_the_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other bytes need another format: an older process could not read them."""
    monkeypatch.setattr(replica_journal, "_secret", lambda: b"8 random")
    path = tmp_path / JOURNAL_NAME
    place = make_journal(path)
    journal = Journal(path, read_journal(path, place))
    assert journal.append([one(7, "cell-1", b"abc"), one(8, "cell-1", b"d")])
    data = path.read_bytes()
    assert data[:25].hex() == FIRST_FRAME
    assert data[BLOCK_BYTES:].rstrip(b"\0").hex() == ONE_FRAME
    stored = sealed(PLACE_KEY, place)
    assert stored.hex() == PLACE_BYTES
    assert unsealed_place(stored, path) == place
    journal.close()


def test_bytes_that_a_client_chose_are_no_frame(tmp_path: Path) -> None:
    """A copy of a frame within an entry begins a block. Only the key tells it from a frame."""
    path = tmp_path / JOURNAL_NAME
    place = make_journal(path)
    with_forgery(path, place, place.key)
    with pytest.raises(DataCorrupted, match="but a later one"):
        read_journal(path, place)
    place = make_journal(path)
    with_forgery(path, place, b"guessed?")
    assert [it.entries[0].index for it in read_journal(path, place).waiting] == [1]


def with_forgery(path: Path, place: Place, key: bytes) -> None:
    """Append an entry that has a frame of this key and a later number, where a block begins."""
    journal = Journal(path, read_journal(path, place))
    journal._fill_buffer(Place(key, 4, 0, 0, place.salt), [one(5)])
    frame = bytes(journal._buffer)
    records = bytes(BLOCK_BYTES) + frame
    journal._fill_buffer(place, [one(1, records=records)])
    before = journal._buffer.index(frame) - BLOCK_BYTES
    assert journal.append([one(1, records=records[before:])])
    assert path.read_bytes().index(frame) == 2 * BLOCK_BYTES
    journal.close()
