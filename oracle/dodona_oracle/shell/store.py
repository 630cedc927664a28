"""The master's store: named values in LMDB, in a folder that one process has at a time.

Owns: the files in the data folder and their format. An `append` is one transaction, which is
durable when the call returns. LMDB has no checksums, so each value carries a checksum of its key
and itself. All values together have a seal. The seal detects pages that are whole but come from
another transaction.

If a commit raises an error, the caller must end the process. After a failed write the content of
the file is unknown, and only the next start finds it out. The one exception is a full map, which
the store enlarges.
"""

import hashlib
import logging
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

import lmdb

from dodona_oracle.core.records import Item, Put, Record, changes_of
from dodona_server.address_space import address_space_needed
from dodona_server.disk_space import DiskSpace, no_space_told
from dodona_server.environment import open_environment
from dodona_server.page_tree import check_pages
from dodona_wire.errors import DataCorrupted
from dodona_wire.net.folder import LockedFolder, lock_folder

FORMAT_VERSION: Final = b"2"
FILE_NAME: Final = "master.mdb"
MAP_BYTES_FIRST: Final = 64 << 20
MAP_BYTES_MAX: Final = 16 << 30

_version_key: Final = b"format\x00version"
_seal_key: Final = b"format\x00seal"
_seal: Final = struct.Struct(">QQ")
"""The number of the transaction that wrote the seal, and the sum of all values' digests."""
_digest_bytes: Final = 8
_checksum_bytes: Final = 4
_logger: Final = logging.getLogger("dodona.store")


class MasterStore:
    """An open store. Another thread than the one that opened it may call `append`."""

    def __init__(
        self, folder: LockedFolder, environment: lmdb.Environment, map_bytes_max: int
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._map_bytes_max = map_bytes_max

    @classmethod
    def open(cls, path: str | Path, map_bytes_max: int = MAP_BYTES_MAX) -> Self:
        """Open the store in a folder, or create it.

        Raises FolderInUse, InvalidRequest (the folder cannot be used), DataCorrupted, DiskFull.
        """
        folder = lock_folder(path)
        try:
            with no_space_told(folder.path):
                DiskSpace(folder.path).make_way()
                environment = _open_environment(folder.path / FILE_NAME, map_bytes_max)
                store = cls(folder, environment, map_bytes_max)
                store._check_version()
        except BaseException:
            folder.close()
            raise
        return store

    @property
    def path(self) -> Path:
        """The data folder. It belongs to this process while the store is open."""
        return self._folder.path

    def items(self) -> Iterator[Item]:
        """Yield all stored items. Do not mix this with `append`. Raises DataCorrupted."""
        return read_items(self._environment, self._folder.path)

    def append(self, records: Sequence[Record]) -> None:
        """Make all of the records durable, or none. Blocks until they are durable."""
        while True:
            try:
                self._write(records)
                return
            except lmdb.MapFullError:
                self._grow()

    def size(self) -> tuple[int, float]:
        """Return how many bytes of the file are in use, and their ratio to the largest size."""
        info, stat = self._environment.info(), self._environment.stat()
        used_bytes = (info["last_pgno"] + 1) * stat["psize"]
        return used_bytes, used_bytes / self._map_bytes_max

    def close(self) -> None:
        """Close the files and release the folder."""
        self._environment.close()
        self._folder.close()

    def _write(self, records: Sequence[Record]) -> None:
        with self._environment.begin(write=True) as transaction:
            sealed = transaction.get(_seal_key)
            if sealed is None:
                raise DataCorrupted("The store has no seal: its file is damaged. Restore a backup.")
            _, total = _seal.unpack(sealed)
            for change in (change for record in records for change in changes_of(record)):
                name = change.bucket.encode() + b"\x00" + change.key
                known = transaction.get(name)
                total -= 0 if known is None else _digest(name, known)
                if isinstance(change, Put):
                    stored = _checksum(name, change.value) + change.value
                    transaction.put(name, stored)
                    total += _digest(name, stored)
                else:
                    transaction.delete(name)
            transaction.put(_seal_key, _seal_of(transaction, total))

    def _grow(self) -> None:
        size = self._environment.info()["map_size"]
        if size >= self._map_bytes_max:
            raise lmdb.MapFullError(f"The store has reached its limit of {size} bytes.")
        size = min(2 * size, self._map_bytes_max)
        _logger.warning("the store's map is full: enlarging it to %d MiB", size >> 20)
        with address_space_needed(self._folder.path / FILE_NAME, size):
            self._environment.set_mapsize(size)

    def _check_version(self) -> None:
        path = self._folder.path / FILE_NAME
        try:
            self._find_version()
        except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
            raise DataCorrupted(f"The store can't be read: {error}.", path=str(path)) from error

    def _find_version(self) -> None:
        with self._environment.begin(write=True) as transaction:
            if transaction.stat()["entries"] == 0:
                transaction.put(_version_key, FORMAT_VERSION)
                transaction.put(_seal_key, _seal_of(transaction, 0))
            else:
                _check_format(transaction, self._folder.path / FILE_NAME)


def read_items(environment: lmdb.Environment, path: Path) -> Iterator[Item]:
    """Yield all stored items. Raises DataCorrupted, which names `path`."""
    try:
        with environment.begin() as transaction:
            _check_format(transaction, path)
            total = 0
            for name, stored in transaction.cursor():
                if name not in (_version_key, _seal_key):
                    yield _decode(name, stored, path)
                    total += _digest(name, stored)
            if transaction.get(_seal_key) != _seal_of(transaction, total):
                text = "The stored values are not those of the last transaction: pages are damaged."
                raise DataCorrupted(text, path=str(path))
    except lmdb.Error as error:
        raise DataCorrupted(f"The store can't be read: {error}.", path=str(path)) from error


def _check_format(transaction: lmdb.Transaction, path: Path) -> None:
    found = transaction.get(_version_key)
    if found != FORMAT_VERSION:
        text = "no format" if found is None else f"format {bytes(found).decode(errors='replace')}"
        raise DataCorrupted(
            f"{path} has {text}. This release of Dodona reads format "
            f"{FORMAT_VERSION.decode()} only. Start the release that wrote the store.",
            path=str(path),
        )


def _open_environment(path: Path, map_bytes_max: int) -> lmdb.Environment:
    map_bytes = min(map_bytes_max, MAP_BYTES_FIRST)
    if path.exists() and path.stat().st_size:
        check_pages(path)
        map_bytes = max(map_bytes, path.stat().st_size)
    return open_environment(path, map_bytes)


def _seal_of(transaction: lmdb.Transaction, total: int) -> bytes:
    return _seal.pack(transaction.id(), total % (1 << 8 * _digest_bytes))


def _digest(name: bytes, stored: bytes) -> int:
    digest = hashlib.blake2b(name + stored, digest_size=_digest_bytes).digest()
    return int.from_bytes(digest, "big")


def _checksum(name: bytes, value: bytes) -> bytes:
    return zlib.crc32(value, zlib.crc32(name)).to_bytes(_checksum_bytes, "big")


def _decode(name: bytes, stored: bytes, path: Path) -> Item:
    value = stored[_checksum_bytes:]
    bucket, separator, key = name.partition(b"\x00")
    if not separator or _checksum(name, value) != stored[:_checksum_bytes]:
        raise DataCorrupted("The checksum of a stored value is wrong.", path=str(path), key=name)
    return bucket.decode(), key, value
