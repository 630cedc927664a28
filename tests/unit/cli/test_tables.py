"""The life of a table by commands, and what is shown of it."""

import io
import json
from pathlib import Path

import pyarrow.ipc
import pytest

from unit.cli.commands import TABLE, Commands, lines_of

WIDE = "id:int64:key,hash:string:key,name:utf8:required,n:int64:sum:lock=counts,x:any"
WIDE_COLUMNS = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "hash", "type": "string", "sort_order": "ascending"},
    {"name": "name", "type": "utf8", "required": True},
    {"name": "n", "type": "int64", "lock": "counts", "aggregate": "sum"},
    {"name": "x", "type": "any"},
]


@pytest.mark.parametrize("form", ["short", "json", "file", "short file"])
def test_a_schema_is_given_in_any_form(dodona: Commands, tmp_path: Path, form: str) -> None:
    text = json.dumps(WIDE_COLUMNS) if form in ("json", "file") else WIDE
    if "file" in form:
        (tmp_path / "schema").write_text(text + "\n")
        text = str(tmp_path / "schema")
    dodona.said("create", "//t", "--schema", text)
    assert dodona.value("describe", "//t", "--schema") == WIDE_COLUMNS
    dodona.said("create", "//again", "--schema", dodona.said("describe", "//t", *SCHEMA_JSON))
    assert dodona.value("describe", "//again", "--schema") == WIDE_COLUMNS


SCHEMA_JSON = ("--schema", "--format", "json")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("id", "can't be read: No such file"),
        ("id:int64:key,v", "write a column as name:type, not 'v'"),
        (
            "id:int64:key,v:int64:keys",
            "'keys' is none of key, descending, required, lock=NAME, sum",
        ),
        ("id:int64:key,v:text", "type of a column is one of"),
        ("id:int64,v:int64", "a sorted table needs a key column"),
        ("[{]", "a schema is not JSON"),
        ('[{"name": "id"}]', "a column of the schema is malformed"),
    ],
)
def test_a_schema_that_is_none_is_refused(dodona: Commands, schema: str, words: str) -> None:
    assert words in dodona.refused("create", "//t", "--schema", schema)


@pytest.mark.parametrize("words", ["descending", "key:descending", "descending:required:key"])
def test_a_key_column_may_be_descending(dodona: Commands, words: str) -> None:
    schema = f"id:int64:{words},v:int64"
    dodona.said("create", "//t", "--schema", schema, "--pivot-keys", "[[], [5], [-5]]")
    dodona.said("mount", "//t")
    (key, _) = dodona.value("describe", "//t", "--schema")
    assert key["sort_order"] == "descending"
    assert "descending" in dodona.said("describe", "//t")
    dodona.run(
        "insert",
        "//t",
        "-",
        "--input-format",
        "jsonl",
        stdin=lines_of([{"id": it, "v": 1} for it in (-9, 9, 0)]),
    )
    assert [row["id"] for row in dodona.rows("//t")] == [9, 0, -9]
    assert [row["id"] for row in dodona.rows("//t", "--lower", "id=5", "--upper", "[-5]")] == [0]


def test_a_file_without_a_schema_is_refused(dodona: Commands, tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_text("nothing")
    assert "has no schema" in dodona.refused("create", "//t", "--schema", file)


def test_create_sets_schema_atomicity_pivot_keys_and_attributes(dodona: Commands) -> None:
    dodona.said(
        *("create", "//a/t", "--schema", "k:string:key,v:int64", "--atomicity", "none"),
        *("--pivot-keys", '[[], ["m"], [{"$base64": "/w=="}]]', "--no-mount"),
        *(
            "--attribute",
            "min_data_ttl=5",
            "--attribute",
            "owner=ann",
            "--attribute",
            'x={"y":[1]}',
        ),
    )
    table = dodona.value("describe", "//a/t")
    assert (table["path"], table["atomicity"], table["is_mounted"]) == ("//a/t", "none", False)
    assert [it["pivot_key"] for it in table["tablets"]] == [[], ["m"], [{"$base64": "/w=="}]]
    assert table["settings"]["min_data_ttl"] == 5
    assert dodona.value("get", "//a/t/@owner") == "ann"
    assert dodona.value("get", "//a/t/@x") == {"y": [1]}


def test_commands_set_and_show_the_isolation_of_a_table(dodona: Commands) -> None:
    schema = ("--schema", "k:int64:key,v:int64")
    dodona.said("create", "//t", *schema, "--attribute", "isolation=serializable")
    assert "\nisolation = serializable\n" in dodona.said("describe", "//t")
    assert dodona.value("describe", "//t")["settings"]["isolation"] == "serializable"
    dodona.said("set", "//t/@isolation", "snapshot")
    assert dodona.value("get", "//t/@isolation") == "snapshot"
    dodona.said("set", "//t/@isolation", "null")
    assert "isolation" not in dodona.said("describe", "//t")
    assert dodona.value("describe", "//t")["settings"]["isolation"] is None
    said = dodona.refused("set", "//t/@isolation", "serial")
    assert 'Table //t: isolation must be "snapshot" or "serializable", not \'serial\'.' in said
    refused = dodona.refused(
        *("create", "//n", *schema, "--atomicity", "none", "--attribute", "isolation=snapshot")
    )
    assert 'isolation "snapshot" needs atomicity "full"' in refused


def test_tablets_divide_keys_evenly(dodona: Commands) -> None:
    dodona.said("create", "//t", "--schema", "k:uint64:key,v:int64", "--tablet-count", 4)
    keys = [it["pivot_key"] for it in dodona.value("describe", "//t", "--tablets")]
    assert keys == [[], [1 << 62], [2 << 62], [3 << 62]]


def states(dodona: Commands) -> list[str]:
    return [it["state"] for it in dodona.value("describe", TABLE, "--tablets")]


def test_commands_move_a_table_through_its_states(bank: Commands) -> None:
    assert states(bank) == ["mounted"]
    bank.said("freeze", TABLE)
    assert states(bank) == ["frozen"]
    bank.said("unfreeze", TABLE)
    assert states(bank) == ["mounted"]
    bank.said("remount", TABLE)
    bank.said("unmount", TABLE)
    assert states(bank) == ["unmounted"]
    bank.said("reshard", TABLE, "--pivot-keys", "[[], [10], [20]]")
    assert states(bank) == ["unmounted"] * 3
    bank.said("mount", TABLE, "--first", 1, "--last", 1, "--freeze")
    assert states(bank) == ["unmounted", "frozen", "unmounted"]
    bank.said("unmount", TABLE)
    bank.said("reshard", TABLE, "--tablet-count", 2)
    bank.said("alter", TABLE, "--schema", "id:int64:key,name:utf8,balance:int64,note:utf8")
    bank.said("mount", TABLE)
    assert states(bank) == ["mounted"] * 2
    assert len(bank.value("describe", TABLE, "--schema")) == 4


def test_impossible_changes_of_a_table_are_refused_with_the_reason(bank: Commands) -> None:
    assert "unmount" in bank.refused("reshard", TABLE, "--tablet-count", 2)
    assert "There is no table //none" in bank.refused("mount", "//none")
    assert "either pivot_keys or tablet_count" in bank.refused(
        *("create", "//t", "--schema", "k:int64:key,v:int64"),
        *("--pivot-keys", "[[]]", "--tablet-count", 2),
    )
    lists = "write key values as a list of"
    for pivots, words in (("[", "not JSON"), ("{}", "list of lists"), ('["a"]', lists)):
        assert words in bank.refused("reshard", TABLE, "--pivot-keys", pivots)


def test_a_table_is_described_for_people(bank: Commands) -> None:
    bank.said("set", f"{TABLE}/@min_data_ttl", 5)
    said = bank.said("describe", TABLE)
    assert said == bank.said("get", TABLE)
    title, _, *lines = said.splitlines()
    assert title == f"{TABLE}: atomicity full, 1 tablet"
    assert lines[:2] == [
        "name     type   sort_order  required  lock  aggregate",
        "id       int64  ascending   false     null  null",
    ]
    assert lines[5].split() == ["tablet", "pivot_key", "state", "cell", "revision"]
    assert lines[6].split()[1:4] == ["[]", "mounted", "0"]
    assert lines[-1] == "min_data_ttl = 5"


def test_a_part_of_a_description_is_a_list(bank: Commands) -> None:
    said = bank.said("describe", TABLE, "--tablets", "--format", "csv").splitlines()
    assert said[0] == '"tablet","pivot_key","state","cell","revision"'
    assert said[1].split(",")[1:4] == ['"[]"', '"mounted"', "0"]
    raw = bank.run("describe", TABLE, "--schema", "--format", "arrow").stdout_bytes
    names = pyarrow.ipc.open_stream(io.BytesIO(raw)).read_all().column("name")
    assert names.to_pylist() == ["id", "name", "balance"]
    bank.run("describe", TABLE, "--format", "csv", code=2)
    bank.run("describe", TABLE, "--schema", "--tablets", code=2)
