"""Values and errors that a caller gets are his own: asyncio, errors, and the copy itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona.aio
from dodona._core.protocol.arguments import repeatable, value_as_now
from dodona._core.protocol.context import error_of
from dodona.errors import InvalidRequest
from dodona.values import own_copy
from dodona_wire.messages.base import Failure
from dodona_wire.rows.row_code import ColumnCode, row_code


@pytest.mark.anyio
async def test_the_asyncio_client_copies_values_of_writes_and_reads(tmp_path: Path) -> None:
    schema = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "any"},
    ]
    async with await dodona.aio.open(str(tmp_path / "data")) as database:
        await database.create_table("//t", schema, mount=True)
        given = {"roles": ["user"]}
        async with database.begin(read_own_writes=True) as transaction:
            await transaction.insert_rows("//t", [{"k": 1, "v": given}])
            given["roles"].append("admin")
            (row,) = await transaction.lookup_rows("//t", [{"k": 1}])
            row["v"]["roles"].append("admin")
        (row,) = await database.lookup_rows("//t", [{"k": 1}])
        assert row["v"] == {"roles": ["user"]}
        row["v"]["roles"].append("admin")
        (row,) = await database.select("//t")
        assert row["v"] == {"roles": ["user"]}


SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "any"},
    {"name": "l", "type": "list<list<int64>>"},
]


def row(number: int) -> dict[str, Any]:
    return {"k": number, "v": {"of": [number]}, "l": [[number]]}


def spoil(given: dict[str, Any]) -> None:
    """Make another row of the same dict, in which no other list or dict is a new one."""
    given["k"] += 100
    if "v" in given:
        given["v"]["of"].append("changed")
        given["l"][0].append(0)


def one_by_one(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield given
    given["k"] += 1
    yield given


@pytest.mark.anyio
@pytest.mark.parametrize("is_known", [True, False])
async def test_rows_count_as_they_are_at_the_call_even_if_it_is_not_awaited(
    tmp_path: Path, is_known: bool
) -> None:
    """Even if the client does not know the table yet, or another write still waits for it."""
    async with await dodona.aio.open(str(tmp_path / "data")) as database:
        for path in ("//t", "//u"):
            await database.create_table(path, SCHEMA, mount=True)
        await database.insert_rows("//u", [row(number) for number in range(3)])
        if not is_known:
            database._session.routing.forget("//t")
            database._session.routing.forget("//u")
        async with database.begin() as transaction:
            given, rows, key = row(1), [row(2)], {"k": 0}
            begun = [transaction.insert_rows("//t", [given])]
            spoil(given)
            begun += [transaction.insert_rows("//t", rows)]
            spoil(rows[0])
            rows.clear()
            begun += [transaction.insert_rows("//t", iter([given := row(3)]))]
            spoil(given)
            begun += [transaction.insert_rows("//t", one_by_one(given := row(4)))]
            spoil(given)
            begun += [transaction.delete_rows("//u", [key])]
            spoil(key)
            begun += [transaction.lock_rows("//u", [key := {"k": 1}], lock_type="exclusive")]
            key["k"] = 2
            written = await database.insert_rows("//u", [row(2)])
        assert transaction.commit_timestamp is not None
        assert await database.select("//t") == [*map(row, range(1, 5)), {**row(4), "k": 5}]
        assert [it["k"] for it in await database.select("//u")] == [1, 2]
        assert written is not None
        assert len(begun) == 6


@pytest.mark.anyio
@pytest.mark.parametrize("rows", [5, "text", {"k": 1}, b"x", None])
async def test_what_is_no_list_of_rows_is_refused_awaited_or_not(tmp_path: Path, rows: Any) -> None:
    async with await dodona.aio.open(str(tmp_path / "data")) as database:
        await database.create_table("//t", SCHEMA, mount=True)
        transaction = await database.begin()
        for _ in range(2):
            database._session.routing.forget("//t")
            with pytest.raises(InvalidRequest, match="as a list of dicts"):
                await transaction.insert_rows("//t", rows)


@pytest.mark.anyio
async def test_a_change_of_the_tree_takes_the_values_of_its_call(tmp_path: Path) -> None:
    async with (
        await dodona.aio.open(str(tmp_path / "data")) as database,
        database.begin_master() as master,
    ):
        value: dict[str, Any] = {"of": [1]}
        schema = [*SCHEMA]
        begun = [
            master.create_directory("//d", attributes={"first": value}),
            master.set("//d/@second", value),
            master.create_table("//d/t", schema),
        ]
        value["of"].append("changed")
        schema.clear()
        await master.commit()
        assert await database.get("//d/@first") == await database.get("//d/@second") == {"of": [1]}
        assert len((await database.get_table("//d/t")).schema.columns) == len(begun)


def test_rows_of_a_generator_are_kept_as_they_were_when_they_came() -> None:
    rows = repeatable(one_by_one(given := row(1)))
    assert [it["k"] for it in rows] == [1, 2]
    spoil(given)
    assert list(rows) == [row(1), {**row(1), "k": 2}]


def test_a_value_that_holds_itself_is_copied_to_a_bound() -> None:
    given: list[Any] = []
    given.append(given)
    depth, copied = 0, value_as_now(given)
    while copied is not given:
        depth, copied = depth + 1, copied[0]
    assert 32 < depth < 100


def test_a_change_of_the_attributes_of_an_error_does_not_change_the_failure() -> None:
    kept = Failure("transaction_conflict", "another one won", {"key": {"k": [1]}})
    error_of(kept).attributes["key"]["k"].append("changed")
    assert kept.attributes == {"key": {"k": [1]}}


@pytest.mark.parametrize(
    "value",
    [None, True, -(1 << 63), (1 << 64) - 1, -0.0, "text", b"\xff", [], {}, [[b"", {"a": 1.0}]]],
)
def test_a_copy_is_equal_and_shares_nothing(value: Any) -> None:
    copied = own_copy(value)
    assert repr(copied) == repr(value)
    assert copied is not value or not isinstance(value, list | dict)


def test_rows_of_plain_columns_are_not_copied() -> None:
    keys = (ColumnCode("k", "int64", False),)
    plain = row_code(keys, (ColumnCode("v", "utf8", False),)).row_of
    copied = row_code(keys, (ColumnCode("v", "any", False), ColumnCode("w", "utf8", False))).row_of
    assert "own_copy" not in plain.__code__.co_names
    assert copied.__code__.co_names.count("own_copy") == 1
