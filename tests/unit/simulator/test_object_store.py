"""Clusters whose chunks are in an object store that loses answers, with small caches."""

from collections import Counter
from dataclasses import replace

import pytest

from simulator.faults import Options
from simulator.object_store import ObjectStoreOptions
from simulator.simulation import Result, simulate

STORM = ObjectStoreOptions(
    is_there=True,
    cache_bytes_max=2_000,
    lost_answer_rate=0.1,
    late_rate=0.1,
    refused_rate=0.1,
    missing_rate=0.02,
    damaged_rate=0.1,
    slow_rate=0.05,
    slow_us_max=4_000_000,
    new_machine_rate=0.3,
)
"""A node has room for about one chunk. A third of all starts are on another machine."""
SEED_COUNT = 24


def with_objects(options: Options) -> Options:
    """Stores are flushed and compacted all the time, and soon leave memory."""
    return replace(
        options,
        objects=replace(STORM, knows_conditions=options.cell_count != 3),
        fault_point_rate=1.0,
        transaction_life_s_max=3,
        memory_bytes_max=20_000,
    )


def run(seed: int, seconds: int = 15) -> Result:
    result = simulate(seed, seconds, alter=with_objects)
    assert not result.violations, f"seed {seed}, {result.workload}: {result.violations[0]}"
    return result


@pytest.mark.slow("each seed takes seconds")
def test_runs_keep_their_promises_and_meet_each_fault() -> None:
    met: Counter[str] = Counter()
    for seed in range(SEED_COUNT):
        met.update(run(seed).fault_counts)
    calls = {
        *(f"put {it}" for it in ("refused", "late", "unanswered")),
        *(f"removal {it}" for it in ("refused", "late", "unanswered")),
        *(f"get {it}" for it in ("refused", "of nothing", "damaged")),
        *("list refused", "folder lost", "process ended at a put", "object call slow"),
    }
    assert calls <= met.keys()


def test_a_seed_is_the_same_run_each_time() -> None:
    assert run(1, 5).digest == run(1, 5).digest
