"""The space on the disk of a data folder: how much is left, and a reserve for a start.

Owns: the file `ballast` in a data folder, what counts as a full disk, and the error that says so.

A write that fails for lack of space ends its process, because then the content of the disk is
unknown. So new writes are refused while some space is left (`SPARE_BYTES`). The log goes on, rows
are flushed, and the log gets shorter. If other programs take the rest of the space, the next start
finds none for its own files. It removes the ballast, which contains only zeros, and then serves
reads. It takes writes when there is space again and a new ballast has been made. The file system
does not report some limits, such as a quota. The ballast shows these, too: it cannot be made.

For servers and embedded databases. Must not be called in the path of a request: it asks the disk.
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
"""New writes are refused if less is left than this, or than a sixteenth of a small disk."""
BALLAST_BYTES: Final = 4 << 20
"""The size of the ballast. On a small disk it is a sixty-fourth of the disk."""
PROBE_BYTES: Final = 256 << 10
"""A start takes less than this, if it makes no large files."""
LOOK_SECONDS: Final = 0.02
BALLAST_SECONDS: Final = 1.0
"""The time between two attempts to make the ballast."""


def is_no_space(error: BaseException) -> bool:
    """Return whether a write failed for lack of space: one of ours, or one of LMDB's."""
    number = error.errno if isinstance(error, OSError) else getattr(error, "code", None)
    return number in NO_SPACE


def disk_full(folder: Path | str) -> DiskFull:
    """Return the error about a data folder whose disk is full."""
    return DiskFull(_text(Path(folder)), path=str(folder))


@contextmanager
def no_space_told(folder: Path | str) -> Iterator[None]:
    """Replace errors about limited resources. Raises DiskFull, which names the folder, and
    Overloaded, which names the limit of open files."""
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
    """The disk space of one data folder. For one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ballast = folder / BALLAST_NAME
        self._look_at_s = self._make_at_s = 0.0
        self._is_full = False
        self._is_put_off = False
        """The ballast waits for a file descriptor. That says nothing about the disk."""
        self.free_bytes: int | None = None
        """The space that was free at the last look. None: it was not looked yet."""
        self.free_ratio: float | None = None

    def make_way(self, start_bytes: int = PROBE_BYTES) -> None:
        """Before a start, which takes less than `start_bytes`, remove the ballast if there is no
        space for the start. Raises Overloaded, and InvalidRequest if the disk has another error
        than that it is full."""
        if not self._folder.exists():
            return
        try:
            if not _has_space(self._folder / f"{BALLAST_NAME}.probe", start_bytes):
                _remove(self._ballast)
                self._make_at_s = time.monotonic() + BALLAST_SECONDS
        except OSError as error:
            if is_out_of_descriptors(error):
                raise out_of_descriptors(error, self._folder) from error
            text = f"can't write into {self._folder}: {error.strerror}"
            raise InvalidRequest(text, path=str(self._folder)) from error

    def shortage(self) -> str | None:
        """Return why new writes are refused, or None. Asks the disk at most 50 times a second."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_SECONDS
            self._is_full = self._look(now_s)
        return self.text if self._is_full else None

    @property
    def text(self) -> str:
        """The text of the error if there is no space."""
        return _text(self._folder)

    def _look(self, now_s: float) -> bool:
        found = os.statvfs(self._folder)
        blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
        total_bytes, left_bytes = found.f_blocks * found.f_frsize, blocks * found.f_frsize
        self.free_bytes, self.free_ratio = left_bytes, left_bytes / max(1, total_bytes)
        spare_bytes = min(SPARE_BYTES, total_bytes // 16)
        if self._is_full:
            spare_bytes += spare_bytes // 4  # do not switch back and forth
        if left_bytes < spare_bytes:
            return True
        return not (self._ballast.exists() or self._make(now_s, total_bytes))

    def _make(self, now_s: float, total_bytes: int) -> bool:
        """Make a ballast. → whether the disk has room for it. Without a descriptor: assume so."""
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
    """Return whether a file of this size can be made. The file is removed again. Raises OSError."""
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
    """Remove a file if it exists. It stays if the disk has no space for that. Raises OSError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if not is_no_space(error):
            raise


def _write_zeros(path: Path, size_bytes: int) -> None:
    """Write all of the zeros: a hole takes no space."""
    with private_file(path, "wb") as file:
        file.write(bytes(size_bytes))
