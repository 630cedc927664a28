"""What a server's log says of changes that nobody tells it of: it looks, once a second.

Owns: how often it looks, and the lines `ready` and `not_ready` of servers whose readiness is found
out by whoever asks. Nothing is done for it between two looks, nor on the way of any request.
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
    """Until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for look in looks:
            look()


class Readiness:
    """Of one process."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._told: str | None = ""

    def look(self) -> None:
        """Say whether it serves, and why not, if that is another reason than the last time."""
        if self._lifecycle.is_draining:  # that has a line of its own
            return
        reason = self._lifecycle.why_not_ready()
        news = None if reason is None else _NUMBERS.sub("", reason)  # for how long is none
        if news == self._told:
            return
        self._told = news
        if reason is None:
            tell(_logger, logging.INFO, "ready", "serving")
        else:
            tell(_logger, logging.WARNING, "not_ready", "not serving", reason=reason)
