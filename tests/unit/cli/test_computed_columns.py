"""Computed key columns on the command line: schemas, keys, files of every format, and backups."""

from pathlib import Path

import pytest

from dodona_local.cli.words import schema_of
from dodona_local.files.formats import FileFormat
from dodona_wire.expressions.farm_hash import farm_hash
from unit.cli.commands import Commands, lines_of
from unit.cli.test_rows_in import write_file

EXPRESSION = "if(is_null(user), 0u, farm_hash(user, 'x,(y') % 8)"
SCHEMA = f"hash:uint64:key:expression={EXPRESSION},user:utf8:key,v:int64"
TABLE = "//t"


def row(user: str, v: int) -> dict[str, object]:
    return {"hash": farm_hash(user.encode(), b"x,(y") % 8, "user": user, "v": v}


ROWS = sorted([row(f"u{it}", it) for it in range(25)], key=lambda it: (it["hash"], it["user"]))


@pytest.fixture
def table(dodona: Commands) -> Commands:
    dodona.said("create", TABLE, "--schema", SCHEMA, "--mount")
    return dodona


def test_a_short_schema_has_expressions_with_commas_and_brackets() -> None:
    schema = schema_of(SCHEMA)
    assert schema.columns[0].expression == EXPRESSION
    assert [it.name for it in schema.columns] == ["hash", "user", "v"]


@pytest.mark.parametrize("command", ["create", "alter"])
def test_an_expression_that_no_row_can_compute_is_refused(dodona: Commands, command: str) -> None:
    dodona.said("create", "//d" if command == "alter" else TABLE, "--schema", "k:int64:key,v:int64")
    schema = "k:int64:key,h:int64:key:expression=k % 0,v:int64"
    said = dodona.refused(command, "//d", "--schema", schema)
    assert "'h' is wrong: The expression divides by zero" in said
    assert "k % 0" in said


def test_a_schema_is_shown_with_its_expressions(table: Commands) -> None:
    assert EXPRESSION in table.said("describe", TABLE, "--schema")
    assert table.value("describe", TABLE, "--schema")[0]["expression"] == EXPRESSION
    table.said("create", "//plain", "--schema", "k:int64:key,v:int64")
    assert "expression" not in table.said("describe", "//plain", "--schema")


@pytest.mark.parametrize("form", FileFormat)
@pytest.mark.parametrize("has_hash", [True, False])
@pytest.mark.parametrize("how", ["whole", "atomic", "batches"])
def test_rows_of_files_may_leave_out_a_computed_column(
    table: Commands, tmp_path: Path, form: FileFormat, has_hash: bool, how: str
) -> None:
    given = [it if has_hash else {"user": it["user"], "v": it["v"]} for it in ROWS]
    words: dict[str, list[object]] = {"atomic": ["--atomic"], "batches": ["--batch-rows", 7]}
    file = write_file(tmp_path, form, given)
    table.said("insert", TABLE, file, *words.get(how, []))
    assert table.rows(TABLE) == ROWS


@pytest.mark.parametrize("form", [FileFormat.CSV, FileFormat.JSONL, FileFormat.PARQUET])
@pytest.mark.parametrize("how", [[], ["--atomic"]])
def test_a_wrong_value_in_a_file_is_refused(
    table: Commands, tmp_path: Path, form: FileFormat, how: list[str]
) -> None:
    wrong = {**ROWS[1], "hash": 9}
    file = write_file(tmp_path, form, [ROWS[0], wrong, ROWS[2]])
    said = table.refused("insert", TABLE, file, *how)
    assert "'hash' is 9 in this row" in said
    assert table.rows(TABLE) == []


def test_some_rows_of_a_file_name_a_computed_column(table: Commands) -> None:
    first, second = ROWS[:2]
    lines = lines_of([first, {"user": second["user"], "v": second["v"]}])
    table.said("insert", TABLE, "-", "--input-format", "jsonl", stdin=lines)
    assert table.rows(TABLE) == ROWS[:2]


@pytest.mark.parametrize("key", ['["u3"]', "user=u3", '{"user": "u3"}', None])
def test_a_key_may_leave_out_a_computed_column(table: Commands, key: str | None) -> None:
    table.said("insert", TABLE, "-", "--input-format", "jsonl", stdin=lines_of(ROWS))
    given = f'[{row("u3", 3)["hash"]}, "u3"]' if key is None else key
    assert table.value("lookup", TABLE, given) == row("u3", 3)
    table.said("delete", TABLE, "--key", given)
    assert len(table.rows(TABLE)) == 24


def test_a_backup_keeps_expressions(table: Commands, tmp_path: Path) -> None:
    table.said("insert", TABLE, "-", "--input-format", "jsonl", stdin=lines_of(ROWS))
    table.run("backup", tmp_path / "saved")
    other = Commands(tmp_path / "other")
    other.run("restore", tmp_path / "saved")
    assert other.rows(TABLE) == ROWS
    other.said("insert", TABLE, "-", "--input-format", "jsonl", stdin='{"user": "new", "v": 1}')
    assert row("new", 1) in other.rows(TABLE)
