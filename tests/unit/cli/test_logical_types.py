"""Logical types on the command line: the schema's text, keys, and rows in text."""

import json
from pathlib import Path

import pytest

from dodona_local.cli.words import schema_of
from unit.cli.commands import Commands

ROW = {
    "day": "2024-02-29",
    "at": "2024-02-29T12:30:00Z",
    "price": "12.50",
    "id": "a3bb189e-8bf9-3888-9912-ace4e6543002",
}
SCHEMA = "day:date:key,at:datetime,price:decimal(5,2),id:uuid"


def test_rows_go_in_and_out_as_text(dodona: Commands, tmp_path: Path) -> None:
    pivots = '[[], ["2024-02-29"]]'
    dodona.said("create", "//t", "--schema", SCHEMA, "--pivot-keys", pivots)
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([ROW]))
    dodona.said("insert", "//t", file)
    assert dodona.rows("//t") == [ROW]
    assert dodona.rows("//t", "--lower", "day=2024-02-29") == [ROW]
    assert "2024-02-29T12:30:00Z" in dodona.said("lookup", "//t", "day=2024-02-29")
    assert "2024-02-29" in dodona.said("describe", "//t")
    said = dodona.refused("lookup", "//t", "day=29.02.2024")
    assert "takes a date such as 2024-05-31" in said


NESTED = {
    "id": 1,
    "tags": ["a", "ä"],
    "items": [{"price": "12.50", "on": None}, {"price": "0.01", "on": "2024-02-29"}],
    "by": {"1": True, "-2": False},
}
NESTED_TYPES = (
    "list<utf8>",
    "list<struct<price:decimal(5,2),on:optional<date>>>",
    "dict<int8,boolean>",
)
NESTED_SCHEMA = (
    "id:int64:key, tags: list< utf8 >:required,"
    "items:list<struct<price:decimal(5,2),on:optional<date>>>,by:dict<int8,boolean>"
)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet", "arrow"])
def test_lists_structs_and_dicts_are_json_and_come_back_from_each_file(
    dodona: Commands, tmp_path: Path, suffix: str
) -> None:
    dodona.said("create", "//t", "--schema", NESTED_SCHEMA)
    columns = dodona.value("describe", "//t", "--schema")
    assert [it["type"] for it in columns] == ["int64", *NESTED_TYPES]
    assert columns[1]["required"] is True
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([NESTED, {"id": 2, "tags": []}]))
    dodona.said("insert", "//t", file)
    rows = dodona.rows("//t")
    assert rows == [NESTED, {"id": 2, "tags": [], "items": None, "by": None}]
    exported = tmp_path / f"exported.{suffix}"
    dodona.said("export", "//t", exported)
    dodona.said("create", "//copy", "--schema", NESTED_SCHEMA)
    dodona.said("insert", "//copy", exported)
    assert dodona.rows("//copy") == rows
    if suffix in ("parquet", "arrow"):
        dodona.said("insert", "//like", exported, "--create", "--keys", "id")
        types = [it["type"] for it in dodona.value("describe", "//like", "--schema")]
        assert types[1].startswith("list<")
        assert types[2].startswith("list<")
        assert types[3] == "dict<int8,boolean>"
        assert dodona.rows("//like") == rows


def test_a_refused_part_has_its_place(dodona: Commands, tmp_path: Path) -> None:
    dodona.said("create", "//t", "--schema", NESTED_SCHEMA)
    file = tmp_path / "rows.csv"
    file.write_text('id,tags,items\n1,[],[]\n2,[],"[{""price"": ""1.505""}]"\n')
    said = dodona.refused("insert", "//t", file)
    assert "'items[0].price' takes 2 digits behind the point" in said


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("k:int64:key,v:struct<a:list<int8>,b:utf8>,w:int8", ["k", "v", "w"]),
        ('k:int64:key,v:struct<"a:,>""<":int8>,w:int8', ["k", "v", "w"]),
        ("k:int64:key,a<b:int8,c>:int8", ["k", "a<b", "c>"]),
        ('k:int64:key,a":int8,b":int8', ["k", 'a"', 'b"']),
        ("k:int64:key,v:decimal( 5 , 2 ),w:int8", ["k", "v", "w"]),
    ],
)
def test_a_schema_ends_no_column_inside_a_type(text: str, names: list[str]) -> None:
    assert [it.name for it in schema_of(text).columns] == names
