"""`dodona insert --create`: a table like a file in Parquet or Arrow."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import dodona as client
from dodona_local import new_table
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


TWICE = pa.table({"id": [1.5, 2.5, 2.5], "total": [1, 2, 3]})
"""A bulk load refuses the last row, whose key comes twice."""
NAN = pa.table({"id": [1.5, 2.5, float("nan")], "total": [1, 2, 3]})
"""No key is NaN, so the last row is refused."""
COLUMNS = "id:double:key,total:int64"


def rejected(dodona: Commands, folder: Path, table: pa.Table, *words: object) -> str:
    file = file_of(folder, "parquet", table)
    return dodona.refused("insert", NEW, file, "--create", "--keys", "id", *words)


def test_an_insert_that_writes_nothing_leaves_no_table_that_it_created(
    dodona: Commands, tmp_path: Path
) -> None:
    assert "rows_written=0" in rejected(dodona, tmp_path, NAN)
    assert not dodona.folder.exists()  # it was created for the table
    assert "rows_written=0" in rejected(dodona, tmp_path, TWICE, "--atomic")
    assert dodona.value("list", "//") == ["sys"]  # with the record of the load


def test_a_table_with_rows_stays_after_a_failed_insert(dodona: Commands, tmp_path: Path) -> None:
    assert "rows_written=2" in rejected(dodona, tmp_path, NAN, "--batch-rows", 1)
    assert [it["id"] for it in dodona.rows(NEW)] == [1.5, 2.5]


def test_an_empty_table_that_was_there_stays_after_a_failed_insert(
    dodona: Commands, tmp_path: Path
) -> None:
    dodona.said("create", NEW, "--schema", COLUMNS)
    rejected(dodona, tmp_path, TWICE, "--atomic")
    assert dodona.rows(NEW) == []


def test_an_empty_table_stays_if_the_directory_has_another_one(
    dodona: Commands, tmp_path: Path
) -> None:
    dodona.said("create", "//new/other", "--schema", COLUMNS)
    rejected(dodona, tmp_path, TWICE, "--atomic")
    assert dodona.value("list", "//new") == ["other"]


SCHEMA = pa.schema([("id", pa.int64()), ("total", pa.int64())])


@pytest.fixture
def db(tmp_path: Path) -> Iterator[client.Client]:
    with client.open(tmp_path / "db") as opened:
        yield opened


def fail_after(db: client.Client, action: Callable[[], object], error: BaseException) -> None:
    with new_table.new_table(db, NEW, SCHEMA, ["id"]):
        action()
        raise error


def fail_quietly(db: client.Client, action: Callable[[], object]) -> None:
    with suppress(KeyError):
        fail_after(db, action, KeyError())


def nothing() -> None:
    pass


def test_an_interrupt_removes_the_new_table(db: client.Client) -> None:
    with pytest.raises(KeyboardInterrupt):
        fail_after(db, nothing, KeyboardInterrupt())
    assert db.list("//") == []


def test_a_table_in_which_another_client_wrote_stays(db: client.Client) -> None:
    with pytest.raises(KeyError):
        fail_after(db, lambda: db.insert_rows(NEW, [{"id": 1, "total": 1}]), KeyError())
    db.insert_rows(NEW, [{"id": 2, "total": 1}])
    assert len(db.select(NEW)) == 2


def test_a_table_that_took_the_place_of_the_new_one_stays(db: client.Client) -> None:
    def replace() -> None:
        db.remove_table(NEW)
        db.create_table(NEW, like=SCHEMA, keys=["id"])

    with pytest.raises(KeyError):
        fail_after(db, replace, KeyError())
    assert db.get_table(NEW).path == NEW


def test_a_table_stays_if_it_is_not_known_whether_it_has_rows(db: client.Client) -> None:
    with pytest.raises(client.CommitOutcomeUnknown):
        fail_after(db, nothing, client.CommitOutcomeUnknown("There was no answer."))
    assert db.exists(NEW)


def test_a_removal_that_fails_is_a_warning(db: client.Client) -> None:
    said = "The new table //new/orders is still there, because its removal failed"
    with db.begin_master() as other, pytest.warns(client.DodonaWarning, match=said):
        fail_quietly(db, lambda: other.lock(NEW, "shared"))
    assert db.exists(NEW)
