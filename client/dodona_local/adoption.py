"""Remember an adoption: the change of a folder from logs of its nodes to logs with copies.

Owns: the file `adoption.json`, its states, and what is said of a folder that can't be started. The
file is there from the first step until the user finishes the adoption, or has undone it.
Must not import: the servers.
"""

import enum
import shlex
from pathlib import Path
from typing import Final

import msgspec

from dodona_local.errors import LaunchFailed, unwritable
from dodona_wire.net.folder import make_whole, private_file
from dodona_wire.preload import preload_decoder

FILE_NAME: Final = "adoption.json"
PLAIN: Final = "plain"
"""The folder that keeps the cluster as it was: the folders of the nodes, and a copy of the
master's."""


class State(enum.StrEnum):
    """The step that has begun. Each step can be repeated."""

    COPYING = "copying"
    """Replicas get the logs, and the object store the chunks. The nodes' folders are in place."""
    MOVING = "moving"
    """The copies are complete. The nodes' folders move into `plain`."""
    ADOPTED = "adopted"
    """The cluster can be started with replicas."""
    UNDOING = "undoing"
    """The nodes' folders move back, and the copies aside."""


class CellCopy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the copy of a cell's log ended when it was complete."""

    cell: int
    epoch: int
    last_index: int


@preload_decoder
class Adoption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of an adoption."""

    state: State
    name: str
    """The random name of the cluster."""
    replica_count: int
    node_count: int
    object_store: str = ""
    """A URL, or nothing for the folder `objects`."""
    replicas: tuple[str, ...] = ()
    """The ids of the replicas, by number, once the copies are complete."""
    cells: tuple[CellCopy, ...] = ()

    @property
    def options(self) -> str:
        """Return the options that name the replicas and the object store on a command line."""
        words = ["--replicas", str(self.replica_count)]
        if self.object_store:
            words += ["--object-store", self.object_store]
        return shlex.join(words)

    @classmethod
    def read(cls, folder: Path) -> "Adoption | None":
        """Return what was written, or None if there is no adoption. Raises LaunchFailed."""
        path = folder / FILE_NAME
        if not path.exists():  # which takes no descriptor: an embedded database may lack one
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=Adoption)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise LaunchFailed(f"cannot read {path}: {error}") from error

    def write(self, folder: Path) -> None:
        """Write it durably. Raises DiskFull, LaunchFailed."""
        write_json(folder / FILE_NAME, self)


def start_of(path: Path, adoption: Adoption) -> str:
    """Return the command that starts an adopted cluster."""
    nodes = f"--nodes {adoption.node_count}"
    return f"dodona up --data-dir {shlex.quote(str(path))} {nodes} {adoption.options}"


def check_startable(folder: Path) -> None:
    """Refuse a folder whose adoption is under way, and one that an adoption keeps. Raises
    LaunchFailed."""
    place = folder.resolve()
    if place.name == PLAIN and (place.parent / FILE_NAME).exists():
        raise LaunchFailed(
            f"{folder} keeps a cluster as it was before its adoption: copy it, and start the copy"
        )
    known = Adoption.read(folder)
    if known is None or known.state is State.ADOPTED:
        return
    command = f"dodona cluster adopt {shlex.quote(str(folder))}"
    if known.state is State.UNDOING:
        todo = f"run `{command} --undo` again"
    else:
        todo = f"run `{command} {known.options}` again, or `{command} --undo`"
    raise LaunchFailed(f"the logs of {folder} are getting copies, which has not ended: {todo}")


def write_json(path: Path, content: msgspec.Struct) -> None:
    """Write a file durably, or leave it as it was. Raises DiskFull, LaunchFailed."""
    text = msgspec.json.encode(content)

    def make(unfinished: Path) -> None:
        with private_file(unfinished, "wb") as file:
            file.write(text)

    try:
        make_whole(path, make, is_anew=True)
    except OSError as error:
        raise unwritable(path, error) from error
