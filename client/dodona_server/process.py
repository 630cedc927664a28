"""The process around a server: its clocks, the settings of its interpreter, and its end.

Owns: settings and steps that a whole process needs once. The runtime does everything else.
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
"""The exit status after an unexpected error (`EX_SOFTWARE`). The supervisor restarts it."""
EXIT_STATUS_NOT_CLOSED: Final = 1
"""The exit status of a process that had to stop, and whose disk did not let it."""
CLOSE_SECONDS_MAX: Final = 15.0
_SINCE_START: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stands still while a machine sleeps, so a lease would not run out. After
the sleep, the wall clock would seem to have jumped ahead."""

_logger: Final = logging.getLogger("dodona.runtime")


def read_clock() -> Now:
    """Return the process's own clocks, for a core."""
    return Now(time.clock_gettime_ns(_SINCE_START) // 1000, time.time_ns() // 1000)


def stop_process(error: BaseException) -> NoReturn:
    """Log what happened and end the process without running another line."""
    logging.basicConfig()  # does nothing if logging is set up; the error must be logged
    _logger.critical("stopping the process: its state is in doubt", exc_info=error)
    logging.shutdown()
    os._exit(EXIT_STATUS_SURPRISE)


async def close_in_time(closing: Awaitable[None], seconds_max: float = CLOSE_SECONDS_MAX) -> None:
    """Close what lies on a disk. If the disk does not answer in time, end the process: to wait
    longer would not help. Acknowledged data are durable, and the next start finds out about the
    rest."""
    try:
        async with asyncio.timeout(seconds_max):
            await closing
    except TimeoutError:
        text = "the disk does not answer: the process ends without closing its files"
        tell(_logger, logging.ERROR, "not_closed", text)
        logging.shutdown()
        os._exit(EXIT_STATUS_NOT_CLOSED)
    except Exception as error:  # noqa: BLE001 - else it would look like a stop in order
        stop_process(error)


def prepare_process() -> None:
    """Set up the interpreter for a server process. Not for a process of the user's.

    Raises SystemExit if assertions are switched off: broken invariants would not be noticed.
    """
    require_assertions()
    _allow_connections()
    # A flush releases the GIL several times, and must get it back from a busy event loop each time.
    # The default of 5 ms would be added to every commit under load.
    sys.setswitchinterval(0.000_05)
    # The collector does not see messages, and other objects live long: collect rarely.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _allow_connections() -> None:
    """Allow as many open files as the system permits: shells set lower limits."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_assertions() -> None:
    """Raise SystemExit under `python -O`."""
    if not __debug__:
        raise SystemExit(
            "Dodona servers need assertions, which python -O switches off. Start them without -O."
        )
