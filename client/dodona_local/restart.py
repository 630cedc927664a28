"""Decide when to restart a server, and when to restart it slowly. Pure: it takes lifetimes and
returns delays.

Owns: the back-off.
Must not import: any clock, asyncio.
"""

from typing import Final

START_FAILURES_MAX: Final = 5
START_AGAIN_S: Final = 15.0
"""The pause in seconds between two starts of a server that failed often. So a user who repairs it
sees it start soon."""
BACK_OFF_S_MIN: Final = 0.1
BACK_OFF_S_MAX: Final = 5.0
STEADY_S: Final = 10.0
"""A server that was ready for this many seconds is restarted without a long delay."""


class RestartRules:
    """Counts the ends of one server's runs."""

    def __init__(
        self, back_off_s_max: float = BACK_OFF_S_MAX, start_again_s: float = START_AGAIN_S
    ) -> None:
        self._back_off_s_max = back_off_s_max
        self._start_again_s = start_again_s
        self._start_failures = 0
        self._short_lives = 0

    @property
    def is_failing(self) -> bool:
        """Return whether the server failed to become ready too many times in a row. From then on it
        is restarted slowly."""
        return self._start_failures >= START_FAILURES_MAX

    def note_end(self, ready_s: float | None) -> float:
        """Note the end of a run that was ready for `ready_s` seconds (None: it never was).

        Return how many seconds to wait before the next start.
        """
        self._start_failures = self._start_failures + 1 if ready_s is None else 0
        is_steady = ready_s is not None and ready_s >= STEADY_S
        self._short_lives = 1 if is_steady else self._short_lives + 1
        if self.is_failing:
            return self._start_again_s
        exponent = min(self._short_lives - 1, 16)  # bounded before it is raised
        return min(self._back_off_s_max, BACK_OFF_S_MIN * 2.0**exponent)
