"""Rows that commands print or write to files: in every format, all of them, as of one moment."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import dodona as dodona_client
from dodona.snapshot import Snapshot
from dodona_local.cli.running import RUN_AGAIN
from dodona_local.files.formats import FileFormat
from unit.cli.commands import TABLE, Commands, account, lines_of

JSON = ("--input-format", "json")
ROWS = [account(number) for number in range(1, 4)]

STRANGE = "k:string:key,u:uint64:key,d:double,t:utf8,b:string,f:boolean,x:any"
STRANGE_ROWS: list[dict[str, Any]] = [
    {
        "k": {"$base64": "/wA="},
        "u": (1 << 64) - 1,
        "d": {"$double": "NaN"},
        "t": "\u001b[31m\n",
        "b": "base64:",
        "f": True,
        "x": {"n": [1, 1.5, None, {"$base64": "AA=="}, {"$double": "-Infinity"}]},
    },
    {
        "k": "",
        "u": 1 << 53,
        "d": -0.0,
        "t": "null",
        "b": "",
        "f": False,
        "x": {"$dict": {"$dict": 1}},
    },
    {"k": None, "u": 0, "d": None, "t": None, "b": None, "f": None, "x": "null"},
]


@pytest.fixture
def full(bank: Commands) -> Commands:
    bank.said("insert", TABLE, "-", *JSON, stdin=lines_of(ROWS))
    return bank


@pytest.fixture
def strange(dodona: Commands) -> Commands:
    """Values that formats have no words of their own for."""
    dodona.said("create", "//t", "--schema", STRANGE)
    dodona.said("insert", "//t", "-", *JSON, stdin=lines_of(STRANGE_ROWS))
    return dodona


def read_back(commands: Commands, path: str) -> list[Any]:
    """What the API reads."""
    with dodona_client.open(commands.folder) as db:
        return list(db.select(path))


def test_a_table_is_for_people(full: Commands) -> None:
    assert full.said("select", TABLE) == (
        "id  name  balance\n 1  n1        100\n 2  n2        100\n 3  n3        100\n"
    )
    assert full.said("select", TABLE, "--lower", "id=9") == "id  name  balance\n"


def test_rows_are_chosen_by_key_and_by_number(full: Commands) -> None:
    assert full.rows(TABLE, "--lower", "id=2") == ROWS[1:]
    assert full.rows(TABLE, "--lower", "[2]", "--upper", '{"id": 3}') == ROWS[1:2]
    assert full.rows(TABLE, "--limit", 2) == ROWS[:2]
    assert full.rows(TABLE, "--columns", "balance, id", "--limit", 1) == [{"id": 1, "balance": 100}]
    assert "no such column: 'x'" in full.refused("select", TABLE, "--columns", "x")
    assert "no such key column" in full.refused("select", TABLE, "--lower", "name=x")
    assert "write a key as JSON, or as name=value" in full.refused("select", TABLE, "--lower", "7")


def test_commands_read_the_past_by_a_timestamp_or_a_time(full: Commands) -> None:
    before = full.said("timestamp").strip()
    full.said("delete", TABLE, "--key", "id=1")
    assert full.rows() == ROWS[1:]
    assert full.rows(TABLE, "--timestamp", before) == ROWS
    assert "id" not in full.said("lookup", TABLE, "id=1", "--format", "json")
    assert full.said("lookup", TABLE, "id=1", "--format", "json", "--timestamp", before)
    counted = full.said("query", f"select count(*) n from [{TABLE}]", "--timestamp", before)
    assert counted.split() == ["n", "3"]
    time = full.elsewhere("timestamp", "show", before).strip()
    assert abs(int(full.elsewhere("timestamp", "at", time)) - int(before)) < 1 << 30
    assert "not a time such as" in full.refused("select", TABLE, "--timestamp", "yesterday")
    assert full.rows(TABLE, "--timestamp", "2001-01-01T00:00:00Z") == []


def readings(full: Commands) -> list[list[str]]:
    """Every command that takes a timestamp, without it."""
    folder = full.folder.parent
    return [
        ["lookup", TABLE, "id=1", "--timestamp"],
        ["select", TABLE, "--timestamp"],
        ["query", f"select * from [{TABLE}]", "--timestamp"],
        ["export", TABLE, str(folder / "rows.csv"), "--timestamp"],
        ["backup", str(folder / "saved"), "--timestamp"],
        ["versions", TABLE, "id=1", "--below"],
    ]


def test_a_timestamp_of_nothing_is_not_the_newest(full: Commands) -> None:
    """A script whose variable was never set reads nothing, and no other state."""
    for words in readings(full):
        assert "timestamp" in full.refused(*words, "0")
        assert "not a time such as" in full.refused(*words, "")
    assert full.said("versions", TABLE, "id=1", "--since", "0")
    assert "not a time such as" in full.refused("versions", TABLE, "id=1", "--since", "")
    assert "not JSON" in full.refused("reshard", TABLE, "--pivot-keys", "", "--tablet-count", "2")


@pytest.mark.parametrize(
    ("number", "moment", "day"),
    [
        ("1", "1970-01-01 00:00:00", "2026-07-01"),
        ("20260314", "1970-01-01 00:00:00", "2026-03-14"),
        ("20260314235959", "1970-01-01 05:14:28", "2026-03-14"),
        ("1784010100", "1970-01-01 00:00:01", "2026-07-01"),
        ("1782864000000000", "1970-01-20 05:13:41", "2026-07-01"),
    ],
)
def test_a_number_that_means_another_time_is_refused(
    full: Commands, number: str, moment: str, day: str
) -> None:
    since = ["versions", TABLE, "id=1", "--since"]
    for words in [*readings(full), since]:
        said = full.refused(*words, number)
        assert f"No oracle issued timestamp {number} (its time is {moment})." in said
        assert f"Write a time with a time zone, such as {day}T00:00:00Z." in said


def test_a_backup_accepts_a_time_for_its_timestamp(full: Commands) -> None:
    saved = full.folder.parent / "saved"
    assert "2001-01-01" in full.said("backup", saved, "--timestamp", "2001-01-01T00:00:00Z")


def test_lookup_keeps_the_order_of_keys_and_refuses_invalid_keys(full: Commands) -> None:
    said = full.said("lookup", TABLE, "id=3", '{"id": 1}', "[99]", "[2]", "--format", "json")
    assert [json.loads(line)["id"] for line in said.splitlines()] == [3, 1, 2]
    assert (
        full.said("lookup", TABLE, "id=2", "--columns", "name", "--format", "csv")
        == '"name"\n"n2"\n'
    )
    for key, words in (
        ("id=x", "column 'id' has type int64, but 'x' is no such value"),
        ("id=1,id=2", "name each column of a key once"),
        ("id=1,name=x", "no such key column (columns=['name']"),
        ("[]", "a key needs a value for each key column"),
        ('{"id": "1"}', "takes an int, not str"),
        ("{", "a key is not JSON"),
    ):
        assert words in full.refused("lookup", TABLE, key)


def test_versions_are_printed_in_pages(full: Commands) -> None:
    full.said("delete", TABLE, "--key", "id=1")
    asked = ("versions", TABLE, "id=1", "--format", "json")
    deleted, written = [json.loads(line) for line in full.said(*asked).splitlines()]
    assert [it["$change_type"] for it in (deleted, written)] == ["delete", "write"]
    assert {**written, "$timestamp": 0} == {
        "$timestamp": 0,
        "$change_type": "write",
        "$columns": "name,balance",
        **ROWS[0],
    }
    assert (deleted["id"], deleted["name"], deleted["$columns"]) == (1, None, "")
    page = full.run(*asked, "--limit", 1, "--columns", "id")
    assert [json.loads(it)["$change_type"] for it in page.stdout.splitlines()] == ["delete"]
    assert f"go on with --below {deleted['$timestamp']}" in page.stderr
    older = full.said(*asked, "--limit", 1, "--below", deleted["$timestamp"])
    assert json.loads(older.splitlines()[0]) == written
    later = full.said(*asked, "--since", written["$timestamp"])
    assert [json.loads(it) for it in later.splitlines()] == [deleted]
    assert full.said(*asked, "--since", deleted["$timestamp"]) == ""
    assert "no such column: 'x'" in full.refused("versions", TABLE, "id=1", "--columns", "x")


def test_output_formats_write_unusual_values_without_loss(strange: Commands) -> None:
    by_key = sorted(STRANGE_ROWS, key=lambda row: [None, "", {"$base64": "/wA="}].index(row["k"]))
    assert json.dumps(strange.rows("//t")) == json.dumps(by_key)
    text = strange.said("select", "//t", "--format", "csv")
    *_, last = csv.DictReader(io.StringIO(text))
    assert (last["k"], last["u"], last["d"], last["b"]) == (
        *("base64:/wA=", str((1 << 64) - 1), "nan"),
        "base64:YmFzZTY0Og==",
    )
    assert json.loads(last["x"]) == STRANGE_ROWS[0]["x"]
    first, second = text.splitlines()[1:3]
    assert first == ',0,,,,,"""null"""'
    assert second.startswith('"",9007199254740992,-0,"null","",false,')
    table = strange.said("select", "//t")
    assert "\u001b" not in table
    assert "\\u001b[31m\\n" in table
    assert table.splitlines()[1].split() == ["null", "0", *["null"] * 4, '"null"']
    raw = strange.run("select", "//t", "--format", "arrow").stdout_bytes
    found = pa.ipc.open_stream(raw).read_all()
    with dodona_client.open(strange.folder) as db:
        assert str(found.to_pylist()) == str(db.read_arrow("//t").to_pylist())


@pytest.mark.parametrize("form", FileFormat)
def test_what_is_exported_can_be_inserted(
    strange: Commands, tmp_path: Path, form: FileFormat
) -> None:
    before = read_back(strange, "//t")
    file = tmp_path / f"rows.{form}"
    said = strange.said("export", "//t", file)
    assert said.startswith("3 rows of //t as of timestamp ")
    for how in ((), ("--atomic",), ("--batch-rows", 1)):
        strange.said("create", f"//copy{len(how)}", "--schema", STRANGE)
        strange.said("insert", f"//copy{len(how)}", file, *how)
        assert str(read_back(strange, f"//copy{len(how)}")) == str(before)
        strange.said("remove", f"//copy{len(how)}")


def test_an_export_reads_at_the_given_timestamp(full: Commands, tmp_path: Path) -> None:
    before = full.said("timestamp").strip()
    full.said("delete", TABLE, "--key", "id=1")
    words = ("--timestamp", before, "--columns", "id", "--upper", "[3]")
    full.said("export", TABLE, tmp_path / "x.parquet", *words)
    found = pa.parquet.read_table(tmp_path / "x.parquet")
    assert found.to_pydict() == {"id": [1, 2]}


def test_a_file_that_is_there_stays(full: Commands, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("mine")
    assert "exists already" in full.refused("export", TABLE, file)
    assert file.read_text() == "mine"
    full.said("export", TABLE, file, "--overwrite")
    assert file.read_text().startswith('"id"')
    assert [it.name for it in tmp_path.iterdir() if it.is_file()] == ["x.csv"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_no_half_file_is_left(
    full: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    seen: list[list[str]] = []
    read_batches = Snapshot.read_batches

    def break_off(self: Snapshot, *words: Any) -> Any:
        yield from read_batches(self, *words)
        seen.append(sorted(it.name for it in tmp_path.iterdir() if it.is_file()))
        raise error

    monkeypatch.setattr(Snapshot, "read_batches", break_off)
    (tmp_path / "old.csv").write_text("mine")
    for name in ("new.csv", "old.csv"):
        is_interrupted = isinstance(error, KeyboardInterrupt)
        code = 130 if is_interrupted else RUN_AGAIN
        done = full.run("export", TABLE, tmp_path / name, "--overwrite", code=code)
        words = "" if is_interrupted else f"dodona: the disk of {tmp_path / name} is full: "
        assert done.stderr.startswith(words)
    assert any("unfinished" in name for names in seen for name in names)
    assert [it.name for it in tmp_path.iterdir() if it.is_file()] == ["old.csv"]
    assert (tmp_path / "old.csv").read_text() == "mine"


def test_a_place_for_a_file_has_to_be_there(full: Commands, tmp_path: Path) -> None:
    said = full.refused("export", TABLE, tmp_path / "none" / "x.csv")
    assert "can't be written: No such file or directory" in said
    assert "give --output-format" in full.refused("export", TABLE, tmp_path / "x.txt")
    full.said("export", TABLE, tmp_path / "x.txt", "--output-format", "jsonl")
    assert [json.loads(it) for it in (tmp_path / "x.txt").read_text().splitlines()] == ROWS


def test_a_query_is_printed_in_any_format(full: Commands) -> None:
    counted = "count(*) n, sum(id) s, list(name order by id) l"
    sql = f"select balance, {counted} from [{TABLE}] group by all"
    assert full.said("query", sql) == 'balance  n  s  l\n    100  3  6  ["n1","n2","n3"]\n'
    assert full.value("query", sql) == {"balance": 100, "n": 3, "s": 6, "l": ["n1", "n2", "n3"]}
    said = full.said("query", "-", "--format", "csv", stdin=sql)
    assert said == '"balance","n","s","l"\n100,3,6,"[""n1"",""n2"",""n3""]"\n'
    raw = full.run("query", sql, "--format", "arrow").stdout_bytes
    assert pa.ipc.open_stream(raw).read_all().column("n").to_pylist() == [3]


def test_query_prints_duckdb_values_of_many_types(full: Commands) -> None:
    sql = """select 'a'::blob b, '\\xFF'::blob c, 1.10::decimal(9,2) d,
      'nan'::double n, 'inf'::float f, timestamp '2026-01-02 03:04:05.5' t, date '2026-01-02' e,
      interval '1 day 1.5 seconds' i, [1, null] l, [interval 2 hour] j,
      {'a': 'x'::blob, 'b': 'nan'::double, 'd': date '2026-01-02', 'e': 1.10::decimal(9,2)} s,
      map {'k': 1} m, 170141183460469231731687303715884105727::hugeint h, null z"""
    assert full.value("query", sql) == {
        "b": "a",
        "c": {"$base64": "/w=="},
        "d": 1.10,
        "n": {"$double": "NaN"},
        "f": {"$double": "Infinity"},
        "t": "2026-01-02 03:04:05.500000",
        "e": "2026-01-02",
        "i": "P1DT1.5S",
        "l": [1, None],
        "j": ["PT7200S"],
        "s": {"a": {"$base64": "eA=="}, "b": {"$double": "NaN"}, "d": "2026-01-02", "e": 1.10},
        "m": [["k", 1]],
        "h": (1 << 127) - 1,
        "z": None,
    }
    for form in ("table", "csv", "arrow"):
        full.run("query", sql, "--format", form)


def test_a_column_that_would_hide_another_is_refused(full: Commands) -> None:
    sql = "select 1 as a, 2 as a"
    assert full.said("query", sql, "--format", "csv") == '"a","a"\n1,2\n'
    assert "two columns have the same name" in full.refused("query", sql, "--format", "json")


def test_a_query_takes_text_and_json_as_parameters(full: Commands) -> None:
    sql = f"select id from [{TABLE}] where name = $name or id in $ids order by id"
    given = ["--param", "name=n1", "--param-json", "ids=[3, null]"]
    assert full.said("query", sql, *given, "--format", "csv") == '"id"\n1\n3\n'
    sql = "select $a as a, $b as b, $c as c, $d as d, $e as e"
    given = ["--param", "a=1=' or", "--param", "$b=", "--param-json", 'c={"$base64": "/w=="}']
    given += ["--param-json", "d=null", "--param-json", 'e={"$double": "Infinity"}']
    found = full.value("query", sql, *given)
    assert found == {
        "a": "1=' or",
        "b": "",
        "c": {"$base64": "/w=="},
        "d": None,
        "e": {"$double": "Infinity"},
    }
    given = ["--param-json", 'o={"ids": [1, 18446744073709551615], "raw": {"$base64": "/w=="}}']
    found = full.value("query", "select $o as o, $o.ids[2] as n", *given)
    assert found == {"o": {"ids": [1, 2**64 - 1], "raw": {"$base64": "/w=="}}, "n": 2**64 - 1}
    in_order = ("--param", "1=2", "--param-json", "2=3")
    found = full.value("query", f"select id from [{TABLE}] where id = ? limit ?", *in_order)
    assert found == {"id": 2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "No value was given for the parameter $id"),
        (("--param", "ids=1"), "Did you mean 'id' instead of 'ids'"),
        (("--param", "id"), "write --param name=value, not 'id'"),
        (("--param-json", "=1"), "write --param-json name=value, not '=1'"),
        (("--param", "id=1", "--param-json", "id=1"), "the parameter id is given twice"),
        (("--param-json", "id=one"), "the parameter id is not JSON"),
        (("--param-json", 'id={"a": 1}'), "In SQL a dict is a STRUCT or a MAP: $id."),
        (("--param-json", 'id=[{"a": 1}, {"b": 1}]'), "Parameter id[…] has dicts with different"),
        (("--param-json", 'id={"$base64": "?"}'), "is not base64"),
        (("--param", "id=one"), "The parameter id is the str 'one'"),
    ],
)
def test_a_bad_parameter_is_refused_with_its_name(
    full: Commands, words: tuple[str, ...], message: str
) -> None:
    sql = f"select id from [{TABLE}] where id = $id"
    assert message in full.run("query", sql, *words, code=1).stderr


def test_an_invalid_query_is_refused_with_the_reason(full: Commands) -> None:
    assert "SELECT" in full.refused("query", "drop table x")
    assert "There is no table //none" in full.refused("query", "select * from [//none]")
