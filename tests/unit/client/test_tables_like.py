"""Tables that are made like data: their columns, their keys, and tables that exist already."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy
import pandas
import pyarrow as pa
import pytest

import dodona
from dodona._core.writing.column_types import advice_for, column_type_of, type_of_values
from dodona.errors import DodonaError, InvalidRequest, NodeExists, SchemaViolation, TableExists
from dodona.schema import Column

FRAME = pandas.DataFrame(
    {
        "t": ["x", None],
        "k": [1, 2],
        "d": [0.5, numpy.nan],
        "n": pandas.array([1, None], "Int64"),
        "u": numpy.array([1, 2], "u1"),
        "f": [True, False],
        "c": pandas.Categorical(["x", "y"]),
        "s": [b"x", None],
        "a": [{"b": 1}, [1]],
    }
)
TYPES = {
    "t": "utf8",
    "d": "double",
    "n": "int64",
    "u": "uint8",
    "f": "boolean",
    "c": "utf8",
    "s": "string",
    "a": "any",
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        client.create_table("//t", like=FRAME, keys=["k"])
        yield client


def columns_like(db: dodona.Client, like: Any, keys: list[str]) -> tuple[Column, ...]:
    db.create_table("//like", like=like, keys=keys)
    found = db.get_table("//like").schema.columns
    db.remove_table("//like")
    return found


def test_a_table_like_a_frame_has_its_columns_behind_the_keys(db: dodona.Client) -> None:
    columns = db.get_table("//t").schema.columns
    assert columns[0] == Column("k", "int64", "ascending")
    assert {it.name: it.type for it in columns[1:]} == TYPES
    assert [it.name for it in columns[1:]] == [it for it in FRAME.columns if it != "k"]
    keys = columns_like(db, FRAME.drop(columns="a"), ["c", "k"])[:2]
    assert keys == (Column("c", "utf8", "ascending"), Column("k", "int64", "ascending"))


@pytest.mark.parametrize(
    "like",
    [
        {"k": [1], "t": ["x"]},
        {"k": numpy.array([1]), "t": pandas.Series(["x"], dtype="string")},
        {"k": pa.array([1]), "t": pa.array([], pa.string_view())},
        [{"k": 1}, {"t": "x", "k": 2}],
        pandas.DataFrame({"t": ["x"]}, index=pandas.Index([1], name="k")),
        pa.table({"t": ["x"], "k": [1]}),
        pa.record_batch({"t": ["x"], "k": [1]}),
        pa.schema({"t": pa.large_string(), "k": pa.int64()}),
        [pa.table({"t": ["x"], "k": [1]})],
    ],
)
def test_every_kind_of_data_gives_the_same_columns(db: dodona.Client, like: Any) -> None:
    expected = (Column("k", "int64", "ascending"), Column("t", "utf8"))
    assert columns_like(db, like, ["k"]) == expected


def test_frames_of_polars_give_columns(db: dodona.Client) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {"k": [1], "t": ["x"], "c": polars.Series(["x"], dtype=polars.Categorical), "s": [b"x"]}
    )
    found = {it.name: it.type for it in columns_like(db, frame, ["k"])}
    assert found == {"k": "int64", "t": "utf8", "c": "utf8", "s": "string"}


def test_fields_that_are_never_null_are_required(db: dodona.Client) -> None:
    fields = [pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)]
    assert columns_like(db, pa.schema(fields), ["k"]) == (
        Column("k", "int64", "ascending", required=True),
        Column("v", "int64", required=True),
    )


NESTED = pa.dictionary(pa.int8(), pa.run_end_encoded(pa.int32(), pa.string_view()))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int16(), "int16"),
        (pa.uint64(), "uint64"),
        (pa.float16(), "float"),
        (pa.bool_(), "boolean"),
        (pa.bool8(), "boolean"),
        (pa.binary_view(), "string"),
        (pa.binary(16), "string"),
        (pa.uuid(), "uuid"),
        (pa.json_(), "any"),
        (NESTED, "utf8"),
        (pa.timestamp("us"), None),
        (pa.timestamp("s", "UTC"), "datetime64"),
        (pa.timestamp("ns", "Europe/Oslo"), "timestamp64"),
        (pa.date32(), "date32"),
        (pa.date64(), "date32"),
        (pa.time64("us"), None),
        (pa.duration("s"), "interval64"),
        (pa.month_day_nano_interval(), None),
        (pa.decimal128(5), "decimal(5,0)"),
        (pa.decimal256(76, 76), "decimal(76,76)"),
        (pa.decimal128(5, -2), None),
        (pa.list_(pa.int64()), "list<optional<int64>>"),
        (pa.list_(pa.field("x", pa.int64(), nullable=False)), "list<int64>"),
        (pa.large_list(pa.large_string()), "list<optional<utf8>>"),
        (pa.list_(pa.int8(), 3), "list<optional<int8>>"),
        (pa.list_view(pa.int8()), "list<optional<int8>>"),
        (pa.struct({"a b": pa.uuid()}), 'struct<"a b":optional<uuid>>'),
        (
            pa.map_(pa.string(), pa.list_(pa.date32())),
            "dict<utf8,optional<list<optional<date32>>>>",
        ),
        (pa.map_(pa.date32(), pa.int8()), None),
        (pa.list_(pa.null()), None),
        (pa.list_(pa.timestamp("us")), None),
        (pa.struct({}), None),
        (pa.struct([("a", pa.int8()), ("a", pa.int8())]), None),
        (pa.null(), None),
    ],
)
def test_each_type_of_arrow_has_a_column_type_or_an_advice(kind: Any, expected: Any) -> None:
    assert column_type_of(kind) == expected
    if expected is None:
        assert advice_for(kind)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None], "int64"),
        ([1, 2**64 - 1], "uint64"),
        ([1, 0.5], "double"),
        ([numpy.float64(0.5)], "double"),
        ([True], "boolean"),
        ([b""], "string"),
        ([""], "utf8"),
        ([{}, [1], ()], "any"),
        ([[1, 2], (None,)], "list<optional<int64>>"),
        ([numpy.array([0.5])], "list<optional<double>>"),
        ([[], None], "list<optional<any>>"),
        ([[1, "x"]], "list<optional<any>>"),
        (
            [[{"a": 1, "b": [2.5]}, {"b": [], "a": None}]],
            "list<optional<struct<a:optional<int64>,b:optional<list<optional<double>>>>>>",
        ),
        ([{"a": None}], "struct<a:optional<any>>"),
        ([{"a": 1}, {"b": 1}], "any"),
        ([{}], "any"),
        ([date(2020, 1, 1)], "date32"),
        ([datetime(2020, 1, 1, tzinfo=UTC), pandas.Timestamp(0, tz="UTC")], "timestamp64"),
        ([timedelta(1)], "interval64"),
        ([UUID(int=1)], "uuid"),
        ([Decimal("1.50"), 7], "decimal(38,2)"),
        ([Decimal("1e40")], "decimal(41,0)"),
    ],
)
def test_python_values_have_a_column_type(values: list[Any], expected: str) -> None:
    assert type_of_values(values, "c") == expected


MOMENT = datetime(2020, 1, 1, tzinfo=UTC)
NO_TYPE: list[list[Any]] = [
    *([], [None], [1, "x"], [True, 1], [b"x", "x"], [object()]),
    *(
        [MOMENT.replace(tzinfo=None)],
        [MOMENT, MOMENT.replace(tzinfo=None)],
        [datetime(2020, 1, 1, tzinfo=UTC), date(2020, 1, 1)],
    ),
    *([[date(2020, 1, 1), 1]], [{"a": MOMENT}, {"b": MOMENT}], [{1: 2}]),
    *([Decimal("NaN")], [Decimal("1e-77")], [Decimal(1), 0.5], [UUID(int=1), "x"]),
]


@pytest.mark.parametrize("values", NO_TYPE)
def test_python_values_without_a_column_type_are_refused(values: list[Any]) -> None:
    with pytest.raises(SchemaViolation, match="column 'c'") as caught:
        type_of_values(values, "c")
    assert caught.value.attributes == {"column": "c"}


MISTAKES: list[tuple[dict[str, Any], type[DodonaError], str]] = [
    ({}, SchemaViolation, "pass schema, or like and keys"),
    ({"keys": ["k"]}, InvalidRequest, "pass like, too"),
    ({"like": FRAME}, InvalidRequest, r"such as keys=\['id'\]"),
    ({"like": FRAME, "keys": []}, InvalidRequest, r"such as keys=\['id'\]"),
    ({"like": FRAME, "keys": "k"}, InvalidRequest, r"such as keys=\['id'\]"),
    ({"like": FRAME, "keys": ["q"]}, SchemaViolation, "key column 'q' is not in the data"),
    ({"like": FRAME, "keys": ["k", "k"]}, SchemaViolation, "named twice"),
    ({"like": FRAME, "keys": ["a"]}, SchemaViolation, "key column can't be of type any"),
    ({"like": FRAME[["k"]], "keys": ["k"]}, SchemaViolation, "not a key column"),
    ({"like": FRAME.assign(x=None), "keys": ["k"]}, SchemaViolation, "'x' has only nulls"),
    (
        {"like": FRAME.assign(x=pandas.Timestamp(0)), "keys": ["k"]},
        SchemaViolation,
        r"timestamp\[.*column 'x' has. It has no time zone",
    ),
    ({"like": FRAME, "keys": ["k"], "schema": []}, InvalidRequest, "not both"),
    ({"like": 7, "keys": ["k"]}, InvalidRequest, "not int"),
    ({"like": {"k": 7}, "keys": ["k"]}, SchemaViolation, "are a list or an array, not 7"),
    ({"like": {"k": numpy.array([1j])}, "keys": ["k"]}, SchemaViolation, "can't be read as Arrow"),
    ({"like": FRAME.assign(x=1j), "keys": ["k"]}, SchemaViolation, "has the dtype complex128"),
    (
        {"like": pa.table([[1], [1]], names=["k", "k"]), "keys": ["k"]},
        SchemaViolation,
        "two columns have the same name",
    ),
    ({"like": FRAME, "keys": ["k"], "if_not_exists": 1}, InvalidRequest, "is a bool"),
]


@pytest.mark.parametrize(("arguments", "error", "words"), MISTAKES)
def test_a_table_like_data_with_a_mistake_is_not_made(
    db: dodona.Client, arguments: dict[str, Any], error: type[DodonaError], words: str
) -> None:
    with pytest.raises(error, match=words):
        db.create_table("//new", **arguments)
    assert not db.exists("//new")


# ---- a table that exists already


def test_a_table_that_is_there_may_be_the_same(db: dodona.Client) -> None:
    with pytest.raises(TableExists):
        db.create_table("//t", like=FRAME, keys=["k"])
    db.create_table("//t", like=FRAME, keys=["k"], if_not_exists=True, mount=True)
    assert db.get_table("//t").is_mounted
    db.create_table("//t", db.get_table("//t").schema, if_not_exists=True)
    with db.begin_master() as tx:
        tx.create_table("//t", like=FRAME, keys=["k"], if_not_exists=True)
        tx.create_table("//other", like=FRAME, keys=["k"], if_not_exists=True)
    assert db.exists("//other")


@pytest.mark.parametrize(
    ("schema", "atomicity", "differences"),
    [
        (
            "k:key v:utf8 w:int64",
            "full",
            ["it has v:int64:sum, not v:utf8", "it has no column 'w'", "it also has a column 'x'"],
        ),
        ("k:key v:sum x", "none", ["its atomicity is full, not none"]),
        ("k:key x v:sum", "full", ["its columns are in the order ['k', 'v', 'x'], not"]),
        ("k v:sum x:key", "full", ["it has x:int64, not x:int64:key", "it has k:int64:key, not k"]),
    ],
)
def test_a_table_that_differs_is_an_error_that_says_how(
    db: dodona.Client, schema: str, atomicity: Any, differences: list[str]
) -> None:
    db.create_table("//there", columns_of("k:key v:sum x"), if_not_exists=True)
    wanted = sorted(columns_of(schema), key=lambda it: "sort_order" not in it)
    with pytest.raises(TableExists, match="already, and it differs") as caught:
        db.create_table("//there", wanted, atomicity=atomicity, if_not_exists=True)
    found = caught.value.attributes["differences"]
    assert len(found) == len(differences)
    assert [it[: len(said)] for it, said in zip(found, differences, strict=True)] == differences


def columns_of(text: str) -> list[dict[str, Any]]:
    columns = []
    for word in text.split():
        name, *rest = word.split(":")
        column: dict[str, Any] = {"name": name, "type": "int64"}
        for it in rest:
            column |= {
                "key": {"sort_order": "ascending"},
                "sum": {"aggregate": "sum"},
                "utf8": {"type": "utf8"},
                "int64": {},
            }[it]
        columns.append(column)
    return columns


def test_a_key_in_another_order_is_a_difference(db: dodona.Client) -> None:
    frame = pandas.DataFrame({"a": [1], "b": [1], "c": [1]})
    db.create_table("//ordered", like=frame, keys=["a", "b"])
    with pytest.raises(TableExists, match=r"its key is \['a', 'b'\], not \['b', 'a'\]"):
        db.create_table("//ordered", like=frame, keys=["b", "a"], if_not_exists=True)


def test_a_directory_is_no_table(db: dodona.Client) -> None:
    db.create_directory("//directory")
    with pytest.raises(NodeExists, match="directory"):
        db.create_table("//directory", like=FRAME, keys=["k"], if_not_exists=True)
