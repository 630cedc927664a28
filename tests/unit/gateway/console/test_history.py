"""Rates of counters: gaps, restarts, and a memory that is bounded."""

import pytest

from dodona.types import CellId
from dodona_gateway.core.console.chart import (
    HEIGHT,
    LEFT,
    STEPS_S,
    WIDTH,
    chart_of,
    nice_top,
)
from dodona_gateway.core.console.history import History, Point
from dodona_gateway.core.console.server_pages import (
    CellCounts,
    MasterCounts,
    ReportedCluster,
    Server,
    StatisticsPage,
    totals_of,
)

SECOND = 1_000_000


def history_of(*looks: dict[str, int], every_s: int = 2) -> History:
    history = History(("commits",))
    for place, totals in enumerate(looks):
        history.add(place * every_s * SECOND, {"commits": totals})
    return history


def rates(history: History) -> list[float | None]:
    return [it.rate for it in history.points("commits", 10**12, 10**9)]


def test_a_rate_takes_two_looks() -> None:
    assert rates(history_of({"cell 0": 100})) == []
    history = history_of({"cell 0": 100, "cell 1": 0}, {"cell 0": 120, "cell 1": 4})
    assert rates(history) == [12.0]
    assert history.last("commits") == 12.0


def test_a_counter_that_restarts_is_counted_from_zero() -> None:
    assert rates(history_of({"cell 0": 100}, {"cell 0": 10}, {"cell 0": 14})) == [5.0, 2.0]


def test_a_server_without_two_successive_samples_adds_no_rate() -> None:
    looks: tuple[dict[str, int], ...] = (
        {"cell 0": 1},
        {"cell 0": 3, "cell 1": 1000},
        {"cell 1": 1010},
        {},
    )
    assert rates(history_of(*looks)) == [1.0, 5.0, None]


def test_the_memory_is_bounded_and_time_goes_on() -> None:
    history = History(("commits",), samples_max=3)
    for second in range(10):
        history.add(second * SECOND, {"commits": {"cell 0": second * second}})
    history.add(9 * SECOND, {"commits": {"cell 0": 10**6}})  # no time has passed
    points = history.points("commits", 9 * SECOND, 100)
    assert [(it.age_s, it.rate) for it in points] == [(2.0, 13.0), (1.0, 15.0), (0.0, 17.0)]
    assert history.points("commits", 9 * SECOND, 1.5) == points[1:]
    assert len(history) == 3


def test_totals_of_groups_the_counters_of_servers_by_measure() -> None:
    commits = {
        "one_cell": {"committed": 7, "conflict": 2, "aborted": 50, "refused": 9},
        "two_phase": {"committed": 20, "conflict": 1, "aborted": 0, "refused": 0},
        "non_atomic": {"committed": 100, "refused": 3},
        "of_tomorrow": {"committed": 1000},
    }
    cell = StatisticsPage(cell=CellCounts(commits=commits))
    reported = ReportedCluster(
        0,
        (
            Server("master", "m", "ready", statistics=StatisticsPage(master=MasterCounts(40))),
            Server("cell", "a", "ready", cell=CellId(3), statistics=cell),
            Server("cell", "b", "silent", cell=CellId(4)),
        ),
    )
    assert totals_of(reported) == {
        "timestamps": {"m": 40},
        "commits": {"cell 3": 1127},
        "conflicts": {"cell 3": 3},
    }


# ---- charts


def test_an_axis_ends_at_a_number_that_people_like() -> None:
    tops = {0: 1, 0.4: 1, 1: 1, 1.2: 2, 3: 5, 5: 5, 6: 10, 99: 100, 101: 200, 4321: 5000}
    assert {most: nice_top(most) for most in tops} == tops


def test_a_chart_has_the_newest_point_at_the_right_and_names_its_value() -> None:
    chart = chart_of("c", "Commits", "per second", [Point(40, 10.0), Point(20, 30.0), Point(0, 20)])
    assert (chart.last, [it.label for it in chart.rates]) == ("20", ["0", "25", "50"])
    assert [it.label for it in chart.times] == ["-1 min", "-40 s", "-20 s", "now"]
    assert chart.end is not None
    assert chart.end[0] == chart.right
    assert (chart.line[0], chart.line.count("L")) == ("M", 2)
    assert chart.summary == (
        "Commits, per second: 20 now, 20 on average and 30 at most in the last 1 min."
    )
    assert [(it.label, it.mean, it.most) for it in chart.rows] == [("this minute", "20", "30")]


def test_a_line_is_broken_where_nothing_is_known() -> None:
    points = [Point(50, 1.0), Point(40, 2.0), Point(30, None), Point(20, 3.0), Point(10, None)]
    chart = chart_of("c", "Commits", "per second", points)
    assert chart.line.count("M") == 2
    assert (chart.last, chart.end) == ("–", None)


def test_a_chart_without_points_reports_that_nothing_is_known() -> None:
    chart = chart_of("c", "Commits", "per second", [])
    assert (chart.line, chart.area, chart.rows) == ("", "", ())
    assert chart.summary == "Commits: nothing is known yet."


@pytest.mark.parametrize(("oldest_s", "window_s"), [(59, 60), (61, 300), (301, 900), (2000, 900)])
def test_the_window_goes_with_the_history(oldest_s: int, window_s: int) -> None:
    assert window_s in STEPS_S
    chart = chart_of("c", "Commits", "per second", [Point(oldest_s, 1.0), Point(0, 1.0)])
    assert chart.times[0].label == f"-{window_s // 60} min"
    assert chart.times[-1].label == "now"
    places = [it.at for it in chart.times]
    assert places[1] - places[0] > 80, "the second label runs into the first"


def test_a_mean_is_one_over_time_however_far_apart_looks_were() -> None:
    points = [Point(50, 100.0, 10.0), Point(48, 10.0, 2.0), Point(46, 10.0, 2.0)]
    points += [Point(44, None, 2.0), Point(42, 10.0, 6.0)]
    chart = chart_of("c", "Commits", "per second", points)
    assert [(it.mean, it.most) for it in chart.rows] == [("55", "100")]
    assert "55 on average" in chart.summary
    history = History(("commits",))
    for second, count in ((0, 0), (10, 1000), (12, 1020)):
        history.add(second * SECOND, {"commits": {"cell 0": count}})
    found = history.points("commits", 12 * SECOND, 60)
    assert [(it.rate, it.seconds) for it in found] == [(100.0, 10.0), (10.0, 2.0)]


def test_everything_is_inside_the_picture() -> None:
    points = [Point(age, float(age * age)) for age in range(1200, -1, -7)]
    chart = chart_of("c", "Commits", "per second", points)
    numbers = [pair.split() for pair in chart.line.removeprefix("M").split("L")]
    assert all(LEFT <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT for x, y in numbers)
