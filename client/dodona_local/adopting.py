"""Give the logs of a stopped cluster copies, undo that, or finish it: `dodona cluster adopt`.

Owns: the steps, their order, and what each one needs to be true. `adoption` remembers the step that
has begun, so each command can be run again after it was interrupted. etcd and the log replicas run
meanwhile, and `adopting` of the tablets copies the cells.

Invariants:
- The folders of the nodes stay as they are until `finish`. They only move.
- `undo` loses no write that the cluster acknowledged with replicas. It refuses unless the replicas
  show that there is none. An acknowledged entry is on two disks at least, so all replicas but one
  must be those of the adoption.
- `finish` removes a folder only after all nodes have been ready with their copies.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dodona_local.adoption import FILE_NAME, PLAIN, STARTABLE, Adoption, CellCopy, State
from dodona_local.checking import check_parts
from dodona_local.folder import DataFolder
from dodona_local.launcher import with_key
from dodona_local.ports import reserve_ports
from dodona_local.progress import Progress
from dodona_local.replicas import COPIES, Replicas, random_name
from dodona_local.replicated_folder import FILE_NAME as COPIES_NAME
from dodona_local.replicated_folder import MEMBERS, OBJECTS, ReplicatedFolder, replicas_in
from dodona_local.supervisor import Plan, Report
from dodona_local.supervisor_thread import SupervisorThread
from dodona_replication.shell.replica_check import StoredReplica, opened_replica
from dodona_tablets.shell.adopting import adopt_cell
from dodona_tablets.shell.chunk_files import CHUNKS_NAME
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.log import LOG_NAME
from dodona_tablets.shell.log_use import has_writes_behind
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.replicated_log import log_of
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.errors import DataCorrupted, DiskFull, DodonaError, InvalidRequest
from dodona_wire.net.folder import FOLDER_MODE, sync_folder
from dodona_wire.net.paths import place_of
from dodona_wire.types import CellId

UNSURE_MAX: Final = 1
"""Replicas that may be missing in a proof: an acknowledged entry is on one more, at least."""
ROOM_FACTOR: Final = 1.25
"""A replica needs more room than the log that it has."""
MIB: Final = 1 << 20
ETCD_BYTES: Final = MEMBERS * 128 * MIB
"""Room for etcd: each member makes two files of 64 MiB before it needs them."""


def adopt(path: Path, replicas: Replicas, progress: Progress, warn: Report) -> Adoption:
    """Give the logs of this folder copies on so many replicas, and their chunks an object store.
    Goes on with an adoption that was interrupted.

    Raises InvalidRequest (there is nothing to adopt), DataCorrupted (the folder is damaged), and
    DiskFull. Raises LaunchFailed if the folder is in use, or if etcd or the replicas can't run.
    Raises Unavailable if the object store or the replicas do not answer.
    """
    with _taken(path) as folder:
        adoption = _begin(folder, replicas, progress)
        if adoption.state is State.COPYING:
            adoption = _copy(folder, adoption, replicas, progress, warn)
        return _move(folder, adoption)


def undo(path: Path, warn: Report) -> None:
    """Go back to the folder as it was. Raises InvalidRequest if the cluster may have acknowledged
    writes since, LaunchFailed, DataCorrupted, OSError."""
    with _taken(path) as folder:
        adoption = _known(folder)
        if adoption.state is State.FINISHING:
            raise _refused(folder, "the folders of its nodes are being removed: use --finish again")
        if adoption.state is State.ADOPTED:
            _check_unused(folder, adoption)
        adoption = replace(adoption, state=State.UNDOING)
        adoption.write(folder.path)
        _move_back(folder, adoption)
        _remove_copies(folder, adoption, warn)


def finish(path: Path) -> None:
    """Remove the folders that the nodes had before. Raises InvalidRequest if the cluster has not
    been started with its copies yet, LaunchFailed, DataCorrupted, OSError."""
    with _taken(path) as folder:
        adoption = _known(folder)
        if adoption.state not in STARTABLE:
            raise _refused(folder, "its logs do not have their copies yet: run it without --finish")
        if not adoption.has_served:
            raise _refused(
                folder,
                "its nodes have not served from their copies yet. Start it once with `dodona up "
                f"--data-dir {folder.path} --replicas {adoption.replica_count}`, look at your "
                "tables, and stop it",
            )
        if adoption.state is State.ADOPTED:
            adoption = replace(adoption, state=State.FINISHING)
            adoption.write(folder.path)
        if (folder.path / PLAIN).exists():
            shutil.rmtree(folder.path / PLAIN)
        (folder.path / FILE_NAME).unlink()
        sync_folder(folder.path)


@contextmanager
def _taken(path: Path) -> Iterator[DataFolder]:
    place = place_of(path)
    if not place.is_dir():
        raise InvalidRequest(f"there is no cluster in {path}", path=str(path))
    with closing(DataFolder(place)) as folder:
        yield folder


def _refused(folder: DataFolder, why: str) -> InvalidRequest:
    return InvalidRequest(f"{folder.path}: {why}", path=str(folder.path))


def _known(folder: DataFolder) -> Adoption:
    known = Adoption.read(folder.path)
    if known is None:
        raise _refused(folder, "no adoption is under way here, or it was finished or undone")
    return known


# ---- the first step


def _begin(folder: DataFolder, replicas: Replicas, progress: Progress) -> Adoption:
    """Return the adoption that is under way, or begin one."""
    known = Adoption.read(folder.path)
    if known is not None:
        _check_goes_on(folder, known, replicas)
        replicas.check_place(folder)
        return known
    node_count = _node_count(folder)
    replicas.check_place(folder)
    folder.check_master()
    for part in check_parts(folder.path, progress):
        for damage in part.damages:
            raise DataCorrupted(f"{damage.message}. Nothing was adopted.", **damage.attributes)
    _check_room(folder, replicas)
    name, store = random_name(), replicas.object_store
    if store:
        next(open_objects(store).names(name), None)  # it answers
    begun = Adoption(State.COPYING, name, replicas.replica_count, node_count, store)
    begun.write(folder.path)
    return begun


def _check_goes_on(folder: DataFolder, known: Adoption, replicas: Replicas) -> None:
    """Refuse to go on with an adoption that has ended, or with other options."""
    if known.state in STARTABLE:
        raise _refused(
            folder,
            f"its logs have copies already. Start it with `dodona up --data-dir {folder.path} "
            f"--replicas {known.replica_count}`, and look at your tables. Then use --finish, or "
            "--undo",
        )
    if known.state is State.UNDOING:
        raise _refused(folder, "its adoption is being undone: use --undo again")
    options = f"--replicas {known.replica_count}"
    if known.object_store:
        options += f" --object-store {known.object_store}"
    if (known.replica_count, known.object_store) != replicas[:2]:
        raise _refused(folder, f"its adoption began with {options}: use these, or --undo")


def _node_count(folder: DataFolder) -> int:
    """Return how many nodes the cluster has. Raises InvalidRequest if there is none to adopt."""
    path = folder.path
    others = [path / OBJECTS, folder.etcd]
    if (path / COPIES_NAME).exists() or replicas_in(path):
        raise _refused(folder, "its logs are on log replicas already: there is nothing to adopt")
    for other in others:
        if other.is_dir() and any(other.iterdir()):
            raise _refused(folder, f"{other.name} is there already: move it away")
    found = [it.name.removeprefix("node-") for it in path.glob("node-*")]
    if not any(path.glob(f"node-*/{LOG_NAME}/*")):
        raise _refused(folder, "no node in it has a log: there is nothing to adopt")
    return 1 + max(int(it) for it in found if it.isdecimal())


def _check_room(folder: DataFolder, replicas: Replicas) -> None:
    """Refuse to begin without room for the copies, and for the chunks that nodes fetch later."""
    logs, chunks = (_size_of(folder.path, name) for name in (LOG_NAME, CHUNKS_NAME))
    chunk_count = 1 if replicas.object_store else 2
    needed = int(ROOM_FACTOR * (COPIES * logs + chunk_count * chunks)) + ETCD_BYTES
    free = shutil.disk_usage(folder.path).free
    if free < needed:
        raise DiskFull(
            f"the copies need about {needed / MIB:,.0f} MiB, and the disk of {folder.path} has "
            f"{free / MIB:,.0f} MiB: make room. Nothing was adopted",
            path=str(folder.path),
        )


def _size_of(path: Path, name: str) -> int:
    return sum(it.stat().st_size for it in path.glob(f"node-*/{name}/*"))


# ---- copies


def _copy(
    folder: DataFolder, adoption: Adoption, replicas: Replicas, progress: Progress, warn: Report
) -> Adoption:
    """Copy all cells, while etcd and the replicas run."""
    folder.make_key()
    with _processes(folder, adoption, replicas, warn) as plans:
        options = replicas.node_options(folder, adoption.name, plans)
        found = [it for it in range(adoption.node_count) if folder.node(it).exists()]
        cells = [_copy_cell(folder, it, options, progress) for it in found]
    ids = []
    for index in range(adoption.replica_count):
        with opened_replica(folder.replica(index)) as stored:
            ids.append(stored.identity.replica)
    adoption = replace(adoption, state=State.MOVING, replicas=tuple(ids), cells=tuple(cells))
    adoption.write(folder.path)
    return adoption


@contextmanager
def _processes(
    folder: DataFolder, adoption: Adoption, replicas: Replicas, warn: Report
) -> Iterator[list[Plan]]:
    """Run etcd and the replicas during the block. Raises LaunchFailed."""
    reserved = reserve_ports(0, replicas.port_count)
    plans = with_key(replicas.plans(folder, adoption.name, iter(reserved.ports)), folder)
    running = SupervisorThread(plans, folder, warn, on_end=reserved.release)
    running.start()
    try:
        yield plans
    finally:
        running.end()


def _copy_cell(
    folder: DataFolder, cell: int, options: dict[str, object], progress: Progress
) -> CellCopy:
    def begin(step: str, total_bytes: int) -> Callable[[int], None]:
        progress.begin(f"node-{cell}: {step}", total_bytes, "bytes")
        return progress.advance

    settings = NodeSettings.model_validate(
        {
            **options,
            "cell": cell,
            "data_dir": folder.node(cell),
            "cluster_key_file": folder.cluster_key,
        }
    )
    copy = adopt_cell(settings, folder.node(cell), begin)
    return CellCopy(cell, copy.epoch, copy.last_index)


def _move(folder: DataFolder, adoption: Adoption) -> Adoption:
    """Move the folders of the nodes away, and note that the logs have copies."""
    plain = folder.path / PLAIN
    plain.mkdir(FOLDER_MODE, exist_ok=True)
    sync_folder(folder.path)
    for cell in range(adoption.node_count):
        if folder.node(cell).exists():
            folder.node(cell).rename(plain / folder.node(cell).name)
    sync_folder(plain)
    ReplicatedFolder(
        adoption.name,
        adoption.replica_count,
        adoption.node_count,
        adoption.object_store,
        has_been_ready=True,
    ).write(folder.path)
    adoption = replace(adoption, state=State.ADOPTED)
    adoption.write(folder.path)
    return adoption


# ---- what the replicas show


def _check_unused(folder: DataFolder, adoption: Adoption) -> None:
    """Raise InvalidRequest unless the replicas prove that no write was acknowledged since."""
    known = ReplicatedFolder.read(folder.path)
    assert known is not None, "an adoption that was complete has written it"
    written: set[str] = set()
    unsure: list[str] = []
    for index in range(known.replica_count):
        ids = adoption.replicas[index : index + 1]
        try:
            with opened_replica(folder.replica(index)) as stored:
                written.update(_written(stored, adoption.cells))
                is_sure = ids == (stored.identity.replica,)
        except (DataCorrupted, InvalidRequest):
            is_sure = False
        if not is_sure:
            unsure.append(folder.replica(index).name)
    way = (
        "To go back without a loss, start it with its replicas, make a backup (`dodona backup`), "
        "and restore the backup into another folder"
    )
    if written:
        names = ", ".join(sorted(written))
        text = f"{names} may have acknowledged writes since the adoption, which an undo loses"
        raise _refused(folder, f"{text}. {way}")
    if len(unsure) > UNSURE_MAX:
        names = ", ".join(unsure)
        text = f"{names} can't show that no write was acknowledged since the adoption"
        raise _refused(folder, f"{text}: put the folders of the adoption back. {way}")


def _written(stored: StoredReplica, cells: Sequence[CellCopy]) -> list[str]:
    """Return the logs that were written since. A cell that came later has only such records."""
    ends = {log_of(CellId(it.cell)): it.last_index for it in cells}
    return [log for log in stored.states if has_writes_behind(stored, log, ends.get(log, 0))]


# ---- back


def _move_back(folder: DataFolder, adoption: Adoption) -> None:
    """Move the folders of the nodes back. What is at their places has copies of chunks only."""
    (folder.path / COPIES_NAME).unlink(missing_ok=True)
    sync_folder(folder.path)
    for cell in range(adoption.node_count):
        node = folder.node(cell)
        kept = folder.path / PLAIN / node.name
        if not kept.exists():
            continue
        if any(node.glob(f"{LOG_NAME}/*")):
            raise DataCorrupted(f"{node} and {kept} have logs: move one away", path=str(node))
        if node.exists():
            shutil.rmtree(node)
        kept.rename(node)
    sync_folder(folder.path)
    if (folder.path / PLAIN).exists():
        (folder.path / PLAIN).rmdir()


def _remove_copies(folder: DataFolder, adoption: Adoption, warn: Report) -> None:
    """Remove the replicas, etcd and the objects, which this adoption has made."""
    if adoption.object_store:
        _remove_objects(adoption, warn)
    for path in (*replicas_in(folder.path), folder.etcd, folder.path / OBJECTS):
        if path.exists():
            shutil.rmtree(path)
    sync_folder(folder.path)
    (folder.path / FILE_NAME).unlink()
    sync_folder(folder.path)


def _remove_objects(adoption: Adoption, warn: Report) -> None:
    """Remove the chunks from a store elsewhere. A store that does not answer is no reason to
    stop."""
    try:
        objects = open_objects(adoption.object_store)
        for cell in range(adoption.node_count):
            prefix = ChunkNames(adoption.name, CellId(cell), epoch=0).prefix
            objects.remove(list(objects.names(prefix)))
    except DodonaError as error:
        warn(
            f"remove the objects below {adoption.name} from {adoption.object_store}: "
            f"{error.message}"
        )
