"""Programs to be traced: each does a few things to a folder, some of them wrongly.

Owns: the plain ones, which only make system calls, and the writers, which are workloads: one kind
keeps a log of its own, the other keeps files next to a master's store. Each writer is right, or has
one flaw that a power cut can show. A module of its own, as another process must find it by name.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import pytest

from disk_faults import ptrace
from disk_faults.campaign import Tally, Way, examine
from disk_faults.injection import Counting, FailAt, KillAt, Site
from disk_faults.operations import Recording
from disk_faults.recording import record
from disk_faults.stores import Mark, Wrong, read_store
from disk_faults.syscalls import Watch
from disk_faults.tracer import Saboteur
from dodona_oracle.core.records import COMMITS, Put, Remove
from dodona_oracle.shell.store import MasterStore

WRITES: Final = 6


# Plain programs: each is given the folder


def write_in_every_way(folder: Path, mark: Mark) -> None:
    fd = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"write ")
    os.pwrite(fd, b"pwrite ", 6)
    os.lseek(fd, 13, os.SEEK_SET)
    os.writev(fd, [b"wri", b"tev "])
    os.pwritev(fd, [b"pwri", b"tev "], 20)
    os.close(fd)
    appending = os.open(folder / "file", os.O_WRONLY | os.O_APPEND)
    again = os.dup(appending)
    os.close(appending)
    os.write(again, b"append ")
    os.close(again)
    with open(folder / "file", "ab", buffering=0) as file:
        file.write(b"python")
    mark(b"written")


def sync_in_every_way(folder: Path, mark: Mark) -> None:
    fd = os.open(folder / "file", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    os.write(fd, b"x")
    mark(b"durable")
    os.fsync(fd)
    os.fdatasync(fd)
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    os.ftruncate(fd, 5)
    os.close(fd)
    folder_fd = os.open(folder, os.O_RDONLY)
    os.fsync(folder_fd)
    os.close(folder_fd)


def name_in_every_way(folder: Path, mark: Mark) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "b").mkdir()
    (folder / "a" / "file").write_bytes(b"1")
    (folder / "a" / "other").write_bytes(b"2")
    (folder / "a" / "other").replace(folder / "a" / "file")
    (folder / "a" / "gone").touch()
    (folder / "a" / "gone").unlink()
    (folder / "a" / "b").rmdir()
    (folder / "a").rename(folder / "c")
    at = os.open(folder / "c", os.O_RDONLY)
    os.close(os.open("below", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.rename("below", "under", src_dir_fd=at, dst_dir_fd=at)
    os.close(at)
    (folder / "c" / "file").write_bytes(b"cut off and written again")


def write_from_threads(folder: Path, mark: Mark) -> None:
    def write(number: int) -> None:
        fd = os.open(folder / f"file {number}", os.O_WRONLY | os.O_CREAT)
        for count in range(5):
            os.write(fd, b"%d " % count)
            os.fdatasync(fd)
        os.close(fd)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def end_beside_a_writer(folder: Path, mark: Mark) -> None:
    has_begun = threading.Event()

    def write() -> None:
        fd = os.open(folder / "file", os.O_WRONLY | os.O_CREAT)
        while True:
            os.write(fd, bytes(1 << 20))
            has_begun.set()

    threading.Thread(target=write, daemon=True).start()
    has_begun.wait()
    os._exit(3)


def write_by_memory(folder: Path, mark: Mark) -> None:
    with open(folder / "file", "wb+") as file:
        file.truncate(4096)
        mmap.mmap(file.fileno(), 4096)[0] = 1


def start_another(folder: Path, mark: Mark) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def link(folder: Path, mark: Mark) -> None:
    (folder / "file").touch()
    (folder / "link").symlink_to("file")


def allocate(folder: Path, mark: Mark) -> None:
    fd = os.open(folder / "file", os.O_WRONLY | os.O_CREAT)
    os.posix_fallocate(fd, 0, 10)


def make_a_ring(folder: Path, mark: Mark) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(425, 1, ctypes.create_string_buffer(120)) == -1
    mark(errno.errorcode[ctypes.get_errno()].encode())


def end_badly(folder: Path, mark: Mark) -> None:
    (folder / "file").touch()
    raise ValueError("what was it again?")


def write_and_tell(folder: Path, mark: Mark) -> None:
    """Says of each call what it was answered."""
    fd = os.open(folder / "file", os.O_WRONLY | os.O_CREAT)
    head = os.open(folder / "file", os.O_WRONLY | os.O_DSYNC)
    calls: list[Callable[[], object]] = [
        lambda: os.write(fd, b"four"),
        lambda: os.fdatasync(fd),
        lambda: os.pwrite(head, b"head", 0),
        lambda: os.fdatasync(fd),
    ]
    for call in calls:
        try:
            mark(b"%a" % call())
        except OSError as error:
            mark(errno.errorcode[error.errno or 0].encode())


Plain = Callable[[Path, Mark], None]


def trace(program: Plain, folder: Path, sabotage: Site | int | None = None) -> Recording:
    """In a process that may fork. `sabotage` is the call that fails, or at which it is killed."""
    saboteur: Saboteur = Counting()
    if isinstance(sabotage, Site):
        saboteur = FailAt(sabotage)
    elif sabotage is not None:
        saboteur = KillAt(sabotage)
    return record(lambda mark: program(folder, mark), folder, saboteur=saboteur)


def trace_half_blind(folder: Path) -> Recording:
    """By a tracer that overlooks pwrite."""
    with pytest.MonkeyPatch.context() as patch:
        understand = Watch.understand
        patch.setattr(
            Watch, "understand", lambda self, it: None if it.number == 18 else understand(self, it)
        )
        return trace(write_in_every_way, folder)


def trace_where_it_is_forbidden(folder: Path) -> Recording:
    def refuse() -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ptrace, "ask_to_be_traced", refuse)
        return trace(write_in_every_way, folder)


# A log of its own: numbered lines, a head that says how many count, and a name


LogFlaw = Literal[
    "none", "told before it is synced", "head before the data", "folder not synced",
    "head not synced", "error ignored",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Entries in a file, each of a page and more, and their count in a file of its own."""

    flaw: LogFlaw
    name: str = "log writer"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        entries = os.open(folder / "entries", os.O_RDWR | os.O_CREAT)
        if self.flaw != "folder not synced":
            _sync_folder(folder)
        count = _count_in(folder)
        mark(b"had %d" % count)
        for number in range(count + 1, count + 1 + WRITES):
            mark(b"asked %d" % number)
            steps: list[Callable[[], object]] = [
                partial(os.pwrite, entries, _entry(number), (number - 1) * len(_entry(number))),
                partial(self._sync, entries),
                partial(self._write_head, folder, number),
            ]
            if self.flaw == "head before the data":
                steps = [steps[2], *steps[:2]]
            if self.flaw == "told before it is synced":
                mark(b"had %d" % number)
            for step in steps:
                step()
            mark(b"had %d" % number)
        os.close(entries)

    def _sync(self, fd: int) -> None:
        try:
            os.fdatasync(fd)
        except OSError:
            if self.flaw != "error ignored":
                raise

    def _write_head(self, folder: Path, count: int) -> None:
        flags = 0 if self.flaw == "head not synced" else os.O_DSYNC
        head = os.open(folder / "head", os.O_WRONLY | os.O_CREAT | flags)
        if count == 1 and self.flaw != "folder not synced":
            _sync_folder(folder)
        os.pwrite(head, b"%4d" % count, 0)
        os.close(head)

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        told = [mark.split() for mark in marks]
        must = max((int(number) for word, number in told if word == b"had"), default=0)
        count = _count_in(folder)
        if count < must:
            raise Wrong(f"{count} entries, but {must} were promised")
        data = (folder / "entries").read_bytes() if count else b""
        for number in range(1, count + 1):
            length = len(_entry(number))
            if data[(number - 1) * length : number * length] != _entry(number):
                raise Wrong(f"entry {number} of {count} is not whole")


def _entry(number: int) -> bytes:
    return b"%4d" % number * 1500


def _count_in(folder: Path) -> int:
    head = folder / "head"
    text = head.read_bytes().strip(b"\x00 ") if head.exists() else b""
    return int(text or b"0")


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


# Files next to a store that names them, as chunks are next to a log


ChunkFlaw = Literal[
    "none", "file not synced", "folder not synced", "named before it is written",
    "removed too early",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChunkWriter:
    """Each file is written, then named; two are compacted into one, and removed then."""

    flaw: ChunkFlaw
    name: str = "chunk writer"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        store = MasterStore.open(folder / "data")
        chunks = folder / "data" / "chunks"
        chunks.mkdir(exist_ok=True)
        _sync_folder(chunks.parent)
        known = sorted(_chunks_in(list(store.items())))
        for number in range(1 + max(known, default=0), 1 + max(known, default=0) + WRITES):
            steps: list[Callable[[], None]] = [
                partial(self._write, chunks, number),
                partial(store.append, [Put(COMMITS, _key(number), _sum(number))]),
            ]
            for step in reversed(steps) if self.flaw == "named before it is written" else steps:
                step()
            mark(b"had %d" % number)
            known.append(number)
            if len(known) >= 3:
                self._replace(store, chunks, known[:2], mark)
                del known[:2]
        store.close()

    def _write(self, chunks: Path, number: int) -> None:
        with open(chunks / f"{number}.arrow", "wb") as file:
            file.write(_chunk(number))
            file.flush()
            if self.flaw != "file not synced":
                os.fsync(file.fileno())
        if self.flaw != "folder not synced":
            _sync_folder(chunks)

    def _replace(self, store: MasterStore, chunks: Path, old: list[int], mark: Mark) -> None:
        mark(b"leaves %d %d" % (old[0], old[1]))
        steps: list[Callable[[], None]] = [
            partial(store.append, [Remove(COMMITS, _key(number)) for number in old]),
            *(partial(os.unlink, chunks / f"{number}.arrow") for number in old),
        ]
        for step in reversed(steps) if self.flaw == "removed too early" else steps:
            step()

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        named = _chunks_in(read_store(folder))
        told = [mark.split() for mark in marks]
        must = {int(it[1]) for it in told if it[0] == b"had"}
        may_be_gone = {int(number) for it in told if it[0] == b"leaves" for number in it[1:]}
        if missing := must - may_be_gone - named:
            raise Wrong(f"not named any more: {sorted(missing)}")
        for number in sorted(named):
            path = folder / "data" / "chunks" / f"{number}.arrow"
            if not path.exists() or path.read_bytes() != _chunk(number):
                raise Wrong(f"{path.name} is named, and not there or not whole")


def _chunk(number: int) -> bytes:
    return b"%d," % number * 3000


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _sum(number: int) -> bytes:
    return zlib.crc32(_chunk(number)).to_bytes(8, "big")


def _chunks_in(items: Sequence[tuple[str, bytes, bytes]]) -> set[int]:
    return {int.from_bytes(key, "big") for bucket, key, _ in items if bucket == COMMITS}


def examine_log_writer(flaw: LogFlaw, way: Way, seed: int) -> Tally:
    return examine(LogWriter(flaw), way, seed)


def examine_chunk_writer(flaw: ChunkFlaw, way: Way, seed: int) -> Tally:
    return examine(ChunkWriter(flaw), way, seed)
