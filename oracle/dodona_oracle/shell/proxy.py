"""The proxy process: it puts together the core, the runtime, the sockets and the link to the
master.

Owns: only the wiring, and the rule when a proxy is ready.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from dodona_oracle.core.proxy import ProxyCore, ProxyLimits, ProxyStatistics
from dodona_oracle.shell.settings import ProxySettings
from dodona_oracle.shell.transport import MasterLink, Registration
from dodona_server.answers import Application
from dodona_server.endpoint import Endpoint
from dodona_server.flushes import RuntimeStatistics
from dodona_server.front import Front
from dodona_server.lifecycle import Lifecycle, wait_until
from dodona_server.listener import listener_of
from dodona_server.metrics import ServerReport
from dodona_server.runtime import Runtime
from dodona_server.scheduling import take_short_turns
from dodona_server.serving import Served, endpoint_limits, serve
from dodona_wire.cores.effects import AskMaster


def run_proxy(settings: ProxySettings) -> None:
    """Serve until a signal comes. Raises SystemExit."""
    take_short_turns()  # a request takes microseconds, and a caller waits for it
    with listener_of(settings) as listener:
        serve(create_proxy(settings), settings, listener)


class ProxyReport(NamedTuple):
    """The values that the proxy's metrics show."""

    server: ServerReport
    core: ProxyStatistics
    runtime: RuntimeStatistics
    connections: int


class _Proxy:
    """The parts of a proxy. Some of them need a running event loop."""

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
    async def lifespan(self) -> AsyncIterator[None]:
        """Run the link to the master and the registration while the process runs."""
        self._link = MasterLink(self.core, self.runtime, self._settings)
        self.runtime.start()
        registering = asyncio.create_task(self.registration.run(self._link.peer))
        registering.add_done_callback(self._check_registration)
        try:
            yield
        finally:
            registering.cancel()
            await asyncio.wait([registering])
            await self._link.close()
            await self.runtime.close()

    async def finish(self) -> None:
        """Refuse new callers, and wait until all waiting callers have their answers."""
        await self.runtime.finish()
        await wait_until(lambda: self.core.waiting_count == 0)

    def _check_registration(self, task: "asyncio.Task[None]") -> None:
        """End the process if the registration ended without a cancellation. Clients cannot find a
        proxy that does not register."""
        if not task.cancelled():
            self.runtime.fail(task.exception() or AssertionError("the registration ended"))

    def _ask(self, effect: AskMaster) -> None:
        assert self._link is not None
        self._link.ask(effect)


def create_proxy(settings: ProxySettings) -> Served:
    """Return the REST pages and the data plane of a proxy."""
    proxy = _Proxy(settings)
    admission = settings.admission
    runtime = proxy.runtime
    lifecycle = Lifecycle(lambda: proxy.registration.reason, lambda: runtime.failure, proxy.finish)
    limits = endpoint_limits(settings)
    endpoint = Endpoint(runtime, limits=limits, admission=admission)

    def report() -> ProxyReport:
        return ProxyReport(
            ServerReport.of(lifecycle),
            proxy.core.statistics(),
            runtime.statistics(),
            endpoint.connection_count,
        )

    def make_pages() -> Application:
        from dodona_oracle.shell.proxy_pages import create_pages

        return create_pages(proxy.core, runtime, lifecycle, admission, report)

    return Served(
        Front(lifecycle, proxy.lifespan, make_pages, is_asked_often=False), endpoint, lifecycle
    )
