"""The relay itself: bytes pass, late, slowly, one way only, or not at all, as it is told.

Owns: what `test_links` builds on: a relay that disturbs nothing would make that one prove nothing.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from dodona_loadtest.harness.relay import HOST, Condition, Relay, Relays
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.integration

CLOGGED = Condition(is_clogged=True)


class Echo:
    """Answers with what it was sent, in capitals. `heard` is all that reached it."""

    def __init__(self) -> None:
        self.heard = b""
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while chunk := connection.recv(1024):
                self.heard += chunk
                connection.sendall(chunk.upper())


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def relay(echo: Echo) -> Iterator[Relay]:
    with Relays() as relays:
        yield relays.open(echo.port, {b"HIDE": b"SEEK"})


@pytest.fixture
def caller(relay: Relay) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, relay.port), timeout=WAIT_S_MAX) as connection:
        yield connection


def ask(caller: socket.socket, words: bytes) -> tuple[bytes, float]:
    """The answer, and how long it took."""
    began = time.monotonic()
    caller.sendall(words)
    answer = b""
    while len(answer) < len(words):
        answer += caller.recv(1024)
    return answer, time.monotonic() - began


def test_the_relay_passes_bytes_and_rewrites_words_only_downstream(
    caller: socket.socket, echo: Echo
) -> None:
    assert ask(caller, b"I hide")[0] == b"I SEEK"
    assert ask(caller, b"HIDE")[0] == b"SEEK"
    assert echo.heard == b"I hideHIDE"


def test_the_end_of_a_connection_is_passed_on(caller: socket.socket) -> None:
    caller.shutdown(socket.SHUT_WR)
    assert caller.recv(1) == b""


def test_a_delay_applies_in_each_direction_until_the_relay_is_healed(
    caller: socket.socket, relay: Relay
) -> None:
    relay.disturb("up", Condition(delay_ms=100))
    relay.disturb("down", Condition(delay_ms=100))
    assert ask(caller, b"a")[1] >= 0.2
    relay.heal()
    assert ask(caller, b"a")[1] < 0.1


def test_a_link_with_low_bandwidth_delays_bytes(caller: socket.socket, relay: Relay) -> None:
    relay.disturb("up", Condition(bytes_per_s=1000))
    ask(caller, b"a" * 200)
    assert ask(caller, b"b")[1] >= 0.1


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_clogged_direction_holds_bytes_until_the_relay_is_healed(
    caller: socket.socket, relay: Relay, echo: Echo, direction: str
) -> None:
    relay.disturb("up" if direction == "up" else "down", CLOGGED)
    caller.sendall(b"late")
    caller.settimeout(0.3)
    with pytest.raises(TimeoutError):
        caller.recv(4)
    if direction == "down":
        wait_until(lambda: echo.heard == b"late")
    else:
        assert echo.heard == b""
    caller.settimeout(WAIT_S_MAX)
    relay.heal()
    assert caller.recv(4) == b"LATE"
    assert relay.late_bytes == 4


def test_a_reset_ends_connections_on_both_sides_and_loses_held_bytes(
    caller: socket.socket, relay: Relay, echo: Echo
) -> None:
    ask(caller, b"first")
    relay.disturb("up", CLOGGED)
    caller.sendall(b"lost")
    time.sleep(0.1)  # so that the relay has it by then
    relay.reset()
    with pytest.raises(ConnectionResetError):
        caller.recv(1)
    relay.heal()
    with socket.create_connection((HOST, relay.port), timeout=WAIT_S_MAX) as again:
        assert ask(again, b"second")[0] == b"SECOND"
    assert echo.heard == b"firstsecond"
    assert relay.reset_count == 1


def test_a_relay_resets_its_callers_if_the_server_is_down(echo: Echo, relay: Relay) -> None:
    echo.close()
    with socket.create_server((HOST, 0)) as unused:
        port = unused.getsockname()[1]
    with Relays() as relays:
        lonely = relays.open(port)
        with (
            pytest.raises(ConnectionResetError),  # a quick relay's comes before the caller is back
            socket.create_connection((HOST, lonely.port), timeout=WAIT_S_MAX) as caller,
        ):
            caller.recv(1)
    assert relay.connection_count == 0
