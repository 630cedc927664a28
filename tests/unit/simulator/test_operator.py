"""The operator of a run: tables are unmounted and frozen under everybody, and open at the end."""

from collections import Counter

from simulator.simulation import simulate

SEEDS = (4, 21, 31)


def test_tables_are_frozen_under_everybody_and_written_again_at_the_end() -> None:
    """The end of a run writes to every tablet: one that stayed frozen would be a violation."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        result = simulate(seed, 12)
        assert result.violations == [], f"replay: {result.command}"
        counts.update(result.counts)
    assert counts["frozen"] >= len(SEEDS)
    assert counts["operator errors"] < counts["frozen"]
