"""A server process from its application on: sockets, logging, signals, exit status.

Owns: how uvicorn runs, that every answer names the program's version, how a process stops, and its
exit status. The status is 0 after a signal, 75 if the data folder is in use, 1 for any other known
error, and 70 after an unexpected error.

After the signal to stop `/readyz` says no immediately. For `drain_ms` all goes on, so that load
balancers notice. Then new requests are refused, with errors that permit a retry. Requests under way
may end, for at most `finish_ms_max`. Then the connections close, and the log. Only servers import
this module: it needs uvicorn. Must not import a web framework (see `front`).
"""

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import Any, Final, NamedTuple

import uvicorn

from dodona_server.answers import Application
from dodona_server.endpoint import UVICORN_OPTIONS, Endpoint, EndpointLimits
from dodona_server.http import IDLE_SECONDS_MAX, bounded_http
from dodona_server.lifecycle import Lifecycle
from dodona_server.listener import Listener
from dodona_server.logs import prepare_logging, tell
from dodona_server.probe_responder import ProbeResponder
from dodona_server.process import prepare_process, require_assertions
from dodona_server.settings import ProcessSettings, ServerSettings, Settings, parse_settings
from dodona_wire.errors import DodonaError, FolderInUse

GRACE_SECONDS: Final = 5

_logger: Final = logging.getLogger("dodona.process")


def run_process(
    kind: type[Settings], run: Callable[[Settings], None], program: str, arguments: list[str]
) -> None:
    """Read the settings and run until a signal comes. Raises SystemExit."""
    require_assertions()
    settings = parse_settings(kind, program, arguments)
    prepare_logging(settings.log_level, settings.log_format, settings.server)
    # Before the server serves, a signal ends the process. Later uvicorn handles signals. Once it
    # has stopped, it raises the signal again.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        run(settings)
    except DodonaError as error:
        if settings.log_format == "json":
            tell(_logger, logging.CRITICAL, "cannot_run", str(error), kind=error.kind)
        else:
            sys.stderr.write(f"{program}: {error}\n")
        is_busy = isinstance(error, FolderInUse)
        raise SystemExit(os.EX_TEMPFAIL if is_busy else 1) from error


class Served(NamedTuple):
    """A server that is ready to run."""

    pages: Application
    endpoint: Endpoint
    lifecycle: Lifecycle


def endpoint_limits(settings: ServerSettings) -> EndpointLimits:
    """Return the limits of the data plane, from the settings that all servers have."""
    return EndpointLimits(
        connection_count_max=settings.connection_count_max,
        unread_bytes_max=settings.unread_mib_max << 20,
    )


def serve(served: Served, settings: ServerSettings, listener: Listener) -> None:
    """Serve REST and the data plane on `listener` until a signal comes."""
    pages, endpoint, lifecycle = served
    serve_pages(pages, lifecycle, settings, listener, ws=endpoint.protocol)


def serve_pages(
    pages: Any,
    lifecycle: Lifecycle,
    settings: ProcessSettings,
    listener: Listener,
    *,
    on_tls: Callable[[ssl.SSLContext], None] | None = None,
    **options: Any,
) -> None:
    """Serve a web application until a signal comes. `on_tls` gets the TLS context of its
    connections. All other `options` are uvicorn's."""
    prepare_process()
    text = f"serving on {settings.host}:{listener.port}"
    tell(_logger, logging.INFO, "serving", text, host=settings.host, port=listener.port)
    chosen: dict[str, Any] = {
        **UVICORN_OPTIONS,
        "log_config": None,
        "headers": settings.answer_headers,
        "timeout_graceful_shutdown": GRACE_SECONDS,
        "limit_concurrency": None,  # uvicorn would refuse without JSON, also a health request
        "http": bounded_http(),
        "timeout_keep_alive": IDLE_SECONDS_MAX,
        **options,
    }
    config = uvicorn.Config(pages, host=settings.host, port=listener.port, **chosen)
    if on_tls is not None:
        config.load()  # uvicorn would do this later
        assert config.ssl is not None, "there is a certificate"
        on_tls(config.ssl)
    sockets = listener.hand_over()
    with (
        nullcontext()
        if lifecycle.stalled_us is None
        else ProbeResponder(sockets, lifecycle.stalled_us, settings.answer_headers)
    ):
        _Server(config, lifecycle, settings).run(sockets)


class _Server(uvicorn.Server):
    """A server that finishes requests under way before it closes connections."""

    def __init__(
        self, config: uvicorn.Config, lifecycle: Lifecycle, settings: ProcessSettings
    ) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._drain_ms = settings.drain_ms
        self._finish_ms_max = settings.finish_ms_max
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_told_to_stop = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait for a signal. (uvicorn's own loop looks for one ten times a second, which is a tenth
        of the cost of an idle server.)"""
        self._loop = asyncio.get_running_loop()
        if not await self.on_tick(0):
            await self._is_told_to_stop.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._lifecycle.is_draining = True
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._is_told_to_stop.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        bounds = {"drain_ms": self._drain_ms, "finish_ms_max": self._finish_ms_max}
        tell(_logger, logging.INFO, "stopping", "about to stop", **bounds)
        await asyncio.sleep(self._drain_ms / 1000)
        try:
            async with asyncio.timeout(self._finish_ms_max / 1000):
                await self._lifecycle.finish()
        except TimeoutError:
            text = f"requests did not end within {self._finish_ms_max} ms: the server stops now"
            tell(_logger, logging.WARNING, "overdue", text, finish_ms_max=self._finish_ms_max)
        await super().shutdown(sockets)
        tell(_logger, logging.INFO, "stopped", "stopped")


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
