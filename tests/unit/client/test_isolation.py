"""The isolation of transactions in each API: where it is given, and what of it is refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona.errors import InvalidRequest
from unit.client.cluster import PATH, SCHEMA, FakeCluster

BAD: list[Any] = ["linearizable", "", "Serializable", 1, True, b"snapshot", ["snapshot"]]
NAMED = 'isolation is "snapshot" or "serializable"'
VALUES: list[Any] = [None, "snapshot", "serializable"]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "data") as client:
        client.create_table(PATH, SCHEMA, mount=True)
        yield client


def recorded(transaction: Any) -> list[str]:
    """The paths of the tables of which something is recorded."""
    return [path for path, it in transaction._buffer.validated.items() if it.count]


@pytest.mark.parametrize("asked", VALUES)
@pytest.mark.parametrize("default", VALUES)
def test_a_client_has_a_default(tmp_path: Path, asked: Any, default: Any) -> None:
    expected = [PATH] if (asked or default) == "serializable" else []
    with dodona.open(tmp_path / "data", isolation=default) as db:
        db.create_table(PATH, SCHEMA, mount=True)
        with db.begin(isolation=asked) as transaction:
            transaction.lookup_rows(PATH, [{"id": 1}])
            assert transaction.isolation == asked
            assert recorded(transaction) == expected

        def read(transaction: dodona.Transaction) -> tuple[Any, list[str]]:
            transaction.select(PATH)
            return transaction.isolation, recorded(transaction)

        assert db.run_in_transaction(read, isolation=asked) == (asked, expected)


@pytest.mark.parametrize("asked", VALUES)
def test_asyncio_has_the_same(tmp_path: Path, asked: Any) -> None:
    async def main() -> None:
        async with await dodona.aio.open(tmp_path / "data", isolation="serializable") as db:
            await db.create_table(PATH, SCHEMA, mount=True)
            async with db.begin(isolation=asked) as transaction:
                await transaction.lookup_rows(PATH, [{"id": 1}])
                assert transaction.isolation == asked
                assert recorded(transaction) == ([] if asked == "snapshot" else [PATH])

            async def read(transaction: dodona.aio.AsyncTransaction) -> list[str]:
                await transaction.select(PATH)
                return recorded(transaction)

            found = await db.run_in_transaction(read, isolation=asked)
            assert found == ([] if asked == "snapshot" else [PATH])

    asyncio.run(main())


def test_clients_of_a_cluster_have_the_same(cluster: FakeCluster) -> None:
    with dodona.connect(cluster.url, isolation="serializable") as db:
        db.create_table(PATH, SCHEMA)
        with db.begin() as transaction:
            transaction.select(PATH)
            assert recorded(transaction) == [PATH]

    async def main() -> None:
        opening = dodona.aio.connect(cluster.url, isolation="serializable")
        async with await opening as db, db.begin() as transaction:
            await transaction.select(PATH)
            assert recorded(transaction) == [PATH]

    asyncio.run(main())


def test_all_reads_of_a_transaction_are_recorded(db: dodona.Client) -> None:
    reads: list[Any] = [
        lambda tx: tx.lookup_rows(PATH, [{"id": 1}]),
        lambda tx: tx.lookup_versions(PATH, [{"id": 1}]),
        lambda tx: tx.select(PATH, [1], [2]),
        lambda tx: tx.read_arrow(PATH),
        lambda tx: tx.query(f"select count(*) from [{PATH}] where id between 3 and 9"),
    ]
    for read in reads:
        transaction = db.begin(isolation="serializable")
        read(transaction)
        assert recorded(transaction) == [PATH]
        transaction.abort()


def test_a_query_records_the_ranges_that_it_reads(db: dodona.Client) -> None:
    transaction = db.begin(isolation="serializable")
    transaction.query(f"select balance from [{PATH}] where id >= 3 and id <= 9")
    transaction.query(f"select 1 from [{PATH}] where id = 20")
    reads = transaction._buffer.reads
    assert reads is not None
    table = reads.tables[PATH]
    low, high, one, next_one = (table.schema.bound_of([it]) for it in (3, 10, 20, 21))
    assert table.ranges == {(low, high): 1, (one, next_one): 1}
    transaction.abort()


@pytest.mark.parametrize("bad", BAD)
def test_other_values_are_refused_with_the_two_that_there_are(
    db: dodona.Client, tmp_path: Path, bad: Any
) -> None:
    calls: list[Any] = [
        lambda: db.begin(isolation=bad),
        lambda: db.run_in_transaction(lambda transaction: None, isolation=bad),
        lambda: dodona.open(tmp_path / "other", isolation=bad),
        lambda: dodona.connect("http://127.0.0.1:1", isolation=bad),
        lambda: asyncio.run(_opened(tmp_path / "third", bad)),
    ]
    for call in calls:
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert NAMED in caught.value.message


async def _opened(path: Path, isolation: Any) -> None:
    await dodona.aio.open(path, isolation=isolation)


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_transaction_without_atomicity_has_no_isolation(
    db: dodona.Client, isolation: Any
) -> None:
    with pytest.raises(InvalidRequest, match="atomicity none"):
        db.begin("none", isolation=isolation)
    db.begin("none").abort()
