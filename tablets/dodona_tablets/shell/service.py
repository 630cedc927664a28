"""A node, put together: log, core, runtime, links, endpoint, and the few REST pages.

Owns: the order of starting (recover, then serve) and of stopping (refuse, drain, close).
"""

import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from fastapi import FastAPI, Response

from dodona._io.endpoint import Endpoint, EndpointLimits
from dodona._io.process import read_clock
from dodona._io.runtime import Runtime, RuntimeLimits
from dodona._io.serving import serve
from dodona.types import CellId
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.links import Links
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.outcome_page import add_outcome_page
from dodona_tablets.shell.settings import NodeSettings

_logger: Final = logging.getLogger("dodona.node")


def run_node(settings: NodeSettings) -> None:
    """Recover and serve until a signal comes. Raises DodonaError, SystemExit."""
    log = CellLog.open(settings.data_dir, settings.map_mib_max << 20)
    try:
        serve(*create_app(settings, log), settings, settings.port)
    finally:
        log.close()


def recover(settings: NodeSettings, log: CellLog) -> NodeCore:
    """The cell as its log has it, not serving yet. Raises DataCorrupted."""
    core = NodeCore(CellId(settings.cell), settings.address, settings.limits())
    count = 0
    began = read_clock()
    gc.disable()  # millions of objects are made here, and all of them stay
    for record in log.read():
        core.replay(record)
        count += 1
    gc.enable()
    gc.freeze()
    now = read_clock()
    core.start(now)
    seconds = (now.instant_us - began.instant_us) / 1e6
    _logger.info("cell %d: %d records replayed in %.2f s", settings.cell, count, seconds)
    return core


def create_app(settings: NodeSettings, log: CellLog) -> tuple[FastAPI, Endpoint]:
    """The REST pages and the data plane of a node over an open log."""
    core = recover(settings, log)
    limits = RuntimeLimits(
        waiting_count_max=settings.waiting_count_max,
        at_once_age_ms_max=settings.async_loss_ms_max,
        poll_us_max=settings.poll_us_max,
    )
    links = Links(core, settings.master_url)
    runtime = Runtime(core, log, links.handlers(), limits=limits, foresee=links.foresee)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        links.open(runtime)
        runtime.start()
        yield
        await runtime.close()
        await links.close()

    pages = FastAPI(title="Dodona tablet node", lifespan=lifespan)
    _add_pages(pages, core, runtime, log)
    add_outcome_page(pages, runtime)
    endpoint_limits = EndpointLimits(
        connection_count_max=settings.connection_count_max,
        unread_bytes_max=settings.unread_mib_max << 20,
    )
    cell = CellId(settings.cell)
    return pages, Endpoint(runtime, cell=cell, limits=endpoint_limits)


def _add_pages(pages: FastAPI, core: NodeCore, runtime: Runtime, log: CellLog) -> None:
    @pages.get("/healthz", operation_id="is_healthy")
    async def is_healthy() -> dict[str, str]:
        """The process is alive."""
        return {"status": "ok"}

    @pages.get("/readyz", operation_id="is_ready")
    async def is_ready(response: Response) -> dict[str, str]:
        """The cell serves: its log is replayed, the oracle has answered for its fence, and the
        master knows it as one of its cluster."""
        waits_for = core.waits_for
        if waits_for is None:
            return {"status": "ok"}
        response.status_code = 503
        return {"status": f"waiting for {waits_for}"}

    @pages.get("/v1/statistics", operation_id="get_statistics")
    async def get_statistics() -> Response:
        """What the cell and its log count."""
        counted = {
            "cell": core.statistics(),
            "runtime": runtime.statistics(),
            "log_bytes": log.size_bytes(),
        }
        return Response(msgspec.json.encode(counted), media_type="application/json")
