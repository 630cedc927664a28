"""A folder is checked where nothing can be written: a snapshot that is mounted, another's backup.

A real mount needs a namespace of its own, which root may make nearly everywhere.
"""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona.errors import FolderInUse, InvalidRequest
from dodona_local.checking import check_folder
from dodona_wire.net import folder as folders
from dodona_wire.net.folder import LOCK_NAME, lock_folder, locked_to_read

MOUNTED = """
import sys
from pathlib import Path
from dodona_local.checking import check_folder
for part in check_folder(Path(sys.argv[1])):
    print(part.name, [str(it) for it in part.damages])
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    with dodona.open(folder) as db:
        key = dodona.Column("k", "int64", "ascending")
        db.create_table("//t", [key, dodona.Column("v", "int64")], mount=True)
        db.insert_rows("//t", [{"k": number, "v": 1} for number in range(100)])
        db.unmount_table("//t")
    return folder


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The system says so of whatever would be opened to be written."""
    real = os.open

    def refuse(path: Any, flags: int, *words: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *words, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        yield


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [it for it in folder.rglob("*") if it.is_file()]
    return {str(it): (it.stat().st_mtime_ns, it.read_bytes()) for it in files}


def test_check_works_on_a_read_only_folder_and_leaves_the_folder_unchanged(
    database: Path, read_only: None
) -> None:
    before = contents(database)
    parts = check_folder(database)
    assert [it.name for it in parts] == ["master", "node-0"]
    assert not any(it.damages for it in parts)
    assert contents(database) == before


def test_each_server_is_checked_by_itself(database: Path, read_only: None) -> None:
    for name in ("master", "node-0"):
        (part,) = check_folder(database / name)
        assert (part.name, part.damages) == (name, ())


def test_a_folder_without_a_lock_is_checked(database: Path, read_only: None) -> None:
    for lock in database.rglob(LOCK_NAME):
        lock.unlink()
    assert not any(it.damages for it in check_folder(database))
    assert not list(database.rglob(LOCK_NAME))


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM])
def test_another_users_folder_is_only_read(
    database: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: Any) -> Any:
        raise InvalidRequest("can't use it") from OSError(code, os.strerror(code))

    monkeypatch.setattr(folders, "lock_folder", refuse)
    assert not any(it.damages for it in check_folder(database))


def test_a_folder_in_use_is_not_checked(database: Path, read_only: None) -> None:
    with (database / LOCK_NAME).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FolderInUse, match=r"another process \(id \d+\) has"):
            check_folder(database)


def test_two_readers_can_lock_a_read_only_folder_together(database: Path, read_only: None) -> None:
    with locked_to_read(database), locked_to_read(database):
        pass


def test_a_reader_keeps_writers_out(database: Path) -> None:
    with locked_to_read(database), pytest.raises(FolderInUse):
        lock_folder(database)
    lock_folder(database).close()


def test_check_reports_an_input_output_error_of_the_disk(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        with pytest.raises(InvalidRequest, match="Input/output error"):
            check_folder(database)


def test_a_folder_on_a_read_only_mount_is_checked(database: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    mount = f"mount --bind {database} {mounted} && mount -o remount,ro,bind {mounted}"
    inside = ["unshare", "--mount", "sh", "-c"]
    try:
        tried = subprocess.run([*inside, mount], check=False, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if tried.returncode:
        pytest.skip("mounts can't be made here")
    check = f'{mount} && ! touch {mounted}/x && exec "$0" -c "$1" {mounted}'
    done = subprocess.run(
        [*inside, check, sys.executable, MOUNTED],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["master []", "node-0 []"], done.stderr
