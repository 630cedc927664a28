"""What the cores are told to do that is legal but rare: see `dodona_wire.cores.mischief`.

Owns: which points are active in a run, how often each of those fires, and how often it did. Each
point has a random stream of its own, forked by its name: another point changes neither the draws of
this one nor those of the network and the disks.
"""

from typing import Final

from dodona_wire.cores.mischief import Point
from simulator.world import World

FIRING_RATES: Final = (0.02, 0.1, 0.5)
COSTLY: Final = {
    Point.ROTATE_EARLY: 0.1,
    Point.COMPACT_EARLY: 0.1,
    Point.CHECKPOINT_EARLY: 0.1,
    Point.EXPIRE_LOAD_EARLY: 0.1,
}
"""Points that are asked at every tick and lead to long work: so much of the rate they get."""


class Imp:
    """Answers every point of every process of one run. It behaves before and after the storm."""

    def __init__(self, world: World, rate: float) -> None:
        """`rate` is the part of the points that are active."""
        assert 0 <= rate <= 1
        self._streams = {point: world.stream(f"mischief/{point.name}") for point in Point}
        self._rates = {
            point: stream.choice(FIRING_RATES) * COSTLY.get(point, 1)
            if stream.random() < rate
            else 0.0
            for point, stream in self._streams.items()
        }
        self._is_calm = True
        self.counts = {point.name: 0 for point in Point}
        """How often each point fired, 0 for those that never did."""

    def __call__(self, point: Point) -> bool:
        rate = self._rates[point]
        if self._is_calm or not rate or self._streams[point].random() >= rate:
            return False
        self.counts[point.name] += 1
        return True

    def storm(self) -> None:
        """From now on the active points fire."""
        self._is_calm = False

    def calm(self) -> None:
        """From now on nobody misbehaves."""
        self._is_calm = True
