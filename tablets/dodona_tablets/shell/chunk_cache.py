"""Keep the chunks of a cell in an object store, and whole copies of them in files of the node.

Owns: the order of uploads and removals, and what a start fetches. Reads map files as without an
object store. Source: the rules R26 to R30 of the replication protocol.

Invariants:
- No process uses a name twice (see `chunk_names`).
- `write` returns a chunk when the store has said that both of its objects are there (R27). After an
  error it removes nothing from the store: the objects may be there, or come later.
- A chunk that is open is in the store, if the store could be asked at the start.
- A file has the name of a chunk only while its bytes are those of the chunk. A start compares the
  checksums, and fetches what it can't use. It removes files that the log does not name.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from dodona_server.logs import tell
from dodona_tablets.core.rows.chunks.checking import check_sums
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.maps import map_file
from dodona_tablets.shell.objects import PART, ObjectMissing, Objects
from dodona_wire.errors import DataCorrupted, Unavailable
from dodona_wire.net.folder import sync_file, sync_folder
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import NO_CLUSTER, ClusterId

OPENED_AT_ONCE_MAX: Final = 8
ATTEMPTS: Final = 3
"""How often a chunk is fetched if the store does not answer, or its bytes are wrong."""

_logger: Final = logging.getLogger("dodona.node")


class ChunkCache:
    """The chunks of one cell, for the owner of its log in one epoch."""

    def __init__(self, folder: Path, objects: Objects, names: ChunkNames) -> None:
        """`folder` is the data folder of the node: it is locked. Raises OSError."""
        self._files = ChunkFiles(folder)
        self._objects = objects
        self._names = names
        self._cluster: Callable[[], ClusterId] = lambda: NO_CLUSTER
        self._stored: frozenset[str] | None = None
        """The names of the objects in the store at the start, or None if it did not say."""
        self._bytes_by_number: dict[int, int] = {}

    @property
    def place(self) -> str:
        return f"{self._objects.place}/{self._names.prefix}"

    @property
    def first_number(self) -> int:
        return self._names.first_number

    @property
    def cached_bytes(self) -> int:
        """Return the size of all chunks, each of which is in the folder, too."""
        return sum(list(self._bytes_by_number.values()))

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
        self._bytes_by_number[number] = info.size_bytes
        return info

    def _upload(self, number: int, stored: Container[str] = ()) -> None:
        """Put the objects of a chunk, but for those that are there."""
        for name, path in self._places(number):
            if name not in stored:
                self._objects.put(name, path)

    def open(self, info: ChunkInfo) -> Chunk:
        """Open a chunk over its files. Raises DataCorrupted, Overloaded, OSError."""
        return self._files.open(info)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove chunks. If the store does not answer, their objects stay until a later start."""
        self._files.remove(numbers)
        for number in numbers:
            self._bytes_by_number.pop(number, None)
        try:
            self._objects.remove([name for it in numbers for name, _ in self._places(it)])
        except Unavailable as error:
            text = "chunks that are not needed stay in the object store"
            about = {"chunks": len(numbers), "reason": error.message}
            tell(_logger, logging.WARNING, "chunks_not_removed", text, **about)

    # ---- the start

    def numbers(self, cluster: Callable[[], ClusterId]) -> set[int]:
        """Return the numbers of the chunks of lower epochs in the store (R29). If it does not
        answer, none: then they stay until a later start. Raises Unavailable if the store has chunks
        of this epoch or a higher one, and InvalidRequest if it can't be used.

        `cluster` returns the cluster of the cell, once it has joined one. Before that, the chunks
        of all clusters count: the cell can't have made any."""
        self._cluster = cluster
        try:
            found = frozenset(self._objects.names(self._names.prefix))
        except Unavailable as error:
            text = "it is not known which chunks are in the object store"
            tell(_logger, logging.WARNING, "chunks_not_listed", text, reason=error.message)
            return set()
        self._stored = found
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
        """Open the chunks that the log names. Those without a good copy here are fetched, and those
        that the store lacks are uploaded. Removes all other files. Raises DataCorrupted,
        Unavailable, OSError."""
        self._forget_others(needed)
        began_s = time.monotonic()
        fetched: list[ChunkInfo] = []
        with ThreadPoolExecutor(OPENED_AT_ONCE_MAX, "dodona-fetch") as threads:
            opening = [threads.submit(self._opened, it, fetched) for it in needed.values()]
            try:
                chunks = [it.result() for it in opening]
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
        if fetched:
            about = {
                "chunks": len(fetched),
                "size_bytes": sum(it.size_bytes for it in fetched),
                "seconds": round(time.monotonic() - began_s, 3),
            }
            text = "the object store gave chunks"
            tell(_logger, logging.INFO, "chunks_fetched", text, **about)
        self._bytes_by_number |= {it.number: it.size_bytes for it in needed.values()}
        return {it.info.number: it for it in chunks}

    def _forget_others(self, needed: Mapping[int, ChunkInfo]) -> None:
        kept = {path for number in needed for path in self._files.paths(number)}
        for path in self._files.path.iterdir():
            if path not in kept:
                path.unlink(missing_ok=True)

    def _opened(self, info: ChunkInfo, fetched: list[ChunkInfo]) -> Chunk:
        """Open a chunk over good copies, and see to it that the store has it, too."""
        try:
            chunk = self._files.open(info)
            check_sums(chunk)
        except DataCorrupted:
            fetched.append(info)
            return self._fetched(info)
        if self._stored is not None:
            self._upload(info.number, self._stored)
        return chunk

    def _fetched(self, info: ChunkInfo) -> Chunk:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._fetch(info)
                return self._files.open(info)
            except ObjectMissing as error:
                raise self._not_as_named(info, f"there is no object {error}") from error
            except DataCorrupted as error:
                if attempt == ATTEMPTS:
                    raise self._not_as_named(info, error.message) from error
            except Unavailable:
                if attempt == ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _fetch(self, info: ChunkInfo) -> None:
        """Write the two files of a chunk. Raises ObjectMissing, DataCorrupted, Unavailable,
        OSError."""
        places = self._places(info.number)
        parts = [path.with_name(path.name + PART) for _, path in places]
        for (name, _), part in zip(places, parts, strict=True):
            self._objects.get(name, part)
        data, index = map(map_file, parts)
        check_sums(Chunk(info, data, index, places[0][0]))
        for (_, path), part in zip(places, parts, strict=True):
            sync_file(part)
            part.rename(path)
        sync_folder(self._files.path)

    def _not_as_named(self, info: ChunkInfo, why: str) -> DataCorrupted:
        text = (
            f"The log names chunk {info.number}, but the object store does not have it: {why}. "
            "Put the object back, for example from a version that the store keeps, or restore a "
            "backup."
        )
        return DataCorrupted(text, object_store=self.place, chunk=info.number)

    def _places(self, number: int) -> list[tuple[str, Path]]:
        """Return the two objects of a chunk, each with its file."""
        name = partial(self._names.name_of, self._cluster(), number)
        return [(name(it.suffix), it) for it in self._files.paths(number)]
