"""One HTTP connection of any server, with the limits that uvicorn leaves open.

Owns: the time and length of headers, the number of connections, the time that an answer may wait,
and the end of a connection.

- A connection that passes a limit gets a problem as its answer, if that is still possible. Then it
  is closed, even if it still sends. It is counted here, because no code behind this module sees it.
- One connection too many may still ask for the health of the process. A busy server must not be
  restarted only because it is busy.
- Connections that have not sent a whole request take no place. If there are too many in all, the
  one of them that has waited longest is closed.
- Idle connections take no place, either. They are kept for longer than load balancers and clients
  keep theirs: a request must not meet a connection that is being closed. If there is no other
  place, the longest idle connection is closed.
- If the other end still sends when its connection is closed, its bytes are read for some seconds.
  Otherwise it could not read the answer.
- Bytes behind a request that are no request are never answered in the place of that request.
- A connection that becomes a WebSocket belongs to its endpoint from then on.
- The code behind this module limits the time of bodies and answers (in a gateway its edge).
"""

import asyncio
import socket
import struct
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from fcntl import ioctl
from http import HTTPStatus
from typing import Any, Final

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dodona_server.lifecycle import HEALTH_PATHS
from dodona_wire.errors import (
    DodonaError,
    InvalidRequest,
    LimitExceeded,
    Overloaded,
    RequestTimedOut,
)
from dodona_wire.messages.rest import PROBLEM_TYPE, Problem, encode_problem

HEADERS_STATUS: Final = 431
LINGER_SECONDS_MAX: Final = 5.0
"""How long the bytes of a closed connection are still read."""
LINGER_BYTES_MAX: Final = 256 << 20
AT_ONCE: Final = struct.pack("ii", 1, 0)
REFUSALS: Final = {400: "garbled", 408: "late", 429: "overloaded", HEADERS_STATUS: "too_long"}
"""The fault of a request that gets no further than here, by the status of its answer."""
OVERFLOW_FACTOR: Final = 2
"""Up to so many times the largest number of connections get the answer that there are too many."""

ErrorHeaders = Callable[[DodonaError], Mapping[str, str]]
"""Further headers of a refusal, for clients that know an error by its headers."""


def _no_headers(_: DodonaError) -> Mapping[str, str]:
    return {}


class HttpBounds(msgspec.Struct, frozen=True):
    """The limits of each connection. The last two are for all connections together."""

    header_seconds_max: float
    header_bytes_max: int
    """The limit of the request line and the headers together."""
    answer_seconds_max: float
    """The time for the client to read an answer."""
    connection_count_max: int
    headers_bytes_max: int
    """The limit of all headers that are not complete."""


IDLE_SECONDS_MAX: Final = 620
"""Load balancers keep a connection for 60 s (AWS, ingress-nginx) or 600 s (Google Cloud). Python's
`requests` keeps it as long as the server does."""
SERVER_BOUNDS: Final = HttpBounds(
    header_seconds_max=10,
    header_bytes_max=64 << 10,
    answer_seconds_max=60,
    connection_count_max=4096,
    headers_bytes_max=64 << 20,
)
"""The limits of masters, proxies and nodes, which programs of the cluster call."""


class _Outlet(asyncio.Transport):
    """A transport whose `close` lets the other end finish, for a bounded time."""

    def __init__(self, inner: asyncio.Transport, answer_seconds_max: float) -> None:
        super().__init__()
        self.inner = inner
        self._answer_seconds_max = answer_seconds_max
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._heard_bytes = 0
        self.is_heard_out = True
        """Whether no more bytes of the present request are to come."""
        self._is_gone = False

    def close(self) -> None:
        if self._deadline is not None or self._is_gone:
            return
        is_taken = self.inner.get_write_buffer_size() == 0
        seconds = LINGER_SECONDS_MAX if is_taken else self._answer_seconds_max
        self._deadline = self._loop.call_later(seconds, self.abort)
        if self.is_heard_out or self.inner.is_closing():
            self.inner.close()
            return
        self.inner.resume_reading()
        if self.inner.can_write_eof():
            self.inner.write_eof()

    def hear(self, data: bytes) -> None:
        """Count the bytes that come after the close, and drop them."""
        self._heard_bytes += len(data)
        if self._heard_bytes > LINGER_BYTES_MAX:
            self.abort()

    def end(self) -> None:
        """Note that the connection is gone."""
        self._is_gone = True
        if self._deadline is not None:
            self._deadline.cancel()

    def is_closing(self) -> bool:
        return self._deadline is not None or self.inner.is_closing()

    def has_untaken(self) -> bool:
        """Return whether written bytes are still here or in the buffers of the system."""
        if self.inner.get_write_buffer_size():
            return True
        its_socket = self.inner.get_extra_info("socket")
        if its_socket is not None:
            with suppress(OSError, ValueError):  # it is closed already
                return any(ioctl(its_socket.fileno(), termios.TIOCOUTQ, bytes(4)))
        return False

    def abort(self) -> None:
        """End the connection now. The system drops the bytes that were not read, too: otherwise it
        would keep megabytes for a slow reader."""
        its_socket = self.inner.get_extra_info("socket")
        if its_socket is not None:
            with suppress(OSError, ValueError):  # it is closed already
                its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.inner.abort()

    def write(self, data: Any) -> None:
        if not self.inner.is_closing():  # the other end may be gone without notice
            self.inner.write(data)

    def pause_reading(self) -> None:
        if self._deadline is None:
            self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)


class Connections:
    """What all connections of one server have in common."""

    def __init__(self) -> None:
        self.count = 0
        """How many connections are open."""
        self.unproven: dict[BoundedHttp, None] = {}
        """Open connections that have not sent a whole request, oldest first."""
        self.idle: dict[BoundedHttp, None] = {}
        """Open connections whose requests are all answered, longest idle first."""
        self.header_bytes = 0
        """Bytes of requests whose headers are not complete."""
        self.refusals = dict.fromkeys(REFUSALS.values(), 0)
        """Refusals since the start, by reason."""


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits, which `bounded_http` sets on a subclass."""

    bounds: HttpBounds
    together: Connections
    error_headers: ErrorHeaders

    _header_bytes = _trailer_bytes = 0
    _is_waiting = True
    """Whether it waits for a request to begin, or for the rest of its headers."""
    _is_in_headers = False
    _is_too_long = False
    _is_deaf = False
    """Whether the bytes that still come are no request."""
    _is_counted = False
    """Whether it counts as an open connection."""
    _deadline: asyncio.TimerHandle | None = None
    _answer_deadline: asyncio.TimerHandle | None = None
    _idle_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._outlet = _Outlet(transport, self.bounds.answer_seconds_max)
        super().connection_made(self._outlet)
        self._is_counted = True
        self.together.count += 1
        if self.together.count > self.bounds.connection_count_max * OVERFLOW_FACTOR:
            self._note_refusal(HTTPStatus.TOO_MANY_REQUESTS)
            next(iter(self.together.unproven), self)._outlet.abort()
        self.together.unproven[self] = None
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
        self._outlet.end()
        super().connection_lost(exc)

    def _leave(self) -> None:
        """Remove it from the open connections."""
        self._cancel_deadline()
        self._count_headers(0)
        self.together.count -= self._is_counted
        self._is_counted = False
        self.together.unproven.pop(self, None)
        self._end_idleness()

    # ---- what comes

    def data_received(self, data: bytes) -> None:
        if self._outlet.is_closing():
            self._outlet.hear(data)
            return
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        if self._is_waiting and self._deadline is None:  # the first bytes after a pause
            self._expect_headers()
        was_in_headers = self._is_in_headers
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self._hand_over()
            else:  # the other protocol is unknown here
                self._end_after(self.cycle)
            return
        except httptools.HttpParserError:
            self._refuse_garbage()
            return
        if was_in_headers and self._is_in_headers:
            self._count_headers(self._header_bytes + len(data))
            self._check_headers()

    def on_message_begin(self) -> None:
        self._is_in_headers = True
        self._outlet.is_heard_out = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_headers:
            super().on_header(name, value)
            return
        self._trailer_bytes += len(name) + len(value)  # trailers, which are not used
        if self._trailer_bytes > self.bounds.header_bytes_max:
            raise ValueError("the trailers are too long")  # it stops the parser

    def on_headers_complete(self) -> None:
        size_bytes = sum(len(name) + len(value) for name, value in self.headers)
        if len(self.url) + size_bytes > self.bounds.header_bytes_max:
            self._is_too_long = True
            raise ValueError("the headers are too long")
        self._prove()
        super().on_headers_complete()
        self._is_waiting = self._is_in_headers = False
        self._trailer_bytes = 0
        self._count_headers(0)
        self._cancel_deadline()

    def _prove(self) -> None:
        """Note that it has sent a whole request, perhaps for the first time."""
        unproven = self.together.unproven
        if self not in unproven or (self.parser.should_upgrade() and self._should_upgrade()):
            return
        if self.together.count - len(unproven) >= self.bounds.connection_count_max:
            if not self.together.idle:
                self.app = self._answer_one_too_many
                return
            next(iter(self.together.idle))._give_way()
        del unproven[self]

    def _give_way(self) -> None:
        """Close this connection. It is idle, and another one needs its place."""
        self._leave()
        self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            self.together.idle[self] = None
            seconds = self.bounds.answer_seconds_max
            self._idle_deadline = self.loop.call_later(seconds, self._check_taken)

    def _check_taken(self) -> None:
        """End an idle connection whose client has not read the answers."""
        if self._outlet.has_untaken():
            self._outlet.abort()

    def _unset_keepalive_if_required(self) -> None:
        super()._unset_keepalive_if_required()
        self._end_idleness()

    def _end_idleness(self) -> None:
        self.together.idle.pop(self, None)
        if self._idle_deadline is not None:
            self._idle_deadline.cancel()
            self._idle_deadline = None

    def _hand_over(self) -> None:
        """Hand over to the WebSocket protocol, which has limits of its own and writes by itself."""
        self._leave()
        self._outlet.end()
        self.transport = self._outlet.inner
        self.handle_websocket_upgrade()

    def on_message_complete(self) -> None:
        self._is_waiting = True
        self._outlet.is_heard_out = True
        super().on_message_complete()

    def _count_headers(self, size_bytes: int) -> None:
        """Note how many bytes came of a request whose headers are not complete."""
        self.together.header_bytes += size_bytes - self._header_bytes
        self._header_bytes = size_bytes

    def _check_headers(self) -> None:
        if self._header_bytes > self.bounds.header_bytes_max:
            self._refuse_length()
        elif self.together.header_bytes > self.bounds.headers_bytes_max:
            text = "This server receives too many long headers now. Wait, then repeat the request."
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, Overloaded(text))

    # ---- what leaves

    def pause_writing(self) -> None:
        if self._answer_deadline is None:
            seconds = self.bounds.answer_seconds_max
            self._answer_deadline = self.loop.call_later(seconds, self._outlet.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None
        super().resume_writing()

    # ---- deadlines of headers

    def _expect_headers(self) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(self.bounds.header_seconds_max, self._time_out)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        self._deadline = None
        if self._is_busy():  # it is busy with the request before
            self._expect_headers()
        elif self._is_in_headers:
            text = f"The headers did not arrive within {self.bounds.header_seconds_max:g} s."
            self._answer(HTTPStatus.REQUEST_TIMEOUT, RequestTimedOut(text))
        else:
            self.transport.close()

    # ---- refusals

    def _is_busy(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _refuse_garbage(self) -> None:
        if self._is_too_long:
            self._refuse_length()
        else:
            self._answer(HTTPStatus.BAD_REQUEST, InvalidRequest("The request is not HTTP."))

    def _refuse_length(self) -> None:
        text = f"The request line and headers have at most {self.bounds.header_bytes_max} bytes."
        self._answer(HEADERS_STATUS, LimitExceeded(text))

    def _note_refusal(self, status: int) -> None:
        self.together.refusals[REFUSALS[status]] += 1

    async def _answer_one_too_many(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request on one connection too many."""
        if scope["path"] in HEALTH_PATHS:
            self._end_after(self.cycle)
            await self.config.loaded_app(scope, receive, send)
        else:
            self._note_refusal(HTTPStatus.TOO_MANY_REQUESTS)
            await _refuse(send)

    def _end_after(self, cycle: Any) -> None:
        """End the connection after the answer to this request."""
        self._is_deaf = True
        self._outlet.is_heard_out = False
        cycle.keep_alive = False

    def _answer(self, status: int, error: DodonaError) -> None:
        self._cancel_deadline()
        if self.transport.is_closing():
            return
        self._note_refusal(status)
        self._outlet.is_heard_out = False
        if self._is_busy():
            if self._is_waiting:  # the fault came after a whole request
                self._end_after(self.cycle)
                return
            self.cycle.disconnected = True  # its body is broken
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self._outlet.abort()
                return
        self.transport.write(_response(status, error, self.error_headers(error)))
        self.transport.close()


def _response(status: int, error: DodonaError, more: Mapping[str, str]) -> bytes:
    """Return a whole response with a problem in it."""
    content = _problem(status, error)
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"content-type: {PROBLEM_TYPE}",
        f"content-length: {len(content)}",
        "connection: close",
        *(f"{name}: {value}" for name, value in more.items()),
        "",
        "",
    )
    return "\r\n".join(lines).encode() + content


def _problem(status: int, error: DodonaError) -> bytes:
    described = Problem(
        status=status,
        detail=error.message,
        kind=error.kind,
        code=error.code,
        retryable=error.is_retryable,
        title=HTTPStatus(status).phrase,
    )
    return encode_problem(described)


async def _refuse(send: Any) -> None:
    """Send the problem that there is no connection for the client."""
    content = _problem(
        HTTPStatus.TOO_MANY_REQUESTS,
        Overloaded("The server has no connection left. Wait, then repeat the request."),
    )
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"retry-after", b"1"),
        (b"connection", b"close"),
    ]
    status = int(HTTPStatus.TOO_MANY_REQUESTS)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def bounded_http(
    bounds: HttpBounds = SERVER_BOUNDS, error_headers: ErrorHeaders = _no_headers
) -> type[BoundedHttp]:
    """Return the protocol with these limits, for uvicorn's option `http`."""
    its_own = {
        "bounds": bounds,
        "together": Connections(),
        "error_headers": staticmethod(error_headers),
    }
    return type("BoundedHttp", (BoundedHttp,), its_own)
