"""What the real client would never send: bombs, garbage, too much, too deep, torn. Each is an error
in YTsaurus's form, and the gateway goes on."""

import gzip
import json
import socket
import time
import zlib
from typing import Any, Final

import brotli
import pytest
import requests
import yt.wrapper as yt

from dodona_local.launcher import LocalCluster
from integration.ytsaurus.plain import ask, error_of

pytestmark = pytest.mark.integration

MEMORY_MIB_MAX: Final = 1_000
"""Of the gateway after all that. It uses about 200 by itself."""


@pytest.fixture
def table(make_table: Any) -> str:
    return str(make_table("k int64 key", "v string", "a any"))


def insert(
    url: str, path: str, content: Any, encoding: str = "identity", form: str = "yson"
) -> Any:
    parameters = {"path": path, "input_format": form}
    headers = {"Content-Encoding": encoding}
    return ask(url, "insert_rows", parameters, content, headers=headers)


def refused(answer: requests.Response, words: str, *codes: int) -> dict[str, Any]:
    assert answer.status_code == 400, answer.text
    told = error_of(answer)
    assert told["code"] in codes
    assert words in told["message"]
    return told


ROW: Final = b'{k=%d;v="%s";};'


@pytest.mark.parametrize(
    ("pack", "encoding"),
    [
        (gzip.compress, "gzip"),
        (zlib.compress, "gzip"),
        (zlib.compress, "deflate"),
        (brotli.compress, "br"),
        (lambda it: it, "identity"),
    ],
)
def test_packed_and_encoded_rows_are_inserted_completely(
    url: str, table: str, client: yt.YtClient, pack: Any, encoding: str
) -> None:
    content = b"".join(ROW % (k, b"x" * 1000) for k in range(3_000))
    assert insert(url, table, pack(content), encoding).status_code == 200
    (row,) = client.select_rows(f"sum(1) as n from [{table}] group by 1")
    assert row["n"] == 3_000


def test_gzip_may_have_several_members(url: str, table: str, client: yt.YtClient) -> None:
    members = b"".join(gzip.compress(ROW % (k, b"x")) for k in range(3))
    assert insert(url, table, members, "gzip").status_code == 200
    assert [it["k"] for it in client.select_rows(f"k from [{table}]")] == [0, 1, 2]


@pytest.mark.parametrize(("pack", "encoding"), [(gzip.compress, "gzip"), (brotli.compress, "br")])
def test_a_packed_body_that_is_torn_writes_nothing(
    url: str, table: str, client: yt.YtClient, pack: Any, encoding: str
) -> None:
    whole = pack(b"".join(ROW % (k, b"x" * 50) for k in range(100)))
    for length in (1, 2, 5, 12, len(whole) // 2, len(whole) - 1):
        refused(insert(url, table, whole[:length], encoding), "", 1)
    refused(insert(url, table, whole + b"junk", encoding), "The body is n", 1)
    refused(insert(url, table, b"junk" + whole, encoding), "The body is n", 1)
    assert list(client.select_rows(f"* from [{table}]")) == []


def test_an_unknown_packing(url: str, table: str) -> None:
    refused(insert(url, table, b"{k=1}", "z-lz4"), "Content-Encoding", 11115)


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param((b"#" * (1 << 20), 0), id="of no rows"),
        pytest.param((b"{k=1;v=a};" * (1 << 17), 300), id="of rows"),
        pytest.param((b"[];" * (1 << 18), 300), id="of lists"),
        pytest.param((b" " * (1 << 20), 300), id="of spaces"),
    ],
)
@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_a_bomb_is_refused_and_takes_neither_memory_nor_time(
    open_cluster: LocalCluster, url: str, table: str, bomb: Any, encoding: str
) -> None:
    content, times = bomb
    whole = content * max(1, times)
    packed = gzip.compress(whole, 1) if encoding == "gzip" else brotli.compress(whole, quality=1)
    began = time.monotonic()
    refused(insert(url, table, packed, encoding), "", 1, 1717)
    assert time.monotonic() - began < 20
    check_memory(open_cluster)


def test_one_row_of_millions_of_values_is_refused(
    open_cluster: LocalCluster, url: str, table: str
) -> None:
    """In few bytes: at each of the places where values may be."""
    for inner in (b"[];", b"{};", b"<a=1>[];"):
        row = b"{k=1;a=[" + inner * 1_000_000 + b"]};"
        refused(insert(url, table, gzip.compress(row, 1), "gzip"), "", 1717)
    many = b"".join(b"{k=%d;a=[%s]};" % (k, b"[];" * 200_000) for k in range(16))
    refused(insert(url, table, gzip.compress(many, 1), "gzip"), "at most 3000000", 1717)
    lists = b"[" + b"[]," * 4_000_000 + b"0]"
    line = b'{"k":1,"a":' + lists + b"}\n"
    refused(insert(url, table, gzip.compress(line, 1), "gzip", "json"), "", 1717)
    check_memory(open_cluster)


def check_memory(cluster: LocalCluster) -> None:
    pid = cluster.processes["gateway"].pid
    with open(f"/proc/{pid}/status") as status:
        (line,) = [it for it in status if it.startswith("VmHWM")]
    assert int(line.split()[1]) >> 10 < MEMORY_MIB_MAX


@pytest.mark.parametrize("depth", [100, 10_000, 1_000_000])
def test_values_that_are_nested_too_deep_are_refused(url: str, table: str, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    refused(insert(url, table, b"{k=1;a=" + nested + b"};"), "", 1, 307, 1717)
    refused(insert(url, table, b'{"k":1,"a":' + nested + b"}", form="json"), "", 1, 307, 1717)
    attributes = b"<a=" * depth + b"1" + b">1" * depth
    refused(insert(url, table, b"{k=1;a=" + attributes + b"};"), "", 1, 307, 1717)
    if depth <= 100_000:
        refused(ask(url, "get", b"{path=" + nested + b"}"), "", 1, 1717)
    refused(ask(url, "create", b"{path=" + nested + b"}"), "", 1, 1717)


ROWS_THAT_ARE_NONE: Final = (
    *(b"{", b"}", b"{k=1", b"{k=1;;v=2}", b"\x01\xff\xff\xff\xff\xff", b"\x00", b"{k=%maybe}"),
    *(b"5;6;", b"#;", b"<a=1>{k=1};", b"[1;2];", b'"text";', b"{1=2};", b"{k=1;k=2};x"),
    b"\xff" * 100,
)


@pytest.mark.parametrize("content", ROWS_THAT_ARE_NONE)
def test_garbage_for_rows(url: str, table: str, client: yt.YtClient, content: bytes) -> None:
    refused(insert(url, table, content), "", 1, 307)
    assert list(client.select_rows(f"* from [{table}]")) == []


@pytest.mark.parametrize("content", [b"{", b"5", b'"x"', b"[1]", b'{"k":1}x', b"\xff\xfe", b"null"])
def test_garbage_for_json_rows(url: str, table: str, content: bytes) -> None:
    refused(insert(url, table, content, form="json"), "", 1, 307)


PARAMETERS_THAT_ARE_NONE: Final = (
    *(b"", b"5", b"[1]", b"{", b"#", b"{path}", b"{path=#}", b"{path=5}", b"{path=[]}"),
    *(b"{path={}}", b'{path="";}', b"{path=\xff\xfe}", b'{path=<a=1>"";}', b'{path="<"}'),
    b'{path="<a=1>"}',
)


@pytest.mark.parametrize("parameters", PARAMETERS_THAT_ARE_NONE)
def test_garbage_for_parameters(url: str, parameters: bytes) -> None:
    for command in ("get", "create", "mount_table", "lookup_rows", "lock"):
        refused(ask(url, command, parameters), "", 1)


JSON_THAT_IS_NONE: Final = (
    *("", "5", "[]", "null", '{"path":1}', '{"path":"\\ud800"}', '{"path":"//t","x":1e999}'),
    *('{"path":{"$value":1,"$attributes":2}}', '{"x":' + "1" * 5_000 + "}", '"\\u0000"'),
)


@pytest.mark.parametrize("text", JSON_THAT_IS_NONE)
def test_garbage_for_json_parameters(url: str, text: str) -> None:
    headers = {"X-YT-Parameters": text, "X-YT-Header-Format": "json"}
    refused(requests.get(f"{url}/api/v4/get", headers=headers, timeout=60), "", 1)
    body = {"Content-Type": "application/json"}
    answer = requests.post(f"{url}/api/v4/create", data=text, headers=body, timeout=60)
    refused(answer, "", 1)


def test_parameters_come_from_three_places_and_the_later_win(url: str, folder: str) -> None:
    address = f"{url}/api/v4/create"
    header = {"X-YT-Parameters": json.dumps({"path": f"{folder}/header", "type": "map_node"})}
    query = {"path": f"{folder}/query", "type": "table"}
    body = {"path": f"{folder}/body"}
    answer = requests.post(address, params=query, json=body, headers=header, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["node_id"]
    answer = requests.get(f"{url}/api/v4/list", params={"path": folder}, timeout=60)
    assert answer.json() == {"value": ["body"]}
    answer = requests.get(
        f"{url}/api/v4/exists", params={"path": f"{folder}/body"}, headers={}, timeout=10
    )
    assert answer.json() == {"value": True}


def test_commands_and_methods_that_are_none(url: str) -> None:
    refused(ask(url, "nothing"), "'nothing' is not supported", 1)
    refused(ask(url, "get", method="POST"), "needs GET, not POST", 1)
    refused(ask(url, "insert_rows", method="GET"), "needs PUT, not GET", 1)
    assert requests.delete(f"{url}/api/v4/get", timeout=60).status_code == 405
    for path in ("/api/v3", "/api/v3/get", "/api/v4/get/more", "/api/v5/get"):
        refused(requests.get(url + path, timeout=60), "version v4", 1)


@pytest.mark.parametrize(
    "form", ["dsv", "<format=other>yson", 5, {"a": 1}, [], "<encode_utf8=maybe>yaml"]
)
def test_formats_that_are_none(url: str, table: str, form: Any) -> None:
    for command, name in (("get", "output_format"), ("lookup_rows", "input_format")):
        answer = ask(url, command, {"path": table, name: form}, b"")
        refused(answer, "format", 1)


def test_requests_with_too_many_rows_too_long_values_or_large_batches_are_refused(
    url: str, table: str
) -> None:
    many = b"".join(b"{k=%d};" % k for k in range(100_002))
    refused(insert(url, table, many), "", 1717)
    exactly = b"".join(b"{k=%d};" % k for k in range(100_000))
    assert insert(url, table, exactly).status_code == 200
    long = b'{k=1;v="' + b"x" * (20 << 20) + b'"};'
    refused(insert(url, table, long), "", 1717, 307)
    refused(ask(url, "create", {"path": "//x", "type": "y" * (9 << 20)}), "at most", 1717)
    answer = requests.put(
        f"{url}/api/v4/set",
        data=b'"' + b"x" * (9 << 20) + b'"',
        params={"path": f"{table}/@mine"},
        timeout=60,
    )
    refused(answer, "at most", 1717)
    batch = {"requests": [{"command": "exists", "parameters": {"path": "/"}}] * 1_001}
    refused(ask(url, "execute_batch", batch), "at most 1000", 1717)


def test_a_sender_that_goes_away_writes_nothing(url: str, table: str, client: yt.YtClient) -> None:
    host, port = url.removeprefix("http://").split(":")
    head = (
        f"PUT /api/v4/insert_rows?path={table} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n7\r\n{k=1};\n\r\n"
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode())
        time.sleep(0.2)
    time.sleep(0.2)
    assert list(client.select_rows(f"* from [{table}]")) == []


def test_headers_that_are_too_long_get_an_error_in_the_form_of_ytsaurus(url: str) -> None:
    answer = requests.get(
        f"{url}/api/v4/get", headers={"X-YT-Parameters": "x" * (2 << 20)}, timeout=10
    )
    assert answer.status_code == 431
    assert answer.headers["X-YT-Response-Code"] == "1717"
    assert json.loads(answer.headers["X-YT-Error"])["message"].startswith("The request line")
