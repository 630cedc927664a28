"""Log lines about changes that no event announces: this module looks once a second.

Owns: how often it looks, and the lines `ready` and `not_ready` of servers that compute their
readiness only when asked. It does nothing between two looks, and nothing in the path of a request.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

from dodona_server.lifecycle import Lifecycle
from dodona_server.logs import tell

LOOK_SECONDS: Final = 1.0
_NUMBERS: Final = re.compile(r"\d+")

_logger: Final = logging.getLogger("dodona.process")


async def look_around(*looks: Callable[[], object]) -> None:
    """Call these functions once a second until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for look in looks:
            look()


class Readiness:
    """The readiness of one process, for its log."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._told: str | None = ""

    def look(self) -> None:
        """Log whether it serves, and why not, if the reason is another one than the last time."""
        if self._lifecycle.is_draining:  # a stop has a line of its own
            return
        reason = self._lifecycle.why_not_ready()
        news = None if reason is None else _NUMBERS.sub("", reason)  # a new number is no news
        if news == self._told:
            return
        self._told = news
        if reason is None:
            tell(_logger, logging.INFO, "ready", "serving")
        else:
            tell(_logger, logging.WARNING, "not_ready", "not serving", reason=reason)
