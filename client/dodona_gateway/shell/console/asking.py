"""Ask the servers of the cluster for their REST pages.

Owns: how many servers are asked at a time, for how long, and how much of an answer is read. A
silent server costs a caller at most `TIMEOUT_S`. All silent servers together cost it at most
`TURN_S_MAX` more: a request that has no turn by then is not sent. Requests have the cluster's key,
if there is one.
"""

import asyncio
import ssl
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, TypeVar

import httpx
import msgspec

from dodona_wire.errors import Unavailable
from dodona_wire.net.cluster_key import ClusterKey, key_headers
from dodona_wire.preload import preload_decoder

TIMEOUT_S: Final = 2.0
TURN_S_MAX: Final = 3.0
AT_A_TIME_MAX: Final = 256
"""Requests under way. So many silent servers cost no more than one."""
ANSWER_BYTES_MAX: Final = 8 << 20
PROGRAM: Final = "dodona/"

Page = TypeVar("Page")


class Readiness(msgspec.Struct, frozen=True):
    """The readiness of a server. `reason` says why the server is not ready."""

    reason: str = ""
    version: str = ""


@preload_decoder
class _Status(msgspec.Struct, frozen=True):
    detail: str = ""
    status: Any = None


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates that the system trusts. To load them takes a tenth of a second, in
    which the event loop does nothing else."""
    return httpx.create_ssl_context(trust_env=False)


class Asker:
    """Asks servers for one gateway. Belongs to an event loop."""

    def __init__(
        self, key: ClusterKey | None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Make an asker; `transport` replaces the network, for tests."""
        self._http = httpx.AsyncClient(
            transport=transport,
            headers=key_headers(key),
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=_certificates(),
            limits=httpx.Limits(max_connections=AT_A_TIME_MAX),
        )
        self._turns = asyncio.Semaphore(AT_A_TIME_MAX)

    async def close(self) -> None:
        await self._http.aclose()

    async def page(self, address: str, path: str, kind: type[Page]) -> Page:
        """Return a page of a server. Raises Unavailable."""
        status, content, _ = await self._get(address + path)
        if status != httpx.codes.OK:
            raise Unavailable(_said(status, content))
        return _decode(content, kind)

    async def readiness(self, address: str) -> Readiness:
        """Return the readiness of a server. Raises Unavailable if the server does not answer."""
        status, content, server = await self._get(f"{address}/readyz")
        version = server.removeprefix(PROGRAM) if server.startswith(PROGRAM) else ""
        return Readiness("" if status == httpx.codes.OK else _said(status, content), version)

    async def pages(
        self, addresses: Iterable[tuple[Any, str]], path: str, kind: type[Page]
    ) -> dict[Any, Page]:
        """Return one page of many servers, by their names. Servers that do not
        answer with the page are left out."""
        asked = list(addresses)
        pages = await asyncio.gather(
            *[self.page(address, path, kind) for _, address in asked], return_exceptions=True
        )
        found = {}
        for (name, _), page in zip(asked, pages, strict=True):
            if isinstance(page, Unavailable):
                continue
            if isinstance(page, BaseException):
                raise page
            found[name] = page
        return found

    async def _get(self, url: str) -> tuple[int, bytes, str]:
        await self._turn()
        try:
            async with asyncio.timeout(TIMEOUT_S), self._http.stream("GET", url) as answer:
                content = await _read(answer)
                return answer.status_code, content, answer.headers.get("server", "")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise Unavailable(str(error) or f"no answer within {TIMEOUT_S:g} s") from error
        finally:
            self._turns.release()

    async def _turn(self) -> None:
        """Wait for a turn. Raises Unavailable."""
        try:
            async with asyncio.timeout(TURN_S_MAX):
                await self._turns.acquire()
        except TimeoutError as error:
            text = f"it was not asked: {AT_A_TIME_MAX} other servers did not answer"
            raise Unavailable(text) from error


async def _read(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for piece in answer.aiter_bytes():
        content += piece
        if len(content) > ANSWER_BYTES_MAX:
            raise Unavailable(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
    return bytes(content)


def _said(status: int, content: bytes) -> str:
    """Return the reason of a failed answer: servers send it as a problem."""
    try:
        found = _decode(content, _Status)
    except Unavailable:
        found = _Status()
    return found.detail or f"the server answers with HTTP status {status}"


def _decode(content: bytes, kind: type[Page]) -> Page:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Unavailable(f"the answer can't be decoded: {error}") from error
