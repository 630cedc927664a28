"""A server process from its application on: sockets, logging, signals, exit status.

Owns: how uvicorn is run, that every answer names the program's version, and the exit status: 0
after a signal (open requests and the log finish first), 75 when the data folder is in use, 1 for
any other error that was said in words, 70 after a surprise.
Only servers import this: it needs uvicorn and FastAPI.
"""

import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from dodona._io.endpoint import UVICORN_OPTIONS, Endpoint
from dodona._io.logs import prepare_logging
from dodona._io.process import prepare_process, require_assertions
from dodona._io.settings import ProcessSettings, ServerSettings, Settings, parse_settings
from dodona.errors import DodonaError, FolderInUse

GRACE_SECONDS: Final = 5
REQUESTS_AT_A_TIME_MAX: Final = 8192


def run_process(
    kind: type[Settings], run: Callable[[Settings], None], program: str, arguments: list[str]
) -> None:
    """Read the settings and run until a signal comes. Raises SystemExit."""
    require_assertions()
    settings = parse_settings(kind, program, arguments)
    prepare_logging(settings.log_level, settings.log_format)
    try:
        run(settings)
    except DodonaError as error:
        sys.stderr.write(f"{program}: {error}\n")
        is_busy = isinstance(error, FolderInUse)
        raise SystemExit(os.EX_TEMPFAIL if is_busy else 1) from error


def serve(pages: FastAPI, endpoint: Endpoint, settings: ServerSettings, port: int) -> None:
    """Serve REST and the data plane until a signal comes. Raises SystemExit without the port."""
    serve_pages(pages, settings, port, ws=endpoint.protocol)


def serve_pages(pages: Any, settings: ProcessSettings, port: int, **options: Any) -> None:
    """Serve a web application until a signal comes; `options` are uvicorn's. Raises SystemExit
    without the port."""
    prepare_process()
    # uvicorn raises the signal again once it has stopped: that is when we leave.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    chosen: dict[str, Any] = {
        **UVICORN_OPTIONS,
        "log_config": None,
        "headers": [("Server", f"dodona/{version('dodona')}")],
        "timeout_graceful_shutdown": GRACE_SECONDS,
        "limit_concurrency": REQUESTS_AT_A_TIME_MAX,
        **options,
    }
    uvicorn.Server(uvicorn.Config(pages, host=settings.host, port=port, **chosen)).run()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)
