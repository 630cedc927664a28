"""System calls on files below one folder, understood.

Owns: what each call of a traced process means for the disk, as operations. The kernel is asked anew
each time what a descriptor stands for, so that no table of them can be wrong. A recording is whole,
or there is none: what could change a watched file in a way that is not understood here raises
Untraceable. Must not import: anything of Dodona.
"""

import ctypes
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from disk_faults.operations import (
    ROOT,
    Made,
    Mapped,
    Marked,
    Operation,
    Recording,
    Removed,
    Renamed,
    Resized,
    Synced,
    Written,
)
from disk_faults.ptrace import Entry, Untraceable

MAPPED_NAMES: Final = ("lock.mdb",)
"""Files that may be written by memory: LMDB's locks, which it makes anew whenever nobody else has
it open."""

EXIT_GROUP: Final = 231
"""The end of a process with all its threads, wherever these are."""
IO_URING_SETUP: Final = 425
"""What goes through a ring is no system call: the tracer says that there are none."""

Kind = Literal[
    "mark", "create", "make folder", "write", "synced write", "resize", "sync", "folder sync",
    "rename", "remove", "map",
]  # fmt: skip

_AT_FDCWD: Final = -100
_IOVEC: Final = struct.Struct("=QQ")
_PATH_BYTES_MAX: Final = 4096
_PAGE_BYTES: Final = 4096
_SYNC: Final = 162
# Each with the place of the descriptor, or of the path, among its arguments.
_REFUSED_ON_DESCRIPTORS: Final = {
    40: 0,  # sendfile
    275: 2,  # splice
    277: 0,  # sync_file_range
    285: 0,  # fallocate
    306: 0,  # syncfs
    326: 2,  # copy_file_range
}
_REFUSED_ON_PATHS: Final = {
    86: 1,  # link
    88: 1,  # symlink
    133: 0,  # mknod
    259: 1,  # mknodat
    265: 3,  # linkat
    266: 2,  # symlinkat
    437: 1,  # openat2
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call on the watched folder. `finish` takes what the kernel answered, if that was no error,
    and says what it means. `count_bytes` is of a write in one piece, None of anything else."""

    kind: Kind
    name: str
    finish: Callable[[int], list[Operation]]
    count_bytes: int | None = None


Arguments = tuple[int, ...]


class Watch:
    """Understands the calls of one process. `recording` is asked for the numbers of files."""

    def __init__(self, pid: int, folder: Path, mark_fd: int, recording: Recording) -> None:
        self._process = f"/proc/{pid}"
        self._folder = str(folder.resolve())
        self._mark_fd = mark_fd
        self._recording = recording
        self._memory = os.open(f"{self._process}/mem", os.O_RDONLY | os.O_CLOEXEC)
        self._handlers: dict[int, Callable[[Arguments], Call | None]] = {
            1: lambda given: self._write(given[0], self._bytes(given[1], given[2]), None, given[2]),
            2: lambda given: self._open(_AT_FDCWD, given[0], given[1]),
            9: self._map,
            18: lambda given: self._write(
                given[0], self._bytes(given[1], given[2]), given[3], given[2]
            ),
            20: lambda given: self._write(given[0], self._vector(given[1], given[2]), None),
            76: lambda given: self._truncate(given[0], given[1]),
            74: lambda given: self._synchronise(given[0]),
            75: lambda given: self._synchronise(given[0]),
            77: lambda given: self._resize(given[0], given[1]),
            82: lambda given: self._rename(_AT_FDCWD, given[0], _AT_FDCWD, given[1]),
            83: lambda given: self._make_folder(_AT_FDCWD, given[0]),
            84: lambda given: self._remove(_AT_FDCWD, given[0]),
            85: lambda given: self._open(_AT_FDCWD, given[0], os.O_CREAT | os.O_TRUNC),
            87: lambda given: self._remove(_AT_FDCWD, given[0]),
            257: lambda given: self._open(given[0], given[1], given[2]),
            258: lambda given: self._make_folder(given[0], given[1]),
            263: lambda given: self._remove(given[0], given[1]),
            264: lambda given: self._rename(*given[:4]),
            296: lambda given: self._write(given[0], self._vector(given[1], given[2]), given[3]),
            316: lambda given: self._rename(*given[:5]),
            328: self._write_flagged,
        }

    def close(self) -> None:
        os.close(self._memory)

    def understand(self, entry: Entry) -> Call | None:
        """What a thread is about to do, if that is of interest. Raises Untraceable."""
        handler = self._handlers.get(entry.number)
        if handler is not None:
            return handler(entry.arguments)
        self._refuse(entry)
        return None

    def _refuse(self, entry: Entry) -> None:
        if entry.number == _SYNC:
            raise Untraceable("sync() writes more than the watched folder")
        at = _REFUSED_ON_DESCRIPTORS.get(entry.number)
        if at is not None:
            name = self._name_behind(entry.arguments[at])
        elif (at := _REFUSED_ON_PATHS.get(entry.number)) is not None:
            folder = entry.arguments[at - 1] if entry.number > _REFUSED_AT_MIN else _AT_FDCWD
            name = self._name_below(self._path(folder, entry.arguments[at]))
        else:
            return
        if name is not None:
            raise Untraceable(f"system call {entry.number} on {name} is not understood")

    # Calls on descriptors

    def _write(
        self,
        fd: int,
        read: Callable[[], bytes],
        offset: int | None,
        count_bytes: int | None = None,
    ) -> Call | None:
        if fd == self._mark_fd:
            text = read()
            return Call("mark", "", lambda _: [Marked(text)])
        name = self._name_behind(fd)
        if name is None:
            return None
        file = self._number_behind(fd)
        position, flags = self._position(fd)
        if flags & os.O_APPEND:
            offset = os.stat(f"{self._process}/fd/{fd}").st_size
        start = position if offset is None else offset
        data = read()
        is_synced = bool(flags & os.O_DSYNC)
        return Call(
            "synced write" if is_synced else "write",
            name,
            lambda count: [Written(file, start, data[:count], is_synced)] if count else [],
            count_bytes,
        )

    def _write_flagged(self, given: Arguments) -> Call | None:
        """pwritev2, as Python's pwritev is."""
        if given[5] and self._name_behind(given[0]) is not None:
            raise Untraceable(f"pwritev2 with flags {given[5]} is not understood")
        return self._write(given[0], self._vector(given[1], given[2]), given[3])

    def _synchronise(self, fd: int) -> Call | None:
        name = self._name_behind(fd)
        if name is None:
            return None
        number = self._number_behind(fd)
        is_folder = os.path.isdir(f"{self._process}/fd/{fd}")
        return Call("folder sync" if is_folder else "sync", name, lambda _: [Synced(number)])

    def _resize(self, fd: int, size_bytes: int) -> Call | None:
        name = self._name_behind(fd)
        if name is None:
            return None
        file = self._number_behind(fd)
        return Call("resize", name, lambda _: [Resized(file, size_bytes)])

    def _truncate(self, path_address: int, size_bytes: int) -> Call | None:
        path = self._path(_AT_FDCWD, path_address)
        name = self._name_below(path)
        if name is None:
            return None
        file = self._number_of(path)
        return Call("resize", name, lambda _: [Resized(file, size_bytes)])

    def _map(self, given: Arguments) -> Call | None:
        is_shared, is_writable = given[3] & 0x03 in (0x01, 0x03), given[2] & 0x02
        if not (is_shared and is_writable):
            return None
        name = self._name_behind(given[4])
        if name is None:
            return None
        if os.path.basename(name) not in MAPPED_NAMES:
            raise Untraceable(f"{name} is written by memory, which no tracer sees")
        file = self._number_behind(given[4])
        return Call("map", name, lambda _: [Mapped(file)])

    # Calls on names

    def _open(self, at: int, path_address: int, flags: int) -> Call | None:
        if not flags & (os.O_CREAT | os.O_TRUNC):
            return None
        path = self._path(at, path_address)
        name = self._name_below(path)
        if name is None:
            return None
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise Untraceable("files without a name are not understood")
        if not os.path.lexists(path):
            return Call("create", name, lambda _: [self._made(path, is_folder=False)])
        if flags & os.O_TRUNC and os.stat(path).st_size:
            file = self._number_of(path)
            return Call("resize", name, lambda _: [Resized(file, 0)])
        return None

    def _make_folder(self, at: int, path_address: int) -> Call | None:
        path = self._path(at, path_address)
        name = self._name_below(path)
        if name is None:
            return None
        return Call("make folder", name, lambda _: [self._made(path, is_folder=True)])

    def _remove(self, at: int, path_address: int) -> Call | None:
        path = self._path(at, path_address)
        name = self._name_below(path)
        if name is None:
            return None
        folder = self._number_of(os.path.dirname(path))
        return Call("remove", name, lambda _: [Removed(folder, os.path.basename(path))])

    def _rename(self, old_at: int, old: int, new_at: int, new: int, flags: int = 0) -> Call | None:
        old_path, new_path = self._path(old_at, old), self._path(new_at, new)
        names = self._name_below(old_path), self._name_below(new_path)
        if names == (None, None):
            return None
        folder = os.path.dirname(old_path)
        if folder != os.path.dirname(new_path) or flags or names[1] is None:
            raise Untraceable(f"{names} are not of one folder, or not simply renamed")
        operation = Renamed(
            self._number_of(folder), os.path.basename(old_path), os.path.basename(new_path)
        )
        return Call("rename", names[1], lambda _: [operation])

    # What the kernel knows

    def _made(self, path: str, *, is_folder: bool) -> Made:
        number = self._recording.new_number(_identity(path))
        folder = self._number_of(os.path.dirname(path))
        return Made(folder, os.path.basename(path), number, is_folder)

    def _number_of(self, path: str) -> int:
        try:
            return self._recording.identities[_identity(path)]
        except KeyError:
            raise Untraceable(f"nobody saw how {path} was made") from None

    def _number_behind(self, fd: int) -> int:
        return self._number_of(f"{self._process}/fd/{_signed(fd)}")

    def _name_behind(self, fd: int) -> str | None:
        """Of a watched file or folder that is open; None for all others."""
        try:
            return self._name_below(os.readlink(f"{self._process}/fd/{_signed(fd)}"))
        except OSError:
            return None  # the kernel will say so too

    def _name_below(self, path: str) -> str | None:
        if path == self._folder:
            return "."
        prefix = self._folder + "/"
        return path.removeprefix(prefix) if path.startswith(prefix) else None

    def _path(self, at: int, address: int) -> str:
        """A path argument, absolute; whatever links lead to its folder are followed."""
        raw = self._bytes(address, _PATH_BYTES_MAX, is_text=True)().split(b"\x00", 1)[0]
        start = "cwd" if _signed(at) == _AT_FDCWD else f"fd/{_signed(at)}"
        path = os.path.join(os.readlink(f"{self._process}/{start}"), os.fsdecode(raw))
        folder, name = os.path.split(path.rstrip("/"))
        return os.path.join(os.path.realpath(folder), name)

    def _position(self, fd: int) -> tuple[int, int]:
        """Where a descriptor stands, and its flags."""
        with open(f"{self._process}/fdinfo/{fd}", encoding="ascii") as lines:
            known = dict(line.split(":", 1) for line in lines)
        return int(known["pos"]), int(known["flags"], 8)

    def _bytes(self, address: int, count: int, *, is_text: bool = False) -> Callable[[], bytes]:
        """Memory of the process, read when asked for. A text may end before what is mapped does."""

        def read() -> bytes:
            parts: list[bytes] = []
            at, end = address, address + count
            while at < end:
                step = _PAGE_BYTES - at % _PAGE_BYTES if is_text else end - at
                part = os.pread(self._memory, min(step, end - at), at)
                parts.append(part)
                at += len(part)
                if not part or (is_text and b"\x00" in part):
                    break
            return b"".join(parts)

        return read

    def _vector(self, address: int, count: int) -> Callable[[], bytes]:
        def read() -> bytes:
            vector = self._bytes(address, count * _IOVEC.size)()
            return b"".join(self._bytes(*it)() for it in _IOVEC.iter_unpack(vector))

        return read


_REFUSED_AT_MIN: Final = 256
"""From here on calls on paths have a folder's descriptor before the path."""


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _signed(fd: int) -> int:
    """A register has 64 bits, a descriptor 32."""
    return ctypes.c_int(fd).value


def identify(folder: Path, recording: Recording) -> None:
    """Learn what is in the folder before a program is started: it is taken to be durable."""
    if not recording.identities:
        recording.identities[_identity(str(folder))] = ROOT
    for path, names, file_names in os.walk(folder):
        for name in [*sorted(names), *sorted(file_names)]:
            _take_over(os.path.join(path, name), recording)


def _take_over(path: str, recording: Recording) -> None:
    identity = _identity(path)
    if identity in recording.identities:
        return
    folder = recording.identities[_identity(os.path.dirname(path))]
    is_folder = os.path.isdir(path)
    number = recording.new_number(identity)
    made = Made(folder, os.path.basename(path), number, is_folder)
    recording.operations += [made, Synced(folder)]
    if not is_folder:
        recording.operations += [Written(number, 0, Path(path).read_bytes()), Synced(number)]
