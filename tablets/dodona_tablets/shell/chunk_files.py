"""Write the files of a cell's chunks durably, map them into memory, and remove them.

Owns: the folder `chunks` in a cell's data folder, and the names of files in it: NUMBER.arrow and
NUMBER.index. A chunk has its final name from the first byte on, because no reader looks for it
before the log names it. A chunk that the log does not name stays until the core says that it is
garbage.

Invariants:
- When `write` returns a chunk, the chunk survives a crash of the machine.
- When `write` raises, no part of the chunk is left, unless the disk failed.
- Each number is used once.
- Threads may write and remove chunks of different numbers at the same time, while others read.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from dodona_server.disk_space import is_no_space
from dodona_tablets.core.rows.chunks.checking import check_chunk
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.index import decode_index
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.writing import write_chunk
from dodona_tablets.shell.maps import Ended, map_file
from dodona_wire.errors import DataCorrupted, DiskFull
from dodona_wire.net.descriptors import is_out_of_descriptors, out_of_descriptors
from dodona_wire.net.folder import FOLDER_MODE, private_file, sync_folder
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import ClusterId

CHUNKS_NAME: Final = "chunks"
SYNC_BYTES: Final = 2 << 20
"""The bytes that are written between two syncs. The next sync of the log waits for no more than
this."""

_NAME: Final = re.compile(r"(\d+)\.(?:arrow|index)")


class ChunkFiles:
    """The chunk files of one cell, by number."""

    first_number = 1
    """The lowest number that this process may give to a chunk."""

    def __init__(self, folder: Path) -> None:
        """Open the folder for chunks, or make it. `folder` is the cell's data folder: it exists and
        is locked. Raises OSError."""
        self.path = folder / CHUNKS_NAME
        self.path.mkdir(FOLDER_MODE, exist_ok=True)
        sync_folder(folder)

    @property
    def place(self) -> str:
        """Return where the chunks are, for errors."""
        return str(self.path)

    def write(
        self, number: int, schema: TableSchema, batches: Iterable[pa.RecordBatch]
    ) -> ChunkInfo | None:
        """Write a chunk durably. Returns None if there are no rows. See `write_chunk`.

        Raises DiskFull if there is no space for it, Overloaded if this process may open no more
        files, OSError if the disk fails.
        """
        data_path, index_path = self.paths(number)
        assert not data_path.exists(), f"chunk {number} was written before"
        with _removed_on_error(data_path, index_path), told_if_full(self.path):
            with _durable_file(data_path) as file:
                written = write_chunk(number, schema, batches, cast("BinaryIO", file))
            if written is None:
                data_path.unlink()
                return None
            info, index = written
            with _durable_file(index_path) as file:
                file.write(index)
            sync_folder(self.path)
        return info

    def open(
        self,
        info: ChunkInfo,
        *,
        in_memory: bool = False,
        ended: Ended | None = None,
        data_path: Path | None = None,
    ) -> Chunk:
        """Open a chunk, over its files or over copies of them in memory. `ended` is called when the
        map of its rows ends. `data_path` is the file with its rows, if that has another name yet.

        Raises DataCorrupted if a file is missing or does not match its description. Raises
        InvalidRequest if the process may not have so much address space, and Overloaded if it may
        open no more files.
        """
        own_path, index_path = self.paths(info.number)
        data_path = data_path or own_path
        if in_memory:
            return Chunk(info, _read(data_path), _read(index_path), str(data_path))
        return Chunk(info, _mapped(data_path, ended), _mapped(index_path), str(data_path))

    def open_away(self, info: ChunkInfo) -> Chunk:
        """Open a chunk over its index only: its rows are away. Raises as `open`."""
        data_path, index_path = self.paths(info.number)
        return Chunk(info, None, _mapped(index_path), str(data_path))

    def open_all(self, needed: Mapping[int, ChunkInfo]) -> dict[int, Chunk]:
        """Open the chunks that a start needs. Raises as `open`."""
        return {number: self.open(info) for number, info in needed.items()}

    def numbers(self, _: Callable[[], ClusterId]) -> set[int]:
        """Return the numbers of all chunks in the folder, also of incomplete ones."""
        return numbers_in(self.path)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove chunks that the log does not name any more. A process that has them open may go on
        reading them. Raises OSError."""
        for number in numbers:
            for path in reversed(self.paths(number)):
                path.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Return the size of all files, also those that are being written or removed."""
        total = 0
        for path in self.path.iterdir():
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def paths(self, number: int) -> tuple[Path, Path]:
        """Return the paths of the two files of a chunk."""
        return paths_of(self.path, number)


def numbers_in(path: Path) -> set[int]:
    """Return the numbers of the chunks in this folder, also of incomplete ones. Empty if there is
    no folder."""
    if not path.exists():
        return set()
    return {int(found[1]) for found in map(_NAME.fullmatch, os.listdir(path)) if found}


def verify_chunk(path: Path, number: int) -> ChunkInfo:
    """Check all of a chunk in a folder of chunks, and return its description. A caller that has a
    log compares it.

    Raises DataCorrupted, which names the file and the place.
    """
    data_path, index_path = paths_of(path, number)
    info = verify_files(data_path, index_path)
    if info.number != number:
        text = f"The index belongs to chunk {info.number}."
        raise DataCorrupted(text, path=str(index_path), chunk=number)
    return info


def verify_files(data_path: Path, index_path: Path) -> ChunkInfo:
    """Check the two files of a chunk, and return its description. Raises DataCorrupted, which names
    the file and the place."""
    raw_index = _mapped(index_path)
    index, checksum = decode_index(raw_index, str(index_path))
    info = index.describe(checksum)
    check_chunk(Chunk(info, _mapped(data_path), raw_index, str(data_path)))
    return info


def paths_of(folder: Path, number: int) -> tuple[Path, Path]:
    """Return the paths of the two files of a chunk in a folder of chunks."""
    return folder / f"{number}.arrow", folder / f"{number}.index"


# Reading


def _read(path: Path) -> bytes:
    with _missing_told(path):
        return path.read_bytes()


def _mapped(path: Path, ended: Ended | None = None) -> memoryview:
    """Map a file into memory. The map stays when the file is removed."""
    # The kernel's usual read-ahead stays on. Without it (MADV_RANDOM), lookups in a file that is
    # not in memory took twice as long, and scans four times as long.
    with _missing_told(path):
        return map_file(path, ended)


@contextmanager
def _missing_told(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        text = "A file of a chunk is missing. Put it back, or restore a backup."
        raise DataCorrupted(text, path=str(path)) from error
    except OSError as error:
        if is_out_of_descriptors(error):
            raise out_of_descriptors(error, path) from error
        raise


# Writing


class _SyncedFile:
    """A file that is synced as it grows."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unsynced_bytes = 0

    def write(self, data: Any) -> int:
        written = self._file.write(data)
        self._unsynced_bytes += written
        if self._unsynced_bytes >= SYNC_BYTES:
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._unsynced_bytes = 0
        return written

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def _durable_file(path: Path) -> Iterator[_SyncedFile]:
    """Make a new file. Its content is durable at the end of the block."""
    with private_file(path, "xb") as file:
        yield _SyncedFile(file)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _removed_on_error(*paths: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                if not is_no_space(error):  # a full disk may keep it: the next start removes it
                    raise
        raise


@contextmanager
def told_if_full(path: Path) -> Iterator[None]:
    """Raise DiskFull if there is no space for a chunk in this folder, and Overloaded if this
    process may open no more files."""
    try:
        yield
    except OSError as error:
        if is_out_of_descriptors(error):
            raise out_of_descriptors(error, path) from error
        if not is_no_space(error):
            raise
        raise DiskFull(f"no space for a chunk: {error.strerror}", path=str(path)) from error
