"""When to start a server again, and when to give up. Pure: lifetimes come in, delays go out.

Owns: the back-off. Imports no clock and no asyncio.
"""

from typing import Final

START_FAILURES_MAX: Final = 5
START_AGAIN_S: Final = 15.0
"""Between two starts of a server that failed so often: whoever mends it sees it come back."""
BACK_OFF_S_MIN: Final = 0.1
BACK_OFF_S_MAX: Final = 5.0
STEADY_S: Final = 10.0
"""A server that was up this long has earned an undelayed restart."""


class RestartRules:
    """Counts how one server's lives ended."""

    def __init__(
        self, back_off_s_max: float = BACK_OFF_S_MAX, start_again_s: float = START_AGAIN_S
    ) -> None:
        self._back_off_s_max = back_off_s_max
        self._start_again_s = start_again_s
        self._start_failures = 0
        self._short_lives = 0

    @property
    def is_failing(self) -> bool:
        """Whether it failed to become ready too many times in a row: from then on it is started
        at a slow pace."""
        return self._start_failures >= START_FAILURES_MAX

    def note_end(self, ready_s: float | None) -> float:
        """A life ended after `ready_s` seconds of being ready (None: it never was).

        Returns how many seconds to wait before the next one.
        """
        self._start_failures = self._start_failures + 1 if ready_s is None else 0
        is_steady = ready_s is not None and ready_s >= STEADY_S
        self._short_lives = 1 if is_steady else self._short_lives + 1
        if self.is_failing:
            return self._start_again_s
        exponent = min(self._short_lives - 1, 16)  # bounded before it is raised
        return min(self._back_off_s_max, BACK_OFF_S_MIN * 2.0**exponent)
