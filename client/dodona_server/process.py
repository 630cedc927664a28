"""The process around a server: its clocks, its interpreter's settings, and its end.

Owns: what is set or done once for a whole process. Whatever else a server does is the runtime's.
"""

import asyncio
import gc
import logging
import os
import resource
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, NoReturn

from dodona_server.logs import tell
from dodona_wire.types import Now

EXIT_STATUS_SURPRISE: Final = 70
"""How a process ends that met a surprise (`EX_SOFTWARE`): whoever supervises it restarts it."""
EXIT_STATUS_NOT_CLOSED: Final = 1
"""How one ends that was told to stop, and whose disk did not let it."""
CLOSE_SECONDS_MAX: Final = 15.0
_SINCE_START: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stands still while a machine sleeps, and a lease would not run out; when
it wakes up, its clock would seem to have jumped ahead."""

_logger: Final = logging.getLogger("dodona.runtime")


def read_clock() -> Now:
    """The process's own clocks, for a core."""
    return Now(time.clock_gettime_ns(_SINCE_START) // 1000, time.time_ns() // 1000)


def stop_process(error: BaseException) -> NoReturn:
    """Say what happened and end the process without running another line of it."""
    logging.basicConfig()  # does nothing where logging is set up: last words must be heard
    _logger.critical("stopping the process: its state is in doubt", exc_info=error)
    logging.shutdown()
    os._exit(EXIT_STATUS_SURPRISE)


async def close_in_time(closing: Awaitable[None], seconds_max: float = CLOSE_SECONDS_MAX) -> None:
    """Close what lies on a disk, or end the process without: to wait for a disk that hangs would
    help nobody. What was acknowledged is durable, and the next start finds out about the rest."""
    try:
        async with asyncio.timeout(seconds_max):
            await closing
    except TimeoutError:
        text = "the disk does not answer: ending without closing what lies on it"
        tell(_logger, logging.ERROR, "not_closed", text)
        logging.shutdown()
        os._exit(EXIT_STATUS_NOT_CLOSED)
    except Exception as error:  # noqa: BLE001 - else it would look like a stop in order
        stop_process(error)


def prepare_process() -> None:
    """Settings of the interpreter that a server process wants. Not for a process of the user's.

    Raises SystemExit when assertions are switched off: invariants would be broken in silence.
    """
    require_assertions()
    _allow_connections()
    # A flush gives up the GIL several times and must win it back from a busy event loop each time:
    # the default of 5 ms would be added to every commit under load.
    sys.setswitchinterval(0.000_05)
    # Messages are invisible to the collector, what is left is long-lived: look rarely.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _allow_connections() -> None:
    """As many files as the system lets it have: shells start programs with too few of them."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_assertions() -> None:
    """Raises SystemExit under `python -O`."""
    if not __debug__:
        raise SystemExit("dodona servers do not run under python -O: they rely on assertions")
