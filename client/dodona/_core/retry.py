"""When to try again, and for how long. Pure: the clock and the dice are handed in.

Owns: back-off (exponential, full jitter) and the bounds of every retry loop of the client: a number
of attempts and a time. Both are counted from the first failure, so success costs nothing.
"""

from collections.abc import Callable
from typing import Final

from dodona._core.steps import Pause

PAUSE_MS_FIRST: Final = 4
PAUSE_MS_MAX: Final = 500

InstantClock = Callable[[], int]
"""→ monotonic microseconds."""
Dice = Callable[[], float]
"""→ a number from 0 up to 1."""


def backoff_ms(attempt: int, dice: Dice, first_ms: int, max_ms: int) -> int:
    """A pause before attempt `attempt` + 1 (the first failure is attempt 1): full jitter."""
    assert attempt > 0
    longest_ms = min(max_ms, first_ms << min(attempt - 1, 20))
    return 1 + int(longest_ms * dice())


class Patience:
    """The bounds of one operation's retries."""

    __slots__ = ("_attempt", "_attempts_max", "_clock", "_deadline_us", "_dice", "_pause_ms_max")

    def __init__(
        self,
        clock: InstantClock,
        dice: Dice,
        *,
        duration_ms: int,
        attempts_max: int,
        pause_ms_max: int = PAUSE_MS_MAX,
    ) -> None:
        assert duration_ms > 0
        assert attempts_max > 0
        self._clock = clock
        self._dice = dice
        self._deadline_us = clock() + duration_ms * 1000
        self._attempts_max = attempts_max
        self._pause_ms_max = pause_ms_max
        self._attempt = 0

    @property
    def remaining_ms(self) -> int:
        return max(0, (self._deadline_us - self._clock()) // 1000)

    def next_pause(self) -> Pause | None:
        """How long to wait before the next attempt, or None when it is time to give up."""
        self._attempt += 1
        remaining_ms = self.remaining_ms
        if self._attempt > self._attempts_max or remaining_ms == 0:
            return None
        pause_ms = backoff_ms(self._attempt, self._dice, PAUSE_MS_FIRST, self._pause_ms_max)
        return Pause(min(pause_ms, remaining_ms))


RERUN_PAUSE_MS_FIRST: Final = 5
RERUN_PAUSE_MS_MAX: Final = 1_000
RERUN_ATTEMPTS_MAX: Final = 10
RERUN_DEADLINE_MS: Final = 30_000


class Rerun:
    """The bounds of a function that runs as a transaction again and again until it commits."""

    def __init__(
        self, clock: InstantClock, dice: Dice, *, attempts_max: int, deadline_ms: int
    ) -> None:
        """`deadline_ms` is from now; no attempt begins after it."""
        self._clock = clock
        self._dice = dice
        self._attempts_max = attempts_max
        self._deadline_us = clock() + deadline_ms * 1000
        self._attempt = 0

    @property
    def attempt_count(self) -> int:
        """Attempts that have failed so far."""
        return self._attempt

    def next_pause(self) -> Pause | None:
        """How long to wait before the next attempt, or None if there is to be none."""
        self._attempt += 1
        if self._attempt >= self._attempts_max:
            return None
        pause_ms = backoff_ms(self._attempt, self._dice, RERUN_PAUSE_MS_FIRST, RERUN_PAUSE_MS_MAX)
        is_late = self._clock() + pause_ms * 1000 >= self._deadline_us
        return None if is_late else Pause(pause_ms)
