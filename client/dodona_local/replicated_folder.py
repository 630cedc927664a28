"""Remember what a folder of a local cluster has, if its logs have copies.

Owns: the file `replication.json`: the random name of the cluster, how many replicas and nodes it
has, and where its chunks are. A node or a replica may lose its folder, so folders can't be counted.
Must not import: the servers.
"""

from pathlib import Path
from typing import Final

import msgspec

from dodona_local.adoption import check_startable, write_json
from dodona_local.errors import LaunchFailed
from dodona_wire.preload import preload_decoder

FILE_NAME: Final = "replication.json"
OBJECTS: Final = "objects"
"""The folder of the chunks, unless they are elsewhere."""
MEMBERS: Final = 3
"""The members of etcd: one may be away."""


@preload_decoder
class ReplicatedFolder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the folder of a cluster has, if its logs have copies."""

    name: str
    replica_count: int
    node_count: int
    object_store: str = ""
    """A URL, or nothing for the folder `objects`."""
    has_been_ready: bool = False
    """Whether all processes have been ready once. Then etcd has the documents of logs."""

    @classmethod
    def read(cls, folder: Path) -> "ReplicatedFolder | None":
        """Return what was written, or None if the logs of this folder have no copies. Raises
        LaunchFailed, also while the logs are getting their copies."""
        check_startable(folder)
        path = folder / FILE_NAME
        try:
            return msgspec.json.decode(path.read_bytes(), type=ReplicatedFolder)
        except FileNotFoundError:
            if not replicas_in(folder):
                return None
            text = f"{path} is missing beside log replicas: put it back, or restore a backup"
            raise LaunchFailed(text) from None
        except (OSError, msgspec.MsgspecError) as error:
            raise LaunchFailed(f"cannot read {path}: {error}") from error

    def write(self, folder: Path) -> None:
        """Write it durably. Raises DiskFull, LaunchFailed."""
        write_json(folder / FILE_NAME, self)


def replicas_in(folder: Path) -> list[Path]:
    """Return the folders of log replicas that are there, by number."""
    found = [it for it in folder.glob("replica-*") if it.name.removeprefix("replica-").isdecimal()]
    return sorted(found, key=lambda it: int(it.name.removeprefix("replica-")))


def members_in(folder: Path) -> list[int]:
    """Return the numbers of the members of etcd that have data."""
    return [it for it in range(MEMBERS) if (folder / "etcd" / f"member-{it}" / "member").is_dir()]
