"""Say whether an adoption can begin, go on, or be undone. `adopting` has the steps.

Owns: what must be true of the folder, of its disks, and of the replicas. Reads only, so a step that
is refused has changed nothing.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dodona_local.adoption import PLAIN, Adoption, CellCopy, State, start_of
from dodona_local.folder import DataFolder
from dodona_local.replicas import COPIES, Replicas
from dodona_local.replicated_folder import FILE_NAME as COPIES_NAME
from dodona_local.replicated_folder import MEMBERS, OBJECTS, ReplicatedFolder, replicas_in
from dodona_oracle.shell.store import FILE_NAME as MASTER_NAME
from dodona_replication.shell.replica_check import StoredReplica, opened_replica
from dodona_tablets.shell.chunk_files import CHUNKS_NAME
from dodona_tablets.shell.log import LOG_NAME
from dodona_tablets.shell.log_use import has_writes_behind
from dodona_tablets.shell.replicated_log import log_of
from dodona_wire.errors import DataCorrupted, DiskFull, InvalidRequest
from dodona_wire.types import CellId

COPIES_MIN: Final = 2
UNSURE_MAX: Final = COPIES_MIN - 1
"""Replicas that may be missing in a proof: an acknowledged entry is on one more, at least."""
ROOM_FACTOR: Final = 1.25
"""A replica needs more room than the log that it has."""
MIB: Final = 1 << 20
ETCD_BYTES: Final = MEMBERS * 128 * MIB
"""Room for etcd: each member makes two files of 64 MiB before it needs them."""
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""


def refused(folder: DataFolder, why: str) -> InvalidRequest:
    """Return the error about a step that this folder does not allow."""
    return InvalidRequest(f"{folder.path}: {why}", path=str(folder.path))


def has_log(node: Path) -> bool:
    """Return whether this folder of a node has a log."""
    return any(node.glob(f"{LOG_NAME}/*"))


# ---- the first step


def node_count_of(folder: DataFolder) -> int:
    """Return how many nodes the cluster has. Raises InvalidRequest if there is none to adopt."""
    path = folder.path
    if (path / COPIES_NAME).exists() or replicas_in(path):
        raise refused(folder, "its logs are on log replicas already: there is nothing to adopt")
    for other in (path / OBJECTS, folder.etcd):
        _check_empty(folder, other)
    found = _nodes(path)
    if not any(map(has_log, found)):
        raise refused(folder, "no node in it has a log: there is nothing to adopt")
    return 1 + max(int(it.name.removeprefix("node-")) for it in found)


def check_movable(folder: DataFolder) -> None:
    """Raise InvalidRequest unless the folders of the nodes can move into `plain` as they are. What
    a link or a mount point leads to does not move with it."""
    plain = folder.path / PLAIN
    _check_empty(folder, plain)
    for path in (plain, *(it for node in _nodes(folder.path) for it in (node, *node.glob("*")))):
        if path.is_symlink() or os.path.ismount(path):
            raise refused(
                folder,
                f"{path} is a link or a mount point, and an adoption moves folders: move its "
                "content into a folder in its place",
            )


def _check_empty(folder: DataFolder, path: Path) -> None:
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise refused(folder, f"{path.name} is there already: move it away")


def _nodes(path: Path) -> list[Path]:
    found = [(it.name.removeprefix("node-"), it) for it in path.glob("node-*")]
    return [it for number, it in found if number.isdecimal()]


def check_goes_on(folder: DataFolder, known: Adoption, replicas: Replicas) -> None:
    """Refuse to go on with an adoption that has ended, or with other options."""
    if known.state is State.ADOPTED:
        raise refused(
            folder,
            f"its logs have copies already. Start it with `{start_of(folder.path, known)}`, and "
            "look at your tables. Then use --finish, or --undo",
        )
    if known.state is State.UNDOING:
        raise refused(folder, "its adoption is being undone: use --undo again")
    if (known.replica_count, known.object_store) != replicas[:2]:
        raise refused(folder, f"its adoption began with {known.options}: use these, or --undo")


def check_room(folder: DataFolder, replicas: Replicas, name: str) -> None:
    """Raise DiskFull if a disk lacks room for the rest of the copies, for etcd, or for the chunks
    that nodes fetch later. An adoption of this name may have made a part of the copies."""
    path, objects = folder.path, replicas.objects_folder(folder)
    logs, chunks = (ROOM_FACTOR * _log_bytes(path, it) for it in (LOG_NAME, CHUNKS_NAME))
    needed = [
        (path, COPIES * logs - _stored_bytes(replicas_in(path))),
        (path, ETCD_BYTES - _stored_bytes([folder.etcd])),
        (path, chunks + _stored_bytes([folder.master / MASTER_NAME])),
    ]
    if objects is not None:
        place = objects if objects.exists() else path
        needed.append((place, chunks - _stored_bytes([objects / name])))
    for place, needed_bytes in _by_disk(needed):
        free_bytes = shutil.disk_usage(place).free
        if free_bytes < needed_bytes:
            raise DiskFull(
                f"the copies need about {needed_bytes / MIB:,.0f} MiB, and the disk of {place} has "
                f"{free_bytes / MIB:,.0f} MiB: make room, then run the command again",
                path=str(place),
            )


def _by_disk(needed: Iterable[tuple[Path, float]]) -> Iterator[tuple[Path, float]]:
    """Yield a place on each disk, and the bytes that all places on it need."""
    sums: dict[int, tuple[Path, float]] = {}
    for place, needed_bytes in needed:
        device = place.stat().st_dev
        first, so_far = sums.get(device, (place, 0.0))
        sums[device] = first, so_far + max(0.0, needed_bytes)
    yield from sums.values()


def _log_bytes(path: Path, name: str) -> int:
    return sum(it.stat().st_size for it in path.glob(f"node-*/{name}/*"))


def _stored_bytes(paths: Iterable[Path]) -> int:
    """Return what files, and all files in folders, take on the disk."""
    found = [it for path in paths for it in (path, *path.rglob("*"))]
    return BLOCK_BYTES * sum(it.lstat().st_blocks for it in found if it.is_file())


# ---- back


def check_undo(folder: DataFolder, adoption: Adoption) -> None:
    """Raise InvalidRequest or DataCorrupted unless the adoption can be undone, and no write that
    the cluster acknowledged is lost. Raises LaunchFailed."""
    if adoption.state is State.ADOPTED:
        _check_unused(folder, adoption)
    check_logs(folder, adoption)
    nodes = [folder.node(it) for it in range(adoption.node_count)]
    kept = [folder.path / PLAIN / it.name for it in nodes]
    for path in (*nodes, *kept, *made_by(folder, adoption)):
        if os.path.ismount(path):
            raise refused(folder, f"{path} is a mount point, which can't move: unmount it")


def check_logs(folder: DataFolder, adoption: Adoption) -> None:
    """Raise DataCorrupted unless each cell that was adopted has the log of its node, once."""
    adopted = {it.cell for it in adoption.cells}
    for cell in range(adoption.node_count):
        node = folder.node(cell)
        kept = folder.path / PLAIN / node.name
        if has_log(node) and os.path.lexists(kept):
            raise DataCorrupted(f"{node} and {kept} have logs: move one away", path=str(node))
        if cell in adopted and not has_log(node) and not has_log(kept):
            text = f"the log of node {cell} from before the adoption is missing: put {kept} back"
            raise DataCorrupted(text, path=str(kept))


def made_by(folder: DataFolder, adoption: Adoption) -> list[Path]:
    """Return what an adoption makes in the folder: replicas, etcd, and the folder of chunks."""
    made = [*replicas_in(folder.path), folder.etcd, folder.path / PLAIN]
    return made if adoption.object_store else [*made, folder.path / OBJECTS]


def _check_unused(folder: DataFolder, adoption: Adoption) -> None:
    """Raise InvalidRequest unless the replicas prove that no write was acknowledged since."""
    known = ReplicatedFolder.read(folder.path)
    written: set[str] = set()
    unsure: list[str] = []
    for index in range((known or adoption).replica_count):
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
        "and restore the backup into another folder. If it does not start any more, copy the "
        f"folder `{PLAIN}`, and start the copy: it is the cluster from before the adoption"
    )
    if written:
        names = ", ".join(sorted(written))
        text = f"{names} may have acknowledged writes since the adoption, which an undo loses"
        raise refused(folder, f"{text}. {way}")
    if len(unsure) > UNSURE_MAX:
        names = ", ".join(unsure)
        text = f"{names} can't show that no write was acknowledged since the adoption"
        raise refused(folder, f"{text}: put the folders of the adoption back. {way}")


def _written(stored: StoredReplica, cells: Sequence[CellCopy]) -> list[str]:
    """Return the logs that were written since. A cell that came later has only such records."""
    ends = {log_of(CellId(it.cell)): it.last_index for it in cells}
    return [log for log in stored.states if has_writes_behind(stored, log, ends.get(log, 0))]
