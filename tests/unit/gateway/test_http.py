"""Connections over real sockets, before a pretended application: bounds, ends, and what is said."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pytest
import uvloop

from dodona_server import http
from dodona_server.http import HttpBounds, _Outlet
from suite.waiting import WAIT_S_MAX, wait_until
from unit.gateway.http_server import GRACE_S, LARGE, Line, Server, serving

BOUNDS: Final = HttpBounds(
    header_seconds_max=0.4,
    header_bytes_max=20_000,
    answer_seconds_max=0.6,
    connection_count_max=20,
    headers_bytes_max=400_000,
)
GET: Final = b"GET /quick HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    with serving(BOUNDS) as server:
        yield server


@pytest.fixture
def server(shared: Server) -> Server:
    """Started once, with no connection left of another test."""
    wait_until(lambda: shared.connection_count == 0)
    shared.application.asked.clear()
    shared.application.bodies.clear()
    shared.application.may_go_on.clear()
    return shared


def test_requests_follow_each_other_on_a_connection(server: Server) -> None:
    with server.connect() as line:
        for _ in range(3):
            assert line.send(GET).read()[2] == b"/quick"
        line.send(GET * 3)
        assert [line.read()[2] for _ in range(3)] == [b"/quick"] * 3


def test_a_body_comes_in_pieces_and_in_chunks(server: Server) -> None:
    with server.connect() as line:
        line.send(b"POST /a HTTP/1.1\r\ncontent-length: 6\r\n\r\nabc")
        time.sleep(0.6)  # longer than headers may take
        assert line.send(b"def").read()[0] == 200
        line.send(b"POST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        assert line.send(b"0\r\nx-trailer: y\r\n\r\n").read()[0] == 200
    assert server.application.bodies == [b"abcdef", b"abc"]


# ---- headers


def test_headers_that_drip_are_refused_in_time(server: Server) -> None:
    with server.connect() as line:
        for byte in GET[:6]:
            line.send(bytes([byte]))
            time.sleep(0.1)
        problem = line.problem()
        assert problem["status"] == 408
        assert "within 0.4 s" in problem["detail"]
        assert line.is_at_end()
    assert server.application.asked == []


@pytest.mark.parametrize("beginning", [b"", GET, b"\r\n", GET + b"\r\n"])
def test_a_silent_connection_is_closed_without_an_error_answer(
    server: Server, beginning: bytes
) -> None:
    with server.connect() as line:
        line.send(beginning)
        if beginning.startswith(GET):
            assert line.read()[0] == 200
        began = time.monotonic()
        assert line.is_at_end()
        assert time.monotonic() - began < 3


def test_empty_lines_do_not_keep_a_connection(server: Server) -> None:
    with server.connect() as line:
        line.send(GET).read()
        assert line.drip(b"\r\n") < 5


def padded(size_bytes: int, path: bytes = b"/quick") -> bytes:
    """A request whose line and headers, as they are counted, are just so long."""
    spare = size_bytes - len(path) - len(b"x-pad")
    return b"GET " + path + b" HTTP/1.1\r\nx-pad: " + b"p" * spare + b"\r\n\r\n"


def test_headers_have_a_bound(server: Server) -> None:
    with server.connect() as line:
        assert line.send(padded(BOUNDS.header_bytes_max)).read()[0] == 200
        problem = line.send(padded(BOUNDS.header_bytes_max + 1)).problem()
        assert problem["status"] == 431
        assert line.is_at_end()
    assert server.application.asked == ["/quick"]


@pytest.mark.parametrize("endless", [b"p", b"x-a: b\r\n"])
def test_headers_without_an_end_are_refused_as_they_come(server: Server, endless: bytes) -> None:
    with server.connect() as line:
        line.send(b"GET /quick HTTP/1.1\r\nx-a: ")
        part = (endless * 4096)[:4096]
        for _ in range(BOUNDS.header_bytes_max // 4096 + 2):
            line.send(part)
            time.sleep(0.005)
        assert line.problem()["status"] == 431
        assert line.is_at_end()


def test_a_too_long_url_is_refused(server: Server) -> None:
    with server.connect() as line:
        line.send(b"GET /" + b"u" * BOUNDS.header_bytes_max + b" HTTP/1.1\r\n\r\n")
        assert line.problem()["status"] == 431


def test_long_headers_on_their_way_have_a_bound_together() -> None:
    bounds = HttpBounds(WAIT_S_MAX, 20_000, WAIT_S_MAX, 50, 100_000)
    with serving(bounds) as other:
        lines = [other.connect() for _ in range(7)]
        for line in lines:
            line.send(b"GET / HTTP/1.1\r\nx-a: ")
        wait_until(lambda: other.connection_count == 7 and other.has_read_all())
        for count, line in enumerate(lines[:6], 1):
            line.send(b"p" * 16_000)
            wait_until(lambda: other.protocol.together.header_bytes >= count * 16_000)  # noqa: B023
        assert lines[6].send(b"p" * 8000).problem()["status"] == 429
        for line in lines:
            line.socket.close()
        wait_until(lambda: other.connection_count == 0)
        assert other.protocol.together.header_bytes == 0
        with other.connect() as line:
            assert line.send(GET).read()[0] == 200


def test_trailers_have_a_bound_and_are_no_headers(server: Server) -> None:
    head = b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    with server.connect() as line:
        line.send(head)
        for _ in range(8):
            line.send(b"x-a: " + b"p" * 4096 + b"\r\n")
            time.sleep(0.005)
        assert line.problem()["status"] == 400
        assert line.is_at_end()
    wait_until(lambda: server.application.bodies == [None])


# ---- what is no HTTP


@pytest.mark.parametrize(
    "garbage",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /quick HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET http://[/ HTTP/1.1\r\n\r\n",
        b"GET /quick HTTP/1.1\r\nx y: 1\r\n\r\n",
        b"GET /quick HTTP/1.1\r\nx: \x00\r\n\r\n",
        b"POST /a HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /a HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"POST /a HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"POST /a HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_input_that_is_not_http_is_refused_with_status_400(server: Server, garbage: bytes) -> None:
    with server.connect() as line:
        problem = line.send(garbage).problem()
        assert (problem["status"], problem["detail"]) == (400, "The request is not HTTP.")
        assert line.is_at_end()
    assert server.application.asked == []


def test_garbage_after_a_request_does_not_replace_its_answer(server: Server) -> None:
    with server.connect() as line:
        line.send(b"POST /slow HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc")
        wait_until(lambda: server.application.asked == ["/slow"])
        line.send(b"garbage\r\n\r\n" + GET)
        wait_until(server.has_read_all)
        server.application.may_go_on.set()
        status, headers, body = line.read()
        assert (status, body) == (200, b"/slow")
        assert headers["connection"] == "close"
        assert line.is_at_end()
    assert server.application.asked == ["/slow"]


def test_late_or_too_long_headers_do_not_replace_an_earlier_answer(server: Server) -> None:
    for more in (b"GET /quick HT", padded(BOUNDS.header_bytes_max + 1)):
        server.application.may_go_on.clear()
        with server.connect() as line:
            line.send(b"GET /slow HTTP/1.1\r\n\r\n" + more)
            time.sleep(1.0)  # more than headers may take
            server.application.may_go_on.set()
            assert line.read()[2] == b"/slow"
            if more.endswith(b"HT"):
                assert line.send(b"TP/1.1\r\n\r\n").read()[2] == b"/quick"
            else:
                assert line.is_at_end()


def test_garbage_within_a_body_ends_the_request(server: Server) -> None:
    with server.connect() as line:
        line.send(b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        wait_until(lambda: server.application.asked == ["/a"])
        problem = line.send(b"garbage\r\n").problem()
        assert problem["status"] == 400
        assert line.is_at_end()
    wait_until(lambda: server.application.bodies == [None])


def test_an_unsupported_upgrade_is_served_as_an_ordinary_request(server: Server) -> None:
    for protocol in (b"websocket", b"h2c"):
        with server.connect() as line:
            line.send(
                b"GET /quick HTTP/1.1\r\nconnection: upgrade\r\nupgrade: " + protocol + b"\r\n\r\n"
            )
            status, headers, body = line.send(b"what follows is not HTTP").read()
            assert (status, body, headers["connection"]) == (200, b"/quick", "close")
            assert line.is_at_end()


# ---- ends


def test_a_client_that_still_sends_can_read_an_early_answer(server: Server) -> None:
    """An answer before the body's end: sent first, read afterwards, as simple clients do."""
    with server.connect() as line:
        line.send(b"POST /unread HTTP/1.1\r\ncontent-length: 20000000\r\n\r\n")
        for _ in range(20):
            line.send(bytes(1_000_000))
        assert line.read()[2] == b"/unread"
        assert line.is_at_end()


def test_the_server_stops_reading_an_answered_request_after_some_time(server: Server) -> None:
    with server.connect() as line:
        line.send(b"POST /unread HTTP/1.1\r\ncontent-length: 20000000\r\n\r\n")
        assert line.read()[2] == b"/unread"
        assert line.drip(b"x") < 30


@pytest.fixture
def has_no_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends a connection is not that nobody listens to it any more."""
    monkeypatch.setattr(http, "LINGER_SECONDS_MAX", 86_400.0)


@pytest.mark.usefixtures("has_no_other_end")
def test_an_answer_that_is_not_taken_is_given_up(server: Server) -> None:
    with server.connect() as line:
        line.send(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until(lambda: server.application.asked == ["/large"])
        wait_until(lambda: server.connection_count == 0)


@pytest.mark.usefixtures("has_no_other_end")
def test_nor_does_a_pipeline_of_untaken_answers_last(server: Server) -> None:
    with server.connect() as line:
        line.send(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n" * 50)
        wait_until(lambda: server.connection_count == 1)
        wait_until(lambda: server.connection_count == 0)


def test_an_answer_that_is_taken_in_time_is_whole() -> None:
    bounds = HttpBounds(WAIT_S_MAX, 20_000, WAIT_S_MAX, 20, 400_000)
    with serving(bounds) as server, server.connect() as line:
        line.send(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        time.sleep(0.3)  # so that it lies there for a while
        assert line.read()[2] == LARGE
        assert line.is_at_end()


def test_a_caller_that_goes_in_the_middle_is_noticed(server: Server) -> None:
    line = server.connect()
    line.send(b"POST /a HTTP/1.1\r\ncontent-length: 6\r\n\r\nabc")
    wait_until(lambda: server.application.asked == ["/a"])
    line.reset()
    wait_until(lambda: server.application.bodies == [None])


def test_writes_to_a_closing_connection_are_ignored() -> None:
    """uvloop raises then, though nobody could know yet."""

    class Ending(asyncio.Transport):
        def is_closing(self) -> bool:
            return True

        def write(self, data: Any) -> None:
            raise RuntimeError("the handler is closed")

    async def write() -> None:
        _Outlet(Ending(), 1).write(b"x")

    asyncio.run(write())


def test_ending_a_lost_connection_has_no_effect() -> None:
    """uvloop's sockets raise then, and what still waits for its deadline would come too late."""

    async def run() -> None:
        gone = asyncio.Event()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.outlet = _Outlet(transport, 1)

            def connection_lost(self, exc: Exception | None) -> None:
                gone.set()

        accepted = Accepted()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: accepted, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.transport.abort()
        await gone.wait()
        server.close()
        accepted.outlet.abort()
        accepted.outlet.end()
        accepted.outlet.close()
        assert accepted.outlet._deadline is None

    uvloop.run(run())


def test_the_number_of_connections_is_bounded() -> None:
    slow = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"
    with serving(HttpBounds(WAIT_S_MAX, 20_000, WAIT_S_MAX, 3, 100_000)) as server:
        lines = [server.connect().send(slow) for _ in range(3)]
        wait_until(lambda: len(server.application.asked) == 3)
        with server.connect() as one_more:
            problem = one_more.send(GET).problem()
            assert problem["status"] == 429
            assert one_more.is_at_end()
        assert server.protocol.together.refusals["overloaded"] == 1
        with server.connect() as probe:  # a gateway that is busy is well all the same
            status, headers, _ = probe.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").read()
            assert (status, headers["connection"]) == (200, "close")
            assert probe.is_at_end()
        far_more: list[Line] = []
        for _ in range(8):
            with suppress(ConnectionResetError):  # it may be gone before it is there
                far_more.append(server.connect())
        wait_until(lambda: server.connection_count <= 6)
        wait_until(lambda: server.protocol.together.refusals["overloaded"] == 6)
        assert server.protocol.together.count == server.connection_count
        server.application.may_go_on.set()
        assert [line.read()[0] for line in lines] == [200] * 3
        for line in (*lines, *far_more):
            line.socket.close()
        wait_until(lambda: server.connection_count == 0)
        assert server.protocol.together.count == 0
        with server.connect() as line:
            assert line.send(GET).read()[0] == 200


def test_the_connection_that_is_idle_for_longest_gives_way() -> None:
    with serving(HttpBounds(WAIT_S_MAX, 20_000, WAIT_S_MAX, 3, 100_000)) as server:
        first, second, busy = (server.connect() for _ in range(3))
        for line in (first, second, first):  # so that the second is idle for longer
            assert line.send(GET).read()[0] == 200
        busy.send(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until(lambda: "/slow" in server.application.asked)
        with server.connect() as another:
            assert another.send(GET).read()[0] == 200
            assert second.is_at_end()
            assert first.send(GET).read()[0] == 200
        server.application.may_go_on.set()
        assert busy.read()[0] == 200
        for line in (first, second, busy):
            line.socket.close()
        wait_until(lambda: server.connection_count == 0)
        together = server.protocol.together
        assert (together.count, together.idle, together.unproven) == (0, {}, {})
        assert together.refusals["overloaded"] == 0


def test_a_connection_is_idle_once_the_caller_has_read_the_answer() -> None:
    smaller = b"GET /smaller HTTP/1.1\r\nhost: x\r\n\r\n"
    with (
        serving(BOUNDS, idle_seconds_max=60) as server,
        server.connect() as idle,
        server.connect(receive_bytes=2048) as slow,
    ):
        idle.send(smaller).read()
        slow.send(smaller)
        wait_until(lambda: len(server.application.asked) == 2)
        wait_until(lambda: server.connection_count == 1)
        with pytest.raises(ConnectionResetError):
            slow.read()
        time.sleep(BOUNDS.answer_seconds_max)
        assert idle.send(GET).read()[0] == 200


def test_refused_requests_are_counted_by_reason() -> None:
    with serving(BOUNDS) as server:
        for content in (b"nonsense\r\n\r\n", padded(BOUNDS.header_bytes_max + 1), GET[:6]):
            with server.connect() as line:
                line.send(content).problem()
        counts = server.protocol.together.refusals
        assert counts == {"garbled": 1, "too_long": 1, "late": 1, "overloaded": 0}


def test_a_server_that_stops_does_not_wait_for_idle_connections() -> None:
    patient = HttpBounds(GRACE_S, 20_000, GRACE_S, 20, 400_000)
    with serving(patient, idle_seconds_max=GRACE_S) as server:
        fresh, idle = server.connect(), server.connect()
        idle.send(GET).read()
    for line in (fresh, idle):
        assert line.is_at_end()
        line.socket.close()
