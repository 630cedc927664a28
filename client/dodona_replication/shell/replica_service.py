"""The process of a log replica: it puts together the store, the core, the runtime and the sockets.

Owns: only the wiring, and what the core learns about the disk.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from dodona_replication.core.replica import ReplicaCore, ReplicaStatistics
from dodona_replication.shell.replica_settings import ReplicaSettings
from dodona_replication.shell.replica_store import ReplicaStore
from dodona_server.answers import Application
from dodona_server.beside import running_beside
from dodona_server.disk_space import DiskSpace, no_space_told
from dodona_server.endpoint import Endpoint
from dodona_server.flushes import RuntimeStatistics
from dodona_server.front import Front
from dodona_server.lifecycle import Lifecycle
from dodona_server.listener import listener_of
from dodona_server.logs import tell
from dodona_server.metrics import LogReport, ServerReport
from dodona_server.notices import Readiness, look_around
from dodona_server.process import close_in_time, read_clock
from dodona_server.runtime import Runtime
from dodona_server.scheduling import take_short_turns
from dodona_server.serving import Served, endpoint_limits, serve
from dodona_wire.cores.effects import ReadEntries
from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.replicas import LogEntries, ReplicaReply
from dodona_wire.types import Now

LOGS_SHOWN_MAX: Final = 256
"""Metrics have a label for each log, but not for more than this."""
LOOK_US: Final = 20_000
"""The pause between two looks at the space, in µs."""

_logger: Final = logging.getLogger("dodona.replica")


def run_replica(settings: ReplicaSettings) -> None:
    """Recover the replica and serve until a signal comes. Raises DodonaError, SystemExit."""
    take_short_turns()  # every commit of every cell waits for it
    with listener_of(settings) as listener:
        store = ReplicaStore.open(settings.data_dir, settings.cluster, settings.map_bytes_max)
        try:
            with no_space_told(settings.data_dir):
                served = create_replica(settings, store)
            serve(served, settings, listener)
        finally:
            store.close()


class ReplicaReport(NamedTuple):
    """The values that the replica's metrics show."""

    server: ServerReport
    core: ReplicaStatistics
    runtime: RuntimeStatistics
    log: LogReport
    connections: int
    owners_silent_ms: dict[str, int]
    """By log: see `LogSummary`. Empty if there are more than `LOGS_SHOWN_MAX`."""
    disk_free_bytes: int | None
    disk_free_ratio: float | None


class ReplicaDisk:
    """The store and its disk, as the core sees them."""

    def __init__(self, core: ReplicaCore, store: ReplicaStore) -> None:
        self._core = core
        self._store = store
        self.space = DiskSpace(store.path)
        self._is_short = False
        """Whether the last look found little space."""
        self._look_at_us = 0

    def keep_posted(self, now: Now) -> None:
        """Tell the core whether there is space for new entries. Looks at most 50 times a second:
        what comes meanwhile fits into the spare space."""
        if now.instant_us >= self._look_at_us:
            self._look_at_us = now.instant_us + LOOK_US
            self._core.note_disk(self._shortage(), now)

    def sweep(self, now: Now) -> None:
        """While no owner sends entries, let the store go on with a long removal, and empty its
        journal. The first look that finds little space empties it, too: later there may be none."""
        shortage = self._shortage()
        self._core.note_disk(shortage, now)
        is_due = self._store.is_idle()
        if shortage is not None:
            is_due = self._store.has_waiting and not self._is_short
        self._is_short = shortage is not None
        if self._store.has_garbage or is_due:
            self._core.sweep(now)

    def _shortage(self) -> str | None:
        return self.space.shortage() or self._store.shortage()

    def read(self, effect: ReadEntries) -> None:
        """Answer with entries. No flush is under way: the runtime holds this effect until then. A
        page is short, so the loop reads it itself."""
        page = effect.first_index, effect.last_index, effect.epoch, effect.bytes_max
        body: ReplicaReply
        try:
            body = LogEntries(self._store.read(effect.log, *page))
        except DataCorrupted as error:
            _logger.error("%s", error)
            body = failure_of(error)
        replier, request_id = effect.route
        replier.reply(request_id, body)


def owners_silent_ms(core: ReplicaCore, now: Now) -> dict[str, int]:
    """Return how long the owner of each log has been silent. Of many logs, none: a part of them
    would make those that it leaves out look as if they had no owner."""
    found = core.summaries(now, LOGS_SHOWN_MAX + 1)
    return {it.log: it.owner_silent_ms for it in found} if len(found) <= LOGS_SHOWN_MAX else {}


def create_replica(settings: ReplicaSettings, store: ReplicaStore) -> Served:
    """Return the REST pages and the data plane of a replica over an open store."""
    identity = store.identity
    logs = store.logs()
    core = ReplicaCore(identity.cluster, identity.replica, logs, read_clock(), settings.limits())
    named = {"replica": identity.replica, "cluster": identity.cluster, "logs": len(logs)}
    tell(_logger, logging.INFO, "recovered", f"recovered {settings.data_dir}", **named)
    disk = ReplicaDisk(core, store)
    runtime = Runtime(
        core,
        store,
        {ReadEntries: disk.read},
        limits=settings.runtime_limits(),
        keep_posted=disk.keep_posted,
    )

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        runtime.start()
        looks = (Readiness(lifecycle).look, lambda: runtime.call(disk.sweep))
        async with running_beside(look_around(*looks)):
            yield
        await close_in_time(runtime.close())

    async def finish() -> None:
        runtime.call(core.finish)
        await runtime.finish()

    admission = settings.admission
    lifecycle = Lifecycle(runtime.why_late, lambda: runtime.failure, finish, runtime.stalled_us)
    endpoint = Endpoint(runtime, limits=endpoint_limits(settings), admission=admission)

    def report() -> ReplicaReport:
        return ReplicaReport(
            ServerReport.of(lifecycle, identity.replica),
            core.statistics(),
            runtime.statistics(),
            LogReport(*store.size(), store.written_bytes),
            endpoint.connection_count,
            owners_silent_ms(core, read_clock()),
            disk.space.free_bytes,
            disk.space.free_ratio,
        )

    def make_pages() -> Application:
        from dodona_replication.shell.replica_pages import create_pages

        return create_pages(core, runtime, identity, lifecycle, admission, report)

    return Served(Front(lifecycle, lifespan, make_pages, is_asked_often=False), endpoint, lifecycle)
