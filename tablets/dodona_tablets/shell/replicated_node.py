"""Run a node whose log has copies on log replicas.

Owns: the order of such a start: lock the folder, take the log over, recover, serve. The chunks of
the cell are in an object store, and the folder has copies of them. So another machine can go on
without the folder. No command starts such a node yet.
"""

import asyncio

from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.replicated_log import ReplicatedCellLog, Replication
from dodona_tablets.shell.service import RecoveredNode, recover_node, run_on
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.net.folder import lock_folder
from dodona_wire.types import CellId


def run_replicated_node(settings: NodeSettings, replication: Replication) -> None:
    """Take the log over and serve until a signal comes. Raises DodonaError, SystemExit."""
    objects = open_objects(replication.object_store)
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
