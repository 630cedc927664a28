"""The failovers of a campaign: what is drawn, and what the table says of them."""

from itertools import islice

import pytest

from dodona_loadtest.chaos.campaign import CampaignPlan, Summary
from dodona_loadtest.chaos.failover_campaign import (
    failover_lines,
    failover_markdown,
    is_broken,
    table_of,
)
from dodona_loadtest.chaos.failovers import (
    KINDS,
    OTHERS,
    STILL_MS,
    FailoverResult,
    FailoverTable,
    Kind,
    draw_failovers,
    longest_pause_us,
)
from dodona_loadtest.chaos.round import RoundPlan, RoundResult

CELLS = (0, 1)


def result(kind: Kind, pause_s: float, **counts: int) -> FailoverResult:
    drawn = next(it for it in draw_failovers(1.0, CELLS, 100.0) if it.kind == kind)
    return FailoverResult(drawn, int(pause_s * 1e6), **counts)


def test_each_kind_is_drawn_as_often_as_any_other() -> None:
    drawn = list(islice(draw_failovers(0.5, CELLS, 100.0), 60 * len(KINDS)))
    assert [sum(it.kind == kind for it in drawn) for kind in KINDS] == [60] * len(KINDS)
    assert {it.cell for it in drawn} == {*CELLS}
    assert {it.other for it in drawn} == {*OTHERS}
    assert all(STILL_MS[0] <= it.still_ms <= STILL_MS[1] for it in drawn)
    assert drawn[:7] == list(islice(draw_failovers(0.5, CELLS, 100.0), 7))


@pytest.mark.parametrize(
    ("acknowledged", "pause"),
    [
        ([10, 90, 110, 120], 30),  # what ends before the fault does not count
        ([10, 20, 95, 140], 45),  # the pause began before the fault
        ([10, 20, 101, 140], 81),
        ([101, 102], 48),  # the end counts as an acknowledgement
        ([], 50),
        ([150, 400], 50),
        ([90, 400], 60),
    ],
)
def test_a_pause_is_the_longest_time_between_acknowledgements(
    acknowledged: list[int], pause: int
) -> None:
    assert longest_pause_us(acknowledged, 100, 150) == pause


def test_the_table_has_a_line_for_each_kind_that_came_and_one_for_all() -> None:
    table = FailoverTable(
        [
            result("owner killed", 1.0, moved_count=1),
            result("owner killed", 3.5, lost_count=2),
            result("replica killed", 0.25, stale_count=1),
        ]
    )
    assert table.lines()[2:] == [
        "| owner killed | 2 | 1 | 1.00 | 3.50 | 3.50 | 2 | 0 |",
        "| replica killed | 1 | 0 | 0.25 | 0.25 | 0.25 | 0 | 1 |",
        "| all | 3 | 1 | 1.00 | 3.50 | 3.50 | 2 | 1 |",
    ]
    assert table.goals() == [
        "longest time without an acknowledgement, p50: 1.00 s (≤ 2 s: met)",
        "longest time without an acknowledgement, p99: 3.50 s (≤ 3 s: missed)",
    ]


@pytest.mark.parametrize(
    ("counts", "broken"), [({}, False), ({"lost_count": 1}, True), ({"stale_count": 1}, True)]
)
def test_a_lost_row_and_a_stale_read_break_a_promise(counts: dict[str, int], broken: bool) -> None:
    plan = CampaignPlan(kills=1, seed=9)
    done = RoundResult(
        RoundPlan(1, "bank", 0.5, 1), failovers=[result("two together", 1, **counts)]
    )
    summary = Summary(plan, [done])
    assert is_broken(summary) is broken
    assert table_of(summary).results == done.failovers
    assert "seed 9: 1 rounds" in failover_lines(summary)
    text = failover_markdown(summary)
    assert text.startswith("`python -m dodona_loadtest.kills --failovers 1 --seed 9`: 2 cells,")
    assert table_of(summary).lines()[2] in text
