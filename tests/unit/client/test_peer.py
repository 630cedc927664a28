"""The peer: pipelining, time-outs, lost connections, reconnecting, and frames of any length."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from picows import WSMsgType, ws_connect

from dodona.types import CellId, Key, Revision, TabletId, Timestamp, TransactionId
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import TellAbort
from dodona_wire.messages.codec import encode_frame, newest_of_goodbye
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    Committed,
    DataReply,
    GenerateTimestamps,
    TimestampRange,
    WriteArrow,
    WriteNonAtomic,
)
from dodona_wire.messages.families import Reply
from dodona_wire.net import peer as peer_module
from dodona_wire.net.peer import Peer
from dodona_wire.net.rpc_urls import rpc_url
from suite.waiting import WAIT_S_MAX, until
from unit.client.endpoint import Endpoint, Timestamps, serving

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(endpoint: Endpoint, timeout_ms: int = 10_000) -> AsyncIterator[Peer]:
    peer = Peer(endpoint.url, timeout_ms=timeout_ms)
    try:
        yield peer
    finally:
        await peer.close()


def ask(number: int = 1) -> AskOutcome:
    return AskOutcome(TransactionId(number))


def echo(body: object) -> DataReply | None:
    """Answers a question about a transaction with its number."""
    assert isinstance(body, AskOutcome | TellAbort)
    return Committed(body.transaction, Timestamp(body.transaction * 10))


def silent(body: object) -> DataReply | None:
    return None


def assert_unavailable(reply: Reply, said: str, *, was_sent: bool) -> None:
    assert isinstance(reply, Failure)
    assert reply.kind == "unavailable"
    assert said in reply.message
    assert reply.attributes.get("is_sent") is (None if was_sent else False)
    assert reply.attributes.keys() <= {"is_sent", "silent_ms"}


@pytest.mark.parametrize(
    ("address", "cell", "expected"),
    [
        ("127.0.0.1:8501", None, "ws://127.0.0.1:8501/rpc?version=1"),
        ("http://host:1", 3, "ws://host:1/rpc?cell=3&version=1"),
        ("https://host/prefix/", None, "wss://host/prefix/rpc?version=1"),
        ("http://user:secret@host:1", None, "ws://host:1/rpc?version=1"),
    ],
)
def test_an_address_becomes_the_data_planes_url(
    address: str, cell: int | None, expected: str
) -> None:
    assert rpc_url(address, None if cell is None else CellId(cell)) == expected


async def test_calls_of_one_iteration_share_a_frame_and_get_their_own_answers() -> None:
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        replies = await asyncio.gather(*[peer.call(ask(it)) for it in range(1, 500)])
        assert [it.timestamp for it in replies if isinstance(it, Committed)] == [
            it * 10 for it in range(1, 500)
        ]
        assert endpoint.frame_sizes == [499]
        assert len(endpoint.paths) == 1
        assert not peer._pending


async def test_answers_may_come_in_any_order() -> None:
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        first, second = peer.call(ask(1)), peer.call(ask(2))
        await wait_for_frames(endpoint, 1)
        endpoint.send_all(encode_frame([(2, Aborted(TransactionId(2)))]))
        assert await second == Aborted(TransactionId(2))
        assert not first.done()
        endpoint.send_all(encode_frame([(1, Aborted(TransactionId(1)))]))
        assert await first == Aborted(TransactionId(1))


async def wait_for_frames(endpoint: Endpoint, count: int) -> None:
    await until(lambda: len(endpoint.frame_sizes) >= count)


async def test_a_peer_drops_replies_to_unknown_or_cancelled_calls() -> None:
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        gone, patient = peer.call(ask(1)), peer.call(ask(2))
        await wait_for_frames(endpoint, 1)
        gone.cancel()
        answers = [(it, Aborted(TransactionId(it))) for it in (1, 1, 77, 2)]
        endpoint.send_all(encode_frame(answers))
        assert await patient == Aborted(TransactionId(2))


async def test_one_way_messages_expect_no_answer() -> None:
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        peer.post(TellAbort(CellId(1), TransactionId(5)))
        peer.post(ask(6))
        await peer.call(ask(7))
        assert [type(it) for it in endpoint.bodies] == [TellAbort, AskOutcome, AskOutcome]
        assert endpoint.frame_sizes == [3]


async def test_each_unanswered_call_has_a_timeout_of_its_own() -> None:
    async with (
        serving(silent) as endpoint,
        connected(endpoint, timeout_ms=400) as peer,
        connected(endpoint) as patient,
    ):
        loop = asyncio.get_running_loop()
        waiting = patient.call(ask(3))
        first, first_began = peer.call(ask(1)), loop.time()
        await asyncio.sleep(0.2)
        second, second_began = peer.call(ask(2)), loop.time()
        assert_unavailable(await first, "no answer", was_sent=True)
        assert loop.time() - first_began > 0.39
        assert_unavailable(await second, "no answer", was_sent=True)
        assert loop.time() - second_began > 0.39
        assert not waiting.done(), "and no longer than they were told to wait"


async def test_a_peer_reconnects_to_a_server_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_module, "PING_AFTER_SECONDS", 0.1)
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        endpoint.has_pongs = False
        assert_unavailable(await peer.call(ask(1)), "was lost", was_sent=True)
        endpoint.has_pongs, endpoint.answer = True, echo
        assert isinstance(await peer.call(ask(2)), Committed)
        assert len(endpoint.paths) == 2


async def test_a_timeout_of_one_call_does_not_close_the_connection_to_a_busy_server() -> None:
    def only_even(body: object) -> DataReply | None:
        assert isinstance(body, AskOutcome)
        return None if body.transaction % 2 else echo(body)

    async with serving(only_even) as endpoint, connected(endpoint, timeout_ms=200) as peer:
        hanging = peer.call(ask(1))
        while not hanging.done():
            await peer.call(ask(2))  # which may be late itself, where the machine stands still
            await asyncio.sleep(0.01)
        assert_unavailable(await hanging, "no answer", was_sent=True)
        async with asyncio.timeout(WAIT_S_MAX):
            while not isinstance(await peer.call(ask(2)), Committed):
                pass
        assert len(endpoint.paths) == 1


async def test_a_lost_connection_fails_sent_calls_and_the_next_call_reconnects() -> None:
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        pending = [peer.call(ask(it)) for it in range(3)]
        await wait_for_frames(endpoint, 1)
        endpoint.drop_all()
        for reply in await asyncio.gather(*pending):
            assert_unavailable(reply, "was lost", was_sent=True)
        endpoint.answer = echo
        assert isinstance(await peer.call(ask(1)), Committed)
        assert len(endpoint.paths) == 2


async def test_a_peer_marks_requests_as_unsent_that_a_stopped_server_never_read() -> None:
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        calls = [peer.call(ask(number)) for number in (1, 2, 3)]
        await wait_for_frames(endpoint, 1)
        endpoint.say_goodbye(newest_id=2)
        heard, unheard = [await it for it in calls[:2]], await calls[2]
        for reply in heard:
            assert_unavailable(reply, "was lost: closed with 1012", was_sent=True)
        assert_unavailable(unheard, "was lost: closed with 1012", was_sent=False)


@pytest.mark.parametrize(
    ("reason", "newest_id"),
    [
        ("heard 7", 7),
        ("heard 0", 0),
        ("heard", None),
        ("heard -7", None),
        ("heard seven", None),
        ("heard \u0667", None),
        ("heard 7 times", None),
        ("7", None),
        ("", None),
        (None, None),
    ],
)
def test_only_a_goodbye_is_one(reason: str | None, newest_id: int | None) -> None:
    assert newest_of_goodbye(reason) == newest_id


async def test_calls_to_an_unreachable_server_fail_immediately_as_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waited for the next attempt to connect would not be back today."""
    endpoint = Endpoint(echo)
    await endpoint.start()
    endpoint.stop()
    async with connected(endpoint) as peer:
        with monkeypatch.context() as patch:
            patch.setattr(Peer, "_backoff_seconds", lambda _: 86_400.0)
            async with asyncio.timeout(WAIT_S_MAX):
                for _ in range(20):
                    assert_unavailable(await peer.call(ask()), "can't be reached", was_sent=False)
                peer.post(ask())
        await endpoint.start()
        peer._retry_at = 0.0
        async with asyncio.timeout(WAIT_S_MAX):
            while isinstance(await peer.call(ask()), Failure):
                await asyncio.sleep(0.01)
        endpoint.stop()


async def test_the_error_of_a_refused_handshake_names_the_http_status() -> None:
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        endpoint.refusal = 421
        assert_unavailable(await peer.call(ask()), "421", was_sent=False)


async def test_a_server_that_closes_each_new_connection_is_unreachable() -> None:
    def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    peer = Peer(rpc_url(f"127.0.0.1:{port}"), timeout_ms=86_400_000)
    async with asyncio.timeout(WAIT_S_MAX):
        assert_unavailable(await peer.call(ask()), "can't be reached", was_sent=False)
    await peer.close()
    server.close()


async def test_the_reason_of_repeated_failures_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node asks its master several times a second, for as long as that is down."""
    caplog.set_level(logging.INFO, "dodona.peer")
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        for status in (421, 421, 503, 503, None, 503):
            endpoint.refusal, peer._retry_at = status, 0.0
            if status is None:
                assert await peer.call(ask()) == Committed(TransactionId(1), Timestamp(10))
                endpoint.transports[-1].disconnect(graceful=False)
                await until(lambda: peer._transport is None)
            else:
                assert_unavailable(await peer.call(ask()), str(status), was_sent=False)
    told = [it.getMessage() for it in caplog.records]
    assert [re.findall("421|503", it) for it in told] == [["421"], ["503"], ["503"]]


async def test_a_call_not_sent_on_a_broken_connection_is_sent_on_the_next_one() -> None:
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        await peer.call(ask(1))
        (transport,) = endpoint.transports
        peer._pause(True)  # as if the server had stopped reading
        unsent = peer.call(ask(2))
        await asyncio.sleep(0)
        transport.disconnect(graceful=False)
        assert await unsent == Committed(TransactionId(2), Timestamp(20))
        assert len(endpoint.paths) == 2


async def test_calls_wait_for_a_connection_that_is_being_opened() -> None:
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        first = peer.call(ask(1))
        await asyncio.sleep(0)
        second = peer.call(ask(2))
        assert await first == Committed(TransactionId(1), Timestamp(10))
        assert await second == Committed(TransactionId(2), Timestamp(20))
        assert len(endpoint.paths) == 1


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"\xff\xff garbled", WSMsgType.BINARY),
        (b"", WSMsgType.BINARY),
        (b"text", WSMsgType.TEXT),
        (b"\x03\xe9", WSMsgType.CLOSE),
    ],
)
async def test_an_invalid_frame_ends_the_connection(payload: bytes, kind: WSMsgType) -> None:
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        pending = peer.call(ask())
        await wait_for_frames(endpoint, 1)
        endpoint.send_all(payload, kind)
        assert_unavailable(await pending, "was lost", was_sent=True)
        endpoint.answer = echo
        assert isinstance(await peer.call(ask(3)), Committed)


async def test_a_frame_may_come_in_fragments() -> None:
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        pending = peer.call(ask())
        await wait_for_frames(endpoint, 1)
        frame = encode_frame([(1, Aborted(TransactionId(1)))])
        (transport,) = endpoint.transports
        transport.send(WSMsgType.BINARY, frame[:3], fin=False)
        transport.send(WSMsgType.CONTINUATION, frame[3:5], fin=False)
        transport.send(WSMsgType.CONTINUATION, frame[5:])
        assert await pending == Aborted(TransactionId(1))


def long(size_bytes: int) -> WriteNonAtomic:
    writes = ((Key(b"k"), 1, (bytes(size_bytes),)),)
    return WriteNonAtomic(TabletId(1), Revision(1), Timestamp(1), True, writes)


async def test_long_requests_are_divided_among_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "FRAME_BYTES_MAX", 10_000)
    taken = Committed(TransactionId(1), Timestamp(1))
    async with serving(lambda body: taken) as endpoint, connected(endpoint) as peer:
        replies = await asyncio.gather(*[peer.call(long(3_000)) for _ in range(20)])
        assert replies == [taken] * 20
        assert sum(endpoint.frame_sizes) == 20
        assert max(endpoint.frame_sizes) <= 3
        order = [peer.call(long(20_000)), peer.call(long(10))]
        too_long, fine = await asyncio.gather(*order)
        assert isinstance(too_long, Failure)
        assert (too_long.kind, too_long.attributes) == ("limit_exceeded", {"is_sent": False})
        assert fine == taken


async def test_bulk_requests_have_frames_of_their_own() -> None:
    taken = Committed(TransactionId(1), Timestamp(1))
    batch = WriteArrow(TabletId(1), Revision(1), Timestamp(1), True, b"rows")
    async with serving(lambda body: taken) as endpoint, connected(endpoint) as peer:
        calls = [peer.call(it) for it in (long(10), batch, batch)]
        assert await asyncio.gather(*calls) == [taken] * 3
        assert await asyncio.gather(*[peer.call(long(10)) for _ in range(3)]) == [taken] * 3
        assert endpoint.frame_sizes == [1, 1, 1, 3]


async def test_a_frame_holds_a_bounded_number_of_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer_module, "ENVELOPES_MAX", 100)
    timestamps = Timestamps()
    async with serving(timestamps) as endpoint, connected(endpoint) as peer:
        count = 1_010
        calls = [peer.call(GenerateTimestamps(1)) for _ in range(count)]
        replies = await asyncio.gather(*calls)
        assert all(isinstance(it, TimestampRange) for it in replies)
        assert sum(endpoint.frame_sizes) == count
        assert max(endpoint.frame_sizes) <= 100


async def test_a_request_that_cannot_be_encoded_harms_only_itself() -> None:
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        good, bad = peer.call(ask(1)), peer.call(ask(1 << 70))
        assert isinstance(await good, Committed)
        reply = await bad
        assert isinstance(reply, Failure)
        assert reply.kind == "invalid_request"


async def test_pending_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "CALLS_MAX", 5)
    async with serving(silent) as endpoint, connected(endpoint) as peer:
        calls = [peer.call(ask(it)) for it in range(6)]
        reply = await calls[5]
        assert isinstance(reply, Failure)
        assert reply.kind == "overloaded"
        assert not calls[0].done()


async def test_a_closed_peer_answers_everything_with_a_failure() -> None:
    async with serving(silent) as endpoint:
        peer = Peer(endpoint.url)
        sent = peer.call(ask(1))
        await wait_for_frames(endpoint, 1)
        unsent = peer.call(ask(2))
        await peer.close()
        assert_unavailable(await sent, "this client has closed the connection", was_sent=True)
        assert_unavailable(await unsent, "this client has closed the connection", was_sent=False)
        assert_unavailable(
            await peer.call(ask(3)), "this client has closed the connection", was_sent=False
        )
        await peer.close()


async def test_closing_while_connecting_leaves_nothing_behind() -> None:
    async with serving(echo) as endpoint:
        peer = Peer(endpoint.url)
        call = peer.call(ask())
        await asyncio.sleep(0)
        await peer.close()
        assert_unavailable(await call, "this client has closed the connection", was_sent=False)
        await asyncio.sleep(0.05)  # a connection that is left behind has come by then, or is missed
        await until(lambda: endpoint.transports == [])


async def test_a_call_made_while_closing_waits_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection can carry frames a while before the task that opened it has ended, and closing
    waits for that task: a call made meanwhile once waited for ever."""
    connect = ws_connect
    is_let_go = asyncio.Event()

    async def linger(*arguments: Any, **options: Any) -> Any:
        result = await connect(*arguments, **options)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await is_let_go.wait()
            raise
        return result

    monkeypatch.setattr(peer_module, "ws_connect", linger)
    async with serving(silent) as endpoint:
        peer = Peer(endpoint.url)
        early = peer.call(ask(1))
        await wait_for_frames(endpoint, 1)
        closing = asyncio.ensure_future(peer.close())
        assert_unavailable(await early, "this client has closed the connection", was_sent=True)
        late = peer.call(ask(2))
        is_let_go.set()
        await closing
        assert_unavailable(await late, "this client has closed the connection", was_sent=False)
        assert endpoint.bodies == [ask(1)]


# ---- callbacks


async def test_ask_passes_the_reply_to_the_callback() -> None:
    replies: asyncio.Queue[Reply] = asyncio.Queue()
    async with serving(echo) as endpoint, connected(endpoint) as peer:
        peer.ask(ask(7), replies.put_nowait)
        assert await replies.get() == Committed(TransactionId(7), Timestamp(70))
        peer.ask(ask(8), replies.put_nowait)
        assert endpoint.frame_sizes == [1]
        assert await replies.get() == Committed(TransactionId(8), Timestamp(80))


async def test_ask_passes_an_error_to_the_callback_if_the_server_is_unreachable() -> None:
    replies: asyncio.Queue[Reply] = asyncio.Queue()
    endpoint = Endpoint(echo)
    await endpoint.start()
    endpoint.stop()
    async with connected(endpoint) as peer:
        peer.ask(ask(), replies.put_nowait)
        assert_unavailable(await replies.get(), "can't be reached", was_sent=False)
        peer.ask(ask(), replies.put_nowait)  # refused a moment ago: answered at once
        assert_unavailable(replies.get_nowait(), "can't be reached", was_sent=False)
    peer.ask(ask(), replies.put_nowait)
    assert_unavailable(
        replies.get_nowait(), "this client has closed the connection", was_sent=False
    )


async def test_a_callback_may_ask_again_and_close_the_peer() -> None:
    replies: list[Reply] = []
    is_over = asyncio.Event()

    async with serving(echo) as endpoint, connected(endpoint) as peer:
        closing: list[asyncio.Task[None]] = []

        def again(reply: Reply) -> None:
            replies.append(reply)
            if len(replies) < 3:
                peer.ask(ask(len(replies)), again)
            elif not closing:
                closing.append(asyncio.ensure_future(peer.close()))
                is_over.set()

        others = [peer.call(ask(number)) for number in range(100, 300)]
        peer.ask(ask(0), again)
        await is_over.wait()
        await asyncio.gather(*closing, *others)
        assert len(replies) == 3
