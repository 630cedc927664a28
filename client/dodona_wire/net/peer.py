"""One WebSocket to one server: many calls in flight, and none raises a transport error.

Owns: request ids, the joining of envelopes into frames, reconnecting, and timeouts.
Invariants: every call's future gets exactly one reply. A call that was lost, timed out or was not
sent gets a `Failure` of kind `unavailable`. Its `is_sent` is False if the request certainly never
left this process, or its server says that it never looked at it. Ids rise, so the oldest calls come
first in `_pending`. Calls to a server that stays silent fail soon (see `silence`).
Limits: calls in flight and waiting, the length of a frame, the time to connect, and the back-off.
Belongs to one event loop; must not be used from another thread.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect
from picows import WSError as WebSocketError

from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.cells import CellMessage
from dodona_wire.messages.codec import (
    ENVELOPES_MAX,
    FRAME_BYTES_MAX,
    ONE_WAY,
    decode_replies,
    encode_frame,
    newest_of_goodbye,
)
from dodona_wire.messages.data import LookupReply, WriteArrow
from dodona_wire.messages.families import Reply, RpcRequest
from dodona_wire.net.cluster_key import ClusterKey, key_headers
from dodona_wire.net.silence import BRIEF_SECONDS, Silence
from dodona_wire.net.sockets import ending_sockets

CALLS_MAX: Final = 200_000
"""The limit of calls in flight to one server, and of one-way messages that wait for it."""
TIMEOUT_MS: Final = 10_000
CONNECT_TIMEOUT_SECONDS: Final = 5.0
PING_AFTER_SECONDS: Final = 5.0
"""Seconds of silence before a ping, and as many for its answer, before the connection is closed."""
BACKOFF_MS_FIRST: Final = 10
BACKOFF_MS_MAX: Final = 500
BACKOFF_MS_STARTING: Final = 50
"""The limit while the server is probably restarting."""
SWEEPS_PER_TIMEOUT: Final = 8
REPLIES_PER_TURN: Final = 32
"""Callers that get their replies in one iteration of the loop. Their next requests reach the server
while the other callers still work. If all got their replies together, client and server would take
turns."""
ROWS_PER_TURN_MIN: Final = 4
"""The least number of callers if the replies are rows. Half of the waiting callers get theirs, so
that there are two groups even of few callers. Commits are not divided: those that come together
share a sync."""

_log = logging.getLogger("dodona.peer")
_BINARY: Final = WSMsgType.BINARY
_CONTINUATION: Final = WSMsgType.CONTINUATION
CLOSED: Final = "this client has closed the connection"

Envelope = tuple[int, RpcRequest | CellMessage]


class _Mark(NamedTuple):
    """A note that all calls up to `last_id` had been made at `instant`."""

    instant: float
    last_id: int


class _Callback:
    """A waiter that calls a function where a future would be set."""

    __slots__ = ("set_result",)

    def __init__(self, then: Callable[[Reply], None]) -> None:
        self.set_result = then

    def done(self) -> bool:
        return False


class Peer:
    """A connection that opens when it is needed, and again after it is lost."""

    def __init__(
        self,
        url: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        key: ClusterKey | None = None,
        silence: Silence | None = None,
    ) -> None:
        """Make a peer; nothing is sent yet. `timeout_ms` holds for each call, give or take an
        eighth. `silence` says how failures name the server."""
        assert timeout_ms > 0
        self.silence = silence or Silence(url, {})
        """How long the server has been silent, and its name."""
        self._brief: asyncio.TimerHandle | None = None
        self.url = url
        self._headers = key_headers(key)
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout_ms / 1000
        self._pending: dict[int, asyncio.Future[Reply] | _Callback] = {}
        self._asked_at = 0.0
        """When calls began to wait."""
        self._outgoing: list[Envelope] = []
        self._is_bulk_outgoing = False
        self._last_id = ONE_WAY
        self._is_flush_due = False
        self._is_closed = False
        self._transport: WSTransport | None = None
        self._is_paused = False
        self._connecting: asyncio.Task[None] | None = None
        self._connecting_since = 0.0
        self._failure_count = 0
        self._retry_at = 0.0
        self._retry_reason = ""
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        self._marks: deque[_Mark] = deque()
        self._arrived: deque[tuple[int, Reply]] = deque()
        self._per_turn = REPLIES_PER_TURN

    def call(self, body: RpcRequest) -> asyncio.Future[Reply]:
        """Send a request. The future never fails: a call without an answer gets a `Failure`."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        if self._register(body, future) and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        return future

    def ask(self, body: RpcRequest, then: Callable[[Reply], None]) -> None:
        """Send a request now, and call `then` with the reply as soon as it comes. For a caller that
        has a batch already, and must not lose an iteration of the loop."""
        if self._register(body, _Callback(then)):
            self._flush()

    def _register(self, body: RpcRequest, waiter: "asyncio.Future[Reply] | _Callback") -> bool:
        """Return whether the request may leave. Otherwise the waiter has its reply already."""
        if self._is_closed:  # also during `close`: no later step would settle it
            waiter.set_result(Failure("unavailable", CLOSED, {"is_sent": False}))
            return False
        if len(self._pending) >= CALLS_MAX:
            text = f"{CALLS_MAX} calls to {self.silence.name} are pending: wait, then call again"
            waiter.set_result(Failure("overloaded", text))
            return False
        self._last_id += 1
        if not self._pending:
            self._asked_at = self._loop.time()
        self._pending[self._last_id] = waiter
        self._outgoing.append((self._last_id, body))
        if type(body) is WriteArrow:
            self._is_bulk_outgoing = True
        if self._sweeper is None:
            self._sweep_later(self._timeout / SWEEPS_PER_TIMEOUT)
        if self.silence.since is not None:
            self._be_brief()
        return True

    def give_up(self, call: asyncio.Future[Reply], waited_ms: int) -> Failure:
        """Return why a call has no answer, when its caller stops waiting. A request that has not
        left is not sent any more."""
        ids = [it for it, waiter in self._pending.items() if waiter is call]
        unsent = {request_id for request_id, _ in self._outgoing}.intersection(ids)
        self._outgoing = [it for it in self._outgoing if it[0] not in unsent]
        for request_id in ids:
            del self._pending[request_id]
        text = f"no answer from {self.silence.name} in {waited_ms} ms"
        return self._failure(text, is_sent=not unsent)

    def post(self, body: RpcRequest | CellMessage) -> None:
        """Send a one-way message. It is dropped if the server can't be reached."""
        if self._is_closed or len(self._outgoing) >= CALLS_MAX:
            return
        self._outgoing.append((ONE_WAY, body))
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    @property
    def is_waiting(self) -> bool:
        """Return whether calls wait for an answer."""
        return bool(self._pending)

    def quiet_s(self, now: float) -> float:
        """Return for how long calls have waited while the server sent nothing, in seconds. `now` is
        an instant of the event loop's clock."""
        return now - max(self._asked_at, self.silence.heard_at) if self._pending else 0.0

    async def close(self, reason: str = CLOSED) -> None:
        """Fail the pending calls with this reason, say goodbye, and refuse further calls."""
        self._is_closed = True
        self._fail_all(reason)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._brief is not None:
            self._brief.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._transport is not None:
            self._transport.send_close(WSCloseCode.OK)
            self._transport.disconnect()
            self._transport = None

    # ---- sending

    def _flush(self) -> None:
        """Send the calls of this loop iteration in one frame; with a bulk write, each in one."""
        self._is_flush_due = False
        if self._transport is None:
            self._reach()
        elif not self._is_paused and self._outgoing:
            envelopes, self._outgoing = self._outgoing, []
            if self._is_bulk_outgoing:
                self._is_bulk_outgoing = False
                for envelope in envelopes:  # a server begins with one while the next travels
                    self._send(self._transport, [envelope])
            else:
                self._send(self._transport, envelopes)

    def _send(self, transport: WSTransport, envelopes: list[Envelope]) -> None:
        if len(envelopes) > ENVELOPES_MAX:
            self._send_halves(transport, envelopes)
            return
        try:
            frame = encode_frame(envelopes)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            if len(envelopes) == 1:
                self._refuse(envelopes[0][0], "invalid_request", f"can't be encoded: {error}")
                return
        else:
            if len(frame) <= FRAME_BYTES_MAX:
                transport.send(_BINARY, frame)
                return
            if len(envelopes) == 1:
                text = f"a request of {len(frame)} bytes is longer than {FRAME_BYTES_MAX}"
                self._refuse(envelopes[0][0], "limit_exceeded", text)
                return
        self._send_halves(transport, envelopes)

    def _send_halves(self, transport: WSTransport, envelopes: list[Envelope]) -> None:
        middle = len(envelopes) // 2
        self._send(transport, envelopes[:middle])
        self._send(transport, envelopes[middle:])

    def _refuse(self, request_id: int, kind: str, message: str) -> None:
        if request_id != ONE_WAY:
            self._settle([request_id], Failure(kind, message, {"is_sent": False}))

    # ---- connecting

    def _reach(self) -> None:
        """Open the missing connection, unless an attempt failed a short time ago."""
        if self._connecting is None and self._outgoing:
            if self._loop.time() < self._retry_at:
                self._fail_all(self._retry_reason)
            else:
                self._connecting = self._loop.create_task(self._connect())
                self._connecting.add_done_callback(self._end_connecting)

    async def _connect(self) -> None:
        self._connecting_since = self._loop.time()
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS), ending_sockets() as open_socket:
            await ws_connect(
                lambda: _Connection(self),
                self.url,
                socket_factory=open_socket,
                max_frame_size=FRAME_BYTES_MAX,
                max_redirects=0,
                websocket_handshake_timeout=CONNECT_TIMEOUT_SECONDS,
                enable_auto_ping=True,  # notices a server that vanished silently
                auto_ping_idle_timeout=PING_AFTER_SECONDS,
                auto_ping_reply_timeout=PING_AFTER_SECONDS,
                extra_headers=self._headers,
            )

    def _end_connecting(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None and self._transport is None:
            error = ConnectionResetError("the server closed the connection immediately")
        if error is None:
            self._failure_count = 0
            return
        if not isinstance(error, OSError | WebSocketError | TimeoutError):
            _log.error("connecting to %s failed in an unexpected way", self.url, exc_info=error)
        self._failure_count += 1
        self.silence.begin(self._connecting_since)
        self._retry_at = self._loop.time() + self._backoff_seconds()
        reason = str(error) or type(error).__name__
        text = f"{self.silence.name} can't be reached: {reason}"
        if self._failure_count == 1 or text != self._retry_reason:  # else it was logged
            _log.info("%s", text)
        self._retry_reason = text
        self._fail_all(text)

    def _backoff_seconds(self) -> float:
        is_dead = self.silence.is_dead(self._loop.time())
        bound_ms = BACKOFF_MS_MAX if is_dead else BACKOFF_MS_STARTING
        longest_ms = min(bound_ms, BACKOFF_MS_FIRST << min(self._failure_count - 1, 16))
        return longest_ms * random.uniform(0.5, 1) / 1000

    # ---- called by the connection

    def _opened(self, transport: WSTransport) -> None:
        self._transport = transport
        self._is_paused = False
        self._hear()
        self._flush()

    def _hear(self) -> None:
        self.silence.end(self._loop.time())

    def _lost(self, transport: WSTransport, reason: str, newest_id: int | None) -> None:
        """Handle the end of a connection. `newest_id`: the server says that it never looked at
        later requests. An empty reason: the server gave none."""
        if self._transport is not transport:
            return
        self._transport = None
        if not reason:
            self.silence.begin(self.silence.heard_at)
            reason = "the server gave no reason"
        unsent = {request_id for request_id, _ in self._outgoing}
        sent = [request_id for request_id in self._pending if request_id not in unsent]
        text = f"the connection to {self.silence.name} was lost: {reason}"
        if newest_id is not None:
            unheard = self._failure(text, is_sent=False)
            self._settle([it for it in sent if it > newest_id], unheard)
        self._settle(sent, self._failure(text))
        self._reach()  # the rest leaves over a new connection

    def _pause(self, is_paused: bool) -> None:
        """Hold requests here, up to their limit, while the socket is full."""
        self._is_paused = is_paused
        if not is_paused and not self._is_flush_due:
            self._flush()

    def _receive(self, payload: bytes | memoryview) -> None:
        is_handing_out = bool(self._arrived)
        replies = decode_replies(payload)
        self._hear()
        self._arrived.extend(replies)
        if not is_handing_out:
            self._per_turn = REPLIES_PER_TURN
            if replies and type(replies[0][1]) is LookupReply:
                half = max(ROWS_PER_TURN_MIN, (len(self._pending) + 1) // 2)
                self._per_turn = min(REPLIES_PER_TURN, half)
            self._hand_out(self._per_turn)

    def _hand_out(self, count_max: int) -> None:
        arrived, take = self._arrived, self._pending.pop
        for _ in range(count_max):
            if not arrived:  # perhaps by now: a callback may have handed out the rest
                return
            request_id, reply = arrived.popleft()
            future = take(request_id, None)
            if future is not None and not future.done():
                future.set_result(reply)
        if arrived:
            self._loop.call_soon(self._hand_out, self._per_turn)

    # ---- failing

    def _fail_all(self, reason: str) -> None:
        envelopes, self._outgoing = self._outgoing, []
        unsent = [request_id for request_id, _ in envelopes if request_id != ONE_WAY]
        self._settle(unsent, self._failure(reason, is_sent=False))
        self._settle(list(self._pending), self._failure(reason))

    def _failure(self, text: str, *, is_sent: bool = True) -> Failure:
        return self.silence.failure(text, self._loop.time(), is_sent=is_sent)

    def _settle(self, request_ids: Iterable[int], failure: Failure) -> None:
        self._hand_out(len(self._arrived))  # a call that has a reply did not fail
        for request_id in request_ids:
            future = self._pending.pop(request_id, None)
            if future is not None and not future.done():
                future.set_result(failure)

    # ---- timing out: one timer for all calls, and none while nothing is pending

    def _sweep_later(self, delay: float) -> None:
        self._sweep_at = self._loop.time() + delay
        self._sweeper = self._loop.call_later(delay, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        interval = self._timeout / SWEEPS_PER_TIMEOUT
        if now > self._sweep_at + interval:
            # The loop was delayed, and replies may be unread: read them first.
            self._sweep_later(min(interval, 0.02))
            return
        self._marks.append(_Mark(now, self._last_id))
        while self._marks and self._marks[0].instant <= now - self._timeout:
            mark = self._marks.popleft()
            self._expire(mark.last_id, self._timeout, mark.instant)
        if self._pending:
            self._sweep_later(interval)
        else:
            self._sweeper = None
            self._marks.clear()

    def _be_brief(self) -> None:
        """Shorten the wait of all calls made so far, if the server has been silent for long."""
        if self._brief is None and self.silence.is_dead(self._loop.time()):
            self._brief = self._loop.call_later(BRIEF_SECONDS, self._end_brief, self._last_id)

    def _end_brief(self, last_id: int) -> None:
        self._brief = None
        if self.silence.since is not None:
            self._expire(last_id, BRIEF_SECONDS, self.silence.since)
            if self._pending:
                self._be_brief()

    def _expire(self, last_id: int, waited_seconds: float, since: float) -> None:
        """Fail all calls up to this id. They had been made at `since`: if the server sent nothing
        after that, it is silent."""
        expired = []
        for request_id in self._pending:
            if request_id > last_id:
                break
            expired.append(request_id)
        if not expired:
            return
        unsent = {request_id for request_id, _ in self._outgoing}
        self._outgoing = [it for it in self._outgoing if not ONE_WAY < it[0] <= last_id]
        is_silent = self.silence.heard_at <= since
        if is_silent:
            self.silence.begin(since)
        text = f"no answer from {self.silence.name} in {waited_seconds:g} s"
        self._settle([it for it in expired if it in unsent], self._failure(text, is_sent=False))
        self._settle(expired, self._failure(text))
        is_long = waited_seconds >= 2 * PING_AFTER_SECONDS
        if is_silent and is_long and self._transport is not None:
            self._transport.disconnect(graceful=False)  # a server that lives answers on a new one


class _Connection(WSListener):
    """The events of one WebSocket, for its peer. It joins frames that came in fragments."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._fragments = bytearray()
        self._reason = ""
        self._newest_id: int | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._peer._opened(transport)

    def is_user_specific_pong(self, frame: WSFrame) -> bool:
        self._peer._hear()
        return bool(frame.msg_type is WSMsgType.PONG)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind is _BINARY and frame.fin:
            self._receive(transport, frame.get_payload_as_memoryview())
        elif kind is _BINARY or kind is _CONTINUATION:
            self._fragments += frame.get_payload_as_memoryview()
            if len(self._fragments) > FRAME_BYTES_MAX:
                self._reject(transport, WSCloseCode.MESSAGE_TOO_BIG, "message too long")
            elif frame.fin:
                whole, self._fragments = bytes(self._fragments), bytearray()
                self._receive(transport, whole)
        elif kind is WSMsgType.CLOSE:
            if frame.get_close_code() == WSCloseCode.SERVICE_RESTART:
                self._newest_id = newest_of_goodbye(frame.get_close_reason())
            self._reason = f"closed with {frame.get_close_code().value} {frame.get_close_reason()}"
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif kind is WSMsgType.TEXT:
            self._reject(transport, WSCloseCode.UNSUPPORTED_DATA, "text frames are not accepted")

    def _receive(self, transport: WSTransport, payload: bytes | memoryview) -> None:
        try:
            self._peer._receive(payload)
        except InvalidRequest as error:
            self._reject(transport, WSCloseCode.INVALID_TEXT, error.message)

    def _reject(self, transport: WSTransport, code: WSCloseCode, reason: str) -> None:
        self._reason = reason
        _log.warning("closing the connection to %s: %s", self._peer.url, reason)
        transport.send_close(code, reason[:100].encode())
        transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._peer._lost(transport, self._reason, self._newest_id)

    def pause_writing(self) -> None:
        self._peer._pause(True)

    def resume_writing(self) -> None:
        self._peer._pause(False)
