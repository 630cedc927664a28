"""The cell's log in LMDB: records appended in groups, read back at a start.

Owns: the bytes of a group (version, checksum, MessagePack) and their order. A group is one LMDB
value under a rising index, written in one LMDB transaction: after a crash it is there whole or
not at all. A group that fails its checksum is damage, never skipped: DataCorrupted says where.
"""

import logging
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from dodona._io.folder import LockedFolder, lock_folder, sync_folder
from dodona.errors import DataCorrupted
from dodona_tablets.core.records import Record
from dodona_tablets.shell.room import Room

LOG_VERSION: Final = 1
LOG_NAME: Final = "log"

_HEADER: Final = struct.Struct(">BI")
_INDEX: Final = struct.Struct(">Q")
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])
_logger: Final = logging.getLogger("dodona.log")


def encode_group(records: Sequence[Record]) -> bytes:
    """One group as it is stored."""
    body = _encoder.encode(records)
    return _HEADER.pack(LOG_VERSION, zlib.crc32(body)) + body


def decode_group(raw: bytes | memoryview, where: str) -> list[Record]:
    """The records of a stored group. Raises DataCorrupted, naming `where`."""
    if len(raw) < _HEADER.size:
        raise DataCorrupted("a log group is too short", where=where)
    version, checksum = _HEADER.unpack_from(raw)
    body = memoryview(raw)[_HEADER.size :]
    if version != LOG_VERSION:
        raise DataCorrupted(f"log version {version} is not known here", where=where)
    if zlib.crc32(body) != checksum:
        raise DataCorrupted("a log group fails its checksum", where=where)
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise DataCorrupted(f"a log group does not decode: {error}", where=where) from error


class CellLog:
    """An open log. `append` may be called from one worker thread while nobody reads."""

    def __init__(self, folder: LockedFolder, bytes_max: int) -> None:
        self._folder = folder
        self._path = folder.path / LOG_NAME
        self._environment = lmdb.open(
            str(self._path), map_size=bytes_max, max_dbs=0, readahead=False
        )
        for made_in in (self._path, folder.path):
            sync_folder(made_in)
        self._page_bytes: int = self._environment.stat()["psize"]
        self._room = Room(self._path / "data.mdb", bytes_max)
        self._next_index = self._last_index() + 1

    @classmethod
    def open(cls, path: str | Path, bytes_max: int) -> "CellLog":
        """Take the folder and open the log in it. Raises FolderInUse, DataCorrupted."""
        folder = lock_folder(path)
        try:
            return cls(folder, bytes_max)
        except lmdb.Error as error:
            folder.close()
            raise DataCorrupted(f"the log does not open: {error}", path=str(path)) from error

    def _last_index(self) -> int:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return _INDEX.unpack(cursor.key())[0] if cursor.last() else 0

    def read(self) -> Iterator[Record]:
        """All records in order. Raises DataCorrupted with the file and the index."""
        expected = 1
        with self._environment.begin(buffers=True) as transaction:
            for key, value in transaction.cursor():
                (index,) = _INDEX.unpack(key)
                where = f"{self._path}, group {index}"
                if index != expected:
                    raise DataCorrupted(f"group {expected} of the log is missing", where=where)
                yield from decode_group(value, where)
                expected = index + 1

    def append(self, records: Sequence[Record]) -> None:
        """Make the records durable, all or none; blocks until they are. Any error is fatal."""
        self._room.ensure(self.size_bytes())
        with self._environment.begin(write=True) as transaction:
            transaction.put(_INDEX.pack(self._next_index), encode_group(records), append=True)
        self._next_index += 1

    def size_bytes(self) -> int:
        """What the log occupies, without the room behind it."""
        last_page: int = self._environment.info()["last_pgno"]
        return (last_page + 1) * self._page_bytes

    def close(self) -> None:
        """Close and let go of the folder."""
        self._environment.close()
        self._room.close()
        self._folder.close()
