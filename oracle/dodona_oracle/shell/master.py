"""The master process: it puts together the store, the core, the runtime and the sockets.

Owns: only the wiring, and the rule when a master is ready.
"""

import asyncio
import logging
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.catalog import Attendance
from dodona_oracle.core.clock_guard import DAY_US, HOUR_US
from dodona_oracle.core.master import MasterCore, MasterStatistics
from dodona_oracle.shell.settings import MasterSettings
from dodona_oracle.shell.store import FILE_NAME as STORE_NAME
from dodona_oracle.shell.store import MasterStore
from dodona_server.answers import Application
from dodona_server.beside import running_beside
from dodona_server.disk_space import DiskSpace, no_space_told
from dodona_server.endpoint import Endpoint
from dodona_server.flushes import RuntimeLimits, RuntimeStatistics
from dodona_server.front import Front
from dodona_server.lifecycle import Lifecycle
from dodona_server.listener import listener_of
from dodona_server.logs import tell
from dodona_server.metrics import LogReport, ServerReport
from dodona_server.notices import Readiness, look_around
from dodona_server.process import close_in_time, read_clock
from dodona_server.recovery_book import FILE_NAME as BOOK_NAME
from dodona_server.recovery_book import RecoveryBook
from dodona_server.runtime import Runtime
from dodona_server.scheduling import take_short_turns
from dodona_server.serving import Served, endpoint_limits, serve
from dodona_wire.cores.recoveries import Recovery
from dodona_wire.errors import DataCorrupted

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_logger: Final = logging.getLogger("dodona.master")


def run_master(settings: MasterSettings) -> None:
    """Recover the master and serve until a signal comes. Raises DodonaError, SystemExit."""
    take_short_turns()  # every commit waits for a timestamp, which takes microseconds
    _check_store(settings.data_dir)
    store = MasterStore.open(settings.data_dir, settings.map_mib_max << 20)
    try:
        book = RecoveryBook.open(store.path)
        with listener_of(settings) as listener:
            with no_space_told(settings.data_dir):
                core = recover(store, settings, book)
            count = core.statistics().catalog.table_count
            text = f"recovered {settings.data_dir}"
            tell(_logger, logging.INFO, "recovered", text, tables=count)
            serve(create_master(core, store, settings, book), settings, listener)
    finally:
        store.close()


def _check_store(folder: Path) -> None:
    """Raise DataCorrupted if the folder has a book of starts and no store. A master begins its book
    after its store is durable, so such a folder has lost its store."""
    path = folder / STORE_NAME
    if (folder / BOOK_NAME).exists() and not path.exists():
        raise DataCorrupted(
            f"{path} is missing, and an earlier start of the master used it. Put it back, or "
            "restore a backup into an empty folder.",
            path=str(path),
        )


def recover(store: MasterStore, settings: MasterSettings, book: RecoveryBook) -> MasterCore:
    """Return the master that the store holds. The book gets this start. Raises DataCorrupted."""
    began = read_clock()
    items = list(store.items())
    core = MasterCore.recover(
        items,
        began,
        AllocatorSettings(
            window_us=settings.window_ms * 1000,
            renew_us=settings.renew_ms * 1000,
            clock_jump_us_max=settings.clock_jump_hours_max * HOUR_US,
            clock_start_us_max=settings.clock_start_days_max * DAY_US,
        ),
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
    """Return a name of this machine that changes when the machine starts again. The lock of a
    folder is valid within one kernel only."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node()


class MasterReport(NamedTuple):
    """The values that the master's metrics show."""

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
    """Return the REST pages and the data plane of a master."""
    runtime = Runtime(
        core, store, limits=RuntimeLimits(waiting_count_max=settings.waiting_count_max)
    )

    space = DiskSpace(store.path)

    def look_at_disk() -> None:
        runtime.call(core.note_disk, space.shortage())

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        runtime.start()
        async with running_beside(look_around(Readiness(lifecycle).look, look_at_disk)):
            yield
        await close_in_time(_close(runtime, book))

    async def finish() -> None:
        runtime.call(core.hold_no_heartbeats)
        await runtime.finish()

    admission = settings.admission
    lifecycle = Lifecycle(
        lambda: core.why_not_ready(read_clock()) or runtime.why_late(),
        lambda: runtime.failure,
        finish,
    )
    limits = endpoint_limits(settings)
    endpoint = Endpoint(runtime, limits=limits, admission=admission, takes_announcements=True)

    def report() -> MasterReport:
        return MasterReport(
            ServerReport.of(lifecycle),
            core.statistics(),
            core.attendance(read_clock()),
            runtime.statistics(),
            LogReport(*store.size()),
            endpoint.connection_count,
        )

    def make_pages() -> Application:
        from dodona_oracle.shell.master_pages import create_pages

        return create_pages(core, runtime, book, lifecycle, admission, report)

    return Served(Front(lifecycle, lifespan, make_pages), endpoint, lifecycle)
