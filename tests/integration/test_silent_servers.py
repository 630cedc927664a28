"""Servers that stand still, or are gone: every call says which one, and later calls say so soon.

A node that was dead was reported as a conflict with the client's own first attempt, or the healthy
coordinator was named.
"""

import asyncio
import gc
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import dodona
import dodona.aio
from dodona.errors import CommitOutcomeUnknown, DodonaError, InvalidRequest, Unavailable
from dodona.types import Timestamp
from dodona_gateway.shell.service import SELECTS_MAX
from dodona_gateway.shell.tokens import draw_first_token
from dodona_local.cli import application
from dodona_local.cli.running import RUN_AGAIN
from dodona_local.launcher import LocalCluster
from integration.gateway.rest import Rest
from integration.ytsaurus.plain import ask, error_of
from suite.waiting import quickest_s, wait_until

pytestmark = pytest.mark.integration

FIRST_SECONDS_MAX = 20.0
SOON = 0.5
"""Later calls take less than such a part of the first one's time, which was the first to wait."""
SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
PATH = "//silent/rows"
LOOSE = "//silent/loose"
BRIEF = "//silent/brief"
"""Mounted in both cells while they live."""
HERE, THERE, LOOSE_THERE = "here", "there", "loose"
KEYS = {HERE: 1, THERE: 100, LOOSE_THERE: 100}
"""A key in cell 0, which lives, and keys in cell 1, of each table: the master chooses the cells."""

Call = Callable[[dodona.Client], Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("silent")
    # The master chooses the cells of the table of tokens too: there is none.
    with LocalCluster(folder, node_count=2, gateway_count=1, is_insecure=True) as running:
        yield running


@pytest.fixture(scope="module")
def db(cluster: LocalCluster) -> Iterator[dodona.Client]:
    with dodona.connect(cluster.master_url) as client:
        for path, atomicity in ((PATH, "full"), (LOOSE, "none")):
            client.create_table(path, SCHEMA, atomicity, pivot_keys=[[], [50]], mount=True)  # type: ignore[arg-type]
            client.insert_rows(path, [row(HERE), row(THERE)])
        client.create_table(BRIEF, SCHEMA, pivot_keys=[[], [50]])
        client.query(f"select * from [{PATH}]")  # imports take seconds
        cells = [[it.cell for it in client.get_table(path).tablets] for path in (PATH, LOOSE)]
        assert all({*it} == {0, 1} for it in cells)
        KEYS[HERE], KEYS[THERE] = [(1, 100)[cells[0].index(cell)] for cell in (0, 1)]  # type: ignore[arg-type]
        KEYS[LOOSE_THERE] = (1, 100)[cells[1].index(1)]  # type: ignore[arg-type]
        yield client


@pytest.mark.parametrize("kind", ["proxy", "node", "gateway"])
def test_connect_to_a_server_that_is_not_the_master_names_its_role(
    cluster: LocalCluster, kind: str
) -> None:
    """It was `Not Found`, or that a header is missing."""
    urls = {
        "proxy": cluster.proxy_url,
        "node": cluster.node_urls[0],
        "gateway": cluster.gateway_urls[0],
    }
    with pytest.raises(InvalidRequest, match=f"is a {kind} and not the master") as caught:
        dodona.connect(urls[kind])
    assert caught.value.attributes["role"] == kind
    known = None if kind == "gateway" else cluster.master_url
    assert caught.value.attributes.get("master") == known


def row(place: str, value: int = 0) -> dict[str, int]:
    return {"id": KEYS[place], "v": value}


def commit_both(db: dodona.Client) -> None:
    with db.begin() as transaction:
        transaction.insert_rows(PATH, [row(HERE, 2), row(THERE, 2)])


def commit_one(db: dodona.Client) -> None:
    with db.begin() as transaction:
        transaction.insert_rows(PATH, [row(THERE, 3)])


def load(db: dodona.Client) -> None:
    with db.loads.begin([PATH]) as loading:
        loading.write(PATH, pa.Table.from_pylist([row(THERE, 4)]))


CALLS: dict[str, Call] = {
    "insert in two cells": lambda db: db.insert_rows(PATH, [row(HERE, 1), row(THERE, 1)]),
    "insert in one cell": lambda db: db.insert_rows(PATH, [row(THERE, 1)]),
    "insert without atomicity": lambda db: db.insert_rows(LOOSE, [row(LOOSE_THERE, 1)]),
    "delete": lambda db: db.delete_rows(PATH, [{"id": KEYS[THERE]}]),
    "commit in two cells": commit_both,
    "commit in one cell": commit_one,
    "lookup": lambda db: db.lookup_rows(PATH, [{"id": KEYS[THERE]}]),
    "select": lambda db: list(db.select(PATH)),
    "query": lambda db: db.query(f"select * from [{PATH}]"),
    "held snapshot": lambda db: db.hold_snapshot([PATH]),
    "load": load,
    "stage of a load": lambda db: LOADS[0].write(PATH, pa.Table.from_pylist([row(THERE, 4)])),
    "changes": lambda db: list(db.read_changes(PATH, Timestamp(LOADS[0].id))),
    "versions": lambda db: db.lookup_versions(PATH, [{"id": KEYS[THERE]}]),
    "arrow": lambda db: db.read_arrow(PATH),
    "unmount": lambda db: db.unmount_table(BRIEF, timeout_ms=BOUND_MS),
}
FIRST_S: list[float] = []
"""How long the first call took that a silent node kept waiting."""
LOADS: list[dodona.Load] = []
"""One that was begun while both nodes ran."""
BOUND_MS = 1_000


def failure(call: Call, db: dodona.Client) -> tuple[DodonaError, float]:
    began = time.monotonic()
    with pytest.raises((Unavailable, CommitOutcomeUnknown)) as caught:
        call(db)
    return caught.value, time.monotonic() - began


def soon_failure(call: Call, db: dodona.Client, first_s: float) -> DodonaError:
    """One that comes sooner than the first did. The machine may make some of the calls late."""
    for _ in range(3):
        error, seconds = failure(call, db)
        if seconds < SOON * first_s:
            return error
    raise AssertionError(f"{seconds} s after {first_s} s: {error}")


def kill_and_hold(cluster: LocalCluster) -> None:
    """End node 1, and have the next one stand still before it listens: nobody is there."""
    before = cluster.processes["node 1"].pid
    cluster.kill("node 1")
    wait_until(lambda: cluster.processes["node 1"].pid not in (before, None), pause_s=0.001)
    cluster.pause("node 1")


@pytest.fixture(scope="module", params=["paused", "gone"])
def silent_node(
    request: pytest.FixtureRequest, cluster: LocalCluster, db: dodona.Client
) -> Iterator[LocalCluster]:
    LOADS[:] = [db.loads.begin([PATH])]
    db.mount_table(BRIEF)
    assert {it.cell for it in db.get_table(BRIEF).tablets} == {0, 1}
    if request.param == "paused":
        cluster.pause("node 1")
    else:
        kill_and_hold(cluster)
    error, seconds = failure(CALLS["insert in two cells"], db)
    assert error.attributes["cell"] == 1
    assert seconds < FIRST_SECONDS_MAX
    FIRST_S[:] = [seconds]
    yield cluster
    cluster.resume("node 1")
    cluster.wait_until_ready("node 1", start_count=1 if request.param == "paused" else 2)
    LOADS.pop().abort()


@pytest.mark.parametrize("name", CALLS)
def test_a_silent_node_is_named_soon(
    silent_node: LocalCluster, db: dodona.Client, name: str
) -> None:
    error = soon_failure(CALLS[name], db, FIRST_S[0])
    assert error.attributes.get("cell") == 1, error
    assert error.attributes["address"] == silent_node.node_urls[1], error


async def commit_async(db: dodona.aio.AsyncClient) -> None:
    async with db.begin() as transaction:
        rows = [row(HERE, 2), row(THERE, 2)]  # others than the insert beside this commit writes
        await transaction.insert_rows(PATH, [{**it, "id": it["id"] + 1} for it in rows])


async def load_async(db: dodona.aio.AsyncClient) -> None:
    async with await db.loads.begin([PATH]) as loading:
        await loading.write(PATH, pa.Table.from_pylist([row(THERE, 4)]))


async def changes_async(db: dodona.aio.AsyncClient) -> None:
    async for _ in await db.read_changes(PATH, Timestamp(LOADS[0].id)):
        pass


ASYNC_CALLS: dict[str, Callable[[dodona.aio.AsyncClient], Awaitable[Any]]] = {
    "insert in two cells": lambda db: db.insert_rows(PATH, [row(HERE, 1), row(THERE, 1)]),
    "insert without atomicity": lambda db: db.insert_rows(LOOSE, [row(LOOSE_THERE, 1)]),
    "commit in two cells": commit_async,
    "lookup": lambda db: db.lookup_rows(PATH, [{"id": KEYS[THERE]}]),
    "select": lambda db: db.select(PATH),
    "query": lambda db: db.query(f"select * from [{PATH}]"),
    "held snapshot": lambda db: db.hold_snapshot([PATH]),
    "load": load_async,
    "changes": changes_async,
    "versions": lambda db: db.lookup_versions(PATH, [{"id": KEYS[THERE]}]),
    "arrow": lambda db: db.read_arrow(PATH),
}


async def _asked(
    call: Callable[[dodona.aio.AsyncClient], Awaitable[Any]], db: dodona.aio.AsyncClient
) -> Any:
    return await call(db)


def test_an_asyncio_client_also_names_the_silent_node_soon(silent_node: LocalCluster) -> None:
    """All calls at once: each names the node, and none holds up another."""

    async def ask_all() -> list[Any]:
        async with await dodona.aio.connect(silent_node.master_url) as db:
            asked = [_asked(call, db) for call in ASYNC_CALLS.values()]
            return await asyncio.gather(*asked, return_exceptions=True)

    began = time.monotonic()
    errors = dict(zip(ASYNC_CALLS, asyncio.run(ask_all()), strict=True))
    assert time.monotonic() - began < FIRST_SECONDS_MAX
    for name, error in errors.items():
        assert isinstance(error, Unavailable | CommitOutcomeUnknown), (name, error)
        assert error.attributes.get("cell") == 1, (name, error)
        assert error.attributes["address"] == silent_node.node_urls[1], (name, error)


def test_rows_of_the_other_cell_are_free(silent_node: LocalCluster, db: dodona.Client) -> None:
    """No attempt of before stands in the way."""
    failure(CALLS["insert in two cells"], db)
    began = time.monotonic()
    db.insert_rows(PATH, [row(HERE, 7)])
    assert db.lookup_rows(PATH, [{"id": KEYS[HERE]}]) == [row(HERE, 7)]
    assert time.monotonic() - began < SOON * FIRST_S[0]


def test_a_caller_of_rest_may_be_in_a_hurry(silent_node: LocalCluster) -> None:
    keys = [{"id": KEYS[THERE]}]
    with Rest(silent_node.gateway_urls[0]) as rest:
        began = time.monotonic()
        problem = rest.refused("lookup_rows", table=PATH, keys=keys, timeout_ms=BOUND_MS)
        assert time.monotonic() - began < SOON * FIRST_S[0]
    assert (problem.status, problem.kind) == (503, "unavailable")
    assert problem.attributes["cell"] == 1, problem
    assert problem.attributes["address"] == silent_node.node_urls[1]


YT_CALLS: dict[str, tuple[dict[str, Any], bytes]] = {
    "lookup_rows": ({"path": PATH, "input_format": "json"}, b'{"id": %d}'),
    "insert_rows": ({"path": PATH, "input_format": "json"}, b'{"id": %d, "v": 1}'),
    "delete_rows": ({"path": PATH, "input_format": "json"}, b'{"id": %d}'),
    "select_rows": ({"query": f"id from [{PATH}]"}, b""),
}


@pytest.mark.parametrize("command", YT_CALLS)
def test_the_ytsaurus_interface_names_the_silent_cell(
    silent_node: LocalCluster, command: str
) -> None:
    parameters, body = YT_CALLS[command]
    body = body % KEYS[THERE] if body else body
    began = time.monotonic()
    answer = ask(silent_node.gateway_urls[0], command, parameters, body)
    assert time.monotonic() - began < FIRST_SECONDS_MAX
    told = error_of(answer)
    assert "cell 1" in told["message"], told
    assert told["attributes"]["cell"] == 1, told


def test_a_select_that_waits_in_the_queue_ends_within_its_timeout(
    silent_node: LocalCluster,
) -> None:
    """Others hold all turns of the table, and wait for the silent cell; a lookup needs none."""
    url = silent_node.gateway_urls[0]

    def select() -> str:
        with Rest(url) as rest:
            return rest.refused("select_rows", table=PATH, timeout_ms=8 * BOUND_MS).kind

    with ThreadPoolExecutor(3 * SELECTS_MAX) as pool, Rest(url) as rest:
        others = [pool.submit(select) for _ in range(3 * SELECTS_MAX)]
        began = time.monotonic()
        problem = rest.refused("select_rows", table=PATH, timeout_ms=BOUND_MS)
        found = rest("lookup_rows", table=PATH, keys=[{"id": KEYS[HERE]}])
        assert time.monotonic() - began < SOON * FIRST_S[0]
        assert {it.result() for it in others} == {"unavailable"}
    assert (problem.status, problem.kind) == (503, "unavailable")
    assert len(found["rows"]) == 1


def test_a_request_with_an_unknown_token_names_the_silent_cell(tmp_path: Path) -> None:
    """The table of tokens can't be read: he was told that, and not the cell."""
    with LocalCluster(tmp_path / "data", node_count=1, gateway_count=1) as cluster:
        (url,) = cluster.gateway_urls
        with Rest(url, cluster.admin_token) as rest:
            rest("create_table", path="//t", schema=SCHEMA, mount=True)
        cluster.pause("node 0")
        try:
            with Rest(url, draw_first_token()) as stranger:
                problem = stranger.refused("lookup_rows", table="//t", keys=[{"id": 1}])
        finally:
            cluster.resume("node 0")
    assert (problem.status, problem.kind) == (503, "unavailable")
    assert problem.attributes["cell"] == 0
    assert "address" not in problem.attributes


def test_a_command_may_be_in_a_hurry(silent_node: LocalCluster) -> None:
    words = ["--timeout-ms", str(BOUND_MS), "lookup", PATH, f"id={KEYS[THERE]}"]
    began = time.monotonic()
    with warnings.catch_warnings():
        # picows leaves the socket of a handshake that is cancelled to the collector.
        warnings.simplefilter("ignore", ResourceWarning)
        done = CliRunner().invoke(application, [*words, "--url", silent_node.master_url])
        seconds = time.monotonic() - began
        gc.collect()
    assert seconds < SOON * FIRST_S[0]
    assert done.exit_code == RUN_AGAIN, done.output
    assert "cell=1" in done.stderr
    assert silent_node.node_urls[1] in done.stderr


def test_transactions_commit_again_after_the_silent_node_resumes(
    silent_node: LocalCluster, db: dodona.Client
) -> None:
    silent_node.resume("node 1")
    silent_node.wait_until_ready("node 1")
    db.run_in_transaction(lambda it: it.insert_rows(PATH, [row(HERE, 8), row(THERE, 8)]))
    assert [it["v"] for it in db.select(PATH)] == [8, 8]


ORACLE_CALLS: dict[str, Call] = {
    "timestamp": lambda db: db.generate_timestamp(),
    "begin": lambda db: db.begin(),
    "select": lambda db: list(db.select(PATH)),
}


def test_a_silent_master_is_named_soon(cluster: LocalCluster, db: dodona.Client) -> None:
    """Its proxies answer, and say who does not."""
    cluster.pause("master")
    try:
        error, first_s = failure(ORACLE_CALLS["timestamp"], db)
        assert error.attributes["server"] in ("master", "oracle")
        assert first_s < FIRST_SECONDS_MAX
        calls = {**ORACLE_CALLS, "tree": lambda it: it.list("//silent")}
        for name, call in calls.items():
            error = soon_failure(call, db, first_s)
            assert "address" in error.attributes, (name, error)
    finally:
        cluster.resume("master")
    assert db.generate_timestamp() > 0


def test_a_silent_proxy_is_gone_around(cluster: LocalCluster, db: dodona.Client) -> None:
    """The master names no proxy that it does not hear from, and answers itself."""
    cluster.pause("proxy")
    try:
        first_s = quickest_s(db.generate_timestamp, 1)  # it waits for the proxy
        for name, call in ORACLE_CALLS.items():
            assert quickest_s(partial(call, db)) < SOON * first_s, name
    finally:
        cluster.resume("proxy")
    assert db.generate_timestamp() > 0
