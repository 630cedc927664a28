"""Fault points: each is reached, changes something, and breaks no promise."""

from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from dodona_wire.cores.fault_points import FaultPoint, no_faults
from simulator.drawing import draw_options
from simulator.fault_injector import FIRING_RATES, FaultInjector
from simulator.faults import Options
from simulator.simulation import Result, simulate
from simulator.world import World
from suite.levels import share

SECONDS = 15
SEEDS_MIN, SEEDS_MAX = 24, 96
"""Writers wait for each other in one run of a dozen."""
SEEDS_TOGETHER = 6
"""In one test, so that none takes minutes."""
DRAWS = 5_000
WORKLOADS = {
    FaultPoint.ANSWER_LINE_EARLY: "hot_rows",
    FaultPoint.CLOSE_LOAD_LATE: "loads",
    FaultPoint.CONDENSE_READS: "serializable",
    FaultPoint.END_LOCKS_EARLY: "hot_rows",
    FaultPoint.EXPIRE_LOAD_EARLY: "loads",
    FaultPoint.FORGET_RECENT_KEYS: "serializable",
    FaultPoint.FORGET_SEAL: "loads",
    FaultPoint.LEAVE_LOAD_OPEN: "loads",
    FaultPoint.LOSE_PUBLISHED: "loads",
    FaultPoint.LOSE_SEALED: "loads",
    FaultPoint.LOSE_STAGED: "loads",
    FaultPoint.REPEAT_LOCKS: "hot_rows",
    FaultPoint.SEAL_TWICE: "loads",
}
"""Of points that most workloads never come to."""
UNSEEN = (FaultPoint.WAKE_FOR_NOTHING, FaultPoint.WRITE_THE_LONG_WAY)
"""Whoever wakes for nothing most often goes on waiting. Both ways of a write ask the same."""


class OneTrack(FaultInjector):
    """Fires one point only, half of the time."""

    def __init__(self, world: World, point: FaultPoint) -> None:
        super().__init__(world, 0.0)
        self._rates[point] = 0.5


def injector(seed: int = 1, rate: float = 1.0) -> FaultInjector:
    made = FaultInjector(World(seed), rate)
    made.storm()
    return made


def answers(asked: FaultInjector, point: FaultPoint) -> list[bool]:
    return [asked(point) for _ in range(DRAWS)]


def set_rate(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """So many points are active. In all runs there is a busy operator, who makes rows move."""

    def draw(random: Random, duration_us: int) -> Options:
        options = draw_options(random, duration_us)
        return replace(options, fault_point_rate=rate, remount_us_mean=500_000)

    monkeypatch.setattr("simulator.simulation.draw_options", draw)


def run(seed: int, workload: str | None = None) -> Result:
    result = simulate(seed, SECONDS, workload)
    assert result.violations == [], f"replay: {result.command}"
    return result


# Who may, and when


def test_no_point_fires_before_and_after_the_storm() -> None:
    made = FaultInjector(World(1), 1.0)
    before = [made(point) for point in FaultPoint for _ in range(DRAWS)]
    made.storm()
    during = [made(point) for point in FaultPoint for _ in range(DRAWS)]
    made.calm()
    after = [made(point) for point in FaultPoint for _ in range(DRAWS)]
    assert (any(before), all(made.counts.values()), any(after)) == (False, True, False)
    assert sum(during) == sum(made.counts.values())


def test_a_part_of_the_points_is_active_in_a_run() -> None:
    for seed in (1, 2):
        made = injector(seed, rate=0.25)
        active_count = sum(any(answers(made, point)) for point in FaultPoint)
        assert 0.05 * len(FaultPoint) < active_count < 0.5 * len(FaultPoint)
    nobody = injector(rate=0.0)
    assert not any(True in answers(nobody, point) for point in FaultPoint)


def test_a_point_fires_at_one_of_the_rates() -> None:
    parts = [sum(answers(injector(seed), FaultPoint.LEAVE_GAP)) / DRAWS for seed in range(12)]
    nearest = {min(FIRING_RATES, key=lambda rate: abs(rate - part)) for part in parts}
    assert nearest == set(FIRING_RATES)


def test_one_point_does_not_shift_another() -> None:
    alone, beside = injector(), injector()
    expected = answers(alone, FaultPoint.LINGER)
    found = []
    for _ in range(DRAWS):
        beside(FaultPoint.LEAVE_GAP)
        found.append(beside(FaultPoint.LINGER))
    assert found == expected
    assert True in found


def test_every_point_is_counted() -> None:
    assert FaultInjector(World(1), 0.0).counts == dict.fromkeys(FaultPoint.__members__, 0)


def test_a_third_of_the_runs_behave() -> None:
    rates = [draw_options(Random(seed), 1_000_000).fault_point_rate for seed in range(300)]
    assert 0.25 < rates.count(0.0) / len(rates) < 0.42
    assert 0.2 < sum(rates) / sum(rate > 0 for rate in rates) < 0.3


def test_production_behaves() -> None:
    assert not any(no_faults(point) for point in FaultPoint)


# What comes of it


@cache
def counts_of(seed: int) -> Counter[str]:
    """How often points fired, without harm. Where all points are active, loads hardly come to their
    ends: one run lets them."""
    counts: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        set_rate(patch, 1.0)
        counts.update(run(seed).fault_point_counts)
        set_rate(patch, 0.5)
        counts.update(run(seed, "loads").fault_point_counts)
    return counts


@pytest.mark.slow("many seeds")
@pytest.mark.parametrize("first", range(0, SEEDS_MIN, SEEDS_TOGETHER))
def test_no_point_does_harm(first: int) -> None:
    assert all(counts_of(seed) for seed in range(first, first + SEEDS_TOGETHER))


@pytest.mark.slow("many seeds")
def test_every_point_is_hit() -> None:
    missing = dict.fromkeys(FaultPoint.__members__)
    for seed in range(SEEDS_MAX):
        for name, count in counts_of(seed).items():
            if count:
                missing.pop(name, None)
        if not missing:
            return
    assert list(missing) == []


@cache
def digest_of_good_behaviour(seed: int, workload: str | None) -> str:
    """The same for all points: none fires."""
    return run(seed, workload).digest


@pytest.mark.parametrize("point", share([it for it in FaultPoint if it not in UNSEEN], one_in=32))
def test_each_fault_point_changes_the_course_of_a_run(
    point: FaultPoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rate(monkeypatch, 0.0)
    workload = WORKLOADS.get(point)
    for seed in range(SEEDS_MAX):
        with monkeypatch.context() as patch:
            patch.setattr(
                "simulator.simulation.FaultInjector", lambda world, _: OneTrack(world, point)
            )
            faulty = run(seed, workload)
        if not faulty.fault_point_counts[point.name]:
            continue
        if faulty.digest != digest_of_good_behaviour(seed, workload):
            return
    pytest.fail("nothing came of it")


@pytest.mark.slow("many seeds")
@pytest.mark.parametrize("first", range(0, SEEDS_MIN, SEEDS_TOGETHER))
def test_the_long_way_of_a_write_is_the_short_way(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole histories are the same, message by message, whichever way each write goes."""
    set_rate(monkeypatch, 0.0)
    point, count = FaultPoint.WRITE_THE_LONG_WAY, 0
    for seed in range(first, first + SEEDS_TOGETHER):
        with monkeypatch.context() as patch:
            patch.setattr(
                "simulator.simulation.FaultInjector", lambda world, _: OneTrack(world, point)
            )
            went_long = run(seed, "blind")
        assert went_long.digest == digest_of_good_behaviour(seed, "blind"), seed
        count += went_long.fault_point_counts[point.name]
    assert count > SEEDS_TOGETHER


def test_fault_points_depend_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    set_rate(monkeypatch, 1.0)
    first, again = simulate(3, 5), simulate(3, 5)
    assert any(first.fault_point_counts.values())
    assert (first.digest, first.fault_point_counts) == (again.digest, again.fault_point_counts)
