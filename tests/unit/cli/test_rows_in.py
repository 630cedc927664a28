"""Rows of files, brought into tables: in which transactions, and what is said when one is wrong."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import dodona as dodona_client
from dodona_local import inserting
from dodona_local.files import csv_reading
from dodona_local.files.formats import FileFormat
from dodona_local.progress import Progress
from suite.levels import sample
from unit.backup.tables import Counting
from unit.cli.commands import ACCOUNTS, TABLE, Commands, account, lines_of

ROWS = [account(number) for number in range(25)]
TEXT = 'id,name,balance\n1,ann,5\n2,,\n3,"",-7\n'
JSON = ("--input-format", "json")


def write_file(folder: Path, form: FileFormat, rows: list[dict[str, Any]]) -> Path:
    file, table = folder / f"rows.{form}", pa.Table.from_pylist(rows)
    match form:
        case FileFormat.CSV:
            lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
            file.write_text("\n".join(lines))
        case FileFormat.JSON:
            file.write_text(json.dumps(rows, indent=1))
        case FileFormat.JSONL:
            file.write_text(lines_of(rows))
        case FileFormat.PARQUET:
            pyarrow.parquet.write_table(table, file, row_group_size=10)
        case FileFormat.ARROW:
            with pyarrow.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, 10)
        case FileFormat.ARROWS:
            with pyarrow.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table, 10)
    return file


@pytest.mark.parametrize("form", FileFormat)
@pytest.mark.parametrize("how", ["whole", "atomic", "batches"])
def test_rows_are_inserted_from_any_format(
    bank: Commands, tmp_path: Path, form: FileFormat, how: str
) -> None:
    file = write_file(tmp_path, form, ROWS)
    words: dict[str, list[object]] = {"atomic": ["--atomic"], "batches": ["--batch-rows", 7]}
    said = bank.said("insert", TABLE, file, *words.get(how, []))
    assert said.startswith(f"25 rows inserted into {TABLE}")
    assert (" at timestamp " in said) == (how != "batches")
    assert bank.rows() == ROWS
    assert bool(bank.value("loads", "list")) == (how == "atomic")


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_rows_of_many_columns_are_inserted(
    dodona: Commands, tmp_path: Path, atomicity: str
) -> None:
    """Masks of more than 64 value columns travel as bytes."""
    names = [f"v{place}" for place in range(65)]
    schema = ",".join(["id:int64:key", *(f"{name}:int64" for name in names)])
    dodona.said("create", "//wide", "--schema", schema, "--atomicity", atomicity)
    rows = [{"id": number, **dict.fromkeys(names, number)} for number in range(3)]
    dodona.said("insert", "//wide", write_file(tmp_path, FileFormat.PARQUET, rows))
    assert dodona.rows("//wide") == rows


@pytest.mark.parametrize("form", [it for it in FileFormat if it != FileFormat.PARQUET])
def test_standard_input_is_a_file(bank: Commands, tmp_path: Path, form: FileFormat) -> None:
    if form is FileFormat.ARROW:
        return  # a pipe can't be gone back in
    raw = write_file(tmp_path, form, ROWS).read_bytes()
    bank.said("insert", TABLE, "-", "--input-format", form, stdin=raw)
    assert bank.rows() == ROWS


def test_a_format_has_to_be_known(bank: Commands, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text(TEXT)
    said = bank.refused("insert", TABLE, tmp_path / "rows.txt")
    assert "give --input-format (csv, json, jsonl, parquet, arrow, arrows)" in said
    bank.said("insert", TABLE, tmp_path / "rows.txt", "--input-format", "csv")
    said = bank.refused("insert", TABLE, "-", "--input-format", "parquet", stdin=b"PAR1")
    assert "Parquet can't be read from a pipe, only from a file" in said


def test_a_csv_import_keeps_null_and_empty_text_apart(bank: Commands) -> None:
    bank.said("insert", TABLE, "-", "--input-format", "csv", stdin=TEXT)
    assert bank.rows() == [
        {"id": 1, "name": "ann", "balance": 5},
        {"id": 2, "name": None, "balance": None},
        {"id": 3, "name": "", "balance": -7},
    ]


def test_an_insert_of_too_many_rows_for_a_transaction_becomes_a_bulk_load(
    bank: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserting, "BATCH_ROWS", 10)
    said = bank.said("insert", TABLE, "-", *JSON, stdin=lines_of(ROWS))
    (load,) = bank.value("loads", "list")
    assert (load["state"], load["row_count"], load["owner"]) == ("finished", 25, "dodona")
    assert said == f"25 rows inserted into {TABLE} at timestamp {load['commit_timestamp']}\n"
    assert bank.rows() == ROWS
    monkeypatch.setattr(inserting, "BATCH_ROWS", 100)
    bank.said("delete", TABLE, "-", *JSON, stdin=lines_of([{"id": row["id"]} for row in ROWS]))
    assert len(bank.value("loads", "list")) == 1
    assert bank.rows() == []


def test_an_insert_of_too_many_bytes_for_a_transaction_becomes_a_bulk_load(bank: Commands) -> None:
    """They are few enough for a transaction, and have too many bytes for one."""
    rows = [account(number, name="x" * (9 << 20)) for number in range(4)]
    bank.said("insert", TABLE, "-", *JSON, stdin=lines_of(rows))
    assert len(bank.value("loads", "list")) == 1
    bank.said("insert", TABLE, "-", *JSON, "--batch-rows", 10, stdin=lines_of(rows))
    assert len(bank.rows(TABLE, "--columns", "id")) == 4


def test_an_update_leaves_other_columns_as_they_are(bank: Commands) -> None:
    bank.said("insert", TABLE, "-", *JSON, stdin=lines_of(ROWS[:2]))
    news = [{"id": 0, "name": "new"}, {"id": 1, "balance": None}, {"id": 7, "balance": 1}]
    said = bank.said("insert", TABLE, "-", *JSON, "--update", stdin=lines_of(news))
    assert said.startswith(f"3 rows updated in {TABLE}")
    assert bank.rows() == [
        account(0, name="new"),
        account(1, balance=None),
        {"id": 7, "name": None, "balance": 1},
    ]
    older = [{"id": 0, "balance": 1}, {"id": 1, "name": "n"}]
    bank.said("insert", TABLE, "-", *JSON, "--update", "--atomic", stdin=lines_of(older))
    assert bank.rows()[:2] == [
        account(0, name="new", balance=1),
        account(1, name="n", balance=None),
    ]
    said = bank.refused(
        "insert",
        TABLE,
        "-",
        *JSON,
        "--update",
        "--atomic",
        stdin=lines_of([{"id": 9, "name": "x"}]),
    )
    assert "rows_written=0" in said


def test_a_long_update_has_to_say_how(bank: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction makes rows that are not there, a bulk load does not: size must not decide."""
    monkeypatch.setattr(inserting, "BATCH_ROWS", 10)
    said = bank.refused("insert", TABLE, "-", *JSON, "--update", stdin=lines_of(ROWS))
    assert "(--atomic), which updates existing rows" in said
    assert bank.rows() == []
    bank.said("insert", TABLE, "-", *JSON, "--update", "--batch-rows", 10, stdin=lines_of(ROWS))
    assert bank.rows() == ROWS


def test_of_two_rows_with_one_key_the_last_counts_but_not_in_a_load(bank: Commands) -> None:
    twice = lines_of([account(1, balance=1), account(1, balance=2)])
    bank.said("insert", TABLE, "-", *JSON, stdin=twice)
    assert bank.rows() == [account(1, balance=2)]
    assert "twice" in bank.refused("insert", TABLE, "-", *JSON, "--atomic", stdin=twice)
    assert bank.value("loads", "list")[-1]["state"] == "aborted"


@pytest.mark.parametrize("form", FileFormat)
def test_a_table_without_atomicity_takes_batches(
    dodona: Commands, tmp_path: Path, form: FileFormat
) -> None:
    dodona.said(
        "create", TABLE, "--atomicity", "none", "--schema", "id:int64:key,name:utf8,balance:int64"
    )
    file = write_file(tmp_path, form, ROWS)
    assert dodona.said("insert", TABLE, file) == f"25 rows inserted into {TABLE}\n"
    assert dodona.rows() == ROWS
    dodona.said("insert", TABLE, "-", *JSON, "--update", stdin='{"id": 0, "name": "x"}')
    dodona.said("delete", TABLE, "-", *JSON, stdin=lines_of([{"id": n} for n in range(1, 25)]))
    assert dodona.rows() == [account(0, name="x")]
    assert "can't take all rows or none" in dodona.refused("insert", TABLE, file, "--atomic")


def test_rows_are_deleted_by_keys(bank: Commands, tmp_path: Path) -> None:
    bank.said("insert", TABLE, "-", *JSON, stdin=lines_of(ROWS))
    said = bank.said("delete", TABLE, "--key", "id=1", "--key", '{"id": 2}', "--key", "[99]")
    assert said.startswith(f"3 rows deleted from {TABLE} at timestamp ")
    bank.said("export", TABLE, tmp_path / "keys.csv", "--columns", "id", "--upper", "id=20")
    bank.said("delete", TABLE, tmp_path / "keys.csv", "--atomic")
    assert bank.rows() == ROWS[20:]
    said = bank.refused("delete", TABLE, "-", *JSON, stdin=lines_of([account(20)]))
    assert "no such column" in said
    bank.run("delete", TABLE, code=2)
    bank.run("delete", TABLE, tmp_path / "keys.csv", "--key", "id=1", code=2)
    bank.run("insert", TABLE, tmp_path / "keys.csv", "--atomic", "--batch-rows", 5, code=2)


@pytest.mark.parametrize("how", [(), ("--atomic",), ("--batch-rows", 1)])
def test_a_key_column_that_is_not_named_is_an_error_and_null_is_given_as_such(
    dodona: Commands, tmp_path: Path, how: tuple[object, ...]
) -> None:
    dodona.said("create", "//t", "--schema", "k:int64:key,l:utf8:key,v:int64")
    missing = "missing key column 'l': give each row a value for it, or null"
    zero, null = {"k": 0, "l": ""}, {"k": 1, "l": None}
    for command in ("insert", "delete"):
        value = {"v": 1} if command == "insert" else {}
        rows = [{**zero, **value}, {"k": 1, **value}]
        said = dodona.refused(command, "//t", "-", *JSON, *how, stdin=lines_of(rows))
        assert missing in said
        assert "row=2, line=2" in said
        file = arrow_file(tmp_path, k=[1, 2], **({"v": [1, 2]} if value else {}))
        assert missing in dodona.refused(command, "//t", file, *how)
    dodona.said("delete", "//t", "--key", '{"k": 0, "l": ""}')
    assert dodona.rows("//t") == []
    dodona.said("insert", "//t", "-", *JSON, *how, stdin=lines_of([{**null, "v": 1}]))
    for refused in (("lookup", "//t", "k=1"), ("delete", "//t", "--key", '{"k": 1}')):
        assert missing in dodona.refused(*refused)
    assert "a key needs a value for each" in dodona.refused("lookup", "//t", "[1]")
    dodona.said("delete", "//t", "-", *JSON, *how, stdin=lines_of([null]))
    assert dodona.rows("//t") == []


# ---- what is wrong, and where

ONE = '{"id":1,"balance":2}'
WRONG = [
    (
        "csv",
        "id,balance\n1,2\n2,x\n",
        "column 'balance' has type int64, but 'x' is no such value",
        2,
        None,
        1,
    ),
    ("csv", "id,balance\n1,2\n\n2,3,4\n", "a row has 3 cells, and the heading 2", 2, None, 0),
    ("csv", "id,balance\n9223372036854775808,2\n", "does not fit in int64", 1, None, 0),
    ("csv", 'id,name\n1,"x\ny"\n2,\xff\n', "a cell is not UTF-8", 2, None, 1),
    ("json", ONE + '\n\n{"id":2,"balance":"x"}\n', "column 'balance' takes an int", 2, 3, 1),
    ("json", ONE + '\n{"id":2,"nam":"x"}\n', "no such column (columns=['nam']", 2, 2, 1),
    ("json", ONE + "\n7\n", "a row must be an object, not 7 (", 2, 2, 1),
    ("json", ONE + '\n{"balance":1}\n', "missing key column 'id': give", 2, 2, 1),
    ("json", f'[{ONE},{{"balance":1}}]', "missing key column 'id': give", 2, 1, 1),
    ("csv", "balance,name\n1,x\n", "missing key column 'id': give", None, None, 0),
    ("json", ONE + '\n{"id":2}\n', "at least one column that is not a key", 2, 2, 1),
    ("json", f'[{ONE},\n\n {{"id":2,"balance":1.5}}]', "takes an int, not float", 2, 3, 1),
    ("json", ONE + '\n{"id":2,\n', "not JSON", None, 2, 1),
    ("json", f'[{ONE}\n{{"id":2}}]', "'{' is where ']' must be", None, 2, 1),
    ("json", f"[{ONE}]\n\n[", "'[' follows the array", None, 3, 1),
]


@pytest.mark.slow("many small files")
@pytest.mark.parametrize(("form", "text", "words", "row", "line", "count_before"), WRONG)
@pytest.mark.parametrize(
    "how",
    sample(["whole", "atomic", "batches", "none"], one_in=4, why="wrong rows at the command line"),
)
def test_a_row_that_is_wrong_is_named(
    bank: Commands,
    form: str,
    text: str,
    words: str,
    row: int | None,
    line: int | None,
    count_before: int,
    how: str,
) -> None:
    """Of what was to be a whole nothing is there; of batches, what came before."""
    options: list[object] = ["--input-format", form]
    if how in ("batches", "none"):
        options += ["--batch-rows", 1]
    elif how == "atomic":
        options += ["--atomic"]
    path = "//none" if how == "none" else TABLE
    if how == "none":
        bank.said("create", path, "--atomicity", "none", "--schema", ACCOUNTS)
    said = bank.refused("insert", path, "-", *options, stdin=text.encode("latin-1"))
    assert words in said
    for name, number in (("row", row), ("line", line)):
        found = re.findall(rf"\b{name}=(\d+)", said)
        assert found == ([] if number is None else [str(number)])
    written = len(bank.rows(path))
    assert f"rows_written={written})" in said
    assert written == (count_before if how in ("batches", "none") else 0)


@pytest.mark.parametrize(
    ("form", "raw", "words"),
    [
        ("csv", b"", "there is no heading"),
        ("csv", b"\xff,b\n", "the heading can't be read"),
        ("csv", b"id,nam\n", "no such column (columns=['nam']"),
        ("csv", b"id,id\n1,2\n", "two columns have the same name"),
        ("arrow", b"nonsense", "not Arrow's IPC format"),
        ("json", b"[", "not JSON"),
        ("json", b"\xff", "not JSON"),
    ],
)
def test_a_file_that_is_none_is_refused(bank: Commands, form: str, raw: bytes, words: str) -> None:
    said = bank.refused("insert", TABLE, "-", "--input-format", form, stdin=raw)
    assert words in said
    assert "rows_written=0" in said


def test_a_file_without_rows_is_fine(bank: Commands) -> None:
    for form, text in (("csv", "id,name\n"), ("json", ""), ("json", " [ ]\n")):
        for how in ((), ("--atomic",), ("--batch-rows", 5)):
            said = bank.said("insert", TABLE, "-", "--input-format", form, *how, stdin=text)
            assert said.startswith(f"0 rows inserted into {TABLE}")


def test_rows_may_go_on_in_the_next_block(bank: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a block of CSV ends: also inside of a text with lines of its own."""
    monkeypatch.setattr(csv_reading, "BLOCK_BYTES", 200)
    rows = [account(number, name=f"a\nb,{number}\n" * 5) for number in range(100)]
    lines = [f'{row["id"]},"{row["name"]}",{row["balance"]}\n' for row in rows]
    text = "id,name,balance\n" + "".join(lines)
    bank.said("insert", TABLE, "-", "--input-format", "csv", stdin=text)
    assert bank.rows() == rows
    for wrong, words in ((",,", "a row has 3 cells"), (",x", "but 'x' is no such value")):
        text = "id,balance\n" + "1,2\n" * 150 + f"7{wrong}\n" + "1,2\n" * 50
        for how in ((), ("--batch-rows", 20)):
            said = bank.refused("insert", TABLE, "-", "--input-format", "csv", *how, stdin=text)
            assert words in said
            assert "row=151," in said
    long = "id,name\n1," + "x" * 1000 + "\n"
    said = bank.refused("insert", TABLE, "-", "--input-format", "csv", stdin=long)
    assert "a row of CSV is longer than 200 bytes" in said


def test_insert_reports_a_missing_or_unusable_file(bank: Commands, tmp_path: Path) -> None:
    assert "No such file" in bank.refused("insert", TABLE, tmp_path / "none.csv")
    assert "Is a directory" in bank.refused("insert", TABLE, tmp_path, "--input-format", "csv")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    assert "not Parquet" in bank.refused("insert", TABLE, tmp_path / "x.parquet")


def arrow_file(folder: Path, **columns: Any) -> Path:
    file, table = folder / "rows.parquet", pa.table(columns)
    pyarrow.parquet.write_table(table, file)
    return file


@pytest.mark.parametrize("how", [(), ("--atomic",), ("--batch-rows", 2)])
def test_arrow_columns_that_do_not_fit_are_named(
    bank: Commands, tmp_path: Path, how: tuple[object, ...]
) -> None:
    big = pa.array([1, 2, 1 << 63], pa.uint64())
    said = bank.refused("insert", TABLE, arrow_file(tmp_path, id=[1, 2, 3], balance=big), *how)
    assert "a value does not fit in int64" in said
    assert "row=3" in said
    said = bank.refused("insert", TABLE, arrow_file(tmp_path, id=[1], balance=["x"]), *how)
    assert "column 'balance' is int64 and takes Arrow's int64, not string" in said
    assert "row=" not in said
    name = pa.array(["x"]).dictionary_encode()
    narrow = arrow_file(tmp_path, id=pa.array([1], pa.int8()), name=name)
    bank.said("insert", TABLE, narrow, *how)
    assert bank.rows()[0] == account(1, name="x", balance=None)


@pytest.mark.parametrize("how", [(), ("--atomic",)])
def test_required_columns_are_asked_for(
    dodona: Commands, tmp_path: Path, how: tuple[object, ...]
) -> None:
    dodona.said("create", "//t", "--schema", "k:int64:key:required,v:utf8:required,x:any")
    file = arrow_file(tmp_path, k=[1, 2], v=["x", None])
    said = dodona.refused("insert", "//t", file, *how)
    assert "required column is null (column='v', row=2" in said
    file = arrow_file(tmp_path, k=[1, None], v=["x", "y"])
    said = dodona.refused("insert", "//t", file, *how)
    assert "required column is null (column='k'" in said
    assert "row=2" in said
    file = arrow_file(tmp_path, k=[1, 2], v=["x", "y"], x=[b"\xc0", b"\xc1"])
    if not how:
        assert "not MessagePack" in dodona.refused("insert", "//t", file)
    said = dodona.refused("insert", "//t", "-", *JSON, *how, stdin='{"k":1,"v":"x"}\n{"k":2}')
    assert "required column is missing (column='v'" in said
    assert "row=2, line=2" in said


def test_rows_are_not_kept_in_memory(bank: Commands) -> None:
    """A part is asked for when the one before it is written."""
    asked: list[int] = []

    class Lines(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            asked.append(len(asked))
            line = lines_of([account(len(asked))]).encode() if len(asked) < 9 else b""
            buffer[: len(line)] = line
            return len(line)

    seen: list[int] = []
    with dodona_client.open(bank.folder) as db, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(Lines())))
        watching = Watching(lambda: seen.append(len(asked)))
        wanted = inserting.Bringing(
            TABLE, Path("-"), FileFormat.JSONL, "write", inserting.How.BATCHES, 2
        )
        assert inserting.bring(db, wanted, watching).row_count == 8
    assert seen[0] < 9, "the first part is written before all is read"


@pytest.mark.parametrize("form", FileFormat)
def test_progress_comes_to_what_was_said(bank: Commands, tmp_path: Path, form: FileFormat) -> None:
    file, counting = write_file(tmp_path, form, ROWS), Counting()
    with dodona_client.open(bank.folder) as db:
        wanted = inserting.Bringing(TABLE, file, form, "write", inserting.How.BATCHES, 5)
        inserting.bring(db, wanted, counting)
    (total,), (done,) = counting.totals.values(), counting.steps.values()
    match form:
        case FileFormat.PARQUET:
            assert (total, done) == (25, 25)
        case FileFormat.ARROW | FileFormat.ARROWS:
            assert (total, done) == (None, 25)
        case _:
            assert total == file.stat().st_size
            assert total * 0.8 <= done <= total


class Watching(Progress):
    def __init__(self, look: Any) -> None:
        self._look = look

    def advance(self, count: int) -> None:
        self._look()
