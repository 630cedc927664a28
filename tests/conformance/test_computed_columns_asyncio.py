"""Computed key columns through the asyncio API: rows and keys without them, and wrong values.

Owns: that the asyncio API computes and checks as the blocking one does, whose promises are in
test_computed_columns.py. The simulator has no event loop, so there are two back ends here.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

import dodona.aio
from conformance.tables import KEY, Row, Schema
from dodona.errors import SchemaViolation, TransactionConflict
from dodona_wire.expressions.farm_hash import farm_hash

pytestmark = pytest.mark.anyio

HASHED: Final[Schema] = [
    {**KEY, "name": "h", "type": "uint64", "expression": "farm_hash(k) % 100"},
    KEY,
    {"name": "v", "type": "int64"},
]
PIVOTS: Final[list[list[Any]]] = [[], [25], [50], [75]]


def hashed(k: int, v: int | None) -> Row:
    return {"h": farm_hash(k) % 100, "k": k, "v": v}


def wrong(k: int) -> Row:
    return {**hashed(k, 1), "h": (farm_hash(k) + 1) % 100}


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda it: (it["h"], it["k"]))


@pytest.fixture(params=["embedded", pytest.param("processes", marks=pytest.mark.integration)])
async def db(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[dodona.aio.AsyncClient]:
    if request.param == "embedded":
        opened = dodona.aio.open(tmp_path / "db")
    else:
        opened = dodona.aio.connect(request.getfixturevalue("processes").url)
    async with await opened as client:
        yield client


@pytest.fixture
async def path(db: dodona.aio.AsyncClient, new_path: str) -> str:
    await db.create_table(new_path, HASHED, pivot_keys=PIVOTS, mount=True)
    return new_path


async def test_rows_and_keys_leave_out_the_computed_column(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    await asyncio.gather(*[db.insert_rows(path, [{"k": k, "v": k}]) for k in range(20)])
    assert list(await db.select(path)) == in_order([hashed(k, k) for k in range(20)])
    assert await db.lookup_rows(path, [{"k": 70}, {"k": 8}, {"k": 7}]) == [
        hashed(8, 8),
        hashed(7, 7),
    ]
    await db.insert_rows(path, [{**row, "v": 50} for row in await db.lookup_rows(path, [{"k": 3}])])
    (versions,) = await db.lookup_versions(path, [{"k": 3}])
    assert versions.key == {"h": farm_hash(3) % 100, "k": 3}
    await db.delete_rows(path, [{"k": k} for k in range(4, 20)])
    text = f"select k, v from [{path}] where h = farm_hash(k) % 100 order by k"
    found = (await db.query(text)).to_pylist()
    assert found == [{"k": k, "v": v} for k, v in enumerate([0, 1, 2, 50])]
    found = (await db.query(f"select v from [{path}] where k in $ks", {"ks": [3, 60]})).to_pylist()
    assert found == [{"v": 50}]


async def test_a_transaction_finds_its_own_rows(db: dodona.aio.AsyncClient, path: str) -> None:
    async with db.begin(read_own_writes=True) as tx:
        await tx.insert_rows(path, [{"k": 1, "v": 1}, hashed(2, 2)])
        assert await tx.lookup_rows(path, [{"k": 1}, {"k": 2}]) == [hashed(1, 1), hashed(2, 2)]
        await tx.delete_rows(path, [{"k": 2}])
        await tx.lock_rows(path, [{"k": 3}])
    assert await db.lookup_rows(path, [{"k": 2}, hashed_key(1)]) == [hashed(1, 1)]


def hashed_key(k: int) -> Row:
    return {"h": farm_hash(k) % 100, "k": k}


async def test_transactions_conflict_on_keys_without_the_computed_column(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    first, second = await db.begin(), await db.begin()
    await first.insert_rows(path, [{"k": 2, "v": 1}])
    await second.lock_rows(path, [{"k": 2}])
    await first.commit()
    with pytest.raises(TransactionConflict) as error:
        await second.commit()
    assert error.value.attributes["key"] == hashed_key(2)


async def test_data_and_loads_leave_out_the_computed_column(
    db: dodona.aio.AsyncClient, path: str
) -> None:
    await db.write(path, {"k": range(200), "v": [1] * 200})
    assert list(await db.select(path)) == in_order([hashed(k, 1) for k in range(200)])
    async with await db.loads.begin([path]) as load:
        await load.publish(await load.write(path, {"k": [1, 300], "v": [2, 2]}))
    found = await db.lookup_rows(path, [{"k": 300}, {"k": 1}])
    assert found == [hashed(300, 2), hashed(1, 2)]


async def test_a_wrong_value_changes_nothing(db: dodona.aio.AsyncClient, path: str) -> None:
    good, bad = {"k": 2, "v": 1}, wrong(1)
    key = {name: bad[name] for name in ("h", "k")}
    tx = await db.begin()
    async with await db.loads.begin([path]) as load:
        calls = [
            db.insert_rows(path, [good, bad]),
            db.write(path, [good, bad]),
            tx.insert_rows(path, [good, bad]),
            tx.lock_rows(path, [{"k": 2}, key]),
            load.write(path, [good, bad]),
            db.delete_rows(path, [{"k": 2}, key]),
            db.lookup_rows(path, [{"k": 2}, key]),
            db.lookup_versions(path, [{"k": 2}, key]),
        ]
        for call in calls:
            with pytest.raises(SchemaViolation, match=r"'h' is .* its expression gives") as error:
                await call
            assert error.value.attributes["row_index"] == 1
            assert error.value.attributes["computed"] == str(farm_hash(1) % 100)
    await tx.abort()
    assert list(await db.select(path)) == []
