"""The data folder of a local cluster: its layout, its lock, its logs.

Owns: `master/`, `node-N/` and `logs/`, and the lock, which the launcher holds and, through
inheritance, every server it started: a folder stays taken until the last of them is gone. An
embedded database has the same lock and, up to the logs, the same layout as a cluster of one node.
Must not import asyncio: all of this happens before or beside the event loop.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from dodona_local.errors import LaunchFailed
from dodona_wire.net.cluster_key import KEY_FILE, make_key
from dodona_wire.net.folder import FILE_MODE, FOLDER_MODE, FolderLock, sync_folder
from dodona_wire.net.paths import place_of

LOCK_WAIT_S_MAX: Final = 5.0
"""How long to wait for the servers of a killed launcher to be gone."""

LOG_BYTES_MAX: Final = 32 << 20
LOG_TAIL_BYTES: Final = 4096


class DataFolder:
    """An opened, locked data folder. Close it when the servers are gone."""

    def __init__(self, path: Path) -> None:
        """Create and lock the folder. Raises LaunchFailed when it is in use or can't be made,
        InvalidRequest."""
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
        """What servers inherit, so that the folder stays taken while any of them lives."""
        return self._lock.descriptor

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def master(self) -> Path:
        return self.path / "master"

    def node(self, index: int) -> Path:
        return self.path / f"node-{index}"

    def audit_log(self, name: str) -> Path:
        """What administrators asked a gateway for."""
        return self.logs / f"{name.replace(' ', '-')}-audit.jsonl"

    @property
    def admin_token(self) -> Path:
        """The cluster's first token, for its owner alone."""
        return self.path / "admin-token"

    @property
    def cluster_key(self) -> Path:
        """What the cluster's processes and clients show each other, for its owner alone."""
        return self.path / KEY_FILE

    def check_node_count(self, node_count: int) -> None:
        """Refuse to leave out a node that has data here: its tablets would be missing."""
        indexes = (path.name.removeprefix("node-") for path in self.path.glob("node-*"))
        needed = 1 + max((int(index) for index in indexes if index.isdecimal()), default=-1)
        if needed > node_count:
            raise LaunchFailed(
                f"{self.path} holds the data of {needed} nodes: start it with --nodes {needed}"
            )

    def check_master(self) -> None:
        """Refuse to make a new master beside nodes that have data. Nodes make no chunk before the
        master's store is durable, so that the store was there. A master's folder is made, durably,
        before any node is started."""
        has_nodes = any(self.path.glob("node-*/log/*"))
        is_missing = has_nodes and not self.master.is_dir()
        if not (self.master / "master.mdb").exists() and any(self.path.glob("node-*/chunks/*")):
            is_missing = True
        if is_missing:
            raise LaunchFailed(
                f"{self.master / 'master.mdb'} is missing beside the nodes' data: put it back, or "
                "restore a backup into another folder"
            )
        with suppress(FileExistsError):  # what is no folder the master complains of
            self.master.mkdir(FOLDER_MODE, exist_ok=True)
        sync_folder(self.path)

    def make_key(self) -> None:
        """Unless there is one. Raises LaunchFailed."""
        try:
            make_key(self.cluster_key)
        except OSError as error:
            raise LaunchFailed(f"cannot write {self.cluster_key}: {error.strerror}") from error

    def open_log(self, name: str) -> int:
        """A file descriptor that appends to `logs/<name>.log`; a large old log is set aside."""
        path = self.log_path(name)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)

    def log_path(self, name: str) -> Path:
        return self.logs / f"{name.replace(' ', '-')}.log"

    def log_tail(self, name: str, line_count: int = 5) -> str:
        """The last lines that a server wrote, to put beside an error."""
        try:
            with self.log_path(name).open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - LOG_TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-line_count:])

    def is_disk_full(self) -> bool:
        """Whether nothing more can be written here, not even why."""
        found = os.statvfs(self.path)
        return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) == 0

    def close(self) -> None:
        """Let the folder go: once all servers that inherited the lock have ended, it is free. Safe
        to repeat."""
        self._lock.leave()

    def _take(self) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S_MAX
        while not self._lock.take():
            holder = self._lock.holder()
            # A launcher that was killed leaves its servers behind for a moment: wait for those.
            if _is_alive(holder) or time.monotonic() > deadline:
                raise LaunchFailed(
                    f"{self.path} is in use by another process (pid {holder or 'unknown'}): "
                    "stop that one, or choose another folder with --data-dir"
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
