"""Lay out what a local cluster needs for logs with copies: etcd, log replicas, an object store.

Owns: the plans of these processes, and the options that nodes get for them. The copies are all on
one machine, so they outlive processes and folders, and not the machine.
Must not import: the servers.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

from dodona_local import etcd_member
from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.ports import HOST
from dodona_local.replicated_folder import MEMBERS, OBJECTS, ReplicatedFolder
from dodona_local.supervisor import Plan
from dodona_wire.net.paths import place_of

COPIES: Final = 3
REPLICAS_MAX: Final = 16
STANDBYS_MAX: Final = 16


class Replicas(NamedTuple):
    """How many log replicas there are, where chunks are, and how many nodes stand by."""

    replica_count: int
    object_store: str = ""
    """A URL, or nothing for a folder beside the others."""
    standby_count: int = 0
    """Nodes without a cell: each takes over one whose node is silent."""
    chunk_cache_mib_max: int | None = None
    """The size above which copies of chunks in a node's folder go. None: all stay."""

    @property
    def port_count(self) -> int:
        return self.replica_count + self.standby_count + MEMBERS

    def check(self, folder: DataFolder, node_count: int) -> ReplicatedFolder:
        """Return what the folder has with these replicas. Raises LaunchFailed if these processes
        can't run here."""
        self.check_place(folder)
        wanted = ReplicatedFolder(random_name(), self.replica_count, node_count, self.object_store)
        return folder.check_replicated(wanted)

    def check_place(self, folder: DataFolder) -> None:
        """Raise LaunchFailed if these processes can't run in this folder."""
        if not COPIES <= self.replica_count <= REPLICAS_MAX:
            bounds = f"{COPIES} to {REPLICAS_MAX}"
            raise LaunchFailed(
                f"the number of log replicas must be {bounds}, not {self.replica_count}"
            )
        if not 0 <= self.standby_count <= STANDBYS_MAX:
            raise LaunchFailed(
                f"the number of standbys must be 0 to {STANDBYS_MAX}, not {self.standby_count}"
            )
        if (missing := etcd_member.missing_program()) is not None:
            raise LaunchFailed(f"log replicas need etcd, and {missing}, or start without replicas")
        longest = etcd_member.socket_path(folder.etcd, MEMBERS - 1)
        if len(str(longest).encode()) > etcd_member.SOCKET_BYTES_MAX:
            raise LaunchFailed(
                f"the path of {folder.path} is too long for the sockets of etcd: {longest} has "
                f"more than {etcd_member.SOCKET_BYTES_MAX} bytes. Choose a folder with a shorter "
                "path"
            )
        if "," in str(folder.path):
            text = f"the path of {folder.path} has a comma, and lists of sockets have commas, too"
            raise LaunchFailed(f"{text}: choose another folder")
        self.check_object_store()

    def check_object_store(self) -> None:
        """Check the URL of the object store. Raises LaunchFailed, InvalidRequest."""
        scheme, _, rest = self.object_store.partition("://")
        if self.object_store and (scheme not in ("s3", "file") or not rest.strip("/")):
            raise LaunchFailed(
                f"{self.object_store} is no URL of an object store: use s3://bucket/prefix, or "
                "file:///folder"
            )
        if scheme == "file" and not place_of(unquote(rest)).is_dir():
            raise LaunchFailed(f"there is no folder {rest}: make it, or mount it")

    def objects_folder(self, folder: DataFolder) -> Path | None:
        """Return the folder that gets the chunks, or None if they are not on a disk."""
        scheme, _, rest = self.object_store.partition("://")
        if not self.object_store:
            return folder.path / OBJECTS
        return Path(unquote(rest)) if scheme == "file" else None

    def plans(self, folder: DataFolder, cluster: str, ports: Iterator[int]) -> list[Plan]:
        """Return the plans of the replicas, and of the members of etcd."""
        replicas = []
        for index in range(self.replica_count):
            port = next(ports)
            words = ["replica", "--host", HOST, "--port", str(port), "--cluster", cluster]
            words += ["--data-dir", str(folder.replica(index))]
            url = f"http://{HOST}:{port}"
            name = f"replica {index}"
            replicas.append(Plan(name, "dodona_tablets", tuple(words), url, ends_last=True))
        return [*replicas, *(_member(folder.etcd, index, next(ports)) for index in range(MEMBERS))]

    def node_options(
        self, folder: DataFolder, cluster: str, plans: list[Plan]
    ) -> dict[str, object]:
        """Return the options that a node needs beside its usual ones. Raises LaunchFailed."""
        sockets = [etcd_member.socket_path(folder.etcd, it) for it in range(MEMBERS)]
        most = self.chunk_cache_mib_max
        return {
            **({} if most is None else {"chunk_cache_mib_max": most}),
            "cluster": cluster,
            "replicas": ",".join(it.url for it in plans if it.module == "dodona_tablets"),
            "etcd": ",".join(f"unix://{it}" for it in sockets),
            "object_store": self.object_store or folder.make_objects(),
        }


def random_name() -> str:
    """Return a name for a new cluster. Two folders may use one object store."""
    return f"local-{os.urandom(8).hex()}"


def _member(folder: Path, index: int, port: int) -> Plan:
    url = f"http://{HOST}:{port}"
    words = (str(folder), str(index), str(MEMBERS), url, str(os.getpid()))
    return Plan(
        f"etcd {index}",
        "dodona_local.etcd_member",
        words,
        url,
        ends_last=True,
        is_killed=True,  # a stop of all members takes seconds: each waits for the others
        ready_path=etcd_member.HEALTH_PATH,
    )
