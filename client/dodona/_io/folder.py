"""Data folders: one process at a time, and files that survive a crash of the machine.

Owns: the exclusive lock on a folder. The lock is the kernel's (flock), so it ends with its
process however that ends, and a stale lock file means nothing.
"""

import fcntl
import os
from pathlib import Path
from typing import IO, Final

from dodona.errors import FolderInUse, InvalidRequest

LOCK_NAME: Final = "dodona.lock"


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
        folder.mkdir(parents=True, exist_ok=True)
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
