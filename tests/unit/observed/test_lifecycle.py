"""Probes, the listener before a server is ready, and how a server stops."""

import asyncio
import json
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from dodona.errors import InvalidRequest
from dodona_gateway.shell import gateway
from dodona_server import thread_server
from dodona_server.answers import Answer
from dodona_server.lifecycle import Lifecycle, wait_until
from dodona_server.listener import Listener
from dodona_server.pages import create_application
from dodona_server.serving import serve_pages
from dodona_server.settings import ProcessSettings
from dodona_server.thread_server import ThreadServer
from suite import waiting
from unit.oracle.test_application import no_lifespan

HOST = "127.0.0.1"
URL = f"http://{HOST}"
LONG_BYTES = 16 << 20
"""More than the buffers of a connection take."""


def statuses(http: TestClient) -> dict[str, int]:
    return {it: http.get(f"/{it}").status_code for it in ("healthz", "readyz", "startupz")}


def test_probes_have_three_meanings() -> None:
    surprise: list[BaseException] = []
    not_ready: list[str] = ["waiting for the oracle"]
    lifecycle = Lifecycle(
        lambda: not_ready[0] if not_ready else None, lambda: surprise[0] if surprise else None
    )
    http = TestClient(create_application("test", no_lifespan, lifecycle))
    assert statuses(http) == {"healthz": 200, "readyz": 503, "startupz": 200}
    assert "the oracle" in http.get("/readyz").json()["detail"]
    not_ready.clear()
    assert statuses(http) == {"healthz": 200, "readyz": 200, "startupz": 200}
    lifecycle.is_draining = True
    assert statuses(http) == {"healthz": 200, "readyz": 503, "startupz": 200}
    surprise.append(AssertionError("secret insides"))
    assert statuses(http)["healthz"] == 503
    assert "secret" not in http.get("/healthz").text


# ---- the listener


def test_a_door_answers_probes_until_the_server_does() -> None:
    with Listener(HOST, 0) as listener:
        url = f"{URL}:{listener.port}"
        with socket.create_connection(
            (HOST, listener.port)
        ):  # says nothing, and holds up nobody long
            assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        for path in ("startupz", "readyz", "v1/statistics", "rpc?version=1"):
            answer = httpx.get(f"{url}/{path}")
            assert answer.status_code == 503
            assert answer.json()["retryable"] is True
        answer = httpx.post(f"{url}/v1/cells/heartbeat", content=b"x" * 100_000)
        assert answer.status_code == 503
        (listening,) = listener.hand_over()
        with socket.create_connection((HOST, listener.port)):  # in between: it waits
            listening.setblocking(True)
            listening.accept()[0].close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


def test_the_listener_of_a_gateway_answers_in_the_protocol_of_each_caller() -> None:
    """YTsaurus's client takes an answer without its own fields for a fault of its own."""
    with Listener(HOST, 0, gateway.refusal) as listener:
        url = f"{URL}:{listener.port}"
        answer = httpx.post(f"{url}/api/v4/commit_transaction?a=/healthz", content=b"x" * 100_000)
        assert (answer.status_code, answer.json()["code"]) == (400, 105)
        assert answer.json()["message"] == json.loads(answer.headers["X-YT-Error"])["message"]
        assert httpx.get(f"{url}/v1/tables").json()["kind"] == "unavailable"
        console = httpx.get(f"{url}/console/tables")
        assert console.status_code == 503
        assert console.headers["content-type"].startswith("text/html")
        assert httpx.get(f"{url}/healthz?a=b").status_code == 200


@pytest.mark.parametrize("garbage", [b"", b"\r\n\r\n", b"\x16\x03\x01", b"GET" + b"x" * 70_000])
def test_a_door_is_not_harmed_by_garbage(garbage: bytes) -> None:
    with Listener(HOST, 0) as listener:
        with socket.create_connection((HOST, listener.port)) as caller:
            caller.sendall(garbage)
        assert httpx.get(f"{URL}:{listener.port}/healthz").status_code == 200


def test_a_port_in_use_is_reported_with_its_address() -> None:
    with (
        Listener(HOST, 0) as listener,
        pytest.raises(InvalidRequest, match=f"{HOST}:{listener.port}"),
    ):
        Listener(HOST, listener.port)


def test_a_name_with_several_addresses_is_listened_at_all_of_them() -> None:
    with Listener("localhost", 0) as listener:
        assert httpx.get(f"http://localhost:{listener.port}/healthz").status_code == 200


def test_a_slow_sender_does_not_delay_other_callers_of_the_listener() -> None:
    with (
        Listener("127.0.0.1", 0) as listener,
        socket.create_connection(("127.0.0.1", listener.port)) as slow,
    ):
        has_ended = threading.Event()

        def drip() -> None:
            with suppress(OSError):  # it is turned away
                while not has_ended.wait(0.1):
                    slow.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            url = f"http://127.0.0.1:{listener.port}/healthz"
            assert httpx.get(url, timeout=4).status_code == 200
        finally:
            has_ended.set()
            dripping.join()


def test_connections_that_never_ask_do_not_delay_a_probe_at_the_listener() -> None:
    """A node that stands by answers there for days. Each of them held up all others for 0.5 s."""
    with ExitStack() as lines, Listener(HOST, 0) as listener:
        for half in (b"", b"GET /healthz HT") * 100:
            line = lines.enter_context(socket.create_connection((HOST, listener.port)))
            with suppress(OSError):  # it is turned away already
                line.sendall(half)
        assert httpx.get(f"{URL}:{listener.port}/healthz", timeout=20).status_code == 200


def test_a_client_that_takes_no_answer_does_not_delay_others_at_the_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_server, "TALK_SECONDS_MAX", 60.0)

    def respond(path: str, _: object) -> Answer:
        return Answer(200, "text/plain", b"x" * (LONG_BYTES if path == "/long" else 1))

    with socket.create_server((HOST, 0)) as listening:
        listening.setblocking(False)
        has_ended = threading.Event()
        server = ThreadServer([listening], respond)
        serving = threading.Thread(target=lambda: server.serve(has_ended.is_set, poll_s=0.05))
        serving.start()
        address = listening.getsockname()
        try:
            with ExitStack() as lines:
                for _ in range(20):
                    line = lines.enter_context(socket.create_connection(address))
                    line.sendall(b"GET /long HTTP/1.1\r\n\r\n")
                url = f"{URL}:{address[1]}"
                assert httpx.get(f"{url}/", timeout=20).text == "x"
                whole = httpx.get(f"{url}/long", timeout=60)
        finally:
            has_ended.set()
            serving.join()
    assert len(whole.content) == LONG_BYTES


# ---- the leave


class Leaving:
    """A server whose last request is still under way when the signal comes."""

    def __init__(self, **settings: Any) -> None:
        self.settings = ProcessSettings(**settings)
        self.lifecycle = Lifecycle(finish=self.finish)
        self.has_ended = False
        self.finished: list[str] = []

    async def finish(self) -> None:
        self.finished.append("asked")
        await wait_until(lambda: self.has_ended)
        self.finished.append("done")


def test_after_sigterm_a_server_reports_not_ready_then_finishes_and_ends() -> None:
    leaving = Leaving(drain_ms=3_000, finish_ms_max=3_600_000)
    seen: list[tuple[int, list[str]]] = []
    application = create_application("test", no_lifespan, leaving.lifecycle)

    def watch(url: str) -> None:
        with httpx.Client() as http:
            waiting.wait_until(lambda: http.get(f"{url}/readyz").status_code == 200)
            signal.raise_signal(signal.SIGTERM)
            for _ in range(2):
                seen.append((http.get(f"{url}/readyz").status_code, [*leaving.finished]))
                waiting.wait_until(lambda: leaving.finished)
            leaving.has_ended = True

    listener = Listener(HOST, 0)
    watching = threading.Thread(target=watch, args=(f"{URL}:{listener.port}",))
    kept = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with listener:
            watching.start()
            serve_pages(application, leaving.lifecycle, leaving.settings, listener)
    finally:
        signal.signal(signal.SIGTERM, kept)
    watching.join()
    assert seen == [(503, []), (503, ["asked"])]
    assert leaving.finished == ["asked", "done"]


def test_what_takes_too_long_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    leaving = Leaving(finish_ms_max=50)
    application = create_application("test", no_lifespan, leaving.lifecycle)
    kept = signal.signal(signal.SIGTERM, lambda *_: None)

    def stop(url: str) -> None:
        with httpx.Client() as http:
            waiting.wait_until(lambda: http.get(f"{url}/readyz").status_code == 200)
        signal.raise_signal(signal.SIGTERM)

    try:
        with Listener(HOST, 0) as listener:
            threading.Thread(target=stop, args=(f"{URL}:{listener.port}",)).start()
            serve_pages(application, leaving.lifecycle, leaving.settings, listener)
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert "did not end within 50 ms" in caplog.text
    assert leaving.finished == ["asked"]


def test_a_wait_can_be_bounded_by_a_timeout() -> None:
    async def run() -> None:
        async with asyncio.timeout(0.02):
            await wait_until(lambda: False)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
