"""`dodona insert --create`: a table like a file in Parquet or Arrow."""

from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from unit.cli.commands import Commands

TABLE = pa.table({"total": [9.5, None], "id": pa.array([2, 1], pa.int32()), "name": ["x", "y"]})
ROWS = [{"name": "x", "id": 2, "total": 9.5}, {"name": "y", "id": 1, "total": None}]
NEW = "//new/orders"


def file_of(folder: Path, suffix: str, table: pa.Table = TABLE) -> Path:
    file = folder / f"rows.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(table, file)
    else:
        make = pyarrow.ipc.new_file if suffix == "arrow" else pyarrow.ipc.new_stream
        with make(file, table.schema) as writer:
            writer.write_table(table)
    return file


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_insert_creates_a_table_like_the_file(
    dodona: Commands, tmp_path: Path, suffix: str
) -> None:
    file = file_of(tmp_path, suffix)
    for _ in range(2):  # the second time, the table is there
        said = dodona.said("insert", NEW, file, "--create", "--keys", "name, id")
        assert said.startswith(f"2 rows inserted into {NEW} at timestamp")
    assert dodona.rows(NEW) == ROWS
    columns = dodona.value("describe", NEW, "--schema")
    assert [(it["name"], it["type"]) for it in columns] == [
        ("name", "utf8"),
        ("id", "int32"),
        ("total", "double"),
    ]


def test_a_table_that_differs_stays_as_it_is(dodona: Commands, tmp_path: Path) -> None:
    file = file_of(tmp_path, "parquet")
    dodona.said("insert", NEW, file, "--create", "--keys", "id")
    other = file_of(tmp_path, "arrow", TABLE.drop(["total"]))
    said = dodona.refused("insert", NEW, other, "--create", "--keys", "id")
    assert "it also has a column 'total'" in said
    assert len(dodona.rows(NEW)) == 2


def test_create_needs_keys_and_a_file_that_names_types(dodona: Commands, tmp_path: Path) -> None:
    file = file_of(tmp_path, "parquet")
    for words in (["--create"], ["--keys", "id"]):
        done = dodona.run("insert", NEW, file, *words, code=2)
        assert "give --create and --keys together" in done.stderr
    assert "'q' is not in the data" in dodona.refused(
        "insert", NEW, file, "--create", "--keys", "q"
    )
    text = tmp_path / "rows.csv"
    text.write_text("id,name\n1,x\n")
    said = dodona.refused("insert", NEW, text, "--create", "--keys", "id")
    assert "a file in csv names no types" in said
    given = ["--input-format", "parquet", "--create", "--keys", "id"]
    assert "read only once" in dodona.refused("insert", NEW, "-", *given)
    text.write_text("no Parquet")
    said = dodona.refused("insert", NEW, text, *given)
    assert "not Parquet" in said
    assert not dodona.folder.exists()
