"""Exceptions that are the caller's own, raised while its values are converted, reach the caller.

They come from a signal handler, which Python runs between any two lines, or from an object of the
caller's class. Only those of objects that Arrow reads are the cause of a SchemaViolation.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from types import FrameType
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pytest

from dodona._core.writing.tabular import converted
from dodona.errors import SchemaViolation
from dodona_wire.rows.schema import TableSchema

PLACES: Final = ("dodona_wire/rows", "dodona/_core/writing", "<string>")
"""Files whose lines are interrupted. The last one is code that was made."""


class MineError(ValueError):
    """An exception of the caller."""


def boom(*_: object) -> Any:
    raise MineError("mine")


# Handlers


def interrupted(number: int, call: Callable[[], Any]) -> bool:
    """Run the call, and raise MineError before that line, as a signal handler would. Return whether
    there is such a line. The exception must reach this function."""
    count = 0

    def handle(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not any(place in frame.f_code.co_filename for place in PLACES):
            return None
        count += event == "line"
        if event == "line" and count == number:
            sys.settrace(None)
            boom()
        return handle

    before = sys.gettrace()
    sys.settrace(handle)
    try:
        call()
    except MineError:
        return True
    except SchemaViolation:
        assert count < number
    finally:
        sys.settrace(before)
    assert count < number, f"the exception at line {number} is lost"
    return False


KEY: Final = {"name": "k", "type": "int64", "sort_order": "ascending"}
HASH: Final = {"name": "h", "type": "uint64", "sort_order": "ascending"}
ROWS: Final[list[tuple[list[Any], dict[str, Any]]]] = [
    ([{**HASH, "expression": "farm_hash(k)"}, KEY, {"name": "v", "type": "int64"}], {"v": 1}),
    (
        [{**HASH, "type": "int64", "expression": "k / 2"}, KEY, {"name": "v", "type": "any"}],
        {"v": [1, {"a": 1.5}]},
    ),
    (
        [
            KEY,
            {"name": "d", "type": "decimal(5,2)"},
            {"name": "l", "type": "list<decimal(5,2)>"},
            {"name": "u", "type": "uuid"},
            {"name": "j", "type": "json"},
            {"name": "s", "type": "struct<a:date>"},
        ],
        {
            "d": Decimal("1.5"),
            "l": [Decimal("2.5")],
            "u": UUID(int=1),
            "j": "[1]",
            "s": {"a": date(2020, 1, 1)},
        },
    ),
]


@pytest.mark.parametrize(("columns", "values"), ROWS)
def test_an_exception_of_a_signal_handler_in_a_conversion_reaches_the_caller(
    columns: list[Any], values: dict[str, Any]
) -> None:
    schema, row = TableSchema.parse(columns), {"k": 3, **values}
    schema.write_of(row)  # makes its code
    assert lines_of(lambda: schema.write_of(row)) > 3


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("decimal(5,2)", pa.array([Decimal("1.5"), Decimal("1.5"), Decimal("1000.5")])),
        ("date", pa.array([1, 1 << 30], pa.date32())),
        ("list<date>", pa.array([[1], [1 << 30]], pa.list_(pa.date32()))),
        ("int64", [1, 2]),
    ],
)
def test_an_exception_of_a_signal_handler_in_a_conversion_of_columns_reaches_the_caller(
    kind: str, values: Any
) -> None:
    """All but the last one are refused in the end, which has lines of its own."""
    schema = TableSchema.parse([KEY, {"name": "v", "type": kind}])
    data = {"k": [*range(len(values))], "v": values}
    assert lines_of(lambda: converted(schema, data)) > 20


def lines_of(call: Callable[[], Any]) -> int:
    """Interrupt the call at each of its lines, and return how many there are."""
    number = 1
    while interrupted(number, call):
        number += 1
    return number - 1


# Objects


class Zone(tzinfo):
    utcoffset = dst = tzname = boom


class Values(Mapping[str, int]):
    """A mapping that fails in one of its methods."""

    def __init__(self, *, iter_fails: bool) -> None:
        self._iter_fails = iter_fails

    def __getitem__(self, name: str) -> int:
        return int(boom())

    def __iter__(self) -> Iterator[str]:
        return iter(boom() if self._iter_fails else ["a"])

    def __len__(self) -> int:
        return 1


OBJECTS: Final[list[tuple[str, Any]]] = [
    ("double", type("Number", (float,), {"__float__": boom})(1.5)),
    ("any", type("Items", (list,), {"__iter__": boom})([1])),
    ("any", type("Fields", (dict,), {"items": boom})({"a": 1})),
    ("date", type("Day", (date,), {"toordinal": boom})(2020, 1, 1)),
    ("timestamp", datetime(2020, 1, 1, tzinfo=Zone())),
    ("timestamp", type("At", (datetime,), {"nanosecond": property(boom)})(2020, 1, 1, tzinfo=UTC)),
    ("decimal(5,2)", type("Sum", (Decimal,), {"as_tuple": boom})("1.5")),
    ("uuid", type("Id", (UUID,), {"bytes": property(boom)})(int=1)),
    ("struct<a:int64>", Values(iter_fails=False)),
    ("dict<utf8,int64>", Values(iter_fails=True)),
]


@pytest.mark.parametrize(("kind", "value"), OBJECTS)
def test_an_exception_of_a_callers_object_reaches_the_caller(kind: str, value: Any) -> None:
    schema = TableSchema.parse([KEY, {"name": "v", "type": kind}])
    with pytest.raises(MineError):
        schema.write_of({"k": 1, "v": value})


class Stream:
    """Data of a library that fails."""

    __arrow_c_stream__ = boom


def test_an_exception_of_a_callers_column_is_the_cause_of_the_error() -> None:
    schema = TableSchema.parse([KEY, {"name": "v", "type": "int64"}])
    with pytest.raises(SchemaViolation, match="mine") as caught:
        converted(schema, {"k": [1], "v": Stream()})
    assert isinstance(caught.value.__cause__, MineError)


class Broken(Mapping[str, int]):
    """A mapping that lacks its own names."""

    def __getitem__(self, name: str) -> int:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


def test_a_mapping_that_lacks_its_own_names_is_refused() -> None:
    schema = TableSchema.parse([KEY, {"name": "v", "type": "struct<a:int64>"}])
    with pytest.raises(SchemaViolation, match="'v' got a Broken that lacks its own names"):
        schema.write_of({"k": 1, "v": Broken()})
