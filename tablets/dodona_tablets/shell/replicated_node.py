"""Run a node whose log has copies on log replicas.

Owns: the order of such a start: lock the folder, take the log over, recover, serve. The chunks of
the cell are in an object store, and the folder has copies of them. So another machine can go on
without the folder. It loads etcd's client, so a process must not fork after an import.
"""

import asyncio

from dodona_replication.core.owner_effects import OwnerLimits
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_replication.shell.owner_host import Copies
from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.replicated_log import ReplicatedCellLog, Replication
from dodona_tablets.shell.service import RecoveredNode, recover_node, run_on
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.net.folder import lock_folder
from dodona_wire.types import CellId


def run_replicated_node(settings: NodeSettings) -> None:
    """Take the log over and serve until a signal comes. Raises DodonaError, SystemExit."""
    replication = replication_of(settings)
    objects = open_objects(settings.object_store)
    folder = lock_folder(settings.data_dir)
    cell = CellId(settings.cell)
    log = ReplicatedCellLog(folder, cell, settings.log_bytes_max, replication)

    def recover_it() -> RecoveredNode:
        names = ChunkNames(replication.cluster, cell, log.epoch)
        return recover_node(settings, log, ChunkCache(folder.path, objects, names))

    def recover() -> RecoveredNode:
        return asyncio.run(log.prepare(recover_it))

    try:
        run_on(log, settings, recover)
    finally:
        log.close()


def replication_of(settings: NodeSettings) -> Replication:
    """Return where the copies are, by the settings. Raises InvalidRequest."""
    options = EtcdOptions(
        settings.etcd_urls,
        settings.cluster,
        settings.etcd_user,
        settings.etcd_password(),
        settings.etcd_ca_file,
        settings.etcd_certificate_file,
        settings.etcd_key_file,
    )

    async def open_coordinator() -> Coordinator:
        return EtcdCoordinator(options)

    return Replication(
        settings.cluster,
        settings.replica_urls,
        open_coordinator,
        settings.cluster_key,
        Copies(settings.copies, settings.copies_min),
        OwnerLimits(lease_ms=settings.lease_ms),
    )
