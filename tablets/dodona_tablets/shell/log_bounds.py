"""Keep the bounds of a log beside it: the indexes of its first and of its last file.

Owns: the file `log-bounds` in a cell's data folder. The files of a log follow one another. So a
missing file between two others shows by itself. A missing file at an end does not: the rest looks
like a shorter log. So this file has both ends, and a start compares.

Invariants:
- `last` is written after the file exists, and before anything is appended to it. So after a crash,
  the last file may be a later one without groups, but never an earlier one.
- `first` is written, durably, before the files in front of it are removed. So after a crash, the
  first file may be an earlier one, but never a later one.
- The file has two sectors, which are written by turns and in place. So a full disk does not keep
  the log from being truncated, and a crash leaves one of the sectors whole.
- A log gets this file before anything is appended to it. So without it, a log has at most its first
  file, which a crash left empty.

Must not import: the log.
"""

import os
import struct
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from dodona_tablets.shell.log_segments import FIRST_INDEX, Place
from dodona_wire.errors import DataCorrupted
from dodona_wire.net.folder import make_whole, private_file

BOUNDS_NAME: Final = "log-bounds"
SECTOR_BYTES: Final = 512

_BODY: Final = struct.Struct(">4sQQQ")
"""A constant, how often it was written, the first index, the last index."""
_SUM: Final = struct.Struct(">I")
_MAGIC: Final = b"dlb1"


class _Written(NamedTuple):
    number: int
    first: int
    last: int


class LogBounds:
    """The bounds of an open log. The thread that appends moves the last file. The thread that
    truncates moves the first file."""

    def __init__(self, path: Path, written: _Written) -> None:
        """Open the file. Raises OSError."""
        self._written = written
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        """It stays open, so that a truncation needs no descriptor."""
        self._lock = threading.Lock()

    @classmethod
    def keep(cls, folder: Path, places: Sequence[Place]) -> Self:
        """Return the bounds of a log with these files, which were compared. Makes the file if there
        is none. Raises OSError, DataCorrupted."""
        path = folder / BOUNDS_NAME
        begun = _Written(0, places[0].first_index, places[-1].first_index)

        def make(unfinished: Path) -> None:
            with private_file(unfinished, "wb") as file:
                file.write(_sector(begun) * 2)

        make_whole(path, make)
        bounds = cls(path, _read(path))
        try:
            bounds._change(last=begun.last)
        except OSError:
            bounds.close()
            raise
        return bounds

    def move_last(self, index: int) -> None:
        """Record that a new file was begun. Raises OSError."""
        self._change(last=index)

    def move_first(self, index: int) -> None:
        """Record that the files before this one are about to be removed. Raises OSError."""
        self._change(first=index)

    def _change(self, *, first: int = 0, last: int = 0) -> None:
        with self._lock:
            old = self._written
            new = _Written(old.number + 1, max(first, old.first), max(last, old.last))
            if new[1:] == old[1:]:
                return
            os.pwrite(self._file, _sector(new), SECTOR_BYTES * (new.number % 2))
            os.fdatasync(self._file)
            self._written = new

    def close(self) -> None:
        """Close the file: no bound may move any more."""
        os.close(self._file)


def check_bounds(folder: Path, places: Sequence[Place]) -> None:
    """Raise DataCorrupted unless the log in this data folder has the files that it must have at
    both ends. `places` are its files. The error names the missing file."""
    path = folder / BOUNDS_NAME
    if not path.exists():
        if any(it.first_index != FIRST_INDEX for it in places):
            text = "The bounds of the log are missing. Put the file back, or restore a backup."
            raise DataCorrupted(text, path=str(path))
        return
    written = _read(path)
    if not places:
        text = "All files of the log are missing. Put them back, or restore a backup."
        raise DataCorrupted(text, path=str(folder), first=written.first, last=written.last)
    missing = None
    if places[0].first_index > written.first:
        missing = written.first
    elif places[-1].first_index < written.last:
        missing = written.last
    if missing is not None:
        text = "A file of the log is missing. Put it back, or restore a backup."
        raise DataCorrupted(text, path=str(places[0].path.parent), group=missing)


def _sector(written: _Written) -> bytes:
    body = _BODY.pack(_MAGIC, *written)
    return (body + _SUM.pack(zlib.crc32(body))).ljust(SECTOR_BYTES, b"\0")


def _read(path: Path) -> _Written:
    """Return the newest sector that is whole. Raises DataCorrupted."""
    raw = path.read_bytes()
    found = []
    for at in (0, SECTOR_BYTES):
        sector = raw[at : at + SECTOR_BYTES]
        if len(sector) == SECTOR_BYTES:
            magic, *numbers = _BODY.unpack_from(sector)
            if magic == _MAGIC and sector == _sector(_Written(*numbers)):
                found.append(_Written(*numbers))
    if not found:
        raise DataCorrupted("The bounds of the log are damaged.", path=str(path))
    return max(found)
