"""Values of NumPy in rows, lists and frames: each is the same value of Python, or it is refused."""

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

import dodona
from dodona._core.writing.column_types import type_of_values
from dodona.errors import SchemaViolation
from dodona_wire.rows.logical_types import logical_type
from dodona_wire.rows.logical_values import load_of, store_of

DAY = date(2024, 2, 29)
LONG = numpy.longdouble("0.1")
"""A number that no double is, where a long double has more bits."""
IS_LONG = numpy.dtype(numpy.longdouble).itemsize > 8
needs_long = pytest.mark.skipif(not IS_LONG, reason="a long double is a double here")
NANOSECONDS = numpy.array(["2024-02-29"], "datetime64[ns]")


def through(name: str, value: Any) -> Any:
    """The user's value of the stored one."""
    kind = logical_type(name)
    return load_of(kind)(store_of(kind)(value, "c"))


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("boolean", numpy.bool_(True), True),
        ("double", numpy.longdouble(1.5), 1.5),
        ("double", numpy.longdouble("inf"), float("inf")),
        ("float", numpy.longdouble(1.5), 1.5),
        ("double", numpy.float16(1.5), 1.5),
        ("any", numpy.int64(-5), -5),
        ("any", {"a": [numpy.float32(1.5), numpy.bool_(False)]}, {"a": [1.5, False]}),
        ("date", numpy.datetime64(DAY), DAY),
        ("interval", numpy.timedelta64(-5, "ms"), timedelta(milliseconds=-5)),
        ("interval64", numpy.timedelta64(-5_000, "ns"), timedelta(microseconds=-5)),
        ("list<double>", numpy.array([1.5], numpy.longdouble), [1.5]),
        ("list<date>", numpy.array([DAY], "datetime64[D]"), [DAY]),
        ("list<interval>", numpy.array([7], "timedelta64[s]"), [timedelta(seconds=7)]),
        ("list<optional<interval>>", numpy.array(["NaT", 7], "m8[s]"), [None, timedelta(0, 7)]),
        ("list<boolean>", numpy.array([True]), [True]),
        ("list<utf8>", numpy.array(["a"]), ["a"]),
        ("list<list<int8>>", numpy.array([[1, 2]]), [[1, 2]]),
    ],
)
def test_a_value_of_numpy_is_the_same_value_of_python(name: str, value: Any, found: Any) -> None:
    stored = through(name, value)
    assert stored == found
    assert type(stored) is type(found)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("int8", numpy.bool_(True), "takes an int, not numpy.bool"),
        ("int64", numpy.longdouble(1), "takes an int, not float"),
        ("double", numpy.complex128(1), "takes a float, not numpy.complex128"),
        ("date", numpy.datetime64("2024-02-29", "ns"), "takes a datetime.date, not numpy"),
        ("date", numpy.datetime64("NaT"), "takes a datetime.date, not numpy"),
        ("date", numpy.datetime64("20000-01-01"), "takes a datetime.date, not numpy"),
        ("timestamp", numpy.datetime64("2024-02-29", "us"), "a time zone, not numpy.datetime64"),
        ("interval", numpy.timedelta64(1, "ns"), "a datetime.timedelta, not numpy"),
        ("interval", numpy.timedelta64(1, "Y"), "a datetime.timedelta, not numpy"),
        ("interval", numpy.timedelta64(1), "a datetime.timedelta, not numpy"),
        ("interval64", numpy.timedelta64(2**62, "s"), "a datetime.timedelta, not numpy"),
        ("list<int64>", NANOSECONDS, "takes an int, not numpy.datetime64"),
        ("list<int64>", NANOSECONDS - NANOSECONDS, "takes an int, not numpy.timedelta64"),
        ("list<timestamp64>", NANOSECONDS, "takes a datetime.datetime with a time zone"),
        ("any", numpy.array([1]), "takes None, numbers, bool, str"),
        ("any", {numpy.int64(1): 2}, "takes a str, not numpy.int64"),
    ],
)
def test_another_value_of_numpy_is_refused(name: str, value: Any, words: str) -> None:
    with pytest.raises(SchemaViolation, match=words) as caught:
        through(name, value)
    assert caught.value.attributes["column"] == "c"


@needs_long
@pytest.mark.parametrize("name", ["double", "float", "list<double>", "any"])
def test_a_long_double_is_not_rounded(name: str) -> None:
    value = numpy.array([LONG]) if name == "list<double>" else LONG
    with pytest.raises(SchemaViolation, match=r"not numpy\.longdouble"):
        through(name, value)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([numpy.bool_(True)], "boolean"),
        ([numpy.int8(5), 7], "int64"),
        ([numpy.float32(0.5)], "double"),
        ([numpy.datetime64(DAY)], "date32"),
        ([numpy.timedelta64(5, "s")], "interval64"),
        ([[numpy.int64(5)]], "list<optional<int64>>"),
        ([numpy.array([DAY], "datetime64[D]")], "list<optional<date32>>"),
        ([{"a": numpy.int8(1)}], "struct<a:optional<int64>>"),
        ([numpy.datetime64("2024-02-29", "ns")], None),
        ([NANOSECONDS], None),
    ],
)
def test_a_new_column_has_the_type_of_the_values_of_python(
    values: list[Any], found: str | None
) -> None:
    if found is not None:
        assert type_of_values(values, "c") == found
        return
    with pytest.raises(SchemaViolation, match="datetime64"):
        type_of_values(values, "c")


# Frames of pandas that have Python objects


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    columns = [{"name": "k", "type": "int64", "sort_order": "ascending"}]
    columns += [{"name": it, "type": it} for it in ("int64", "utf8", "string", "date")]
    columns.append({"name": "money", "type": "decimal(5,2)"})
    with dodona.open(tmp_path / "db") as client:
        client.create_table("//t", columns, mount=True)
        yield client


def frame_of(name: str, values: list[Any]) -> Any:
    series = pandas.Series(values, dtype=object)
    return pandas.DataFrame({"k": range(len(values)), name: series})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("int64", NANOSECONDS[0], "takes an int, not numpy.datetime64"),
        ("int64", numpy.timedelta64(5, "ns"), "takes an int, not numpy.timedelta64"),
        ("money", Decimal("sNaN"), "which has finite numbers only"),
    ],
)
def test_an_object_in_a_frame_is_refused_with_its_row(
    db: dodona.Client, name: str, value: Any, words: str
) -> None:
    with pytest.raises(SchemaViolation, match=words) as caught:
        db.write("//t", frame_of(name, [None, None, value]))
    assert (caught.value.attributes["column"], caught.value.attributes["row_index"]) == (name, 2)
    assert len(db.select("//t")) == 0


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("int64", numpy.int8(5), 5),
        ("utf8", numpy.str_("a\0"), "a\0"),
        ("string", numpy.bytes_(b"a\0"), b"a\0"),
        ("date", numpy.datetime64(DAY), DAY),
    ],
)
def test_an_object_in_a_frame_is_written_as_it_is(
    db: dodona.Client, name: str, value: Any, found: Any
) -> None:
    db.write("//t", frame_of(name, [value, None]))
    assert [row[name] for row in db.select("//t")] == [found, None]


def test_a_table_is_not_like_a_frame_with_a_signaling_nan(db: dodona.Client) -> None:
    frame = frame_of("money", [Decimal("sNaN"), None])
    with pytest.raises(SchemaViolation, match="no finite number"):
        db.create_table("//like", like=frame, keys=["k"])
