"""Errors as YTsaurus's clients know them: a code, a message, attributes, and errors within. Pure.

Owns: the codes where they are other than Dodona's own, which are YTsaurus's wherever it has one;
the HTTP status, and the headers. Its client decides by the code, and by the status only whether to
try another server: so what a server could not do is no 5xx here, lest the client leave the gateway.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dodona_gateway.core.json_values import shown_attributes
from dodona_wire.errors import DodonaError, TransactionConflict

CODES: Final[dict[str, int]] = {
    "invalid_request": 1,  # 100 is an error of the transport there, and is tried again
    "overloaded": 108,
    "unavailable": 105,
    "tablet_moved": 1701,
    "transaction_closed": 11000,
    "internal": 1,
}
"""By kind, where YTsaurus's code is another."""
RETRIED: Final = frozenset((3, 100, 105, 108, 904, 2100))
"""Codes on which YTsaurus's client repeats whatever it asked for, for two minutes or ten."""
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
"""Characters, of a message that may repeat what it is about."""
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
"""What YTsaurus calls the attributes of a conflict: both names are told. A transaction's id is its
start timestamp here."""


def yt_error(error: DodonaError) -> YtError:
    """What YTsaurus would say."""
    attributes = {"kind": error.kind, **shown_attributes(error.attributes)}
    if isinstance(error, TransactionConflict):
        known = [name for name in CONFLICT_NAMES if name in attributes]
        attributes |= {CONFLICT_NAMES[name]: attributes[name] for name in known}
    message = _encodable(error.message)[:MESSAGE_LENGTH_MAX]
    return YtError(CODES.get(error.kind, error.code), message, _encodable_values(attributes))


def error_status(error: DodonaError) -> int:
    """The HTTP status."""
    return STATUSES.get(error.kind, STATUS)


def error_headers(error: YtError) -> Mapping[str, str]:
    """By which a client knows an error even behind a proxy that changes the status. Each is one
    line of ASCII, of `HEADER_LENGTH_MAX` characters at most."""
    short = error.message[:MESSAGE_IN_HEADER_MAX]
    content = _ascii(msgspec.json.encode(error).decode())
    if len(content) > HEADER_LENGTH_MAX:
        content = _ascii(msgspec.json.encode(YtError(error.code, short)).decode())
    return {CODE_HEADER: str(error.code), ERROR_HEADER: content, MESSAGE_HEADER: _ascii(short)}


def _encodable(text: str) -> str:
    """Without halves of characters, which JSON may spell, and UTF-8 may not."""
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
    """The same text, or JSON, with JSON's escapes for what headers can't carry."""
    return "".join(it if " " <= it <= "~" else _escape(it) for it in text)


def _escape(character: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in _units(character))


def _units(character: str) -> list[int]:
    code = ord(character)
    if code < 0x10000:
        return [code]
    code -= 0x10000
    return [0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)]
