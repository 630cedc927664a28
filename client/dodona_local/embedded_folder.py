"""Take the folder of an embedded database, once in this process.

Owns: how a folder is taken and released, the check of its content, and the list of open folders of
this process. A client without references is closed when Python notices. That is immediate, or, if a
reference cycle leads back to the client, when the garbage collector runs. The collector runs before
an open is refused, because in a notebook a traceback may keep the old client. If the old client is
still in use, the error says where it was opened.
"""

import gc
import os
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from dodona_local.adoption import check_startable
from dodona_local.completeness import lacks_master
from dodona_local.embedded_combiner import Combiner
from dodona_local.embedded_cores import Cores, in_use
from dodona_local.errors import LaunchFailed
from dodona_local.places import calling_place
from dodona_local.replicated_folder import FILE_NAME, replicas_in
from dodona_oracle.shell.store import FILE_NAME as MASTER_NAME
from dodona_server.disk_space import no_space_told
from dodona_wire.errors import DataCorrupted, FolderInUse, InvalidRequest
from dodona_wire.net.folder import LockedFolder, lock_folder

CLOSE_SECONDS_MAX: Final = 30.0
"""How long an open waits for a close of the same folder that is under way, in seconds."""

_by_path: Final[WeakValueDictionary[Path, Combiner]] = WeakValueDictionary()
"""The combiners that this process has open or is closing, by folder."""
_places: Final[WeakKeyDictionary[Combiner, str | None]] = WeakKeyDictionary()
"""The place in the user's program where each combiner was opened."""
os.register_at_fork(after_in_child=_by_path.clear)  # only the parent closes its folders


class OpenFolder:
    """A folder that is taken from the first `open` until `close`. Only the combiner's separate
    thread uses it."""

    def __init__(self, path: Path) -> None:
        """Note the folder; it is not taken yet."""
        self.path = path
        self.place = calling_place()
        """The place in the user's program that asked for the folder."""
        self._lock: LockedFolder | None = None

    def open(self) -> Cores:
        """Take the folder, unless it is taken, and recover its data."""
        if self._lock is None:
            try:
                self._lock = lock_folder(self.path)
            except FolderInUse as error:
                raise in_use(self.path, error) from error
            with no_space_told(self.path):
                _check_single_node(self.path)  # again, since it may have changed before the lock
                _check_master(self.path)
        return Cores.open(self.path)

    def close(self) -> None:
        """Release the folder."""
        if self._lock is not None:
            self._lock.close()


def admit(folder: OpenFolder, combiner: Combiner) -> None:
    """Register that this combiner is about to open the folder.

    Raises FolderInUse if a client of this process has the folder. Raises InvalidRequest if the
    folder has other nodes, and Overloaded if this process may open no more files.
    """
    with no_space_told(folder.path):
        _check_single_node(folder.path)
    path = Path(os.path.realpath(folder.path))
    known = _by_path.get(path)
    if known is not None and not known.is_closed:
        gc.collect()  # a client without references begins to close here
        known = _by_path.get(path)  # a finalizer may have opened the folder itself
    if known is not None and known.is_closed:
        known.wait_closed(CLOSE_SECONDS_MAX)
    if known is not None and not known.is_closed:
        place = _places.get(known)
        where = "" if place is None else f", which was opened at {place}"
        raise FolderInUse(
            f"{folder.path} is open already, by a client of this process{where}: close that client "
            "(`close`, or a `with` block), or use that client",
            path=str(folder.path),
            **({} if place is None else {"opened_at": place}),
        )
    _by_path[path] = combiner
    _places[combiner] = folder.place


def _check_single_node(folder: Path) -> None:
    try:
        check_startable(folder)
    except LaunchFailed as error:
        raise InvalidRequest(error.message, path=str(folder)) from error
    if (folder / FILE_NAME).exists() or replicas_in(folder):
        raise InvalidRequest(
            f"{folder} has its logs on log replicas: start it with `dodona up --replicas`",
            path=str(folder),
        )
    strangers = sorted(it.name for it in folder.glob("node-*") if it.name != "node-0")
    if strangers:
        raise InvalidRequest(
            f"{folder} has the data of several nodes ({', '.join(strangers)} too): "
            "start it with `dodona up`",
            path=str(folder),
        )


def _check_master(folder: Path) -> None:
    if lacks_master(folder):
        path = folder / "master" / MASTER_NAME
        raise DataCorrupted(
            f"{path} is missing beside the node's data: put it back, or restore a backup into "
            "another folder",
            path=str(path),
        )
