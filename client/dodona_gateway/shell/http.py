"""One HTTP connection, with bounds on what comes before a request is known: its line and headers.

Owns: how long headers may take and how long they may be, which uvicorn leaves open. A connection
that passes a bound is answered with a problem and closed, whatever else it sends. Bodies and
answers are bounded by `edge`.
"""

import asyncio
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dodona._core.rest import PROBLEM_TYPE, Problem, encode_problem
from dodona.errors import InvalidRequest, LimitExceeded, RequestTimedOut
from dodona_gateway.core.ytsaurus.errors import error_headers, yt_error

HEADERS_STATUS: Final = 431


class BoundedHttp(HttpToolsProtocol):
    """As uvicorn's. The bounds are set on a subclass by `bounded_http`."""

    header_seconds_max: float
    header_bytes_max: int

    _header_bytes = 0
    _is_waiting = True
    """For a request to begin, or for the rest of its headers."""
    _is_in_headers = False
    _is_too_long = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_waiting and self._deadline is None:  # the first bytes after a pause
            self._expect_headers()
        was_in_headers = self._is_in_headers
        super().data_received(data)
        if was_in_headers and self._is_in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.header_bytes_max:
                self._refuse_length()

    def on_message_begin(self) -> None:
        self._is_in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_waiting = self._is_in_headers = False
        self._header_bytes = 0
        self._cancel_deadline()
        size_bytes = sum(len(name) + len(value) for name, value in self.headers)
        if len(self.url) + size_bytes > self.header_bytes_max:
            self._is_too_long = True
            raise ValueError("the headers are too long")  # so that the parser stops
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_waiting = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_too_long:
            self._refuse_length()
        else:
            self._answer(HTTPStatus.BAD_REQUEST, InvalidRequest("this is not HTTP"))

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds_max, self._time_out)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        self._deadline = None
        if self._is_in_headers:
            text = f"the headers did not come within {self.header_seconds_max:g} s"
            self._answer(HTTPStatus.REQUEST_TIMEOUT, RequestTimedOut(text))
        else:
            self.transport.close()

    def _refuse_length(self) -> None:
        text = f"the request line and headers have at most {self.header_bytes_max} bytes"
        self._answer(HEADERS_STATUS, LimitExceeded(text))

    def _answer(self, status: int, error: Any) -> None:
        if self.transport.is_closing():
            return
        problem = Problem(
            status=status,
            detail=error.message,
            kind=error.kind,
            code=error.code,
            retryable=error.is_retryable,
            title=HTTPStatus(status).phrase,
        )
        content = encode_problem(problem)
        lines = (
            f"HTTP/1.1 {status} {problem.title}",
            f"content-type: {PROBLEM_TYPE}",
            f"content-length: {len(content)}",
            "connection: close",
            # Who asks is not known: YTsaurus's clients know an error by these.
            *(f"{name}: {value}" for name, value in error_headers(yt_error(error)).items()),
            "",
            "",
        )
        self._cancel_deadline()
        self.transport.write("\r\n".join(lines).encode() + content)
        self.transport.close()


def bounded_http(header_seconds_max: float, header_bytes_max: int) -> type[BoundedHttp]:
    """The protocol with these bounds, for uvicorn's option `http`."""
    bounds = {"header_seconds_max": header_seconds_max, "header_bytes_max": header_bytes_max}
    return type("BoundedHttp", (BoundedHttp,), bounds)
