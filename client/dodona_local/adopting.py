"""Give the logs of a stopped cluster copies, undo that, or finish it: `dodona cluster adopt`.

Owns: the steps, and their order. `adoption_checks` says what each one needs. `adoption` remembers
the step that has begun, so each command can be run again after it was interrupted. etcd and the log
replicas run meanwhile, and `adopting` of the tablets copies the cells.

Invariants:
- Nothing is removed: the user does that, who knows what else is there. Folders only move. The
  folders of the nodes stay as they are in `plain`, beside a copy of the master's store. So `plain`
  is the whole cluster from before. What an adoption has made moves aside when it is undone, but for
  objects in a store elsewhere: other clusters may be there, too.
- `undo` loses no write that the cluster acknowledged with replicas. It refuses unless the replicas
  show that there is none. An acknowledged entry is on two disks at least, so all replicas but one
  must be those of the adoption. An undo that is refused changes nothing.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dodona_local.adoption import FILE_NAME, PLAIN, Adoption, CellCopy, State
from dodona_local.adoption_checks import (
    COPIES_MIN,
    check_goes_on,
    check_logs,
    check_movable,
    check_room,
    check_undo,
    has_log,
    made_by,
    node_count_of,
    refused,
)
from dodona_local.checking import check_parts
from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.launcher import with_key
from dodona_local.ports import reserve_ports
from dodona_local.progress import Progress
from dodona_local.replicas import COPIES, Replicas, random_name
from dodona_local.replicated_folder import FILE_NAME as COPIES_NAME
from dodona_local.replicated_folder import ReplicatedFolder
from dodona_local.supervisor import Plan, Report
from dodona_local.supervisor_thread import SupervisorThread
from dodona_oracle.shell.store import FILE_NAME as MASTER_NAME
from dodona_replication.shell.replica_check import opened_replica
from dodona_server.disk_space import no_space_told
from dodona_tablets.shell.adopting import adopt_cell
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.net.folder import (
    FOLDER_MODE,
    lock_folder,
    locked_to_read,
    make_whole,
    private_file,
    sync_folder,
)
from dodona_wire.net.paths import place_of

UNDONE: Final = "undone"
"""What the name of the folder begins with that gets what an adoption had made."""
CLUSTER_PARTS: Final = ("master", "node-*", FILE_NAME, COPIES_NAME)
"""A folder with none of these has no cluster."""


def adopt(path: Path, replicas: Replicas, progress: Progress, warn: Report) -> Adoption:
    """Give the logs of this folder copies on so many replicas, and their chunks an object store.
    Goes on with an adoption that was interrupted.

    Raises InvalidRequest (there is nothing to adopt), DataCorrupted (the folder is damaged), and
    DiskFull. Raises LaunchFailed if the folder is in use or can't be changed, or if etcd or the
    replicas can't run. Raises Unavailable if the object store or the replicas do not answer.
    """
    with _taken(path) as folder:
        adoption = _begin(folder, replicas, progress)
        if adoption.state is State.COPYING:
            adoption = _copy(folder, adoption, replicas, progress, warn)
        return _move(folder, adoption)


def undo(path: Path) -> Path:
    """Go back to the folder as it was. Return where the things are that the adoption had made.
    Raises InvalidRequest if the cluster may have acknowledged writes since. Raises DataCorrupted
    (a log from before is missing), DiskFull, LaunchFailed (the folder is in use or can't be
    changed)."""
    with _taken(path) as folder:
        adoption = _known(folder)
        check_undo(folder, adoption)
        adoption = replace(adoption, state=State.UNDOING)
        adoption.write(folder.path)
        aside = folder.path / f"{UNDONE}-{adoption.name}"
        _move_back(folder, adoption, aside)
        check_logs(folder, adoption)
        _move_copies(folder, adoption, aside)
        return aside


def finish(path: Path) -> Path:
    """End the adoption, so that it can't be undone. Return the folder that the cluster does not
    need any more. Raises InvalidRequest if the logs do not have their copies yet, DiskFull,
    LaunchFailed."""
    with _taken(path) as folder:
        adoption = _known(folder)
        if adoption.state is not State.ADOPTED:
            raise refused(folder, "its logs do not have their copies yet: run it without --finish")
        (folder.path / FILE_NAME).unlink()
        sync_folder(folder.path)
        return folder.path / PLAIN


@contextmanager
def _taken(path: Path) -> Iterator[DataFolder]:
    place = place_of(path)
    if not any(it for name in CLUSTER_PARTS for it in place.glob(name)):
        raise InvalidRequest(f"there is no cluster in {path}", path=str(path))
    with closing(DataFolder(place)) as folder:
        try:
            with no_space_told(folder.path):
                yield folder
        except OSError as error:
            text = f"cannot change {error.filename or folder.path}: {error.strerror or error}"
            raise LaunchFailed(text) from error


def _known(folder: DataFolder) -> Adoption:
    known = Adoption.read(folder.path)
    if known is None:
        raise refused(folder, "no adoption is under way here, or it was finished or undone")
    return known


# ---- the first step


def _begin(folder: DataFolder, replicas: Replicas, progress: Progress) -> Adoption:
    """Return the adoption that is under way, or begin one."""
    known = Adoption.read(folder.path)
    if known is None:
        begun = Adoption(
            State.COPYING,
            random_name(),
            replicas.replica_count,
            node_count_of(folder),
            replicas.object_store,
        )
    else:
        check_goes_on(folder, known, replicas)
        begun = known
    replicas.check_place(folder)
    if begun.state is State.COPYING:
        check_movable(folder)
        check_room(folder, replicas, begun.name)
    if known is None:
        _check_sound(folder, progress)
        if begun.object_store:
            next(open_objects(begun.object_store).names(begun.name), None)  # it answers
        begun.write(folder.path)
    return begun


def _check_sound(folder: DataFolder, progress: Progress) -> None:
    folder.check_master()
    for part in check_parts(folder.path, progress):
        for damage in part.damages:
            raise DataCorrupted(f"{damage.message}. Nothing was adopted.", **damage.attributes)


# ---- copies


def _copy(
    folder: DataFolder, adoption: Adoption, replicas: Replicas, progress: Progress, warn: Report
) -> Adoption:
    """Copy all cells, while etcd and the replicas run."""
    folder.make_key()
    with _processes(folder, adoption, replicas, warn) as (plans, check):
        options = replicas.node_options(folder, adoption.name, plans)
        found = [it for it in range(adoption.node_count) if has_log(folder.node(it))]
        cells = [_copy_cell(folder, it, options, progress, check) for it in found]
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
) -> Iterator[tuple[list[Plan], Callable[[], None]]]:
    """Run etcd and the replicas during the block. Yield their plans, and what raises if they have
    all ended. Raises LaunchFailed."""
    reserved = reserve_ports(0, replicas.port_count)
    plans = with_key(replicas.plans(folder, adoption.name, iter(reserved.ports)), folder)
    running = SupervisorThread(plans, folder, warn, on_end=reserved.release)
    running.start()
    try:
        yield plans, running.check
    finally:
        running.end()


def _copy_cell(
    folder: DataFolder,
    cell: int,
    options: dict[str, object],
    progress: Progress,
    check: Callable[[], None],
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
            "copies": COPIES,
            "copies_min": COPIES_MIN,
        }
    )
    copy = adopt_cell(settings, folder.node(cell), begin, check)
    return CellCopy(cell, copy.epoch, copy.last_index)


def _move(folder: DataFolder, adoption: Adoption) -> Adoption:
    """Move the folders of the nodes away, and note that the logs have copies."""
    with closing(lock_folder(folder.path / PLAIN)) as plain:
        _copy_master(folder, plain.path / folder.master.name)
        for cell in range(adoption.node_count):
            if folder.node(cell).exists():
                folder.node(cell).rename(plain.path / folder.node(cell).name)
        sync_folder(plain.path)
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


def _copy_master(folder: DataFolder, kept: Path) -> None:
    """Copy the master's store, which no process has open. It does not change until all steps are
    complete, so a repeated copy is the same."""
    store = folder.master / MASTER_NAME

    def copy(unfinished: Path) -> None:
        with store.open("rb") as source, private_file(unfinished, "wb") as file:
            shutil.copyfileobj(source, file)

    with closing(lock_folder(kept)), locked_to_read(folder.master):
        if store.exists():  # there is none if no node has joined yet
            make_whole(kept / MASTER_NAME, copy, is_anew=True)


# ---- back


def _move_back(folder: DataFolder, adoption: Adoption, aside: Path) -> None:
    """Move the folders of the nodes back. What is at their places has copies of chunks only."""
    aside.mkdir(FOLDER_MODE, exist_ok=True)
    (folder.path / COPIES_NAME).unlink(missing_ok=True)
    sync_folder(folder.path)
    for cell in range(adoption.node_count):
        node = folder.node(cell)
        kept = folder.path / PLAIN / node.name
        if not kept.exists():
            continue  # an undo that was interrupted has moved it, or it never was there
        if os.path.lexists(node):
            node.rename(aside / node.name)
        kept.rename(node)
    sync_folder(aside)
    sync_folder(folder.path)


def _move_copies(folder: DataFolder, adoption: Adoption, aside: Path) -> None:
    """Move aside what this adoption has made."""
    for path in made_by(folder, adoption):
        if os.path.lexists(path):
            path.rename(aside / path.name)
    sync_folder(aside)
    sync_folder(folder.path)
    (folder.path / FILE_NAME).unlink()
    sync_folder(folder.path)
