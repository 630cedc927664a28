"""Injects faults that are legal but rare into the cores: see `dodona_wire.cores.fault_points`.

Owns: which fault points are active in a run, how often each fires, and how often it did. Each
point has a random stream of its own, forked by its name: a new point changes neither the draws of
the others nor those of the network and the disks.
"""

from typing import Final

from dodona_wire.cores.fault_points import FaultPoint
from simulator.world import World

FIRING_RATES: Final = (0.02, 0.1, 0.5)
COSTLY: Final = {
    FaultPoint.ROTATE_EARLY: 0.1,
    FaultPoint.COMPACT_EARLY: 0.1,
    FaultPoint.CHECKPOINT_EARLY: 0.1,
    FaultPoint.EXPIRE_LOAD_EARLY: 0.1,
    FaultPoint.END_LOCKS_EARLY: 0.1,
}
"""Points that are asked at every tick and lead to long work: so much of the rate they get."""


STREAM: Final = "mischief"
"""Of the points' random streams. It stays as it is: with another, each seed draws other faults."""


class FaultInjector:
    """Answers every fault point of every process of one run. No point fires outside the storm."""

    def __init__(self, world: World, rate: float) -> None:
        """`rate` is the part of the points that are active."""
        assert 0 <= rate <= 1
        self._streams = {point: world.stream(f"{STREAM}/{point.name}") for point in FaultPoint}
        self._rates = {
            point: stream.choice(FIRING_RATES) * COSTLY.get(point, 1)
            if stream.random() < rate
            else 0.0
            for point, stream in self._streams.items()
        }
        self._is_calm = True
        self.counts = {point.name: 0 for point in FaultPoint}
        """How often each point fired, 0 for those that never did."""

    def __call__(self, point: FaultPoint) -> bool:
        rate = self._rates[point]
        if self._is_calm or not rate or self._streams[point].random() >= rate:
            return False
        self.counts[point.name] += 1
        return True

    def storm(self) -> None:
        """From now on the active points fire."""
        self._is_calm = False

    def calm(self) -> None:
        """From now on no point fires."""
        self._is_calm = True
