"""The master process: store, core, runtime and sockets, put together.

Owns: nothing but the wiring, and what "ready" means for a master.
"""

import asyncio
import logging
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import FastAPI

from dodona._core.recoveries import Recovery
from dodona._io.beside import running_beside
from dodona._io.door import Door
from dodona._io.endpoint import Endpoint, EndpointLimits
from dodona._io.flushes import RuntimeStatistics
from dodona._io.life import Life
from dodona._io.logs import tell
from dodona._io.metrics import LogReport, Metrics, ServerReport
from dodona._io.notices import Readiness, look_around
from dodona._io.pages import add_metrics, create_application
from dodona._io.process import close_in_time, read_clock
from dodona._io.recovery_book import RecoveryBook, add_recoveries_page
from dodona._io.runtime import Runtime, RuntimeLimits
from dodona._io.scheduling import take_short_turns
from dodona._io.serving import Served, serve
from dodona._io.statistics_page import add_statistics_page
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.catalog import Attendance
from dodona_oracle.core.master import MasterCore, MasterStatistics
from dodona_oracle.shell.metrics import MASTER_METRICS
from dodona_oracle.shell.rest import add_operations
from dodona_oracle.shell.settings import MasterSettings
from dodona_oracle.shell.store import MasterStore
from dodona_oracle.shell.transactions_page import add_transactions_page

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_logger: Final = logging.getLogger("dodona.master")


def run_master(settings: MasterSettings) -> None:
    """Recover and serve until a signal comes. Raises DodonaError, SystemExit."""
    take_short_turns()  # every commit waits for a timestamp, which is made in no time
    store = MasterStore.open(settings.data_dir, settings.map_mib_max << 20)
    try:
        book = RecoveryBook.open(store.path)
        with Door(settings.host, settings.port) as door:
            core = recover(store, settings, book)
            count = core.statistics().catalog.table_count
            text = f"recovered {settings.data_dir}"
            tell(_logger, logging.INFO, "recovered", text, tables=count)
            serve(create_master(core, store, settings, book), settings, door)
    finally:
        store.close()


def recover(store: MasterStore, settings: MasterSettings, book: RecoveryBook) -> MasterCore:
    """The master as its store has it; the start is in the book. Raises DataCorrupted."""
    began = read_clock()
    items = list(store.items())
    core = MasterCore.recover(
        items,
        began,
        AllocatorSettings(window_us=settings.window_ms * 1000, renew_us=settings.renew_ms * 1000),
        read_machine(),
    )
    took_us = read_clock().instant_us - began.instant_us
    book.begin(
        Recovery(
            began.unix_us,
            took_us // 1000,
            record_count=len(items),
            size_bytes=store.size()[0],
            transaction_count=core.statistics().catalog.tree_transaction_count,
        )
    )
    return core


def read_machine() -> str:
    """Names this machine, until it is started again: a folder's lock holds for one kernel only."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node()


class MasterReport(NamedTuple):
    """What its metrics are made of."""

    server: ServerReport
    core: MasterStatistics
    attendance: Attendance
    runtime: RuntimeStatistics
    log: LogReport
    connections: int


async def _close(runtime: Runtime, book: RecoveryBook) -> None:
    await runtime.close()
    await asyncio.to_thread(book.amend, stopped_us=read_clock().unix_us)


def create_master(
    core: MasterCore, store: MasterStore, settings: MasterSettings, book: RecoveryBook
) -> Served:
    """The REST pages and the data plane of a master."""
    runtime = Runtime(
        core, store, limits=RuntimeLimits(waiting_count_max=settings.waiting_count_max)
    )

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        runtime.start()
        async with running_beside(look_around(Readiness(life).look)):
            yield
        await close_in_time(_close(runtime, book))

    key = settings.cluster_key
    life = Life(
        lambda: core.why_not_ready(read_clock()) or runtime.why_late(),
        lambda: runtime.failure,
        runtime.finish,
    )
    rest = create_application("Dodona master", lifespan, life, key, settings.metrics_key)
    add_operations(rest, runtime)
    add_statistics_page(
        rest, lambda: {"master": core.statistics(), "runtime": runtime.statistics()}
    )
    add_transactions_page(rest, core)
    add_recoveries_page(rest, book)
    limits = EndpointLimits(
        connection_count_max=settings.connection_count_max,
        unread_bytes_max=settings.unread_mib_max << 20,
    )
    endpoint = Endpoint(runtime, limits=limits, key=key)

    def report() -> MasterReport:
        return MasterReport(
            ServerReport.of(life),
            core.statistics(),
            core.attendance(read_clock()),
            runtime.statistics(),
            LogReport(*store.size()),
            endpoint.connection_count,
        )

    add_metrics(rest, Metrics("master", MASTER_METRICS, report))
    return Served(rest, endpoint, life)
