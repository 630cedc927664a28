"""Data folders: one process at a time, and files that survive a crash of the machine.

Owns: the exclusive lock on a folder, the permissions of new files, and their survival of a power
cut. A new name is durable after a sync of its folder, not after a sync of its file. The lock is the
kernel's (flock). It ends with `close`, or with its process, however the process ends. A stale lock
file means nothing. A fork has no part in the lock.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from dodona_wire.errors import DiskFull, FolderInUse, InvalidRequest
from dodona_wire.net.descriptors import is_out_of_descriptors, out_of_descriptors
from dodona_wire.net.forks import close_kept, keep_from_forks
from dodona_wire.net.paths import place_of

LOCK_NAME: Final = "dodona.lock"
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""Permissions of new folders. Data are for their owner, even if others may enter the folder."""
UNFINISHED_NAME: Final = "unfinished"
"""The name of an unfinished file. A file that a crash left under it goes when the next is made."""
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that has no space, or gives this process no more."""
HOLDER_BYTES: Final = 16
_NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class FolderLock:
    """The open lock file of a folder, and the lock on it after `take`."""

    def __init__(self, folder: Path, *, is_shared: bool = False) -> None:
        """Open the lock file. Make it if necessary, but with `is_shared` leave everything as it is.
        Raises OSError."""
        self._is_shared = is_shared
        flags = os.O_RDONLY if is_shared else os.O_RDWR | os.O_CREAT
        self.descriptor = os.open(folder / LOCK_NAME, flags, FILE_MODE)
        keep_from_forks(self.descriptor)
        self._process_id = os.getpid()
        self._is_closed = False

    def take(self) -> bool:
        """Take the lock if it is free. Return whether it was. Raises OSError."""
        kind = fcntl.LOCK_SH if self._is_shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not self._is_shared:
            note_holder(self.descriptor)
        return True

    def holder(self) -> str:
        """Return the id of the last process that took the lock, as it noted it, or nothing."""
        return os.pread(self.descriptor, 2 * HOLDER_BYTES, 0).decode(errors="replace").strip()

    def close(self) -> None:
        """Release the lock, even if another process has a copy of the descriptor. That may be a
        process that was forked in C, or one that is about to start a program. In a fork this does
        nothing: an unlock there would unlock the folder of the process that has it. A repeat is
        harmless."""
        if self._is_ours():
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        self.leave()

    def leave(self) -> None:
        """Leave the lock to programs that the descriptor was passed to. A repeat is harmless."""
        if self._is_ours():
            self._is_closed = True
            close_kept(self.descriptor)

    def _is_ours(self) -> bool:
        """Return whether the descriptor is open and belongs to this process."""
        return not self._is_closed and os.getpid() == self._process_id


class LockedFolder:
    """A folder that no other process has open. `close` releases it."""

    def __init__(self, path: Path, lock: FolderLock) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Release the folder. No file in it may be open any more."""
        self._lock.close()


def lock_folder(path: str | Path) -> LockedFolder:
    """Make the folder if necessary, and take it. Raises FolderInUse, InvalidRequest, DiskFull, and
    Overloaded if this process may open no more files."""
    folder = place_of(path)
    try:
        _make(folder)
        lock = FolderLock(folder)
    except OSError as error:
        if error.errno in NO_SPACE:
            text = f"the disk of {folder} is full: make room"
            raise DiskFull(text, path=str(folder)) from error
        if is_out_of_descriptors(error):
            raise out_of_descriptors(error, folder) from error
        raise _unusable(folder, error) from error
    try:
        if not lock.take():
            raise _in_use(folder, lock)
    except OSError as error:
        lock.close()
        raise _unusable(folder, error) from error
    except BaseException:
        lock.close()
        raise
    return LockedFolder(folder, lock)


@contextmanager
def locked_to_read(path: str | Path) -> Iterator[None]:
    """Take a folder whose files are only read in the block. If the disk can't be written, or the
    folder is another user's, all such readers share the lock. Raises FolderInUse,
    InvalidRequest."""
    try:
        taken = lock_folder(path)
    except InvalidRequest as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _NOT_WRITABLE:
            raise
    else:
        with closing(taken):
            yield
        return
    with _lock_as_it_is(place_of(path)):
        yield


@contextmanager
def _lock_as_it_is(folder: Path) -> Iterator[None]:
    """Take the folder's lock without a write. A folder without a lock file is not in use."""
    try:
        lock = FolderLock(folder, is_shared=True)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise _unusable(folder, error) from error
    with closing(lock):
        if not lock.take():
            raise _in_use(folder, lock)
        yield


def _in_use(folder: Path, lock: FolderLock) -> FolderInUse:
    """Return the error, which names the holder."""
    holder = lock.holder() or "unknown"
    return FolderInUse(
        f"another process (id {holder}) has {folder} open: stop that process, or use another "
        "folder",
        path=str(folder),
    )


def _unusable(folder: Path, error: OSError) -> InvalidRequest:
    text = f"can't use {folder} as a data folder: {error.strerror}"
    return InvalidRequest(text, path=str(folder))


def note_holder(lock: int) -> None:
    """Write the id of this process over that of the last holder. A full disk usually has space for
    it; if not, the id is left out, because it is only for people. After any other error of the disk
    a server must not start there. Raises OSError."""
    try:
        os.pwrite(lock, f"{os.getpid()}\n".encode().rjust(HOLDER_BYTES), 0)
        os.ftruncate(lock, HOLDER_BYTES)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise


def _make(folder: Path) -> None:
    """Make the folder and sync its name. A name that an earlier process made may not be durable
    yet. A parent that belongs to another user is left out."""
    missing = [it for it in folder.parents if not it.exists()]
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    for made in (folder, *missing):
        with suppress(PermissionError):
            sync_folder(made.parent)


def private_file(path: Path, mode: str) -> Any:
    """Open a file as `open` does. A new file is for its owner alone."""
    return open(path, mode, opener=_open_private)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def make_whole(path: Path, make: Callable[[Path], None], *, is_anew: bool = False) -> None:
    """Call `make` to make a file, if it is missing or `is_anew`. The file gets its name only when
    all of its data are durable, so a crash leaves no part under that name. Make one file at a time
    in a folder. Raises what `make` raises."""
    if is_anew or not path.exists():
        unfinished = path.with_name(UNFINISHED_NAME)
        unfinished.unlink(missing_ok=True)
        make(unfinished)
        sync_file(unfinished)
        unfinished.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path | int) -> None:
    """Make the names in a folder durable. The folder is given as a path or as a descriptor."""
    if isinstance(folder, int):
        os.fsync(folder)
    else:
        sync_file(folder)


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable, even if another process wrote them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
