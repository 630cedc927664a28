"""`dodona loads`: what it prints, for people and for programs."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import dodona
from dodona.types import LoadId
from dodona_local import cli
from dodona_local.loads_screen import show_recoveries

COLUMNS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
ROWS = pa.table({"k": [1, 2], "v": [1, 2]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def published(folder: Path) -> dodona.Load:
    """A load that was published, after one that was refused and before one that is open."""
    with dodona.open(folder) as db:
        db.create_table("//t", COLUMNS, mount=True)
        with (
            pytest.raises(dodona.RowNotFound),
            db.loads.begin(["//t"], mode="update", owner="ada") as refused,
        ):
            refused.write("//t", ROWS)
        with db.loads.begin(["//t"], application="app", version=7, owner="bob") as load:
            load.write("//t", ROWS)
        db.loads.begin(["//t"], owner="eve").write("//t", ROWS)
    return load


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli.application, ["loads", *words, "--data-dir", str(folder)])


def json_of(folder: Path, *words: str) -> Any:
    done = run(folder, *words, "--format", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_list_of_loads_shows_the_state_of_each_load(
    folder: Path, published: dodona.Load
) -> None:
    shown = run(folder, "list")
    assert shown.exit_code == 0
    heading, *lines = shown.stdout.splitlines()
    assert heading.split()[:4] == ["load", "began", "state", "mode"]
    at = heading.index("state")
    states = [line[at:].split()[0] for line in lines if line[0] != " "]
    assert states == ["aborted", "finished", "running"]
    assert str(published.id) in shown.stdout
    words = set(shown.stdout.split())
    assert words >= {"ada", "bob", "eve", "app", "7", "2"}
    assert words >= {"not", "there", "updated", "version"}, "long texts go on in the next line"


def test_a_list_for_programs_has_all_fields(folder: Path, published: dodona.Load) -> None:
    first, record, last = json_of(folder, "list")
    assert [it["state"] for it in (first, record, last)] == ["aborted", "finished", "running"]
    assert record["load"] == published.id
    assert (record["application"], record["version"]) == ("app", 7)
    assert (record["tables"], record["row_count"]) == (["//t"], 2)
    assert record["commit_timestamp"] > published.id
    assert set(record) == set(dodona.LoadRecord.__struct_fields__)


def test_the_abort_command_aborts_a_load_by_its_id(folder: Path, published: dodona.Load) -> None:
    *_, last = json_of(folder, "list")
    said = run(folder, "abort", str(last["load"]))
    assert (said.exit_code, said.stdout) == (0, f"load {last['load']} is aborted\n")
    assert json_of(folder, "abort", str(last["load"])) == {"load": last["load"], "published": None}
    *_, last = json_of(folder, "list")
    assert (last["state"], last["reason"]) == ("aborted", "dodona loads abort was run")
    too_late = run(folder, "abort", str(published.id))
    assert too_late.exit_code == 1
    assert "was published before, with 2 rows at timestamp" in too_late.stdout
    unknown = run(folder, "abort", "12345")
    assert unknown.exit_code == 1
    assert "dodona: No load with this id is open or recorded" in unknown.stderr
    assert run(folder, "abort", "0").exit_code == 2


@pytest.mark.usefixtures("published")
def test_loads_that_are_alive_are_not_recovered(folder: Path) -> None:
    assert json_of(folder, "recover") == []
    assert json_of(folder, "recoveries") == []
    assert len(run(folder, "recoveries").stdout.splitlines()) == 1, "the heading"


def test_a_recovery_is_a_row_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    load = LoadId(1_700_000_000 << 30)
    recovery = dodona.LoadRecovery(load, "rolled_back", "running", "ada", ("//t", "//u"), "late")
    show_recoveries([recovery], "table")
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["load", "began", "outcome", "was", "tables", "by", "why"]
    words = [str(load), "2023-11-14", "22:13:20Z", "rolled_back", "running", "//t,", "//u", "ada"]
    assert line.split() == [*words, "late"]
