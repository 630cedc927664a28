"""Put a node together: log, chunks, core, runtime, links, endpoint, and the few REST pages.

Owns: the order of starting (recover, then serve) and of stopping (refuse, drain, close).
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from dodona_replication.core.errors import LogLost
from dodona_server.answers import Application
from dodona_server.beside import running_beside
from dodona_server.disk_space import DiskSpace, no_space_told
from dodona_server.endpoint import Endpoint
from dodona_server.flushes import RuntimeStatistics
from dodona_server.front import Front
from dodona_server.lifecycle import Lifecycle
from dodona_server.listener import Listener, listener_of
from dodona_server.log_thread import DistantLog
from dodona_server.logs import tell
from dodona_server.metrics import LogReport, ServerReport
from dodona_server.notices import Readiness, look_around
from dodona_server.process import close_in_time, stop_process
from dodona_server.recovery_book import RecoveryBook
from dodona_server.runtime import Runtime
from dodona_server.serving import Served, endpoint_limits, serve
from dodona_server.tracing import server_spans, server_tracing
from dodona_tablets.core.counts import NodeStatistics
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.jobs import Jobs
from dodona_tablets.shell.links import Links
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.node_chunks import NodeChunks
from dodona_tablets.shell.node_log import NodeLog
from dodona_tablets.shell.notices import ProtocolViolations
from dodona_tablets.shell.recovery import drain, finish, keep_posted, recover
from dodona_tablets.shell.recovery_notes import RecoveryNotes
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.cores.effects import RemoveChunks, RunJob, TruncateLog
from dodona_wire.types import Now

if TYPE_CHECKING:  # most nodes have no copies, and no traces
    from dodona_server.traced_server import ServerTracing
    from dodona_tablets.shell.cache_jobs import CacheJobs
    from dodona_tablets.shell.chunk_cache import ChunkCache
    from dodona_tablets.shell.replication_metrics import ReplicationReport

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that makes a chunk may keep the event loop waiting for Python."""

_logger: Final = logging.getLogger("dodona.node")


def run_node(settings: NodeSettings) -> None:
    """Recover and serve until a signal comes. Raises DodonaError, SystemExit."""
    log = CellLog.open(settings.data_dir, settings.log_bytes_max)
    try:
        with listener_of(settings) as listener:
            serve_cell(
                settings,
                log,
                lambda: recover_node(settings, log, ChunkFiles(log.path)),
                listener,
            )
    finally:
        log.close()


def serve_cell(
    settings: NodeSettings,
    log: CellLog | DistantLog,
    recover_all: Callable[[], "RecoveredNode"],
    listener: Listener,
) -> None:
    """Recover on an open log, and serve until a signal comes. Raises DodonaError, SystemExit."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with no_space_told(settings.data_dir):
        served = create_app(settings, log, recover_all())
    serve(served, settings, listener)


class RecoveredNode(NamedTuple):
    """A core as its log and chunks have it, and what goes with it."""

    core: NodeCore
    log: NodeLog
    chunks: NodeChunks
    book: RecoveryBook
    report_copies: Callable[[], "ReplicationReport"] | None = None
    """Returns what is known of the copies of the log and of its chunks, if it has copies."""
    cache: "ChunkCache | None" = None
    """The chunks, if an object store has them, too."""


def recover_node(settings: NodeSettings, log: NodeLog, chunks: NodeChunks) -> RecoveredNode:
    """Recover the core, and write the start into the book. Raises DataCorrupted, Unavailable,
    OSError."""
    book = RecoveryBook.open(log.path)
    return RecoveredNode(recover(settings, log, chunks, book), log, chunks, book)


class NodeReport(NamedTuple):
    """The values that the metrics are made of."""

    server: ServerReport
    cell: NodeStatistics
    runtime: RuntimeStatistics
    log: LogReport
    connections: int
    replication: "ReplicationReport | None" = None


def create_app(
    settings: NodeSettings, records: CellLog | DistantLog, node: RecoveredNode
) -> Served:
    """Return the REST pages and the data plane of a recovered node. `records` is its log, as the
    runtime sees it."""
    core, log, _, book, report_copies, _ = node
    notes = RecoveryNotes(book, core.recovered)
    admission = settings.admission
    links = Links(core, settings.master_url, settings.cluster_key)
    spans = server_spans("node", settings.trace_url, settings.trace_ratio, cell=settings.cell_id)
    tracing = None if spans is None else server_tracing(spans, "node")
    runtime, jobs, cache_jobs = _make_runtime(settings, records, node, links, tracing)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        links.open(runtime)
        async with joined(records):
            runtime.start()
            notes.start()
            async with running_beside(
                look_around(Readiness(lifecycle).look, ProtocolViolations(core.cell).look)
            ):
                yield
            await drain(core, runtime)
            await close_in_time(_close(runtime, notes, jobs, cache_jobs))
        await links.close()
        if spans is not None:
            await spans.close()

    lifecycle = _lifecycle(core, runtime, links)
    cell, limits = settings.cell_id, endpoint_limits(settings)
    endpoint = Endpoint(runtime, cell=cell, limits=limits, admission=admission, tracing=tracing)

    def report() -> NodeReport:
        return NodeReport(
            ServerReport.of(lifecycle, str(settings.cell)),
            core.statistics(),
            runtime.statistics(),
            LogReport(log.size_bytes(), log.fill_ratio(), log.written_bytes),
            endpoint.connection_count,
            None if report_copies is None else report_copies(),
        )

    def make_pages() -> Application:
        from dodona_tablets.shell.pages import create_pages

        return create_pages(core, runtime, log, book, lifecycle, admission, report, report_copies)

    return Served(Front(lifecycle, lifespan, make_pages, is_asked_often=False), endpoint, lifecycle)


def _make_runtime(
    settings: NodeSettings,
    records: CellLog | DistantLog,
    node: RecoveredNode,
    links: Links,
    tracing: "ServerTracing | None",
) -> "tuple[Runtime, Jobs, CacheJobs | None]":
    """Return the runtime of a recovered node, and the threads that work for it."""
    core, log, chunks = node.core, node.log, node.chunks
    jobs = Jobs(
        chunks,
        settings.compaction_mib_per_s_max << 20,
        lambda token, result: runtime.call_from_thread(core.handle_job, token, result),
        lambda error: runtime.call_from_thread(_raise, error),
        shares_loop=True,
    )
    handlers = _handlers(links, jobs, log)
    cache_jobs = _cache_jobs(node.cache, core, handlers, lambda: runtime)
    runtime = Runtime(
        core,
        records,
        handlers,
        stop=end_process,
        watch_flush=None if tracing is None else tracing.watch_flush,
        limits=settings.runtime_limits(),
        foresee=links.foresee,
        keep_posted=partial(keep_posted, core, log, DiskSpace(settings.data_dir)),
    )
    return runtime, jobs, cache_jobs


@asynccontextmanager
async def joined(log: CellLog | DistantLog) -> AsyncIterator[None]:
    """Let a log elsewhere live in the running event loop, and give it up afterwards."""
    if not isinstance(log, DistantLog):
        yield
        return
    await log.join()
    try:
        yield
    finally:
        await log.leave()


def _handlers(links: Links, jobs: Jobs, log: NodeLog) -> dict[type[Any], Any]:
    return {
        **links.handlers(),
        RunJob: jobs.run,
        RemoveChunks: jobs.remove,
        TruncateLog: partial(jobs.truncate, log),
    }


def _cache_jobs(
    cache: "ChunkCache | None",
    core: NodeCore,
    handlers: dict[type[Any], Any],
    runtime: Callable[[], Runtime],
) -> "CacheJobs | None":
    """Return the threads that bring chunks and let them go, if an object store has them. Adds their
    effects to the handlers. `runtime` returns the runtime once it is there."""
    if cache is None:
        return None
    from dodona_tablets.shell.cache_jobs import CacheJobs

    def call(method: Callable[..., None], *arguments: Any) -> None:
        runtime().call_from_thread(method, *arguments)

    jobs = CacheJobs(cache, partial(call, core.handle_chunk), partial(call, _raise))
    handlers |= jobs.handlers()
    return jobs


async def _close(
    runtime: Runtime, notes: RecoveryNotes, jobs: Jobs, cache_jobs: "CacheJobs | None"
) -> None:
    await runtime.close()
    await notes.close()
    await asyncio.to_thread(jobs.close)
    if cache_jobs is not None:
        await asyncio.to_thread(cache_jobs.close)


def _lifecycle(core: NodeCore, runtime: Runtime, links: Links) -> Lifecycle:
    def why_not_ready() -> str | None:
        """Return why the cell does not serve, or None. It serves once its log is replayed, the
        oracle has answered for its fence, and the master knows it as a cell of its cluster. It also
        needs a disk that answers."""
        if core.waits_for is not None:
            reason = "" if links.refusal is None else f": {links.refusal}"
            return f"waiting for {core.waits_for}{reason}"
        return runtime.why_late()

    return Lifecycle(
        why_not_ready,
        lambda: runtime.failure,
        partial(finish, core, runtime),
        runtime.stalled_us,
    )


def end_process(error: BaseException) -> NoReturn:
    """End this process without running another line. If another process took the log over, that is
    no fault, and the next start finds out what to do."""
    if not isinstance(error, LogLost):
        stop_process(error)
    tell(_logger, logging.WARNING, "log_lost", error.message, **error.attributes)
    end_for_another_start()


def end_for_another_start() -> NoReturn:
    """End this process without running another line, with status 75. What is in its memory is of no
    use to the next one."""
    logging.shutdown()
    os._exit(os.EX_TEMPFAIL)


def _raise(error: BaseException, _: Now) -> None:
    """Raise an error of another thread on the core's thread, where it ends the process."""
    raise error
