"""Data folders: one process at a time, and files that survive a crash of the machine.

Owns: the exclusive lock on a folder, and that what is made is still there after a power cut: a new
name is durable when the folder that it is in was synced, not when its file was. The lock is the
kernel's (flock): it ends with its process however that ends, and a stale lock file means nothing.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from dodona.errors import FolderInUse, InvalidRequest

LOCK_NAME: Final = "dodona.lock"
UNFINISHED_NAME: Final = "unfinished"
"""Of what is being made. What a crash left under it goes when the next is made."""


class LockedFolder:
    """A folder that no other process has open. `close` lets go of it."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Let go. Nothing in the folder may be open any more."""
        self._lock.close()


def lock_folder(path: str | Path) -> LockedFolder:
    """Make the folder if need be and take it. Raises FolderInUse, InvalidRequest."""
    folder = Path(path).absolute()
    try:
        _make(folder)
        lock = (folder / LOCK_NAME).open("a+", encoding="ascii")
    except OSError as error:
        raise InvalidRequest(
            f"can't use {folder} as a data folder: {error.strerror}", path=str(folder)
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise FolderInUse(
            f"another process (id {holder}) has {folder} open; stop it or use another folder",
            path=str(folder),
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return LockedFolder(folder, lock)


def _make(folder: Path) -> None:
    """What an earlier process made may not be durable yet either, unless it was somebody else's."""
    missing = [it for it in folder.parents if not it.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in (folder, *missing):
        with suppress(PermissionError):
            sync_folder(made.parent)


def make_whole(path: Path, make: Callable[[Path], None], *, is_anew: bool = False) -> None:
    """Unless it is there, or if it is to be made anew: the file that `make` makes. It has its name
    only once all of it is durable: no crash leaves a part under it. One at a time in a folder.
    Raises what `make` does."""
    if is_anew or not path.exists():
        unfinished = path.with_name(UNFINISHED_NAME)
        unfinished.unlink(missing_ok=True)
        make(unfinished)
        _sync(unfinished)
        unfinished.rename(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """The names in this folder are durable from here on."""
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
