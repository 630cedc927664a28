"""A node, put together: log, chunks, core, runtime, links, endpoint, and the few REST pages.

Owns: the order of starting (recover, then serve) and of stopping (refuse, drain, close).
"""

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Response

from dodona._core.effects import RemoveChunks, RunJob, TruncateLog
from dodona._io.endpoint import Endpoint, EndpointLimits
from dodona._io.pages import create_application
from dodona._io.runtime import Runtime
from dodona._io.serving import serve
from dodona.types import CellId, Now
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.doubt_page import add_doubt_page
from dodona_tablets.shell.jobs import Jobs
from dodona_tablets.shell.links import Links
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.outcome_page import add_outcome_page
from dodona_tablets.shell.recovery import drain, recover
from dodona_tablets.shell.settings import NodeSettings

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread that makes a chunk may keep the event loop waiting for Python."""

_logger: Final = logging.getLogger("dodona.node")


def run_node(settings: NodeSettings) -> None:
    """Recover and serve until a signal comes. Raises DodonaError, SystemExit."""
    log = CellLog.open(settings.data_dir, settings.log_bytes_max)
    try:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        serve(*create_app(settings, log), settings, settings.port)
    finally:
        log.close()


def create_app(settings: NodeSettings, log: CellLog) -> tuple[FastAPI, Endpoint]:
    """The REST pages and the data plane of a node over an open log."""
    files = ChunkFiles(settings.data_dir)
    core = recover(settings, log, files)
    key = settings.cluster_key
    links = Links(core, settings.master_url, key)
    jobs = Jobs(
        files,
        settings.compaction_mib_per_s_max << 20,
        lambda token, result: runtime.call_from_thread(core.handle_job, token, result),
        lambda error: runtime.call_from_thread(_raise, error),
    )
    handlers: dict[type[Any], Any] = {
        **links.handlers(),
        RunJob: jobs.run,
        RemoveChunks: jobs.remove,
        TruncateLog: partial(jobs.truncate, log),
    }
    runtime = Runtime(
        core,
        log,
        handlers,
        limits=settings.runtime_limits(),
        foresee=links.foresee,
        keep_posted=lambda now: core.note_log(log.size_bytes(), log.fill_ratio(), now),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        links.open(runtime)
        runtime.start()
        yield
        await drain(core, runtime)
        await runtime.close()
        jobs.close()
        await links.close()

    pages = create_application(
        "Dodona tablet node", lifespan, partial(_not_ready_because, core), key
    )
    _add_pages(pages, core, runtime, log)
    add_outcome_page(pages, runtime)
    add_doubt_page(pages, core)
    endpoint_limits = EndpointLimits(
        connection_count_max=settings.connection_count_max,
        unread_bytes_max=settings.unread_mib_max << 20,
    )
    cell = CellId(settings.cell)
    return pages, Endpoint(runtime, cell=cell, limits=endpoint_limits, key=key)


def _not_ready_because(core: NodeCore) -> str | None:
    """A cell serves once its log is replayed, the oracle has answered for its fence, and the master
    knows it as one of its cluster."""
    return None if core.waits_for is None else f"waiting for {core.waits_for}"


def _raise(error: BaseException, _: Now) -> None:
    """On the core's thread: what went wrong in another ends the process."""
    raise error


def _add_pages(pages: FastAPI, core: NodeCore, runtime: Runtime, log: CellLog) -> None:
    @pages.get("/v1/statistics", operation_id="get_statistics")
    async def get_statistics() -> Response:
        """What the cell and its log count."""
        counted = {
            "cell": core.statistics(),
            "runtime": runtime.statistics(),
            "log_bytes": log.size_bytes(),
            "log_fill_ratio": log.fill_ratio(),
        }
        return Response(msgspec.json.encode(counted), media_type="application/json")
