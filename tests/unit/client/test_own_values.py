"""Values and errors that a caller gets are his own: asyncio, errors, and the copy itself."""

from pathlib import Path
from typing import Any

import pytest

import dodona.aio
from dodona._core.protocol.context import error_of
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
