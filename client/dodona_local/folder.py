"""Manage the data folder of a local cluster: its layout, its lock, its logs.

Owns: `master/`, `node-N/`, `logs/`, what log replicas need, and the lock. The launcher holds the
lock, and every server that it started inherits it: a folder stays locked until the last of them has
ended. An embedded database has the same lock and, except for the logs, the same layout as a cluster
of one node.
Must not import: asyncio. All of this happens before or beside the event loop.
"""

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from dodona_local.errors import LaunchFailed, unwritable
from dodona_local.replicated_folder import MEMBERS, OBJECTS, ReplicatedFolder, members_in
from dodona_wire.net.cluster_key import KEY_FILE, make_key
from dodona_wire.net.folder import (
    FILE_MODE,
    FOLDER_MODE,
    FolderLock,
    sync_folder,
)
from dodona_wire.net.paths import place_of

LOCK_WAIT_S_MAX: Final = 5.0
"""How long to wait, in seconds, for the end of the servers of a killed launcher."""

LOG_BYTES_MAX: Final = 32 << 20
LOG_TAIL_BYTES: Final = 4096


class DataFolder:
    """An open, locked data folder. Close it when the servers have ended."""

    def __init__(self, path: Path) -> None:
        """Create and lock the folder. Raises LaunchFailed if the folder is in use or can't be
        created, InvalidRequest."""
        self.path = place_of(path).resolve()
        try:
            self.path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            self.logs.mkdir(FOLDER_MODE, exist_ok=True)
            self._lock = FolderLock(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            self._take()
        except OSError as error:
            self._lock.close()
            raise self._unusable(error) from error
        except BaseException:
            self._lock.close()
            raise

    def _unusable(self, error: OSError) -> LaunchFailed:
        return LaunchFailed(f"cannot use {self.path} as data folder: {error.strerror}")

    @property
    def lock_fd(self) -> int:
        """Return the descriptor that servers inherit, so that the folder stays locked while any
        server runs."""
        return self._lock.descriptor

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def master(self) -> Path:
        return self.path / "master"

    def node(self, index: int) -> Path:
        return self.path / f"node-{index}"

    def standby(self, index: int) -> Path:
        """Return the folder of a node that stands by: it has only copies of chunks."""
        return self.path / f"standby-{index}"

    def replica(self, index: int) -> Path:
        return self.path / f"replica-{index}"

    @property
    def etcd(self) -> Path:
        return self.path / "etcd"

    def make_objects(self) -> str:
        """Make the folder of the chunks of cells whose logs are on replicas, and return its URL.
        Raises LaunchFailed."""
        folder = self.path / OBJECTS
        try:
            folder.mkdir(FOLDER_MODE, exist_ok=True)
            sync_folder(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        return folder.as_uri()

    def audit_log(self, name: str) -> Path:
        """Return the path of a gateway's audit."""
        return self.logs / f"{name.replace(' ', '-')}-audit.jsonl"

    @property
    def admin_token(self) -> Path:
        """Return the path of the cluster's first token, which only its owner can read."""
        return self.path / "admin-token"

    @property
    def cluster_key(self) -> Path:
        """Return the path of the key that the cluster's processes and clients share. Only its owner
        can read it."""
        return self.path / KEY_FILE

    def check_node_count(self, node_count: int) -> None:
        """Refuse a number of nodes that leaves out a node with data. Its tablets would be
        missing."""
        indexes = (path.name.removeprefix("node-") for path in self.path.glob("node-*"))
        needed = 1 + max((int(index) for index in indexes if index.isdecimal()), default=-1)
        if needed > node_count:
            raise LaunchFailed(
                f"{self.path} has the data of {needed} nodes: start it with --nodes {needed}"
            )

    def check_unreplicated(self) -> None:
        """Refuse to start a cluster whose logs have copies without its log replicas."""
        known = ReplicatedFolder.read(self.path)
        if known is not None:
            raise LaunchFailed(
                f"{self.path} has its logs on log replicas: start it with --replicas "
                f"{known.replica_count}"
            )

    def check_replicated(self, wanted: ReplicatedFolder) -> ReplicatedFolder:
        """Return what the folder has if it is started so: its own name, and what was there before.
        Raises LaunchFailed if that leaves anything out."""
        known = ReplicatedFolder.read(self.path)
        if known is None:
            if any(self.path.glob("node-*/log/*")):
                raise LaunchFailed(
                    f"the nodes in {self.path} have their logs in their own folders: start it "
                    "without --replicas, or give the logs copies with `dodona cluster adopt "
                    f"{shlex.quote(str(self.path))}`"
                )
            return wanted
        for what, before, now in (
            ("log replicas", known.replica_count, wanted.replica_count),
            ("nodes", known.node_count, wanted.node_count),
        ):
            if now < before:
                option = "--replicas" if what == "log replicas" else "--nodes"
                text = f"{self.path} has {before} {what}: start it with {option} {before}"
                raise LaunchFailed(text)
        if wanted.object_store != known.object_store:
            place = known.object_store
            how = f"with --object-store {place}" if place else "without --object-store"
            raise LaunchFailed(
                f"the chunks of {self.path} are in {place or self.path / OBJECTS}: start it {how}"
            )
        members = members_in(self.path)
        if known.has_been_ready and len(members) < MEMBERS:
            lost = sorted({*range(MEMBERS)} - {*members})
            raise LaunchFailed(
                f"etcd has lost its data in {self.path / 'etcd'}: put "
                f"{', '.join(f'member-{it}' for it in lost)} back. Without that it is not known "
                "which replicas have the newest entries"
            )
        return msgspec.structs.replace(wanted, name=known.name, has_been_ready=known.has_been_ready)

    def check_master(self) -> None:
        """Refuse to make a new master beside nodes that have data. Nodes make no chunk before the
        master's store is durable, so that store has existed. A master's folder is made, durably,
        before any node starts."""
        has_nodes = any(self.path.glob("node-*/log/*"))
        is_missing = has_nodes and not self.master.is_dir()
        if not (self.master / "master.mdb").exists() and any(self.path.glob("node-*/chunks/*")):
            is_missing = True
        known = ReplicatedFolder.read(self.path)
        if known is not None and known.has_been_ready:
            is_missing = not (self.master / "master.mdb").exists()
        if is_missing:
            raise LaunchFailed(
                f"{self.master / 'master.mdb'} is missing beside the nodes' data: put it back, or "
                "restore a backup into another folder"
            )
        with suppress(FileExistsError):  # if the path is a file, the master reports it
            self.master.mkdir(FOLDER_MODE, exist_ok=True)
        sync_folder(self.path)

    def make_key(self) -> None:
        """Make the cluster's key, unless it exists. Raises DiskFull, LaunchFailed."""
        try:
            make_key(self.cluster_key)
        except OSError as error:
            raise unwritable(self.cluster_key, error) from error

    def open_log(self, name: str) -> int:
        """Return a file descriptor that appends to `logs/<name>.log`. A log above `LOG_BYTES_MAX`
        is renamed first."""
        path = self.log_path(name)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)

    def log_path(self, name: str) -> Path:
        return self.logs / f"{name.replace(' ', '-')}.log"

    def log_tail(self, name: str, line_count: int = 5) -> str:
        """Return the last lines that a server wrote, to show beside an error."""
        try:
            with self.log_path(name).open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-line_count:])

    def is_disk_full(self) -> bool:
        """Return whether the disk has no room at all, not even for a line of a log."""
        found = os.statvfs(self.path)
        return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) == 0

    def close(self) -> None:
        """Release the folder: it is free once all servers that inherited the lock have ended. A
        repeat is harmless."""
        self._lock.leave()

    def _take(self) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S_MAX
        while not self._lock.take():
            holder = self._lock.holder()
            # A killed launcher leaves its servers for a short time: wait for their end.
            if _is_alive(holder) or time.monotonic() > deadline:
                raise LaunchFailed(
                    f"{self.path} is in use by another process (pid {holder or 'unknown'}): "
                    "stop that process, or choose another folder"
                )
            time.sleep(0.05)


def _is_alive(pid: str) -> bool:
    if not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
