"""The timestamp allocator: unique, rising, close to the clock, always below a durable bound.

Owns: which timestamps are given out, and the ceiling below which they stay. Invariants:

- `next_unused` never falls, and every timestamp given out lay below it only afterwards: so each is
  unique, and larger than any given out before.
- `next_unused <= appended`, and a range is *told* to anybody only once `durable` covers it (the
  caller's business: see `Grant.is_durable`). After a crash the allocator goes on from the last
  durable ceiling, above all that was told, at once.
- A range is told at once only within a *lease*, which begins when an append is made and counts once
  it is durable. Whoever takes the store over waits for longer than that, so that two masters
  never tell timestamps at the same time. Without a lease, after a pause or with a disk that
  hangs, the answer waits for an append: one that has lost its store can't make any.
- The clock only ever pulls `next_unused` forward, and only while it is believed (`clock_guard`):
  after too long a jump nothing is given out. A clock that steps back is waited out by nobody: the
  counter goes on from where it was.

The ceiling lies a window ahead of the clock. While the counter itself runs ahead of the clock
(after a restart, or when the clock stepped back) it lies only a little ahead of the counter, so
that no number of restarts in a row drives timestamps away from physical time. Pure: time is an
argument.
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
"""Before every instant."""

ROUNDING_US: Final = 1000
"""Two clocks and a timer never agree to the microsecond."""


class AllocatorSettings(msgspec.Struct, frozen=True):
    """How far ahead of need the ceiling is kept."""

    window_us: int = 400_000
    """The ceiling's distance from the clock when it is renewed. Less than the second within which
    timestamps promise to follow physical time, since a restart jumps to the ceiling."""
    renew_us: int = 200_000
    """Renewed when less than this is left: ample time for a slow disk."""
    margin_count: int = 10 * TIMESTAMPS_PER_REQUEST_MAX
    """The same distance in timestamps, for a counter that runs ahead of the clock."""
    demand_us: int = 5_000_000
    """Renewed by the clock, without a request, while the last request is younger than this."""
    lease_us: int = 1_000_000
    """How long after an append it is certain that nobody else has the store."""
    clock_jump_us_max: int = 24 * HOUR_US
    """How far the clock may jump ahead while a master runs. More is taken for a mistake."""
    clock_start_us_max: int = 366 * DAY_US
    """How far it may be ahead of the last ceiling at a start."""
    takeover_us: int = 1_200_000
    """How long a master waits before its first timestamp if its predecessor may still be running:
    the lease, and what two clocks may differ by meanwhile."""


class Grant(NamedTuple):
    """`first` to `first + count - 1` are the caller's. `append` must be appended before they are
    told to anybody; without it, `is_durable` says whether they may be told at once."""

    first: Timestamp
    append: Timestamp | None
    is_durable: bool


class Allocator:
    """`take` ranges; append the ceilings it asks for; `acknowledge` them once they are durable."""

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
        # All below the ceiling may have been given out by an earlier process, nothing above it.
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
        """When a request came last, if that was lately: the ceiling is kept ahead of the clock."""
        self._renew_at_us = 0
        self._ahead = self._ahead_max = 0

    @property
    def ahead(self) -> ClockDifference:
        """How far what was given out lay ahead of the clock."""
        last, largest = Timestamp(self._ahead), Timestamp(self._ahead_max)
        return ClockDifference(unix_us_from_timestamp(last), unix_us_from_timestamp(largest))

    @property
    def next_unused(self) -> int:
        """All timestamps given out lie below this."""
        return self._next_unused

    @property
    def durable(self) -> int:
        """The largest ceiling known to be durable."""
        return self._durable

    @property
    def appended(self) -> int:
        """The largest ceiling that was asked to be made durable."""
        return self._appended

    def take(self, count: int, now: Now) -> Grant | None:
        """A fresh range; None while the clock is not believed, and when the timestamps are used up
        for good: `why_none` says which."""
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
        """Why a request of the largest size would be refused now, or None if it would not."""
        if not self._guard.is_believed(now):
            return self._guard.complaint(now)
        first = max(self._next_unused, _clock(now))
        return USED_UP if first + TIMESTAMPS_PER_REQUEST_MAX > MAX_TIMESTAMP else None

    def _newest_lease_us(self) -> int:
        """The end of the lease as soon as all is durable that was appended."""
        return self._on_the_way[-1][1] if self._on_the_way else self._leased_until_us

    def renew(self, now: Now) -> Timestamp | None:
        """A new ceiling to append ahead of need, if little is left and no append is under way."""
        settings = self._settings
        if self._appended > self._durable or self.last_demand_us is None:
            return None
        is_near_counter = self._appended < self._next_unused + settings.margin_count // 2
        if now.instant_us < self._renew_at_us and not is_near_counter:
            return None
        if now.instant_us - self.last_demand_us > settings.demand_us:
            self.last_demand_us = None  # nobody asks any more: let the window lapse
            return None
        spare = self._appended - self._physical(now) - _ticks(settings.renew_us)
        is_lease_long = self._leased_until_us - now.instant_us > settings.lease_us // 2
        if is_lease_long and not is_near_counter and spare > _ticks(ROUNDING_US):
            self._renew_at_us = now.instant_us + settings.renew_us  # the clock stepped back
            return None
        return self._raise_ceiling(now)

    def prepare(self, now: Now) -> Timestamp:
        """The ceiling to append at a start, so that the first caller need not wait for it."""
        self.last_demand_us = now.instant_us
        return self._raise_ceiling(now)

    def acknowledge(self, ceiling: Timestamp) -> None:
        """This ceiling is durable."""
        assert self._durable < ceiling, "ceilings become durable in order"
        assert self._on_the_way, "a ceiling that was never appended"
        appended, leased_until_us = self._on_the_way.popleft()
        assert ceiling == appended, "a ceiling that was never appended"
        self._durable = ceiling
        self._leased_until_us = leased_until_us

    def next_deadline(self) -> int | None:
        """When to call `renew`, as an instant in microseconds; None while nobody asks."""
        if self.last_demand_us is None or self._appended > self._durable:
            return None
        return self._renew_at_us

    def _physical(self, now: Now) -> int:
        """The clock as a timestamp, as long as it is believed; then the counter alone counts."""
        return _clock(now) if self._guard.is_believed(now) else 0

    def _raise_ceiling(self, now: Now) -> Timestamp:
        settings = self._settings
        ahead_of_clock = self._physical(now) + _ticks(settings.window_us)
        ahead_of_counter = self._next_unused + settings.margin_count
        if self._fault_at(FaultPoint.RAISE_CEILING_LITTLE):
            ahead_of_clock = ahead_of_counter = self._next_unused
        # Never lowered: a clock that stepped back has no say.
        self._appended = max(self._appended + 1, ahead_of_clock, ahead_of_counter)
        self._renew_at_us = now.instant_us + settings.window_us - settings.renew_us
        self._on_the_way.append((self._appended, now.instant_us + settings.lease_us))
        return Timestamp(self._appended)


def _clock(now: Now) -> int:
    """The clock as a timestamp, kept within what a timestamp can hold whatever the clock says."""
    return timestamp_from_unix_us(min(max(now.unix_us, 0), LAST_UNIX_US))


def _ticks(duration_us: int) -> int:
    return timestamp_from_unix_us(duration_us)
