"""The store: durable when it says so, alone in its folder, and loud about damage."""

import os
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from dodona.errors import DataCorrupted, FolderInUse, InvalidRequest
from dodona_oracle.core.records import Group, Item, Put, Remove
from dodona_oracle.shell.checking import verify_master
from dodona_oracle.shell.store import FILE_NAME, MasterStore


def stored(path: Path) -> list[Item]:
    store = MasterStore.open(path)
    try:
        return sorted(store.items())
    finally:
        store.close()


def write(path: Path, *records: Put | Remove | Group) -> None:
    store = MasterStore.open(path)
    store.append(records)
    store.close()


def raw(path: Path) -> lmdb.Environment:
    return lmdb.open(str(path / FILE_NAME), subdir=False, lock=False)


def test_appended_changes_exist_after_the_store_is_reopened(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on demand"
    assert stored(folder) == []
    write(folder, Put("b", b"1", b"one"), Put("a", b"\x00\xff", b""), Put("b", b"2", b"two"))
    write(folder, Put("b", b"1", b"uno"), Remove("b", b"2"), Remove("b", b"never there"))
    assert stored(folder) == [("a", b"\x00\xff", b""), ("b", b"1", b"uno")]


def test_one_append_is_all_or_nothing(tmp_path: Path) -> None:
    store = MasterStore.open(tmp_path)
    with pytest.raises(lmdb.Error):  # a key that LMDB does not take, behind one that it does
        store.append([Put("b", b"1", b"one"), Put("b", b"k" * 1000, b"")])
    store.close()
    assert stored(tmp_path) == []


def test_a_group_applies_all_of_its_changes(tmp_path: Path) -> None:
    write(tmp_path, Put("a", b"1", b"one"), Put("a", b"2", b"two"))
    write(tmp_path, Group((Put("a", b"3", b"three"), Remove("a", b"1"), Put("a", b"2", b"due"))))
    assert stored(tmp_path) == [("a", b"2", b"due"), ("a", b"3", b"three")]


def test_a_full_map_grows_up_to_its_limit(tmp_path: Path) -> None:
    store = MasterStore.open(tmp_path, map_bytes_max=128 << 20)
    for number in range(3):  # 96 MiB into a map of 64
        store.append([Put("b", bytes([number]), bytes(32 << 20))])
    with pytest.raises(lmdb.MapFullError, match="limit"):
        store.append([Put("b", b"\x03", bytes(64 << 20))])
    store.close()
    assert [len(value) for _, _, value in stored(tmp_path)] == [32 << 20] * 3


def test_a_second_process_that_opens_a_folder_gets_the_id_of_the_first_process(
    tmp_path: Path,
) -> None:
    store = MasterStore.open(tmp_path)
    script = (
        "import sys; from dodona_oracle.shell.store import MasterStore\n"
        "from dodona.errors import FolderInUse\n"
        "try: MasterStore.open(sys.argv[1])\n"
        "except FolderInUse as error: print(error.message)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    store.close()
    assert f"another process (id {os.getpid()})" in told.stdout
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == ""  # the lock ended with its holder


def test_a_second_open_in_the_same_process_is_refused(tmp_path: Path) -> None:
    store = MasterStore.open(tmp_path)
    with pytest.raises(FolderInUse, match=str(tmp_path)):
        MasterStore.open(tmp_path)
    store.close()
    MasterStore.open(tmp_path).close()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="file"):
        MasterStore.open(tmp_path / "file")


def test_a_file_that_is_no_store_is_refused_loudly(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not LMDB" * 4096)
    with pytest.raises(DataCorrupted, match=FILE_NAME):
        MasterStore.open(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    MasterStore.open(tmp_path).close()  # and the folder was let go


@pytest.mark.parametrize(
    ("version", "found"), [(b"1", "format 1"), (b"9", "format 9"), (None, "no format")]
)
def test_a_store_of_another_format_is_refused_and_stays_as_it_is(
    tmp_path: Path, version: bytes | None, found: str
) -> None:
    write(tmp_path, Put("b", b"1", b"one"))
    path = tmp_path / FILE_NAME
    with raw(tmp_path) as environment, environment.begin(write=True) as transaction:
        transaction.delete(b"format\x00version")
        transaction.delete(b"format\x00seal")
        if version is not None:
            transaction.put(b"format\x00version", version)
    before = path.read_bytes()
    for look in (MasterStore.open, verify_master):
        with pytest.raises(DataCorrupted) as caught:
            look(tmp_path)
        for words in (f"{path} has {found}.", "format 2 only", "Start the release that wrote"):
            assert words in caught.value.message
        assert caught.value.attributes["path"] == str(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["value", "key", "truncated", "no bucket"])
def test_damage_is_found_before_anything_is_served(tmp_path: Path, damage: str) -> None:
    write(tmp_path, Put("tables", b"12345678", b"a table"))
    environment = raw(tmp_path)
    with environment.begin(write=True) as transaction:
        name = b"tables\x0012345678"
        value = transaction.get(name)
        assert value is not None
        transaction.delete(name)
        if damage == "value":
            transaction.put(name, value[:-1] + b"\x00")
        elif damage == "key":
            transaction.put(b"tables\x0012345679", value)
        elif damage == "truncated":
            transaction.put(name, value[:2])
        else:
            transaction.put(b"tables", value)
    environment.close()
    with pytest.raises(DataCorrupted, match="checksum"):
        stored(tmp_path)


@pytest.mark.parametrize("damage", ["older value", "value gone", "seal gone", "nothing"])
def test_values_that_are_whole_but_not_the_last_are_refused(tmp_path: Path, damage: str) -> None:
    """What damaged pages come to that were written whole, but at another time."""
    name = b"oracle\x00ceiling"
    write(tmp_path, Put("oracle", b"ceiling", b"1"))
    with raw(tmp_path) as environment, environment.begin() as transaction:
        older = transaction.get(name)
    assert older is not None
    write(tmp_path, Put("oracle", b"ceiling", b"2"))
    with raw(tmp_path) as environment, environment.begin(write=True) as transaction:
        if damage == "older value":
            transaction.put(name, older)
        elif damage == "value gone":
            transaction.delete(name)
        elif damage == "seal gone":
            transaction.delete(b"format\x00seal")
        else:  # but for a transaction that says nothing of it
            transaction.put(b"format\x00version", b"3")
            transaction.put(b"format\x00version", b"2")
    with pytest.raises(DataCorrupted, match="not those of the last transaction"):
        stored(tmp_path)
