"""Who answers at a server's port while its loop stands still."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from dodona_server.listener import Listener
from dodona_server.probe_responder import POLL_SECONDS, STALLED_US_MIN, ProbeResponder
from suite.waiting import WAIT_S_MAX, wait_until

HOST = "127.0.0.1"
MOMENT_S = 3 * POLL_SECONDS


class Stalled:
    """A server whose loop stands still for as long as it is told to."""

    def __init__(self, listener: Listener) -> None:
        self.us = 0
        (self.listening,) = listener.hand_over()
        self.port = listener.port
        self.url = f"http://{HOST}:{listener.port}"
        self.responder = ProbeResponder([self.listening], lambda: self.us)

    def is_answered(self, wait_s: float = MOMENT_S) -> bool:
        """Whoever is not is taken by the loop once it goes on."""
        try:
            httpx.get(f"{self.url}/healthz", timeout=wait_s)
        except httpx.ReadTimeout:
            self.listening.accept()[0].close()
            return False
        return True


@pytest.fixture
def server() -> Iterator[Stalled]:
    with Listener(HOST, 0) as listener:
        stalled = Stalled(listener)
        with stalled.responder:
            yield stalled


def test_a_stalled_server_answers_probes_and_refuses_other_requests(
    server: Stalled,
) -> None:
    server.us = STALLED_US_MIN + 45_000
    assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/startupz").json() == {"status": "started"}
    for path in ("readyz", "metrics", "v1/statistics", "rpc?version=1"):
        answer = httpx.get(f"{server.url}/{path}")
        problem = answer.json()
        assert answer.status_code == 503
        assert (problem["kind"], problem["retryable"]) == ("unavailable", True)
        assert problem["detail"] == "the disk has not answered for 345 ms"


def test_the_probe_responder_answers_only_while_the_loop_is_stalled(server: Stalled) -> None:
    for us, expected in ((0, False), (STALLED_US_MIN - 1, False), (STALLED_US_MIN, True)):
        server.us = us
        assert server.is_answered(WAIT_S_MAX if expected else MOMENT_S) is expected
    server.us = 0
    wait_until(lambda: not server.is_answered())  # it looks now and then


@pytest.mark.parametrize("garbage", [b"", b"\r\n\r\n", b"\x16\x03\x01", b"GET" + b"x" * 70_000])
def test_the_probe_responder_survives_invalid_requests(server: Stalled, garbage: bytes) -> None:
    server.us = STALLED_US_MIN
    with socket.create_connection((HOST, server.port)) as caller:
        caller.sendall(garbage)
    assert httpx.get(f"{server.url}/healthz", timeout=WAIT_S_MAX).status_code == 200


def test_connections_that_never_ask_do_not_delay_a_probe(server: Stalled) -> None:
    server.us = STALLED_US_MIN
    with ExitStack() as lines:
        for _ in range(200):
            lines.enter_context(socket.create_connection((HOST, server.port)))
        assert httpx.get(f"{server.url}/healthz", timeout=20).status_code == 200


def test_the_probe_responder_ends_with_a_server_whose_disk_hangs(server: Stalled) -> None:
    server.listening.close()
    server.us = STALLED_US_MIN
    time.sleep(MOMENT_S)  # so that it stands in by then
    ending = threading.Thread(
        target=server.responder.__exit__, args=(None, None, None), daemon=True
    )
    ending.start()
    ending.join(WAIT_S_MAX)
    assert not ending.is_alive()
