"""A server to connect to, in this process and on loopback: it answers as a test says.

Owns: `Endpoint`, whose `answer` gets each request and gives its reply; None leaves it unanswered.
What it may do besides is what servers do when they fail: end connections, refuse them, send what
is no frame.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
    ws_create_server,
)

from dodona.types import Timestamp
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.codec import (
    FRAME_BYTES_MAX,
    ONE_WAY,
    decode_requests,
    encode_frame,
    goodbye,
)
from dodona_wire.messages.data import DataReply, GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import RpcRequest
from dodona_wire.messages.traced import Traced

Request = RpcRequest | CellMessage | Traced
Answer = Callable[[Request], DataReply | None]


class Timestamps:
    """Answers with fresh timestamps."""

    def __init__(self, first: int = 1_000) -> None:
        self.next_unused = first
        self.counts: list[int] = []

    def __call__(self, body: object) -> DataReply | None:
        assert isinstance(body, GenerateTimestamps)
        first, self.next_unused = self.next_unused, self.next_unused + body.count
        self.counts.append(body.count)
        return TimestampRange(Timestamp(first), body.count)


class Endpoint:
    """Listens on a port of its own. Counts what comes."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.port = 0
        self.refusal: int | None = None
        self.has_pongs = True
        self.paths: list[str] = []
        self.frame_sizes: list[int] = []
        self.bodies: list[Request] = []
        self.transports: list[WSTransport] = []
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"ws://{self.address}/rpc?version=1"

    async def start(self) -> None:
        """On the port it had before, if it had one."""
        self._server = await ws_create_server(
            self._accept,
            "127.0.0.1",
            self.port,
            max_frame_size=FRAME_BYTES_MAX,
            enable_auto_pong=False,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """As if the process were killed."""
        assert self._server is not None
        self._server.close()
        self.drop_all()

    def say_goodbye(self, newest_id: int) -> None:
        """As a server that is about to stop."""
        for transport in self.transports:
            transport.send_close(WSCloseCode.SERVICE_RESTART, goodbye(newest_id))
            transport.disconnect()

    def drop_all(self) -> None:
        transports, self.transports = self.transports, []
        for transport in transports:
            transport.disconnect(graceful=False)

    def send_all(self, payload: bytes, kind: WSMsgType = WSMsgType.BINARY) -> None:
        for transport in self.transports:
            transport.send(kind, payload)

    def _accept(self, request: WSUpgradeRequest) -> WSListener | WSUpgradeResponseWithListener:
        self.paths.append(request.path.decode())
        if self.refusal is not None:
            response = WSUpgradeResponse.create_error_response(self.refusal, b"not here")
            return WSUpgradeResponseWithListener(response, None)
        return _Connection(self)


class _Connection(WSListener):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._endpoint.transports.append(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is WSMsgType.PING:
            if self._endpoint.has_pongs:
                transport.send_pong(frame.get_payload_as_bytes())
            return
        if frame.msg_type is not WSMsgType.BINARY:
            transport.disconnect()
            return
        envelopes = decode_requests(frame.get_payload_as_bytes())
        self._endpoint.frame_sizes.append(len(envelopes))
        replies = []
        for request_id, body in envelopes:
            self._endpoint.bodies.append(body)
            reply = self._endpoint.answer(body)
            if reply is not None and request_id != ONE_WAY:
                replies.append((request_id, reply))
        if replies:
            transport.send(WSMsgType.BINARY, encode_frame(replies))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if transport in self._endpoint.transports:
            self._endpoint.transports.remove(transport)


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Endpoint]:
    """An endpoint for the length of a block."""
    endpoint = Endpoint(answer)
    await endpoint.start()
    try:
        yield endpoint
    finally:
        endpoint.stop()
