"""The proxy process: core, runtime, sockets and the link to the master, put together.

Owns: nothing but the wiring, and what "ready" means for a proxy.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from dodona._core.effects import AskMaster
from dodona._io.endpoint import Endpoint, EndpointLimits
from dodona._io.pages import create_application
from dodona._io.runtime import Runtime
from dodona._io.scheduling import take_short_turns
from dodona._io.serving import serve
from dodona_oracle.core.proxy import ProxyCore, ProxyLimits
from dodona_oracle.shell.settings import ProxySettings
from dodona_oracle.shell.transport import MasterLink, Registration

_logger: Final = logging.getLogger("dodona.proxy")


def run_proxy(settings: ProxySettings) -> None:
    """Serve until a signal comes. Raises SystemExit."""
    take_short_turns()  # each request takes microseconds, and somebody waits for it
    serve(*create_proxy(settings), settings, settings.port)


class _Proxy:
    """The parts of a proxy, some of which need a running event loop to be made."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        limits = ProxyLimits(
            answer_us_max=settings.answer_ms_max * 1000,
            waiting_count_max=settings.waiting_count_max,
        )
        self.core = ProxyCore(limits)
        self.runtime = Runtime(self.core, None, {AskMaster: self._ask})
        self.registration = Registration(settings)
        self._link: MasterLink | None = None

    @asynccontextmanager
    async def lifespan(self, application: FastAPI) -> AsyncIterator[None]:
        """Between start and stop of the process."""
        settings = self._settings
        self._link = MasterLink(self.core, self.runtime, settings)
        self.runtime.start()
        registering = asyncio.create_task(self.registration.run())
        registering.add_done_callback(self._check_registration)
        _logger.info("serving on %s:%d", settings.host, settings.port)
        try:
            yield
        finally:
            registering.cancel()
            await asyncio.wait([registering])
            await self._link.close()
            await self.runtime.close()
            _logger.info("stopped: %s", self.core.statistics())

    def _check_registration(self, task: "asyncio.Task[None]") -> None:
        """It ends by cancellation only; a proxy that nobody hears of must not live on."""
        if not task.cancelled():
            self.runtime.fail(task.exception() or AssertionError("the registration ended"))

    def _ask(self, effect: AskMaster) -> None:
        assert self._link is not None
        self._link.ask(effect)


def create_proxy(settings: ProxySettings) -> tuple[FastAPI, Endpoint]:
    """The REST pages and the data plane of a proxy."""
    proxy = _Proxy(settings)
    key = settings.cluster_key
    rest = create_application(
        "Dodona proxy", proxy.lifespan, lambda: proxy.registration.reason, key
    )
    limits = EndpointLimits(
        connection_count_max=settings.connection_count_max,
        unread_bytes_max=settings.unread_mib_max << 20,
    )
    return rest, Endpoint(proxy.runtime, limits=limits, key=key)
