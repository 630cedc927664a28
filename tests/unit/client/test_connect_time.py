"""The time of `connect`, where a server takes the connection and says nothing.

The bound is of all that is waited for, not of the pauses between attempts. A report of the same
kind elsewhere: psycopg/psycopg #1371.
"""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

import dodona
import dodona.aio
from dodona._io.network import MASTER_TIMEOUT_SECONDS
from dodona.errors import Unavailable

BOUND_MS = 500
ENDS_S_MAX = MASTER_TIMEOUT_SECONDS / 2
"""Long after the bound, and long before the time of a request that has none."""


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    held: list[socket.socket] = []

    def take() -> None:
        while True:
            try:
                held.append(listening.accept()[0])
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=take, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    for it in held:
        it.close()


def check_soon(connect: Callable[[], object]) -> None:
    for _ in range(2):  # the first one imports
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no answer from the master") as caught:
            connect()
        took_s = time.monotonic() - began
        assert caught.value.attributes["server"] == "master"
    assert BOUND_MS / 1000 / 2 < took_s < ENDS_S_MAX


def test_the_connect_timeout_holds_for_a_silent_master(silent: str) -> None:
    check_soon(lambda: dodona.connect(f"http://{silent}", timeout_ms=BOUND_MS))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_connect_timeout_holds_in_asyncio(
    new_loop: Callable[[], asyncio.AbstractEventLoop], silent: str
) -> None:
    async def connect() -> None:
        await dodona.aio.connect(f"http://{silent}", timeout_ms=BOUND_MS)

    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(connect())

    check_soon(run)


def test_the_connect_timeout_holds_for_a_command(silent: str) -> None:
    """A start takes its time: so the answer says how long was waited."""
    words = [sys.executable, "-m", "dodona_local.cli", "--timeout-ms", "700", "list", "//"]
    done = subprocess.run(
        [*words, "--url", f"http://{silent}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("dodona: no answer from the master")
    waited = done.stderr.partition(" ms ")[0].rpartition(" ")[2]
    assert 600 < int(waited) <= 700
