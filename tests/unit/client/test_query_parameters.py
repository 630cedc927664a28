"""Parameters of queries: which values there are, how they meet columns, and what is refused."""

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy
import pandas
import pytest

import dodona
import dodona.aio
from dodona._core.protocol.limits import QueryLimits
from dodona._core.reading import condition
from dodona._core.sql.engine import Engine
from dodona._core.sql.messages import without_trace
from dodona._core.sql.parameters import checked_parameters
from dodona.errors import InvalidRequest, LimitExceeded
from dodona.schema import ColumnType, TableSchema

LIMITS = QueryLimits()
SCHEMA = TableSchema.parse(
    [
        dodona.Column("day", "int64", "ascending"),
        dodona.Column("name", "string", "ascending"),
        dodona.Column("note", "utf8"),
    ]
)
ROWS = [
    {"day": 1, "name": b"ann", "note": "it's"},
    {"day": 2, "name": b"\xff\x00", "note": "é"},
    {"day": 3, "name": b"\\x41", "note": None},
]
EAST = timezone(timedelta(hours=2))
WEST = timezone(timedelta(hours=-5))
FAR_EAST = timezone(timedelta(hours=16))
NAIVE = datetime(2013, 1, 2, 3, tzinfo=UTC).replace(tzinfo=None)


class Color(IntEnum):
    RED = 7


class Word(StrEnum):
    RED = "red"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(str(tmp_path_factory.mktemp("parameters") / "data")) as db:
        db.create_table("//t", SCHEMA, mount=True)
        db.insert_rows("//t", ROWS)
        yield db


def days(db: dodona.Client, where: str, parameters: Any) -> list[int]:
    found: list[int] = db.query(f"select day from [//t] where {where}", parameters)[
        "day"
    ].to_pylist()
    return found


# ---- how they are passed


def id_of(value: object) -> str:
    """The same in each process: without the addresses of objects."""
    text = "" if isinstance(value, int) else str(value)  # Python writes no very long int
    return f"{type(value).__name__}-{text}".partition(" at 0x")[0][:40]


@pytest.mark.parametrize(
    ("where", "parameters"),
    [
        ("day = $day", {"day": 2}),
        ("day = $DAY and $day > 1", {"Day": 2}),
        ("day = ?", [2]),
        ("day = ? and name > ?", (2, b"b")),
        ("name > $2 and day = $1", (2, b"b")),
        ("day = $1", {"1": 2}),
        ("day = $01", [2]),
        ("day = ?1", [2]),
        ("day in $days", {"days": [2, 7]}),
        ("day = any($days)", {"days": [2, 7]}),
        ("day in (select unnest($days))", {"days": [2, 7]}),
        ("day in (select * from unnest($days))", {"days": numpy.array([2, 7])}),
        ("day in (select * from range($from, $end))", {"from": 2, "end": 3}),
        ("day - 1 = $day", {"day": "1"}),
        ("day = 2", None),
        ("day = 2 and '$x' != '?'", {}),
        ("day > $day limit $count", {"day": 1, "count": 1}),
        ("day = $é_1", {"É_1": 2}),
        ("day = $select", {"select": 2}),
    ],
)
def test_values_come_by_name_or_in_order(db: dodona.Client, where: str, parameters: Any) -> None:
    assert days(db, where, parameters) == [2]


def test_a_value_is_never_read_as_sql(db: dodona.Client) -> None:
    for text in ("1 or true", "' or '1' = '1", "x'; drop table t; --", "$day", "?", "[//t]"):
        (row,) = db.query("select $text as found", {"text": text}).to_pylist()
        assert row == {"found": text}
        assert days(db, "note = $note", {"note": text}) == []
    assert days(db, "note = $note", {"note": "it's"}) == [1]


def test_a_transaction_takes_parameters(db: dodona.Client) -> None:
    with db.begin() as tx:
        assert tx.query("select day from [//t] where day > $day", {"day": 2}).to_pydict() == {
            "day": [3]
        }


@pytest.mark.anyio
async def test_the_twin_for_asyncio_takes_parameters(tmp_path: Path) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as db:
        assert (await db.query("select $x as x", {"x": 5})).to_pydict() == {"x": [5]}
        async with db.begin() as tx:
            assert (await tx.query("select ? as x", [5])).to_pydict() == {"x": [5]}


# ---- values


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (None, '"NULL"', None),
        (True, "BOOLEAN", True),
        (-(2**63), "BIGINT", -(2**63)),
        (2**64 - 1, "UBIGINT", 2**64 - 1),
        (1.5, "DOUBLE", 1.5),
        (float("inf"), "DOUBLE", float("inf")),
        ("é\0'", "VARCHAR", "é\0'"),
        (b"\xff\0'", "BLOB", b"\xff\0'"),
        (bytearray(b"\xff"), "BLOB", b"\xff"),
        (memoryview(b"\xff"), "BLOB", b"\xff"),
        (date(2013, 1, 2), "DATE", date(2013, 1, 2)),
        (NAIVE, "TIMESTAMP", NAIVE),
        (
            datetime(2013, 1, 2, 3, tzinfo=EAST),
            "TIMESTAMP WITH TIME ZONE",
            datetime(2013, 1, 2, 1, tzinfo=UTC),
        ),
        (time(3, 4, 5, 6), "TIME", time(3, 4, 5, 6)),
        (time(3, 4, tzinfo=EAST), "TIME WITH TIME ZONE", "03:04:00+02"),
        (
            time(3, tzinfo=timezone(timedelta(hours=16, seconds=-1))),
            "TIME WITH TIME ZONE",
            "03:00:00+15:59:59",
        ),
        (Decimal("1.50"), "DECIMAL(3,2)", Decimal("1.50")),
        (Decimal("1E-37"), "DECIMAL(38,37)", Decimal("1E-37")),
        (Decimal(f"0.{'1' * 38}"), "DECIMAL(38,38)", Decimal(f"0.{'1' * 38}")),
        (uuid.UUID(int=7), "UUID", str(uuid.UUID(int=7))),
        (Color.RED, "INTEGER", 7),
        (Word.RED, "VARCHAR", "red"),
        (numpy.int8(-3), "INTEGER", -3),
        (numpy.uint64(2**64 - 1), "UBIGINT", 2**64 - 1),
        (numpy.float32(0.5), "DOUBLE", 0.5),
        (numpy.bool_(True), "BOOLEAN", True),
        (numpy.str_("x"), "VARCHAR", "x"),
        (numpy.bytes_(b"x"), "BLOB", b"x"),
        (numpy.str_("x\0"), "VARCHAR", "x\0"),
        (numpy.bytes_(b"x\0"), "BLOB", b"x\0"),
        (numpy.datetime64("2013-01-02"), "DATE", date(2013, 1, 2)),
        (numpy.datetime64("2013-01-02T03", "ns"), "TIMESTAMP", NAIVE),
        (numpy.datetime64("NaT"), '"NULL"', None),
        (pandas.Timestamp("2013-01-02T03"), "TIMESTAMP", NAIVE),
        (pandas.NaT, '"NULL"', None),
        ([1, None, 2**63], "HUGEINT[]", None),
        ([1, 2.5], "DOUBLE[]", [1.0, 2.5]),
        ([], '"NULL"[]', []),
        (("a", "b"), "VARCHAR[]", ["a", "b"]),
        (
            [Decimal("1" * 36), None, Decimal("1.25")],
            "DECIMAL(38,2)[]",
            [Decimal("1" * 36), None, Decimal("1.25")],
        ),
        ([NAIVE, NAIVE.replace(hour=0)], "TIMESTAMP[]", [NAIVE, NAIVE.replace(hour=0)]),
        ([b"\xff"], "BLOB[]", [b"\xff"]),
        (numpy.array(["2013-01-02T03"], "datetime64[ns]"), "TIMESTAMP[]", [NAIVE]),
    ],
    ids=id_of,
)
def test_each_value_has_a_type_of_duckdb(
    db: dodona.Client, value: Any, kind: str, found: Any
) -> None:
    (row,) = db.query(
        "select $value as found, typeof($value) as kind", {"value": value}
    ).to_pylist()
    assert row["kind"] == kind
    if kind != "HUGEINT[]":  # Arrow has decimals instead
        assert row["found"] == found


@pytest.mark.parametrize(
    "value",
    [
        timedelta(days=-1, microseconds=5),
        numpy.timedelta64(5, "s"),
        numpy.timedelta64(5_000, "ns"),
        pandas.Timedelta(5, "s"),
    ],
)
def test_a_timedelta_is_an_interval(db: dodona.Client, value: Any) -> None:
    text = "select $at + $value as later, typeof($value) as kind"
    (row,) = db.query(text, {"at": NAIVE, "value": value}).to_pylist()
    assert row == {"later": NAIVE + pandas.Timedelta(value).to_pytimedelta(), "kind": "INTERVAL"}


def test_a_datetime_without_a_zone_compares_with_moments_as_if_in_utc(db: dodona.Client) -> None:
    moment = datetime(2013, 1, 2, 3, tzinfo=EAST)
    naive = moment.astimezone(UTC).replace(tzinfo=None)
    text = "select $moment = $naive as same, $moment::timestamp = $naive as cast_same"
    assert db.query(text, {"moment": moment, "naive": naive}).to_pylist() == [
        {"same": True, "cast_same": True}
    ]


def test_a_text_meets_a_string_column_as_a_literal_does_and_bytes_as_they_are(
    db: dodona.Client,
) -> None:
    assert days(db, "name = $name", {"name": "ann"}) == [1]
    assert days(db, "name = $name", {"name": b"\xff\x00"}) == [2]
    assert days(db, "name = $name", {"name": r"\xFF\x00"}) == [2]
    assert days(db, "name = $name", {"name": rb"\x41"}) == [3]
    assert days(db, "name in $names", {"names": [b"ann", rb"\x41"]}) == [1, 3]
    assert days(db, "name in ($a, $b)", {"a": "ann", "b": b"\xff\x00"}) == [1, 2]


def test_a_list_of_ints_meets_numbers_of_any_type(tmp_path: Path) -> None:
    with dodona.open(str(tmp_path / "data")) as db:
        numbers: dict[ColumnType, list[Any]] = {
            "double": [4.6, 5.4, 5.0],
            "uint64": [5, 6, 2**64 - 1],
        }
        for kind, values in numbers.items():
            schema = [dodona.Column("k", kind, "ascending"), dodona.Column("v", "int64")]
            db.create_table(f"//{kind}", schema, mount=True)
            db.insert_rows(f"//{kind}", [{"k": it, "v": 1} for it in values])
        found = db.query("select k from [//double] where k in $keys", {"keys": [5, 7]})
        assert found["k"].to_pylist() == [5.0]
        rounded = db.query("select k from [//double] where k::hugeint = $key", {"key": 5})
        assert rounded["k"].to_pylist() == [4.6, 5.0, 5.4], "a cast rounds a double"
        for keys in ([-1, 2**64 - 1], [-1, 5, 2**64 - 1]):
            found = db.query("select k from [//uint64] where k in $keys", {"keys": keys})
            assert found["k"].to_pylist() == [it for it in keys if it >= 0]


# ---- refusals


def refusal(value: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        checked_parameters({"day": value}, LIMITS)
    return caught.value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**64, f"Parameter day is {2**64}, and an int is from"),
        (-(2**63) - 1, "an int is from"),
        (10**5_000, "Parameter day is an int of"),
        (object(), "not object."),
        ({1, 2}, "not set."),
        (1j, "not complex."),
        (numpy.complex128(1j), "not complex128."),
        (numpy.longdouble(1.5), "numpy that converts .* not longdouble, which converts to none"),
        (numpy.array([[1]]), "not ndarray."),
        (numpy.timedelta64(5, "M"), "not timedelta64, which converts to none"),
        (numpy.datetime64("2013-01-02T00:00:00.000000001"), "has nanoseconds"),
        (numpy.datetime64("99999-01-01"), "not datetime64."),
        (pandas.Timestamp(1), "has nanoseconds"),
        (pandas.Timedelta(1), "has nanoseconds"),
        (pandas.NA, "not NAType."),
        ("\ud800", "not Unicode text"),
        (Decimal("NaN"), "no DECIMAL"),
        (Decimal("Infinity"), "no DECIMAL"),
        (Decimal("1E+38"), "39 digits"),
        (Decimal("1E-39"), "40 digits"),
        (Decimal("1E-38"), "39 digits, 1 before the point and 38 after it"),
        (Decimal("0E-38"), "39 digits"),
        ([Decimal("1" * 37), Decimal("1.25")], "39 digits, 37 before the point and 2 after it"),
        ([Decimal("1" * 38), None, Decimal("0.1")], "39 digits"),
        ([Decimal("1" * 30), Decimal(f"0.{'1' * 20}")], "50 digits"),
        ([Decimal("0E+37"), Decimal("0.1")], "39 digits"),
        (datetime(1, 1, 1, tzinfo=EAST), "years 1 to 9999"),
        (time(3, tzinfo=ZoneInfo("Europe/Oslo")), "fixed offset"),
        (time(3, tzinfo=WEST), r"offset UTC-05:00\. .* pass a text .* \$name::timetz"),
        (time(3, tzinfo=FAR_EAST), r"offset UTC\+16:00"),
        (time(3, tzinfo=timezone(timedelta(microseconds=1))), "whole seconds"),
        ([{1}], r"Parameter day\[0\] is"),
        ([1, {}], "types MAP and int"),
        ([1, "a"], "types int and str"),
        ([True, 1], "types bool and int"),
        ([0.5, 2**53 + 1], "no float is equal to"),
        ([NAIVE, date(2013, 1, 2)], "types date and datetime"),
        ([NAIVE, NAIVE.replace(tzinfo=EAST)], "types datetime and datetime with a time zone"),
        ([time(1), None, time(1, tzinfo=EAST)], "types time and time with a time zone"),
        ([timedelta(1), time(1)], "types time and timedelta"),
    ],
    ids=id_of,
)
def test_a_value_that_has_no_type_of_duckdb_is_refused(value: Any, message: str) -> None:
    error = refusal(value)
    assert error.message.startswith("Parameter day")
    with pytest.raises(InvalidRequest, match=message):
        raise error


def test_a_time_west_of_utc_comes_as_text_that_is_cast(db: dodona.Client) -> None:
    found = db.query("select $at::timetz as at", {"at": "12:00:00-05:00"})
    assert found.to_pylist() == [{"at": "12:00:00-05"}]


def test_a_defect_of_duckdb_is_told_without_its_calls_and_the_paths_of_the_machine() -> None:
    engine = Engine(LIMITS)
    text = "select $at::varchar"
    assert engine.check(text) == ["at"]
    with pytest.raises(InvalidRequest, match=r"^INTERNAL Error: FormatTwoDigits") as caught:
        engine.run(text, {"at": time(12, tzinfo=FAR_EAST)})
    message = caught.value.message
    assert message.endswith("This is a defect in DuckDB. Write the query another way.")
    assert len(message) < 200
    assert not re.search(r"Stack Trace|/|0x", message)


def test_only_a_defect_has_calls_to_leave_out() -> None:
    error = "Conversion Error: Could not convert string '\n\nStack Trace:\n' to INT64"
    assert without_trace(error) == error
    fatal = "Invalid: FATAL Error: a file\n\nStack Trace:\n\n/lib/x(+0x1)\n/lib/y"
    assert without_trace(fatal).startswith("Invalid: FATAL Error: a file\n\nThis is a defect")
    assert "/lib" not in without_trace(fatal)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (1927796384766690668, r"not int\. Pass a timestamp as timestamp=…"),
        ("text", "a mapping of names to values, or a sequence of values, not str"),
        (b"text", "not bytes"),
        ({1, 2}, "not set"),
        ({1: 2}, "the name of a parameter is a str, not int"),
        ({"\ud800": 2}, "the name of a parameter is not Unicode text"),
        ({"Day": 1, "day": 2}, "SQL ignores case, so the parameters 'Day' and 'day' are the same"),
    ],
)
def test_parameters_are_a_mapping_or_a_sequence(
    db: dodona.Client, given: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        db.query("select $day", given)


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("$day", None, r"^No value was given for the parameter \$day\. Pass a value for each"),
        (
            "$a + $b",
            {"c": 1},
            r"the parameters \$a, \$b\. The query does not have the parameter 'c'",
        ),
        ("$day", {"dya": 1}, r"Did you mean 'day' instead of 'dya'\?$"),
        ("$day", {"$day": 1}, r"Did you mean 'day' instead of '\$day'\?$"),
        ("$day", {"day": 1, "days": 2}, "Did you mean 'day' instead of 'days'"),
        ("$day", [1], r"\$day\. .* not have the parameter \$1\. .* as a mapping\.$"),
        ("?", {"day": 1}, r"for the parameter \$1\. .* the parameter 'day'\. .* as a list\.$"),
        ("?", [1, 2], r"^The query does not have the parameter \$2\.$"),
        ("?, ?", [1], r"^No value was given for the parameter \$2\."),
        ("$1 + $3", [1, 2, 3], r"does not have the parameter \$2"),
        ("1", [1], r"does not have the parameter \$1"),
        ("1", {"day": 1}, "does not have the parameter 'day'"),
        ("$day + ?", {"day": 1}, r"Name all parameters as \$name, or none of them\.$"),
        ("$day + $1", [1], "Name all parameters"),
        ('$"a day"', {"a day": 1}, "The parameter 'a day' has quotes"),
        ("$ day", {"day": 1}, r"The parameter 'day' has a blank after its \$.* Write '\$day'"),
        ("$/**/day", {"day": 1}, r"The parameter 'day' has a blank after its \$"),
        ("$day, $\nday", {"day": 1}, r"The parameter 'day' has a blank after its \$"),
        ("$ 1", [1], r"Write '\$1', and a blank after it\.$"),
        ("$1x", [1], r"letters after its number\. Write '\$1', and a blank after it\.$"),
    ],
)
def test_parameters_are_those_of_the_query(
    db: dodona.Client, text: str, given: Any, message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        db.query(f"select {text}", given)
    assert re.search(message, caught.value.message)


def test_an_error_lists_the_names_for_programs_and_no_more_than_it_shows(
    db: dodona.Client,
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        db.query("select $a, $b", {"b": 1, "c": 2})
    assert caught.value.attributes == {"missing": ["a"], "unknown": ["c"]}
    with pytest.raises(InvalidRequest) as caught:
        db.query("select 1", {f"{number:02}{'x' * 98}": 1 for number in range(100)})
    assert len(caught.value.message) < 2_000


@pytest.mark.parametrize(
    ("where", "parameters", "name"),
    [
        ("day = $day", {"day": "abc"}, "day"),
        ("note = 'é'\nand day = $Day", {"day": "abc"}, "day"),
        ("note != ? and day = ?", ["x", "abc"], "2"),
        (f"note != '{'x' * 500}' and day = $day", {"day": "abc"}, "day"),
        ("name = $name", {"name": "é"}, "name"),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_named(
    db: dodona.Client, where: str, parameters: Any, name: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"onver") as caught:
        db.query(f"select day from [//t]\nwhere {where}", parameters)
    value = [*(parameters.values() if isinstance(parameters, dict) else parameters)][-1]
    assert caught.value.message.lower().endswith(f"the parameter {name} is the str {value!r}.")
    assert str(caught.value.attributes["parameter"]).lower() == name


def test_an_error_elsewhere_names_no_parameter(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest) as caught:
        db.query("select day, nothing from [//t] where day = $day", {"day": 1})
    *_, line, marker = caught.value.message.splitlines()
    assert line[marker.index("^") :].startswith("nothing")
    assert line.startswith("LINE 1: ")
    assert "parameter" not in caught.value.attributes


def test_a_list_of_text_for_a_string_column_is_refused_with_the_place(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest, match="BLOB and VARCHAR") as caught:
        days(db, "name = any($names)", {"names": ["ann"]})
    assert "LINE 1: select day from" in caught.value.message


def test_a_filter_has_no_parameters() -> None:
    with pytest.raises(InvalidRequest, match="A filter has no parameters"):
        condition.plan(SCHEMA, "day = $day")


# ---- limits


def test_the_number_of_parameters_is_bounded(db: dodona.Client) -> None:
    most = LIMITS.parameters_max
    text = f"select list_sum([{', '.join('?' * most)}]) as found"
    assert db.query(text, [1] * most).to_pydict() == {"found": [most]}
    with pytest.raises(LimitExceeded, match="at most 1000 parameters, not 1001"):
        db.query(f"{text}, ?", [1] * (most + 1))


def test_the_length_of_a_name_is_bounded(db: dodona.Client) -> None:
    name = "x" * 100
    assert db.query(f"select ${name} as found", {name: 1}).to_pydict() == {"found": [1]}
    with pytest.raises(LimitExceeded, match="at most 100 characters: 'xxx"):
        db.query(f"select ${name}x", {f"{name}x": 1})


@pytest.mark.parametrize(
    "make",
    [
        lambda size: {"a": b"x" * (size - 8), "b": 1},
        lambda size: {"a": "x" * size},
        lambda size: {"a": "é" * (size // 2), "b": "" if size % 2 == 0 else "x"},
        lambda size: {"a": [1] * (size // 8), "b": "x" * (size % 8)},
        lambda size: {"a": ["x" * (size - 4), "xxxx"]},
    ],
)
def test_the_bytes_of_all_values_are_bounded(make: Any) -> None:
    most = LIMITS.parameter_bytes_max
    assert checked_parameters(make(most), LIMITS) == make(most)
    with pytest.raises(LimitExceeded, match="at most 1048576 bytes together") as caught:
        checked_parameters(make(most + 1), LIMITS)
    assert caught.value.attributes["parameter_bytes_max"] == most
