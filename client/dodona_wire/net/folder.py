"""Data folders: one process at a time, and files that survive a crash of the machine.

Owns: the exclusive lock on a folder, who may read what is made in it, and that this is still there
after a power cut: a new name is durable when the folder that it is in was synced, not when its file
was. The lock is the kernel's (flock): it ends with `close`, or with its process however that ends,
and a stale lock file means nothing. A fork has no part in it.
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
"""Of what is made here: data are for their owner alone, whatever others are let into the folder."""
UNFINISHED_NAME: Final = "unfinished"
"""Of what is being made. What a crash left under it goes when the next is made."""
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk says that has no space, or gives us no more."""
HOLDER_BYTES: Final = 16
_NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class FolderLock:
    """The lock file of a folder, open, and the lock on it once it was taken."""

    def __init__(self, folder: Path, *, is_shared: bool = False) -> None:
        """Opens the file, or makes it; one whose lock is to be shared is opened as it is. Raises
        OSError."""
        self._is_shared = is_shared
        flags = os.O_RDONLY if is_shared else os.O_RDWR | os.O_CREAT
        self.descriptor = os.open(folder / LOCK_NAME, flags, FILE_MODE)
        keep_from_forks(self.descriptor)
        self._process_id = os.getpid()
        self._is_closed = False

    def take(self) -> bool:
        """Take the lock if it is free. → whether it was. Raises OSError."""
        kind = fcntl.LOCK_SH if self._is_shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not self._is_shared:
            note_holder(self.descriptor)
        return True

    def holder(self) -> str:
        """The id of the process that took the lock last, as it wrote it down; or nothing."""
        return os.pread(self.descriptor, 2 * HOLDER_BYTES, 0).decode(errors="replace").strip()

    def close(self) -> None:
        """Let go of the lock, also where something else has a copy of the descriptor: a process
        that was forked in C, or one that is about to start a program. In a fork this does nothing:
        to unlock there would unlock the folder of the process that has it. Repeating it is
        harmless."""
        if self._is_ours():
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        self.leave()

    def leave(self) -> None:
        """Have no part in the lock any more: it stays with programs that the descriptor was passed
        to. Repeating it is harmless."""
        if self._is_ours():
            self._is_closed = True
            close_kept(self.descriptor)

    def _is_ours(self) -> bool:
        """Whether the descriptor is open, and that of this process."""
        return not self._is_closed and os.getpid() == self._process_id


class LockedFolder:
    """A folder that no other process has open. `close` lets go of it."""

    def __init__(self, path: Path, lock: FolderLock) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Let go. Nothing in the folder may be open any more."""
        self._lock.close()


def lock_folder(path: str | Path) -> LockedFolder:
    """Make the folder if need be and take it. Raises FolderInUse, InvalidRequest, DiskFull, and
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
    """Take a folder whose files are only read in the block. If it is on a disk that can't be
    written, or is another user's, its lock is shared with whoever reads it likewise. Raises
    FolderInUse, InvalidRequest."""
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
    """The folder's lock, without a word in it. One that was never locked has nobody in it."""
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
    """Names the holder."""
    holder = lock.holder() or "unknown"
    return FolderInUse(
        f"another process (id {holder}) has {folder} open; stop it or use another folder",
        path=str(folder),
    )


def _unusable(folder: Path, error: OSError) -> InvalidRequest:
    text = f"can't use {folder} as a data folder: {error.strerror}"
    return InvalidRequest(text, path=str(folder))


def note_holder(lock: int) -> None:
    """Write down who holds the lock, in the place of who did: a full disk has space for that, or
    else it is not written down. It is only for people to read, but a disk that errs is no disk to
    start on. Raises OSError."""
    try:
        os.pwrite(lock, f"{os.getpid()}\n".encode().rjust(HOLDER_BYTES), 0)
        os.ftruncate(lock, HOLDER_BYTES)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise


def _make(folder: Path) -> None:
    """What an earlier process made may not be durable yet either, unless it was somebody else's."""
    missing = [it for it in folder.parents if not it.exists()]
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    for made in (folder, *missing):
        with suppress(PermissionError):
            sync_folder(made.parent)


def private_file(path: Path, mode: str) -> Any:
    """As `open`. If that makes the file, it is for its owner alone."""
    return open(path, mode, opener=_open_private)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


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


def sync_folder(folder: Path | int) -> None:
    """The names in this folder, or in the one that this descriptor is of, are durable from here
    on."""
    if isinstance(folder, int):
        os.fsync(folder)
    else:
        _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
