"""Bad input against real processes: a typed error that says what and where, nothing half-written,
and servers that go on as if nothing had happened."""

import asyncio
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets.asyncio.client as websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus

import dodona
from dodona.errors import (
    CommitOutcomeUnknown,
    DodonaError,
    InvalidRequest,
    SchemaViolation,
    TableExists,
    TableNotFound,
    TableNotMounted,
)
from dodona_local.launcher import LocalCluster
from dodona_wire.messages.base import Failure
from dodona_wire.messages.codec import FRAME_BYTES_MAX, decode_replies
from suite.waiting import WAIT_S_MAX

pytestmark = pytest.mark.integration

SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "name", "type": "utf8"},
    {"name": "balance", "type": "int64", "required": True},
]
ROW = {"id": 1, "name": "one", "balance": 1}


@pytest.fixture
def table(db: dodona.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A mounted table over both nodes, one a test."""
    path = "//bad_input/" + re.sub(r"[^A-Za-z0-9]+", "_", request.node.name)
    db.create_table(path, schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
    db.insert_rows(path, [ROW])
    yield path
    assert db.lookup_rows(path, [{"id": 1}]) == [ROW], "the table changed, or is not served"


@pytest.mark.part("bad input at a socket")
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"name": "x", "number": 2, "balance": 1}, "no such column"),
        ({"id": "1", "balance": 1}, "takes an int, not str"),
        ({"id": True, "balance": 1}, "takes an int, not bool"),
        ({"id": 2**63, "balance": 1}, "does not fit in int64"),
        ({"id": 2, "name": 5, "balance": 1}, "takes a str, not int"),
        ({"id": 2, "name": "\ud800", "balance": 1}, "not Unicode text"),
        ({"id": 2, "name": "x"}, "required column is missing"),
        ({"id": 2, "balance": None}, "required column is null"),
        ({"id": 2, "balance": 1, "colour": "red"}, "no such column"),
    ],
)
def test_a_row_that_does_not_fit(db: dodona.Client, table: str, row: Any, words: str) -> None:
    def insert_both() -> None:
        with db.begin() as tx:
            tx.insert_rows(table, [{"id": 200, "balance": 2}])
            tx.insert_rows(table, [row])

    with pytest.raises(SchemaViolation, match=words) as caught:
        insert_both()
    assert caught.value.attributes["table"] == table
    assert caught.value.attributes["row_index"] == 0
    assert db.lookup_rows(table, [{"id": 200}]) == []


def test_unknown_names(db: dodona.Client, table: str) -> None:
    with pytest.raises(TableNotFound, match="//no/such"):
        db.lookup_rows("//no/such", [{"id": 1}])
    with pytest.raises(TableNotFound):
        db.insert_rows("//no/such", [ROW])
    with pytest.raises(SchemaViolation, match="no such column"):
        db.lookup_rows(table, [{"id": 1}], columns=["colour"])
    with pytest.raises(InvalidRequest, match="path"):
        db.create_table("no slashes", schema=SCHEMA)


def test_a_table_that_is_there_already_or_makes_no_sense(db: dodona.Client, table: str) -> None:
    with pytest.raises(TableExists, match=table):
        db.create_table(table, schema=SCHEMA)
    with pytest.raises(SchemaViolation, match="sorted table needs"):
        db.create_table("//bad_input/no_key", schema=[{"name": "a", "type": "int64"}])
    with pytest.raises(SchemaViolation, match="no field 'typ': use 'type'"):
        db.create_table("//bad_input/typo", schema=[{"name": "a", "typ": "int64"}])
    with pytest.raises(InvalidRequest):
        db.create_table("//bad_input/pivots", schema=SCHEMA, pivot_keys=[[], [5], [5]])
    assert not db.exists("//bad_input/pivots")


def test_an_unmounted_table(db: dodona.Client, table: str) -> None:
    db.unmount_table(table)
    with pytest.raises(TableNotMounted, match=table):
        db.lookup_rows(table, [{"id": 1}])
    with pytest.raises(TableNotMounted, match=table):
        db.insert_rows(table, [{"id": 2, "balance": 1}])
    db.mount_table(table)
    assert db.lookup_rows(table, [{"id": 2}]) == []


def test_a_table_that_is_removed_while_mounted_is_gone(db: dodona.Client) -> None:
    path = "//bad_input/removed"
    db.create_table(path, schema=SCHEMA, mount=True)
    db.insert_rows(path, [ROW])
    db.remove_table(path)
    with pytest.raises(TableNotFound, match=path):
        db.insert_rows(path, [ROW])


def data_plane(cluster: LocalCluster) -> list[str]:
    """The data plane of master, proxy and both nodes."""
    urls = [cluster.master_url, cluster.proxy_url, *cluster.node_urls]
    cells = ["", "", "&cell=0", "&cell=1"]
    return [
        f"{url.replace('http', 'ws', 1)}/rpc?version=1{cell}"
        for url, cell in zip(urls, cells, strict=True)
    ]


async def sent(url: str, frame: bytes | str) -> tuple[int, str]:
    """How the server closed the connection after this frame."""
    async with websockets.connect(url, compression=None, max_size=None) as socket:
        with pytest.raises(ConnectionClosed) as caught:
            await _exchange(socket, frame)
    assert caught.value.rcvd is not None
    return caught.value.rcvd.code, caught.value.rcvd.reason


async def _exchange(socket: websockets.ClientConnection, frame: bytes | str) -> None:
    await socket.send(frame)
    await asyncio.wait_for(socket.recv(), WAIT_S_MAX)


@pytest.mark.part("bad input at a socket")
@pytest.mark.anyio
@pytest.mark.parametrize("index", range(4))
async def test_garbled_and_over_long_frames(cluster: LocalCluster, index: int) -> None:
    url = data_plane(cluster)[index]
    for frame in (b"\xc1nonsense", b"", b"\x91\x92\x01\x91\xc3", "text"):
        code, reason = await sent(url, frame)
        assert (code, reason.partition(":")[0]) == (1007, "garbled frame")
        assert "Traceback" not in reason
    code, _ = await sent(url, bytes(FRAME_BYTES_MAX + 1))
    assert code == 1009
    port = url.partition("/rpc")[0].replace("ws", "http", 1)
    assert httpx.get(f"{port}/healthz").status_code == 200


@pytest.mark.anyio
@pytest.mark.parametrize("index", range(4))
async def test_a_message_of_a_later_release_is_refused(cluster: LocalCluster, index: int) -> None:
    async with websockets.connect(data_plane(cluster)[index]) as socket:
        await socket.send(b"\x91\x92\x01\x91\xcd\xff\xff")
        async with asyncio.timeout(WAIT_S_MAX):
            frame = await socket.recv()
    assert isinstance(frame, bytes)
    ((request_id, reply),) = decode_replies(frame)
    assert request_id == 1
    assert isinstance(reply, Failure)
    assert (reply.kind, "older release" in reply.message) == ("invalid_request", True)


@pytest.mark.anyio
async def test_a_handshake_for_another_cell_or_version_is_refused(cluster: LocalCluster) -> None:
    node = data_plane(cluster)[2]
    for url, status in (
        (node.replace("cell=0", "cell=1"), 421),
        (node.replace("version=1", "version=9"), 400),
        (node.replace("/rpc", "/else"), 404),
    ):
        with pytest.raises(InvalidStatus) as caught:
            await websockets.connect(url)
        assert caught.value.response.status_code == status


@pytest.mark.part("bad input over REST")
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/tables", b"{", 400),
        ("/v1/tables", b"[]", 400),
        ("/v1/tables", b'{"path": "//x", "columns": [{"name": 5}]}', 400),
        ("/v1/table/mount", b"", 400),
        ("/v1/table/mount?path=//no/such", b"", 404),
        ("/v1/timestamps", b'{"count": 0}', 400),
        ("/v1/timestamps", b'{"count": 1000001}', 400),
        ("/v1/tables", b"x" * (9 << 20), 413),
    ],
)
def test_rest_answers_bad_requests_with_a_problem_document(
    cluster: LocalCluster, path: str, body: bytes, status: int
) -> None:
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{cluster.master_url}{path}", content=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["detail"]
    assert "Traceback" not in answer.text


def test_a_node_that_dies_during_a_commit_leaves_all_rows_or_none(tmp_path: Path) -> None:
    """Stopped so that the prepare is surely under way, then killed: all or nothing, and typed."""
    with LocalCluster(tmp_path / "data") as cluster, dodona.connect(cluster.master_url) as db:
        db.create_table("//t", schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
        for victim, key in (("node 1", 2), ("node 0", 3)):
            tx = db.begin()
            tx.insert_rows("//t", [{"id": key, "balance": 7}, {"id": 100 + key, "balance": 7}])
            ended: list[DodonaError | None] = []

            def commit(tx: Any = tx, ended: Any = ended) -> None:
                try:
                    tx.commit()
                except DodonaError as error:
                    ended.append(error)
                else:
                    ended.append(None)

            pid = cluster.processes[victim].pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            thread = threading.Thread(target=commit)
            thread.start()
            thread.join(0.3)
            assert thread.is_alive(), "the commit did not need the node that was stopped"
            cluster.kill(victim)
            thread.join(60)
            assert len(ended) == 1, "the commit never ended"
            # Beside other tests it may take longer to start than a lookup waits for it.
            cluster.wait_until_ready(victim, start_count=2)
            rows = db.lookup_rows("//t", [{"id": key}, {"id": 100 + key}])
            assert len(rows) in (0, 2), "half of a transaction"
            if not isinstance(ended[0], CommitOutcomeUnknown):
                assert (ended[0] is None) == (len(rows) == 2)
            assert tx.id is not None
            outcome = db.outcome(tx.id)
            assert outcome.state == ("committed" if rows else "aborted")


@pytest.mark.alone  # beside others a node may take longer to start than a client waits for it
@pytest.mark.parametrize("is_under_way", [False, True])
def test_a_write_over_two_nodes_waits_for_the_one_that_was_killed(
    tmp_path: Path, is_under_way: bool
) -> None:
    """Without a transaction: whoever writes there notices a pause, and nothing else."""
    with LocalCluster(tmp_path / "data") as cluster, dodona.connect(cluster.master_url) as db:
        db.create_table("//t", schema=SCHEMA, pivot_keys=[[], [100]], mount=True)
        for number, victim in enumerate(("node 1", "node 0"), 1):
            rows = [{"id": number, "balance": 7}, {"id": 100 + number, "balance": 7}]
            cluster.pause(victim)
            killing = threading.Timer(0.3 if is_under_way else 0, cluster.kill, (victim,))
            killing.start()
            if not is_under_way:
                killing.join()
            db.insert_rows("//t", rows)
            found = db.lookup_rows("//t", [{"id": row["id"]} for row in rows])
            assert [row["balance"] for row in found] == [7, 7]
            killing.join()
            cluster.wait_until_ready(victim, start_count=2)
