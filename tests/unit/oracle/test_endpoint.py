"""The endpoint: what a peer may send, what it costs it, and that the server lives on."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import picows
import pytest
import uvicorn

from dodona.types import CellId, Now, Timestamp, TransactionId
from dodona_server.endpoint import (
    UVICORN_OPTIONS,
    Endpoint,
    EndpointLimits,
    reply_frames,
)
from dodona_server.runtime import Runtime
from dodona_wire.cores.effects import Effect, ReplyTo
from dodona_wire.messages.base import Failure, Message
from dodona_wire.messages.codec import (
    ENVELOPES_MAX,
    FRAME_BYTES_MAX,
    ONE_WAY,
    decode_replies,
    encode_frame,
)
from dodona_wire.messages.data import AskOutcome, GenerateTimestamps, LookupReply, TimestampRange
from dodona_wire.messages.traced import Traced
from suite.waiting import WAIT_S_MAX, until

pytestmark = pytest.mark.anyio


class EchoCore:
    """Answers each request with its count; a count of zero with something that can't be sent."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.padding = b""

    def handle(self, route: Any, body: Any, now: Now) -> None:
        reply: Any = TimestampRange(Timestamp(body.count), 1)
        if self.padding:
            reply = LookupReply(((self.padding,),))
        if body.count == 0:
            reply = LookupReply(((object(),),))
        self.effects.append(ReplyTo(route, reply))

    def tick(self, now: Now) -> None: ...

    def next_deadline(self) -> int | None:
        return None

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class Client(picows.WSListener):
    """A peer that sends what it is told to, well-formed or not."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.transport: Any = None
        self._partial = b""

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type is picows.WSMsgType.CLOSE:
            reason = (frame.get_close_message() or b"").decode()
            self.closed.set_result((frame.get_close_code().value, reason))
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        else:
            self.frames.put_nowait(frame.get_payload_as_bytes())

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        if not self.closed.done():
            self.closed.set_result((0, ""))

    def send(self, payload: bytes) -> None:
        self.transport.send(picows.WSMsgType.BINARY, payload)

    def ask(self, *envelopes: tuple[int, Any]) -> None:
        self.send(encode_frame(list(envelopes)))

    async def frame(self) -> list[Any]:
        async with asyncio.timeout(WAIT_S_MAX):
            return decode_replies(await self.frames.get())

    async def wait_until_closed(self) -> tuple[int, str]:
        async with asyncio.timeout(WAIT_S_MAX):
            return await self.closed


class Server:
    """A real server on a free port of the loopback."""

    def __init__(self, runtime: Runtime, endpoint: Endpoint, port: int) -> None:
        self.runtime = runtime
        self.endpoint = endpoint
        self.port = port

    async def connect(self, query: str = "version=1", path: str = "/rpc") -> Client:
        url = f"ws://127.0.0.1:{self.port}{path}?{query}"
        _, client = await picows.ws_connect(Client, url)
        assert isinstance(client, Client)
        return client

    async def refusal(self, query: str, path: str = "/rpc") -> int:
        with pytest.raises(picows.WSInvalidStatusError) as caught:
            await self.connect(query, path)
        assert caught.value.response is not None
        return int(caught.value.response.status)


async def rest(scope: Any, receive: Any, send: Any) -> None:
    """Only what uvicorn needs of an application."""
    assert scope["type"] == "lifespan"
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"].endswith("shutdown"):
            return


@asynccontextmanager
async def served(core: EchoCore | None = None, **options: Any) -> AsyncIterator[Server]:
    stop = options.pop("stop", None)
    runtime = Runtime(core or EchoCore(), None, **({} if stop is None else {"stop": stop}))
    runtime.start()
    endpoint = Endpoint(runtime, **options)
    async with listening(endpoint) as port:
        yield Server(runtime, endpoint, port)
    await runtime.close()


@asynccontextmanager
async def listening(endpoint: Endpoint) -> AsyncIterator[int]:
    options = {**UVICORN_OPTIONS, "loop": "none", "log_level": "error", "ws": endpoint.protocol}
    config = uvicorn.Config(rest, timeout_graceful_shutdown=1, **options)
    server = uvicorn.Server(config)
    server.capture_signals = _nothing  # type: ignore[method-assign, assignment]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


class _nothing:  # noqa: N801 - stands in for a method
    def __enter__(self) -> None: ...

    def __exit__(self, *details: object) -> None: ...


async def test_answers_come_in_one_frame_for_one_frame() -> None:
    async with served() as server:
        client = await server.connect()
        client.ask((5, GenerateTimestamps(50)), (9, GenerateTimestamps(90)))
        assert await client.frame() == [
            (5, TimestampRange(Timestamp(50), 1)),
            (9, TimestampRange(Timestamp(90), 1)),
        ]
        assert server.endpoint.connection_count == 1


async def test_each_connection_receives_its_own_answers() -> None:
    async with served() as server:
        clients = [await server.connect() for _ in range(5)]
        for number, client in enumerate(clients, 1):
            client.ask((1, GenerateTimestamps(number)))
        for number, client in enumerate(clients, 1):
            assert await client.frame() == [(1, TimestampRange(Timestamp(number), 1))]


async def test_a_one_way_request_is_not_answered() -> None:
    async with served() as server:
        client = await server.connect()
        client.ask((ONE_WAY, GenerateTimestamps(1)), (2, GenerateTimestamps(2)))
        assert await client.frame() == [(2, TimestampRange(Timestamp(2), 1))]


async def assert_lives(server: Server) -> None:
    client = await server.connect()
    client.ask((1, GenerateTimestamps(1)))
    assert await client.frame() == [(1, TimestampRange(Timestamp(1), 1))]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1",
        b"\x00",
        b"hello",
        b"\x91",
        b"\x91\x92\x01",
        encode_frame([(1, AskOutcome(TransactionId(1)))])[:-1],
        encode_frame([(1, GenerateTimestamps(1))]) + b"\x00",
        encode_frame([["one", GenerateTimestamps(1)]]),
        encode_frame([[1, [1, "count"]]]),
        encode_frame([[1, [10, 1, 2]]]),
        encode_frame({"not": "a list"}),
        b"\x91" * 100_000,
    ],
)
async def test_a_garbled_frame_closes_only_its_own_connection(garbage: bytes) -> None:
    async with served() as server:
        client = await server.connect()
        client.send(garbage)
        code, reason = await client.wait_until_closed()
        assert code == 1007
        assert reason.startswith("garbled frame")
        await assert_lives(server)


async def test_a_garbled_frame_does_not_undo_an_earlier_valid_frame() -> None:
    async with served() as server:
        client = await server.connect()
        client.ask((1, GenerateTimestamps(1)))
        assert await client.frame() == [(1, TimestampRange(Timestamp(1), 1))]
        client.send(b"\xc1")
        assert (await client.wait_until_closed())[0] == 1007


class Later(Message, frozen=True, array_like=True, gc=False, tag=9_999):
    """A message of a release to come."""

    path: str


async def test_a_message_of_a_later_release_is_refused_and_the_others_are_answered() -> None:
    async with served() as server:
        client = await server.connect()
        asked = GenerateTimestamps(4)
        later = Later("//t")
        client.ask((1, later), (2, asked), (3, Traced("", later)), (ONE_WAY, later), (4, asked))  # type: ignore[arg-type]
        replies = dict(await client.frame())
        while len(replies) < 4:
            replies |= dict(await client.frame())
        assert replies[2] == replies[4] == TimestampRange(Timestamp(4), 1)
        for refused in (replies[1], replies[3]):
            assert isinstance(refused, Failure)
            assert refused.kind == "invalid_request"
            assert "older release" in refused.message
        client.ask((5, later), (6, AskOutcome("text")))  # type: ignore[arg-type]
        assert (await client.wait_until_closed())[0] == 1007


async def test_a_message_with_an_extra_field_is_accepted() -> None:
    async with served() as server:
        client = await server.connect()
        client.send(
            msgspec.msgpack.encode(
                [(1, [*msgspec.msgpack.decode(encode_frame(GenerateTimestamps(7))), "more"])]
            )
        )
        assert await client.frame() == [(1, TimestampRange(Timestamp(7), 1))]


async def test_a_text_frame_closes_only_its_own_connection() -> None:
    async with served() as server:
        client = await server.connect()
        client.transport.send(picows.WSMsgType.TEXT, b"text")
        code, reason = await client.wait_until_closed()
        assert (code, reason) == (1007, "garbled frame: frames are binary")
        await assert_lives(server)


async def test_a_too_long_frame_closes_only_its_own_connection() -> None:
    async with served() as server:
        client = await server.connect()
        client.send(bytes(FRAME_BYTES_MAX + 1))
        code, _ = await client.wait_until_closed()
        assert code == 1009
        await assert_lives(server)


async def test_a_frame_with_too_many_envelopes_closes_only_its_own_connection() -> None:
    async with served() as server:
        client = await server.connect()
        client.ask(*[(1, GenerateTimestamps(1))] * (ENVELOPES_MAX + 1))
        code, reason = await client.wait_until_closed()
        assert code == 1007
        assert str(ENVELOPES_MAX) in reason
        client = await server.connect()
        client.ask(*[(1, GenerateTimestamps(1))] * ENVELOPES_MAX)
        assert len(await client.frame()) == ENVELOPES_MAX


async def test_a_connection_that_breaks_off_is_forgotten() -> None:
    async with served() as server:
        client = await server.connect()
        client.ask((1, GenerateTimestamps(1)))
        client.transport.disconnect(graceful=False)
        await until(lambda: not server.endpoint.connection_count)
        await assert_lives(server)


async def test_a_peer_that_does_not_read_is_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = EchoCore()
    core.padding = bytes(1 << 20)
    async with served(core, limits=EndpointLimits(unread_bytes_max=8 << 20)) as server:
        client = await server.connect()
        client.transport.underlying_transport.pause_reading()
        async with asyncio.timeout(WAIT_S_MAX):
            for number in range(1, 1000):
                client.ask((number, GenerateTimestamps(1)))
                await asyncio.sleep(0.001)
                if not server.endpoint.connection_count:
                    break
        assert server.endpoint.connection_count == 0
        assert "bytes unread" in caplog.text
        client.transport.underlying_transport.abort()
        core.padding = b""
        await assert_lives(server)


@pytest.mark.parametrize(
    ("ids", "newest"), [([], 0), ([4], 4), ([4, 9], 9), ([4, 9, ONE_WAY], 9), ([ONE_WAY], 0)]
)
async def test_a_server_that_ends_names_the_last_request_received_on_each_connection(
    ids: list[int], newest: int
) -> None:
    async with served() as server:
        client = await server.connect()
        client.send(encode_frame([]))
        if ids:
            client.ask(*[(it, GenerateTimestamps(1)) for it in ids])
            if newest:
                await client.frame()
        # Whatever it sends is heard before what it is asked next.
        other = await server.connect()
        other.ask((1, GenerateTimestamps(1)))
        await other.frame()
    assert await client.wait_until_closed() == (1012, f"heard {newest}")


async def test_an_answer_that_can_not_be_sent_is_a_surprise() -> None:
    stopped: list[BaseException] = []
    async with served(stop=stopped.append) as server:
        client = await server.connect()
        client.ask((1, GenerateTimestamps(0)))
        await client.wait_until_closed()
    assert isinstance(stopped[0], TypeError)


# The handshake


async def test_a_handshake_must_name_this_version_of_the_wire() -> None:
    async with served() as server:
        for query in ("", "version=", "version=2", "version=one"):
            assert await server.refusal(query) == 400
        await assert_lives(server)


async def test_a_handshake_must_name_the_cell_that_is_here() -> None:
    async with served(cell=CellId(3)) as server:
        for query in ("version=1", "version=1&cell=4", "version=1&cell=", "version=1&cell=x"):
            assert await server.refusal(query) == 421
        await server.connect("version=1&cell=3")
    async with served() as server:
        assert await server.refusal("version=1&cell=3") == 421


async def test_connections_are_limited() -> None:
    async with served(limits=EndpointLimits(connection_count_max=2)) as server:
        clients = [await server.connect() for _ in range(2)]
        assert await server.refusal("version=1") == 503
        clients[0].transport.disconnect(graceful=False)
        await until(lambda: server.endpoint.connection_count < 2)
        await server.connect()


async def test_websockets_are_at_one_path_only() -> None:
    async with served() as server:
        assert await server.refusal("version=1", path="/other") == 404


# Frames of replies


def test_replies_too_long_for_one_frame_are_sent_in_several_frames() -> None:
    third = LookupReply(((bytes(FRAME_BYTES_MAX // 3),),))
    frames = list(reply_frames([(number, third) for number in range(1, 6)]))
    assert all(len(frame) <= FRAME_BYTES_MAX for frame in frames)
    replies = [reply for frame in frames for reply in decode_replies(frame)]
    assert replies == [(number, third) for number in range(1, 6)]


def test_a_reply_too_long_for_any_frame_becomes_a_failure() -> None:
    huge = LookupReply(((bytes(FRAME_BYTES_MAX),),))
    (frame,) = reply_frames([(7, huge)])
    ((request_id, body),) = decode_replies(frame)
    assert request_id == 7
    assert isinstance(body, Failure)
    assert body.kind == "limit_exceeded"
