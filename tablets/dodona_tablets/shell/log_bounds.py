"""Which files a log must have: the indexes of its first and of its last one, kept beside the log.

Owns: the file `log-bounds` in a cell's data folder. The files of a log follow one another, so that
a file missing between two others shows by itself. One missing at an end does not: what is left
looks like a shorter log. So the ends are written down here, and a start compares.

Invariants:
- `last` is written after the file exists, and before anything is appended to it: after a crash
  there may be a later file, which has nothing, but never an earlier one.
- `first` is written, durably, before the files in front of it are removed: after a crash there may
  be earlier ones, but never a later one.
- The file has two sectors, which are written by turns and in place. So a full disk does not keep
  the log from being truncated, and a crash leaves the one sector or the other.

A folder of an earlier version has no such file, and gets one. Must not import the log.
"""

import os
import struct
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from dodona_tablets.shell.log_segments import Place
from dodona_wire.errors import DataCorrupted
from dodona_wire.net.folder import make_whole, private_file

BOUNDS_NAME: Final = "log-bounds"
SECTOR_BYTES: Final = 512

_BODY: Final = struct.Struct(">4sQQQ")
"""A constant, how often it was written, the first index, the last."""
_SUM: Final = struct.Struct(">I")
_MAGIC: Final = b"dlb1"


class _Written(NamedTuple):
    number: int
    first: int
    last: int


class LogBounds:
    """The ends of an open log. The thread that appends moves the last file, the one that truncates
    the first."""

    def __init__(self, path: Path, written: _Written) -> None:
        """Raises OSError."""
        self._written = written
        self._file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        """Kept: a truncation is to need no descriptor."""
        self._lock = threading.Lock()

    @classmethod
    def keep(cls, folder: Path, places: Sequence[Place]) -> Self:
        """Those of a log that has these files, which were compared. Makes the file if there is
        none. Raises OSError, DataCorrupted."""
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
        """A new file was begun. Raises OSError."""
        self._change(last=index)

    def move_first(self, index: int) -> None:
        """The files before this one are about to be removed. Raises OSError."""
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
        """Nothing may move any more."""
        os.close(self._file)


def check_bounds(folder: Path, places: Sequence[Place]) -> None:
    """Whether the log in this data folder has the files, `places`, that it must have at both ends.
    Raises DataCorrupted, which names the missing file."""
    path = folder / BOUNDS_NAME
    if not path.exists():
        return
    written = _read(path)
    if not places:
        text = "all files of the log are missing: put them back, or restore a backup"
        raise DataCorrupted(text, path=str(folder), first=written.first, last=written.last)
    missing = None
    if places[0].first_index > written.first:
        missing = written.first
    elif places[-1].first_index < written.last:
        missing = written.last
    if missing is not None:
        text = "a file of the log is missing: put it back, or restore a backup"
        raise DataCorrupted(text, path=str(places[0].path.parent), group=missing)


def _sector(written: _Written) -> bytes:
    body = _BODY.pack(_MAGIC, *written)
    return (body + _SUM.pack(zlib.crc32(body))).ljust(SECTOR_BYTES, b"\0")


def _read(path: Path) -> _Written:
    """The newest of the sectors that is whole. Raises DataCorrupted."""
    raw = path.read_bytes()
    found = []
    for at in (0, SECTOR_BYTES):
        sector = raw[at : at + SECTOR_BYTES]
        if len(sector) == SECTOR_BYTES:
            magic, *numbers = _BODY.unpack_from(sector)
            if magic == _MAGIC and sector == _sector(_Written(*numbers)):
                found.append(_Written(*numbers))
    if not found:
        raise DataCorrupted("the bounds of the log are damaged", path=str(path))
    return max(found)
