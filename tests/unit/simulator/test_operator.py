"""The operator of a run: tables are unmounted, frozen and resharded under everybody, and open at
the end."""

from collections import Counter

from simulator.simulation import simulate


def counts_of(*seeds: int) -> Counter[str]:
    """What these runs counted, messages included. The end of a run writes to every tablet, and
    looks at every row: a tablet that stayed closed, or lost rows, would be a violation."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        result = simulate(seed, 20)
        assert result.violations == [], f"replay: {result.command}"
        counts.update(result.counts)
        counts.update(result.message_counts)
    return counts


def test_tables_are_frozen_under_everybody_and_written_again_at_the_end() -> None:
    counts = counts_of(31, 50, 51)
    assert counts["frozen"] >= 3
    assert counts["operator errors"] < counts["frozen"]


def test_tables_are_resharded_under_everybody_and_keep_their_rows() -> None:
    counts = counts_of(18, 23, 33, 39)
    assert counts["resharded"] >= 4
    assert counts["TellRows"] >= 4, "rows that change their cell"
