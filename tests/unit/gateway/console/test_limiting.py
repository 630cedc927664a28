"""The first rows of queries, whatever their texts end in, by the engine that runs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona.errors import InvalidRequest
from dodona_gateway.shell.console import limiting
from dodona_gateway.shell.console.limiting import limit_rows

SCHEMA = [{"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "v", "type": "utf8"}]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    folder: Path = tmp_path_factory.mktemp("limits")
    with dodona.open(folder / "db") as database:
        database.create_table("//t", SCHEMA, mount=True)
        database.insert_rows("//t", [{"id": it, "v": f"; {it}"} for it in range(20)])
        yield database


@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("select * from [//t]", [0, 1, 2]),
        ("from [//t]", [0, 1, 2]),
        ("select * from [//t];", [0, 1, 2]),
        ("select * from [//t] ;; \n", [0, 1, 2]),
        ("select * from [//t] -- all of it", [0, 1, 2]),
        ("select * from [//t]; -- all of it", [0, 1, 2]),
        ("select * from [//t] /* all; of */", [0, 1, 2]),
        ("select id from [//t] order by id desc", [19, 18, 17]),
        ("select id from [//t] order by id desc limit 5", [19, 18, 17]),
        ("select id from [//t] limit 2", [0, 1]),
        ("select id from [//t] limit 9 offset 4 -- x", [4, 5, 6]),
        ("select id from [//t] limit 9; -- x", [0, 1, 2]),
        ("with x as (select id from [//t]) select * from x", [0, 1, 2]),
        ("values (1), (2), (3), (4)", [1, 2, 3]),
        ("select 1 union all select 2", [1, 2]),
        ("select id from [//t] where v = '; 7'", [7]),
        ("select id, v, id from [//t]", [0, 1, 2]),
    ],
)
def test_a_limited_query_returns_its_first_rows(
    sql: str, ids: list[int], db: dodona.Client
) -> None:
    limited = limit_rows(sql, 3)
    found, whole = db.query(limited), db.query(sql)
    assert found.column(0).to_pylist() == ids
    assert found.column_names == whole.column_names
    assert found.schema.types == whole.schema.types


@pytest.mark.parametrize(
    "sql",
    [
        "drop table x",
        "selec 1",
        "select 1; select 2",
        "select 1 as",
        "select (1",
        "select 1 /*",
        "select 1) union all (select 2",
        "select * from [//t] join [//T]",
        "select * from read_csv('x')",
        "",
    ],
)
def test_text_that_is_no_valid_query_stays_unchanged(sql: str, db: dodona.Client) -> None:
    assert limit_rows(sql, 3) == sql
    with pytest.raises(InvalidRequest):
        db.query(sql)


def test_a_query_longer_than_the_text_limit_stays_unchanged() -> None:
    sql = f"select 1 -- {'x' * limiting.TEXT_LENGTH_MAX}"
    assert limit_rows(sql, 3) == sql
