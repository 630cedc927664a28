"""The generated text of logical types: which values are plain, and what their conversions give."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from dodona_wire.rows.logical_code import JSON_BYTES_MAX, TypeCode, check_code, code_of
from dodona_wire.rows.logical_types import FIRST_DAY, LAST_DAY, TYPES, logical_type
from dodona_wire.rows.logical_values import (
    DATES_MAX,
    EPOCH_ORDINAL,
    FLOAT_MAX,
    Dates,
    load_of,
    store_of,
)

NAMES = [*(it.name for it in TYPES.values() if not it.is_stored), "decimal(5,2)", "decimal(50,2)"]
NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))
UNEVEN = timezone(timedelta(microseconds=1))
TEXT = "a3bb189e-8bf9-3888-9912-ace4e6543002"


class OtherInt(int):
    pass


def run(code: TypeCode, text: str, value: Any) -> Any:
    return eval(text.format("value"), {**dict(code.scope), "value": value})


def stored_by(code: TypeCode, value: Any) -> Any:
    """Return the stored form as a generated function makes it: behind the test, whose names it may
    use."""
    return run(code, f"({code.test}) and [{code.store}]", value)[0]


def is_plain(name: str, value: Any) -> bool:
    code = code_of(logical_type(name))
    found: bool = run(code, code.test, value)
    return bool(found)


@pytest.mark.parametrize("name", NAMES)
def test_both_ends_of_a_range_are_plain_and_convert_as_single_values_do(name: str) -> None:
    kind = logical_type(name)
    code = code_of(kind)
    if kind.lowest is None:
        return
    for stored in (kind.lowest, kind.highest):
        value = load_of(kind)(stored)
        assert is_plain(name, value)
        assert stored_by(code, value) == stored == store_of(kind)(value, "c")
        assert run(code, code.load, stored) == value
        assert run(check_code(kind), check_code(kind).test, stored)


def test_a_date_is_made_once_and_few_dates_are_kept() -> None:
    dates = Dates()
    for days in (FIRST_DAY, 0, LAST_DAY):
        assert dates[days] == date(1970, 1, 1) + timedelta(days)
        assert dates[days] is dates[days]
    for days in range(DATES_MAX + 1):
        assert dates[days].toordinal() == days + EPOCH_ORDINAL
        assert len(dates) <= DATES_MAX
    for days in (FIRST_DAY - 1, LAST_DAY + 1):
        with pytest.raises(ValueError, match=r"ordinal|year"):
            dates[days]


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("float", 0.1, 0.10000000149011612),
        ("float", FLOAT_MAX, FLOAT_MAX),
        ("float", -FLOAT_MAX, -FLOAT_MAX),
        ("uuid", UUID(TEXT), UUID(TEXT).bytes),
        ("json", '{"a": 1}', '{"a": 1}'),
        ("json", f'"{"x" * (JSON_BYTES_MAX - 2)}"', f'"{"x" * (JSON_BYTES_MAX - 2)}"'),
        ("date32", date(1970, 1, 2), 1),
        ("datetime", NOON, 1_717_156_800),
        ("datetime", NOON.astimezone(EAST), 1_717_156_800),
        ("datetime", NOON.replace(microsecond=1, tzinfo=UNEVEN), 1_717_156_800),
        ("timestamp", NOON.replace(microsecond=7), 1_717_156_800_000_007),
        ("timestamp", NOON.astimezone(EAST), 1_717_156_800_000_000),
        ("interval", timedelta(-1, 0, 3), -86_399_999_997),
    ],
)
def test_a_plain_value_converts(name: str, value: Any, stored: Any) -> None:
    kind = logical_type(name)
    code = code_of(kind)
    assert is_plain(name, value)
    assert stored_by(code, value) == stored == store_of(kind)(value, "c")
    assert run(code, code.load, stored) == load_of(kind)(stored)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int8", 128),
        ("int8", -129),
        ("int8", True),
        ("int8", OtherInt(5)),
        ("float", 1),
        ("float", FLOAT_MAX * 2),
        ("float", -FLOAT_MAX * 2),
        ("float", float("nan")),
        ("date", NOON),
        ("date", date(1969, 12, 31)),
        ("date", date(2106, 1, 1)),
        ("datetime", NOON.replace(tzinfo=None)),
        ("datetime", NOON.replace(microsecond=1)),
        ("datetime", NOON.replace(tzinfo=UNEVEN)),
        ("datetime", NOON.replace(year=1969)),
        ("timestamp", NOON.replace(year=2106)),
        ("interval", 5),
        ("interval", timedelta(49_673)),
        ("decimal(5,2)", Decimal("1.555")),
        ("decimal(5,2)", 1),
        ("uuid", TEXT),
        ("json", "{"),
        ("json", '"é"'),
        ("json", f'"{"x" * (JSON_BYTES_MAX - 1)}"'),
        ("json", b"1"),
    ],
)
def test_other_values_are_not_plain(name: str, value: Any) -> None:
    assert not is_plain(name, value)


@pytest.mark.parametrize(
    ("name", "stored", "is_good"),
    [
        ("int8", 128, False),
        ("int8", -129, False),
        ("date", -1, False),
        ("float", 0.5, True),
        ("float", 0.1, False),
        ("json", "[1]", True),
        ("json", "[", False),
        ("uuid", b"1" * 16, True),
        ("uuid", b"1" * 15, False),
        ("decimal(5,2)", b"\x80\x00\x00\x96", True),
        ("decimal(5,2)", b"\x80\x00\x00\x96\x00", False),
        ("decimal(5,2)", b"\xff\xff\xff\xff", False),
        ("decimal(5,2)", b"\x00\x00\x00\x00", False),
    ],
)
def test_a_cell_checks_the_range_of_a_stored_value(name: str, stored: Any, is_good: bool) -> None:
    code = check_code(logical_type(name))
    assert bool(run(code, code.test, stored)) is is_good
