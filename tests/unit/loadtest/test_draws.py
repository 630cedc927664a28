"""How keys are chosen, against YCSB's own arithmetic, and operations against their shares.

Owns: the chi-square tests, with seeds, so that they say the same each time.
"""

import math
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import pytest

from dodona_loadtest.scenarios import SCENARIOS
from dodona_loadtest.scenarios.draws import (
    SCRAMBLED_ITEMS,
    Zipfian,
    hash_64,
    latest,
    scrambled_zipfian,
    uniform,
    zeta,
)
from dodona_loadtest.scenarios.parameters import Parameters
from dodona_loadtest.scenarios.ycsb import MIXES, Numbers, Ycsb, key_of
from unit.loadtest.model_rows import Model, ModelSession, Trial

DRAWS: Final = 200_000
THETA: Final = 0.99


def is_likely(seen: Mapping[int, int], expected: Mapping[int, float]) -> bool:
    """Whether chi-square stays below what one in a thousand exceeds (Wilson and Hilferty)."""
    assert set(seen) <= set(expected)
    chi_square = sum((seen.get(it, 0) - mean) ** 2 / mean for it, mean in expected.items())
    freedom = len(expected) - 1
    spread = math.sqrt(2 / (9 * freedom))
    return chi_square < freedom * (1 - 2 / (9 * freedom) + 3.09 * spread) ** 3


def chance(rank: int, count: int, theta: float) -> float:
    """Of a rank, by the formula that Gray and others give, turned round."""
    whole = zeta(count, theta)
    eta = (1 - (2 / count) ** (1 - theta)) / (1 - zeta(2, theta) / whole)

    def below(rank: int) -> float:
        if rank < 2:
            return rank / whole
        if rank == 2:
            return float((1 + 0.5**theta) / whole)
        return float(((rank / count) ** (1 - theta) - 1 + eta) / eta)

    return below(rank + 1) - below(rank)


@pytest.mark.parametrize("theta", [0.5, THETA])
def test_zipfian_ranks_have_the_frequencies_of_the_formula(theta: float) -> None:
    count, random = 50, Random(1)
    ranks = Zipfian(count, theta)
    seen = Counter(ranks.draw(random) for _ in range(DRAWS))
    expected = {rank: DRAWS * chance(rank, count, theta) for rank in range(count)}
    assert sum(expected.values()) == pytest.approx(DRAWS)
    assert is_likely(seen, expected)
    assert not is_likely(seen, dict.fromkeys(range(count), DRAWS / count))


def test_the_likeliest_two_ranks_are_zipf_s_own() -> None:
    for rank in (0, 1):
        assert chance(rank, 1_000, THETA) == pytest.approx(
            (rank + 1) ** -THETA / zeta(1_000, THETA)
        )


def test_ranks_that_grew_are_as_if_they_had_always_been_there() -> None:
    grown = Zipfian(3, THETA)
    for count in (4, 50, 1_000):
        grown.grow(count)
    whole = Zipfian(1_000, THETA)
    one, other = Random(1), Random(1)
    assert [grown.draw(one) for _ in range(100)] == [whole.draw(other) for _ in range(100)]


def test_few_ranks_are_never_exceeded() -> None:
    random = Random(1)
    for count in (1, 2, 3):
        ranks = Zipfian(count, THETA)
        assert {ranks.draw(random) for _ in range(1_000)} == set(range(count))


def test_sums_and_hashes_are_ycsb_s() -> None:
    assert zeta(SCRAMBLED_ITEMS, THETA) == pytest.approx(26.46902820178302, abs=1e-9)
    assert zeta(20_000, 0.5) == pytest.approx(sum(it**-0.5 for it in range(1, 20_001)), rel=1e-12)
    assert key_of(0) == "user6284781860667377211"  # the first key of every YCSB table
    assert all(0 <= hash_64(number) < 1 << 63 for number in range(1_000))


def test_a_scrambled_choice_scatters_the_likeliest_records() -> None:
    count, random = 40, Random(1)
    draw = scrambled_zipfian(count, THETA, lambda: count - 1)
    seen = Counter(draw(random) for _ in range(DRAWS))
    hottest = hash_64(0) % count
    assert seen.most_common(1)[0][0] == hottest
    # Of all that is drawn rank 0 is one in zeta; ranks that share its record come on top.
    assert seen[hottest] / DRAWS > 1 / zeta(SCRAMBLED_ITEMS, THETA)
    assert set(seen) == set(range(count))


def test_the_newest_records_are_the_likeliest_as_they_come() -> None:
    numbers, random = Numbers(30), Random(1)
    draw = latest(THETA, numbers.newest)
    for _ in range(20):
        numbers.finish(numbers.take())
    seen = Counter(draw(random) for _ in range(DRAWS))
    expected = {49 - rank: DRAWS * chance(rank, 50, THETA) for rank in range(50)}
    assert is_likely(seen, expected)


def test_a_uniform_choice_is_one() -> None:
    random = Random(1)
    draw = uniform(lambda: 19)
    assert is_likely(Counter(draw(random) for _ in range(DRAWS)), dict.fromkeys(range(20), 1e4))


def test_a_record_can_be_chosen_once_all_earlier_records_exist() -> None:
    numbers = Numbers(10)
    first, second, third = (numbers.take() for _ in range(3))
    numbers.finish(second)
    numbers.finish(third)
    assert numbers.newest() == first - 1
    numbers.finish(first)
    assert numbers.newest() == third == 12


# ---- mixes


def names_drawn(scenario: Any, model: Model, turns: int) -> Counter[str]:
    trial = Trial(scenario, model)
    db = trial.recorder("s", ModelSession(model))
    assert list(scenario.set_up(db))
    seen: Counter[str] = Counter()
    for _ in range(turns):
        next(scenario.step(db), None)
        seen[db.doing] += 1
    return seen


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_operations_come_in_their_shares(name: str) -> None:
    scenario = SCENARIOS[name](Random(1), Parameters(rows=20))
    model = Model({table.path: table for table in scenario.tables})
    seen = names_drawn(scenario, model, 4_000)
    shares = {name: share for name, (share, _) in scenario.operations.items() if share}
    assert sum(shares.values()) == pytest.approx(1)
    if len(shares) > 1:
        numbers = {name: number for number, name in enumerate(shares)}
        counted = {numbers[name]: count for name, count in seen.items()}
        assert is_likely(counted, {numbers[it]: 4_000 * share for it, share in shares.items()})


@pytest.mark.parametrize("letter", sorted(MIXES))
def test_a_mix_is_ycsb_s(letter: str) -> None:
    standard = {
        "a": ("zipfian", {"read": 0.5, "update": 0.5}),
        "b": ("zipfian", {"read": 0.95, "update": 0.05}),
        "c": ("zipfian", {"read": 1.0}),
        "d": ("latest", {"read": 0.95, "insert": 0.05}),
        "e": ("zipfian", {"scan": 0.95, "insert": 0.05}),
        "f": ("zipfian", {"read": 0.5, "read-modify-write": 0.5}),
    }
    scenario = SCENARIOS[f"ycsb_{letter}"](Random(1), Parameters())
    assert isinstance(scenario, Ycsb)
    shares = {name: share for name, (share, _) in scenario.operations.items()}
    assert (scenario.mix.distribution, shares) == standard[letter]


def test_records_have_as_many_fields_of_such_a_length_as_asked_for() -> None:
    scenario = SCENARIOS["ycsb_a"](Random(1), Parameters(rows=20, field_count=3, field_bytes=50))
    model = Model({table.path: table for table in scenario.tables})
    trial = Trial(scenario, model)
    assert list(scenario.set_up(trial.recorder("s", ModelSession(model))))
    assert len(model.versions) == 20
    for ((_, state),) in model.versions.values():
        assert [len(value) for value in state.values()] == [50, 50, 50]
