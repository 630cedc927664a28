"""`write`: data of each kind becomes rows, and data with a mistake becomes none."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pandas
import pyarrow as pa
import pytest

import dodona
import dodona.aio
from dodona.errors import (
    DodonaError,
    DuplicateKey,
    InvalidRequest,
    SchemaViolation,
)

T = "//t/rows"
LOOSE = "//t/loose"
STRICT = "//t/strict"
SCHEMA: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "u", "type": "uint64"},
    {"name": "d", "type": "double"},
    {"name": "f", "type": "boolean"},
    {"name": "s", "type": "string"},
    {"name": "t", "type": "utf8"},
    {"name": "a", "type": "any"},
]
REQUIRED: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending", "required": True},
    {"name": "t", "type": "utf8", "required": True},
    {"name": "d", "type": "double"},
]
DEEP = 2**53 + 1
Data = Callable[[], Any]


@pytest.fixture(scope="module")
def shared_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as db:
        db.create_table(T, SCHEMA, mount=True)
        db.create_table(STRICT, REQUIRED, mount=True)
        db.create_table(LOOSE, SCHEMA, atomicity="none", mount=True)
        yield db


@pytest.fixture
def db(shared_db: dodona.Client) -> dodona.Client:
    """With empty tables."""
    for path in (T, STRICT, LOOSE):
        if keys := [{"k": row["k"]} for row in shared_db.select(path, columns=["k"])]:
            shared_db.write(path, keys, "delete")
    return shared_db


def rows_of(db: dodona.Client, path: str = T) -> list[dict[str, Any]]:
    """All rows, without columns that are null."""
    return [
        {name: value for name, value in row.items() if value is not None} for row in db.select(path)
    ]


def polars_frame(**columns: Any) -> Any:
    return pytest.importorskip("polars").DataFrame(columns)


def objects_of_polars() -> Any:
    """Whose Arrow data are addresses."""
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"k": [1], "s": polars.Series([Foreign(None)], dtype=polars.Object)})


def named_index(*values: Any, name: str = "k") -> Any:
    return pandas.Index(values, name=name)


KINDS: dict[str, tuple[Data, list[dict[str, Any]]]] = {
    "a list of dicts": (
        lambda: [{"k": 2, "a": [1]}, {"k": 1, "t": "x"}],
        [{"k": 1, "t": "x"}, {"k": 2, "a": [1]}],
    ),
    "a dict of lists": (
        lambda: {"k": range(2), "t": ("x", None), "d": [1, 2.5]},
        [{"k": 0, "t": "x", "d": 1.0}, {"k": 1, "d": 2.5}],
    ),
    "a dict of arrays": (
        lambda: {
            "k": numpy.array([1, DEEP]),
            "u": pa.array([2**64 - 1, None], pa.uint64()),
            "d": pandas.Series([1.5, numpy.nan]),
            "t": numpy.array(["x", None], object),
        },
        [{"k": 1, "u": 2**64 - 1, "d": 1.5, "t": "x"}, {"k": DEEP}],
    ),
    "a dict of series of polars": (
        lambda: {name: polars_frame(k=[1], t=["x"])[name] for name in ("k", "t")},
        [{"k": 1, "t": "x"}],
    ),
    "pandas": (
        lambda: pandas.DataFrame(
            {
                "t": ["x", numpy.nan],
                "k": [1, DEEP],
                "u": pandas.array([1, None], "UInt64"),
                "f": [True, None],
                "s": [b"\xff", None],
                "a": [{"b": [1]}, pandas.NA],
                "d": [1.5, numpy.nan],
            }
        ),
        [
            {"k": 1, "t": "x", "u": 1, "f": True, "s": b"\xff", "a": {"b": [1]}, "d": 1.5},
            {"k": DEEP},
        ],
    ),
    "pandas with scalars of numpy": (
        lambda: pandas.DataFrame(
            {
                "k": pandas.Series([numpy.int64(DEEP), 2], dtype=object),
                "f": pandas.Series([numpy.bool_(True), None], dtype=object),
                "d": pandas.Series([numpy.float32(0.5), numpy.int8(1)], dtype=object),
            }
        ),
        [{"k": 2, "d": 1.0}, {"k": DEEP, "f": True, "d": 0.5}],
    ),
    "pandas with whole floats": (
        lambda: pandas.DataFrame({"k": [1, -(2.0**53) + 1], "u": [2.0**53 - 1, numpy.nan]}),
        [{"k": 1 - 2**53}, {"k": 1, "u": 2**53 - 1}],
    ),
    "pandas of Arrow": (
        lambda: pandas.DataFrame({"k": [1], "t": ["x"]}).convert_dtypes(dtype_backend="pyarrow"),
        [{"k": 1, "t": "x"}],
    ),
    "pandas with categories": (
        lambda: pandas.DataFrame({"k": [1, 2], "t": pandas.Categorical(["x", None])}),
        [{"k": 1, "t": "x"}, {"k": 2}],
    ),
    "pandas with a named index": (
        lambda: pandas.DataFrame({"t": ["x", "y"]}, index=named_index(5, 4)),
        [{"k": 4, "t": "y"}, {"k": 5, "t": "x"}],
    ),
    "pandas with an index without a name": (
        lambda: pandas.DataFrame({"k": [1], "t": ["x"]}, index=[7]),
        [{"k": 1, "t": "x"}],
    ),
    "pandas with more levels": (
        lambda: pandas.DataFrame(
            {"d": [0.5]}, index=pandas.MultiIndex.from_tuples([(1, "x")], names=["k", "t"])
        ),
        [{"k": 1, "t": "x", "d": 0.5}],
    ),
    "a part of a frame": (
        lambda: pandas.DataFrame({"k": [1, 2, 3], "t": list("xyz")})[1:],
        [{"k": 2, "t": "y"}, {"k": 3, "t": "z"}],
    ),
    "polars": (
        lambda: polars_frame(k=[DEEP, 1], t=["x", None], d=[float("inf"), None]),
        [{"k": 1}, {"k": DEEP, "t": "x", "d": float("inf")}],
    ),
    "Arrow in chunks": (
        lambda: pa.table(
            {"k": pa.chunked_array([[1], [3, 2]]), "t": pa.chunked_array([["x", "y"], ["z"]])}
        ),
        [{"k": 1, "t": "x"}, {"k": 2, "t": "z"}, {"k": 3, "t": "y"}],
    ),
    "Arrow's other types of text": (
        lambda: pa.table(
            {
                "k": pa.array([1], pa.int8()),
                "t": pa.array(["x"]).dictionary_encode(),
                "s": pa.array(["y"], pa.large_string()),
                "u": pa.array([7], pa.uint8()),
            }
        ),
        [{"k": 1, "t": "x", "s": b"y", "u": 7}],
    ),
    "a record batch": (
        lambda: pa.record_batch({"k": [1], "t": ["x"]}),
        [{"k": 1, "t": "x"}],
    ),
    "a list of tables": (
        lambda: [pa.table({"k": [1], "t": ["x"]}), pa.table({"k": [2], "d": [0.5]})],
        [{"k": 1, "t": "x"}, {"k": 2, "d": 0.5}],
    ),
    "a reader": (
        lambda: pa.table({"k": [1], "t": ["x"]}).to_reader(),
        [{"k": 1, "t": "x"}],
    ),
    "a generator": (
        lambda: (pa.table({"k": [it], "t": ["x"]}) for it in (2, 1)),
        [{"k": 1, "t": "x"}, {"k": 2, "t": "x"}],
    ),
    "a stream of another library": (
        lambda: Foreign(pa.table({"k": [1], "t": ["x"]})),
        [{"k": 1, "t": "x"}],
    ),
    "no rows": (lambda: pandas.DataFrame({"k": [], "t": []}).astype({"t": "string"}), []),
    "an empty list": (list, []),
}


class Foreign:
    """What only the C interface knows."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    ("kind", "path"),
    [*((it, T) for it in KINDS), *((it, LOOSE) for it in ("pandas", "a reader", "no rows"))],
)
def test_data_of_each_kind_is_written(db: dodona.Client, kind: str, path: str) -> None:
    make, expected = KINDS[kind]
    published = db.write(path, make())
    assert rows_of(db, path) == expected
    assert published.row_count == len(expected)
    assert published.timestamp > 0


def test_what_a_read_returned_can_be_written(db: dodona.Client) -> None:
    db.write(T, KINDS["pandas"][0]())
    rows = db.select(T)
    for data in (rows, rows.to_arrow(), rows.to_pandas(), rows.to_pandas().set_index("k")):
        db.write(T, data, "replace")
        assert db.select(T) == rows


MISTAKES: dict[str, tuple[Data, type[DodonaError], str, dict[str, Any]]] = {
    "another column": (
        lambda: pandas.DataFrame({"k": [1], "x": [1]}),
        SchemaViolation,
        "no such column",
        {"columns": ["x"]},
    ),
    "an index that is no column": (
        lambda: pandas.DataFrame({"t": ["x"]}, index=named_index(1, name="x")),
        SchemaViolation,
        r"reset_index\(drop=True\)",
        {"columns": ["x"]},
    ),
    "no key": (lambda: {"t": ["x"]}, SchemaViolation, "missing key column 'k'", {"column": "k"}),
    "no key in a row": (
        lambda: [{"k": 1, "t": "x"}, {"t": "x"}],
        SchemaViolation,
        "missing key column",
        {"column": "k", "row_index": 1},
    ),
    "a name twice": (
        lambda: pandas.DataFrame([[1, 2]], columns=["k", "k"]),
        SchemaViolation,
        "the same name",
        {"columns": ["k", "k"]},
    ),
    "an index and a column": (
        lambda: pandas.DataFrame({"k": [1]}, index=named_index(1)),
        SchemaViolation,
        "the same name",
        {"columns": ["k", "k"]},
    ),
    "a name that is no text": (
        lambda: pandas.DataFrame({"k": [1], 7: [1]}),
        SchemaViolation,
        "names of columns are text",
        {"columns": ["'k'", "7"]},
    ),
    "a type": (
        lambda: pa.table({"k": [1, 2], "u": ["1", "2"]}),
        SchemaViolation,
        "takes Arrow's uint64, not string",
        {"column": "u"},
    ),
    "a value": (
        lambda: pandas.DataFrame({"k": [1, 2, 3], "t": ["x", None, 7]}),
        SchemaViolation,
        "takes a str, not int",
        {"column": "t", "row_index": 2},
    ),
    "out of range in Arrow": (
        lambda: pa.table({"k": range(100), "u": [1] * 77 + [-1] * 23}),
        SchemaViolation,
        "does not fit in uint64",
        {"column": "u", "row_index": 77},
    ),
    "out of range behind other parts": (
        lambda: [pa.table({"k": [1, 2], "u": [1, 2]}), pa.table({"k": [3, 4], "u": [3, -4]})],
        SchemaViolation,
        "does not fit in uint64",
        {"column": "u", "row_index": 3},
    ),
    "out of range in pandas": (
        lambda: pandas.DataFrame({"k": numpy.array([1, 2**63], "u8"), "t": "x"}),
        SchemaViolation,
        "does not fit in int64",
        {"column": "k", "row_index": 1},
    ),
    "a part of a number": (
        lambda: pandas.DataFrame({"k": [1, 2], "u": [numpy.nan, 0.5]}),
        SchemaViolation,
        "0.5 is no whole number",
        {"column": "u", "row_index": 1},
    ),
    "a number that was rounded": (
        lambda: pandas.DataFrame({"k": [1, 2], "u": [numpy.nan, 2.0**53]}),
        SchemaViolation,
        "may have been rounded",
        {"column": "u", "row_index": 1},
    ),
    "a float below 0": (
        lambda: pandas.DataFrame({"k": [1, 2], "u": [numpy.nan, -1.0]}),
        SchemaViolation,
        "is below 0",
        {"column": "u", "row_index": 1},
    ),
    "a float in Arrow": (
        lambda: pa.table({"k": [1.0], "t": ["x"]}),
        SchemaViolation,
        "takes Arrow's int64, not double",
        {"column": "k"},
    ),
    "a time": (
        lambda: pandas.DataFrame({"k": [1], "u": pandas.to_datetime(["2026-01-01"])}),
        SchemaViolation,
        r"not timestamp\[.*It has no time zone",
        {"column": "u"},
    ),
    "a sparse column": (
        lambda: pandas.DataFrame({"k": [1], "u": pandas.arrays.SparseArray(numpy.array([1]))}),
        SchemaViolation,
        "has the dtype Sparse",
        {"column": "u"},
    ),
    "a key twice": (
        lambda: {"k": [7, 5, 6, 5, 7], "t": list("vwxyz")},
        DuplicateKey,
        "rows 1 and 3 of the data have the same key",
        {"key": {"k": 5}, "row_index": 3, "first_row_index": 1},
    ),
    "a key twice in two parts": (
        lambda: [pa.table({"k": [1, 2], "u": [1, 2]}), pa.table({"k": [2, 3], "u": [3, 4]})],
        DuplicateKey,
        "rows 1 and 2 of the data have the same key",
        {"key": {"k": 2}},
    ),
    "lengths": (
        lambda: {"k": [1, 2], "t": ["x"]},
        SchemaViolation,
        "not equally long",
        {"row_counts": {"k": 2, "t": 1}},
    ),
    "series with other indexes": (
        lambda: {"k": pandas.Series([1, 2], [5, 6]), "t": pandas.Series(["x", "y"], [6, 5])},
        SchemaViolation,
        "another index than that of column 'k'. Pass a DataFrame, which aligns both",
        {"column": "t", "columns": ["k", "t"]},
    ),
    "one value for a column": (
        lambda: {"k": [1], "t": "x"},
        SchemaViolation,
        "are a list or an array, not 'x'",
        {"column": "t"},
    ),
    "an iterator for a column": (
        lambda: {"k": [1], "t": iter("x")},
        SchemaViolation,
        "are a list or an array, not",
        {"column": "t"},
    ),
    "a row that is none": (
        lambda: [{"k": 1, "t": "x"}, (2, "y")],
        SchemaViolation,
        "a row is a dict, not tuple",
        {"row_index": 1},
    ),
    "a frame that is lazy": (
        lambda: polars_frame(k=[1], t=["x"]).lazy(),
        InvalidRequest,
        r"not LazyFrame. Collect the frame first",
        {},
    ),
    "a series": (lambda: polars_frame(k=[1])["k"], InvalidRequest, "not Series", {}),
    "an array of numpy": (lambda: numpy.array([[1, 2]]), InvalidRequest, "not ndarray", {}),
    "a series of pandas": (lambda: pandas.Series([1]), InvalidRequest, "not Series", {}),
    "objects of polars": (
        objects_of_polars,
        SchemaViolation,
        "has Python objects",
        {"column": "s"},
    ),
    "integers of polars that Arrow does not have": (
        lambda: polars_frame(k=[1]).with_columns(s=pytest.importorskip("polars").lit(2**70)),
        SchemaViolation,
        "can't be read as Arrow data",
        {"column": "s"},
    ),
    "a series of objects": (
        lambda: {"k": [1], "s": objects_of_polars()["s"]},
        SchemaViolation,
        "has Python objects",
        {"column": "s"},
    ),
    "an array with two dimensions": (
        lambda: {"k": numpy.array([[1]]), "t": ["x"]},
        SchemaViolation,
        "can't be read as Arrow data",
        {"column": "k"},
    ),
    "a number": (lambda: 7, InvalidRequest, "not int", {}),
    "text": (lambda: "text", InvalidRequest, "not str", {}),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_data_with_a_mistake_is_refused_and_nothing_is_written(
    db: dodona.Client, kind: str
) -> None:
    make, error, words, attributes = MISTAKES[kind]
    for path in (T, LOOSE):
        with pytest.raises(error, match=words) as caught:
            db.write(path, make())
        found = caught.value.attributes
        assert found["table"] == path
        assert {name: found.get(name) for name in attributes} == attributes
        assert rows_of(db, path) == []


@pytest.mark.parametrize(
    ("data", "column"),
    [
        (lambda: {"k": [1, None], "t": ["x", "y"]}, "k"),
        (lambda: pa.table({"k": [1, None], "t": ["x", "y"]}), "k"),
        (lambda: pa.table({"k": [1, 2], "t": ["x", None]}), "t"),
        (lambda: pandas.DataFrame({"k": [1, 2], "t": ["x", numpy.nan]}), "t"),
        (lambda: pandas.DataFrame({"k": [1.0, numpy.nan], "t": ["x", "y"]}), "k"),
    ],
)
def test_a_null_in_a_required_column_is_refused(db: dodona.Client, data: Data, column: str) -> None:
    with pytest.raises(SchemaViolation, match="required column is null") as caught:
        db.write(STRICT, data())
    assert caught.value.attributes["column"] == column
    assert caught.value.attributes["row_index"] == 1
    with pytest.raises(SchemaViolation, match="required column is missing"):
        db.write(STRICT, pa.table({"k": [1], "d": [0.5]}))
    assert rows_of(db, STRICT) == []
