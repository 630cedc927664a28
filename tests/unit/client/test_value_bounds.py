"""Values of columns at their bounds: the type that holds Python values, and single conversions."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy
import pandas
import pyarrow as pa
import pytest

from dodona._core.writing.column_types import advice_for, column_type_of, type_of_values
from dodona.errors import SchemaViolation
from dodona_wire.rows.logical_parsing import parse_of
from dodona_wire.rows.logical_types import logical_type
from dodona_wire.rows.logical_values import (
    FLOAT_MAX,
    shown_stored,
    single,
    store_of,
    text_of_value,
)

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
ID = UUID("a3bb189e-8bf9-3888-9912-ace4e6543002")


class Moment(datetime):
    """A subclass without nanoseconds."""


class Span(timedelta):
    """A subclass without nanoseconds."""


def store(name: str, value: Any) -> Any:
    return store_of(logical_type(name))(value, "c")


def refusal(name: str, value: Any) -> SchemaViolation:
    with pytest.raises(SchemaViolation) as caught:
        store(name, value)
    return caught.value


# Column types


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([-(1 << 63), (1 << 63) - 1], "int64"),
        ([-1], "int64"),
        ([0, 1 << 63], "uint64"),
        ([1, (1 << 64) - 1], "uint64"),
        ([-(1 << 63) - 1], None),
        ([-1, 1 << 63], None),
        ([1 << 64], None),
        ([Decimal("0.5"), 7], "decimal(38,1)"),
        ([Decimal("1E-38")], "decimal(38,38)"),
        ([Decimal("1E-40")], "decimal(40,40)"),
        ([Decimal("1" + "0" * 37 + ".5")], "decimal(39,1)"),
        ([Decimal("1E-76")], "decimal(76,76)"),
        ([Decimal("1E-77")], None),
        ([Decimal("1E+75")], "decimal(76,0)"),
        ([Decimal("1E+76")], None),
    ],
)
def test_the_narrowest_usual_type_that_holds_all_values_is_chosen(
    values: list[Any], found: str | None
) -> None:
    if found is not None:
        assert type_of_values(values, "c") == found
        return
    with pytest.raises(SchemaViolation) as caught:
        type_of_values(values, "c")
    assert caught.value.attributes["column"] == "c"


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (pa.decimal128(1, 0), "decimal(1,0)"),
        (pa.decimal128(5, 5), "decimal(5,5)"),
        (pa.decimal128(5, -1), None),
        (pa.decimal128(5, 6), None),
        (pa.decimal256(76, 76), "decimal(76,76)"),
    ],
)
def test_a_decimal_has_no_digits_outside_of_its_precision(kind: Any, found: str | None) -> None:
    assert column_type_of(kind) == found


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.timestamp("s"), "no time zone"),
        (pa.timestamp("s", "UTC"), "microseconds since 1970"),
        (pa.date32(), "days since 1970"),
        (pa.duration("s"), "such as to microseconds."),
        (pa.time32("s"), "since midnight"),
        (pa.month_day_nano_interval(), "or to text."),
        (pa.decimal128(5, 2), "to double if it may be rounded"),
        (pa.list_(pa.int8()), "list<utf8>"),
        (pa.null(), "only nulls"),
        (pa.string(), ""),
    ],
)
def test_there_is_advice_for_a_type_that_no_column_takes(kind: Any, words: str) -> None:
    assert words in advice_for(kind)
    assert bool(words) is bool(advice_for(kind))


# Single values


def test_a_float_has_the_range_of_32_bits() -> None:
    assert float(numpy.finfo("f4").max) == FLOAT_MAX == single(FLOAT_MAX)
    for number in (1e39, 10**400):
        assert single(number) == float("inf")
        assert single(-number) == float("-inf")


def test_a_subclass_of_a_time_is_stored_as_the_time() -> None:
    moment = Moment(2024, 5, 31, 12, tzinfo=UTC)
    assert store("timestamp", moment) == store("timestamp", NOON)
    assert store("interval", Span(1, 2, 3)) == store("interval", timedelta(1, 2, 3))
    assert store("interval", pandas.Timedelta(5, "us")) == 5
    for value in (pandas.Timedelta(1, "ns"), pandas.Timedelta(1_001, "ns")):
        assert "whole microseconds" in refusal("interval", value).message


@pytest.mark.parametrize(
    ("name", "value", "text", "shown"),
    [
        ("decimal(5,2)", Decimal("1000.55"), "takes -999.99 to 999.99", "1000.55"),
        ("decimal(5,2)", Decimal("1000.550"), "takes -999.99 to 999.99", "1000.550"),
        ("decimal(5,2)", Decimal("1.005"), "2 digits behind the point", "1.005"),
        ("interval", timedelta(49_673), "does not fit", "49673 days, 0:00:00"),
        ("date", date(2106, 1, 1), "does not fit", "2106-01-01"),
        ("int8", 128, "does not fit", "128"),
    ],
)
def test_a_refused_value_is_shown_as_people_write_it(
    name: str, value: Any, text: str, shown: str
) -> None:
    error = refusal(name, value)
    assert text in error.message
    assert error.attributes["value"] == shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NOON, "2024-05-31T12:00:00Z"),
        (NOON.replace(tzinfo=None), "2024-05-31T12:00:00"),
        (NOON.date(), "2024-05-31"),
        (timedelta(1, 5), "P1DT5S"),
        (Decimal("1E+2"), "100"),
        (ID, str(ID)),
        (5, 5),
        (None, None),
        (b"x", b"x"),
    ],
)
def test_a_value_of_no_known_column_has_the_text_of_its_type(value: Any, text: Any) -> None:
    assert text_of_value(value) == text


def test_a_stored_value_is_shown_as_the_value_it_stands_for() -> None:
    assert shown_stored(logical_type("date"), 1) == "1970-01-02"
    assert shown_stored(logical_type("date"), None) is None
    assert shown_stored(logical_type("int8"), 5) == 5


@pytest.mark.parametrize("text", ["P1000000000D", "-P1000000000D", "PT999999999999H", "P1W"])
def test_a_duration_that_python_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(SchemaViolation, match="takes a duration"):
        parse_of(logical_type("interval64"))(text, "c")


def test_the_text_of_a_decimal_has_so_many_characters() -> None:
    parse = parse_of(logical_type("decimal(5,2)"))
    assert parse("0" * 199 + "5", "c") == 5
    with pytest.raises(SchemaViolation, match="a decimal as text"):
        parse("0" * 200 + "5", "c")
