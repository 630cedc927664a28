"""HEAD of the pages for operators is GET without a body, from a server's first moment on.

Monitors and load balancers ask so: `curl -I` (ctms-api 165, pocketbase 4310).
"""

import asyncio
import http.client
from typing import Any

import pytest
from starlette.testclient import TestClient

from dodona_server.exposition import Metrics
from dodona_server.front import Front
from dodona_server.lifecycle import Lifecycle
from dodona_server.listener import Listener
from dodona_server.pages import add_metrics, create_application
from unit.observed.test_front import get, no_lifespan
from unit.oracle.test_application import no_lifespan as no_pages_lifespan

HOST = "127.0.0.1"
PROBES = ("/healthz", "/readyz", "/startupz")


def headers(answer: Any) -> list[tuple[str, str]]:
    return sorted((name.lower(), value) for name, value in answer.getheaders())


@pytest.mark.parametrize("path", [*PROBES, "/metrics", "/v1/statistics"])
def test_a_listener_answers_head_as_get_without_the_body(path: str) -> None:
    with Listener(HOST, 0) as listener:
        answers = []
        for method in ("GET", "HEAD"):
            line = http.client.HTTPConnection(HOST, listener.port, timeout=60)
            line.request(method, path)
            answers.append(line.getresponse())
            assert bool(answers[-1].read()) == (method == "GET")
            line.close()
    whole, head = answers
    assert (head.status, headers(head)) == (whole.status, headers(whole))


def test_a_listener_sends_nothing_behind_the_headers_of_a_head_request() -> None:
    with Listener(HOST, 0) as listener:
        line = http.client.HTTPConnection(HOST, listener.port, timeout=60)
        line.connect()
        line.sock.sendall(b"HEAD /healthz HTTP/1.1\r\n\r\n")
        raw = b"".join(iter(lambda: line.sock.recv(1 << 16), b""))
        line.close()
    assert raw.startswith(b"HTTP/1.1 200 ")
    assert raw.endswith(b"\r\n\r\n")
    assert raw.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize("path", PROBES)
def test_before_there_are_pages(path: str) -> None:
    def never() -> Any:
        raise AssertionError("health waits for no pages")

    front = Front(Lifecycle(), no_lifespan, never)
    whole, head = [asyncio.run(get(front, path, method)) for method in ("GET", "HEAD")]
    assert head == whole  # the server of HTTP leaves the body out
    assert head[0] in (200, 503)


def test_of_all_pages() -> None:
    not_ready: list[str] = ["waiting"]
    application = create_application(
        "test", no_pages_lifespan, Lifecycle(lambda: not_ready[0] if not_ready else None)
    )
    add_metrics(application, Metrics("proxy", (), lambda: ()))
    pages = TestClient(application)
    for _ in range(2):
        for path in PROBES:
            whole, head = pages.get(path), pages.head(path)
            assert (head.status_code, dict(head.headers)) == (
                whole.status_code,
                dict(whole.headers),
            )
        not_ready.clear()
    assert pages.head("/metrics").status_code == pages.get("/metrics").status_code == 200
    assert "head" not in str(application.openapi()["paths"]["/healthz"].keys())
