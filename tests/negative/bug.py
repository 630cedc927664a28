"""What a planted bug is, and what it takes to catch it.

Owns: the records that the chapters in `planted` are made of. A bug is planted by patching the
code for as long as one run takes: there is no switch in the code itself. One is caught by the
simulator, within so many seeds from 0 on, or by a test of the suite that fails with it.
Must not import: any chapter.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from dodona_loadtest.checkers.violation import Promise
from simulator.faults import Fault, Options

ITEMS = range(1, 48)
"""The catalogue: bugs that other systems of this kind had, by number."""
ONE_ROUND_ITEMS = range(15, 37)
"""Those that have to be caught also where every commit is acknowledged once all are prepared."""
SEEDS_MAX = 100
CRASH_US = 5_000
PAUSE_US = 1_500_000

Plant = Callable[[pytest.MonkeyPatch], None]
"""Patches production code. What it keeps belongs to one run: it is called for each anew."""


@dataclass(frozen=True, slots=True)
class Where:
    """The runs in which a bug is looked for: what the seed would draw, but for `changes`."""

    workload: str = "bank"
    seconds: int = 15
    changes: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    disk: dict[str, Any] = field(default_factory=dict)
    crash_count: int = 0
    """Of each node, beside those drawn: quick restarts, evenly over the time."""

    takeover_count: int = 0
    """Of the master, beside those drawn; half of them while it stands still."""

    def alter(self, options: Options) -> Options:
        drawn = replace(options, **self.changes)
        return replace(
            drawn,
            network=replace(drawn.network, **self.network),
            disk=replace(drawn.disk, **self.disk),
            faults=(*drawn.faults, *self._crashes(drawn.cell_count), *self._takeovers()),
        )

    def _crashes(self, cell_count: int) -> list[Fault]:
        spacing_us = self.seconds * 1_000_000 // (1 + self.crash_count * cell_count)
        return [
            Fault(spacing_us * (1 + index), "crash", f"cell-{index % cell_count}", CRASH_US)
            for index in range(self.crash_count * cell_count)
        ]

    def _takeovers(self) -> list[Fault]:
        spacing_us = self.seconds * 1_000_000 // (1 + self.takeover_count)
        return [
            Fault(spacing_us * (1 + index) + index % 2, "takeover", "master", PAUSE_US)
            for index in range(self.takeover_count)
        ]


EVERYWHERE = Where()
BUSY: Final[dict[str, Any]] = {
    "session_count": 10,
    "think_us_mean": 20_000,
    "call_timeout_us": 700_000,
    "patience_ms": 300,
    "faults": (),
}
"""Nobody crashes: more commits are under way when something is lost, or late."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One that the simulator catches: by a violation of one of the promises. `item` is its number
    in the catalogue, None for one that is not there."""

    item: int | None
    title: str
    plant: Plant
    promises: tuple[Promise, ...]
    where: Where = EVERYWHERE
    seeds_max: int = SEEDS_MAX

    @property
    def is_of_one_round(self) -> bool:
        return self.item in ONE_ROUND_ITEMS


@dataclass(frozen=True, slots=True)
class CheckedBug:
    """One below what the simulator runs, or beside it. `check` is given an empty folder, and fails
    as a test does; `caught_by` names the test that it is."""

    item: int | None
    title: str
    plant: Plant
    check: Callable[[Path], None]
    caught_by: str

    @property
    def is_of_one_round(self) -> bool:
        """What it needs is no run of the simulator."""
        return False


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why an item, or a part of it, can't be planted: there is nothing yet that could break so."""

    item: int
    title: str
    reason: str
