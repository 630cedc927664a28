"""Find out values for readers, once for all readers at the same time.

Owns: when a value is found out again, and how long a reader waits for that. If it takes longer, the
reader gets the last value, so a silent server delays no page.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from dodona_wire.errors import DodonaError

WAIT_S: Final = 0.7
"""The longest wait for a value that is newer than the last one."""
LONG_WAIT_S: Final = 2.5
"""The longest wait if there is no value or only an old one, unless the last reader waited in
vain."""
OLD_S: Final = 5.0
"""A value that is older says nothing about the present state."""

Found = TypeVar("Found")
_logger: Final = logging.getLogger("dodona.gateway")


class Cached(Generic[Found]):
    """A value that `find` finds out. If `find` raises DodonaError, the last value stays. Belongs to
    an event loop."""

    def __init__(self, find: Callable[[], Awaitable[Found]], fresh_s: float) -> None:
        self._find = find
        self._fresh_s = fresh_s
        self._task: asyncio.Task[None] | None = None
        self._found_s: float | None = None
        self.value: Found | None = None
        """The last value; None before the first one."""
        self.problem: DodonaError | None = None
        """The error of the last attempt; None if it found a value."""
        self._is_slow = False
        """Whether the last reader waited in vain: the next readers wait less."""

    @property
    def age_s(self) -> float | None:
        """The age of the value in seconds; None without a value."""
        return None if self._found_s is None else time.monotonic() - self._found_s

    @property
    def old_ms(self) -> int | None:
        """The age in milliseconds of a value that is too old to describe the present state; None
        without a value, or for a newer one."""
        age_s = self.age_s
        return None if age_s is None or age_s <= OLD_S else round(age_s * 1000)

    async def get(self) -> Found | None:
        """Return the value: a fresh one, if that comes in time."""
        age_s = self.age_s
        if age_s is None or age_s > self._fresh_s:
            is_needed = age_s is None or age_s > OLD_S
            wait_s = LONG_WAIT_S if is_needed and not self._is_slow else WAIT_S
            _, late = await asyncio.wait([self.refresh()], timeout=wait_s)
            self._is_slow = bool(late) or self.problem is not None
        return self.value

    def refresh(self) -> "asyncio.Task[None]":
        """Find the value out again, unless a task does so already."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._task

    async def close(self) -> None:
        """Cancel the task that is under way."""
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
        except Exception:  # an error of the console must not end the gateway
            _logger.exception("the console could not read the cluster's state")
        finally:
            self._task = None
