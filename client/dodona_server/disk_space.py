"""The space on the disk of a data folder: how much is left, and some kept back for a start.

Owns: the file `ballast` in a data folder, what counts as a full disk, and the error that says so.

A write that fails for want of space ends its process, since nobody knows then what is on the disk.
So new writes are refused while some space is left (`SPARE_BYTES`): the log goes on, rows are
flushed, the log gets shorter. If others took the rest of the space, the next start finds none for
its own files. It removes the ballast, which is zeros and nothing else, then serves reads, and takes
writes once there is space again and the ballast has been made anew. A limit that the file system
does not tell, such as a quota, shows by the ballast, too: it can't be made.

For servers and embedded databases. Must not be asked on the way of a request: it asks the disk.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dodona_wire.errors import DiskFull, DodonaError, InvalidRequest
from dodona_wire.net.descriptors import is_out_of_descriptors, out_of_descriptors
from dodona_wire.net.folder import NO_SPACE, private_file

BALLAST_NAME: Final = "ballast"
SPARE_BYTES: Final = 32 << 20
"""With less left than this, or than a sixteenth of a small disk, new writes are refused."""
BALLAST_BYTES: Final = 4 << 20
"""Or a sixty-fourth of a small disk."""
PROBE_BYTES: Final = 256 << 10
"""A start takes less than this."""
LOOK_SECONDS: Final = 0.02
BALLAST_SECONDS: Final = 1.0
"""Between two attempts to make it."""


def is_no_space(error: BaseException) -> bool:
    """Whether a write failed for want of space: one of ours, or one of LMDB's."""
    number = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    return number in NO_SPACE


def disk_full(folder: Path | str) -> DiskFull:
    """The error to raise about a data folder."""
    return DiskFull(_text(Path(folder)), path=str(folder))


@contextmanager
def no_space_told(folder: Path | str) -> Iterator[None]:
    """In place of any error for want of something that is limited: raises DiskFull, which names the
    folder, and Overloaded, which names the limit of open files."""
    try:
        yield
    except DodonaError:
        raise
    except Exception as error:
        if is_no_space(error):
            raise disk_full(folder) from error
        if is_out_of_descriptors(error):
            raise out_of_descriptors(error, getattr(error, "filename", None) or folder) from error
        raise


def _text(folder: Path) -> str:
    return f"the disk of {folder} is full: writes are refused until there is space again. Make room"


class DiskSpace:
    """Of one data folder. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ballast = folder / BALLAST_NAME
        self._look_at_s = self._make_at_s = 0.0
        self._is_full = False
        self._is_put_off = False
        """The ballast, for want of a descriptor: that says nothing of the disk."""

    def make_way(self) -> None:
        """Before a start: if there is no space for it, remove the ballast. Raises Overloaded, and
        InvalidRequest: the disk says something else than that it is full."""
        if not self._folder.exists():
            return
        try:
            if not _has_space(self._folder / f"{BALLAST_NAME}.probe", PROBE_BYTES):
                _remove(self._ballast)
                self._make_at_s = time.monotonic() + BALLAST_SECONDS
        except OSError as error:
            if is_out_of_descriptors(error):
                raise out_of_descriptors(error, self._folder) from error
            text = f"can't write into {self._folder}: {error.strerror}"
            raise InvalidRequest(text, path=str(self._folder)) from error

    def shortage(self) -> str | None:
        """Why new writes are to be refused, or None. Asks the disk fifty times a second at most."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_SECONDS
            self._is_full = self._look(now_s)
        return self.text if self._is_full else None

    @property
    def text(self) -> str:
        """What is said where there is no space."""
        return _text(self._folder)

    def _look(self, now_s: float) -> bool:
        found = os.statvfs(self._folder)
        blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
        total_bytes, left_bytes = found.f_blocks * found.f_frsize, blocks * found.f_frsize
        spare_bytes = min(SPARE_BYTES, total_bytes // 16)
        if self._is_full:
            spare_bytes += spare_bytes // 4  # not to and fro
        if left_bytes < spare_bytes:
            return True
        return not (self._ballast.exists() or self._make(now_s, total_bytes))

    def _make(self, now_s: float, total_bytes: int) -> bool:
        """Have a ballast. → whether there is one, as far as the disk has a say in it."""
        if now_s < self._make_at_s:
            return self._is_put_off
        self._make_at_s, self._is_put_off = now_s + BALLAST_SECONDS, False
        unfinished = self._ballast.with_name(f"{BALLAST_NAME}.unfinished")
        try:
            _write_zeros(unfinished, min(BALLAST_BYTES, total_bytes // 64))
            unfinished.rename(self._ballast)
        except OSError as error:
            _remove(unfinished)
            self._is_put_off = is_out_of_descriptors(error)
            if self._is_put_off:
                return True
            if not is_no_space(error):
                raise
            return False
        return True


def _has_space(probe: Path, size_bytes: int) -> bool:
    """Whether a file of this size can be made. It is removed again. Raises OSError."""
    try:
        _write_zeros(probe, size_bytes)
    except OSError as error:
        if not is_no_space(error):
            raise
        return False
    finally:
        _remove(probe)
    return True


def _remove(path: Path) -> None:
    """If it is there, and if the disk has space for that: some take some. Raises OSError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if not is_no_space(error):
            raise


def _write_zeros(path: Path, size_bytes: int) -> None:
    """All of them are written: a hole takes no space."""
    with private_file(path, "wb") as file:
        file.write(bytes(size_bytes))
