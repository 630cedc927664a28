"""Random walks keep the promises of the design, and find planted bugs."""

from typing import Final

import pytest

from replication_model.planted.epochs import AppendsUnfenced, CountsEmptyDisks, FetchesUnfenced
from replication_model.planted.leases import DoesNotWait
from replication_model.planted.sets import CountsAMajority
from replication_model.rules import Rules
from replication_model.walker import STEPS_MAX, WALKS, walk
from suite.levels import share

SEEDS: Final = range(1, 41)
SEEDS_MAX: Final = 60


@pytest.mark.parametrize("seed", share(SEEDS, one_in=20))
def test_a_walk_keeps_the_promises(seed: int) -> None:
    found = walk(seed)
    assert found.violation is None
    assert 0 < found.step_count <= STEPS_MAX


@pytest.mark.parametrize("place", range(len(WALKS)), ids=lambda it: WALKS[it].title)
def test_walks_get_far(place: int) -> None:
    """Of each configuration, one of ten walks sees four owners that serve."""
    seeds = range(place, place + 10 * len(WALKS), len(WALKS))
    assert any(
        text.startswith("epoch 5 acknowledges") for seed in seeds for text in walk(seed).trace
    )


def test_a_seed_decides_a_walk() -> None:
    assert walk(3) == walk(3)
    assert walk(3).trace != walk(3 + len(WALKS)).trace


@pytest.mark.slow("takes many walks")
@pytest.mark.parametrize(
    "rules",
    [AppendsUnfenced, CountsAMajority, CountsEmptyDisks, DoesNotWait, FetchesUnfenced],
    ids=lambda it: it.__name__,
)
def test_walks_find_a_planted_bug(rules: type[Rules]) -> None:
    """So walks get to places where a promise may break."""
    found = [seed for seed in range(SEEDS_MAX) if walk(seed, rules).violation]
    assert found
