"""Answer requests at a server's sockets from a thread, while its event loop can't.

Owns: the connections of such a thread: their number, their limits of time and bytes, and the form
of an answer. A connection that waits holds up no other one. If there are too many, the oldest is
closed, so a probe is answered even beside thousands of connections that never ask.

Invariants: each connection gets one answer, and is then closed. No body of a request is read. No
call blocks but `serve`, which waits for sockets.
Must not import: a web framework.
"""

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from dodona_server.answers import AnswerLike
from dodona_wire.net.callers import Header

TALK_SECONDS_MAX: Final = 0.5
"""How long a client may take to send a request, and again to take the answer."""
REQUEST_BYTES_MAX: Final = 64 << 10
CONNECTIONS_MAX: Final = 64
HEADERS_END: Final = b"\r\n\r\n"

Headers = Sequence[tuple[str, str]]
Respond = Callable[[str, Header], AnswerLike]
"""Returns the answer for a path, to a request with these headers."""


class _Connection:
    """One connection, and what it waits for."""

    def __init__(self, line: socket.socket, now: float) -> None:
        self.line = line
        self.deadline = now + TALK_SECONDS_MAX
        self.request = b""
        self.answer: memoryview | None = None
        """What is left to send. None until the request is there."""

    def is_answered(self) -> bool:
        return self.answer is not None and not self.answer

    def receive(self) -> bool:
        """Take what has come. Return whether the client is still there. Raises OSError."""
        part = self.line.recv(REQUEST_BYTES_MAX)
        if not self.is_answered():  # else it is read only because it would reset the answer
            self.request += part
        return bool(part)

    def is_whole(self) -> bool:
        return HEADERS_END in self.request or len(self.request) >= REQUEST_BYTES_MAX

    def begin_answer(self, respond: Respond, headers: Headers, now: float) -> None:
        method, target, *_ = [*self.request.split(b" ", 2), b""]
        path = target.partition(b"?")[0].decode("latin-1")
        encoded = _encoded(respond(path, _headers_of(self.request)), headers)
        if method == b"HEAD":
            encoded = encoded[: encoded.index(HEADERS_END) + len(HEADERS_END)]
        self.answer = memoryview(encoded)
        self.deadline = now + TALK_SECONDS_MAX

    def send(self) -> None:
        """Send what the client takes now. Raises OSError."""
        assert self.answer is not None
        self.answer = self.answer[self.line.send(self.answer) :]
        if not self.answer:
            self.line.shutdown(socket.SHUT_WR)


class ThreadServer:
    """The connections of one thread."""

    def __init__(
        self, sockets: Sequence[socket.socket], respond: Respond, headers: Headers = ()
    ) -> None:
        """`sockets` listen and do not block. They stay the caller's. `headers` are in every
        answer."""
        self._sockets = sockets
        self._respond = respond
        self._headers = headers
        self._connections: dict[socket.socket, _Connection] = {}
        """The open connections, oldest first."""

    def serve(
        self,
        is_over: Callable[[], bool],
        *,
        wake: socket.socket | None = None,
        poll_s: float | None = None,
    ) -> None:
        """Answer until `is_over`, which is asked after each wait. A wait ends when `wake` can be
        read, or after `poll_s`. Connections that were accepted by then are still answered."""
        with selectors.DefaultSelector() as selector:
            for it in self._sockets:
                if it.fileno() >= 0:  # else the server is about to end
                    selector.register(it, selectors.EVENT_READ)
            if wake is not None:
                selector.register(wake, selectors.EVENT_READ)
            try:
                while not is_over():
                    self._turn(selector, poll_s)
                for key in [*selector.get_map().values()]:
                    if key.fileobj not in self._connections:
                        selector.unregister(key.fileobj)
                while self._connections:
                    self._turn(selector, poll_s)
            finally:
                for connection in [*self._connections.values()]:
                    self._close(selector, connection)

    def _turn(self, selector: selectors.BaseSelector, poll_s: float | None) -> None:
        waits = [it.deadline - time.monotonic() for it in self._connections.values()]
        if poll_s is not None:
            waits.append(poll_s)
        for key, _ in selector.select(max(0.0, min(waits)) if waits else None):
            found = key.fileobj
            assert isinstance(found, socket.socket)
            if found in self._connections:
                self._go_on(selector, self._connections[found])
            elif found in self._sockets:
                self._accept(selector, found)
        now = time.monotonic()
        for it in [it for it in self._connections.values() if it.deadline <= now]:
            self._close(selector, it)

    def _accept(self, selector: selectors.BaseSelector, listening: socket.socket) -> None:
        with suppress(OSError):  # the client has gone, or the server's loop was faster
            line = listening.accept()[0]
            line.setblocking(False)
            if len(self._connections) >= CONNECTIONS_MAX:
                self._close(selector, next(iter(self._connections.values())))
            self._connections[line] = _Connection(line, time.monotonic())
            selector.register(line, selectors.EVENT_READ)

    def _go_on(self, selector: selectors.BaseSelector, connection: _Connection) -> None:
        try:
            if connection.answer is None or connection.is_answered():
                if not connection.receive():
                    self._close(selector, connection)
                    return
                if connection.answer is None and connection.is_whole():
                    connection.begin_answer(self._respond, self._headers, time.monotonic())
            if connection.answer:
                with suppress(BlockingIOError):
                    connection.send()
                waits_for = selectors.EVENT_WRITE if connection.answer else selectors.EVENT_READ
                selector.modify(connection.line, waits_for)
        except BlockingIOError:
            return
        except OSError:  # the client has gone
            self._close(selector, connection)

    def _close(self, selector: selectors.BaseSelector, connection: _Connection) -> None:
        del self._connections[connection.line]
        selector.unregister(connection.line)
        connection.line.close()


def _headers_of(request: bytes) -> Header:
    head = request.partition(HEADERS_END)[0].decode("latin-1")
    pairs = [line.partition(":") for line in head.split("\r\n")[1:]]
    return {name.strip().lower(): value.strip() for name, _, value in pairs}.get


def _encoded(response: AnswerLike, headers: Headers) -> bytes:
    lines = [f"HTTP/1.1 {response.status_code} {HTTPStatus(response.status_code).phrase}".encode()]
    lines += [f"{name}: {value}".encode("latin-1") for name, value in headers]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"connection: close", b"", bytes(response.body)])
