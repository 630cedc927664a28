"""Run a node whose log has copies on log replicas.

Owns: the order of such a start: lock the folder, take the log over, recover, serve. No command
starts such a node yet: the chunks of a cell are still in the folder of its node.
"""

import asyncio
from functools import partial

from dodona_tablets.shell.replicated_log import ReplicatedCellLog, Replication
from dodona_tablets.shell.service import RecoveredNode, recover_node, run_on
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.net.folder import lock_folder
from dodona_wire.types import CellId


def run_replicated_node(settings: NodeSettings, replication: Replication) -> None:
    """Take the log over and serve until a signal comes. Raises DodonaError, SystemExit."""
    folder = lock_folder(settings.data_dir)
    cell = CellId(settings.cell)
    log = ReplicatedCellLog(folder, cell, settings.log_bytes_max, replication)

    def recover() -> RecoveredNode:
        return asyncio.run(log.prepare(partial(recover_node, settings, log)))

    try:
        run_on(log, settings, recover)
    finally:
        log.close()
