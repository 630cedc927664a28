"""Data that a write refuses, or keeps as it is: values that would change, and values that are none.

Nothing of such data is written, also in a table without atomicity.
"""

from collections.abc import Iterator
from typing import Any

import numpy
import pandas
import pyarrow as pa
import pytest

import dodona
from dodona._core.writing.column_types import type_of_values
from dodona.errors import SchemaViolation

KEY: dict[str, Any] = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUES: list[dict[str, Any]] = [
    {"name": "v", "type": "int64"},
    {"name": "s", "type": "utf8"},
    {"name": "a", "type": "any"},
]
PATHS = ["//full", "//none"]
MIB = "x" * (1 << 20)


@pytest.fixture
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        client.create_table("//full", [KEY, *VALUES], mount=True)
        client.create_table("//none", [KEY, *VALUES], mount=True, atomicity="none")
        yield client


def refusal(db: dodona.Client, path: str, data: Any, mode: Any = "upsert") -> SchemaViolation:
    with pytest.raises(SchemaViolation) as caught:
        db.write(path, data, mode)
    assert len(db.select(path)) == 0
    return caught.value


@pytest.mark.parametrize(("dtype", "most"), [("float16", 2**11), ("float32", 2**24)])
@pytest.mark.parametrize("name", ["k", "v"])
def test_a_short_float_that_may_have_been_rounded_is_no_integer(
    db: dodona.Client, dtype: str, most: int, name: str
) -> None:
    good = pandas.DataFrame({"k": [0, 1], "v": [0, 1]})
    good[name] = pandas.Series([1, most - 1], dtype=dtype)
    db.write("//full", good)
    assert [row[name] for row in db.select("//full")] == [1, most - 1]
    db.write("//full", [{"k": row["k"]} for row in db.select("//full")], "delete")
    bad = good.assign(**{name: pandas.Series([1, most], dtype=dtype)})
    error = refusal(db, "//full", bad)
    assert (error.attributes["column"], error.attributes["row_index"]) == (name, 1)
    assert "may have been rounded" in error.message


@pytest.mark.parametrize("values", [{3, 4}, frozenset({3, 4}), {3: 1, 4: 1}.keys()])
def test_a_set_is_no_column(db: dodona.Client, values: Any) -> None:
    """It has no order, so its values would get to other rows."""
    error = refusal(db, "//full", {"k": [1, 2], "v": values})
    assert "are a list or an array" in error.message
    with pytest.raises(SchemaViolation, match="are a list or an array"):
        db.create_table("//like", like={"k": [1, 2], "v": values}, keys=["k"])


def test_series_with_equal_indexes_are_columns_and_need_no_plain_index(db: dodona.Client) -> None:
    """Values without an index, and the index itself, go by place."""
    labels = ["b", "a", "a"]
    series = {name: pandas.Series([3, 1, 2], labels) for name in ("k", "v")}
    db.write("//full", {**series, "s": series["k"].index, "a": [7, 8, 9]})
    assert [(it["k"], it["s"], it["a"]) for it in db.select("//full")] == [
        (1, "a", 8),
        (2, "a", 9),
        (3, "b", 7),
    ]
    ends = {
        "k": pandas.Series([1, 2]),
        "v": pandas.Series([3, 4], pandas.Index([0, 1], dtype="Int64")),
    }
    db.write("//full", ends, "replace")
    assert [row["v"] for row in db.select("//full")] == [3, 4]


@pytest.mark.parametrize("path", PATHS)
def test_bytes_that_are_no_messagepack_are_found_before_the_first_request(
    db: dodona.Client, path: str
) -> None:
    data = pa.table({"k": range(40), "s": [MIB] * 40, "a": [b"\x01"] * 39 + [b"\xc1"]})
    error = refusal(db, path, data)
    assert (error.attributes["column"], error.attributes["row_index"]) == ("a", 39)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("count", [3, 20_000])
@pytest.mark.parametrize("kind", [pa.utf8(), pa.large_utf8()])
def test_bytes_that_are_no_text_are_found_before_the_first_request(
    db: dodona.Client, path: str, count: int, kind: pa.DataType
) -> None:
    width = "i4" if kind == pa.utf8() else "i8"
    offsets = pa.py_buffer(numpy.arange(count + 1, dtype=width))
    text = pa.py_buffer(b"a" * (count - 1) + b"\xff")
    bad = pa.Array.from_buffers(kind, count, [None, offsets, text])
    error = refusal(db, path, pa.table({"k": range(count), "s": bad}))
    assert (error.attributes["column"], error.attributes["row_index"]) == ("s", count - 1)


def test_batches_of_an_update_may_have_other_columns(db: dodona.Client) -> None:
    db.write("//full", [{"k": 1, "v": 1, "s": "a"}, {"k": 2, "v": 2, "s": "b"}])
    parts = [pa.table({"k": [1], "v": [6]}), pa.table({"k": [2], "s": ["c"]})]
    for data in (parts, iter(parts)):
        db.write("//full", data, "update")
        assert [(it["v"], it["s"]) for it in db.select("//full")] == [(6, "a"), (2, "c")]


@pytest.mark.parametrize("kind", ["whole", "parts", "reader"])
def test_an_update_of_an_aggregate_is_refused_before_its_load_begins(
    db: dodona.Client, kind: str
) -> None:
    columns = [KEY, *VALUES, {"name": "n", "type": "int64", "aggregate": "sum"}]
    db.create_table("//sums", columns, mount=True)
    table = pa.table({"k": [1], "v": [1], "n": [1]})
    data = {"whole": table, "parts": [table], "reader": table.to_reader()}[kind]
    before = len(db.loads.list_loads())
    error = refusal(db, "//sums", data, "update")
    assert (error.attributes["column"], error.attributes["columns"]) == ("n", ["n"])
    assert "insert_rows(..., update=True, aggregate=True)" in error.message
    assert len(db.loads.list_loads()) == before
    db.write("//sums", table)
    db.write("//sums", table.select(["k", "v"]), "update")


TOO_WIDE: list[list[Any]] = [[-1, 2**63], [2**70], [-(2**70)], [10**5000]]


@pytest.mark.parametrize("values", TOO_WIDE, ids=range(len(TOO_WIDE)))
def test_no_column_is_made_for_integers_that_it_could_not_hold(values: list[Any]) -> None:
    with pytest.raises(SchemaViolation, match="no column type holds all values of column 'c'"):
        type_of_values(values, "c")


def test_an_integer_beside_floats_that_no_double_equals_is_refused() -> None:
    with pytest.raises(SchemaViolation, match="no double equals 9007199254740993"):
        type_of_values([0.5, 2**53 + 1], "c")
    assert type_of_values([0.5, 2**53 + 2], "c") == "double"
