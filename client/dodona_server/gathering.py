"""When a flush of a distant log starts: with the first record, or a little later with more.

Owns: `Gatherer`, and the rule that it follows. A flush of a distant log costs each replica about
the same, however few records it has. Callers that just got their answers often come back within a
part of a millisecond. A flush that starts before they do has few records, and the next one has the
others. So a flush waits for as many callers as the last one had, and the ones behind it, but for
`GATHER_S_MAX` at most.

It is learned whether this helps. After a wait that the clock ended, one flush does not wait, and
after each further one twice as many and one. So callers that come at random lose next to nothing.

Must not import: the runtime.
"""

import asyncio
from collections.abc import Callable
from typing import Final

GATHER_S_MAX: Final = 0.002
"""So long 64 callers on one machine need to come back. The timers of the event loop count ms."""
STRAGGLERS_SHARE: Final = 8
"""One of so many callers may be late: a flush does not wait for the last ones."""
DOUBLINGS_MAX: Final = 7
"""Then 127 flushes in a row do not wait."""


class GatherRule:
    """Decides whether the next flush waits."""

    def __init__(self) -> None:
        self._caller_count: int | None = None
        """Those who waited when the last flush ended, for it or behind it. None: none has ended."""
        self._vain_count = 0
        """How many waits in a row were ended by the clock."""
        self._skip_count = 1
        """So many flushes do not wait."""

    def is_whole(self, answer_count: int) -> bool:
        """Return whether a flush with so many answers behind it has all that it would wait for."""
        count = self._caller_count
        return count is not None and answer_count >= count - count // STRAGGLERS_SHARE

    def may_wait(self) -> bool:
        """Return whether a flush that is not whole waits. Ask once for each flush."""
        if self._skip_count:
            self._skip_count -= 1
            return False
        return True

    def note_wait(self, *, is_vain: bool) -> None:
        """Note that a wait is over: in vain, if the clock ended it."""
        self._vain_count = min(DOUBLINGS_MAX, self._vain_count + 1) if is_vain else 0
        self._skip_count = (1 << self._vain_count) - 1

    def note_flush(self, answer_count: int) -> None:
        """Note how many answers were behind a flush that has ended, or behind the next one."""
        self._caller_count = answer_count


class Gatherer:
    """Knows when the next flush starts, on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """`wake` is called when a flush may be ready without another input."""
        self.rule = GatherRule()
        self._loop = loop
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0
        """The flush that gathers."""
        self._is_waiting = False
        self._is_over = False
        """Whether it has waited for long enough."""

    def is_ready(self, answer_count: int, *, has_records: bool) -> bool:
        """Return whether the flush that gathers starts now. Otherwise `wake` is called later. A
        flush without records costs little, and does not wait for more."""
        if self._is_over or (has_records and self.rule.is_whole(answer_count)):
            self._begin_next()
            return True
        if not self._is_waiting:
            self._is_waiting = True
            if has_records and self.rule.may_wait():
                self._timer = self._loop.call_later(GATHER_S_MAX, self._end_wait, self._number)
            else:  # what has come by now joins it, after one more look at the sockets
                self._loop.call_soon(self._loop.call_soon, self._end_wait, self._number)
        return False

    def _begin_next(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.rule.note_wait(is_vain=self._is_over)
        self._number += 1
        self._is_waiting = self._is_over = False

    def _end_wait(self, number: int) -> None:
        if number == self._number:
            self._is_over = True
            self._wake()
