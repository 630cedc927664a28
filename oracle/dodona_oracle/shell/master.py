"""The master process: store, core, runtime and sockets, put together.

Owns: nothing but the wiring, and what "ready" means for a master.
"""

import logging
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI

from dodona._io.endpoint import Endpoint, EndpointLimits
from dodona._io.pages import create_application
from dodona._io.process import read_clock
from dodona._io.runtime import Runtime, RuntimeLimits
from dodona._io.scheduling import take_short_turns
from dodona._io.serving import serve
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.master import MasterCore
from dodona_oracle.shell.rest import add_operations
from dodona_oracle.shell.settings import MasterSettings
from dodona_oracle.shell.store import MasterStore

LOG_AGE_US_MAX: Final = 2_000_000
"""A master whose oldest append waits for longer is not ready: its disk hangs."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_logger: Final = logging.getLogger("dodona.master")


def run_master(settings: MasterSettings) -> None:
    """Recover and serve until a signal comes. Raises DodonaError, SystemExit."""
    take_short_turns()  # every commit waits for a timestamp, which is made in no time
    store = MasterStore.open(settings.data_dir, settings.map_mib_max << 20)
    try:
        core = MasterCore.recover(
            store.items(),
            read_clock(),
            AllocatorSettings(
                window_us=settings.window_ms * 1000, renew_us=settings.renew_ms * 1000
            ),
            read_machine(),
        )
        _logger.info("recovered %s: %s", settings.data_dir, core.statistics())
        serve(*create_master(core, store, settings), settings, settings.port)
    finally:
        store.close()


def read_machine() -> str:
    """Names this machine, until it is started again: a folder's lock holds for one kernel only."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node()


def create_master(
    core: MasterCore, store: MasterStore, settings: MasterSettings
) -> tuple[FastAPI, Endpoint]:
    """The REST pages and the data plane of a master."""
    runtime = Runtime(
        core, store, limits=RuntimeLimits(waiting_count_max=settings.waiting_count_max)
    )

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        runtime.start()
        _logger.info("serving on %s:%d", settings.host, settings.port)
        yield
        await runtime.close()
        _logger.info("stopped: %s", core.statistics())

    def readiness() -> str | None:
        age_us = runtime.statistics().waiting_age_us
        if age_us > LOG_AGE_US_MAX:
            return f"the disk has not answered for {age_us // 1000} ms"
        return None

    key = settings.cluster_key
    rest = create_application("Dodona master", lifespan, readiness, key)
    add_operations(rest, runtime)
    limits = EndpointLimits(
        connection_count_max=settings.connection_count_max,
        unread_bytes_max=settings.unread_mib_max << 20,
    )
    return rest, Endpoint(runtime, limits=limits, key=key)
