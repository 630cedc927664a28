"""Run a node whose log has copies on log replicas.

Owns: the order of such a start: lock the folder, find a log without an owner, take it over,
recover, serve. The chunks of the cell are in an object store, and the folder has copies of them. So
another machine can go on without the folder. While other processes own all logs, this one stands
by.

It loads etcd's client, so a process must not fork after an import.
"""

import asyncio
import logging
from typing import Final

from dodona_replication.core.errors import LogLost
from dodona_replication.core.owner_effects import OwnerLimits
from dodona_replication.core.standby import FoundLog, OwnLog, Standby, StandbyLimits
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_replication.shell.owner_host import Copies
from dodona_replication.shell.replica_links import ReplicaLinks
from dodona_replication.shell.standby_host import StandbyHost
from dodona_server.listener import Listener
from dodona_server.logs import tell
from dodona_server.process import read_clock
from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.object_counts import CountedObjects
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.replicated_log import (
    LOG_PREFIX,
    ReplicatedCellLog,
    Replication,
    cell_of,
    former_owner,
    log_of,
)
from dodona_tablets.shell.replication_metrics import ReplicationReport
from dodona_tablets.shell.service import (
    RecoveredNode,
    end_process,
    recover_node,
    serve_cell,
)
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.net.folder import LockedFolder, lock_folder

_logger: Final = logging.getLogger("dodona.node")


def run_replicated_node(settings: NodeSettings) -> None:
    """Take a log over and serve until a signal comes. Raises DodonaError, SystemExit."""
    replication = replication_of(settings)
    objects = CountedObjects(open_objects(settings.object_store))
    folder = lock_folder(settings.data_dir)
    try:
        with Listener(settings.host, settings.port) as listener:
            since_us = read_clock().instant_us
            while True:
                found = asyncio.run(_find_log(settings, replication, folder, listener, since_us))
                try:
                    _serve(settings, replication, folder, objects, found, listener)
                except _NotTaken as error:
                    tell(_logger, logging.INFO, "not_taken", str(error), log=found.log)
                else:
                    return
    finally:
        folder.close()


class _NotTaken(Exception):
    """Another process took the log over first, so this one has served nothing."""


async def _find_log(
    settings: NodeSettings,
    replication: Replication,
    folder: LockedFolder,
    listener: Listener,
    since_us: int,
) -> FoundLog:
    """Return a log without an owner. The own one comes first. `since_us` is when this process began
    to look, as an instant."""
    own = None
    if settings.cell is not None:
        own = OwnLog(log_of(settings.cell_id), former_owner(folder))
    limits = StandbyLimits(silence_ms=replication.limits.silent_ms)
    core = Standby(replication.cluster, LOG_PREFIX, limits, read_clock(), own, since_us)
    links = ReplicaLinks(replication.cluster, "standby", replication.replicas, replication.key)

    def stand_by() -> None:
        listener.is_standing_by = True
        text = "this node stands by for cells whose owners are silent"
        tell(_logger, logging.INFO, "stands_by", text, own_cell=settings.cell)

    try:
        return await StandbyHost(core, replication.open_coordinator, links, stand_by).wait()
    finally:
        listener.is_standing_by = False


def _serve(
    settings: NodeSettings,
    replication: Replication,
    folder: LockedFolder,
    objects: CountedObjects,
    found: FoundLog,
    listener: Listener,
) -> None:
    """Take this log over, and serve its cell until a signal comes. Raises _NotTaken, DodonaError,
    SystemExit."""
    cell = cell_of(found.log)
    here = settings.hosting(cell)
    log = ReplicatedCellLog(folder, cell, settings.log_bytes_max, replication)

    is_recovering = False

    def recover_it() -> RecoveredNode:
        nonlocal is_recovering
        is_recovering = True
        chunks = ChunkCache(folder.path, objects, ChunkNames(replication.cluster, cell, log.epoch))

        def report() -> ReplicationReport:
            return ReplicationReport(log.report(), objects.counts(), chunks.cached_bytes)

        return recover_node(here, log, chunks)._replace(report_copies=report)

    def recover() -> RecoveredNode:
        log.note_owner()
        try:
            return asyncio.run(log.prepare(recover_it, found.seen))
        except LogLost as error:
            if is_recovering:
                end_process(error)  # what was recovered would stay in memory
            raise _NotTaken(error.message) from error

    serve_cell(here, log, recover, listener)


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
