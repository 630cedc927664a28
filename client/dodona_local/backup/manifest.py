"""Read and write `backup.json`: the content of a backup, and the proof that it is complete.

Owns: the format, its version, and every error about a folder that is no sound backup. The file is
written last, as a whole, and has its own checksum. It names all other files with their checksums. A
folder without this file is no backup, even if it has other files.
Must not import: the client.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.net.folder import private_file, sync_folder
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.schema import Column
from dodona_wire.types import Atomicity, LoadId, Timestamp

FORMAT: Final = 2
MANIFEST_NAME: Final = "backup.json"
PARTS_NAME: Final = "tables"
READ_BYTES: Final = 1 << 20

_part_name: Final = re.compile(rf"{PARTS_NAME}/\d+/[\d-]+\.arrow")


class RowFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One Arrow IPC file: rows of one tablet, in key order."""

    name: str
    row_count: int
    size_bytes: int
    sha256: str


class SavedVersion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last version of an application that was published in a table. The load is one of the
    saved cluster."""

    application: str
    version: int
    load: LoadId
    query: str | None


class SavedTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A saved table. `timestamp` is null if the newest rows were read, because tables of atomicity
    none have no snapshots. `dodona.keys` defines the encoding of pivot keys. `versions` is left out
    if it is empty."""

    path: str
    atomicity: Atomicity
    is_frozen: bool
    timestamp: Timestamp | None
    columns: tuple[Column, ...]
    pivot_keys: tuple[bytes, ...]
    settings: dict[str, Any]
    attributes: dict[str, Any]
    parts: tuple[RowFile, ...]
    versions: tuple[SavedVersion, ...] = ()

    @property
    def row_count(self) -> int:
        return sum(part.row_count for part in self.parts)


class SavedDirectory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directory of the tree; `//` is the root."""

    path: str
    attributes: dict[str, Any]


@preload_decoder
class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file. `checksum` is the SHA-256 of the manifest with an empty checksum."""

    format: int
    version: str
    source: str
    timestamp: Timestamp
    time: str
    directories: tuple[SavedDirectory, ...]
    tables: tuple[SavedTable, ...]
    checksum: str = ""

    @property
    def row_count(self) -> int:
        return sum(table.row_count for table in self.tables)

    @property
    def parts(self) -> list[RowFile]:
        return [part for table in self.tables for part in table.parts]

    def only(self, paths: Sequence[str]) -> "Manifest":
        """Return the manifest with these tables only, and with their directories. Raises
        InvalidRequest."""
        known = {table.path: table for table in self.tables}
        strangers = [path for path in paths if path not in known]
        if strangers:
            raise InvalidRequest(
                f"the backup has no table {', '.join(strangers)}: it has {', '.join(known)}"
            )
        tables = tuple([known[path] for path in dict.fromkeys(paths)])
        above = {it for table in tables for it in parents_of(table.path)}
        directories = tuple([it for it in self.directories if it.path in above])
        return replace(self, tables=tables, directories=directories)


def parents_of(path: str) -> list[str]:
    """Return the directories that a path is in, outermost first: for `//a/b/c` `//a` and
    `//a/b`."""
    names = path[2:].split("/")[:-1]
    return ["//" + "/".join(names[: count + 1]) for count in range(len(names))]


# ---- the file


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest as a whole, which makes the folder a backup. Return it with its
    checksum."""
    signed = replace(manifest, checksum=_checksum(manifest))
    unfinished = folder / f"{MANIFEST_NAME}.unfinished"
    with private_file(unfinished, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(signed), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / MANIFEST_NAME)
    sync_folder(folder)
    return signed


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raises InvalidRequest if the folder is no complete backup,
    or has another format, and DataCorrupted if the file is damaged."""
    path = folder / MANIFEST_NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise _no_backup(folder) from None
    except OSError as error:
        raise InvalidRequest(f"{path} can't be read: {error.strerror}") from error
    try:
        head = msgspec.json.decode(raw, type=_Head)
        if head.format != FORMAT:
            raise InvalidRequest(
                f"{path} has format {head.format} (Dodona {head.version}), but this version reads "
                f"format {FORMAT} only: restore with the other version"
            )
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, f"its content is not valid: {error}") from error
    if manifest.checksum != _checksum(manifest):
        raise _damaged(path, "its checksum is wrong")
    names = [part.name for part in manifest.parts]
    if not all(map(_part_name.fullmatch, names)) or len(set(names)) != len(names):
        raise _damaged(path, "it has names of files that a backup can't have")
    return manifest


@preload_decoder
class _Head(msgspec.Struct, frozen=True):
    """The head of a manifest, which is the same in every format."""

    format: int
    version: str = "of an unknown version"


def _checksum(manifest: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(replace(manifest, checksum=""))).hexdigest()


def _no_backup(folder: Path) -> InvalidRequest:
    if not folder.is_dir():
        return InvalidRequest(f"there is no backup at {folder}: the folder does not exist")
    if is_unfinished(folder):
        return InvalidRequest(
            f"{folder} has a backup that was interrupted, which can't be restored: remove the "
            "folder, and back up again"
        )
    return InvalidRequest(f"{folder} is not a backup: there is no {MANIFEST_NAME} in it")


def is_unfinished(folder: Path) -> bool:
    """Return whether a backup was begun in the folder and not completed."""
    return (folder / PARTS_NAME).is_dir() and not (folder / MANIFEST_NAME).exists()


def _damaged(path: Path, reason: str) -> DataCorrupted:
    return DataCorrupted(f"{path} is damaged: {reason}")


# ---- the other files


def verify_parts(folder: Path, parts: Sequence[RowFile], advance: Callable[[int], None]) -> None:
    """Check that each file exists and is as it was written. `advance` is called with numbers of
    checked bytes. Raises DataCorrupted, which names the file."""
    for part in parts:
        path = folder / part.name
        try:
            size_bytes = path.stat().st_size
            if size_bytes != part.size_bytes:
                raise _damaged(path, f"it has {size_bytes} bytes, not {part.size_bytes}")
            digest = hashlib.sha256()
            for block in _blocks(path):
                digest.update(block)
                advance(len(block))
        except FileNotFoundError:
            raise DataCorrupted(f"{path} is missing") from None
        except OSError as error:
            raise DataCorrupted(f"{path} can't be read: {error.strerror}") from error
        if digest.hexdigest() != part.sha256:
            raise _damaged(path, "its checksum is wrong")


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            yield block
