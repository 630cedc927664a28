"""The timestamp allocator: it gives out unique, rising timestamps that are close to the clock.

Owns: which timestamps are given out, and the ceiling above them.

Invariants:
- `next_unused` never falls, and the allocator takes timestamps only from there on. So each
  timestamp is unique, and larger than all earlier ones.
- `next_unused <= appended`. The caller sends a range to a client only after `durable` covers the
  range (see `Grant.is_durable`). After a crash the allocator continues from the last durable
  ceiling, without a wait. All timestamps that clients have received lie below it.
- A range may be sent without a wait only within a *lease*. A lease begins when the allocator asks
  for an append, and it counts once that append is durable. A master that takes over the store waits
  for longer than a lease. So two masters never send timestamps at the same time. Without a lease
  the answer waits for an append: this is so after a pause, or if the disk hangs. A master that has
  lost its store cannot append.
- The clock only moves `next_unused` forward, and only while `clock_guard` believes the clock. After
  too long a jump the allocator gives out nothing. If the clock steps back, the allocator does not
  wait. Its counter continues from where it was.

The ceiling lies a window ahead of the clock. After a restart, or after the clock stepped back, the
counter runs ahead of the clock. Then the ceiling lies only a little ahead of the counter. So even
many restarts in a row do not move timestamps away from physical time. Pure: time is an argument.
"""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from dodona_oracle.core.clock_guard import DAY_US, HOUR_US, LAST_UNIX_US, ClockGuard
from dodona_wire.cores.counting import ClockDifference
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.types import (
    MAX_TIMESTAMP,
    TIMESTAMPS_PER_REQUEST_MAX,
    Now,
    Timestamp,
    timestamp_from_unix_us,
    unix_us_from_timestamp,
)

USED_UP: Final = (
    "timestamps are used up: the clock of the master's machine was far ahead before; restore a "
    "backup into a new folder"
)

NEVER_US: Final = -1
"""An instant before all others."""

ROUNDING_US: Final = 1000
"""The tolerance between clocks and timers. Two of them never agree to the microsecond."""


class AllocatorSettings(msgspec.Struct, frozen=True):
    """How far ahead of need the allocator keeps the ceiling."""

    window_us: int = 400_000
    """The distance of a new ceiling from the clock. It is less than the second within which
    timestamps promise to follow physical time, because a restart jumps to the ceiling."""
    renew_us: int = 200_000
    """The ceiling is renewed when less than this is left. It is ample time for a slow disk."""
    margin_count: int = 10 * TIMESTAMPS_PER_REQUEST_MAX
    """The distance of the ceiling in timestamps, for a counter that runs ahead of the clock."""
    demand_us: int = 5_000_000
    """The allocator renews the ceiling by the clock, without a request, while the last request is
    younger than this."""
    lease_us: int = 1_000_000
    """How long after an append it is certain that no other master has the store."""
    clock_jump_us_max: int = 24 * HOUR_US
    """How far the clock may jump ahead while a master runs. More is taken for a mistake."""
    clock_start_us_max: int = 366 * DAY_US
    """How far the clock may be ahead of the last ceiling at a start."""
    takeover_us: int = 1_200_000
    """How long a master waits before its first timestamp if its predecessor may still run. It is
    the lease plus the possible difference of two clocks in that time."""


class Grant(NamedTuple):
    """A range for the caller: `first` to `first + count - 1`. If `append` is set, the caller must
    append it before it sends the range. Otherwise `is_durable` says whether the caller may send the
    range now."""

    first: Timestamp
    append: Timestamp | None
    is_durable: bool


class Allocator:
    """Gives out ranges with `take`. The caller appends the ceilings that it returns, and calls
    `acknowledge` once they are durable."""

    def __init__(
        self,
        ceiling: Timestamp,
        settings: AllocatorSettings | None = None,
        fault_at: FaultAt = no_faults,
    ) -> None:
        self._settings = settings or AllocatorSettings()
        self._fault_at = fault_at
        self._injects_faults = fault_at is not no_faults
        assert 0 < self._settings.renew_us < self._settings.window_us
        assert self._settings.margin_count >= TIMESTAMPS_PER_REQUEST_MAX
        assert self._settings.window_us < self._settings.lease_us < self._settings.takeover_us
        # An earlier process may have given out any timestamp below the ceiling, and none above it.
        self._next_unused: int = max(ceiling, 1)
        self._appended: int = ceiling
        self._durable: int = ceiling
        self._on_the_way: deque[tuple[int, int]] = deque()
        """Ceilings that were appended and are not durable yet, each with the end of its lease."""
        self._leased_until_us = NEVER_US
        last_us = unix_us_from_timestamp(ceiling) if ceiling else 0
        jump_us_max, start_us_max = (
            self._settings.clock_jump_us_max,
            self._settings.clock_start_us_max,
        )
        self._guard = ClockGuard(last_us, jump_us_max, start_us_max)
        self.last_demand_us: int | None = None
        """When the last request came, or None if that was long ago. While it is set, the ceiling
        stays ahead of the clock."""
        self._renew_at_us = 0
        self._ahead = self._ahead_max = 0

    @property
    def ahead(self) -> ClockDifference:
        """How far timestamps lay ahead of the clock when they were given out."""
        last, largest = Timestamp(self._ahead), Timestamp(self._ahead_max)
        return ClockDifference(unix_us_from_timestamp(last), unix_us_from_timestamp(largest))

    @property
    def next_unused(self) -> int:
        """All timestamps that were given out lie below this one."""
        return self._next_unused

    @property
    def durable(self) -> int:
        """The largest ceiling that is known to be durable."""
        return self._durable

    @property
    def appended(self) -> int:
        """The largest ceiling that was passed on to be appended."""
        return self._appended

    def take(self, count: int, now: Now) -> Grant | None:
        """Return a fresh range. Return None while the clock is not believed, or when all timestamps
        are used up. `why_none` says which."""
        assert 0 < count <= TIMESTAMPS_PER_REQUEST_MAX
        if not self._guard.is_believed(now):
            return None
        physical = _clock(now)
        first = max(self._next_unused, physical)
        self._ahead = first - physical
        if self._ahead > self._ahead_max:
            self._ahead_max = self._ahead
        if self._injects_faults and self._fault_at(FaultPoint.LEAVE_GAP):
            first += TIMESTAMPS_PER_REQUEST_MAX
        end = first + count
        if end > MAX_TIMESTAMP:
            return None
        self._next_unused = end
        self.last_demand_us = now.instant_us
        is_proof_coming = now.instant_us <= self._newest_lease_us()
        must_append = end > self._appended or not is_proof_coming
        append = self._raise_ceiling(now) if must_append else None
        assert end <= self._appended, "a timestamp above the ceiling"
        is_leased = now.instant_us <= self._leased_until_us
        return Grant(Timestamp(first), append, is_leased and end <= self._durable)

    def why_none(self, now: Now) -> str | None:
        """Return why a request of the largest size would be refused now, or None."""
        if not self._guard.is_believed(now):
            return self._guard.complaint(now)
        first = max(self._next_unused, _clock(now))
        return USED_UP if first + TIMESTAMPS_PER_REQUEST_MAX > MAX_TIMESTAMP else None

    def _newest_lease_us(self) -> int:
        """Return the end of the lease that is valid once all appended ceilings are durable."""
        return self._on_the_way[-1][1] if self._on_the_way else self._leased_until_us

    def renew(self, now: Now) -> Timestamp | None:
        """Return a new ceiling to append ahead of need: little is left, and no append waits."""
        settings = self._settings
        if self._appended > self._durable or self.last_demand_us is None:
            return None
        is_near_counter = self._appended < self._next_unused + settings.margin_count // 2
        if now.instant_us < self._renew_at_us and not is_near_counter:
            return None
        if now.instant_us - self.last_demand_us > settings.demand_us:
            self.last_demand_us = None  # no client asks any more: let the window lapse
            return None
        spare = self._appended - self._physical(now) - _ticks(settings.renew_us)
        is_lease_long = self._leased_until_us - now.instant_us > settings.lease_us // 2
        if is_lease_long and not is_near_counter and spare > _ticks(ROUNDING_US):
            self._renew_at_us = now.instant_us + settings.renew_us  # the clock stepped back
            return None
        return self._raise_ceiling(now)

    def prepare(self, now: Now) -> Timestamp:
        """Return the ceiling to append at a start, so that the first caller need not wait."""
        self.last_demand_us = now.instant_us
        return self._raise_ceiling(now)

    def acknowledge(self, ceiling: Timestamp) -> None:
        """Note that this ceiling is durable."""
        assert self._durable < ceiling, "ceilings become durable in order"
        assert self._on_the_way, "a ceiling that was never appended"
        appended, leased_until_us = self._on_the_way.popleft()
        assert ceiling == appended, "a ceiling that was never appended"
        self._durable = ceiling
        self._leased_until_us = leased_until_us

    def next_deadline(self) -> int | None:
        """Return when to call `renew`, as an instant in microseconds; None without requests."""
        if self.last_demand_us is None or self._appended > self._durable:
            return None
        return self._renew_at_us

    def _physical(self, now: Now) -> int:
        """Return the clock as a timestamp, or 0 while the clock is not believed."""
        return _clock(now) if self._guard.is_believed(now) else 0

    def _raise_ceiling(self, now: Now) -> Timestamp:
        settings = self._settings
        ahead_of_clock = self._physical(now) + _ticks(settings.window_us)
        ahead_of_counter = self._next_unused + settings.margin_count
        if self._fault_at(FaultPoint.RAISE_CEILING_LITTLE):
            ahead_of_clock = ahead_of_counter = self._next_unused
        # The ceiling never falls, even if the clock stepped back.
        self._appended = max(self._appended + 1, ahead_of_clock, ahead_of_counter)
        self._renew_at_us = now.instant_us + settings.window_us - settings.renew_us
        self._on_the_way.append((self._appended, now.instant_us + settings.lease_us))
        return Timestamp(self._appended)


def _clock(now: Now) -> int:
    """Return the clock as a timestamp, limited to the range of timestamps."""
    return timestamp_from_unix_us(min(max(now.unix_us, 0), LAST_UNIX_US))


def _ticks(duration_us: int) -> int:
    return timestamp_from_unix_us(duration_us)
