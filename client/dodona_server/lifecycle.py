"""The lifecycle of a server process: what its probes say, and how it stops.

Owns: the meanings of the health pages.

- `/startupz`: the process has recovered. It is true from then on, and false only while `listener`
  answers.
- `/healthz`: the process, its event loop and its core are alive. It is false only after an
  unexpected error in the core. It is never false for a slow disk or for a fault of another process,
  because a restart would help neither.
- `/readyz`: the process serves now. It is false from the signal to stop on.

While a disk that hangs blocks the event loop, `probe_responder` answers.
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
"""Returns why something is not so, or None if it is."""


async def _nothing_to_finish() -> None:
    pass


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Poll until the condition is true: no event announces it. May be cancelled."""
    while True:
        if is_so():
            return
        await asyncio.sleep(POLL_SECONDS)


class Lifecycle:
    """The lifecycle of one process."""

    def __init__(
        self,
        why_not_ready: Reason = lambda: None,
        failure: Callable[[], BaseException | None] = lambda: None,
        finish: Callable[[], Awaitable[None]] = _nothing_to_finish,
        stalled_us: Callable[[], int] | None = None,
    ) -> None:
        """`failure` returns the unexpected error in the core, if there was one. `finish` refuses
        new requests and returns once those under way have ended. It may be cancelled. `stalled_us`
        returns how long the event loop has been blocked by now. Any thread may call it."""
        self._why_not_ready = why_not_ready
        self._failure = failure
        self.finish = finish
        self.stalled_us = stalled_us
        self.starting: str | None = None
        """The work that is left before the process serves. The data plane may be up already."""
        self.is_draining = False
        """True from the signal to stop on."""

    def why_not_well(self) -> str | None:
        """Return why the process must be restarted, or None."""
        return (
            None
            if self._failure() is None
            else "the core failed with an unexpected error: see the log"
        )

    def why_not_ready(self) -> str | None:
        """Return why no requests should be sent here now, or None."""
        if self.is_draining:
            return "the server is about to stop"
        return self.starting or self._why_not_ready()
