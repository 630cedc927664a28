"""Locks of folders and forks: `close` frees a folder whoever was forked, and no fork frees it.

The lock of the kernel belongs to an open file, which a fork shares. Reports of the same kind
elsewhere: dolthub/doltlite #1205, zopefoundation/zc.lockfile #8, tox-dev/filelock #635.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona.errors import FolderInUse
from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_oracle.shell.store import MasterStore
from dodona_tablets.shell.log import CellLog
from dodona_wire.net.folder import LOCK_NAME, lock_folder
from suite.programs import program

WAIT_S_MAX = 60.0


class _AsyncDatabase:
    """An embedded database for asyncio, with the `close` of the others."""

    def __init__(self, path: Path) -> None:
        self._runner = asyncio.Runner()
        try:
            self._db = self._runner.run(dodona.aio.open(path))
        except BaseException:
            self._runner.close()
            raise

    def close(self) -> None:
        self._runner.run(self._db.close())
        self._runner.close()


def open_log(path: Path) -> CellLog:
    return CellLog.open(path, 1 << 20)


OPENERS: dict[str, Callable[[Path], Any]] = {
    "embedded": dodona.open,
    "embedded for asyncio": _AsyncDatabase,
    "folder": lock_folder,
    "master": MasterStore.open,
    "cell": open_log,
    "cluster": DataFolder,
}

in_every_way = pytest.mark.parametrize("open_it", OPENERS.values(), ids=OPENERS)


@contextmanager
def forked(work: Callable[[], object] = lambda: None) -> Iterator[None]:
    """A fork of this process that has done this work, and lives on for the length of the block."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os.write(write, b"!")
            signal.pause()
    try:
        os.close(write)
        assert os.read(read, 1) == b"!"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)


def answer_of_fork(work: Callable[[], object]) -> str:
    """What a fork says of what became of this work."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "raised what it should not"
        try:
            work()
            said = "done"
        except (FolderInUse, LaunchFailed) as error:
            said = type(error).__name__
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    said = os.read(read, 100).decode()
    os.waitpid(child, 0)
    os.close(read)
    return said


@in_every_way
def test_a_closed_folder_can_be_opened_again_while_a_fork_lives(
    open_it: Callable[[Path], Any], tmp_path: Path
) -> None:
    opened = open_it(tmp_path / "data")
    with forked():
        opened.close()
        open_it(tmp_path / "data").close()


@in_every_way
def test_a_fork_that_closes_its_copy_does_not_release_the_folder(
    open_it: Callable[[Path], Any], tmp_path: Path
) -> None:
    opened = open_it(tmp_path / "data")

    def close() -> None:
        if open_it is not _AsyncDatabase:  # a fork can't run its parent's event loop
            opened.close()

    with forked(close):
        pass  # it has ended: no copy of the descriptor is left there
    with forked(close), pytest.raises((FolderInUse, LaunchFailed)):
        open_it(tmp_path / "data")
    opened.close()
    open_it(tmp_path / "data").close()


@in_every_way
def test_a_fork_can_open_a_folder_that_its_parent_has_closed(
    open_it: Callable[[Path], Any], tmp_path: Path
) -> None:
    path = tmp_path / "data"
    opened = open_it(path)
    assert answer_of_fork(lambda: open_it(path)) in ("FolderInUse", "LaunchFailed")
    opened.close()
    assert answer_of_fork(lambda: open_it(path).close()) == "done"
    open_it(path).close()


def test_a_close_in_a_fork_leaves_other_files_alone(tmp_path: Path) -> None:
    """The number of the closed copy may be that of another file by then."""
    lock = lock_folder(tmp_path / "data")
    number = lock._lock.descriptor

    def close_over_other() -> None:
        read, write = os.pipe()
        os.dup2(read, number)
        lock.close()
        os.fstat(number)
        os.close(read)
        os.close(write)

    assert answer_of_fork(close_over_other) == "done"
    lock.close()


def test_an_inherited_descriptor_does_not_keep_a_closed_folder_locked(tmp_path: Path) -> None:
    """As in a process that is forked in C, where no hook of Python runs."""
    fork = ctypes.PyDLL(None).fork
    lock = lock_folder(tmp_path / "data")
    child = fork()
    if child == 0:
        time.sleep(WAIT_S_MAX)
        os._exit(0)
    try:
        lock.close()
        lock_folder(tmp_path / "data").close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


KILLED = """
    import os, signal, sys
    import dodona
    from dodona_local.folder import DataFolder
    opened = {how}({place!r})
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
"""


@pytest.mark.parametrize("how", ["dodona.open", "dodona_wire.net.folder.lock_folder"])
def test_the_folder_of_a_killed_process_can_be_opened_while_its_fork_lives(
    how: str, tmp_path: Path
) -> None:
    code = textwrap.dedent(KILLED).format(how=how, place=str(tmp_path / "data"))
    words = [sys.executable, "-c", "import dodona_wire.net.folder\n" + code]
    with program(words, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        child = int(killed.stdout.readline())
        try:
            assert killed.wait(WAIT_S_MAX) == -signal.SIGKILL
            dodona.open(tmp_path / "data").close()
        finally:
            os.kill(child, signal.SIGKILL)
    assert (tmp_path / "data" / LOCK_NAME).exists()
