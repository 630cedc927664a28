"""A server of HTTP before a pretended application, and clients that write bytes.

Owns: `serving`, which runs it in a thread of its own, and `Line`, a client's end of a connection.
"""

import asyncio
import json
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from typing import Any, Final

import uvicorn

from dodona_server.http import HttpBounds, bounded_http
from suite.waiting import WAIT_S_MAX, wait_until

GRACE_S: Final = 86_400
"""For so long a server that stops waits for requests that are under way."""
LARGE: Final = bytes(16 << 20)
"""What `/large` is answered with."""
SMALLER: Final = bytes(60_000)
"""What `/smaller` is: the system takes all of it, whether it is read or not."""


class Application:
    """Answers by path. What it was asked, in order, is in `asked`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.bodies: list[bytes | None] = []
        self.may_go_on = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        self.asked.append(path)
        if path != "/unread":
            self.bodies.append(await _body(receive))
        while path == "/slow" and not self.may_go_on.is_set():
            await asyncio.sleep(0.01)
        content = {"/large": LARGE, "/smaller": SMALLER}.get(path, path.encode())
        headers = [(b"content-length", str(len(content)).encode())]
        if path == "/unread":
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


async def _body(receive: Any) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message["body"]
        body += part
        if not message["more_body"]:
            return body


class Server:
    """uvicorn in a thread of its own."""

    def __init__(self, bounds: HttpBounds, idle_seconds_max: int) -> None:
        self.application = Application()
        self.protocol = bounded_http(bounds)
        config = uvicorn.Config(
            self.application,
            port=0,
            http=self.protocol,
            ws="none",
            lifespan="off",
            loop="uvloop",
            log_config=None,
            access_log=False,
            timeout_keep_alive=idle_seconds_max,
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = uvicorn.Server(config)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self._server.started)

    def stop(self) -> None:
        self.application.may_go_on.set()
        self._server.should_exit = True
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive()

    @property
    def connection_count(self) -> int:
        return len(self._server.server_state.connections)

    def has_read_all(self) -> bool:
        """Whether nothing that was sent lies in the system's buffers."""
        connections: list[Any] = [*self._server.server_state.connections]
        its_sockets = [it.transport.get_extra_info("socket") for it in connections]
        return not any(any(ioctl(it.fileno(), termios.FIONREAD, bytes(4))) for it in its_sockets)

    def connect(self, receive_bytes: int | None = None) -> "Line":
        """`receive_bytes` is what the system takes for it before it is read."""
        connection = socket.socket()
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(WAIT_S_MAX)
        connection.connect(self.address)
        return Line(connection)


class Line:
    """A client's end."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = bytearray()

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, content: bytes) -> "Line":
        self.socket.sendall(content)
        return self

    def read(self) -> tuple[int, dict[str, str], bytes]:
        """One answer."""
        self._wait(lambda: b"\r\n\r\n" in self._rest)
        head, self._rest = self._rest.split(b"\r\n\r\n", 1)
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (it.split(": ", 1) for it in lines)}
        length = int(headers["content-length"])
        self._wait(lambda: len(self._rest) >= length)
        body = bytes(self._rest[:length])
        del self._rest[:length]
        return int(status.split()[1]), headers, body

    def problem(self) -> dict[str, Any]:
        status, headers, body = self.read()
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        problem: dict[str, Any] = json.loads(body)
        assert problem["status"] == status
        return problem

    def drip(self, content: bytes) -> float:
        """Send it again and again, until the other end has enough. → after how long that was."""
        began = time.monotonic()

        def is_refused() -> bool:
            try:
                self.send(content)
            except OSError:
                return True
            return False

        wait_until(is_refused, "it listens for ever", pause_s=0.05)
        return time.monotonic() - began

    def _wait(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            part = self.socket.recv(1 << 20)
            assert part, f"it ended after {self._rest[:200]!r}"
            self._rest += part

    def is_at_end(self) -> bool:
        """Whether the other end closed, which is waited for. A reset is no way to do so."""
        return not self._rest and not self.socket.recv(1)

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@contextmanager
def serving(bounds: HttpBounds, idle_seconds_max: int = 1) -> Iterator[Server]:
    server = Server(bounds, idle_seconds_max)
    server.start()
    try:
        yield server
    finally:
        server.stop()
