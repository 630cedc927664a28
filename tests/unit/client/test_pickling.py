"""What belongs to one process says so when it is pickled, and what to do in another one."""

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import dodona
import dodona.aio
from dodona.errors import InvalidRequest
from unit.client.cluster import FakeCluster

TABLE = "//t"
SCHEMA: list[dict[str, Any]] = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
CLIENT = "make a client in each process with `connect`"
BEGIN = "begin one in each process"
SNAPSHOT = "send its `timestamp` and `reader`"
LOAD = "send its `ticket`"
MAKE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "client": (lambda db: db, CLIENT),
    "method": (lambda db: db.insert_rows, CLIENT),
    "loads": (lambda db: db.loads, CLIENT),
    "transaction": (lambda db: db.begin(), BEGIN),
    "master transaction": (lambda db: db.begin_master(), BEGIN),
    "snapshot": (lambda db: db.hold_snapshot([TABLE]), SNAPSHOT),
    "load": (lambda db: db.loads.begin([TABLE]), LOAD),
    "changes": (lambda db: db.read_changes(TABLE, 0), "give its `timestamp` to `read_changes`"),
}


def check(it: Any, instead: str) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(InvalidRequest, match="belongs to the process that made it") as caught:
            pickle.dumps(it, protocol)
        assert instead in caught.value.message
        assert isinstance(caught.value, TypeError)
    with pytest.raises(InvalidRequest, match="copied deeply"):
        copy.deepcopy({"it": it})
    if not callable(it):
        assert copy.copy(it) is it


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("db")) as client:
        client.create_table(TABLE, SCHEMA, mount=True)
        yield client


@pytest.mark.parametrize("name", MAKE)
def test_of_the_blocking_client(db: dodona.Client, name: str) -> None:
    make, instead = MAKE[name]
    check(make(db), instead)


@pytest.mark.parametrize("name", MAKE)
def test_of_the_asyncio_client(tmp_path: Path, name: str) -> None:
    make, instead = MAKE[name]

    async def run() -> None:
        async with await dodona.aio.open(tmp_path) as db:
            await db.create_table(TABLE, SCHEMA, mount=True)
            made = make(db)
            if hasattr(type(made), "__await__") or asyncio.iscoroutine(made):
                if not asyncio.iscoroutine(made):
                    check(made, "use `await` or `async with` in this process")
                made = await made
            check(made, instead)

    asyncio.run(run())


def test_of_a_cluster(cluster: FakeCluster) -> None:
    with dodona.connect(cluster.url) as db:
        check(db, CLIENT)
        check(db.begin(), BEGIN)

    async def run() -> None:
        async with await dodona.aio.connect(cluster.url) as db:
            check(db, CLIENT)
            check(await db.begin(), BEGIN)

    asyncio.run(run())


def test_passing_a_client_to_a_process_raises_an_error(db: dodona.Client) -> None:
    process = get_context("spawn").Process(target=print, args=(db,))
    with pytest.raises(InvalidRequest, match=CLIENT):
        process.start()


def test_results_of_a_client_can_be_pickled(db: dodona.Client) -> None:
    db.insert_rows(TABLE, [{"k": 1, "v": 1}])
    with db.hold_snapshot([TABLE]) as snapshot, db.loads.begin([TABLE]) as load:
        for it in (
            db.select(TABLE),
            db.get_table(TABLE),
            (snapshot.timestamp, snapshot.reader),
            load.ticket,
            InvalidRequest("text", path="//t"),
        ):
            copied = pickle.loads(pickle.dumps(it))
            assert type(copied) is type(it)
