"""Bulk over REST: streams in and out, whole or not at all, whoever hangs up or dies."""

import io
import itertools
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgpack
import pyarrow
import pytest

import dodona
from dodona.errors import DodonaError
from dodona_gateway.core.content import TYPES
from dodona_local.launcher import LocalCluster
from integration.gateway.rest import Rest, problem_of
from suite.waiting import wait_until

pytestmark = pytest.mark.integration

SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "string"},
    {"name": "d", "type": "double"},
    {"name": "x", "type": "any"},
]
COUNT: Final = 100_000
PIECE_BYTES: Final = 70_001
ARROW, LINES, PACKED = TYPES["arrow"], TYPES["ndjson"], TYPES["msgpack"]
_numbers: Final = itertools.count()


@pytest.fixture(params=["full", "none"])
def atomicity(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(rest: Rest, request: pytest.FixtureRequest, atomicity: str) -> str:
    path = f"//bulk/{atomicity}/{request.node.originalname}_{next(_numbers)}"
    rest("create_table", path=path, schema=SCHEMA, atomicity=atomicity, mount=True,
         pivot_keys=[[], [COUNT // 2]])  # fmt: skip
    return path


def arrow_stream(count: int = COUNT) -> bytes:
    keys = list(range(count))
    return _stream_of(pyarrow.table({"k": keys, "v": [b"v%d" % key for key in keys]}))


def _stream_of(data: pyarrow.Table) -> bytes:
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data, max_chunksize=20_000)
    return sink.getvalue()


def pieces(content: bytes) -> Iterator[bytes]:
    """So that it is sent in chunks, which rows and batches don't know of."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def write(rest: Rest, table: str, form: str, content: bytes, **fields: Any) -> Any:
    body = (form, pieces(content))
    answer = rest.send("bulk_write", content=body, table=table, **fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(rest: Rest, table: str, form: str, content: bytes, **fields: Any) -> Any:
    body = (form, pieces(content))
    return problem_of(rest.send("bulk_write", content=body, table=table, **fields))


def read(rest: Rest, table: str, form: str = ARROW, **fields: Any) -> bytes:
    answer = rest.http.get(
        "/v1/bulk/read", params={"table": table, **fields}, headers={"accept": form}
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(form)
    return answer.content


def count_rows(rest: Rest, table: str) -> int:
    with pyarrow.ipc.open_stream(read(rest, table)) as reader:
        found: int = reader.read_all().num_rows
        return found


def test_arrow_in_and_out(rest: Rest, table: str, atomicity: str) -> None:
    written = write(rest, table, ARROW, arrow_stream())
    assert (written["row_count"], written["is_skipped"]) == (COUNT, False)
    assert (written["timestamp"] is None) == (atomicity == "none")
    with pyarrow.ipc.open_stream(read(rest, table)) as reader:
        found = reader.read_all()
    assert found.column("k").to_pylist() == list(range(COUNT))
    assert found.column("v")[77].as_py() == b"v77"
    with pyarrow.ipc.open_stream(read(rest, table, lower=f"[{COUNT}]", columns="v,k")) as reader:
        assert reader.read_all().schema.names == ["v", "k"]


@pytest.mark.parametrize("form", [ARROW, LINES, PACKED])
def test_few_rows_of_many_columns(rest: Rest, atomicity: str, form: str) -> None:
    """Masks of more than 64 value columns travel as bytes."""
    path = f"//bulk/{atomicity}/wide_{next(_numbers)}"
    names = [f"v{place}" for place in range(65)]
    schema = [SCHEMA[0], *({"name": name, "type": "int64"} for name in names)]
    rest("create_table", path=path, schema=schema, atomicity=atomicity, mount=True)
    row = {"k": 1, **dict.fromkeys(names, 7)}
    bodies = {LINES: json.dumps(row).encode() + b"\n", PACKED: msgpack.packb(row)}
    content = bodies.get(form) or _stream_of(pyarrow.Table.from_pylist([row]))
    assert write(rest, path, form, content)["row_count"] == 1
    assert json.loads(read(rest, path, LINES)) == row


def test_rows_in_and_out_in_any_form(rest: Rest, table: str) -> None:
    lines = b"".join(
        json.dumps({"k": key, "v": "ü", "d": {"$double": "Infinity"}}).encode() + b"\n"
        for key in range(30_000)
    )
    assert write(rest, table, LINES, lines)["row_count"] == 30_000
    packed = b"".join(
        msgpack.packb({"k": key, "v": b"\xff", "x": [1, None, b"\xff"]})
        for key in range(30_000, 60_000)
    )
    assert write(rest, table, PACKED, packed)["row_count"] == 30_000
    shown = read(rest, table, LINES, lower="[29999]", upper="[30001]").splitlines()
    assert [json.loads(line) for line in shown] == [
        {"k": 29_999, "v": "ü", "d": {"$double": "Infinity"}, "x": None},
        {"k": 30_000, "v": {"$base64": "/w=="}, "d": None, "x": [1, None, {"$base64": "/w=="}]},
    ]
    unpacker = msgpack.Unpacker(io.BytesIO(read(rest, table, PACKED)))
    rows = list(unpacker)
    assert len(rows) == 60_000
    assert rows[-1] == {"k": 59_999, "v": b"\xff", "d": None, "x": [1, None, b"\xff"]}


@pytest.mark.parametrize(
    ("form", "content", "said"),
    [
        (LINES, b'{"k": 1, "v": "x"}\n{"k": "two"}\n', {"row_index": 1, "column": "k"}),
        (LINES, b'{"k": 1, "v": "x"}\n{"k": 2', {"row_index": 1}),
        (PACKED, msgpack.packb({"k": 1, "v": b""}) + b"\x81", {"row_index": 1}),
        (PACKED, msgpack.packb({"k": 1, "z": 1}), {"row_index": 0, "column": "z"}),
        (LINES, b'{"k": 1, "v": "x"}\n{"v": "y"}\n', {"row_index": 1, "column": "k"}),
        (PACKED, msgpack.packb({"v": b"x"}), {"row_index": 0, "column": "k"}),
        (ARROW, arrow_stream(10)[:-200], {}),
        (ARROW, b"nonsense, and some more of it", {}),
    ],
)
def test_a_body_that_is_wrong_writes_nothing(
    rest: Rest, table: str, form: str, content: bytes, said: dict[str, Any]
) -> None:
    problem = refused(rest, table, form, content)
    assert problem.status == 400
    assert said.items() <= problem.attributes.items()
    assert count_rows(rest, table) == 0


def test_the_error_of_a_non_atomic_bulk_write_reports_the_number_of_written_rows(
    rest: Rest,
) -> None:
    rest("create_table", path="//bulk/some", schema=SCHEMA, atomicity="none", mount=True)
    good = b"".join(b'{"k": %d, "v": ""}\n' % key for key in range(45_000))
    problem = refused(rest, "//bulk/some", LINES, good + b'{"k": -1, "v": 5}\n')
    assert problem.attributes["row_index"] == 45_000
    assert problem.attributes["row_count"] == count_rows(rest, "//bulk/some") == 40_000


def test_modes_and_versions_of_an_application(rest: Rest) -> None:
    rest("create_table", path="//bulk/modes", schema=SCHEMA, mount=True)
    ten = arrow_stream(10)
    first = write(rest, "//bulk/modes", ARROW, ten, application="etl", version=1)
    assert (first["row_count"], first["is_skipped"]) == (10, False)
    again = write(rest, "//bulk/modes", ARROW, ten, application="etl", version=1)
    assert (again["row_count"], again["is_skipped"]) == (0, True)
    problem = refused(rest, "//bulk/modes", ARROW, ten, mode="insert")
    assert (problem.status, problem.kind) == (409, "duplicate_key")
    keys = b"".join(b'{"k": %d}\n' % key for key in range(5))
    write(rest, "//bulk/modes", LINES, keys, mode="delete")
    assert count_rows(rest, "//bulk/modes") == 5
    rest("create_table", path="//bulk/plain", schema=SCHEMA, atomicity="none", mount=True)
    problem = refused(rest, "//bulk/plain", ARROW, ten, mode="insert")
    assert "The table has atomicity none. Leave out mode" in problem.detail


def hang_up(url: str, table: str, content: bytes) -> None:
    """Promise a long body, send its beginning, and go."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port or 0)) as connection:
        head = (
            f"POST /v1/bulk/write?table={table} HTTP/1.1\r\nhost: {address.netloc}\r\n"
            f"content-type: {ARROW}\r\ncontent-length: {len(content) + 1_000_000}\r\n\r\n"
        )
        connection.sendall(head.encode() + content)
        time.sleep(0.5)  # so that the load has begun, unless the machine is slow


def test_a_caller_that_disconnects_leaves_no_rows_of_an_atomic_bulk_write(
    rest: Rest, gateways: LocalCluster
) -> None:
    rest("create_table", path="//bulk/half", schema=SCHEMA, mount=True)
    hang_up(rest.url, "//bulk/half", arrow_stream())
    assert count_rows(rest, "//bulk/half") == 0
    with dodona.connect(gateways.master_url) as db:
        wait_until(
            lambda: "running" not in {it.state for it in db.loads.list_loads()},
            "the load was aborted at once, not by its lease",
            pause_s=0.1,
        )


def test_a_gateway_that_dies_during_a_load_leaves_no_rows(tmp_path: Path) -> None:
    with LocalCluster(
        tmp_path / "data", node_count=1, gateway_count=1, is_insecure=True, back_off_s_max=0.1
    ) as cluster:
        (url,) = cluster.gateway_urls
        with Rest(url) as rest:
            rest("create_table", path="//t", schema=SCHEMA, mount=True)

            def killing() -> Iterator[bytes]:
                yield from pieces(arrow_stream())
                time.sleep(1)
                cluster.kill("gateway")
                yield b"more"

            with pytest.raises(httpx.HTTPError):
                rest.http.post(
                    "/v1/bulk/write",
                    params={"table": "//t"},
                    content=killing(),
                    headers={"content-type": ARROW},
                )
        cluster.wait_until_ready("gateway", start_count=2)
        with Rest(url) as rest:
            assert count_rows(rest, "//t") == 0
        with dodona.connect(cluster.master_url) as db:
            try:
                db.loads.recover()
            except DodonaError as error:
                raise AssertionError("its remains can be cleared up") from error
            assert db.select("//t") == []


def test_an_answer_that_breaks_off_has_no_end(rest: Rest) -> None:
    """Its caller can tell: HTTP's last chunk is missing."""
    rest("create_table", path="//bulk/gone", schema=SCHEMA, mount=True)
    write(rest, "//bulk/gone", ARROW, arrow_stream(500_000))
    with rest.http.stream("GET", "/v1/bulk/read", params={"table": "//bulk/gone"}) as answer:
        parts = answer.iter_raw(1000)
        next(parts)
        rest("remove_node", path="//bulk/gone")
        with pytest.raises(httpx.RemoteProtocolError):
            list(parts)
