"""Errors as YTsaurus's clients know them: a code, a message, attributes, and errors within. Pure.

Owns: the codes where they are other than Dodona's own, which are YTsaurus's wherever it has one;
and the HTTP status. Its client decides by the code, and by the status only whether to try another
server: so what a server could not do is no 5xx here, lest the client leave the gateway.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dodona.errors import DodonaError
from dodona_gateway.core.json_values import shown_attributes

CODES: Final[dict[str, int]] = {
    "invalid_request": 1,  # 100 is an error of the transport there, and is tried again
    "overloaded": 108,
    "unavailable": 105,
    "tablet_moved": 1701,
    "transaction_closed": 11000,
    "internal": 1,
}
"""By kind, where YTsaurus's code is another."""
STATUSES: Final[dict[str, int]] = {
    "unauthenticated": 401,
    "forbidden": 403,
    "internal": 500,
}
STATUS: Final = 400
CODE_HEADER: Final = "X-YT-Response-Code"
ERROR_HEADER: Final = "X-YT-Error"
MESSAGE_HEADER: Final = "X-YT-Response-Message"
HEADER_LENGTH_MAX: Final = 8_000


class YtError(msgspec.Struct, frozen=True):
    """An error on the wire."""

    code: int
    message: str
    attributes: dict[str, Any] = {}
    inner_errors: list["YtError"] = []


def yt_error(error: DodonaError) -> YtError:
    """What YTsaurus would say."""
    attributes = {"kind": error.kind, **shown_attributes(error.attributes)}
    return YtError(CODES.get(error.kind, error.code), error.message, attributes)


def error_status(error: DodonaError) -> int:
    """The HTTP status."""
    return STATUSES.get(error.kind, STATUS)


def error_headers(error: YtError) -> Mapping[str, str]:
    """By which a client knows an error even behind a proxy that changes the status."""
    content = _ascii(msgspec.json.encode(error))
    if len(content) > HEADER_LENGTH_MAX:
        content = _ascii(msgspec.json.encode(YtError(error.code, error.message[:1000])))
    message = _ascii(error.message.encode("utf-8", "replace")).replace("\n", " ")[:1000]
    return {CODE_HEADER: str(error.code), ERROR_HEADER: content, MESSAGE_HEADER: message}


def _ascii(content: bytes) -> str:
    """The same JSON, or text, with escapes for what headers can't carry."""
    return "".join(it if " " <= it <= "~" else _escape(it) for it in content.decode())


def _escape(character: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _units(character))


def _units(character: str) -> list[int]:
    code = ord(character)
    if code < 0x10000:
        return [code]
    code -= 0x10000
    return [0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)]
