"""Keep the chunks of a cell in an object store, and copies of them in files of the node.

Owns: the order of uploads and removals, what a start fetches, and which copies may go. Reads map
files as without an object store. The index of each chunk is always in the folder. A copy of its
rows comes when it is needed, and may go when the store is known to have it. Source: the rules R26
to R30 of the replication protocol.

Invariants:
- No process uses a name twice (see `chunk_names`).
- `write` returns a chunk when the store has said that both of its objects are there (R27). After an
  error it removes nothing from the store: the objects may be there, or come later.
- A chunk that is open is in the store, if the store could be asked at the start.
- A copy goes only after the store has said, to this process, that it has the object.
- A file has the name of a chunk only while its bytes are those of the chunk. A start compares the
  checksums, and so does each fetch. A start removes files that the log does not name.
"""

import logging
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from dodona_server.logs import tell
from dodona_tablets.core.rows.chunks.checking import check_sums
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.shell.cache_counts import CacheCounts
from dodona_tablets.shell.chunk_files import ChunkFiles, told_if_full
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.maps import map_file
from dodona_tablets.shell.objects import PART, ObjectMissing, Objects
from dodona_wire.errors import DataCorrupted, DodonaError, Unavailable
from dodona_wire.net.folder import sync_file, sync_folder
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import NO_CLUSTER, ClusterId

OPENED_AT_ONCE_MAX: Final = 8
ATTEMPTS: Final = 3
"""How often an object is fetched if the store does not answer, or its bytes are wrong."""

_logger: Final = logging.getLogger("dodona.node")

MakePool = Callable[[], Executor]


class ChunkGone(Exception):
    """A chunk was removed while it was fetched, so no work needs it any more."""


def _threads() -> Executor:
    return ThreadPoolExecutor(OPENED_AT_ONCE_MAX, "dodona-fetch")


def _always(_: int) -> bool:
    return True


class ChunkCache:
    """The chunks of one cell, for the owner of its log in one epoch."""

    def __init__(
        self,
        folder: Path,
        objects: Objects,
        names: ChunkNames,
        *,
        unix_ns: Callable[[], int] = time.time_ns,
        make_pool: MakePool = _threads,
    ) -> None:
        """`folder` is the data folder of the node: it is locked. `unix_ns` is the clock for the
        times of files, and `make_pool` makes the threads of a start. Raises OSError."""
        self._files = ChunkFiles(folder)
        self._objects = objects
        self._names = names
        self._unix_ns = unix_ns
        self._make_pool = make_pool
        self._cluster: Callable[[], ClusterId] = lambda: NO_CLUSTER
        self._stored: frozenset[str] | None = None
        """The names of the objects in the store, or None as long as it did not say."""
        self._unproved: dict[int, None] = {}
        """The chunks that the store was not known to have at the start."""
        self._left: dict[int, None] = {}
        """The chunks whose copies should have gone, but the store was not known to have them."""
        self._locks: dict[int, Lock] = {}
        """Of each chunk whose copy has come or gone. Threads do both side by side."""
        self._is_closing = False
        self.counts = CacheCounts()

    @property
    def place(self) -> str:
        return f"{self._objects.place}/{self._names.prefix}"

    @property
    def first_number(self) -> int:
        return self._names.first_number

    # ---- service

    def write(
        self, number: int, schema: TableSchema, batches: Iterable[pa.RecordBatch]
    ) -> ChunkInfo | None:
        """Write a chunk into files, and then into the store. Returns None if there are no rows.

        Raises Unavailable if the store did not take it, and what `ChunkFiles.write` raises.
        """
        assert number >= self.first_number
        info = self._files.write(number, schema, batches)
        if info is None:
            return None
        try:
            self._upload(number)
        except BaseException:
            self._files.remove([number])
            raise
        self._note_copy(info)
        return info

    def _upload(self, number: int, stored: Container[str] = ()) -> None:
        """Put the objects of a chunk, but for those that are there."""
        for name, path in self._places(number):
            if name not in stored:
                self._objects.put(name, path)

    def _note_copy(self, info: ChunkInfo) -> None:
        self.counts.add(info.number, info.size_bytes)
        self.touch([info.number])

    def open(self, info: ChunkInfo) -> Chunk:
        """Open a chunk over its files. Raises DataCorrupted, Overloaded, OSError."""
        ended = self.counts.map(info.number)
        try:
            return self._files.open(info, ended=ended)
        except BaseException:
            ended()
            raise

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove chunks. If the store does not answer, their objects stay until a later start."""
        for number in numbers:
            with self._lock_of(number):
                self._files.remove([number])
                self.counts.remove(number)
            for known in (self._unproved, self._left, self._locks):
                known.pop(number, None)
        try:
            self._objects.remove([name for it in numbers for name, _ in self._places(it)])
        except Unavailable as error:
            text = "chunks that are not needed stay in the object store"
            about = {"chunks": len(numbers), "reason": error.message}
            tell(_logger, logging.WARNING, "chunks_not_removed", text, **about)

    # ---- copies that come and go

    def fetch(self, info: ChunkInfo) -> memoryview:
        """Return the bytes of a chunk's rows, checked and mapped. They come from the folder if it
        has them, and else from the store. Raises DataCorrupted if the store has no such object, or
        another one; ChunkGone, Unavailable, Overloaded, DiskFull, OSError."""
        with self._lock_of(info.number):
            self._check_kept(info.number)
            kept = self._opened_here(info)
        if kept is not None:
            return kept.data
        fetched: memoryview = self._fetched(info, 0, partial(self._fetch_rows, info))
        return fetched

    def _fetch_rows(self, info: ChunkInfo) -> memoryview:
        name, path = self._places(info.number)[0]
        with self._part_of(name, path) as part, self._lock_of(info.number):
            self._check_kept(info.number)
            check_sums(self._files.open(info, data_path=part))
            self._keep(part, path)
            self._note_copy(info)
            return self.open(info).data

    def _check_kept(self, number: int) -> None:
        """Raise ChunkGone if a chunk was removed meanwhile. Its index goes with it."""
        if not self._files.paths(number)[1].exists():
            raise ChunkGone(f"chunk {number} was removed")

    def _lock_of(self, number: int) -> Lock:
        return self._locks.setdefault(number, Lock())

    def evict(
        self, numbers: Sequence[int], is_wanted: Callable[[int], bool] = _always
    ) -> list[int]:
        """Remove the copies of the rows of chunks that the store has, if `is_wanted` says that they
        should still go. A copy stays as long as the store does not say that it has the chunk: the
        next call tries again. Returns the chunks that are done. Raises OSError."""
        wished = [it for it in dict.fromkeys([*self._left, *numbers]) if is_wanted(it)]
        done = [it for it in (*self._left, *numbers) if it not in wished]
        self._prove([it for it in wished if it in self._unproved])
        for number in wished:
            if number in self._unproved:
                self._left[number] = None
                continue
            with self._lock_of(number):
                if is_wanted(number):
                    self._files.paths(number)[0].unlink(missing_ok=True)
                    self.counts.remove(number, is_evicted=True)
            done.append(number)
        for number in done:
            self._left.pop(number, None)
        return done

    def _prove(self, numbers: Sequence[int]) -> None:
        """See to it that the store has chunks of which that was not known at the start: ask again,
        and upload what is missing."""
        try:
            for number in numbers:
                if not self._is_closing:
                    self._upload(number, self._listed())
                    self._unproved.pop(number, None)
        except FileNotFoundError:  # it was removed meanwhile
            return
        except DodonaError as error:
            text = "copies stay in the folder: the object store does not say that it has the chunks"
            about = {"chunks": len(numbers), "reason": error.message}
            tell(_logger, logging.WARNING, "chunks_not_evicted", text, **about)

    def _listed(self) -> frozenset[str]:
        """Return the names of the objects that the store had at the start, or at the first call
        that it answered. Raises Unavailable."""
        if self._stored is None:
            self._stored = frozenset(self._objects.names(self._names.prefix))
        return self._stored

    def touch(self, numbers: Sequence[int]) -> None:
        """Note in the times of files that these chunks were used, in this order."""
        now_ns = self._unix_ns()
        for place, number in enumerate(numbers):
            with suppress(FileNotFoundError):
                at_ns = now_ns + place
                os.utime(self._files.paths(number)[0], ns=(at_ns, at_ns))

    def close(self) -> None:
        """End the fetches that are under way: each raises Unavailable soon."""
        self._is_closing = True

    # ---- the start

    def numbers(self, cluster: Callable[[], ClusterId]) -> set[int]:
        """Return the numbers of the chunks of lower epochs in the store (R29). If it does not
        answer, none: then they stay until a later start. Raises Unavailable if the store has chunks
        of this epoch or a higher one, and InvalidRequest if it can't be used.

        `cluster` returns the cluster of the cell, once it has joined one. Before that, the chunks
        of all clusters count: the cell can't have made any."""
        self._cluster = cluster
        try:
            found = self._listed()
        except Unavailable as error:
            text = "it is not known which chunks are in the object store"
            tell(_logger, logging.WARNING, "chunks_not_listed", text, reason=error.message)
            return set()
        numbers = self._names.numbers_of(found, cluster())
        is_joined = cluster() != NO_CLUSTER
        if is_joined and numbers and max(numbers) >= self.first_number:
            raise Unavailable(
                f"{self.place} has chunks of epoch {self._names.epoch_of(max(numbers))}, and this "
                f"process owns the log in epoch {self._names.epoch}: a later owner is at work, or "
                "the log is older than the chunks.",
                object_store=self._objects.place,
            )
        return numbers

    def open_all(self, needed: Mapping[int, ChunkInfo]) -> dict[int, Chunk]:
        """Open the chunks that the log names. The rows of those without a good copy here are away.
        Those that the store lacks are uploaded. Indexes that are missing are fetched. Removes all
        other files. Chunks that were used long ago come first. Raises DataCorrupted, Unavailable,
        OSError."""
        self._forget_others(needed)
        with self._make_pool() as threads:
            opening = [threads.submit(self._opened, it) for it in needed.values()]
            try:
                chunks = [it.result() for it in opening]
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
        away = [it.info for it in chunks if it.is_away]
        if away:
            about = {"chunks": len(away), "size_bytes": sum([it.size_bytes for it in away])}
            text = "rows of chunks come from the object store when they are needed"
            tell(_logger, logging.INFO, "chunks_away", text, **about)
        for info in away:
            self._tell_if_lost(info)
        chunks.sort(key=self._used_at_ns)
        return {it.info.number: it for it in chunks}

    def _tell_if_lost(self, info: ChunkInfo) -> None:
        name = self._places(info.number)[0][0]
        if self._stored is not None and name not in self._stored:
            error = self._not_as_named(info, name, f"there is no object {name}")
            tell(_logger, logging.ERROR, "chunk_lost", error.message, chunk=info.number)

    def _used_at_ns(self, chunk: Chunk) -> int:
        return 0 if chunk.is_away else self._files.paths(chunk.info.number)[0].stat().st_mtime_ns

    def _forget_others(self, needed: Mapping[int, ChunkInfo]) -> None:
        kept = {path for number in needed for path in self._files.paths(number)}
        for path in self._files.path.iterdir():
            if path not in kept:
                path.unlink(missing_ok=True)

    def _opened(self, info: ChunkInfo) -> Chunk:
        """Open a chunk over good copies, and see to it that the store has it, too. Without a good
        copy of its rows, they are away."""
        chunk = self._opened_here(info) or self._opened_away(info)
        if self._stored is None:
            self._unproved[info.number] = None
        elif not chunk.is_away:
            self._upload(info.number, self._stored)
        else:
            name, path = self._places(info.number)[1]
            if name not in self._stored:
                self._objects.put(name, path)
        return chunk

    def _opened_away(self, info: ChunkInfo) -> Chunk:
        """Open a chunk over its index. If that has to be fetched, perhaps the rows are here."""
        try:
            return self._files.open_away(info)
        except DataCorrupted:
            self._fetched(info, 1, partial(self._fetch_index, info))
            return self._opened_here(info) or self._files.open_away(info)

    def _opened_here(self, info: ChunkInfo) -> Chunk | None:
        """Open a chunk over a good copy. Returns None if there is none."""
        try:
            size_bytes = self._files.paths(info.number)[0].stat().st_size
            self.counts.add(info.number, size_bytes)
            chunk = self.open(info)
            check_sums(chunk)
        except (FileNotFoundError, DataCorrupted):
            return None
        return chunk

    def _fetch_index(self, info: ChunkInfo) -> None:
        name, path = self._places(info.number)[1]
        with self._part_of(name, path) as part:
            Chunk(info, None, map_file(part), name)
            self._keep(part, path)

    # ---- objects

    def _fetched(self, info: ChunkInfo, which: int, fetch: Callable[[], Any]) -> Any:
        """Return what `fetch` makes of one of the two objects of a chunk."""
        name = self._places(info.number)[which][0]
        for attempt in range(1, ATTEMPTS + 1):
            try:
                found = fetch()
            except ObjectMissing as error:
                if not which:
                    self._check_kept(info.number)
                self.counts.note_fetch("missing")
                raise self._not_as_named(info, name, f"there is no object {name}") from error
            except DataCorrupted as error:
                is_last = attempt == ATTEMPTS
                self.counts.note_fetch("damaged" if is_last else "failed")
                if is_last:
                    raise self._not_as_named(info, name, error.message) from error
            except Unavailable:
                self.counts.note_fetch("failed")
                if attempt == ATTEMPTS or self._is_closing:
                    raise
            else:
                self.counts.note_fetch("done")
                return found
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _part_of(self, name: str, path: Path) -> Iterator[Path]:
        """Write an object into a durable file beside that of a chunk. If the block does not keep
        it, it goes. Raises ObjectMissing, Unavailable, DiskFull, OSError."""
        part = path.with_name(path.name + PART)
        try:
            with told_if_full(self._files.path):
                self._objects.get(name, part, lambda: self._is_closing)
                sync_file(part)
            yield part
        finally:
            part.unlink(missing_ok=True)

    def _keep(self, part: Path, path: Path) -> None:
        """Give a file that was checked the name of a chunk's file."""
        part.rename(path)
        sync_folder(self._files.path)

    def _not_as_named(self, info: ChunkInfo, name: str, why: str) -> DataCorrupted:
        text = (
            f"The log names chunk {info.number}, but the object store does not have it: {why}. "
            "Put the object back, for example from a version that the store keeps, or restore a "
            "backup."
        )
        return DataCorrupted(text, object_store=self.place, object=name, chunk=info.number)

    def _places(self, number: int) -> list[tuple[str, Path]]:
        """Return the two objects of a chunk, each with its file."""
        name = partial(self._names.name_of, self._cluster(), number)
        return [(name(it.suffix), it) for it in self._files.paths(number)]
