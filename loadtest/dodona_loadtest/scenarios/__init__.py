"""Scenarios: what load tests do, with how many callers, and with which values."""

from dodona_loadtest.scenarios.rows import (
    CrossCellCommits,
    HotRows,
    NonAtomic,
    RowCommits,
    Scans,
    SnapshotReads,
    Timestamps,
)
from dodona_loadtest.scenarios.scenario import Scenario
from dodona_loadtest.scenarios.smallbank import SmallBank
from dodona_loadtest.scenarios.ycsb import YCSB

_ALL: tuple[type[Scenario], ...] = (
    Timestamps,
    RowCommits,
    CrossCellCommits,
    NonAtomic,
    HotRows,
    SnapshotReads,
    Scans,
    *YCSB,
    SmallBank,
)
SCENARIOS: dict[str, type[Scenario]] = {scenario.name: scenario for scenario in _ALL}

__all__ = ["SCENARIOS", "Scenario"]
