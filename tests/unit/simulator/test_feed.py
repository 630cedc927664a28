"""The change feed under faults: runs in which somebody follows all tables."""

from dataclasses import replace
from typing import Any

import pytest

from dodona.schema import Column
from dodona.types import Timestamp
from dodona_loadtest.histories.history import RowKey, Version
from dodona_loadtest.histories.shape import TableShape
from dodona_loadtest.workloads import WORKLOADS
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.tablet.tablet import Tablet
from simulator.faults import Options
from simulator.feed import Follower
from simulator.simulation import Result, simulate
from suite.levels import sample

SECONDS = 10
SEEDS = (3, 4)


def followed(options: Options) -> Options:
    return replace(options, is_followed=True)


def run(seed: int, workload: str) -> Result:
    return simulate(seed, SECONDS, workload, NodeCore, alter=followed)


@pytest.mark.slow("simulates many clusters")
@pytest.mark.parametrize("workload", sample(sorted(WORKLOADS), one_in=3, why="a feed of changes"))
def test_every_version_comes_once(workload: str) -> None:
    results = [run(seed, workload) for seed in SEEDS]
    assert [it.violations for it in results] == [[], []]
    assert sum(it.counts["pages of changes"] for it in results) > 20


def test_the_feed_check_detects_rows_that_come_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps of clients whose clocks are behind, without what raises them."""
    monkeypatch.setattr(Tablet, "next_stamp", _careless)
    promises = [it.promise for seed in SEEDS for it in run(seed, "counters").violations]
    assert "FEED" in promises


def _careless(tablet: Tablet, stamp: Timestamp) -> Timestamp:
    return Timestamp(max(stamp, tablet.newest_stamp + 1))


def test_missing_or_extra_versions_in_the_change_feed_are_violations() -> None:
    columns = (Column("k", "int64", sort_order="ascending"), Column("v", "int64"))
    follower: Any = Follower([TableShape("//t", columns, ((),))])
    follower._until["//t"] = 5
    row = RowKey("//t", b"k")
    versions = [Version(row, at, (("v", 1),)) for at in (3, 5, 7)]
    follower._fed += [(row, 3, ("v",)), (row, 5, ("v",))]
    assert follower.check(versions) == []
    assert [it.promise for it in follower.check(versions[:1])] == ["FEED"]
    follower._fed.pop()
    assert "was never given" in follower.check(versions)[0].text
    follower._fed += [(row, 5, None)]
    assert len(follower.check(versions)) == 2
