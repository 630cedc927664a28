"""When a process dies in the middle of its work: between two effects, or soon after a certain one.

Owns: the crashes that no clock could aim at. Uniform instants rarely hit the windows that matter:
an append that is being written, an outcome that was told and lives in memory only.
Must not import: any core.
"""

from collections.abc import Callable
from random import Random
from typing import Literal

from dodona_wire.cores.effects import Append, Effect, ReplyTo, SendToCell
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import Status, TellAbort
from dodona_wire.messages.data import Aborted
from simulator.world import World

Moment = Literal["append", "verdict"]
"""append: a record is on its way to the disk; verdict: somebody is told that it is over."""
Crash = Callable[[], None]

DELAY_US_MAX = 2_000


class Doom:
    """One process's. Without orders nobody dies."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self._fuse: tuple[int, Crash] | None = None
        self._crashes: dict[Moment, Crash] = {}
        self.is_dead = False

    def light_fuse(self, effect_count: int, crash: Crash) -> None:
        """Die after so many effects: none behind it is carried out."""
        assert effect_count > 0
        self._fuse = (effect_count, crash)

    def die_after(self, moment: Moment, crash: Crash) -> None:
        """Die within a few milliseconds of the next such moment."""
        self._crashes[moment] = crash

    def spare(self) -> None:
        """Forget all orders that were not carried out yet."""
        self._crashes.clear()
        if not self.is_dead:
            self._fuse = None

    def watch(self, effect: Effect) -> None:
        """An effect was carried out."""
        if self._fuse is not None and not self.is_dead:
            count, crash = self._fuse
            self._fuse = (count - 1, crash)
            if count == 1:
                self.is_dead = True
                self._world.after(0, crash)
        if self._crashes:
            moment = _moment_of(effect)
            if moment in self._crashes:
                crash = self._crashes.pop(moment)
                self._world.after(self._random.randrange(DELAY_US_MAX), crash)


def _moment_of(effect: Effect) -> Moment | None:
    if isinstance(effect, Append):
        return "append"
    if isinstance(effect, SendToCell) and isinstance(effect.body, TellAbort | Status):
        return "verdict"
    if isinstance(effect, ReplyTo) and isinstance(effect.body, Aborted | Failure):
        return "verdict"
    return None
