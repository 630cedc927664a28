"""The formats that a command asks for, by its parameters `input_format` and `output_format`. Pure.

Owns: what they are called, their defaults, and the choice of who reads and writes them. (What the
headers `Accept` and `Content-Type` say is of no account in this API.)
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from dodona._core.rest import JSON_TYPE
from dodona.errors import InvalidRequest
from dodona_gateway.core.yson import Attributed, RowReader, RowWriter, YsonLimits, dumps, loads
from dodona_gateway.core.yson.yt_json import JsonRowReader, JsonRowWriter, dump_json, load_json
from dodona_gateway.core.ytsaurus.parameters import plain

DEFAULT_VALUE: Final = "json"
DEFAULT_ROWS: Final = "yson"
YSON_TYPES: Final = {
    "binary": "application/x-yt-yson-binary",
    "text": "application/x-yt-yson-text",
    "pretty": "application/x-yt-yson-pretty",
}
ROW_BYTES_MAX: Final = 32 << 20
ROWS_MAX: Final = 100_001
"""One more than a transaction takes: who sends more is told so by it."""
_LIMITS: Final = YsonLimits(bytes_max=ROW_BYTES_MAX, items_max=ROWS_MAX)

Columns = list[tuple[str, Any]]


class Reader(Protocol):
    """Takes parts of a body; gives the rows that are whole."""

    def feed(self, part: bytes) -> list[Any]: ...

    def finish(self) -> list[Any]: ...


class Format(Protocol):
    """How values and rows are read and written."""

    @property
    def media_type(self) -> str: ...

    def encode_value(self, value: Any) -> bytes: ...

    def decode_value(self, content: bytes) -> Any: ...

    def encode_rows(self, columns: Columns, rows: Iterable[Any]) -> bytes: ...

    def row_reader(self) -> Reader: ...


class Yson:
    """YSON in one of its three forms; whatever the form, all are read."""

    def __init__(self, form: Any) -> None:
        if form not in YSON_TYPES:
            known = ", ".join(YSON_TYPES)
            raise InvalidRequest(f"the format of yson is one of {known}, not {form!r}"[:200])
        self._form = form

    @property
    def media_type(self) -> str:
        return YSON_TYPES[self._form]

    def encode_value(self, value: Any) -> bytes:
        return dumps(value, self._form)

    def decode_value(self, content: bytes) -> Any:
        return loads(content, _LIMITS, strings="text")

    def encode_rows(self, columns: Columns, rows: Iterable[Any]) -> bytes:
        return RowWriter(columns, self._form).encode(rows)

    def row_reader(self) -> Reader:
        return RowReader(_LIMITS, strings="text", keeps_uint64=False)


class Json:
    """JSON, in which text is UTF-8 of which each byte is a character, unless that is not wanted."""

    media_type = JSON_TYPE

    def __init__(self, encodes_utf8: bool) -> None:
        self._encodes_utf8 = encodes_utf8

    def encode_value(self, value: Any) -> bytes:
        return dump_json(value, encodes_utf8=self._encodes_utf8)

    def decode_value(self, content: bytes) -> Any:
        return load_json(content, _LIMITS, encodes_utf8=self._encodes_utf8)

    def encode_rows(self, columns: Columns, rows: Iterable[Any]) -> bytes:
        return JsonRowWriter(columns, encodes_utf8=self._encodes_utf8).encode(rows)

    def row_reader(self) -> Reader:
        return JsonRowReader(_LIMITS, encodes_utf8=self._encodes_utf8)


def parse_format(given: Any, default: str) -> Format:
    """The format that a parameter names. Raises InvalidRequest."""
    name = default if given is None else plain(given)
    attributes: Mapping[str, Any] = given.attributes if isinstance(given, Attributed) else {}
    if name == "yson":
        return Yson(attributes.get("format", "binary"))
    if name == "json":
        return Json(attributes.get("encode_utf8", True) is not False)
    raise InvalidRequest(f"a format is yson or json, not {name!r}"[:200])
