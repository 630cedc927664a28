"""Whether the clock may be believed: timestamps never come back from where it once led them.

Owns: the bounds of a forward jump. While the master runs, its monotonic clock tells how much time
has passed, so that a jump shows. At a start only the last ceiling is known: a machine may have been
off for long, so much more is allowed. Pure: time is an argument.

A clock that steps back is no matter of this: the allocator's counter goes on from where it was.
"""

from typing import Final

from dodona_wire.types import Now

LAST_UNIX_US: Final = (1 << 32) * 1_000_000 - 1
"""The last microsecond that a timestamp has bits for, in the year 2106."""
HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
START_VARIABLE: Final = "DODONA_MASTER_CLOCK_START_DAYS_MAX"
"""Where the limit at a start is set, for embedded databases as well."""


class ClockGuard:
    """Of one master. Told the newest timestamp as Unix time, 0 if there is none."""

    def __init__(self, newest_us: int, jump_us_max: int, start_jump_us_max: int) -> None:
        self._newest_us = newest_us
        self._jump_us_max = jump_us_max
        self._start_jump_us_max = start_jump_us_max
        self._base_us: int | None = None
        """How far the clock was ahead of the monotonic one, at most, when it was believed."""

    def is_believed(self, now: Now) -> bool:
        """Whether the clock shows a time that it can have come to."""
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
        """About a clock that is not believed."""
        setting = "clock-start-days-max" if self._base_us is None else "clock-jump-hours-max"
        if now.unix_us > LAST_UNIX_US:
            what = "is past the year 2106, the end of all timestamps: set it right"
        elif self._base_us is None:
            days = (now.unix_us - self._newest_us) // DAY_US
            what = f"is {days:,} days ahead of the last timestamp, more than {setting}: "
            enough = days + 2  # with a day to do it in
            what += f"set it right, or raise the limit if it is right ({START_VARIABLE}={enough})"
        else:
            hours = (now.unix_us - now.instant_us - self._base_us) / HOUR_US
            what = f"jumped {hours:,.1f} hours ahead, more than {setting}: "
            what += "set it right, or restart the master if it is right; embedded, open it again"
        return f"no timestamps are given out: the clock of the master's machine {what}"
