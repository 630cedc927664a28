"""The operator of a run: tables are unmounted, frozen, resharded, altered and copied under
everybody, and open at the end; others are removed and made anew."""

from collections import Counter
from functools import cache
from itertools import count, islice

import pytest

from simulator.faults import Options
from simulator.simulation import Result, options_of, simulate
from simulator.thinning import Thinning
from suite.levels import some

SECONDS = 20
BUSY_US = 2_000_000
BEHIND_A_LONG_ONE = 51
"""Seed 50 alone takes as long as the six after it that tell something."""


def is_telling(options: Options) -> bool:
    """Whether the operator is busy, and not refused too often to get anywhere."""
    is_patient = options.patience_ms == 10_000 and options.call_timeout_us >= 200_000
    return options.remount_us_mean == BUSY_US and is_patient and not options.network.loss_rate


def counts_of(run_count: int, workload: str, first: int = 0) -> Counter[str]:
    """What runs with a busy operator counted, messages included, from this seed on."""
    counts: Counter[str] = Counter()
    seeds = (seed for seed in count(first) if is_telling(options_of(seed, SECONDS)))
    for seed in islice(seeds, run_count):
        result = run(seed, workload)
        counts.update(result.counts)
        counts.update(result.message_counts)
    return counts


@cache
def run(seed: int, workload: str) -> Result:
    """Several tests look at the same ones. No more goes wrong than what befalls single datagrams.
    The end of a run writes to every tablet, and looks at every row: a tablet that stayed closed,
    or lost rows, would be a violation."""
    result = simulate(seed, SECONDS, workload, thinning=Thinning(keep=()))
    assert result.violations == [], f"replay: {result.command}"
    return result


@pytest.mark.slow("many seeds")
def test_tables_that_the_operator_freezes_can_be_written_at_the_end() -> None:
    counts = counts_of(4, "blind")
    assert counts["frozen"] >= 3
    assert counts["operator errors"] < counts["frozen"]


@pytest.mark.slow("many seeds")
def test_tables_that_the_operator_reshards_keep_their_rows() -> None:
    counts = counts_of(12, "bank")
    assert counts["resharded"] >= 4
    assert counts["TellRows"] >= 4, "rows that change their cell"


@pytest.mark.slow("many seeds")
def test_tables_are_altered_and_copied_beside_transactions() -> None:
    counts = counts_of(8, "bank")
    assert counts["altered"] >= 2
    assert counts["copied"] >= 3


@pytest.mark.slow("simulates many clusters")
@pytest.mark.part("an operator of a simulated cluster")
def test_the_operator_recreates_tables_and_unneeded_tablets_are_dropped() -> None:
    run_count = len(list(some(range(6), one_in=2)))
    counts = counts_of(run_count, "bank", BEHIND_A_LONG_ONE)
    assert counts["tried out"] >= run_count
    assert counts["dropped at last"] >= counts["tried out"]
