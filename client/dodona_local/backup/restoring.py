"""Restore a backup: create its tables again, with their rows.

Owns: the order of the steps, so that a restore is visible as a whole or not at all. The files are
verified before anything is created. Rows are loaded into tables in a staging directory, without
atomicity, as bulk loads need. Then the rows are counted. Then the tables get their atomicity and
settings, and one master transaction moves all of them to their paths. A restore that fails leaves
at most the staging directory, and the table of versions of applications, which any load creates. No
existing node is ever overwritten.

Versions of applications are written while that master transaction is open and locks the paths. So a
version counts from the commit on, with its table. After a crash or an abort it has no effect,
because it names a table that never was at its path.

Rows are new rows: they have timestamps of the restore, and no older history.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from dodona._core.loads.records import APPLICATIONS
from dodona.catalog import MasterTransaction
from dodona.client import Client
from dodona_local.backup.manifest import (
    Manifest,
    RowFile,
    SavedDirectory,
    SavedTable,
    parents_of,
    read_manifest,
    verify_parts,
)
from dodona_local.backup.parts import read_part
from dodona_local.backup.streams import Bound, Stop, ranges_of, run_all
from dodona_local.backup.versions import (
    VERSIONS_COME_WITH_TABLES,
    prepare_versions_table,
    write_versions,
)
from dodona_local.errors import RestoreFailed
from dodona_local.progress import Progress
from dodona_oracle.core.paths import check_new_path
from dodona_wire.errors import (
    CommitOutcomeUnknown,
    DataCorrupted,
    DodonaError,
    DodonaWarning,
    InvalidRequest,
    TableExists,
    Unavailable,
)
from dodona_wire.messages.attribute_names import SETTINGS
from dodona_wire.net.paths import place_of
from dodona_wire.rows.schema import TableSchema
from dodona_wire.shown import shown
from dodona_wire.types import Key

LOAD_ATTEMPTS_MAX: Final = 5
"""The attempts to load one file. To load it again changes only the timestamps of its rows."""
LOAD_PAUSE_SECONDS: Final = 2.0
COMMIT_ATTEMPTS_MAX: Final = 5


def restore(
    db: Client,
    folder: str | Path,
    paths: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Manifest:
    """Create tables of a backup, with the directories that they are in. Return the manifest of the
    restored tables.

    Restores these tables, or without `paths` all tables, and mounts them. Versions of applications
    that were published in these tables are restored with them.

    Raises InvalidRequest for no complete backup, one without such a table, or a table called `.` or
    `..`. Raises DataCorrupted if a file is missing or damaged, and TableExists. These errors come
    before anything is created. Later errors are RestoreFailed, whose
    message says what is left, if anything.
    """
    place, watcher = place_of(folder), progress or Progress()
    if isinstance(paths, str):
        raise InvalidRequest(f"pass the paths of tables as a list, not as {shown(paths)}")
    if APPLICATIONS in (paths or ()):
        raise InvalidRequest(VERSIONS_COME_WITH_TABLES)
    manifest = read_manifest(place)
    if paths is not None:
        manifest = manifest.only(paths)
    _check_places(db, manifest)
    watcher.begin("verifying", sum(it.size_bytes for it in manifest.parts), "bytes")
    try:
        verify_parts(place, manifest.parts, watcher.advance)
    except DataCorrupted as error:
        raise DataCorrupted(f"nothing was restored: {error.message}") from error
    staging = f"//restore-{db.generate_timestamp()}"
    tables = [_Staged(it, f"{staging}/{at:05}") for at, it in enumerate(manifest.tables)]
    with _removed_if_it_fails(db, staging):
        _make(db, staging, tables, place)
        _load(db, place, tables, watcher)
        if tables:  # a backup may have directories only
            _count(db, tables, watcher)
        _finish(db, tables)
        if any(it.saved.versions for it in tables):
            prepare_versions_table(db)
        _publish(db, staging, manifest.directories, tables)
    _mount(db, manifest.tables)
    return manifest


class _Staged(NamedTuple):
    saved: SavedTable
    path: str

    @property
    def schema(self) -> TableSchema:
        """The schema of the saved table, as it was: also with an expression that Dodona accepted
        once, and refuses now."""
        return TableSchema.parse_existing(self.saved.columns)

    @property
    def pivot_keys(self) -> list[tuple[Any, ...]]:
        schema = self.schema
        return [schema.decode_prefix(Key(it)) for it in self.saved.pivot_keys]


def _check_places(db: Client, manifest: Manifest) -> None:
    """Check that the tree accepts the names, that no node is at a table's path, and that no table
    is at a directory's path."""
    wanted = [table.path for table in manifest.tables]
    for path in (*wanted, *[it.path for it in manifest.directories]):
        check_new_path(path.split("/"), path)
    taken = [path for path in wanted if db.exists(path)]
    above = dict.fromkeys(it for table in manifest.tables for it in parents_of(table.path))
    above |= dict.fromkeys(it.path for it in manifest.directories if it.path != "//")
    taken += [it for it in above if db.exists(it) and db.get(f"{it}/@type") != "directory"]
    if taken:
        raise TableExists(
            f"{', '.join(taken)} exists already, and a restore overwrites nothing: remove or move "
            "it, or name the tables to restore"
        )


@contextmanager
def _removed_if_it_fails(db: Client, staging: str) -> Iterator[None]:
    """Remove the staged tables after an error, or say where they are."""
    try:
        yield
    except RestoreFailed:
        raise
    except BaseException as error:
        left = _remove(db, staging)
        if not isinstance(error, DodonaError):
            raise
        text = f"the restore failed, and {left}: {error.message}"
        raise RestoreFailed(text, **error.attributes) from error


def _remove(db: Client, staging: str) -> str:
    """Remove the staging directory. Return a text that says whether it is left."""
    try:
        db.remove(staging, recursive=True, force=True)
    except DodonaError as error:
        return f"may have left {staging}, which you can remove ({error.message})"
    return "left nothing behind"


# ---- rows


def _make(db: Client, staging: str, tables: Sequence[_Staged], folder: Path) -> None:
    """Create empty tables. Their settings follow later, so that no row expires during the load."""
    db.create_directory(staging, attributes={"restored_from": str(folder)})
    for table in tables:
        pivot_keys = tuple(map(Key, table.saved.pivot_keys))
        attributes = table.saved.attributes
        restored = db._catalog.restore_table(table.path, table.schema, pivot_keys, attributes)
        db._run(restored)  # a new table could not have each schema


def _load(db: Client, folder: Path, tables: Sequence[_Staged], progress: Progress) -> None:
    progress.begin("loading", sum(table.saved.row_count for table in tables), "rows")

    def load(job: tuple[str, RowFile], stop: Stop) -> None:
        path, part = job
        for attempt in range(1, LOAD_ATTEMPTS_MAX + 1):
            counted = _Counted(folder, part, stop, progress)
            try:
                db.write_arrow(path, counted.batches())
            except Unavailable:
                progress.advance(-counted.row_count)
                if attempt == LOAD_ATTEMPTS_MAX:
                    raise
                stop.wait(LOAD_PAUSE_SECONDS)
            else:
                return

    run_all(load, [(table.path, part) for table in tables for part in table.saved.parts])


class _Counted:
    """The rows of a file, with progress as they are taken."""

    def __init__(self, folder: Path, part: RowFile, stop: Stop, progress: Progress) -> None:
        self.row_count = 0
        self._folder = folder
        self._part = part
        self._stop = stop
        self._progress = progress

    def batches(self) -> Iterator[Any]:
        for batch in read_part(self._folder, self._part):
            self._stop.check()
            yield batch
            self.row_count += batch.num_rows
            self._progress.advance(batch.num_rows)


def _count(db: Client, tables: Sequence[_Staged], progress: Progress) -> None:
    """Check that all rows were loaded. Raises DataCorrupted."""
    progress.begin("counting", sum(table.saved.row_count for table in tables), "rows")
    jobs = [(table, ends) for table in tables for ends in ranges_of(table.pivot_keys)]
    with db.hold_snapshot([table.path for table in tables]) as snapshot:

        def count(job: tuple[_Staged, tuple[Bound, Bound]], stop: Stop) -> int:
            (table, ends), row_count = job, 0
            column = table.schema.key_names[:1]
            for batch in snapshot.read_batches(table.path, *ends, columns=column):
                stop.check()
                row_count += batch.num_rows
                progress.advance(batch.num_rows)
            return row_count

        counts = run_all(count, jobs)
    found = dict.fromkeys([table.path for table in tables], 0)
    for (table, _), row_count in zip(jobs, counts, strict=True):
        found[table.path] += row_count
    for table in tables:
        if found[table.path] != table.saved.row_count:
            raise DataCorrupted(
                f"{table.saved.row_count} rows of {table.saved.path} were saved, but "
                f"{found[table.path]} were loaded",
                table=table.saved.path,
            )


# ---- from staged tables to restored ones


def _finish(db: Client, tables: Sequence[_Staged]) -> None:
    for table in tables:
        db.unmount_table(table.path)
        saved = table.saved
        wanted = {**saved.attributes, **saved.settings, "atomicity": saved.atomicity}
        db.set(f"{table.path}/@", wanted)


def _publish(
    db: Client, staging: str, directories: Sequence[SavedDirectory], tables: Sequence[_Staged]
) -> None:
    """Move all tables to their paths in one transaction. Raises RestoreFailed if its outcome is not
    known."""
    nodes = {it.path: db.get(f"{it.path}/@id") for it in tables if it.saved.versions}
    tree = db.begin_master(title=f"restore of {len(tables)} tables")
    try:
        for directory in directories:
            _make_directory(tree, directory)
        for table in tables:
            tree.move(table.path, table.saved.path, recursive=True)
        tree.remove(staging, recursive=True)
        # No other client can create a table at these paths now, and record versions for it.
        for table in tables:
            if table.saved.versions:
                write_versions(db, table.saved.path, nodes[table.path], table.saved.versions)
        _commit(tree, staging, tables)
    except RestoreFailed:
        raise
    except BaseException:
        tree.abort()
        raise


def _commit(tree: MasterTransaction, staging: str, tables: Sequence[_Staged]) -> None:
    for attempt in range(1, COMMIT_ATTEMPTS_MAX + 1):
        try:
            return tree.commit()
        except CommitOutcomeUnknown as error:
            if attempt == COMMIT_ATTEMPTS_MAX:
                paths = ", ".join(table.saved.path for table in tables)
                raise RestoreFailed(
                    f"all rows are restored, but the last commit is in doubt: the tables are "
                    f"{paths}, or still in {staging}, which you can remove then: {error.message}"
                ) from error
    raise AssertionError("an attempt is the last one")


def _make_directory(tree: MasterTransaction, directory: SavedDirectory) -> None:
    """Create the directory. If it exists, add the attributes that it lacks."""
    path = directory.path
    attributes = _allowed_attributes(directory)
    if path != "//" and not tree.exists(path):
        tree.create_directory(path, attributes=attributes, recursive=True)
        return
    prefix = "//@" if path == "//" else f"{path}/@"
    for name, value in attributes.items():
        if not tree.exists(prefix + name):
            tree.set(prefix + name, value)


def _allowed_attributes(directory: SavedDirectory) -> dict[str, Any]:
    """Return the attributes without settings of tables, which earlier masters kept on directories.
    Causes a DodonaWarning for each such setting."""
    for name in SETTINGS:
        if name in directory.attributes:
            text = (
                f"The attribute {name!r} of the directory {directory.path} is not restored: it is "
                "a setting of tables, and had no effect there."
            )
            warnings.warn(DodonaWarning(text), stacklevel=2)
    return {name: it for name, it in directory.attributes.items() if name not in SETTINGS}


def _mount(db: Client, tables: Sequence[SavedTable]) -> None:
    """Mount the tables, which are at their paths now. Raises RestoreFailed, which names the tables
    that are not mounted."""
    for at, table in enumerate(tables):
        try:
            db.mount_table(table.path, freeze=table.is_frozen)
        except DodonaError as error:
            paths = ", ".join(it.path for it in tables[at:])
            raise RestoreFailed(
                f"all tables are restored, but these are not mounted: {paths}. Mount these "
                f"tables. Reason: {error.message}",
                **error.attributes,
            ) from error
