"""From a run that fails to the least that still fails."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from dodona.types import CellId
from dodona_loadtest.checkers.violation import Promise, Violation
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.node import NodeCore
from dodona_wire.cores.fault_points import FaultAt
from simulator.faults import Fault
from simulator.servers import CoreFactory
from simulator.shrinking import RUNS_MAX, Shrunk, in_words, minimize, shrink
from simulator.simulation import Result, options_of, simulate
from simulator.thinning import Thinning, wild_names

SEED, SECONDS = 1, 40
OPTIONS = options_of(SEED, SECONDS)

# Delta debugging


@pytest.mark.parametrize("needed", [(), (0,), (9,), (2, 3), (0, 5, 9), tuple(range(10))])
def test_minimize_keeps_only_the_needed_items(needed: tuple[int, ...]) -> None:
    assert minimize(range(10), lambda items: set(needed) <= set(items)) == needed


def test_minimize_removes_items_together_if_no_single_item_can_be_removed() -> None:
    def fails(items: Sequence[int]) -> bool:
        return sum(items) % 2 == 0 and 4 in items

    left = minimize((1, 2, 3, 4), fails)
    assert fails(left)
    for item in left:
        assert not fails([other for other in left if other != item])


# Runs


def judged(fails: Callable[[Thinning], bool]) -> Callable[[Thinning], Result]:
    """A run that breaks a promise if `fails` says so, and another one if not."""

    def run(thinning: Thinning) -> Result:
        result = Result(SEED, "bank", SECONDS, thinning=thinning)
        promise: Promise = "EXT" if fails(thinning) else "LIVENESS"
        result.violations.append(Violation(promise, "said by the test"))
        return result

    return run


def kept(thinning: Thinning) -> set[int]:
    return set(range(len(OPTIONS.faults)) if thinning.keep is None else thinning.keep)


def shrunk_by(fails: Callable[[Thinning], bool], runs_max: int = RUNS_MAX) -> Shrunk:
    run = judged(fails)
    return shrink(run(Thinning()), OPTIONS, run, runs_max=runs_max)


def test_all_that_a_failure_does_not_need_is_left_out() -> None:
    names = wild_names(OPTIONS)
    needed = names[len(names) // 2]

    def fails(thinning: Thinning) -> bool:
        is_long = (thinning.until_s or SECONDS) >= 12
        has_sessions = (thinning.session_count or OPTIONS.session_count) >= 3
        has_rate = needed not in thinning.without
        return is_long and has_sessions and has_rate and {1, 6} <= kept(thinning)

    shrunk = shrunk_by(fails)
    thinning = shrunk.result.thinning
    assert thinning.keep == (1, 6)
    assert [name for name in names if name not in thinning.without] == [needed]
    assert thinning.until_s == 12
    assert thinning.session_count == 3
    assert shrunk.is_minimal
    assert shrunk.left[0].startswith(f"{needed}: ")
    assert shrunk.left[1:] == [in_words(OPTIONS.faults[1]), in_words(OPTIONS.faults[6])]
    assert thinning.arguments in shrunk.lines[0]
    assert shrunk.lines[-1] == "EXT: said by the test"


def test_a_run_that_breaks_another_promise_is_another_failure() -> None:
    shrunk = shrunk_by(lambda thinning: thinning == Thinning())
    assert shrunk.result.thinning == Thinning()
    assert len(shrunk.left) == len(wild_names(OPTIONS)) + len(OPTIONS.faults)


def test_shrinking_stops_at_its_limit_of_runs_and_reports_that() -> None:
    shrunk = shrunk_by(lambda thinning: {1, 6} <= kept(thinning), runs_max=8)
    assert shrunk.run_count == 8
    assert not shrunk.is_minimal
    assert "no time" in shrunk.lines[0]
    assert {1, 6} <= kept(shrunk.result.thinning)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(12_345_000, "crash", "cell-1", 800_000), "at 12.345 s: crash cell-1 for 0.8 s"),
        (Fault(0, "cut", "a", 1_500_000, ("b",)), "at 0.000 s: cut a for 1.5 s, others b"),
        (Fault(1_000, "clock_step", "m", -2_000_000), "at 0.001 s: clock_step m by -2 s"),
    ],
)
def test_a_fault_is_described_in_words(fault: Fault, words: str) -> None:
    assert in_words(fault) == words


# A planted bug


class WornOut(Exception):
    """A process that was started too often."""


def wears_out() -> CoreFactory:
    """Nodes that leave something behind at every start, and can't be started a fourth time. A run
    without faults starts them less often. Of all that goes wrong only the ends of processes matter,
    which happen at instants of their own: so the bug stays whatever else a change to the product
    does to the order of things. For one run."""
    start_counts: Counter[CellId] = Counter()

    def make_core(cell: CellId, address: str, limits: CellLimits, fault_at: FaultAt) -> NodeCore:
        start_counts[cell] += 1
        if start_counts[cell] == 4:
            raise WornOut(f"cell {cell}")
        return NodeCore(cell, address, limits, fault_at)

    return make_core


@pytest.mark.slow("many seeds")
def test_a_planted_bug_is_shrunk_to_the_faults_that_it_needs() -> None:
    """It still fails, and passes without any one of what is left."""

    def run(thinning: Thinning) -> Result:
        return simulate(seed, 5, "bank", wears_out(), thinning)

    seed = next(seed for seed in range(20) if broken(simulate(seed, 5, "bank", wears_out())))
    failed = run(Thinning())
    options = options_of(seed, 5)
    shrunk = shrink(failed, options, run)
    left = shrunk.result.thinning
    assert broken(failed) == {"CRASH"}
    assert "WornOut" in failed.violations[0].text
    assert shrunk.is_minimal
    assert left.keep is not None
    assert 0 < len(left.keep) <= len(options.faults) // 4
    assert {options.faults[index].target.partition("-")[0] for index in left.keep} == {"cell"}
    assert broken(run(left)) == {"CRASH"}
    for index in left.keep:
        fewer = tuple(other for other in left.keep if other != index)
        thinner = Thinning(fewer, left.without, left.until_s, left.session_count)
        assert not broken(run(thinner))


def broken(result: Result) -> set[str]:
    return {violation.promise for violation in result.violations}
