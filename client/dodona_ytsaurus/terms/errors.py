"""Errors in the form of YTsaurus's clients: code, message, attributes, inner errors. Pure.

Owns: the codes that differ from Dodona's own codes, which are YTsaurus's wherever it has one; the
HTTP status, and the headers. The client decides by the code. It uses the status only to decide
whether to try another server. So an error such as Unavailable is no 5xx here, or the client would
leave the gateway.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dodona_wire.errors import DodonaError, TransactionConflict
from dodona_wire.rows.error_attributes import shown_attributes

CODES: Final[dict[str, int]] = {
    "invalid_request": 1,  # YTsaurus's 100 is a transport error, which its client retries
    "overloaded": 108,
    "unavailable": 105,
    "tablet_moved": 1701,
    "transaction_closed": 11000,
    "internal": 1,
}
"""By kind of error, YTsaurus's code if it is another."""
RETRIED: Final = frozenset((3, 100, 105, 108, 904, 2100))
"""The codes on which YTsaurus's client repeats any request, for two minutes or ten."""
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
MESSAGE_LENGTH_MAX: Final = 4_000
"""The characters of a message, which may repeat a text of the request."""
MESSAGE_IN_HEADER_MAX: Final = 500


class YtError(msgspec.Struct, frozen=True):
    """An error on the wire."""

    code: int
    message: str
    attributes: dict[str, Any] = {}
    inner_errors: list["YtError"] = []


CONFLICT_NAMES: Final = {
    "table": "table_path",
    "tablet": "tablet_id",
    "start_timestamp": "loser_transaction_id",
    "winner": "winner_transaction_id",
    "winner_timestamp": "winner_transaction_commit_timestamp",
}
"""YTsaurus's names for the attributes of a conflict. An error has both names. In Dodona a
transaction's id is its start timestamp."""


def yt_error(error: DodonaError) -> YtError:
    """Return the error as YTsaurus would send it."""
    attributes = {"kind": error.kind, **shown_attributes(error.attributes)}
    if isinstance(error, TransactionConflict):
        known = [name for name in CONFLICT_NAMES if name in attributes]
        attributes |= {CONFLICT_NAMES[name]: attributes[name] for name in known}
    message = _encodable(error.message)[:MESSAGE_LENGTH_MAX]
    return YtError(CODES.get(error.kind, error.code), message, _encodable_values(attributes))


def error_status(error: DodonaError) -> int:
    """Return the HTTP status."""
    return STATUSES.get(error.kind, STATUS)


def error_headers(error: YtError) -> Mapping[str, str]:
    """Return the headers by which a client knows an error even behind a proxy that changes the
    status. Each is one line of ASCII, of `HEADER_LENGTH_MAX` characters at most."""
    short = error.message[:MESSAGE_IN_HEADER_MAX]
    content = _ascii(msgspec.json.encode(error).decode())
    if len(content) > HEADER_LENGTH_MAX:
        content = _ascii(msgspec.json.encode(YtError(error.code, short)).decode())
    return {CODE_HEADER: str(error.code), ERROR_HEADER: content, MESSAGE_HEADER: _ascii(short)}


def _encodable(text: str) -> str:
    """Return the text without halves of characters, which JSON may contain, and UTF-8 may not."""
    return text.encode("utf-8", "backslashreplace").decode()


def _encodable_values(value: Any) -> Any:
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable_values(it) for name, it in value.items()}
    if isinstance(value, list):
        return [_encodable_values(it) for it in value]
    return value


def _ascii(text: str) -> str:
    """Return the same text, or JSON, with JSON's escapes for characters that headers can't
    carry."""
    return "".join(it if " " <= it <= "~" else _escape(it) for it in text)


def _escape(character: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _units(character))


def _units(character: str) -> list[int]:
    code = ord(character)
    if code < 0x10000:
        return [code]
    code -= 0x10000
    return [0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)]
