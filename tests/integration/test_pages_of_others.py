"""Every server of a cluster, and those who must not get at it: pages of other sites in a browser on
this machine, programs without the key, and thousands of connections that never ask."""

import asyncio
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser

import dodona
import dodona.aio
from dodona.errors import Unauthenticated
from dodona_local.launcher import LocalCluster
from dodona_local.ports import HOST
from dodona_local.status import list_in_doubt, look_at_cluster
from dodona_local.supervisor import Plan
from integration.gateway.browser import find_browser, launched

PROGRAM = find_browser()
pytestmark = pytest.mark.integration
SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
KINDS: Final = ("master", "proxy", "node", "gateway")
CONNECTIONS_MAX: Final = 20
UPGRADE: Final = {
    "connection": "upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


class Kept(NamedTuple):
    """A cluster, and its servers by kind."""

    cluster: LocalCluster
    folder: Path

    def url(self, kind: str) -> str:
        running = self.cluster
        urls = (running.master_url, running.proxy_url, running.node_urls[0])
        return dict(zip(KINDS, (*urls, running.gateway_urls[0]), strict=True))[kind]


@pytest.fixture(scope="module")
def open_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Without any key or token."""
    folder = tmp_path_factory.mktemp("open") / "data"
    with LocalCluster(folder, node_count=1, gateway_count=1, is_insecure=True) as running:
        yield Kept(running, folder)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """As `dodona up` starts one."""
    folder = tmp_path_factory.mktemp("keyed") / "data"
    with LocalCluster(folder, gateway_count=1, is_insecure=True, has_key=True) as running:
        yield Kept(running, folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with launched(PROGRAM) as running:
        yield running


# ---- pages

MAKE: Final = json.dumps({"path": "//evil"})
REGISTER: Final = json.dumps({"address": "http://127.0.0.1:1"})
STRANGE: Final = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": f"http://{HOST}:1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"host": "evil.example"},
    {"host": "evil.example:8500"},
    {"host": f"{HOST}.evil.example"},
]


@pytest.mark.parametrize("strange", STRANGE, ids=str)
@pytest.mark.parametrize("kind", KINDS[:3])
def test_servers_refuse_requests_from_pages_of_other_sites(
    strange: dict[str, str], kind: str, open_one: Kept
) -> None:
    url = open_one.url(kind)
    for method, path in (
        ("GET", "/v1/statistics"),
        ("GET", "/metrics"),
        ("OPTIONS", "/v1/cluster"),
    ):
        refused = httpx.request(method, url + path, headers=strange)
        assert (refused.status_code, refused.json()["kind"]) == (403, "forbidden")
        assert "access-control-allow-origin" not in refused.headers
    query = "version=1" + ("&cell=0" if kind == "node" else "")
    assert httpx.get(f"{url}/rpc?{query}", headers={**UPGRADE, **strange}).status_code == 403
    assert httpx.get(f"{url}/healthz", headers=strange).status_code == 200


@pytest.mark.parametrize("strange", STRANGE, ids=str)
def test_a_gateway_without_tokens_also_refuses_pages_of_other_sites(
    strange: dict[str, str], open_one: Kept
) -> None:
    url = open_one.url("gateway")
    assert httpx.get(f"{url}/v1/cluster", headers=strange).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_whose_content_type_needs_no_cors_preflight_is_refused(
    kind: str, open_one: Kept
) -> None:
    headers = {"content-type": kind} if kind else {}
    for path, body in (("/v1/directories", MAKE), ("/v1/proxies", REGISTER)):
        url = open_one.url("master") + path
        assert httpx.post(url, content=body, headers=headers).status_code == 415
    gateway = open_one.url("gateway")
    assert httpx.post(f"{gateway}/v1/query", content=MAKE, headers=headers).status_code == 415


ATTACK: Final = """async ([urls, make]) => {
  const said = [];
  for (const url of urls) {
    for (const path of ["/v1/directories", "/v1/proxies", "/v1/tables"])
      for (const mode of ["no-cors", "cors"])
        for (const type of ["text/plain", "application/json"])
          try {
            const answer = await fetch(url + path,
              {method: "POST", mode, body: make, headers: {"content-type": type}});
            if (answer.type !== "opaque") said.push([url, path, answer.status]);
          } catch (error) {}
    try { said.push([url, await (await fetch(url + "/v1/statistics")).text()]); } catch (error) {}
    for (const query of ["version=1", "version=1&cell=0"])
      await new Promise(done => {
        const socket = new WebSocket(url.replace("http", "ws") + "/rpc?" + query);
        socket.onopen = () => { said.push([url, "a WebSocket"]); done(); };
        socket.onerror = done;
      });
  }
  return said;
}"""


class _Evil(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>a page of somebody else</title>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("name", [HOST, "localhost"])
def test_a_browser_lets_a_page_of_another_origin_do_nothing(
    name: str, browser: Browser, open_one: Kept, keyed: Kept
) -> None:
    with http.server.ThreadingHTTPServer((HOST, 0), _Evil) as evil:
        threading.Thread(target=evil.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.goto(f"http://{name}:{evil.server_port}/")
        for running in (open_one, keyed):
            urls = [running.url(kind) for kind in KINDS]
            assert page.evaluate(ATTACK, [urls, MAKE]) == []
            with dodona.connect(running.cluster.master_url) as db:
                assert not db.exists("//evil")
        page.close()
        evil.shutdown()


# ---- the key


def test_clients_on_this_machine_find_the_key(keyed: Kept) -> None:
    key_file = keyed.folder / "cluster-key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    url = keyed.cluster.master_url
    with dodona.connect(url) as db:
        db.create_table("//found", SCHEMA, pivot_keys=[[], [10]], mount=True)
        with db.begin() as tx:  # in both cells
            tx.insert_rows("//found", [{"k": 1, "v": 1}, {"k": 20, "v": 2}])
        assert [row["k"] for row in db.select("//found")] == [1, 20]

    async def ask() -> list[Any]:
        async with await dodona.aio.connect(url) as db:
            return list(await db.select("//found"))

    with ThreadPoolExecutor(1) as apart:  # a browser's event loop may run in this thread
        assert len(apart.submit(lambda: asyncio.run(ask())).result()) == 2
    statuses = look_at_cluster(url)
    assert [it.state for it in statuses] == ["ready"] * 4
    assert sum(it.tablets or 0 for it in statuses) >= 2
    assert list_in_doubt(url) == ([], [])


def test_a_program_without_the_cluster_key_is_refused(
    keyed: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS[:3]:
        url = keyed.url(kind)
        refused = httpx.get(f"{url}/v1/statistics")
        assert refused.status_code == 401
        query = "version=1" + ("&cell=0" if kind == "node" else "")
        assert httpx.get(f"{url}/rpc?{query}", headers=UPGRADE).status_code == 401
    where = httpx.get(f"{keyed.url('master')}/v1/cluster")
    assert where.json()["attributes"]["key_file"] == str(keyed.folder / "cluster-key")
    elsewhere = httpx.get(f"{keyed.url('master')}/v1/cluster", headers={"host": "evil.example"})
    assert str(keyed.folder) not in elsewhere.text
    monkeypatch.setenv("DODONA_CLUSTER_KEY", "a-key-of-another-cluster")
    with pytest.raises(Unauthenticated, match="cluster-key"):
        dodona.connect(keyed.cluster.master_url)


def test_a_key_that_others_may_read_is_not_sent(keyed: Kept) -> None:
    key_file = keyed.folder / "cluster-key"
    key_file.chmod(0o644)
    try:
        with pytest.raises(Unauthenticated):
            dodona.connect(keyed.cluster.master_url)
    finally:
        key_file.chmod(0o600)


# ---- connections that never ask


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A gateway that takes few connections, so that few are too many."""
    folder = tmp_path_factory.mktemp("narrow") / "data"

    def few(plans: list[Plan]) -> list[Plan]:
        return [
            it.with_option("--connection-count-max", str(CONNECTIONS_MAX))
            if it.module == "dodona_gateway"
            else it
            for it in plans
        ]

    with LocalCluster(
        folder, node_count=1, gateway_count=1, is_insecure=True, arrange=few
    ) as running:
        yield Kept(running, folder)


HALVES: Final = (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-a: ")


@pytest.mark.parametrize("kind", KINDS)
def test_half_sent_headers_have_a_deadline(kind: str, open_one: Kept) -> None:
    address = urlsplit(open_one.url(kind))
    with ExitStack() as lines:
        ends = []
        for half in HALVES:
            line = lines.enter_context(socket.create_connection((HOST, address.port or 0)))
            line.sendall(half)
            line.settimeout(20)
            ends.append(line)
        began = time.monotonic()
        said = [_read_all(line) for line in ends]
    assert 5 < time.monotonic() - began < 18
    assert said[0] == b""
    assert all(b" 408 " in it for it in said[1:])


def _read_all(line: socket.socket) -> bytes:
    found = b""
    with suppress(ConnectionResetError):
        while part := line.recv(4096):
            found += part
    return found


def test_connections_without_a_request_do_not_block_other_callers(narrow: Kept) -> None:
    url = narrow.url("gateway")
    with ExitStack() as lines:
        for _ in range(CONNECTIONS_MAX * 4):
            line = socket.create_connection((HOST, urlsplit(url).port or 0))
            lines.enter_context(line)
            with suppress(ConnectionError):
                line.sendall(HALVES[2])
        for _ in range(5):
            assert httpx.get(f"{url}/healthz").status_code == 200
            assert httpx.get(f"{url}/v1/cluster").status_code == 200
