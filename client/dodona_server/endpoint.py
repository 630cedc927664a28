"""The `/rpc` endpoint: WebSocket frames become requests to a runtime, and replies become frames.

Owns: the checks of the handshake, the frames of each connection, and the limit of unread replies of
a slow reader. A route is `(connection, request id)`. Replies that one iteration of the event loop
makes for a connection leave in one frame. uvicorn gets this endpoint in place of its own WebSocket
protocol. So the data plane shares the server's port and skips ASGI (see the decision 002).

A peer that sends wrong data loses at most its own connection. Garbled frames close it with 1007,
frames that are too long with 1009, and a slow reader is disconnected. Imports no web framework.
"""

import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec
from picows import (
    WSAutoPingStrategy,
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from dodona_server.logs import tell
from dodona_server.repliers import Replier
from dodona_server.runtime import Runtime
from dodona_wire.errors import Forbidden, InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.codec import (
    ANNOUNCEMENTS_HEADER,
    FRAME_BYTES_MAX,
    ONE_WAY,
    TRACES_HEADER,
    WIRE_VERSION,
    RequestEnvelope,
    decode_requests,
    encode_frame,
    goodbye,
    known_requests,
)
from dodona_wire.messages.families import Reply
from dodona_wire.net.callers import Header, check_program
from dodona_wire.net.cluster_key import Admission
from dodona_wire.types import CellId

RPC_PATH: Final = "/rpc"
REASON_BYTES_MAX: Final = 120
HANDSHAKE_SECONDS_MAX: Final = 10.0
READ_BUFFER_BYTES: Final = 64 << 10

UVICORN_OPTIONS: Final[dict[str, Any]] = {
    "loop": "uvloop",
    "http": "httptools",
    "access_log": False,
    "server_header": False,
    "date_header": False,
    "log_level": "warning",
}
"""The options that `uvicorn.Config` needs besides `ws=endpoint.protocol`."""

UNKNOWN_MESSAGE: Final = Failure(
    InvalidRequest.kind,
    "This server does not know the message, because it has an older release than the caller."
    " Upgrade the server first.",
)

_BINARY: Final = WSMsgType.BINARY
_CONTINUATION: Final = WSMsgType.CONTINUATION
_logger: Final = logging.getLogger("dodona.endpoint")
_picows_logger: Final = logging.getLogger("picows.dodona")


class FrameTracing(Protocol):
    """Observes the requests that are traced (see `traced_server`)."""

    def open(
        self, replier: Replier, envelopes: list[RequestEnvelope]
    ) -> tuple[Replier, list[RequestEnvelope]]:
        """Return a frame's requests without their trace contexts, and the replier for them."""


class EndpointLimits(msgspec.Struct, frozen=True):
    """What one process grants its peers."""

    connection_count_max: int = 4096
    unread_bytes_max: int = 128 << 20
    """Replies that may wait for the reader of one connection. Beyond this it is closed."""


class Endpoint:
    """The data plane of one process. `cell` is the cell that this process serves, if any."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        cell: CellId | None = None,
        limits: EndpointLimits | None = None,
        admission: Admission | None = None,
        tracing: "FrameTracing | None" = None,
        takes_announcements: bool = False,
    ) -> None:
        self._tracing = tracing
        self._greeting = {TRACES_HEADER: "1"} if tracing is not None else {}
        if takes_announcements:
            self._greeting[ANNOUNCEMENTS_HEADER] = "1"
        self._runtime = runtime
        self._cell = cell
        self._admission = admission or Admission()
        self._limits = limits or EndpointLimits()
        self._connections: set[_Connection] = set()

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def protocol(self, config: Any, server_state: Any, app_state: Any) -> "_UpgradedProtocol":
        """Return what uvicorn uses for each request to upgrade a connection to a WebSocket."""
        return _UpgradedProtocol(self, server_state.connections)

    def answer_handshake(self, request: WSUpgradeRequest) -> Any:
        """Return the listener of a new connection, or the HTTP answer that refuses it."""
        refusal = self._refusal(request.path.decode("latin-1"), request.headers.get)
        if refusal is None:
            made = _Connection(self._runtime, self._limits, self._connections, self._tracing)
            if not self._greeting:
                return made
            response = WSUpgradeResponse.create_101_response(self._greeting)
            return WSUpgradeResponseWithListener(response, made)
        status, reason = refusal
        response = WSUpgradeResponse.create_error_response(status, reason.encode())
        return WSUpgradeResponseWithListener(response, None)

    def _refusal(self, target: str, header: Header) -> tuple[HTTPStatus, str] | None:
        try:
            check_program(header, is_open=self._admission.is_open)
        except Forbidden as error:
            return HTTPStatus.FORBIDDEN, error.message
        if not self._admission.admits(header("authorization")):
            return HTTPStatus.UNAUTHORIZED, "the request does not have the cluster's key"
        parts = urlsplit(target)
        if parts.path != RPC_PATH:
            return HTTPStatus.NOT_FOUND, f"WebSockets are at {RPC_PATH}"
        query = parse_qs(parts.query, keep_blank_values=True)
        version = query.get("version", [""])[-1]
        if version != str(WIRE_VERSION):
            reason = f"this server speaks version {WIRE_VERSION} of the wire, not {version!r}"
            return HTTPStatus.BAD_REQUEST, reason
        cell = query.get("cell", [None])[-1]
        here = None if self._cell is None else str(self._cell)
        if cell != here:
            asked = "the URL names no cell" if cell is None else f"cell {cell} is not here"
            reason = f"{asked}: the cell here is {'none' if here is None else here}"
            return HTTPStatus.MISDIRECTED_REQUEST, reason
        if self.connection_count >= self._limits.connection_count_max:
            return HTTPStatus.SERVICE_UNAVAILABLE, "too many connections"
        return None


class _UpgradedProtocol(WSProtocol):  # type: ignore[misc]
    """picows's server protocol, on a connection that uvicorn accepted and read the request of."""

    def __init__(self, endpoint: Endpoint, connections: set[Any]) -> None:
        super().__init__(
            None,  # host and port: only for a client
            None,  # path: only for a client
            False,  # is a client
            endpoint.answer_handshake,
            _picows_logger,
            True,  # disconnect on an exception
            HANDSHAKE_SECONDS_MAX,
            False,  # pings: clients send them
            10.0,
            10.0,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            True,  # pongs
            FRAME_BYTES_MAX,
            None,  # headers: only for a client
            READ_BUFFER_BYTES,
        )
        self._connections = connections

    def connection_made(self, transport: Any) -> None:
        self._connections.add(self)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Take the request that uvicorn has read. picows reads all that follows."""
        buffer = self.get_buffer(len(data))
        if len(data) > len(buffer):  # the headers are too long
            self.transport.disconnect()
            return
        buffer[: len(data)] = data
        self.buffer_updated(len(data))

    def shutdown(self) -> None:
        """Close before uvicorn stops. The close frame says which requests were not handled."""
        reason = b""
        if isinstance(self.listener, _Connection):
            reason = goodbye(self.listener.retire())
        self.transport.send_close(WSCloseCode.SERVICE_RESTART, reason)
        self.transport.disconnect()


class _Connection(WSListener):
    """The connection of one peer. The runtime answers into `reply`."""

    _transport: WSTransport

    def __init__(
        self,
        runtime: Runtime,
        limits: EndpointLimits,
        connections: "set[_Connection]",
        tracing: "FrameTracing | None",
    ) -> None:
        self._tracing = tracing
        self._runtime = runtime
        self._unread_bytes_max = limits.unread_bytes_max
        self._connections = connections
        self._outbox: list[tuple[int, Reply]] = []
        self._is_flush_due = False
        self._is_paused = False
        self._is_closed = False
        self._unread_bytes = 0
        self._newest_id = ONE_WAY
        self._fragments = bytearray()

    # ---- called by picows

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self._connections.add(self)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._let_go()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if self._is_closed:
            return  # the frame was under way when this side closed the connection
        if kind is _BINARY and frame.fin:
            self._take(frame.get_payload_as_memoryview())
        elif kind is _BINARY or kind is _CONTINUATION:
            self._take_fragment(frame)
        elif kind is WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif kind is WSMsgType.TEXT:
            self._close(WSCloseCode.INVALID_TEXT, "garbled frame: frames are binary")

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._unread_bytes = 0
        if self._outbox:
            self._flush()

    # ---- in

    def _take(self, payload: bytes | memoryview) -> None:
        try:
            envelopes = self._envelopes(payload)
        except InvalidRequest as error:
            self._close(WSCloseCode.INVALID_TEXT, error.message)
            return
        if envelopes:  # ids rise; a one-way message has none
            self._newest_id = envelopes[-1][0] or max(
                [self._newest_id, *[it[0] for it in envelopes]]
            )
        replier: Replier = self
        if self._tracing is not None:
            replier, envelopes = self._tracing.open(self, envelopes)
        self._runtime.handle_frame(replier, envelopes, len(payload))

    def _envelopes(self, payload: bytes | memoryview) -> list[RequestEnvelope]:
        """Return the requests that this release knows, and refuse each of the others. Raises
        InvalidRequest if the frame is garbled."""
        try:
            return decode_requests(payload)
        except InvalidRequest as error:
            try:
                known, strange = known_requests(payload)
            except InvalidRequest:
                raise error from None
        for request_id in strange:
            self.reply(request_id, UNKNOWN_MESSAGE)
        return known

    def _take_fragment(self, frame: WSFrame) -> None:
        self._fragments += frame.get_payload_as_memoryview()
        if len(self._fragments) > FRAME_BYTES_MAX:
            self._close(WSCloseCode.MESSAGE_TOO_BIG, "the message is too long")
        elif frame.fin:
            whole, self._fragments = bytes(self._fragments), bytearray()
            self._take(whole)

    # ---- out

    def reply(self, request_id: int, body: Reply) -> None:
        """Send an answer. Cheap: it is encoded later, together with others."""
        if request_id == ONE_WAY or self._is_closed:
            return
        self._outbox.append((request_id, body))
        if self._is_paused:  # the reader is slow: count what it leaves unread
            self._unread_bytes += len(encode_frame(body))
            if self._unread_bytes > self._unread_bytes_max:
                self._give_up()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._runtime.call_afterwards(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._is_closed:
            return
        replies, self._outbox = self._outbox, []
        try:
            for frame in reply_frames(replies):
                self._transport.send(_BINARY, frame)
        except Exception as error:  # noqa: BLE001 - an answer that can't be encoded is a surprise
            self._runtime.fail(error)
            self._let_go()
            self._transport.disconnect()

    # ---- the end

    def retire(self) -> int:
        """Send the answers so far, and read nothing more. → the newest request that was read."""
        if self._outbox:
            self._flush()
        self._let_go()
        return self._newest_id

    def _close(self, code: WSCloseCode, reason: str) -> None:
        self._tell_why(reason)
        shortened = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
        self._let_go()
        self._transport.send_close(code, shortened)
        self._transport.disconnect()

    def _give_up(self) -> None:
        self._tell_why(f"the client left {self._unread_bytes} bytes unread")
        self._let_go()
        self._transport.disconnect(graceful=False)

    def _tell_why(self, reason: str) -> None:
        text = f"closing a connection: {reason}"
        tell(_logger, logging.WARNING, "connection_closed", text, reason=reason)

    def _let_go(self) -> None:
        self._is_closed = True
        self._connections.discard(self)
        self._outbox.clear()


def reply_frames(replies: list[tuple[int, Reply]]) -> Iterator[bytes]:
    """Encode replies, in as few frames as their length allows.

    A reply too long for any frame becomes a Failure of kind limit_exceeded.
    """
    frame = encode_frame(replies)
    if len(frame) <= FRAME_BYTES_MAX:
        yield frame
    elif len(replies) > 1:
        middle = len(replies) // 2
        yield from reply_frames(replies[:middle])
        yield from reply_frames(replies[middle:])
    else:
        message = f"The answer is longer than {FRAME_BYTES_MAX} bytes. Request less data."
        failure = Failure("limit_exceeded", message, {"size_bytes": len(frame)})
        yield encode_frame([(replies[0][0], failure)])
