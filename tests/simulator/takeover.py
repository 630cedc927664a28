"""A master whose store another process has taken over, and who does not know yet.

Owns: what is left to it: its core, those of its callers whose connections still lead to it, and a
volume that fails at the next write, sooner or later. Nothing of its store reaches the disk any
more. Must not import: any core.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from simulator.disk import Disk, DiskOptions
from simulator.world import World

FAILURE_US_MAX = 3_000_000
"""A write to a volume that is gone may hang before it fails."""
LATE_US_MAX = 1_000_000
"""How late a process may hear of its last write."""


class LostDisk(Disk):
    """The volume is attached elsewhere: writes hang, and then they fail."""

    def __init__(self, world: World, name: str, random: Random, fail: Callable[[], None]) -> None:
        super().__init__(world, name, DiskOptions())
        self._draw = random
        self._fail: Callable[[], None] | None = fail

    def append(self, record: Any) -> None:
        """Nothing is written; the first one to try brings the process down, by and by."""
        if self._fail is not None:
            self._world.after(int(FAILURE_US_MAX ** self._draw.random()), self._fail)
            self._fail = None

    def crash(self) -> None:
        """There is nothing to lose here."""
        self._fail = None
