"""What a program does to a disk, one thing after the other.

Owns: the kinds of operations, with all that is needed to do them again, and the recording that they
make up. Files and folders go by numbers, as a file keeps its content when its name changes; ROOT is
the folder that is watched, which was there before. Imports nothing: it is shared by those who
record, those who imagine disks, and those who judge.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = 0


@dataclass(frozen=True, slots=True)
class Made:
    """A new file or folder, by this name in this folder."""

    folder: int
    name: str
    made: int
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """The name is gone, and what had it too unless it is still open."""

    folder: int
    name: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """Within one folder; what had the new name has none any more."""

    folder: int
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Written:
    """`is_synced`: through a descriptor that returns once it is durable (O_DSYNC, O_SYNC)."""

    file: int
    offset: int
    data: bytes
    is_synced: bool = False


@dataclass(frozen=True, slots=True)
class Resized:
    """Cut off, or made longer with zeros."""

    file: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Synced:
    """fsync or fdatasync of a file or a folder came back without an error."""

    synced: int


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """It came back with an error. What was to be synced may be on the disk or not, and is taken for
    clean: no later call will write it, unless it is changed again."""

    synced: int


@dataclass(frozen=True, slots=True)
class Mapped:
    """The program writes to this file by memory: what is in it is anybody's guess."""

    file: int


@dataclass(frozen=True, slots=True)
class Marked:
    """Something that the program told its observer: what it is about to do, or has promised."""

    text: bytes


Operation = Made | Removed | Renamed | Written | Resized | Synced | SyncFailed | Mapped | Marked


@dataclass(frozen=True, slots=True)
class Ending:
    """How the program ended: its exit status, negative for a signal, and what it printed last."""

    status: int
    words: str


@dataclass(slots=True)
class Recording:
    """All that programs did to one folder, one program's life after the other's."""

    operations: list[Operation] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    identities: dict[tuple[int, int], int] = field(default_factory=dict)
    """(device, inode) → file or folder: those that are there now."""
    number_last: int = ROOT

    def new_number(self, identity: tuple[int, int]) -> int:
        """For a file that has just been made. Inodes of removed files are used again."""
        self.number_last += 1
        self.identities[identity] = self.number_last
        return self.number_last

    def number_of(self, path: Path) -> int | None:
        """Of a file or folder that is there; None of any other."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return self.identities.get((status.st_dev, status.st_ino))

    def marks(self) -> list[bytes]:
        """What the programs told, in order."""
        return [it.text for it in self.operations if isinstance(it, Marked)]
