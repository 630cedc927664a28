"""The flights that the demonstration makes up if the package of the real ones is not installed."""

from pathlib import Path

import pyarrow.csv
import pytest

from dodona_local import demo_data, demo_made_up, demo_source
from dodona_local.demo_data import FLIGHT_COLUMNS, deal_batches, sum_of, totals_by_carrier_day


@pytest.fixture
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_source, "PACKAGE", "no_such_package")


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_made_up, "FLIGHTS_MADE_UP", 3_000)


@pytest.mark.usefixtures("_no_package", "_few")
def test_made_up_flights_have_the_form_of_the_real_ones() -> None:
    flights = demo_source.flights_table()
    real = demo_data.flights_table()
    assert flights.schema == real.schema
    assert flights.num_rows == 3_000
    keys = [it.name for it in FLIGHT_COLUMNS if it.sort_order is not None]
    assert flights.select(keys).group_by(keys).aggregate([]).num_rows == flights.num_rows
    assert 0 < flights["arr_delay"].null_count < 300
    assert set(flights["carrier"].to_pylist()) == set(demo_source.carrier_names())
    assert (flights["time_hour"][0].as_py()[:10], flights["time_hour"][-1].as_py()[:5]) == (
        "2013-01-01",
        "2013-",
    )
    assert flights == demo_source.flights_table(), "each run has the same ones"


@pytest.mark.usefixtures("_no_package", "_few")
def test_made_up_batches_change_rows_of_both_cells() -> None:
    flights = demo_source.flights_table()
    batches = deal_batches(flights, 1_000)
    assert sum_of(it.sum() for it in batches) == sum_of(totals_by_carrier_day(flights).values())
    assert sum(min(it.totals)[0] < "F" < max(it.totals)[0] for it in batches) > 300


@pytest.mark.usefixtures("_no_package", "_few")
def test_the_csv_for_spark_is_written_as_the_real_one_is(tmp_path: Path) -> None:
    path = demo_source.write_flights_csv(tmp_path)
    first, second = path.read_text().splitlines()[:2]
    assert first.split(",") == [it.name for it in FLIGHT_COLUMNS]
    assert '"' not in second
    read = pyarrow.csv.read_csv(
        path, convert_options=pyarrow.csv.ConvertOptions(null_values=[demo_data.MISSING])
    )
    flights = demo_source.flights_table()
    assert read["arr_delay"] == flights["arr_delay"]
    assert demo_data.MISSING in path.read_text()


@pytest.mark.usefixtures("_no_package")
def test_the_screen_says_that_flights_are_made_up_and_where_the_real_ones_are() -> None:
    assert "made-up" in demo_source.title_of_source()
    note = demo_source.note_of_source() or ""
    assert note.endswith("in the package no_such_package: pip install 'dodona[demo]'")


def test_the_real_flights_are_taken_if_they_are_here() -> None:
    assert demo_source.flights_table().num_rows == 336_776
    assert demo_source.note_of_source() is None
    assert "New York, 2013" in demo_source.title_of_source()
