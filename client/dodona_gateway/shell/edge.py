"""Check every request at the edge of the gateway, before any route sees it.

Owns: request ids, whole-request deadlines, the caller of a request, and the log of failed requests.
Owns also the bounds on requests at a time and on the bytes of their bodies and answers.
Invariants: code behind the edge runs only for known callers, except for the few pages that are open
to all. No request outlives its deadline, however slowly its sender sends or reads. An answer always
has the request's id, and never shows internals of the program. The edge knows no route.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.console import visit
from dodona_gateway.core.traffic import NO_ANSWER, Traffic, route_of
from dodona_gateway.shell.bodies import TAKE_BODY
from dodona_server.lifecycle import HEALTH_PATHS, METRICS, READINESS, Lifecycle
from dodona_wire.errors import DodonaError, Overloaded, RequestTimedOut, Unavailable
from dodona_wire.net.callers import check_name, check_own_page

TRACEPARENT: Final = b"traceparent"
REQUEST_ID: Final = b"x-request-id"
OPEN_PATHS: Final = frozenset(
    (
        *HEALTH_PATHS,
        METRICS,  # which has its own key
        "/openapi.json",
        *("/api", "/api/v4", "/api/v4/discover_proxies", "/hosts", "/version", "/ping"),
        *visit.OPEN_PATHS,
    )
)
"""The paths that need no token: health, descriptions of the interface, requests that YTsaurus's
client sends without its token, and the console's login."""
GOES_ON: Final = ("transactions", "ytsaurus", "pages")
"""The classes of routes that serve until the gateway has stopped. They may have calls in held
transactions, or have health and metrics."""
PIECE_BYTES: Final = 256 << 10
"""The size in bytes of one piece. A longer answer is sent in pieces, and counts until its last byte
was taken."""
BROKEN_OFF: Final = "broken_off"
"""The name in a request's state of the reason why its answer has no end."""
Result = TypeVar("Result")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9_.:-]{1,64}")


class TracedRequest(Protocol):
    """The span of a request; see `traced_requests`."""

    @property
    def header(self) -> bytes:
        """Return the span's `traceparent`."""

    def end(self, status: int | None) -> None:
        """End the span: the request was answered with this status, or with None got no answer."""


class RequestTracing(Protocol):
    """Makes the spans of requests."""

    def begin(
        self, method: str, path: str, given: bytes | None, request_id: bytes
    ) -> TracedRequest:
        """Begin a span, in which the running task then is."""


Message = MutableMapping[str, Any]
_logger: Final = logging.getLogger("dodona.gateway")


Authenticate = Callable[[str | None], Awaitable[Principal]]
"""Returns the principal for the value of the header `Authorization`. Raises Unauthenticated,
Unavailable."""

Refusal = Callable[[str, DodonaError], Response]
"""Returns the answer to a request for that path that fails with this error at the edge."""


class EdgeLimits(Protocol):
    """The limits of an edge, from `GatewaySettings`."""

    @property
    def request_count_max(self) -> int: ...
    @property
    def bodies_mib_max(self) -> int: ...
    @property
    def answers_mib_max(self) -> int: ...
    @property
    def request_seconds_max(self) -> int: ...
    @property
    def stream_seconds_max(self) -> int: ...
    @property
    def stream_idle_seconds_max(self) -> int: ...


class Edge:
    """The outermost application."""

    def __init__(
        self,
        application: ASGIApp,
        authenticate: Authenticate,
        limits: EdgeLimits,
        is_stream: Callable[[Scope], bool],
        *,
        refusal: Refusal,
        is_local: bool,
        admit_watcher: Authenticate | None = None,
        lifecycle: Lifecycle | None = None,
        tracing: RequestTracing | None = None,
    ) -> None:
        """Make an edge around an application. If `is_local`, a request must name this machine in
        its header `Host` (see `callers`). `admit_watcher` authenticates requests for pages that
        only show the cluster's state; by default `authenticate` does."""
        self.lifecycle = lifecycle or Lifecycle()
        self._tracing = tracing
        self.is_closed = False
        """Whether the gateway takes no new work: only routes of the classes in `GOES_ON` are
        served."""
        self._is_local = is_local
        self._refusal = refusal
        self._application = application
        self._authenticate = authenticate
        self._admit_watcher = admit_watcher or authenticate
        self._limits = limits
        self._is_stream = is_stream
        self.request_count = 0
        """The number of requests that are under way."""
        self.traffic = Traffic()
        """The counts of all requests that have ended."""
        self._budgets = _Budgets(
            _Budget("bodies", limits.bodies_mib_max << 20),
            _Budget("answers that callers have not read yet", limits.answers_mib_max << 20),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        is_stream = self._is_stream(scope)
        idle_seconds = self._limits.stream_idle_seconds_max if is_stream else None
        budgets = None if is_stream else self._budgets
        request = _Request(scope, receive, send, self._refusal, idle_seconds, budgets)
        request.is_last = self.lifecycle.is_draining
        if self._tracing is not None and scope["path"] not in OPEN_PATHS:
            given = request.header(TRACEPARENT)
            request.traced = self._tracing.begin(scope["method"], scope["path"], given, request.id)
        try:
            # A probe must succeed on a busy gateway, which needs no restart.
            is_health = scope["path"] in HEALTH_PATHS
            if self.request_count >= self._limits.request_count_max and not is_health:
                text = (
                    f"The gateway has {self._limits.request_count_max} requests under way. "
                    "Wait, then repeat the request."
                )
                await request.refuse(Overloaded(text))
            elif self.is_closed and route_of(scope["path"]) not in GOES_ON:
                await request.refuse(
                    Unavailable("This gateway is stopping. Send the request to another gateway.")
                )
            else:
                await self._count(request, is_stream=is_stream)
        finally:
            request.tell(self.traffic)

    async def _count(self, request: "_Request", *, is_stream: bool) -> None:
        """Run a request, and count it among those that are under way."""
        self.request_count += 1
        try:
            await self._run(request, is_stream=is_stream)
        finally:
            self.request_count -= 1
            request.give_back()

    async def _run(self, request: "_Request", *, is_stream: bool) -> None:
        limits = self._limits
        seconds = limits.stream_seconds_max if is_stream else limits.request_seconds_max
        timeout = asyncio.timeout(seconds)
        try:
            async with timeout:
                await self._admit(request)
        except DodonaError as error:
            await request.refuse(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody outside is shown it
            if timeout.expired():
                await request.give_up(seconds)
            else:
                await request.fail(error)
        else:
            await request.end()

    async def _admit(self, request: "_Request") -> None:
        scope = request.scope
        if self._is_local:
            check_name(request.text(b"host"))
            is_page = visit.is_console(scope["path"])
            check_own_page(lambda name: request.text(name.encode()), is_page=is_page)
        if scope["path"] not in OPEN_PATHS:
            shown = visit.authorization_of(scope["path"], scope["headers"])
            is_watching = visit.is_watching(scope["method"], scope["path"])
            admit = self._admit_watcher if is_watching else self._authenticate
            scope["state"]["principal"] = await admit(shown)
        await self._application(scope, request.receive, request.send)


class _Budget:
    """A number of bytes that all requests share."""

    def __init__(self, what: str, bytes_max: int) -> None:
        self._what = what
        self._bytes_max = bytes_max
        self._used_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Take bytes of the budget. Raises Overloaded."""
        if self._used_bytes + size_bytes > self._bytes_max:
            text = (
                f"The requests under way have {self._bytes_max} bytes of {self._what}. "
                "Wait, then repeat the request."
            )
            raise Overloaded(text, bytes_max=self._bytes_max)
        self._used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes


class _Budgets(NamedTuple):
    """The budgets of requests that are no streams: a stream frees the bytes that it has sent."""

    bodies: _Budget
    answers: _Budget


class _Request:
    """One request, from its headers to the end of its answer. `idle_seconds` is how long the other
    end may be silent; None for no such bound."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        refusal: Refusal,
        idle_seconds: float | None,
        budgets: _Budgets | None,
    ) -> None:
        self.scope = scope
        self._refusal = refusal
        self._idle_seconds = idle_seconds
        self._budgets = budgets
        self._body_bytes = self._answer_bytes = 0
        self._received_bytes = self._sent_bytes = 0
        self.traced: TracedRequest | None = None
        self.is_last = False
        """Whether the connection ends after this request."""
        self._start: Message | None = None
        """The start of an answer of which no byte was sent yet."""
        self._is_replaced = False
        self._receive = receive
        self._send = send
        self._began = time.monotonic()
        self._is_body_whole = not self._has_body()
        self._status: int | None = None
        self._is_over = False
        given = self.header(REQUEST_ID)
        is_fit = given is not None and _REQUEST_ID.fullmatch(given) is not None
        self.id = given if is_fit and given is not None else secrets.token_hex(8).encode()
        state = scope.setdefault("state", {})
        state["request_id"] = self.id.decode()
        state[TAKE_BODY] = self._take_body

    def header(self, name: bytes) -> bytes | None:
        for known, value in self.scope["headers"]:
            if known == name:
                found: bytes = value
                return found
        return None

    def text(self, name: bytes) -> str | None:
        """Return the value of a header as text, None if it is missing."""
        value = self.header(name)
        return None if value is None else value.decode("latin-1")

    def _is_probe(self) -> bool:
        """Return whether the request is a readiness probe, which comes again and again."""
        return bool(self.scope["path"] == READINESS)

    def _has_body(self) -> bool:
        length = self.header(b"content-length")
        return length not in (None, b"0") or self.header(b"transfer-encoding") is not None

    async def receive(self) -> Message:
        if self._is_body_whole:  # the application now waits only for the end of the connection
            return await self._receive()
        message = await self._soon(self._receive(), "The caller sent no byte of the body")
        if message["type"] == "http.request":
            size_bytes = len(message.get("body", b""))
            self._received_bytes += size_bytes
            self._take_body(size_bytes)
            self._is_body_whole = not message.get("more_body", False)
        return message

    def _take_body(self, size_bytes: int) -> None:
        if self._budgets is not None:
            self._budgets.bodies.take(size_bytes)
            self._body_bytes += size_bytes

    def _take_answer(self, size_bytes: int) -> None:
        if self._budgets is not None and size_bytes > PIECE_BYTES:
            self._budgets.answers.take(size_bytes)
            self._answer_bytes += size_bytes

    def give_back(self) -> None:
        """Give back the bytes of the body and of the answer."""
        if self._budgets is not None:
            self._budgets.bodies.give_back(self._body_bytes)
            self._budgets.answers.give_back(self._answer_bytes)

    def tell(self, traffic: Traffic) -> None:
        """End the span, and count the request in `traffic`."""
        if self.traced is not None:
            self.traced.end(self._status)
        traffic.note(
            self.scope["path"],
            self.scope["method"],
            NO_ANSWER if self._status is None else self._status,
            int((time.monotonic() - self._began) * 1e6),
            self._received_bytes,
            self._sent_bytes,
        )

    async def send(self, message: Message) -> None:
        """Send a message of the answer. The start of an answer waits for the first bytes of the
        body. If the budget has no room for these, an error answer goes out instead."""
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is not None:
            start, self._start = self._start, None
            try:
                self._take_answer(len(message.get("body", b"")))
            except Overloaded as error:
                await self.refuse(error)
                self._is_replaced = True
                return
            await self._send_start(start)
        if not self._is_replaced:
            await self._send_body(message)

    async def _send_start(self, message: Message) -> None:
        status: int = message["status"]
        self._status = status
        message["headers"] = [*message.get("headers", ()), (REQUEST_ID, self.id)]
        if self.traced is not None:
            message["headers"].append((TRACEPARENT, self.traced.header))
        if self.is_last or not self._is_body_whole:  # the rest of the body is not read
            message["headers"].append((b"connection", b"close"))
        if status >= 500 and not self._is_probe():
            self._log(status)
        await self._pass_on(message)

    async def _send_body(self, message: Message) -> None:
        """Send a body in pieces: the connection takes the next piece when most of the last one was
        sent."""
        content, is_more = message.get("body", b""), message.get("more_body", False)
        rest = memoryview(content)
        self._sent_bytes += len(rest)
        while len(rest) > PIECE_BYTES:
            await self._pass_on({**message, "body": rest[:PIECE_BYTES], "more_body": True})
            rest = rest[PIECE_BYTES:]
        self._is_over = not is_more
        await self._pass_on(message if len(rest) == len(content) else {**message, "body": rest})

    async def _pass_on(self, message: Message) -> None:
        await self._soon(self._send(message), "The caller read no byte of the answer")

    async def _soon(self, doing: Awaitable[Result], failure: str) -> Result:
        """Await `doing`, for at most `idle_seconds`. Raises RequestTimedOut after that."""
        if self._idle_seconds is None:
            return await doing
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await doing
        except TimeoutError as error:
            raise RequestTimedOut(f"{failure} for {self._idle_seconds} s.") from error

    async def end(self) -> None:
        """Check the answer of a request whose application returned. An answer without an end breaks
        off, and the log gets the reason."""
        if self._is_over:
            return
        reason = self.scope["state"].get(BROKEN_OFF, "the reason is not known")
        if self._status is None:
            reason = f"There is no answer: {reason}"
        await self.refuse(Unavailable(reason))

    async def fail(self, error: Exception) -> None:
        """Handle an exception of the gateway itself. Code behind the edge has mostly answered and
        logged it."""
        if self._status is None:
            _logger.error("the gateway failed", exc_info=error)
            await self.refuse(DodonaError("The gateway failed. Find the reason in its log."))
        elif not self._is_over:
            self._log(self._status, "an answer broke off: the gateway failed")

    async def refuse(self, error: DodonaError) -> None:
        """Answer with an error. An answer that has begun breaks off in its middle."""
        if self._status is not None:
            self._log(self._status, f"an answer broke off: {error.message}")
            return
        answer = self._refusal(self.scope["path"], error)
        headers = [*answer.raw_headers]
        start = {"type": "http.response.start", "status": answer.status_code, "headers": headers}
        with suppress(RequestTimedOut):  # if this answer is not taken either, the connection ends
            await self.send(start)
            await self.send({"type": "http.response.body", "body": bytes(answer.body)})

    async def give_up(self, seconds: int) -> None:
        """End a request whose deadline has passed. An answer that has begun breaks off in its
        middle, so that no caller takes it for complete."""
        if self._status is not None:
            self._log(self._status, "the deadline passed during the answer")
        elif self._is_body_whole:
            text = (
                f"There was no answer within {seconds} s. The call may have been done. "
                "Check before you repeat it."
            )
            await self.refuse(Unavailable(text))
        else:
            await self.refuse(
                RequestTimedOut(
                    f"The whole request did not arrive within {seconds} s. Send it again."
                )
            )

    def _log(self, status: int, what: str = "a request failed") -> None:
        took_ms = int((time.monotonic() - self._began) * 1000)
        fields = {
            "event": "request_failed",
            "request": self.id.decode(),
            "method": self.scope["method"],
            "path": self.scope["path"],
            "status": status,
            "took_ms": took_ms,
        }
        _logger.warning(what, extra={"fields": fields})
