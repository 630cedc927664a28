"""Make a backup: hold one snapshot, and save all tables from it.

Owns: the order of the steps. First the tables are described. Then the snapshot is held, and streams
read it into files. The manifest is written only if the snapshot was held until the last file was
complete. An error before that leaves nothing behind. A process that is killed leaves a folder that
does not count as a backup. Writers and other readers go on meanwhile. The tokens of gateways are
not saved. Versions of applications are saved with their tables.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, replace

from dodona._core.catalog.tables import TableInfo
from dodona._core.loads.records import APPLICATIONS
from dodona.client import Client
from dodona.snapshot import Snapshot
from dodona.timestamps import datetime_from_timestamp
from dodona_gateway.core.access.grants import TOKENS
from dodona_local.backup.manifest import (
    FORMAT,
    MANIFEST_NAME,
    PARTS_NAME,
    Manifest,
    RowFile,
    SavedDirectory,
    SavedTable,
    is_unfinished,
    parents_of,
    write_manifest,
)
from dodona_local.backup.parts import write_parts
from dodona_local.backup.streams import Bound, Stop, ranges_of, run_all
from dodona_local.backup.versions import (
    VERSIONS_COME_WITH_TABLES,
    VersionsByPath,
    read_versions,
)
from dodona_local.progress import Progress
from dodona_oracle.core.attributes import system_names
from dodona_server.disk_space import is_no_space
from dodona_wire.errors import DiskFull, InvalidRequest, MetadataChanged, TableNotMounted
from dodona_wire.net.folder import FOLDER_MODE, sync_folder
from dodona_wire.net.paths import place_of
from dodona_wire.rows.arrow import arrow_schema
from dodona_wire.shown import shown
from dodona_wire.types import Timestamp

READABLE: Final = ("mounted", "frozen")
NOT_SAVED: Final = (TOKENS, APPLICATIONS)


def back_up(
    db: Client,
    folder: str | Path,
    paths: Sequence[str] | None = None,
    timestamp: Timestamp | None = None,
    *,
    source: str = "",
    progress: Progress | None = None,
    skip: Callable[[str], None] | None = None,
) -> Manifest:
    """Save tables, with the directories that they are in, as of one timestamp. Return the manifest
    of the backup.

    Saves these tables, or without `paths` all tables and all directories. A cluster without tables
    makes a backup without tables. The timestamp is a fresh
    one unless given. Versions of applications that were published in these tables are saved with
    them. The folder is created, or must be empty. Tables of atomicity none have no snapshots:
    unless a timestamp is given, their newest rows are saved. `source` is a text for readers of the
    manifest. Without `skip` a table that is not mounted is an error. With `skip` such tables are
    left out, and `skip` is called with the path of each.

    If an error is raised, there is no backup. Raises InvalidRequest if the folder is taken. Raises
    SnapshotTooOld if the timestamp is too old, or if the snapshot could not be kept until the end.
    Raises also TableNotFound, TableNotMounted, DiskFull, Unavailable.
    """
    place = place_of(folder)
    tables = _describe_tables(db, paths, skip)
    has_versions = _has_versions(db, skip)
    directories = _describe_directories(db, tables, everything=paths is None)
    is_made = _claim(place)
    try:
        if tables:
            paths = [it.info.path for it in tables]
            with db.hold_snapshot(paths, timestamp) as snapshot:
                moment = snapshot.timestamp
                # Before rows: the read of rows fails for a table that is replaced after this.
                versions = read_versions(db, paths if has_versions else [], moment)
                saved = _save(snapshot, place, tables, versions, progress or Progress())
        else:  # of a cluster without tables, so that a nightly backup does not fail
            saved = []
            moment = db.generate_timestamp() if timestamp is None else timestamp
        manifest = Manifest(
            FORMAT,
            version("dodona"),
            source,
            moment,
            datetime_from_timestamp(moment).isoformat(),
            tuple(directories),
            tuple([_dated(it, moment, is_given=timestamp is not None) for it in saved]),
        )
        return write_manifest(place, manifest)
    except BaseException as error:
        _clear(place, is_made=is_made)
        if is_no_space(error):
            text = f"the disk of {place} is full: there is no backup. Make room, and back up again"
            raise DiskFull(text, path=str(place)) from error
        raise


def _claim(folder: Path) -> bool:
    """Take an empty folder. Return whether it was created. Raises InvalidRequest."""
    try:
        is_made = not folder.exists()
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            what = "a backup that was interrupted" if is_unfinished(folder) else "other files"
            raise InvalidRequest(
                f"{folder} is not empty, it has {what} in it: choose a new or an empty folder"
            )
        (folder / PARTS_NAME).mkdir(FOLDER_MODE)
    except OSError as error:
        raise InvalidRequest(f"{folder} can't be used for a backup: {error.strerror}") from error
    return is_made


def _clear(folder: Path, *, is_made: bool) -> None:
    """Leave the folder as it was found, as far as possible. The manifest goes first: the error may
    have come after it got its name, and without the rows it would be a damaged backup."""
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    shutil.rmtree(folder / PARTS_NAME, ignore_errors=True)
    for unfinished in folder.glob("*.unfinished"):
        unfinished.unlink(missing_ok=True)
    if is_made and not any(folder.iterdir()):
        folder.rmdir()


# ---- tables and directories


class _Described(NamedTuple):
    info: TableInfo
    attributes: dict[str, Any]


def _describe_tables(
    db: Client, paths: Sequence[str] | None, skip: Callable[[str], None] | None
) -> list[_Described]:
    """Return the tables to save, with their attributes. Raises InvalidRequest, TableNotFound,
    TableNotMounted."""
    if isinstance(paths, str):
        raise InvalidRequest(f"pass the paths of tables as a list, not as {shown(paths)}")
    is_everything = paths is None
    if paths is None:
        paths = [it for it in db.list_tables() if it not in NOT_SAVED]
    if APPLICATIONS in paths:
        raise InvalidRequest(VERSIONS_COME_WITH_TABLES)
    wanted = [db.get_table(path) for path in dict.fromkeys(paths)]
    closed = [it.path for it in wanted if not _is_readable(it)]
    if closed and skip is None:
        raise TableNotMounted(
            f"tables that are not mounted can't be read: {', '.join(closed)}. Mount or freeze "
            "these tables, name only other tables, or leave these out with --skip-unmounted"
        )
    tables = [_Described(it, _own_attributes(db, it.path, "table")) for it in wanted]
    tables = [it for it in tables if it.info.path not in closed]
    if not tables and (closed or not is_everything):
        text = "there is no table to back up"
        raise InvalidRequest(f"{text}: no table is mounted" if closed else text)
    if skip is not None:
        for path in closed:
            skip(path)
    return tables


def _has_versions(db: Client, skip: Callable[[str], None] | None) -> bool:
    """Return whether versions of applications are recorded, and can be read. Raises
    TableNotMounted."""
    if not db.exists(APPLICATIONS):
        return False
    if _is_readable(db.get_table(APPLICATIONS)):
        return True
    if skip is None:
        raise TableNotMounted(
            f"{APPLICATIONS} is not mounted, so versions of applications can't be saved with "
            "their tables: mount this table, or leave the versions out with --skip-unmounted"
        )
    skip(APPLICATIONS)
    return False


def _is_readable(table: TableInfo) -> bool:
    return all(tablet.state in READABLE for tablet in table.tablets)


def _describe_directories(
    db: Client, tables: Sequence[_Described], *, everything: bool
) -> list[SavedDirectory]:
    """Return the directories, outer ones before inner ones."""
    if everything:
        known = {it.info.path for it in tables}
        paths = ["//", *_directories_below(db, "/", known)]
    else:
        paths = sorted({it for table in tables for it in parents_of(table.info.path)})
    return [SavedDirectory(path, _own_attributes(db, path, "directory")) for path in paths]


def _directories_below(db: Client, directory: str, tables: set[str]) -> Iterator[str]:
    for name in db.list("//" if directory == "/" else directory):
        path = f"{directory}/{name}"
        if path not in tables and db.get(f"{path}/@type") == "directory":
            yield path
            yield from _directories_below(db, path, tables)


def _own_attributes(db: Client, path: str, kind: Any) -> dict[str, Any]:
    """Return the user's own attributes of a node."""
    known: dict[str, Any] = db.get("//@" if path == "//" else f"{path}/@")
    return {name: value for name, value in known.items() if name not in system_names(kind)}


# ---- rows


class _Range(NamedTuple):
    """The range of rows that one tablet had when the table was described."""

    table: int
    tablet: int
    lower: Bound
    upper: Bound


def _save(
    snapshot: Snapshot,
    folder: Path,
    tables: Sequence[_Described],
    versions: VersionsByPath,
    progress: Progress,
) -> list[SavedTable]:
    jobs = []
    for number, table in enumerate(tables):
        (folder / PARTS_NAME / f"{number:05}").mkdir(FOLDER_MODE)
        pivots = [tablet.pivot_key for tablet in table.info.tablets]
        jobs += [_Range(number, at, *ends) for at, ends in enumerate(ranges_of(pivots))]
    progress.begin("saving", None, "rows")

    def save(job: _Range, stop: Stop) -> list[RowFile]:
        info = tables[job.table].info
        schema = arrow_schema(info.schema)
        batches = _batches(snapshot, info.path, job, schema, stop, progress.advance)
        return write_parts(folder, job.table, job.tablet, batches, schema)

    found = run_all(save, jobs)
    parts: dict[int, list[RowFile]] = {number: [] for number in range(len(tables))}
    for job, written in zip(jobs, found, strict=True):
        parts[job.table] += written
    for number in parts:
        sync_folder(folder / PARTS_NAME / f"{number:05}")
    sync_folder(folder / PARTS_NAME)
    return [
        replace(_saved(table, parts[number]), versions=versions.get(table.info.path, ()))
        for number, table in enumerate(tables)
    ]


def _batches(
    snapshot: Snapshot,
    path: str,
    job: _Range,
    schema: Any,
    stop: Stop,
    advance: Callable[[int], None],
) -> Iterator[Any]:
    for batch in snapshot.read_batches(path, job.lower, job.upper):
        stop.check()
        if not batch.schema.equals(schema):
            raise MetadataChanged(
                "the table was altered during the backup: back up again", table=path
            )
        yield batch
        advance(batch.num_rows)


def _saved(table: _Described, parts: list[RowFile]) -> SavedTable:
    info = table.info
    return SavedTable(
        info.path,
        info.atomicity,
        any(tablet.state == "frozen" for tablet in info.tablets),
        None,
        info.schema.columns,
        tuple([info.schema.bound_of(tablet.pivot_key) for tablet in info.tablets]),
        {name: it for name, it in asdict(info.settings).items() if it is not None},
        table.attributes,
        tuple(parts),
    )


def _dated(table: SavedTable, moment: Timestamp, *, is_given: bool) -> SavedTable:
    is_newest = table.atomicity == "none" and not is_given
    return replace(table, timestamp=None if is_newest else moment)
