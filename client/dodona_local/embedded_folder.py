"""The folder of an embedded database, and who in this process has it.

Owns: taking a folder and letting go of it, what must be in it, and the list of those that this
process has open. A client that nobody has any more is closed as soon as Python notices: at once, or
where something leads back to it, when the garbage collector comes. Before a folder is refused it is
called, since in a notebook a traceback may have the old client. If somebody does have that, the
error says where it was opened.
"""

import gc
import os
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from dodona_local.completeness import lacks_master
from dodona_local.embedded_combiner import Combiner
from dodona_local.embedded_cores import Cores, in_use
from dodona_local.places import calling_place
from dodona_oracle.shell.store import FILE_NAME
from dodona_server.disk_space import no_space_told
from dodona_wire.errors import DataCorrupted, FolderInUse, InvalidRequest
from dodona_wire.net.folder import LockedFolder, lock_folder

CLOSE_SECONDS_MAX: Final = 30.0
"""How long an open waits for a close of the same folder that is under way."""

_by_path: Final[WeakValueDictionary[Path, Combiner]] = WeakValueDictionary()
"""What this process has open, and what it is about to close."""
_places: Final[WeakKeyDictionary[Combiner, str | None]] = WeakKeyDictionary()
"""Where each of them was opened."""
os.register_at_fork(after_in_child=_by_path.clear)  # whoever closes it is the parent's


class OpenFolder:
    """A folder, taken from the first `open` until `close`. Used by the combiner's own thread."""

    def __init__(self, path: Path) -> None:
        """Takes nothing yet."""
        self.path = path
        self.place = calling_place()
        """Where the user's program asked for it."""
        self._lock: LockedFolder | None = None

    def open(self) -> Cores:
        """Take it, unless that was done, and recover what it holds."""
        if self._lock is None:
            try:
                self._lock = lock_folder(self.path)
            except FolderInUse as error:
                raise in_use(self.path, error) from error
            with no_space_told(self.path):
                _check_master(self.path)
        return Cores.open(self.path)

    def close(self) -> None:
        """Let go of it."""
        if self._lock is not None:
            self._lock.close()


def admit(folder: OpenFolder, combiner: Combiner) -> None:
    """Have it listed that this combiner is about to open the folder.

    Raises FolderInUse if a client of this process has it, InvalidRequest if it is no folder of one
    cell, Overloaded if this process may open no more files.
    """
    with no_space_told(folder.path):
        _check_single_node(folder.path)
    path = Path(os.path.realpath(folder.path))
    known = _by_path.get(path)
    if known is not None and not known.is_closed:
        gc.collect()  # if nobody can reach its client, it is being closed from here on
        known = _by_path.get(path)  # a finalizer may have opened the folder itself
    if known is not None and known.is_closed:
        known.wait_closed(CLOSE_SECONDS_MAX)
    if known is not None and not known.is_closed:
        place = _places.get(known)
        where = "" if place is None else f", which was opened at {place}"
        raise FolderInUse(
            f"{folder.path} is open already, by a client of this process{where}: close that one "
            "(`close`, or a `with` block), or go on with it",
            path=str(folder.path),
            **({} if place is None else {"opened_at": place}),
        )
    _by_path[path] = combiner
    _places[combiner] = folder.place


def _check_single_node(folder: Path) -> None:
    strangers = sorted(it.name for it in folder.glob("node-*") if it.name != "node-0")
    if strangers:
        raise InvalidRequest(
            f"{folder} holds the data of several nodes ({', '.join(strangers)} too): "
            "start it with `dodona up`",
            path=str(folder),
        )


def _check_master(folder: Path) -> None:
    if lacks_master(folder):
        path = folder / "master" / FILE_NAME
        raise DataCorrupted(
            f"{path} is missing beside the node's data: put it back, or restore a backup into "
            "another folder",
            path=str(path),
        )
