"""The isolation of transactions by the settings of the tables that they read, in each API."""

import asyncio
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from unit.client.cluster import PATH, SCHEMA

OTHER = "//bank/other"
VALUES: tuple[Any, ...] = (None, "snapshot", "serializable")
CASES = [
    pytest.param(*case, id=" ".join(map(str, case))) for case in product(VALUES, VALUES, VALUES)
]
"""The isolation that a call says, of the table, and of the client."""


def is_validated(asked: Any, of_table: Any, default: Any) -> bool:
    """The call counts more than the table, and the table more than the client."""
    given = [it for it in (asked, of_table, default) if it is not None]
    return given[:1] == ["serializable"]


def recorded(transaction: Any) -> list[str]:
    """The tables whose reads the commit has validated."""
    return sorted(transaction._buffer.validated)


def read_both(transaction: dodona.Transaction) -> list[str]:
    transaction.lookup_rows(PATH, [{"id": 1}])
    transaction.select(OTHER)
    return recorded(transaction)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "data") as client:
        client.create_table(PATH, SCHEMA, mount=True)
        client.create_table(OTHER, SCHEMA, mount=True)
        yield client


@pytest.mark.parametrize(("asked", "of_table", "default"), CASES)
def test_a_call_counts_more_than_a_table_and_a_table_more_than_the_client(
    tmp_path: Path, asked: Any, of_table: Any, default: Any
) -> None:
    expected = [PATH] if is_validated(asked, of_table, default) else []
    with dodona.open(tmp_path / "data", isolation=default) as db:
        db.create_table(PATH, SCHEMA, mount=True, attributes={"isolation": of_table})

        def read(transaction: dodona.Transaction) -> list[str]:
            transaction.select(PATH)
            return recorded(transaction)

        with db.begin(isolation=asked) as transaction:
            assert read(transaction) == expected
        assert db.run_in_transaction(read, isolation=asked) == expected


@pytest.mark.parametrize(("asked", "of_table", "default"), CASES)
def test_asyncio_has_the_same_order(
    tmp_path: Path, asked: Any, of_table: Any, default: Any
) -> None:
    expected = [PATH] if is_validated(asked, of_table, default) else []

    async def read(transaction: dodona.aio.AsyncTransaction) -> list[str]:
        await transaction.select(PATH)
        return recorded(transaction)

    async def main() -> None:
        async with await dodona.aio.open(tmp_path / "data", isolation=default) as db:
            await db.create_table(PATH, SCHEMA, mount=True, attributes={"isolation": of_table})
            async with db.begin(isolation=asked) as transaction:
                assert await read(transaction) == expected
            assert await db.run_in_transaction(read, isolation=asked) == expected

    asyncio.run(main())


def test_each_table_that_a_transaction_reads_has_its_own_isolation(db: dodona.Client) -> None:
    db.set(f"{PATH}/@isolation", "serializable")
    assert db.run_in_transaction(read_both) == [PATH]
    assert db.run_in_transaction(read_both, isolation="snapshot") == []
    assert db.run_in_transaction(read_both, isolation="serializable") == [PATH, OTHER]


def test_a_change_by_this_client_is_in_force_from_its_next_read_on(db: dodona.Client) -> None:
    assert db.run_in_transaction(read_both) == []
    for value, expected in (("serializable", [OTHER]), ("snapshot", []), (None, [])):
        db.set(f"{OTHER}/@isolation", value)
        assert db.get_table(OTHER).is_mounted
        assert db.run_in_transaction(read_both) == expected


def test_a_change_in_a_master_transaction_is_in_force_after_its_commit(db: dodona.Client) -> None:
    with db.begin_master() as tree:
        tree.set(f"{OTHER}/@isolation", "serializable")
        assert db.run_in_transaction(read_both) == []
    assert db.run_in_transaction(read_both) == [OTHER]


def test_moved_and_copied_tables_keep_the_isolation_of_their_readers(db: dodona.Client) -> None:
    db.set(f"{OTHER}/@isolation", "serializable")
    db.unmount_table(OTHER)
    db.copy(OTHER, "//copy")
    db.move(OTHER, "//moved")
    db.mount_table("//copy")
    db.mount_table("//moved")
    with db.begin() as transaction:
        for path in ("//copy", "//moved", PATH):
            transaction.select(path)
        assert recorded(transaction) == ["//copy", "//moved"]


def test_queries_and_arrow_reads_go_by_the_setting(db: dodona.Client) -> None:
    db.set(f"{OTHER}/@isolation", "serializable")
    with db.begin() as transaction:
        transaction.read_arrow(OTHER)
        assert recorded(transaction) == [OTHER]
    with db.begin() as transaction:
        transaction.query(f"select id from [{OTHER}] union all select id from [{PATH}]")
        assert recorded(transaction) == [OTHER]
