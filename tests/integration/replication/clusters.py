"""Clusters whose logs have copies, for tests, and what is written into them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import dodona
from dodona_local import etcd_member
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from dodona_local.replicated_folder import MEMBERS, ReplicatedFolder
from dodona_replication.core.document import Document
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_options import EtcdOptions

SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
TIMEOUT_MS: Final = 60_000


@contextmanager
def opened(cluster: LocalCluster) -> Iterator[dodona.Client]:
    """Run a cluster for the length of the block, with a client of it."""
    with cluster, dodona.connect(cluster.master_url, timeout_ms=TIMEOUT_MS) as db:
        yield db


def replicated(folder: Path, count: int = 3, *, node_count: int = 1) -> LocalCluster:
    """A cluster with so many log replicas."""
    return LocalCluster(folder, node_count=node_count, replicas=Replicas(count))


def create(db: dodona.Client) -> None:
    db.create_table("//t", schema=SCHEMA, mount=True)


def write(db: dodona.Client, first: int, count: int) -> None:
    """Write rows, each in a transaction of its own."""
    for key in range(first, first + count):
        rows = [{"k": key, "v": key * key}]
        db.run_in_transaction(partial(dodona.Transaction.insert_rows, path="//t", rows=rows))


def make_chunks(db: dodona.Client) -> None:
    """Bring all rows into chunks."""
    db.unmount_table("//t")
    db.mount_table("//t")


def name_in(folder: Path) -> str:
    """The name of the cluster."""
    found = ReplicatedFolder.read(folder)
    assert found is not None
    return found.name


def document_of(folder: Path, log: str = "cell-0") -> Document:
    """The document of a log, while its cluster runs."""
    return asyncio.run(_read(folder, log))


async def _read(folder: Path, log: str) -> Document:
    urls = [f"unix://{etcd_member.socket_path(folder / 'etcd', it)}" for it in range(MEMBERS)]
    coordinator = EtcdCoordinator(EtcdOptions(urls, name_in(folder)))
    try:
        found = await coordinator.read(log)
    finally:
        await coordinator.close()
    assert found is not None
    return found.document
