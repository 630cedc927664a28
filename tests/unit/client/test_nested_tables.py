"""Tables with lists, structs and dicts in an embedded database: every way in and out."""

import copy
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow
import pytest

import dodona
from dodona.errors import InvalidRequest, SchemaViolation
from dodona.schema import Column
from dodona_wire.rows.logical_arrow import arrow_type_of
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX, logical_type
from dodona_wire.rows.nested_types import leaves_of
from suite.column_values import NESTED, an_example

T = "//t"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("nested") / "data") as opened:
        yield opened


@pytest.fixture
def made(db: dodona.Client) -> Iterator[Any]:
    paths = []

    def make(*types: str, path: str = T, **how: Any) -> str:
        columns = [Column(f"v{place}", it) for place, it in enumerate(types)]
        db.create_table(path, [Column("k", "int64", "ascending"), *columns], mount=True, **how)
        paths.append(path)
        return path

    yield make
    for path in paths:
        db.remove_table(path)


def spoil(value: Any) -> None:
    """Change everything in a value that can be changed."""
    if isinstance(value, list):
        for it in value:
            spoil(it)
        value.append("spoiled")
    elif isinstance(value, dict):
        for it in value.values():
            spoil(it)
        value["spoiled"] = 1


def versions(db: dodona.Client) -> Any:
    (found,) = db.lookup_versions(T, [{"k": 1}])
    return found


@pytest.mark.parametrize("name", NESTED)
def test_every_read_returns_what_was_written_and_what_the_caller_may_change(
    db: dodona.Client, made: Any, name: str
) -> None:
    made(name, name)
    value = an_example(name)
    row = {"k": 1, "v0": value, "v1": None}
    given = copy.deepcopy(row)
    db.insert_rows(T, [given])
    spoil(given["v0"])
    rows = db.select(T)
    reads: list[Callable[[], Any]] = [
        lambda: db.lookup_rows(T, [{"k": 1}])[0],
        lambda: db.lookup_rows(T, [{"k": 1}], ["v0"])[0],
        lambda: rows[0],
        lambda: next(iter(rows)),
        lambda: dict(zip(rows.columns, rows.tuples()[0], strict=True)),
        lambda: {"v0": versions(db).values["v0"][0].value},
    ]
    for read in reads:
        for _ in range(2):
            found = read()
            assert found["v0"] == value
            spoil(found["v0"])
    with db.begin(read_own_writes=True) as transaction:
        transaction.insert_rows(T, [{"k": 1, "v1": value}], update=True)
        own_reads: list[Callable[[], Any]] = [
            lambda: transaction.lookup_rows(T, [{"k": 1}])[0],
            lambda: transaction.select(T)[0],
        ]
        for own in own_reads:
            spoil(own()["v1"])
            assert own() == {**row, "v1": value}
        transaction.abort()
    assert db.select(T) == [row]


@pytest.mark.parametrize("name", NESTED)
def test_arrow_has_the_type_and_comes_back_as_it_was(
    db: dodona.Client, made: Any, name: str
) -> None:
    made(name, atomicity="none")
    db.insert_rows(T, [{"k": 1, "v0": an_example(name)}, {"k": 2, "v0": None}])
    table = db.read_arrow(T)
    assert table.schema.field("v0").type == arrow_type_of(logical_type(name))
    assert str(table.schema.field("v0").type) == logical_type(name).arrow
    assert table == db.select(T).to_arrow()
    made(name, path="//copy", atomicity="none")
    db.write_arrow("//copy", pyarrow.concat_tables([table, table]))
    assert db.read_arrow("//copy") == table
    assert db.select("//copy") == db.select(T)
    assert db.read_arrow(T, columns=["v0"]) == table.select(["v0"])


@pytest.mark.parametrize("name", NESTED)
def test_frames_have_lists_and_dicts_and_come_back(db: dodona.Client, made: Any, name: str) -> None:
    made(name)
    rows = [{"k": 1, "v0": an_example(name)}, {"k": 2, "v0": None}]
    db.insert_rows(T, rows)
    of_pandas, of_polars = db.select(T).to_pandas(), db.select(T).to_polars()
    assert str(of_pandas["v0"].dtype) == "object"
    assert of_pandas["v0"][0] == an_example(name)
    made(name, path="//copy")
    backed = db.read_arrow(T).to_pandas(types_mapper=pandas.ArrowDtype)
    for frame in (of_pandas, of_polars, backed):
        db.write("//copy", frame, mode="replace")
        assert db.select("//copy") == rows
    assert db.select("//copy").to_polars().equals(of_polars)


def column(kind: Any, *values: Any) -> pyarrow.Array:
    return pyarrow.array(values, kind)


DAY = date(2024, 2, 29)
PAIRS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.int64())]))


UNDER_NULL = pyarrow.StructArray.from_arrays(
    [column(pyarrow.string(), "[", "1"), column(pyarrow.int64(), 999, None)],
    names=["j", "a"],
    mask=pyarrow.array([True, True]),
)
"""Structs that are null, with fields that fit no column."""


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("list<int8>", column(pyarrow.large_list(pyarrow.int64()), [1], None, []), [1]),
        ("list<int8>", column(pyarrow.list_(pyarrow.int64(), 2), [1, 2]), [1, 2]),
        ("list<int8>", column(pyarrow.list_view(pyarrow.int64()), [1, 2]), [1, 2]),
        ("list<utf8>", column(pyarrow.list_(pyarrow.string_view()), ["ä"]), ["ä"]),
        (
            "list<utf8>",
            column(pyarrow.list_(pyarrow.dictionary(pyarrow.int8(), pyarrow.string())), ["a"]),
            ["a"],
        ),
        ("list<utf8>", pyarrow.DictionaryArray.from_arrays([0, 0], pyarrow.array([["a"]])), ["a"]),
        ("list<date>", column(pyarrow.list_(pyarrow.date64()), [DAY]), [DAY]),
        ("list<decimal(9,2)>", column(pyarrow.list_(pyarrow.int8()), [7]), [Decimal("7.00")]),
        ("list<optional<int8>>", column(pyarrow.list_(pyarrow.null()), [None]), [None]),
        ("list<list<int8>>", pyarrow.array([[[5]], [[1], []]]).slice(1), [[1], []]),
        ("struct<a:int8,b:optional<utf8>>", pyarrow.array([{"a": 1}]), {"a": 1, "b": None}),
        ("struct<a:int8,b:utf8>", pyarrow.array([{"b": "x", "a": 1}]), {"a": 1, "b": "x"}),
        ("dict<utf8,int8>", column(PAIRS, [{"key": "a", "value": 1}]), {"a": 1}),
        ("list<int8>", pyarrow.nulls(1), None),
        ("struct<j:json,a:int8>", UNDER_NULL, None),
    ],
)
def test_arrow_of_another_type_is_cast_without_loss(
    db: dodona.Client, made: Any, name: str, given: Any, value: Any
) -> None:
    made(name)
    db.write(T, pyarrow.table({"k": range(len(given)), "v0": given}))
    assert db.select(T)[0]["v0"] == value


@pytest.mark.parametrize(
    ("name", "given", "row", "place", "text"),
    [
        ("list<int8>", pyarrow.array([[1], [2, 300]]), 1, "v0[1]", "does not fit in int8"),
        ("list<int8>", pyarrow.array([[1], [2, None]]), 1, "v0[1]", "missing or null"),
        ("list<int8>", pyarrow.array([["x"]]), 0, "v0[0]", "takes an int, not str"),
        ("list<int8>", pyarrow.array(["[1]"]), 0, None, "takes a list, not str"),
        ("list<int8>", pyarrow.array([], pyarrow.string()), None, None, "takes Arrow's list<"),
        ("list<int8>", pyarrow.array([], pyarrow.list_(pyarrow.string())), None, "v0[]",
         "column 'v0[]' is int8 and takes Arrow's int8, not string"),
        ("list<datetime>", column(pyarrow.list_(pyarrow.timestamp("us")), [5]), 0, "v0[0]",
         "no time zone"),
        ("list<any>", pyarrow.array([[b"\x01"], [b"\xc1"]]), 1, "v0[]", "not MessagePack"),
        ("list<any>", pyarrow.array([[b"\xc0"]]), 0, "v0[]", "missing or null"),
        ("list<any>", pyarrow.array([[b"\x82\xa1a\x01\xa1a\x02"]]), 0, "v0[]", "named twice"),
        ("list<date>", column(pyarrow.list_(pyarrow.date32()), [DAY, date(1900, 1, 1)]), 0,
         "v0[1]", "does not fit in date"),
        ("list<json>", pyarrow.array([["1"], ["1", "["]]), 1, "v0[1]", "text of a JSON value"),
        ("struct<a:int8>", pyarrow.array([{"a": 1, "b": 1}]), 0, None, "no field b"),
        ("struct<a:int8,b:int8>", pyarrow.array([{"a": 1}]), 0, "v0.b", "missing or null"),
        ("struct<a:list<int8>>", pyarrow.array([{"a": [1]}, {"a": [1, 999]}]), 1, "v0.a[1]",
         "does not fit in int8"),
        ("dict<utf8,int8>", column(PAIRS, [{"key": "a", "value": 1}] * 2), 0, None, "twice"),
    ],
)  # fmt: skip
def test_arrow_that_does_not_fit_is_refused_with_row_and_place(
    db: dodona.Client, made: Any, name: str, given: Any, row: Any, place: Any, text: str
) -> None:
    made(name)
    with pytest.raises(SchemaViolation) as caught:
        db.write(T, pyarrow.table({"k": pyarrow.array(range(len(given)), "int64"), "v0": given}))
    assert text in str(caught.value)
    attributes = caught.value.attributes
    assert (attributes["column"], attributes.get("row_index")) == ("v0", row)
    assert attributes.get("place") == place
    assert db.select(T) == []


def test_a_row_of_a_later_batch_has_its_place_in_the_whole_data(
    db: dodona.Client, made: Any
) -> None:
    made("list<int8>", atomicity="none")
    batches = [
        pyarrow.record_batch({"k": [1, 2], "v0": [[1], [2]]}),
        pyarrow.record_batch({"k": [3, 4], "v0": [[1], [2, 300]]}),
    ]
    with pytest.raises(SchemaViolation) as caught:
        db.write_arrow(T, batches)
    assert caught.value.attributes["row_index"] == 3
    assert caught.value.attributes["place"] == "v0[1]"


def test_rows_of_python_name_their_row_and_the_place(db: dodona.Client, made: Any) -> None:
    made("list<struct<price:decimal(5,2)>>")
    rows = [{"k": 1, "v0": []}, {"k": 2, "v0": [{"price": 1}, {"price": "1"}]}]
    for write in (db.insert_rows, db.write):
        with pytest.raises(SchemaViolation) as caught:
            write(T, rows)
        attributes = caught.value.attributes
        assert (attributes["column"], attributes["row_index"]) == ("v0", 1)
        assert (attributes["place"], attributes["value"]) == ("v0[1].price", "'1'")
    assert db.select(T) == []


def test_a_table_like_a_frame_gets_nested_types(db: dodona.Client) -> None:
    frame = polars.DataFrame({"k": [1], "tags": [["a"]], "at": [{"x": 0.5}]})
    db.create_table("//like", like=frame, keys=["k"], mount=True)
    types = {it.name: it.type for it in db.get_table("//like").schema.columns}
    assert types["tags"] == "list<optional<utf8>>"
    assert types["at"] == "struct<x:optional<double>>"
    db.write("//like", frame)
    assert db.select("//like") == [{"k": 1, "tags": ["a"], "at": {"x": 0.5}}]
    db.remove_table("//like")


def test_polars_has_no_long_decimals_inside_either(db: dodona.Client, made: Any) -> None:
    made("list<decimal(39,0)>")
    with pytest.raises(InvalidRequest, match=r"polars has no decimal\(39,0\)"):
        db.select(T).to_polars()


@pytest.mark.parametrize("name", NESTED)
def test_sql_sees_values_of_the_type(db: dodona.Client, made: Any, name: str) -> None:
    assert all(it.precision <= SQL_PRECISION_MAX for it in leaves_of(logical_type(name)))
    made(name)
    db.insert_rows(T, [{"k": 1, "v0": an_example(name)}, {"k": 2, "v0": None}])
    (found,) = db.query(f"select count(v0) as n, min(typeof(v0)) as kind from [{T}]").to_pylist()
    assert found["n"] == 1
    made(name, path="//absent")
    db.insert_rows("//absent", [{"k": 1, "v0": an_example(name)}])
    assert db.query("select k from [//absent]").to_pylist() == [{"k": 1}]
    (whole,) = db.query("select v0 from [//absent]").to_pylist()
    assert whole["v0"] is not None


def test_sql_reads_items_fields_and_keys(db: dodona.Client, made: Any) -> None:
    made(
        "list<utf8>", "struct<amount:decimal(10,2),at:struct<day:date>,id:uuid,x:any>",
        "dict<utf8,int64>",
    )  # fmt: skip
    price = {
        "amount": Decimal("12.50"),
        "at": {"day": DAY},
        "id": an_example("uuid"),
        "x": {"a": [b"\xff"]},
    }
    db.insert_rows(T, [{"k": 1, "v0": ["a", "b"], "v1": price, "v2": {"x": 1 << 60}}])
    query = f"""select v0[1] as first, v1.amount as amount, v1.at.day as day, v1.id as id,
        v2['x'] as x, v1.x as json from [{T}] where v1.at.day = date '2024-02-29'"""
    (row,) = db.query(query).to_pylist()
    assert row == {
        "first": "a", "amount": Decimal("12.50"), "day": DAY, "id": str(an_example("uuid")),
        "x": 1 << 60, "json": '{"a":[{"$base64":"/w=="}]}',
    }  # fmt: skip
    tags = db.query(f"select unnest(v0) as tag from [{T}]").to_pylist()
    assert tags == [{"tag": "a"}, {"tag": "b"}]
    found = db.query(f"select k from [{T}] where list_contains(v0, $tag)", {"tag": "b"})
    assert found.to_pylist() == [{"k": 1}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("struct<a:int8,A:int8>", "differ in case only"),
        ("list<decimal(39,1)>", "at most 38 digits"),
    ],
)
def test_a_type_that_sql_does_not_have_is_refused_if_the_query_uses_it(
    db: dodona.Client, made: Any, name: str, text: str
) -> None:
    made(name)
    db.insert_rows(T, [{"k": 1, "v0": an_example(name)}])
    assert db.query(f"select count(*) as n from [{T}]").to_pylist() == [{"n": 1}]
    with pytest.raises(InvalidRequest, match=f"{text}.*column .v0."):
        db.query(f"select v0 from [{T}]")


def test_a_struct_gets_fields_and_its_older_rows_have_null_there(
    db: dodona.Client, made: Any
) -> None:
    made("list<struct<a:int8>>")
    db.insert_rows(T, [{"k": 1, "v0": [{"a": 1}]}])
    db.unmount_table(T)
    with pytest.raises(SchemaViolation, match="can't change from"):
        db.alter_table(T, [Column("k", "int64", "ascending"), Column("v0", "any")])
    wide = "list<struct<a:int32,b:optional<date>>>"
    db.alter_table(T, [Column("k", "int64", "ascending"), Column("v0", wide)])
    db.mount_table(T)
    db.insert_rows(T, [{"k": 2, "v0": [{"a": 1 << 20, "b": DAY}]}])
    old, new = [{"a": 1, "b": None}], [{"a": 1 << 20, "b": DAY}]
    assert db.select(T) == [{"k": 1, "v0": old}, {"k": 2, "v0": new}]
    assert db.read_arrow(T)["v0"].to_pylist() == [old, new]
    assert db.query(f"select v0[1].b as b from [{T}] order by k").to_pylist() == [
        {"b": None},
        {"b": DAY},
    ]
    made(wide, path="//copy")
    db.write("//copy", db.read_arrow(T))
    assert db.select("//copy") == db.select(T)


def test_rows_survive_a_restart(tmp_path: Path) -> None:
    name = NESTED[-1]
    row = {"k": 1, "v": an_example(name)}
    with dodona.open(tmp_path / "data") as first:
        first.create_table(T, [Column("k", "int64", "ascending"), Column("v", name)], mount=True)
        first.insert_rows(T, [row])
    with dodona.open(tmp_path / "data") as second:
        assert second.select(T) == [row]
        assert second.get_table(T).schema.columns[1].type == name


def test_an_aggregate_keeps_the_first_list(db: dodona.Client) -> None:
    column = Column("v", "list<int8>", aggregate="first")
    db.create_table(T, [Column("k", "int64", "ascending"), column], mount=True)
    for value in ([1], [2]):
        with db.begin() as transaction:
            transaction.insert_rows(T, [{"k": 1, "v": value}], update=True, aggregate=True)
    assert db.select(T) == [{"k": 1, "v": [1]}]
    db.remove_table(T)
