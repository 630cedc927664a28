"""Decides whether to believe the clock: once timestamps follow a wrong clock, they cannot go back.

Owns: the bounds of a jump ahead. While the master runs, its monotonic clock says how much time has
passed, so a jump shows. At a start only the last ceiling is known. The machine may have been off
for long, so a much larger jump is allowed then. Pure: time is an argument.

A clock that steps back needs no guard: the allocator's counter continues from where it was.
"""

from typing import Final

from dodona_wire.types import Now

LAST_UNIX_US: Final = (1 << 32) * 1_000_000 - 1
"""The last microsecond that a timestamp has bits for, in the year 2106."""
HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
START_VARIABLE: Final = "DODONA_MASTER_CLOCK_START_DAYS_MAX"
"""The variable that sets the limit at a start, for embedded databases as well."""


class ClockGuard:
    """The guard of one master. It gets the newest timestamp as Unix time, 0 if there is none."""

    def __init__(self, newest_us: int, jump_us_max: int, start_jump_us_max: int) -> None:
        self._newest_us = newest_us
        self._jump_us_max = jump_us_max
        self._start_jump_us_max = start_jump_us_max
        self._base_us: int | None = None
        """The largest lead of the clock over the monotonic clock while it was believed."""

    def is_believed(self, now: Now) -> bool:
        """Return whether the clock shows a possible time."""
        base_us = self._base_us
        offset_us = now.unix_us - now.instant_us
        if base_us is not None:
            is_believed = offset_us - base_us <= self._jump_us_max
        elif self._newest_us == 0:
            is_believed = True
        else:
            is_believed = now.unix_us - self._newest_us <= self._start_jump_us_max
        if not is_believed or now.unix_us > LAST_UNIX_US:
            return False
        if base_us is None or offset_us > base_us:
            self._base_us = offset_us
        return True

    def complaint(self, now: Now) -> str:
        """Return the complaint about a clock that is not believed."""
        setting = "clock-start-days-max" if self._base_us is None else "clock-jump-hours-max"
        if now.unix_us > LAST_UNIX_US:
            what = "is past the year 2106, the end of all timestamps: set the clock right"
        elif self._base_us is None:
            days = (now.unix_us - self._newest_us) // DAY_US
            what = f"is {days:,} days ahead of the last timestamp, more than {setting}: "
            enough = days + 2  # with a day to do it in
            what += (
                "set the clock right, or, if it is right, raise the limit "
                f"({START_VARIABLE}={enough})"
            )
        else:
            hours = (now.unix_us - now.instant_us - self._base_us) / HOUR_US
            what = f"jumped {hours:,.1f} hours ahead, more than {setting}: "
            what += (
                "set the clock right, or, if it is right, restart the master "
                "(or open the embedded database again)"
            )
        return f"no timestamps are given out: the clock of the master's machine {what}"
