"""Virtual time and seeded randomness: the only clock and the only dice of a run.

Owns: the event queue, the virtual instant, and the random streams. Events at one instant run in
the order in which they were made, so a run depends on its seed alone. Each subsystem has its own
stream, forked by name: a draw added in one does not shift the others.
Must not import: any core.
"""

import hashlib
import heapq
from collections.abc import Callable
from random import Random
from typing import Final

from dodona.types import Now

UNIX_US_AT_START: Final = 1_700_000_000_000_000
PPM: Final = 1_000_000
EVENTS_MAX: Final = 50_000_000
"""A run that makes more events than this does not end by itself."""

Action = Callable[[], None]


class World:
    """The event queue. `trace` takes in everything that makes one run differ from another."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.event_count = 0
        self.trace = hashlib.sha256()
        self._sequence = 0
        self._events: list[tuple[int, int, Action]] = []

    def stream(self, name: str) -> Random:
        """The random stream of that name: the same for the same seed, whatever else is drawn."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return Random(int.from_bytes(digest, "big"))

    def after(self, delay_us: int, action: Action) -> None:
        """Do this later; a delay of 0 is after all that was made for now before."""
        assert delay_us >= 0
        self._sequence += 1
        heapq.heappush(self._events, (self.now_us + delay_us, self._sequence, action))

    def run_until(self, instant_us: int) -> None:
        """Let everything happen up to and including the instant."""
        events = self._events
        while events and events[0][0] <= instant_us:
            self.now_us, _, action = heapq.heappop(events)
            self.event_count += 1
            assert self.event_count <= EVENTS_MAX, "the run does not come to an end"
            action()
        self.now_us = instant_us


class Clock:
    """One process's clocks. Monotonic instants begin anywhere and never go back, the wall clock may
    be stepped; both may go a little too fast or too slow."""

    def __init__(self, world: World, instant_base_us: int) -> None:
        self._world = world
        self._instant_us = instant_base_us + world.now_us
        self._instant_since_us = world.now_us
        self._instant_rate_ppm = PPM
        self._unix_us = UNIX_US_AT_START
        self._unix_since_us = 0
        self._rate = 1.0

    def now(self) -> Now:
        now_us = self._world.now_us
        elapsed_us = (now_us - self._instant_since_us) * self._instant_rate_ppm // PPM
        unix_us = self._unix_us + int((now_us - self._unix_since_us) * self._rate)
        return Now(self._instant_us + elapsed_us, unix_us)

    def set_rate(self, rate: float) -> None:
        """From now on the wall clock goes so many times as fast as time; 0: it stands still."""
        assert rate >= 0
        self._unix_us, self._unix_since_us = self.now().unix_us, self._world.now_us
        self._rate = rate

    def set_instant_drift(self, drift_ppm: int) -> None:
        """From now on instants pass so many parts in a million faster than time, or slower."""
        assert abs(drift_ppm) < PPM
        self._instant_us, self._instant_since_us = self.now().instant_us, self._world.now_us
        self._instant_rate_ppm = PPM + drift_ppm

    def step(self, duration_us: int) -> None:
        """The wall clock jumps, either way."""
        self._unix_us += duration_us

    def delay_until(self, instant_us: int) -> int:
        """Microseconds of true time to one of this process's instants, 0 if it has passed. Not one
        too few: this process's clock shows at least that instant then."""
        elapsed_us = -((self._instant_us - instant_us) * PPM // self._instant_rate_ppm)
        return max(0, elapsed_us - (self._world.now_us - self._instant_since_us))

    def delay_of(self, duration_us: int) -> int:
        """Microseconds of true time until that long has passed by this process's instants."""
        return self.delay_until(self.now().instant_us + duration_us)

    def restart(self, instant_base_us: int) -> None:
        """A new process: its instants have nothing to do with those of the one before."""
        self._instant_us = instant_base_us + self._world.now_us
        self._instant_since_us = self._world.now_us
