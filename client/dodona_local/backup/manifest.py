"""`backup.json`: what a backup has, and the proof that it is all there.

Owns: the format, its version, and every error about a folder that is no sound backup. The file is
written last, as a whole, and has a checksum of its own; it names all others with their checksums.
A folder without it is no backup, whatever else is in it. Must not import the client.
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
"""In format 1 no table had versions: the rows of `//sys/load_applications` were saved as such."""
READ_FORMATS: Final = (1, FORMAT)
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
    cluster that was saved."""

    application: str
    version: int
    load: LoadId
    query: str | None


class SavedTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table. `timestamp` is null where the newest rows were read: tables of atomicity none have
    no snapshots. Pivot keys are encoded as `dodona.keys` does it. `versions` is left out if there
    are none: so a manifest of format 1 has the checksum that it had."""

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
    """The whole file. `checksum` is the SHA-256 of what it is without one."""

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
        """Some of its tables, with the directories that they are in. Raises InvalidRequest."""
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
    """The directories that a path is in, outermost first: of `//a/b/c` `//a` and `//a/b`."""
    names = path[2:].split("/")[:-1]
    return ["//" + "/".join(names[: count + 1]) for count in range(len(names))]


# ---- the file


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Make a backup of what is in the folder: from here on, and not by halves."""
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
    """Raises InvalidRequest if the folder is no finished backup, or a newer version's;
    DataCorrupted if the file is damaged."""
    path = folder / MANIFEST_NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise _no_backup(folder) from None
    except OSError as error:
        raise InvalidRequest(f"{path} can't be read: {error.strerror}") from error
    try:
        head = msgspec.json.decode(raw, type=_Head)
        if head.format not in READ_FORMATS:
            raise InvalidRequest(
                f"{path} has format {head.format}, of Dodona {head.version}; this is a version "
                f"that reads formats {', '.join(map(str, READ_FORMATS))}: restore with that one"
            )
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(path, f"it is not what was written: {error}") from error
    if manifest.checksum != _checksum(manifest):
        raise _damaged(path, "its checksum is another")
    names = [part.name for part in manifest.parts]
    if not all(map(_part_name.fullmatch, names)) or len(set(names)) != len(names):
        raise _damaged(path, "it names files that no backup has")
    return manifest


@preload_decoder
class _Head(msgspec.Struct, frozen=True):
    """What every format has, whatever comes after it."""

    format: int
    version: str = "of another kind"


def _checksum(manifest: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(replace(manifest, checksum=""))).hexdigest()


def _no_backup(folder: Path) -> InvalidRequest:
    if not folder.is_dir():
        return InvalidRequest(f"there is no backup at {folder}: there is no such folder")
    if is_unfinished(folder):
        return InvalidRequest(
            f"{folder} is a backup that was interrupted before its end, and can't be restored: "
            "remove it, and make another"
        )
    return InvalidRequest(f"{folder} is no backup: there is no {MANIFEST_NAME} in it")


def is_unfinished(folder: Path) -> bool:
    """Whether somebody began a backup there and did not come to its end."""
    return (folder / PARTS_NAME).is_dir() and not (folder / MANIFEST_NAME).exists()


def _damaged(path: Path, reason: str) -> DataCorrupted:
    return DataCorrupted(f"{path} is damaged: {reason}")


# ---- the other files


def verify_parts(folder: Path, parts: Sequence[RowFile], advance: Callable[[int], None]) -> None:
    """That each is there and as it was written. `advance` is told of bytes that are. Raises
    DataCorrupted, naming the file."""
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
            raise _damaged(path, "its checksum is another")


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            yield block
