"""Functions, awaits, loops and blocks that are used in another way than they were meant.

Each works, or is refused before anything is written."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona.errors import DodonaError, InvalidRequest, SchemaViolation, SnapshotTooOld
from dodona.types import Atomicity
from unit.client.cluster import FakeCluster

T, OTHER = "//t/rows", "//t/other"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "n", "type": "int64"},
]
ROW = {"id": 1, "n": 1}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path / "data") as client:
        client.create_table(T, SCHEMA, mount=True)
        client.create_table(OTHER, SCHEMA, mount=True)
        yield client


@pytest.fixture
async def aio_db(tmp_path: Path) -> AsyncIterator[dodona.aio.AsyncClient]:
    async with await dodona.aio.open(tmp_path / "data") as client:
        await client.create_table(T, SCHEMA, mount=True)
        await client.create_table(OTHER, SCHEMA, mount=True)
        yield client


# ---- functions that only begin to run


def generator(tx: Any) -> Iterator[None]:
    yield tx.insert_rows(T, [ROW])


async def coroutine(tx: Any) -> None:
    tx.insert_rows(T, [ROW])


async def async_generator(tx: Any) -> AsyncIterator[None]:
    tx.insert_rows(T, [ROW])
    yield


class Called:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, tx: Any) -> Any:
        return self.function(tx)

    def yielding(self, tx: Any) -> Iterator[None]:
        yield tx.insert_rows(T, [ROW])


class Yielding:
    def __call__(self, tx: Any) -> Iterator[None]:
        yield tx.insert_rows(T, [ROW])


async def returning_a_generator(tx: Any) -> Any:
    return generator(tx)


async def returning_a_coroutine(tx: Any) -> Any:
    return coroutine(tx)


LAZY: list[Callable[[Any], Any]] = [
    generator,
    async_generator,
    Yielding(),
    Called(generator).yielding,
    lambda tx: generator([tx][0]),
    lambda tx: (tx.insert_rows(T, [ROW]) for _ in range(3)),
    lambda tx: map(tx.insert_rows, [T], [[ROW]]),
    lambda tx: filter(functools.partial(tx.insert_rows, T), [[ROW]]),
]
wrappings = pytest.mark.parametrize("wrap", [lambda it: it, functools.partial, Called])


@wrappings
@pytest.mark.parametrize("function", [*LAZY, coroutine, lambda tx: coroutine([tx][0])])
def test_a_function_that_does_not_run_is_refused(
    db: dodona.Client, function: Callable[[Any], Any], wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(InvalidRequest, match=r"generator|async|has not run"):
        db.run_in_transaction(wrap(function))
    assert db.select(T) == []


@pytest.mark.anyio
@wrappings
@pytest.mark.parametrize(
    "function",
    [*LAZY, returning_a_generator, returning_a_coroutine, lambda tx: None, lambda tx: [ROW]],
)
async def test_an_async_one_that_does_not_run_is_refused(
    aio_db: dodona.aio.AsyncClient, function: Callable[[Any], Any], wrap: Callable[[Any], Any]
) -> None:
    with pytest.raises(InvalidRequest, match=r"generator|async|has not run"):
        await aio_db.run_in_transaction(wrap(function))
    assert await aio_db.select(T) == []


@wrappings
def test_functions_that_run_are_run(db: dodona.Client, wrap: Callable[[Any], Any]) -> None:
    def function(tx: dodona.Transaction) -> list[int]:
        tx.insert_rows(T, [ROW])
        return [1]

    assert db.run_in_transaction(wrap(function)) == [1]
    assert db.select(T) == [ROW]


# ---- writes that nobody awaits

FORGOTTEN: dict[str, Callable[[Any], Any]] = {
    "insert": lambda tx: tx.insert_rows(T, [ROW]),
    "update": lambda tx: tx.insert_rows(T, [ROW], update=True),
    "delete": lambda tx: tx.delete_rows(T, [{"id": 5}]),
    "lock": lambda tx: tx.lock_rows(T, [{"id": 5}], lock_type="exclusive"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", FORGOTTEN)
async def test_a_transaction_commits_calls_that_were_not_awaited(
    aio_db: dodona.aio.AsyncClient, name: str, is_known: bool
) -> None:
    await aio_db.insert_rows(T, [{"id": 5, "n": 5}])
    other = await aio_db.begin()
    await other.insert_rows(T, [{"id": 5, "n": 6}])
    async with aio_db.begin() as tx:
        if not is_known:
            aio_db._session.routing.forget(T)
        FORGOTTEN[name](tx)
    ids = [row["id"] for row in await aio_db.select(T)]
    assert ids == {"delete": [], "lock": [5]}.get(name, [1, 5])
    assert tx.commit_timestamp is not None
    if name in ("delete", "lock"):
        with pytest.raises(dodona.TransactionConflict):
            await other.commit()


@pytest.mark.anyio
@pytest.mark.parametrize("is_known", [True, False])
async def test_writes_keep_their_order_awaited_or_not(
    aio_db: dodona.aio.AsyncClient, is_known: bool
) -> None:
    async with aio_db.begin(read_own_writes=True) as tx:
        if not is_known:
            aio_db._session.routing.forget(T)
        row = {"id": 1, "n": 0}
        for number in range(5):
            row["n"] = number
            written: Any = tx.insert_rows(T, [row])
            assert written is not None
            if number == 0:
                await asyncio.sleep(0)
        await tx.insert_rows(OTHER, [row])
        task = asyncio.create_task(tx.insert_rows(T, [{"id": 2, "n": 2}]))
        await asyncio.gather(tx.insert_rows(T, iter([{"id": 3, "n": 3}])), task)
        assert [it["n"] for it in await tx.select(T)] == [4, 2, 3]
    assert [it["n"] for it in await aio_db.select(T)] == [4, 2, 3]


@pytest.mark.anyio
@pytest.mark.parametrize("is_known", [True, False])
async def test_the_error_of_a_write_that_was_not_awaited_aborts_the_transaction(
    aio_db: dodona.aio.AsyncClient, is_known: bool
) -> None:
    begun = []

    async def write() -> None:
        async with aio_db.begin() as tx:
            begun.append(tx)
            insert: Callable[..., Any] = tx.insert_rows
            insert(T, [ROW])
            if not is_known:
                aio_db._session.routing.forget(OTHER)
            insert(OTHER, [{"id": "x"}])

    with pytest.raises(SchemaViolation):
        await write()
    assert await aio_db.select(T) == []
    assert begun[0].state.name == "ABORTED"


@pytest.mark.anyio
async def test_an_abort_leaves_no_write_behind(aio_db: dodona.aio.AsyncClient) -> None:
    tx = await aio_db.begin()
    aio_db._session.routing.forget(T)
    FORGOTTEN["insert"](tx)
    await tx.abort()
    await asyncio.sleep(0.05)
    assert await aio_db.select(T) == []


# ---- another loop

CALLS: dict[str, Callable[[dodona.aio.AsyncClient], Awaitable[Any]]] = {
    "insert": lambda db: db.insert_rows(T, [ROW]),
    "delete": lambda db: db.delete_rows(T, [{"id": 1}]),
    "select": lambda db: db.select(T),
    "table": lambda db: db.create_table("//t/new", SCHEMA),
    "close": lambda db: db.close(),
    "timestamp": lambda db: db.generate_timestamp(),
    "hold": lambda db: db.hold_snapshot([T]),
}


async def awaited(call: Callable[[Any], Awaitable[Any]], db: Any) -> Any:
    return await call(db)


@pytest.mark.parametrize("name", CALLS)
def test_another_loop_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    own, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    db = own.run_until_complete(dodona.aio.open(tmp_path / "data"))
    own.run_until_complete(db.create_table(T, SCHEMA, mount=True))
    with pytest.raises(InvalidRequest, match="another event loop"):
        other.run_until_complete(awaited(CALLS[name], db))
    assert own.run_until_complete(awaited(CALLS["select"], db)) == []
    assert own.run_until_complete(db.list_tables()) == [T]
    own.run_until_complete(db.close())
    own.close()
    other.close()


@pytest.mark.parametrize("name", ["insert", "close", "timestamp"])
def test_a_cluster_client_refuses_calls_from_another_event_loop(
    cluster: FakeCluster, name: str
) -> None:
    own, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    db = own.run_until_complete(dodona.aio.connect(cluster.url))
    own.run_until_complete(db.create_table(T, SCHEMA, mount=True))
    with pytest.raises(InvalidRequest, match="another event loop"):
        other.run_until_complete(awaited(CALLS[name], db))
    assert own.run_until_complete(awaited(CALLS["select"], db)) == []
    own.run_until_complete(db.close())
    own.close()
    other.close()


# ---- ends within blocks


def test_a_block_leaves_an_object_alone_that_was_ended_within_the_block(db: dodona.Client) -> None:
    import pyarrow

    with db.hold_snapshot([T]) as snapshot:
        snapshot.release()
        snapshot.release()
    with db.begin() as tx:
        tx.insert_rows(T, [ROW])
        tx.commit()
    assert tx.commit_timestamp is not None
    with db.begin() as tx:
        tx.delete_rows(T, [{"id": 1}])
        tx.abort()
    with db.begin_master() as master:
        master.create_directory("//t/kept")
        master.commit()
    with db.begin_master() as master:
        master.create_directory("//t/dropped")
        master.abort()
    with db.begin_master() as master, master.begin() as inner:
        inner.create_directory("//t/inner")
        inner.commit()
    for end in ("publish", "abort"):
        with db.loads.begin([T]) as load:
            load.write(T, pyarrow.table({"id": [7], "n": [7]}))
            getattr(load, end)()
    assert [row["id"] for row in db.select(T)] == [1, 7]
    assert db.exists("//t/kept")
    assert db.exists("//t/inner")
    assert not db.exists("//t/dropped")
    with db:
        db.close()


@pytest.mark.anyio
async def test_an_asyncio_block_leaves_an_object_alone_that_was_ended_in_the_block(
    aio_db: dodona.aio.AsyncClient,
) -> None:
    import pyarrow

    db = aio_db
    async with db.hold_snapshot([T]) as snapshot:
        await snapshot.release()
    async with db.begin() as tx:
        await tx.insert_rows(T, [ROW])
        await tx.commit()
    async with db.begin() as tx:
        await tx.delete_rows(T, [{"id": 1}])
        await tx.abort()
    async with db.begin_master() as master:
        await master.create_directory("//t/kept")
        await master.commit()
    async with db.begin_master() as master:
        await master.abort()
    for end in ("publish", "abort"):
        async with await db.loads.begin([T]) as load:
            await load.write(T, pyarrow.table({"id": [7], "n": [7]}))
            await getattr(load, end)()
    assert [row["id"] for row in await db.select(T)] == [1, 7]
    async with db:
        await db.close()


def test_the_block_of_a_snapshot_lost_before_its_release_raises_an_error(db: dodona.Client) -> None:
    def read() -> None:
        with db.hold_snapshot([T]) as snapshot:
            snapshot._hold.lose("it was cut off")
            snapshot.release()

    with pytest.raises(SnapshotTooOld, match="not held"):
        read()


@pytest.mark.parametrize("atomicity", ["full", "none"])
def test_closing_a_client_in_a_block_keeps_the_error_and_refuses_new_blocks(
    db: dodona.Client, atomicity: Atomicity
) -> None:
    """And what was the matter before is what its caller hears of."""

    def close() -> None:
        with db.begin(atomicity):
            db.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        close()
    for block in (db.begin, db.begin_master, lambda: db.hold_snapshot([T])):
        with pytest.raises(DodonaError, match="closed"), block():
            pass
