"""Casts of a user's Arrow column to a logical type: which types it takes, and the refused row."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from dodona._core.writing.logical_casting import cast_logical, may_cast_logical
from dodona.errors import SchemaViolation
from dodona.schema import Column
from dodona_wire.rows.logical_arrow import arrow_type_of
from dodona_wire.rows.logical_types import logical_type

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
TEXT = "a3bb189e-8bf9-3888-9912-ace4e6543002"
NUMBERS = (pa.int8(), pa.uint64(), pa.int64())
FLOATS = (pa.float16(), pa.float32(), pa.float64())
ZONED = (pa.timestamp("s", "UTC"), pa.timestamp("ns", "Europe/Berlin"))
TAKEN: dict[str, tuple[Any, ...]] = {
    "int16": NUMBERS,
    "float": (*NUMBERS, *FLOATS),
    "date": (pa.date32(), pa.date64()),
    "datetime": ZONED,
    "timestamp64": ZONED,
    "interval": (pa.duration("s"), pa.duration("ns")),
    "decimal(5,2)": (*NUMBERS, pa.decimal128(9, 2), pa.decimal256(50, 2)),
    "uuid": (pa.string(), pa.binary()),
    "json": (pa.string(),),
}
TYPES = tuple(
    dict.fromkeys([*sum(TAKEN.values(), ()), pa.timestamp("s"), pa.bool_(), pa.time32("s")])
)


@pytest.mark.parametrize("name", TAKEN)
def test_a_column_takes_these_types_of_arrow(name: str) -> None:
    taken = [
        it
        for it in TYPES
        if may_cast_logical(
            logical_type(name), it, is_text=pa.types.is_string(it), is_bytes=pa.types.is_binary(it)
        )
    ]
    assert taken == [it for it in TYPES if it in TAKEN[name]]


def cast(name: str, array: Any) -> Any:
    column = Column("c", name)
    found = cast_logical(column, arrow_type_of(column.logical), array)
    found.validate(full=True)
    assert found.type == arrow_type_of(column.logical)
    return found


@pytest.mark.parametrize(
    ("name", "array", "values"),
    [
        ("int8", pa.nulls(2), [None, None]),
        ("int8", pa.array([-128, None], pa.int64()), [-128, None]),
        ("float", pa.array([0.1, None, float("inf")]), [0.10000000149011612, None, float("inf")]),
        ("float", pa.array([1 << 24, None]), [float(1 << 24), None]),
        ("date", pa.array([date(2024, 5, 31)], pa.date64()), [date(2024, 5, 31)]),
        ("datetime", pa.array([NOON], pa.timestamp("us", "UTC")), [NOON]),
        ("interval", pa.array([timedelta(1)], pa.duration("s")), [timedelta(1)]),
        ("decimal(5,2)", pa.array([3, None], pa.uint64()), [Decimal("3.00"), None]),
        ("decimal(5,2)", pa.array([Decimal("1.5")], pa.decimal256(50, 3)), [Decimal("1.50")]),
        ("decimal(5,2)", pa.array([Decimal("1.5")], pa.decimal128(9, 1)), [Decimal("1.50")]),
        ("decimal(50,2)", pa.array([Decimal("1.5")], pa.decimal128(9, 1)), [Decimal("1.50")]),
        ("decimal(50,2)", pa.array([Decimal("1.5")], pa.decimal256(60, 2)), [Decimal("1.50")]),
        ("decimal(50,2)", pa.array([(1 << 64) - 1], pa.uint64()), [Decimal((1 << 64) - 1)]),
        ("decimal(20,0)", pa.array([-(1 << 63)]), [Decimal(-(1 << 63))]),
        ("uuid", pa.array([UUID(TEXT).bytes, None]), [UUID(TEXT).bytes, None]),
        ("uuid", pa.array([TEXT, None, TEXT.upper()]), [UUID(TEXT).bytes, None, UUID(TEXT).bytes]),
        ("uuid", pa.array(["", TEXT, None]).slice(1), [UUID(TEXT).bytes, None]),
        ("uuid", pa.array(["", TEXT], pa.large_string())[1:], [UUID(TEXT).bytes]),
        ("uuid", pa.array([], pa.string()), []),
    ],
)
def test_values_stay_what_they_were(name: str, array: Any, values: list[Any]) -> None:
    assert cast(name, array).to_pylist() == values


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    ("name", "good", "bad", "kind", "value"),
    [
        ("int8", 1, 128, pa.int64(), "128"),
        ("float", 1.0, -1e39, pa.float64(), "-1e+39"),
        ("float", 1, (1 << 24) + 1, pa.int64(), "16777217"),
        ("decimal(5,2)", Decimal(1), Decimal("1.555"), pa.decimal128(9, 3), "Decimal('1.555')"),
        ("decimal(5,2)", 1, 1000, pa.int64(), "1000"),
        ("uuid", TEXT, TEXT[1:], pa.string(), repr(TEXT[1:])),
        ("uuid", b"1" * 16, b"1" * 15, pa.binary(), repr(b"1" * 15)),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(
    name: str, good: Any, bad: Any, kind: Any, value: str, place: int
) -> None:
    values = [good] * 5
    values[place] = bad
    with pytest.raises(SchemaViolation, match="a value does not fit in") as caught:
        cast(name, pa.array([*values, bad, good], kind))
    assert caught.value.attributes == {"column": "c", "row_index": place, "value": value}


@pytest.mark.parametrize(
    ("value", "text"), [(1e39, "too large"), ((1 << 24) + 1, "no float equals")]
)
def test_a_number_that_is_no_float_is_refused_with_the_reason(value: Any, text: str) -> None:
    with pytest.raises(SchemaViolation, match=text):
        cast("float", pa.array([value]))


def test_the_largest_integer_is_no_float() -> None:
    """The nearest float is above all integers of 64 bits, and has no integer to compare with."""
    with pytest.raises(SchemaViolation) as caught:
        cast("float", pa.array([0, (1 << 63) - 1]))
    assert caught.value.attributes["row_index"] == 1


def test_a_value_that_python_does_not_have_is_shown_as_a_number() -> None:
    far = pa.array([1 << 60], pa.timestamp("s", "UTC"))
    with pytest.raises(SchemaViolation) as caught:
        cast("timestamp64", far)
    assert caught.value.attributes["value"] == f"timestamp[s, tz=UTC] {1 << 60}"


def test_a_type_that_arrow_does_not_cast_is_an_error_of_arrow() -> None:
    with pytest.raises(pa.ArrowNotImplementedError):
        cast("date", pa.array([[1]]))
