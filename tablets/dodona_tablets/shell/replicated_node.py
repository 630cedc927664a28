"""Run a node whose log has copies on log replicas.

Owns: the order of such a start: lock the folder, find a log without an owner, take it over,
recover, serve. The chunks of the cell are in an object store, and the folder has copies of them. So
another machine can go on without the folder. While other processes own all logs, this one stands
by. A cell of another node that it can't recover is left to others for a while (see
`dodona_replication.core.attempts`).

It loads etcd's client, so a process must not fork after an import.
"""

import asyncio
import logging
from typing import Final, NamedTuple

from dodona_replication.core.attempts import Attempts
from dodona_replication.core.errors import LogLost
from dodona_replication.core.owner_effects import OwnerLimits
from dodona_replication.core.standby import (
    Candidate,
    FoundLog,
    OwnLog,
    Standby,
    StandbyLimits,
)
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.etcd import EtcdCoordinator
from dodona_replication.shell.etcd_options import EtcdOptions
from dodona_replication.shell.first_look import Copies
from dodona_replication.shell.owner_host import TakeOverStuck
from dodona_replication.shell.replica_links import ReplicaLinks
from dodona_replication.shell.standby_host import StandbyHost
from dodona_server.listener import Listener, listener_of
from dodona_server.logs import tell
from dodona_server.process import read_clock
from dodona_tablets.shell.attempt_file import read_attempts, write_attempts
from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_tablets.shell.chunk_files import CHUNKS_NAME, numbers_in
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.log import LOG_NAME
from dodona_tablets.shell.log_bounds import BOUNDS_NAME
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
    end_for_another_start,
    end_process,
    recover_node,
    serve_cell,
)
from dodona_tablets.shell.settings import NodeSettings
from dodona_tablets.shell.standby_pages import StandbyPages
from dodona_wire.errors import DodonaError, InvalidRequest
from dodona_wire.net.folder import LockedFolder, lock_folder

_logger: Final = logging.getLogger("dodona.node")


STUCK_S_MAX: Final = 20.0
"""How long a take-over of a cell of another node may not get on, before this process gives it up. A
node waits for its own cell without limit: no other cell is its task."""


def run_replicated_node(settings: NodeSettings) -> None:
    """Take a log over and serve until a signal comes. Raises DodonaError, SystemExit."""
    replication = replication_of(settings)
    objects = CountedObjects(open_objects(settings.object_store))
    folder = lock_folder(settings.data_dir)
    try:
        _check_no_other_node(folder)
        with listener_of(settings) as listener:
            since_us = read_clock().instant_us
            while True:
                attempts = read_attempts(folder)
                search = _Search(settings, replication, folder, listener, attempts)
                found = asyncio.run(search.find(since_us))
                start = _Start(settings, replication, folder, objects, found, attempts)
                try:
                    serve_cell(start.settings, start.log, start.recover, listener)
                except _NotTaken as error:
                    tell(_logger, logging.INFO, "not_taken", str(error), log=found.log)
                else:
                    return
    finally:
        folder.close()


def _check_no_other_node(folder: LockedFolder) -> None:
    """Check that the folder is new, or that of a node whose log has copies. A start removes chunks
    that its log does not name. Those of a node with a log of its own are all that there is of their
    rows. A node with copies writes who it is before it makes any chunk. Raises InvalidRequest."""
    path = folder.path
    has_log = any(path.glob(f"{LOG_NAME}/*")) or (path / BOUNDS_NAME).exists()
    if has_log or (former_owner(folder) is None and numbers_in(path / CHUNKS_NAME)):
        raise InvalidRequest(
            f"{path} is the folder of a node whose log has no copies: it has "
            f"{'a log' if has_log else 'chunks'} of its own. Give this node a new folder, start it "
            "without --replicas, or give the log copies with `dodona cluster adopt`.",
            path=str(path),
        )


class _NotTaken(Exception):
    """Another process took the log over first, or this one gave it up. It has served nothing."""


class _Search(NamedTuple):
    """The search for a log without an owner."""

    settings: NodeSettings
    replication: Replication
    folder: LockedFolder
    listener: Listener
    attempts: Attempts

    async def find(self, since_us: int) -> FoundLog:
        """Return a log without an owner. The own one comes first. `since_us` is when this process
        began to look, as an instant."""
        settings, replication, own = self.settings, self.replication, None
        if settings.cell is not None:
            own = OwnLog(log_of(settings.cell_id), former_owner(self.folder))
        limits = StandbyLimits(silence_ms=replication.limits.silent_ms)
        now = read_clock()
        again_us = self.attempts.may_take_at_us(now)
        candidate = Candidate(replication.cluster, LOG_PREFIX, settings.address)
        core = Standby(candidate, limits, now, own, since_us, again_us)
        links = ReplicaLinks(replication.cluster, "standby", replication.replicas, replication.key)

        def stand_by() -> None:
            pages = StandbyPages(settings.cell, settings.admission, lambda: host.report)
            self.listener.standby_pages = pages
            text = "this node stands by for cells whose owners are silent"
            tell(_logger, logging.INFO, "stands_by", text, own_cell=settings.cell)

        host = StandbyHost(core, replication.open_coordinator, links, stand_by)
        try:
            return await host.wait()
        finally:
            self.listener.standby_pages = None


class _Start:
    """The start of a node as the owner of a log that was found."""

    def __init__(
        self,
        settings: NodeSettings,
        replication: Replication,
        folder: LockedFolder,
        objects: CountedObjects,
        found: FoundLog,
        attempts: Attempts,
    ) -> None:
        cell = cell_of(found.log)
        self.settings = settings.hosting(cell)
        self.log = ReplicatedCellLog(folder, cell, settings.log_bytes_max, replication)
        self._is_own = cell == settings.cell
        self._cluster = replication.cluster
        self._folder = folder
        self._objects = objects
        self._found = found
        self._attempts = attempts
        self._is_recovering = False

    def recover(self) -> RecoveredNode:
        """Take the log over, and recover the cell. Raises _NotTaken, DodonaError, SystemExit, and
        OSError."""
        stuck_s = None if self._is_own else STUCK_S_MAX
        self.log.note_owner()
        try:
            made = self.log.take(self._recover, self._found.seen, stuck_s)
        except LogLost as error:
            self._forget_attempt()
            if self._is_recovering:
                end_process(error)  # what was recovered would stay in memory
            raise _NotTaken(error.message) from error
        except (TakeOverStuck, DodonaError, OSError) as error:
            if self._is_own:
                raise
            self._give_up(error)
            if self._is_recovering:
                end_for_another_start()
            raise _NotTaken(str(error)) from error
        self._forget_attempt()
        return made

    def _recover(self) -> RecoveredNode:
        self._is_recovering = True
        if not self._is_own:  # this process may end before it knows the outcome
            self._attempts.begin(self._found.log, read_clock())
            write_attempts(self._folder, self._attempts)
        names = ChunkNames(self._cluster, cell_of(self._found.log), self.log.epoch)
        chunks = ChunkCache(self._folder.path, self._objects, names)

        def report() -> ReplicationReport:
            cache = chunks.counts.report(self.settings.chunk_cache_bytes_max)
            return ReplicationReport(self.log.report(), self._objects.counts(), cache)

        node = recover_node(self.settings, self.log, chunks)
        return node._replace(report_copies=report, cache=chunks)

    def _give_up(self, error: Exception) -> None:
        """Leave the log to others for a while, and say so."""
        log, now = self._found.log, read_clock()
        note = self._attempts.fail if self._is_recovering else self._attempts.begin
        attempt = note(log, now)
        write_attempts(self._folder, self._attempts)
        pause_s = attempt.pause_ms / 1000
        text = f"gave the take-over of log {log} up, and leaves it alone for {pause_s:g} s: {error}"
        fields = {"log": log, "attempts": attempt.count, "pause_s": pause_s, "reason": str(error)}
        tell(_logger, logging.WARNING, "gave_up", text, **fields)

    def _forget_attempt(self) -> None:
        if self._found.log in self._attempts.by_log:
            self._attempts.succeed(self._found.log)
            write_attempts(self._folder, self._attempts)


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
