"""A server process between its start and its end: what its probes say, and how it takes its leave.

Owns: the meanings of the health pages. `/startupz`: it has recovered; true ever after, and false
only while `listener` answers. `/healthz`: the process, its event loop and its core live; false only
when the core met a surprise, never for a slow disk or for another process's fault, since to be
started again would help neither. `/readyz`: it serves now; false from the signal to stop on. While
a disk that hangs holds up the loop `probe_responder` answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

HEALTH: Final = "/healthz"
READINESS: Final = "/readyz"
STARTUP: Final = "/startupz"
HEALTH_PATHS: Final = (HEALTH, READINESS, STARTUP)
METRICS: Final = "/metrics"
POLL_SECONDS: Final = 0.005

Reason = Callable[[], str | None]
"""Why something is not so, or None if it is."""


async def _nothing_to_finish() -> None:
    pass


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Look again and again; at the end of a process nobody tells. May be cancelled."""
    while True:
        if is_so():
            return
        await asyncio.sleep(POLL_SECONDS)


class Lifecycle:
    """Of one process."""

    def __init__(
        self,
        why_not_ready: Reason = lambda: None,
        failure: Callable[[], BaseException | None] = lambda: None,
        finish: Callable[[], Awaitable[None]] = _nothing_to_finish,
        stalled_us: Callable[[], int] | None = None,
    ) -> None:
        """`failure` is the surprise that its core met, if any. `finish` refuses what is new and
        returns once what is under way has ended; it may be cancelled. `standing_us`, to be asked in
        any thread: how long the event loop has stood still by now, if it ever does."""
        self._why_not_ready = why_not_ready
        self._failure = failure
        self.finish = finish
        self.stalled_us = stalled_us
        self.starting: str | None = None
        """What there is still to do before it serves, though the data plane may be up already."""
        self.is_draining = False
        """From the signal to stop on."""

    def why_not_well(self) -> str | None:
        """Why it has to be started again, or None."""
        return None if self._failure() is None else "the core met a surprise: the log says which"

    def why_not_ready(self) -> str | None:
        """Why nothing should be sent here now, or None."""
        if self.is_draining:
            return "the server is about to stop"
        return self.starting or self._why_not_ready()
