"""The demonstration's own judgement: it must find every way of not adding up.

Owns: the checks of `demo_data`, `demo_check` and `demo_screen`, on small made-up flights, without a
database. A check that can't fail would make the whole demonstration worthless.
"""

import io
from typing import Any

import pyarrow
import pytest
from rich.console import Console

from dodona.types import Timestamp
from dodona_local import demo_data
from dodona_local.demo_check import (
    Marker,
    Reading,
    carrier_rows,
    faults_of_markers,
    faults_of_snapshot,
    faults_of_totals,
)
from dodona_local.demo_data import (
    BATCH_FLIGHTS,
    Batch,
    Totals,
    deal_batches,
    flights_table,
    sum_of,
    totals_by_carrier_day,
)
from dodona_local.demo_post import Acknowledged, Book, totals_rows
from dodona_local.demo_screen import Screen

JANUARY = ("UA", "2013-01-01")
FEBRUARY = ("UA", "2013-02-01")


def flights(*rows: tuple[str, int, int, int | None]) -> Any:
    """A table of (carrier, month, day, delay)."""
    names = ("carrier", "month", "day", "arr_delay")
    lines = [dict(zip(names, row, strict=True), year=2013) for row in rows]
    return pyarrow.Table.from_pylist(lines)


def reading(timestamp: int, markers: dict[int, Totals], totals: Totals) -> Reading:
    written = {batch: Marker(100 + batch, added) for batch, added in markers.items()}
    return Reading(Timestamp(timestamp), written, {JANUARY: totals})


def acknowledged(batch: int, timestamp: int | None, totals: Totals) -> Acknowledged:
    stamp = None if timestamp is None else Timestamp(timestamp)
    return Acknowledged(100 + batch, stamp, totals)


@pytest.fixture(scope="module")
def year() -> Any:
    return flights_table()


def test_the_flight_data_matches_its_description(year: Any) -> None:
    assert year.num_rows == 336_776
    keys = year.select(["time_hour", "carrier", "flight"])
    assert keys.group_by(keys.column_names).aggregate([]).num_rows == year.num_rows
    assert [column.name for column in demo_data.FLIGHT_COLUMNS] == year.column_names
    assert set(year["carrier"].to_pylist()) == set(demo_data.carrier_names())
    assert sum_of(totals_by_carrier_day(year).values()) == Totals(336_776, 327_346, 2_257_174)


@pytest.mark.slow("all flights")
def test_batches_are_all_flights_once_in_an_order_that_is_always_the_same(year: Any) -> None:
    batches = deal_batches(year)
    added: dict[tuple[str, str], Totals] = {}
    for batch in batches:
        assert batch.sum().flights < 2 * BATCH_FLIGHTS
        for carrier_day, totals in batch.totals.items():
            added[carrier_day] = added.get(carrier_day, Totals()) + totals
    assert added == totals_by_carrier_day(year)
    assert batches == deal_batches(year.take(list(reversed(range(year.num_rows)))))
    assert sorted(batch.number for batch in batches) == list(range(len(batches)))
    assert all(min(batch.totals)[0] < "F" < max(batch.totals)[0] for batch in batches)


def test_a_flight_that_never_landed_counts_without_minutes() -> None:
    totals = totals_by_carrier_day(
        flights(("UA", 1, 1, 7), ("UA", 1, 1, None), ("UA", 1, 1, -3), ("UA", 2, 1, None))
    )
    assert totals == {JANUARY: Totals(3, 2, 4), FEBRUARY: Totals(1, 0, 0)}


def test_a_batch_adds_its_totals_to_the_rows_that_exist() -> None:
    batch = Batch(1, {JANUARY: Totals(2, 1, 5), FEBRUARY: Totals(1, 1, 1)})
    found = [{"carrier": "UA", "day": "2013-01-01", "flights": 10, "landed": 9, "minutes": -20}]
    assert totals_rows(batch, found) == [
        {"carrier": "UA", "day": "2013-01-01", "flights": 12, "landed": 10, "minutes": -15},
        {"carrier": "UA", "day": "2013-02-01", "flights": 1, "landed": 1, "minutes": 1},
    ]


def test_a_snapshot_that_does_not_add_up_is_a_fault() -> None:
    good = reading(50, {1: Totals(2, 1, 5), 2: Totals(1, 1, 1)}, Totals(3, 2, 6)).snapshot()
    assert faults_of_snapshot(good, {}) == []
    torn = reading(50, {1: Totals(2, 1, 5), 2: Totals(1, 1, 1)}, Totals(3, 2, 5)).snapshot()
    (fault,) = faults_of_snapshot(torn, {})
    assert "at 50" in fault


def test_the_check_of_a_snapshot_finds_missing_and_early_batches() -> None:
    one = Totals(1, 1, 1)
    snapshot = reading(50, {1: one, 3: one}, Totals(2, 2, 2)).snapshot()
    book = {
        1: acknowledged(1, 50, one),
        2: acknowledged(2, 51, one),
        3: acknowledged(3, None, one),
        4: acknowledged(4, None, one),
    }
    assert faults_of_snapshot(snapshot, book) == []
    (missing,) = faults_of_snapshot(snapshot, {2: acknowledged(2, 50, one)})
    assert "batch 2" in missing
    assert "missing" in missing
    (early,) = faults_of_snapshot(snapshot, {1: acknowledged(1, 51, one)})
    assert "visible" in early


def test_every_acknowledged_batch_must_be_there_as_acknowledged() -> None:
    one = Totals(1, 1, 1)
    end = reading(50, {1: one, 2: one}, Totals(2, 2, 2))
    book = {1: acknowledged(1, 10, one), 2: acknowledged(2, None, one)}
    assert faults_of_markers(end.markers, book) == []
    (lost,) = faults_of_markers(end.markers, {**book, 3: acknowledged(3, 20, one)})
    assert "batch 3, acknowledged at 20, is lost" in lost
    (stranger,) = faults_of_markers(end.markers, {1: book[1]})
    assert "batch 2 is posted, but not by a worker" in stranger
    twice = {**book, 2: Acknowledged(7, Timestamp(9), one)}
    (other,) = faults_of_markers(end.markers, twice)
    assert "batch 2 was acknowledged as" in other


@pytest.mark.parametrize(
    "found",
    [
        {JANUARY: Totals(3, 2, 5)},
        {},
        {JANUARY: Totals(3, 2, 4), FEBRUARY: Totals(1, 0, 0)},
    ],
    ids=["a minute more", "nothing", "a day more"],
)
def test_one_minute_of_difference_is_found(found: dict[tuple[str, str], Totals]) -> None:
    expected = {JANUARY: Totals(3, 2, 4)}
    assert faults_of_totals(expected, expected) == []
    assert len(faults_of_totals(found, expected)) == 1


def test_a_batch_posted_by_two_workers_stops_everything() -> None:
    book = Book()
    batch = Batch(1, {JANUARY: Totals(1, 1, 1)})
    book.note_acknowledged(batch, acknowledged(1, 10, batch.sum()))
    with pytest.raises(AssertionError, match="posted by two workers"):
        book.note_acknowledged(batch, acknowledged(1, 11, batch.sum()))


def test_carriers_are_listed_by_size_with_their_worst_day() -> None:
    totals = {
        JANUARY: Totals(10, 8, 40),
        FEBRUARY: Totals(10, 8, 1040),
        ("OO", "2013-05-05"): Totals(1, 0, 0),
    }
    assert carrier_rows(totals, {"UA": "United", "OO": "SkyWest"}) == [
        ("UA", "United", "2013-02-01", "1,040 min", "20", "+67.5 min"),
        ("OO", "SkyWest", "2013-05-05", "0 min", "1", "–"),
    ]


def test_a_pipe_gets_plain_lines() -> None:
    pipe = io.StringIO()
    screen = Screen(Console(file=pipe))
    screen.step(3, "Load")
    with screen.bar("flights", 10, "rows") as bar:
        bar.advance(10)
        bar.stop_clock()
    screen.good("it adds up")
    screen.table(["", "flights"], [("UA", "12")], texts=1)
    text = pipe.getvalue()
    assert "3  Load" in text
    assert "   ✓ it adds up" in text
    assert "\x1b" not in text
    assert bar.rate.endswith(" rows/s")
