"""`timeout_ms` of a call and `call_timeout_ms` of a client: calls end in that time.

The error names the server that did not answer, which nobody knew to be silent before.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import dodona
import dodona.aio
from dodona.errors import CommitOutcomeUnknown, DodonaError, Unavailable
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

TIMEOUT_MS = 600
WARM_UP_MS = 30_000
"""Whoever is timed has its connections: on a busy machine they take a part of the time."""
QUERY_MS = 1_500
"""DuckDB takes some of it."""
SOON = 0.5
"""A call ends in less than such a part of the time that one takes which has no bound. It may have
several parts, such as a `with` block of a load, which is aborted, too."""
SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
PATH, LOOSE = "//bounded/rows", "//bounded/loose"
KEYS = {"here": 1, "there": 100, "loose": 100}
"""A key in cell 0, which lives, and keys in cell 1, which stands still: the master chooses."""


def row(place: str, value: int = 0) -> dict[str, int]:
    return {"id": KEYS[place], "v": value}


def both() -> list[dict[str, int]]:
    return [row("here", 1), row("there", 1)]


def arrow(place: str) -> pa.Table:
    return pa.Table.from_pylist([row(place, 4)])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("bounded"), node_count=2) as running:
        yield running


@pytest.fixture(scope="module")
def db(cluster: LocalCluster) -> Iterator[dodona.Client]:
    with dodona.connect(cluster.master_url) as client:
        for path, atomicity in ((PATH, "full"), (LOOSE, "none")):
            client.create_table(path, SCHEMA, atomicity, pivot_keys=[[], [50]], mount=True)  # type: ignore[arg-type]
        cells = [[it.cell for it in client.get_table(path).tablets] for path in (PATH, LOOSE)]
        KEYS["here"], KEYS["there"] = [(1, 100)[cells[0].index(cell)] for cell in (0, 1)]  # type: ignore[arg-type]
        KEYS["loose"] = (1, 100)[cells[1].index(1)]  # type: ignore[arg-type]
        for path in (PATH, LOOSE):
            client.insert_rows(path, [row("here"), row("there")])
        client.query(f"select * from [{PATH}]")  # imports take seconds
        with client.loads.begin([PATH]) as loading:
            loading.write(PATH, arrow("there"))
        yield client


@pytest.fixture(scope="module")
def unbounded_s(cluster: LocalCluster, db: dodona.Client) -> float:
    """How long a call waits that was told no bound."""
    with dodona.connect(cluster.master_url) as patient:
        patient.lookup_rows(PATH, [{"id": KEYS["there"]}])
        with standing_still(cluster, "node 1"):
            began = time.monotonic()
            with pytest.raises(Unavailable):
                patient.lookup_rows(PATH, [{"id": KEYS["there"]}])
            took_s = time.monotonic() - began
        # It is connected again before it is closed: else a half of a connection would stay.
        patient.run_in_transaction(lambda it: it.insert_rows(PATH, both()))
    return took_s


@contextmanager
def standing_still(cluster: LocalCluster, name: str) -> Iterator[None]:
    cluster.pause(name)
    try:
        yield
    finally:
        cluster.resume(name)


def commit(db: dodona.Client, *places: str, on_begin: bool = False) -> Any:
    with db.begin(timeout_ms=TIMEOUT_MS if on_begin else None) as transaction:
        transaction.insert_rows(PATH, [row(it, 2) for it in places])
        if not on_begin:
            transaction.commit(timeout_ms=TIMEOUT_MS)


def lock(db: dodona.Client) -> None:
    with db.begin(timeout_ms=TIMEOUT_MS) as transaction:
        transaction.lock_rows(PATH, [{"id": KEYS["there"]}], lock_type="exclusive")


def load(db: dodona.Client) -> None:
    with db.loads.begin([PATH], timeout_ms=TIMEOUT_MS) as loading:
        loading.write(PATH, arrow("there"))


def rerun(db: dodona.Client) -> None:
    db.run_in_transaction(lambda it: it.insert_rows(PATH, both()), timeout_ms=TIMEOUT_MS)


def in_transaction(read: str, *given: Any) -> Callable[[dodona.Client], Any]:
    def call(db: dodona.Client) -> Any:
        with db.begin() as transaction:
            return list(getattr(transaction, read)(*given, timeout_ms=TIMEOUT_MS))

    return call


MS: dict[str, Any] = {"timeout_ms": TIMEOUT_MS}
CALLS: dict[str, Callable[[dodona.Client], Any]] = {
    "insert in two cells": lambda db: db.insert_rows(PATH, both(), **MS),
    "insert in one cell": lambda db: db.insert_rows(PATH, [row("there")], **MS),
    "insert without atomicity": lambda db: db.insert_rows(LOOSE, [row("loose")], **MS),
    "write arrow": lambda db: db.write_arrow(LOOSE, arrow("loose"), **MS),
    "delete": lambda db: db.delete_rows(PATH, [{"id": KEYS["there"]}], **MS),
    "commit in two cells": lambda db: commit(db, "here", "there"),
    "commit in one cell": lambda db: commit(db, "there"),
    "commit at the end of a block": lambda db: commit(db, "there", on_begin=True),
    "lock": lock,
    "run in transaction": rerun,
    "lookup": lambda db: db.lookup_rows(PATH, [{"id": KEYS["there"]}], **MS),
    "versions": lambda db: db.lookup_versions(PATH, [{"id": KEYS["there"]}], **MS),
    "select": lambda db: list(db.select(PATH, **MS)),
    "read arrow": lambda db: db.read_arrow(PATH, **MS),
    "query": lambda db: db.query(f"select * from [{PATH}]", timeout_ms=QUERY_MS),
    "changes": lambda db: list(db.read_changes(PATH, 0, **MS)),
    "counted changes": lambda db: db.count_changes(PATH, 0, **MS),
    "held snapshot": lambda db: db.hold_snapshot([PATH], **MS),
    "load": load,
    "lookup in a transaction": in_transaction("lookup_rows", PATH, [{"id": KEYS["there"]}]),
    "select in a transaction": in_transaction("select", PATH),
}


def failure(call: Callable[[], Any], unbounded_s: float) -> DodonaError:
    """What it raises, in its time. It names cell 1."""
    began = time.monotonic()
    with pytest.raises((Unavailable, CommitOutcomeUnknown)) as caught:
        call()
    assert time.monotonic() - began < SOON * unbounded_s, caught.value
    return caught.value


def check_named(error: DodonaError, cluster: LocalCluster) -> None:
    assert error.attributes.get("cell") == 1, (error, error.attributes)
    assert error.attributes.get("address") == cluster.node_urls[1], (error, error.attributes)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_ends_within_its_timeout_and_names_the_silent_node(
    cluster: LocalCluster, db: dodona.Client, unbounded_s: float, name: str
) -> None:
    with standing_still(cluster, "node 1"):
        check_named(failure(lambda: CALLS[name](db), unbounded_s), cluster)
    db.run_in_transaction(lambda it: it.insert_rows(PATH, both()))
    assert len(db.select(PATH)) == 2


def unbounded(db: dodona.Client) -> Any:
    with db.begin() as transaction:
        transaction.insert_rows(PATH, both())


CLIENT_CALLS: dict[str, Callable[[dodona.Client], Any]] = {
    "insert": lambda db: db.insert_rows(PATH, [row("there")]),
    "lookup": lambda db: db.lookup_rows(PATH, [{"id": KEYS["there"]}]),
    "commit": unbounded,
    "select": lambda db: list(db.select(PATH)),
    "held snapshot": lambda db: db.hold_snapshot([PATH]),
    "load": lambda db: db.loads.begin([PATH]),
    "run in transaction": lambda db: db.run_in_transaction(
        lambda tx: tx.insert_rows(PATH, [row("there")])
    ),
}


@pytest.mark.parametrize("name", CLIENT_CALLS)
def test_the_call_timeout_of_a_client_applies_to_all_its_calls(
    cluster: LocalCluster, db: dodona.Client, unbounded_s: float, name: str
) -> None:
    with dodona.connect(cluster.master_url, call_timeout_ms=TIMEOUT_MS) as bounded:
        begun = bounded.loads.begin([PATH], timeout_ms=WARM_UP_MS)  # it connects
        begun.abort(timeout_ms=WARM_UP_MS)
        with standing_still(cluster, "node 1"):
            check_named(failure(lambda: CLIENT_CALLS[name](bounded), unbounded_s), cluster)


ASYNC_CALLS: dict[str, Callable[[dodona.aio.AsyncClient], Awaitable[Any]]] = {
    "insert in two cells": lambda db: db.insert_rows(PATH, both(), **MS),
    "insert in one cell": lambda db: db.insert_rows(PATH, [row("there")], **MS),
    "lookup": lambda db: db.lookup_rows(PATH, [{"id": KEYS["there"]}], **MS),
    "select": lambda db: db.select(PATH, **MS),
    "query": lambda db: db.query(f"select * from [{PATH}]", timeout_ms=QUERY_MS),
    "held snapshot": lambda db: _awaited(db.hold_snapshot([PATH], **MS)),
    "run in transaction": lambda db: db.run_in_transaction(
        lambda it: it.insert_rows(PATH, both()), **MS
    ),
}


async def _awaited(beginning: Any) -> Any:
    return await beginning


@pytest.mark.parametrize("name", ASYNC_CALLS)
def test_an_asyncio_call_ends_within_its_timeout(
    cluster: LocalCluster, db: dodona.Client, unbounded_s: float, name: str
) -> None:
    async def attempt() -> DodonaError:
        async with await dodona.aio.connect(cluster.master_url) as client:
            await client.lookup_rows(PATH, [{"id": KEYS["there"]}])
            with standing_still(cluster, "node 1"):
                began = time.monotonic()
                with pytest.raises((Unavailable, CommitOutcomeUnknown)) as caught:
                    await ASYNC_CALLS[name](client)
                assert time.monotonic() - began < SOON * unbounded_s, caught.value
            return caught.value

    check_named(asyncio.run(attempt()), cluster)


def test_an_asyncio_client_bounds_all_attempts_of_a_transaction(
    cluster: LocalCluster, db: dodona.Client, unbounded_s: float
) -> None:
    """Each was bounded, and there was another one until 30 s had passed."""

    async def attempt() -> DodonaError:
        async with await dodona.aio.connect(
            cluster.master_url, call_timeout_ms=TIMEOUT_MS
        ) as client:
            await client.lookup_rows(PATH, [{"id": KEYS["there"]}], timeout_ms=WARM_UP_MS)
            with standing_still(cluster, "node 1"):
                began = time.monotonic()
                with pytest.raises((Unavailable, CommitOutcomeUnknown)) as caught:
                    await client.run_in_transaction(lambda tx: tx.insert_rows(PATH, [row("there")]))
                assert time.monotonic() - began < SOON * unbounded_s, caught.value
            return caught.value

    check_named(asyncio.run(attempt()), cluster)


MASTER_CALLS: dict[str, Callable[[dodona.Client], Any]] = {
    "timestamp": lambda db: db.generate_timestamp(**MS),
    "begin": lambda db: db.begin(**MS),
    "get table": lambda db: db.get_table(PATH, **MS),
    "list": lambda db: db.list("//", **MS),
    "set": lambda db: db.set(f"{PATH}/@title", 1, **MS),
    "mount": lambda db: db.mount_table(PATH, **MS),
    "begin master": lambda db: db.begin_master(call_timeout_ms=TIMEOUT_MS),
    "create": lambda db: db.create_table("//bounded/new", SCHEMA, mount=True, **MS),
}


@pytest.mark.parametrize("name", MASTER_CALLS)
def test_a_silent_master_is_named_in_time(
    cluster: LocalCluster, db: dodona.Client, unbounded_s: float, name: str
) -> None:
    with standing_still(cluster, "master"):
        error = failure(lambda: MASTER_CALLS[name](db), unbounded_s)
        assert error.attributes.get("server") in ("master", "oracle"), error.attributes
        assert error.attributes["address"], error.attributes
