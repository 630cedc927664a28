"""Logical types: what each takes and refuses, with column, value and range in the error."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy
import pandas
import pytest

from dodona.errors import SchemaViolation
from dodona.keys import encode_key
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MAX, KEY_MIN, Key
from dodona_wire.rows.logical_parsing import parse_of
from dodona_wire.rows.logical_types import TYPES, logical_type
from dodona_wire.rows.logical_values import load_of, store_of, text_of

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
UNEVEN = timezone(timedelta(microseconds=1))
TEXT = "a3bb189e-8bf9-3888-9912-ace4e6543002"


def store(name: str, value: Any) -> Any:
    return store_of(logical_type(name))(value, "c")


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("int8", -128, -128),
        ("uint16", numpy.int64(65_535), 65_535),
        ("int32", numpy.uint8(3), 3),
        ("float", 0.1, 0.10000000149011612),
        ("float", numpy.float32(0.1), 0.10000000149011612),
        ("float", 1 << 24, 16_777_216.0),
        ("float", float("-inf"), float("-inf")),
        ("date", date(1970, 1, 2), 1),
        ("date32", date(1, 1, 1), -719_162),
        ("datetime", datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        ("datetime", datetime(2024, 3, 31, 3, tzinfo=ZoneInfo("Europe/Berlin")), 1_711_846_800),
        ("datetime", datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UNEVEN), 1),
        ("timestamp", pandas.Timestamp("1970-01-01T00:00:00.000001Z"), 1),
        ("datetime64", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), -1),
        ("timestamp64", datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        ("interval", timedelta(days=-1), -86_400_000_000),
        ("interval64", pandas.Timedelta(microseconds=3), 3),
        ("decimal(5,2)", Decimal("1.5"), b"\x80\x00\x00\x96"),
        ("decimal(5,2)", Decimal("-1.50000"), b"\x7f\xff\xff\x6a"),
        ("decimal(5,2)", Decimal("1E+2"), b"\x80\x00\x27\x10"),
        ("decimal(5,2)", 3, b"\x80\x00\x01\x2c"),
        ("decimal(5,2)", Decimal("-0"), b"\x80\x00\x00\x00"),
        ("uuid", UUID(TEXT), UUID(TEXT).bytes),
        ("uuid", TEXT, UUID(TEXT).bytes),
        ("json", '{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_value_has_this_stored_form(name: str, value: Any, stored: Any) -> None:
    found = store(name, value)
    assert (found, type(found)) == (stored, type(stored))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("int8", 128, "does not fit in int8: column 'c' takes -128 to 127"),
        ("uint8", -1, "does not fit in uint8: column 'c' takes 0 to 255"),
        ("int8", True, "takes an int, not bool"),
        ("int8", numpy.timedelta64(1, "ns"), "takes an int"),
        ("int8", 1.0, "takes an int"),
        ("float", 1e39, "does not fit in float"),
        ("float", (1 << 24) + 1, "no float equals 16777217"),
        ("float", "1", "takes a float"),
        (
            "date",
            date(1969, 12, 31),
            "in date: column 'c' takes 1970-01-01 to 2105-12",
        ),
        ("date", date(2106, 1, 1), "does not fit in date"),
        ("date", NOON, "takes a datetime.date, not datetime"),
        ("date", "2024-05-31", "takes a datetime.date, not str"),
        ("datetime", NOON.replace(tzinfo=None), "has no time zone"),
        ("datetime", date(2024, 5, 31), "takes a datetime.datetime"),
        ("datetime", pandas.NaT, "whole microseconds"),
        ("datetime", NOON.replace(microsecond=1), "has whole seconds"),
        ("datetime", NOON.replace(tzinfo=UNEVEN), "has whole seconds"),
        (
            "datetime",
            datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
            "takes 1970-01-01T00:00:00Z to",
        ),
        ("timestamp", pandas.Timestamp("2024-05-31T00:00:00.000000001Z"), "whole microseconds"),
        ("timestamp", numpy.datetime64("2024-05-31"), "takes a datetime.datetime"),
        ("timestamp", 5, "takes a datetime.datetime"),
        ("timestamp64", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "does not fit"),
        ("interval", timedelta(days=49_673), "does not fit in interval"),
        ("interval", 5, "takes a datetime.timedelta"),
        ("interval64", timedelta(days=106_751_618), "does not fit in interval64"),
        ("decimal(5,2)", Decimal("1.005"), "takes 2 digits behind the point. Round"),
        ("decimal(5,2)", Decimal(1000), "takes -999.99 to 999.99"),
        ("decimal(5,2)", Decimal("1E+999999"), "takes -999.99 to 999.99"),
        ("decimal(5,2)", Decimal("1E-999999"), "2 digits behind the point"),
        ("decimal(5,2)", Decimal("NaN"), "finite numbers only"),
        ("decimal(5,2)", Decimal("-Infinity"), "finite numbers only"),
        ("decimal(5,2)", 1.5, "takes a decimal.Decimal or an int, not float"),
        ("decimal(5,2)", "1.5", "takes a decimal.Decimal or an int, not str"),
        ("uuid", TEXT[:-1], "takes a UUID such as"),
        ("uuid", "{" + TEXT + "}", "takes a UUID such as"),
        ("uuid", b"0" * 16, "takes a uuid.UUID or its text"),
        ("json", "{", "text of a JSON value"),
        ("json", '{"a": 1, "a": 2}', "named twice"),
        ("json", "[" * 5_000, "text of a JSON value"),
        ("json", {}, "takes a str"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, value: Any, text: str) -> None:
    with pytest.raises(SchemaViolation) as caught:
        store(name, value)
    assert text in str(caught.value)
    assert caught.value.attributes["column"] == "c"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("date", date(2024, 5, 31), "2024-05-31"),
        ("datetime", NOON, "2024-05-31T12:00:00Z"),
        ("timestamp", NOON.replace(microsecond=1), "2024-05-31T12:00:00.000001Z"),
        ("interval", timedelta(days=-1, seconds=1), "-PT86399S"),
        ("decimal(5,2)", Decimal("1E+2"), "100"),
        ("uuid", UUID(TEXT), TEXT),
        ("int8", 5, 5),
    ],
)
def test_a_value_has_this_text(name: str, value: Any, text: Any) -> None:
    assert text_of(logical_type(name), value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date", "20240531"),
        ("date", "2024-05-32"),
        ("date", 19_874),
        ("datetime", "2024-05-31"),
        ("datetime", "2024-05-31T25:00:00Z"),
        ("timestamp", "2024-05-31T12:00:00.0000001Z"),
        ("timestamp", 1),
        ("interval", "1 day"),
        ("interval", "P"),
        ("interval", "P1DT"),
        ("interval", "PT0.0000001S"),
        ("decimal(5,2)", "1,5"),
        ("decimal(5,2)", "1e99999"),
        ("decimal(5,2)", "NaN"),
        ("decimal(5,2)", 1.5),
        ("uuid", 5),
    ],
)
def test_a_text_that_is_no_value_is_refused(name: str, text: Any) -> None:
    with pytest.raises(SchemaViolation, match="takes"):
        parse_of(logical_type(name))(text, "c")


def test_a_time_without_a_time_zone_is_refused_in_text_too() -> None:
    with pytest.raises(SchemaViolation, match="has no time zone"):
        parse_of(logical_type("datetime"))("2024-05-31T12:00:00", "c")
    assert parse_of(logical_type("datetime"))("2024-05-31T14:00:00+02:00", "c") == NOON


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("int31", "Did you mean int"),
        ("Date", "Did you mean date?"),
        ("timestmap", "Did you mean timestamp?"),
        ("decimal", "write a decimal as decimal(10,2)"),
        ("decimal(77,0)", "precision p of 1 to 76"),
        ("decimal(5,6)", "scale s of 0 to p"),
        ("decimal(0,0)", "precision"),
        ("decimal(-1,0)", "write a decimal"),
    ],
)
def test_an_unknown_type_is_refused_with_the_nearest_name(name: str, text: str) -> None:
    with pytest.raises(SchemaViolation) as caught:
        TableSchema.parse([Column("k", "int64", "ascending"), Column("v", name)])
    assert text in str(caught.value)
    assert caught.value.attributes["column"] == "v"


def test_a_decimal_has_one_name() -> None:
    columns = [Column("k", "decimal( 5 , 2 )", "ascending"), Column("v", "int8")]
    assert TableSchema.parse(columns).columns[0].type == "decimal(5,2)"


def test_a_sum_of_a_narrow_type_is_refused_and_its_least_value_is_not() -> None:
    key = Column("k", "int64", "ascending")
    with pytest.raises(SchemaViolation, match="sum aggregates"):
        TableSchema.parse([key, Column("v", "int32", aggregate="sum")])
    TableSchema.parse([key, Column("v", "date", aggregate="min")])


def test_the_stored_schema_of_a_table_without_logical_types_is_the_schema() -> None:
    schema = TableSchema.parse([Column("k", "int64", "ascending"), Column("v", "any")])
    assert schema.stored is schema


def test_a_cell_refuses_a_key_and_a_value_outside_the_range() -> None:
    schema = TableSchema.parse([Column("k", "int8", "ascending"), Column("v", "date")])
    good = schema.write_of({"k": 1, "v": NOON.date()})
    far = encode_key([300], ["int64"])
    assert schema.stored.code.are_plain([good], KEY_MIN, KEY_MAX)
    for write in ((far, *good[1:]), (*good[:2], (60_000,)), (*good[:2], (-1,))):
        assert not schema.stored.code.are_plain([write], KEY_MIN, KEY_MAX)
        with pytest.raises(SchemaViolation):
            schema.stored.check_write(write)
    with pytest.raises(SchemaViolation, match="does not fit in int8"):
        schema.stored.check_key(far)
    with pytest.raises(SchemaViolation, match="does not fit in int8"):
        schema.stored.check_prefix(far)


def test_an_error_of_a_cell_shows_a_key_as_text() -> None:
    schema = TableSchema.parse([Column("k", "date", "ascending"), Column("v", "int8")])
    assert schema.stored.named_key(schema.key_of({"k": NOON.date()})) == {"k": "2024-05-31"}
    assert schema.decode_prefix(Key(b"")) == ()


def test_each_type_names_both_ends_of_its_range() -> None:
    for kind in TYPES.values():
        if kind.lowest is not None:
            for end in (kind.lowest, kind.highest):
                assert store_of(kind)(load_of(kind)(end), "c") == end
