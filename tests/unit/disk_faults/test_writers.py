"""Power cuts and failing calls find each flaw that a writer can have, and none where there is none.

Owns: the proof that the checks of `disk_faults` can fail, with writers made for it and with the
real stores, from each of which one thing is taken that they need.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, get_args

import pytest

from disk_faults.campaign import Tally, Way
from unit.disk_faults import programs, weakened
from unit.disk_faults.programs import ChunkFlaw, LogFlaw
from unit.disk_faults.weakened import Loss

WAY_OF: dict[str, Way] = {
    "error ignored": "errors",
    "told after an error": "errors",
    "not synced at a start": "errors",
    "journal not written again": "errors",
    "no checksums": "damage",
    "values not sealed": "damage",
}
"""What shows a flaw, if it is not a power cut."""


def examined(apart: Executor, examine: Callable[..., Tally], flaw: Any, seeds: range) -> Tally:
    tally = Tally()
    way = WAY_OF.get(flaw, "power cuts")
    for seed in seeds:
        tally.add(apart.submit(examine, flaw, way, seed).result())
        if tally.problems:
            break
    return tally


@pytest.mark.parametrize("flaw", [it for it in get_args(LogFlaw) if it != "none"])
def test_a_flaw_of_a_log_is_found(apart: Executor, flaw: LogFlaw) -> None:
    tally = examined(apart, programs.examine_log_writer, flaw, range(8))
    assert tally.problems


@pytest.mark.parametrize("flaw", [it for it in get_args(ChunkFlaw) if it != "none"])
def test_a_flaw_of_files_next_to_a_log_is_found(apart: Executor, flaw: ChunkFlaw) -> None:
    tally = examined(apart, programs.examine_chunk_writer, flaw, range(8))
    assert tally.problems


@pytest.mark.slow("traced processes, many crash images")
@pytest.mark.parametrize("loss", get_args(Loss))
def test_the_checks_detect_each_step_that_a_real_store_leaves_out(
    apart: Executor, loss: Loss
) -> None:
    tally = examined(apart, weakened.examine_without, loss, range(20))
    assert tally.problems


@pytest.mark.parametrize("way", ["power cuts", "errors"])  # they have no checksums
@pytest.mark.parametrize("examine", [programs.examine_log_writer, programs.examine_chunk_writer])
def test_a_writer_without_a_flaw_passes_the_checks(
    apart: Executor, examine: Callable[..., Tally], way: Way
) -> None:
    tally = apart.submit(examine, "none", way, 1).result()
    assert tally.problems == []
    assert tally.image_count > 20
