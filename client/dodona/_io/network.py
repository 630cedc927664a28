"""All connections of one client: to the master, to the proxies, and to the cells that it uses.

Owns: which connection a call uses, and the failure of a call whose target has no known address. The
shared routing has the addresses of cells. A cell that moved gets a new connection. Calls to the
master use REST: they are rare, and may pass through a proxy or a load balancer.
Belongs to one event loop. Must not be used from another thread.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from dodona._core.protocol.routing import Routing
from dodona._core.protocol.steps import MASTER, ORACLE, Calls, Post, Target
from dodona._io.moves import Moves
from dodona._io.oracle import OracleClient
from dodona._io.refusals import CLOSED
from dodona_wire.errors import DodonaError, InvalidRequest, Unauthenticated, Unavailable
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.catalog import CatalogRequest, Cluster, GetCluster
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.messages.families import Reply, Request
from dodona_wire.messages.rest import JSON_TYPE, HttpCall, decode_reply, encode_call
from dodona_wire.net.cluster_key import ClusterKey, key_headers
from dodona_wire.net.peer import Peer
from dodona_wire.net.pools import is_over, prepare_threads
from dodona_wire.net.roles import wrong_server
from dodona_wire.net.rpc_urls import rpc_url
from dodona_wire.net.silence import BRIEF_SECONDS, Silence
from dodona_wire.net.urls import hide_password
from dodona_wire.shown import named
from dodona_wire.types import CellId, Timestamp

MASTER_TIMEOUT_SECONDS: Final = 10.0
KEEPALIVE_SECONDS: Final = 2.0
"""Less than servers allow, so that a request does not meet a connection that the server is
closing."""
ORACLE_TIMEOUT_MS: Final = 5_000
"""Protocols try once more for as long. Both together take about ten seconds."""

_unanswered: Final = Failure("unavailable", "another answer was enough")


def check_url(url: str) -> str:
    """Return the URL of a master in its normal form. Raises InvalidRequest."""
    if not isinstance(url, str):
        raise InvalidRequest(f"the master's URL is a str, not {type(url).__name__}")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        normal = parts._replace(path=parts.path.rstrip("/"), query="", fragment="").geturl()
        httpx.URL(normal)  # it refuses more characters
    except (ValueError, httpx.InvalidURL):
        is_valid = False
    if not is_valid:
        raise InvalidRequest(
            "the master's URL is like http://127.0.0.1:8500", url=named(hide_password(url))
        )
    return normal


class Network:
    """Sends calls to servers. It connects to nothing before the first call."""

    def __init__(
        self,
        master_url: str,
        routing: Routing,
        key: ClusterKey | None = None,
        peer_type: type[Peer] = Peer,
    ) -> None:
        """Create the network. `key` is the key of the cluster. By default, it is the key that comes
        with the URL. `peer_type` is the class of connections to cells."""
        self._peer_type = peer_type
        self._loop = asyncio.get_running_loop()
        prepare_threads(self._loop)
        self._master_url = check_url(master_url)
        self._key = key or ClusterKey.of_client(self._master_url)
        self._routing = routing
        self._cells: dict[CellId, tuple[str, Peer]] = {}
        self._moves = Moves(lambda: self._cells, self._learn_cells, self._peer)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._http = httpx.AsyncClient(
            base_url=self._master_url,
            headers=key_headers(self._key),
            timeout=MASTER_TIMEOUT_SECONDS,
            trust_env=False,
            limits=httpx.Limits(keepalive_expiry=KEEPALIVE_SECONDS),
            verify=self._master_url.startswith("https"),  # loading certificates takes 50 ms
        )
        place = hide_password(self._master_url)
        self._silence = Silence(f"the master at {place}", {"server": "master", "address": place})
        self._proxies: tuple[str, ...] = ()
        self._oracle: OracleClient | None = None

    def call(self, target: Target, body: Request) -> "asyncio.Future[Reply]":
        """Send a request. The future never raises: a call that failed gets a `Failure`."""
        if self._is_closed:
            return self._answered(CLOSED)
        if target >= 0:
            peer = self._peer(CellId(target))
            if peer is not None:
                self._moves.expect()
                return peer.call(body)  # type: ignore[arg-type]  # cells get data requests
            return self._answered(_nowhere(target))
        if target == ORACLE:
            return self._loop.create_task(self.ask_oracle(body))
        assert target == MASTER
        asking = self._loop.create_task(self._ask_master(body))  # type: ignore[arg-type]
        self._tasks.add(asking)
        asking.add_done_callback(self._tasks.discard)
        return asking

    def call_later(
        self, delay_ms: int, then: Callable[..., None], *given: Any
    ) -> asyncio.TimerHandle:
        """Call a function later, in the loop of this network."""
        return self._loop.call_later(delay_ms / 1000, then, *given)

    def give_up(self, target: Target, call: "asyncio.Future[Reply]", waited_ms: int) -> Failure:
        """Return a failure for an answer that did not come in time. It names the server."""
        if target >= 0:
            known = self._cells.get(CellId(target))
            return _nowhere(target) if known is None else known[1].give_up(call, waited_ms)
        silence = self._silence
        if target == ORACLE and self._oracle is not None:
            silence = self._oracle.silence
        text = f"no answer from {silence.name} in {waited_ms} ms"
        return silence.failure(text, self._loop.time(), is_sent=True)

    def post(self, step: Post) -> None:
        """Send messages to cells that get no answer."""
        for target, body in step.requests:
            peer = self._peer(CellId(target))
            if peer is not None:
                peer.post(body)  # type: ignore[arg-type]  # cells get data requests

    def generate(self) -> Coroutine[Any, Any, Timestamp]:
        """Return a fresh timestamp, without a protocol. Raises InvalidRequest. To await it raises
        Unavailable."""
        if self._is_closed:
            raise InvalidRequest(CLOSED.message)
        return (self._oracle or self._start_oracle()).generate()

    async def ask_oracle(self, body: Request) -> Reply:
        """Return fresh timestamps as a reply for a protocol, or a failure."""
        assert isinstance(body, GenerateTimestamps)
        if self._is_closed:
            return CLOSED
        try:
            first = await (self._oracle or self._start_oracle()).generate_range(body.count)
        except DodonaError as error:
            self._note_master(error)
            return failure_of(error)
        return TimestampRange(first, body.count)

    def _note_master(self, error: DodonaError) -> None:
        """Note that the master is silent if a proxy reports that. Other calls to the master use
        this, too."""
        silent_ms = error.attributes.get("silent_ms")
        if type(silent_ms) is int and error.attributes.get("server") == "master":
            self._silence.begin(self._loop.time() - silent_ms / 1000)

    async def close(self) -> None:
        """Close all connections. Pending calls fail. Repeating the call is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._oracle is not None:
            await self._oracle.close()
        await self._moves.close()
        for _, peer in self._cells.values():
            await peer.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._http.aclose()

    # ---- cells

    def _peer(self, cell: CellId) -> Peer | None:
        address = self._routing.addresses.get(cell)
        known = self._cells.get(cell)
        if known is not None and (known[0] == address or address is None):
            return known[1]
        if address is None:
            return None
        if known is not None:
            text = f"cell {cell} moved from {known[0]} to {address}"
            closing = self._loop.create_task(known[1].close(text))
            self._tasks.add(closing)
            closing.add_done_callback(self._tasks.discard)
        silence = Silence(f"cell {cell} at {address}", {"cell": cell, "address": address})
        peer = self._peer_type(rpc_url(address, cell), key=self._key, silence=silence)
        self._cells[cell] = (address, peer)
        return peer

    async def _learn_cells(self) -> frozenset[CellId] | None:
        """Ask the master where all cells are. Return those that may move, or None without an
        answer. Of a cell that is not alive, the master may not know whether it has copies."""
        reply = await self._ask_master(GetCluster())
        if not isinstance(reply, Cluster):
            return None
        self._routing.learn_cells(reply)
        return frozenset(it.cell for it in reply.cells if it.epoch > 0 or not it.is_alive)

    def _answered(self, reply: Reply) -> "asyncio.Future[Reply]":
        future: asyncio.Future[Reply] = self._loop.create_future()
        future.set_result(reply)
        return future

    # ---- master and proxies

    async def _ask_master(self, request: CatalogRequest) -> Reply:
        try:
            call = encode_call(request)
        except DodonaError as error:
            return failure_of(error)
        asked_at = self._loop.time()
        try:
            response = await self._send_to_master(call)
        except (httpx.HTTPError, RuntimeError) as error:
            # RuntimeError: Python looks up no more names after the main thread has ended.
            self._silence.begin(asked_at)
            return self._unreachable(error)
        except TimeoutError:
            text = f"no answer from {self._silence.name} in {BRIEF_SECONDS:g} s"
            return self._silence.failure(text, self._loop.time(), is_sent=True)
        except asyncio.CancelledError:
            if self._is_closed:
                return Failure("unavailable", "the client was closed meanwhile")
            raise
        wrong = wrong_server(self._silence.name, response.headers)
        if wrong is not None:
            return wrong
        reply = decode_reply(type(request), response.status_code, response.content)
        if isinstance(reply, Failure) and self._finds_key(reply):
            return await self._ask_master(request)
        if isinstance(reply, Cluster):
            self._proxies = reply.proxies
        assert not isinstance(reply, TimestampRange)
        return reply

    async def _send_to_master(self, call: HttpCall) -> httpx.Response:
        """Send a call to the master. Raises httpx.HTTPError. If the master was silent before,
        raises TimeoutError soon. The request then continues without a caller, to notice when the
        master is back."""
        if not self._silence.is_dead(self._loop.time()):
            return await self._request(call)
        sending = self._loop.create_task(self._request(call))
        self._tasks.add(sending)
        sending.add_done_callback(self._tasks.discard)
        sending.add_done_callback(_retrieve)
        return await asyncio.wait_for(asyncio.shield(sending), BRIEF_SECONDS)

    async def _request(self, call: HttpCall) -> httpx.Response:
        headers = {"content-type": JSON_TYPE} if call.content is not None else {}
        response = await self._http.request(
            call.method, call.target, content=call.content, headers=headers
        )
        self._silence.end(self._loop.time())
        return response

    def _finds_key(self, refusal: Failure) -> bool:
        """Return whether the client has just found the key that it lacked, in the file that a
        master on this machine named."""
        if refusal.kind != Unauthenticated.kind or self._key is not None:
            return False
        self._key = ClusterKey.announced(self._master_url, refusal.attributes)
        self._http.headers.update(key_headers(self._key))
        return self._key is not None

    def _unreachable(self, error: Exception) -> Failure:
        reason = str(error) or type(error).__name__
        text = f"{self._silence.name} can't be reached: {reason}"
        never_left = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) or is_over(error)
        return self._silence.failure(text, self._loop.time(), is_sent=not never_left)

    def _start_oracle(self) -> OracleClient:
        self._oracle = OracleClient(
            self._oracle_addresses(),
            discover=self._find_proxies,
            timeout_ms=ORACLE_TIMEOUT_MS,
            key=self._key,
        )
        return self._oracle

    async def _find_proxies(self) -> list[str]:
        reply = await self._ask_master(GetCluster())
        if isinstance(reply, Failure):
            raise Unavailable(reply.message)
        return self._oracle_addresses()

    def _oracle_addresses(self) -> list[str]:
        """Return the proxies in a random order, or the master itself if there are no proxies."""
        addresses = list(self._proxies)
        random.shuffle(addresses)
        return addresses or [self._master_url]


def _retrieve(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # take the error: otherwise asyncio logs it


def _nowhere(target: Target) -> Failure:
    text = f"the master has not reported an address for cell {target}"
    return Failure("unavailable", text, {"cell": target, "is_sent": False})


class Gathering:
    """Collects the replies to one `Calls` step, in order. It calls `on_done` once: when all replies
    are there, or earlier if the step allows it."""

    __slots__ = ("_is_over_at_refusal", "_left_count", "_on_done", "_timer", "replies")

    def __init__(self, network: Network, step: Calls, on_done: Callable[[], None]) -> None:
        requests = step.requests
        assert requests, "a step that calls nobody"
        self.replies: list[Reply] = [_unanswered] * len(requests)
        self._left_count = len(requests)
        self._is_over_at_refusal = step.is_over_at_refusal
        self._on_done = on_done
        self._timer: asyncio.TimerHandle | None = None
        calls = [network.call(target, body) for target, body in requests]
        for place, call in enumerate(calls):
            call.add_done_callback(partial(self._take, place))
        if step.timeout_ms is not None:
            self._timer = network.call_later(step.timeout_ms, self._give_up, network, step, calls)

    def _take(self, place: int, future: "asyncio.Future[Reply]") -> None:
        if self._left_count == 0:
            return
        reply = self.replies[place] = future.result()
        self._left_count -= 1
        is_refusal = isinstance(reply, Failure) and reply.kind != "unavailable"
        if is_refusal and self._is_over_at_refusal:
            self._left_count = 0
        if self._left_count == 0:
            self._end()

    def _give_up(self, network: Network, step: Calls, calls: "list[asyncio.Future[Reply]]") -> None:
        """End with failures in place of missing replies, because the time limit of the step is
        reached."""
        assert step.timeout_ms is not None
        if self._left_count == 0:
            return
        self._left_count = 0
        for place, call in enumerate(calls):
            if call.done():
                self.replies[place] = call.result()
            else:
                target = step.requests[place][0]
                self.replies[place] = network.give_up(target, call, step.timeout_ms)
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._on_done()
