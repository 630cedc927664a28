"""Check a data folder for `dodona check`: list its parts, and verify that every byte is as written.

Owns: which parts a folder has, and one line for each. A folder belongs to a cluster or to an
embedded database (a master and nodes), to one server, or to a backup. A log replica is a server,
too. If a cluster has log replicas, they have its logs, and `objects` has its chunks. It is not
checked which chunks the logs name. The owner of a part defines how the part is verified. All parts
are checked, even if one is damaged. Changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from dodona_local.adoption import FILE_NAME as ADOPTION_NAME
from dodona_local.adoption import PLAIN
from dodona_local.backup.manifest import (
    MANIFEST_NAME,
    is_unfinished,
    read_manifest,
    verify_parts,
)
from dodona_local.completeness import lacks_master
from dodona_local.errors import LaunchFailed
from dodona_local.progress import Progress
from dodona_local.replicated_folder import FILE_NAME as COPIES_NAME
from dodona_local.replicated_folder import MEMBERS, OBJECTS, ReplicatedFolder, replicas_in
from dodona_oracle.shell.checking import MasterSummary, verify_master
from dodona_oracle.shell.store import FILE_NAME
from dodona_replication.shell.replica_check import verify_replica
from dodona_replication.shell.replica_store import FILE_NAME as REPLICA_NAME
from dodona_server.process import read_clock
from dodona_tablets.shell.checking import verify_cell, verify_objects
from dodona_tablets.shell.chunk_files import CHUNKS_NAME, numbers_in
from dodona_tablets.shell.log import LOG_NAME
from dodona_tablets.shell.log_check import has_joined
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.net.folder import LOCK_NAME, locked_to_read
from dodona_wire.net.paths import place_of
from dodona_wire.types import unix_us_from_timestamp

MIB: Final = 1 << 20
AHEAD_US_MAX: Final = 24 * 3_600_000_000
"""One day in microseconds: clocks of healthy machines differ less."""


class CheckedPart(NamedTuple):
    """One part of a folder. The part is sound if `damages` is empty."""

    name: str
    contents: str
    damages: tuple[DataCorrupted, ...] = ()

    @property
    def columns(self) -> tuple[str, str, str]:
        """Return the part's row of a table."""
        return self.name, self.contents, f"{len(self.damages)} damaged" if self.damages else "sound"


class _Part(NamedTuple):
    """A folder, and the function that checks it. `describe` raises DataCorrupted."""

    name: str
    path: Path
    describe: Callable[[Path, Progress], CheckedPart]


def check_folder(path: Path, progress: Progress | None = None) -> list[CheckedPart]:
    """Check all data of Dodona in this folder.

    Raises InvalidRequest (the folder has no data of Dodona, or lacks the file that says what it
    has), FolderInUse.
    """
    path = place_of(path)
    parts = list(_parts_of(path))
    if not parts:
        raise InvalidRequest(
            f"there is nothing to check in {path}: no {FILE_NAME} of a master, no {LOG_NAME} of a "
            f"node, no {REPLICA_NAME}, no {MANIFEST_NAME}, and no folder with one of these",
            path=str(path),
        )
    with ExitStack() as stack:
        if parts[0].path != path and (path / LOCK_NAME).exists():
            stack.enter_context(locked_to_read(path))
        return _checked(parts, progress)


def check_parts(path: Path, progress: Progress | None = None) -> list[CheckedPart]:
    """Check all data in a folder that the caller has locked. Raises InvalidRequest, FolderInUse."""
    return _checked(_parts_of(path), progress)


def _checked(parts: Iterable[_Part], progress: Progress | None) -> list[CheckedPart]:
    return [_check(part, progress or Progress()) for part in parts]


def _parts_of(path: Path) -> Iterator[_Part]:
    nodes = sorted(path.glob("node-*"), key=_number)
    if (path / COPIES_NAME).exists() or replicas_in(path):
        yield from _replicated_parts(path)
        return
    if lacks_master(path):
        yield _Part("master", path / "master", _missing_master)
    for folder in [path, path / "master", *nodes]:
        name = folder.name if folder != path else path.resolve().name
        if (folder / FILE_NAME).exists():
            yield _Part(name, folder, _master)
        if (folder / LOG_NAME).is_dir() or numbers_in(folder / CHUNKS_NAME):
            yield _Part(name, folder, _cell)
    if (path / REPLICA_NAME).exists():
        yield _Part(path.resolve().name, path, _replica)
    if (path / MANIFEST_NAME).exists() or is_unfinished(path):
        yield _Part(path.resolve().name, path, _backup)


def _replicated_parts(path: Path) -> Iterator[_Part]:
    """Yield the parts of a cluster whose logs have copies. Folders of nodes are copies, too."""
    try:
        found = ReplicatedFolder.read(path)
    except LaunchFailed as error:
        raise InvalidRequest(str(error), path=str(path)) from error
    assert found is not None
    has_master = (path / "master" / FILE_NAME).exists()
    if has_master or found.has_been_ready:
        yield _Part("master", path / "master", _master if has_master else _missing_master)
    for index in range(found.replica_count):
        yield _Part(f"replica-{index}", path / f"replica-{index}", _replica)
    for index in range(MEMBERS if found.has_been_ready else 0):
        yield _Part(f"etcd member-{index}", path / "etcd" / f"member-{index}", _member)
    if not found.object_store:
        yield _Part(OBJECTS, path / OBJECTS, _objects)
    if (path / ADOPTION_NAME).exists():
        yield from _kept_parts(path / PLAIN)


def _kept_parts(plain: Path) -> Iterator[_Part]:
    """Yield the parts of the cluster that an adoption keeps until it is finished."""
    if not (plain / "master").is_dir():
        yield _Part(PLAIN, plain, _missing_kept)
    for part in _parts_of(plain):
        yield part._replace(name=f"{PLAIN}/{part.name}")


def _missing_kept(folder: Path, _: Progress) -> CheckedPart:
    text = "the cluster as it was before the adoption is missing: put it back, or use --finish"
    raise DataCorrupted(text, path=str(folder))


def _missing_master(folder: Path, _: Progress) -> CheckedPart:
    text = (
        "the master's store is missing beside the data of nodes: put it back, or restore a backup"
    )
    raise DataCorrupted(text, path=str(folder / FILE_NAME))


def _number(node: Path) -> tuple[int, str]:
    suffix = node.name.removeprefix("node-")
    return (int(suffix), "") if suffix.isdecimal() else (-1, suffix)


def _check(part: _Part, progress: Progress) -> CheckedPart:
    try:
        return part.describe(part.path, progress)._replace(name=part.name)
    except DataCorrupted as error:
        return CheckedPart(part.name, "not known", (error,))


def _master(folder: Path, progress: Progress) -> CheckedPart:
    progress.begin("master", None, "values")
    found = verify_master(folder)
    return CheckedPart(
        "",
        f"master: {found.table_count:,} tables, {found.tablet_count:,} tablets, "
        f"{len(found.cells):,} cells; no timestamp above {found.ceiling}",
        (*_missing_cells(folder, found), *_timestamps_ahead(folder, found)),
    )


def _timestamps_ahead(folder: Path, found: MasterSummary) -> Iterator[DataCorrupted]:
    """Yield an error if timestamps are ahead of the clock. A wrong clock leads them there for
    ever."""
    ahead_us = unix_us_from_timestamp(found.ceiling) - read_clock().unix_us
    if ahead_us > AHEAD_US_MAX:
        days = ahead_us / AHEAD_US_MAX
        text = f"timestamps are {days:,.1f} days ahead of this machine's clock: a clock was wrong"
        yield DataCorrupted(text, path=str(folder / FILE_NAME), ceiling=found.ceiling)


def _missing_cells(folder: Path, found: MasterSummary) -> Iterator[DataCorrupted]:
    """Yield an error for each missing cell of a master whose nodes are beside it."""
    is_whole = (folder.parent / LOCK_NAME).exists() and folder.name == "master"
    if is_whole and not (folder.parent / COPIES_NAME).exists():
        for cell in found.cells:
            node = folder.parent / f"node-{cell}"
            if not has_joined(node):
                text = f"the data of cell {cell} is missing: put it back, or restore a backup"
                yield DataCorrupted(text, path=str(node), cell=cell)


def _cell(folder: Path, progress: Progress) -> CheckedPart:
    def begin(step: str, total_bytes: int) -> Callable[[int], None]:
        progress.begin(f"{folder.name}: {step}", total_bytes, "bytes")
        return progress.advance

    found = verify_cell(folder, begin)
    leftovers = f"; {found.leftover_count:,} that a crash left over" * bool(found.leftover_count)
    return CheckedPart(
        "",
        f"cell: {found.tablet_count:,} tablets; log of {found.log.file_count:,} files, "
        f"{found.log.group_count:,} groups, {found.log.size_bytes / MIB:,.1f} MiB; "
        f"{found.chunk_count:,} chunks, {found.version_count:,} versions, "
        f"{found.chunk_bytes / MIB:,.1f} MiB{leftovers}",
        found.damages,
    )


def _member(folder: Path, _: Progress) -> CheckedPart:
    if not (folder / "member").is_dir():
        text = "a member of etcd has lost its data, which says who owns a log: put it back"
        raise DataCorrupted(text, path=str(folder))
    return CheckedPart("", "etcd: its data is there, and etcd itself checks it")


def _replica(folder: Path, progress: Progress) -> CheckedPart:
    if not (folder / REPLICA_NAME).exists():
        text = "a log replica has lost its data: other replicas give it copies after the next start"
        raise DataCorrupted(text, path=str(folder / REPLICA_NAME))
    progress.begin("log replica", None, "entries")
    found = verify_replica(folder)
    return CheckedPart(
        "",
        f"log replica {found.replica} of cluster {found.cluster}: {found.log_count:,} logs, "
        f"{found.entry_count:,} entries, {found.entry_bytes / MIB:,.1f} MiB",
        found.damages,
    )


def _objects(folder: Path, progress: Progress) -> CheckedPart:
    def begin(total_bytes: int) -> Callable[[int], None]:
        progress.begin("chunks", total_bytes, "bytes")
        return progress.advance

    if not folder.is_dir():
        raise DataCorrupted("the folder of the chunks is missing: put it back", path=str(folder))
    found = verify_objects(folder, begin)
    leftovers = f"; {found.leftover_count:,} that a crash left over" * bool(found.leftover_count)
    return CheckedPart(
        "",
        f"object store: {found.chunk_count:,} chunks, {found.version_count:,} versions, "
        f"{found.chunk_bytes / MIB:,.1f} MiB{leftovers}",
        found.damages,
    )


def _backup(folder: Path, progress: Progress) -> CheckedPart:
    manifest = read_manifest(folder)
    size_bytes = sum(part.size_bytes for part in manifest.parts)
    progress.begin("backup", size_bytes, "bytes")
    verify_parts(folder, manifest.parts, progress.advance)
    return CheckedPart(
        "",
        f"backup: {len(manifest.tables):,} tables, {manifest.row_count:,} rows, "
        f"{size_bytes / MIB:,.1f} MiB, as of {manifest.time}",
    )
