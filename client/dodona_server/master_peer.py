"""The link of other servers to the master: one connection, for timestamps and announcements.

Owns: how a heartbeat, or the registration of a proxy, gets to masters of any release. A current
master says in its handshake that it takes announcements on this connection. An older master gets
them over REST. The HTTP client for that is made only when such a master is met, because its import
takes long.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from picows import WSTransport

from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.messages import rest
from dodona_wire.messages.base import Failure
from dodona_wire.messages.codec import ANNOUNCEMENTS_HEADER
from dodona_wire.messages.families import Announcement, Reply
from dodona_wire.net.cluster_key import ClusterKey, key_headers
from dodona_wire.net.peer import CLOSED, Envelope, Peer
from dodona_wire.net.rpc_urls import rpc_url
from dodona_wire.net.silence import Silence
from dodona_wire.net.urls import hide_password

if TYPE_CHECKING:
    import httpx

REST_TIMEOUT_S: Final = 2.0
JSON_HEADERS: Final = {"content-type": rest.JSON_TYPE}

_NOT_HERE: Final = Failure(InvalidRequest.kind, "this master takes announcements over REST only")


class MasterPeer(Peer):
    """A connection to the master, for a server of its cluster."""

    _takes_announcements = False
    _pages: "_Pages | None" = None

    def __init__(self, url: str, *, timeout_ms: int, key: ClusterKey | None) -> None:
        """`url` is the master's. `timeout_ms` is the limit of each call. Nothing is sent yet."""
        place = hide_password(url)
        silence = Silence(f"the master at {place}", {"server": "master", "address": place})
        super().__init__(rpc_url(url), timeout_ms=timeout_ms, key=key, silence=silence)
        self._master_url = url
        self._key = key

    async def tell(self, body: Announcement) -> Reply:
        """Announce this server to the master. Never raises: a failure returns a `Failure`."""
        if self._pages is None:
            reply = await self.call(body)
            if not isinstance(reply, Failure) or reply.kind != InvalidRequest.kind:
                return reply
            # In a thread: the data plane goes on meanwhile.
            made = await asyncio.to_thread(_make_http, self._master_url, self._key)
            self._pages = _Pages(made)
        reply = await self._pages.ask(body)
        if isinstance(reply, Failure) and reply.kind == Unavailable.kind:
            await self._forget_pages()  # the next master may be of a newer release
        return reply

    async def close(self, reason: str = CLOSED) -> None:
        """Fail the pending calls, close the connection, and refuse further calls."""
        await self._forget_pages()
        await super().close(reason)

    async def _forget_pages(self) -> None:
        pages, self._pages = self._pages, None
        if pages is not None:
            await pages.close()

    def _opened(self, transport: WSTransport) -> None:
        self._takes_announcements = ANNOUNCEMENTS_HEADER in transport.response.headers
        super()._opened(transport)

    def _send(self, transport: WSTransport, envelopes: list[Envelope]) -> None:
        """Send requests. Older masters end a connection on unknown messages: these fail here."""
        if not self._takes_announcements:
            strange = [
                request_id for request_id, body in envelopes if isinstance(body, Announcement)
            ]
            self._settle(strange, _NOT_HERE)
            envelopes = [it for it in envelopes if it[0] not in strange]
        if envelopes:
            super()._send(transport, envelopes)


class _Pages:
    """The REST pages of an older master."""

    def __init__(self, http: "httpx.AsyncClient") -> None:
        self._http = http

    async def ask(self, body: Announcement) -> Reply:
        from httpx import HTTPError

        call = rest.encode_call(body)
        try:
            response = await self._http.request(
                call.method, call.target, content=call.content, headers=JSON_HEADERS
            )
        except HTTPError as error:
            return Failure(Unavailable.kind, f"the master can't be reached: {error!r}")
        kind: Any = type(body)
        return rest.decode_reply(kind, response.status_code, response.content)

    async def close(self) -> None:
        await self._http.aclose()


def _make_http(url: str, key: ClusterKey | None) -> "httpx.AsyncClient":
    import httpx

    return httpx.AsyncClient(
        base_url=url, headers=key_headers(key), timeout=REST_TIMEOUT_S, trust_env=False
    )
