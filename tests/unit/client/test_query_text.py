"""The text of a query: which tables it names, and what it must not be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona._core.sql.references import find_tables
from dodona.errors import InvalidRequest, TableNotFound


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(str(tmp_path / "data")) as db:
        key = {"name": "k", "type": "int64", "sort_order": "ascending"}
        db.create_table("//a/t", [key, {"name": "v", "type": "utf8"}], mount=True)
        db.insert_rows("//a/t", [{"k": 1, "v": "one"}, {"k": 2, "v": "two"}])
        yield db


# ---- references


def test_each_table_is_found_once_and_the_length_stays() -> None:
    text = "select * from [//b] x join [//a/t] y using (k) join[//b]z using(k)"
    paths, quoted = find_tables(text)
    assert paths == ["//b", "//a/t"]
    assert quoted == text.replace("[//", '"//').replace("b]", 'b"').replace("t]", 't"')
    assert len(quoted) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "select '[//a]'",
        "select 'it''s [//a]'",
        r"select 'no escape \', [1][1]",
        r"select e'it\'s [//a]'",
        r"select E'\\', '[//a]'",
        'select 1 as "[//a]"',
        'select 1 as "x""[//a]"',
        "select 1 -- [//a]",
        "select 1 /* [//a] */",
        "select 1 /* /* */ [//a] */",
        "select $$it's [//a]$$",
        "select $x$ $$ [//a] $x$",
        "select [1, 2][1]",
        "select 'unended [//a]",
        'select "unended [//a]',
        "select /* unended [//a]",
        "select $$unended [//a]",
        "select [//a",
        "select [ //a]",
    ],
)
def test_text_that_is_no_table_reference_stays_unchanged(text: str) -> None:
    assert find_tables(text) == ([], text)


@pytest.mark.parametrize(
    "text",
    [
        "select '' from [//a]",
        r"select '\' from [//a]",
        r"select e'\'' from [//a]",
        "select some'text' from [//a]",
        "select 1 -- comment\nfrom [//a]",
        "select 1 /* /* */ */ from [//a]",
        "select 4 / 2 - -1 from [//a]",
        "select [1][1], x$y$z from [//a]",
        "select [[//a].k]",
        "[//a]",
    ],
)
def test_a_reference_is_found_behind(text: str) -> None:
    assert find_tables(text) == (["//a"], text.replace("[//a]", '"//a"'))


def test_brackets_in_strings_and_comments_are_no_tables(db: dodona.Client) -> None:
    found = db.query(
        "select '[//nowhere]' as s, [k, 7][2] as \"[//x]\" /* [//y] */ from [//a/t] -- [//z]\n"
        "where k = 1"
    )
    assert found.to_pylist() == [{"s": "[//nowhere]", "[//x]": 7}]


# ---- refusals


def test_a_table_that_is_not_there(db: dodona.Client) -> None:
    with pytest.raises(TableNotFound) as caught:
        db.query("select * from [//a/t] join [//a/u] using (k)")
    assert caught.value.attributes["path"] == "//a/u"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("selec 1", 'syntax error at or near "selec"'),
        ("select nothing from [//a/t]", '"nothing" not found'),
        ("select t.k from [//a/t] u", "t"),
        ("select * from [//a/t] where k = 'text'", "text"),
        ("select v::bigint from [//a/t]", "Could not convert string 'one'"),
        ("select * from [//a/t] where", "syntax error"),
        ("select k, count(*) from [//a/t]", "GROUP BY"),
        ("select ?", "No value was given for the parameter $1"),
        ("select * from a", "a does not exist"),
        ("select 'unended", "unterminated"),
    ],
)
def test_invalid_sql_is_refused_with_the_message_of_duckdb(
    db: dodona.Client, text: str, message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        db.query(text)
    assert message in caught.value.message
    assert "explain" not in caught.value.message.lower()


def test_a_message_points_at_the_place_in_the_callers_text(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest) as caught:
        db.query("select k, nothing from [//a/t]")
    *_, line, marker = caught.value.message.splitlines()
    assert line[marker.index("^") :].startswith("nothing")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "-- nothing",
        "select 1; select 2",
        "select 1; drop view [//a/t]",
        "insert into [//a/t] values (3, 'three')",
        "delete from [//a/t]",
        "with x as (delete from [//a/t] returning *) select * from x",
        "with x as (insert into [//a/t] values (3, 'x') returning *) select * from x",
        "update [//a/t] set v = 'x'",
        "create table x as select * from [//a/t]",
        "copy [//a/t] to 'out.csv'",
        "copy (select 1) to 'out.csv'",
        "export database 'out'",
        "attach 'other.db'",
        "install httpfs",
        "load httpfs",
        "pragma version",
        "set threads = 8",
        "set enable_external_access = true",
        "reset threads",
        "call pragma_version()",
        "explain select 1",
        "describe [//a/t]",
        "summarize [//a/t]",
        "show tables",
        "use memory",
        "checkpoint",
        "begin",
        "prepare x as select 1",
        "pivot [//a/t] on v using count(*)",
        "select * from (describe [//a/t])",
    ],
)
def test_only_one_select_is_run(db: dodona.Client, text: str) -> None:
    with pytest.raises(InvalidRequest, match="one SELECT statement"):
        db.query(text)


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_csv('data.csv')",
        "select * from read_text('data.csv')",
        "select * from READ_BLOB('data.csv')",
        "select * from main.read_parquet('data.parquet')",
        "select * from glob('*')",
        "select * from sniff_csv('data.csv')",
        "select * from query('select 1')",
        "select * from query_table('x')",
        "select * from duckdb_settings()",
        "select * from enable_logging()",
        "select * from enable_profiling()",
        "select * from pandas_scan(1)",
        "select * from arrow_scan(1, 2, 3)",
        "select (select content from read_text('data.csv'))",
        "with x as (from read_json('data.json')) from x",
        "select 1 where exists (from read_csv('data.csv'))",
    ],
)
def test_table_functions_that_reach_outside_are_refused(db: dodona.Client, text: str) -> None:
    with pytest.raises(InvalidRequest, match="can't call the table function"):
        db.query(text)


def test_files_and_the_callers_variables_are_not_seen(db: dodona.Client, tmp_path: Path) -> None:
    import pyarrow

    data = tmp_path / "data.csv"
    data.write_text("secret\n1\n")
    mine = pyarrow.table({"secret": [1]})
    for name in (f"'{data}'", f'"{data}"', "mine", "main.mine"):
        with pytest.raises(InvalidRequest, match=r"does not exist|operations are disabled"):
            db.query(f"select * from {name}")
    assert mine.num_rows == 1


def test_a_query_leaves_nothing_behind(db: dodona.Client) -> None:
    text = "select current_setting('lock_configuration') as is_locked, * from [//a/t]"
    for _ in range(2):
        assert db.query(text).to_pylist()[0]["is_locked"] is True
    with pytest.raises(InvalidRequest, match="does not exist"):
        db.query('select * from "//a/t"')


def test_deep_nesting_is_an_error_and_not_a_crash(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest):
        db.query(f"select {'(' * 20_000}1{')' * 20_000}")
    with pytest.raises(InvalidRequest):
        db.query(f"select {'- ' * 5_000}1")


def test_a_query_is_text(db: dodona.Client) -> None:
    with pytest.raises(InvalidRequest, match="a query is a str, not bytes"):
        db.query(b"select 1")  # type: ignore[arg-type]
