"""What is found out for whoever looks, once for all who look at the same time.

Owns: when it is found out anew, and for how long somebody who asks waits for that. What takes
longer is answered with what was found before, so that a server that is silent stalls no page.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from dodona_wire.errors import DodonaError

WAIT_S: Final = 0.7
"""For what is newer than what is known."""
LONG_WAIT_S: Final = 2.5
"""If nothing is known, or nothing of late, and nobody waited for that in vain yet."""
OLD_S: Final = 5.0
"""What is older tells nothing of now."""

Found = TypeVar("Found")
_logger: Final = logging.getLogger("dodona.gateway")


class Cached(Generic[Found]):
    """Belongs to an event loop. `find` may raise DodonaError: then what was found before stays."""

    def __init__(self, find: Callable[[], Awaitable[Found]], fresh_s: float) -> None:
        self._find = find
        self._fresh_s = fresh_s
        self._task: asyncio.Task[None] | None = None
        self._found_s: float | None = None
        self.value: Found | None = None
        """What was found last; None if nothing was yet."""
        self.problem: DodonaError | None = None
        """Why nothing was found the last time."""
        self._is_slow = False
        """Whether the last one to wait for it waited in vain: others need not."""

    @property
    def age_s(self) -> float | None:
        """Of the value."""
        return None if self._found_s is None else time.monotonic() - self._found_s

    @property
    def old_ms(self) -> int | None:
        """The age of a value that tells nothing of now; None of one that does, and of none."""
        age_s = self.age_s
        return None if age_s is None or age_s <= OLD_S else round(age_s * 1000)

    async def get(self) -> Found | None:
        """The value: a fresh one, if it comes in time."""
        age_s = self.age_s
        if age_s is None or age_s > self._fresh_s:
            is_needed = age_s is None or age_s > OLD_S
            wait_s = LONG_WAIT_S if is_needed and not self._is_slow else WAIT_S
            _, late = await asyncio.wait([self.refresh()], timeout=wait_s)
            self._is_slow = bool(late) or self.problem is not None
        return self.value

    def refresh(self) -> "asyncio.Task[None]":
        """Find it out anew, unless somebody is at that."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._task

    async def close(self) -> None:
        """Give up what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            self.value = await self._find()
            self.problem = None
            self._found_s = time.monotonic()
        except DodonaError as error:
            self.problem = error
        except Exception:  # what can't be looked at must not end the gateway
            _logger.exception("the console could not look at the cluster")
        finally:
            self._task = None
