"""Write the Arrow files of a backup to the disk, with checksums, and read them.

Owns: their compression and their length, and that a file is durable before the manifest names it.
"""

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow
import pyarrow.ipc

from dodona_local.backup.manifest import PARTS_NAME, RowFile
from dodona_wire.errors import DataCorrupted
from dodona_wire.net.folder import private_file

PART_BYTES_MAX: Final = 1 << 30
"""The approximate bound: a file ends after the batch that passes it."""
COMPRESSION: Final = "zstd"


class _Hashed(io.RawIOBase):
    """A new file that computes its checksum."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = private_file(path, "xb")
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        count = self._file.write(data)
        self._digest.update(data)
        self.size_bytes += count
        return count

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def make_durable(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        super().close()


def write_parts(
    folder: Path, table: int, tablet: int, batches: Iterable[Any], schema: Any
) -> list[RowFile]:
    """Write record batches to as few files as possible, and to none if there are no rows."""
    parts: list[RowFile] = []
    rest = (it for it in batches if it.num_rows)
    for first in rest:
        name = f"{PARTS_NAME}/{table:05}/{tablet:05}-{len(parts):02}.arrow"
        parts.append(_write_part(folder, name, first, rest, schema))
    return parts


def _write_part(folder: Path, name: str, first: Any, rest: Iterator[Any], schema: Any) -> RowFile:
    """Write one file, and take batches from the rest until the file is long enough."""
    row_count = 0
    options = pyarrow.ipc.IpcWriteOptions(compression=COMPRESSION)
    with _Hashed(folder / name) as file:
        with pyarrow.ipc.new_file(file, schema, options=options) as writer:
            batch = first
            while batch is not None:
                writer.write_batch(batch)
                row_count += batch.num_rows
                batch = next(rest, None) if file.size_bytes < PART_BYTES_MAX else None
        file.make_durable()
        return RowFile(name, row_count, file.size_bytes, file.sha256)


def read_part(folder: Path, part: RowFile) -> Iterator[Any]:
    """Yield the file's record batches, one at a time. Raises DataCorrupted if it lacks rows or has
    too many."""
    path = folder / part.name
    row_count = 0
    try:
        with pyarrow.memory_map(str(path)) as file, pyarrow.ipc.open_file(file) as reader:
            for place in range(reader.num_record_batches):
                batch = reader.get_batch(place)
                row_count += batch.num_rows
                yield batch
    except (pyarrow.ArrowException, OSError) as error:
        raise DataCorrupted(f"{path} is not an Arrow file: {error}") from error
    if row_count != part.row_count:
        raise DataCorrupted(f"{path} has {row_count} rows, not {part.row_count}")
