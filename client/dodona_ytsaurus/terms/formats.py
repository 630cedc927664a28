"""The formats that a command names in `input_format` and `output_format`. Pure.

Owns: their names, their defaults, and the choice of their readers and writers. (This API ignores
the headers `Accept` and `Content-Type`.)
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.rest import JSON_TYPE
from dodona_ytsaurus.terms.parameters import plain
from dodona_ytsaurus.yson import (
    Attributed,
    RowReader,
    RowWriter,
    Uint64,
    YsonLimits,
    dumps,
    loads,
)
from dodona_ytsaurus.yt_json import (
    JsonOptions,
    JsonRowReader,
    dump_rows_json,
    dumps_json,
    loads_json,
)

DEFAULT_VALUE: Final = "json"
DEFAULT_ROWS: Final = "yson"
YSON_TYPES: Final = {
    "binary": "application/x-yt-yson-binary",
    "text": "application/x-yt-yson-text",
    "pretty": "application/x-yt-yson-pretty",
}
ROW_BYTES_MAX: Final = 32 << 20
ROW_VALUES_MAX: Final = 250_000
ROWS_MAX: Final = 100_001
"""One more than a transaction takes: a caller that sends more gets the transaction's error."""
JSON_ROW_BYTES_MAX: Final = 8 << 20
"""This limit is lower, since a line of JSON is read before its values are counted."""
_LIMITS: Final = YsonLimits(bytes_max=ROW_BYTES_MAX, values_max=ROW_VALUES_MAX, items_max=ROWS_MAX)
_JSON_LIMITS: Final = YsonLimits(
    bytes_max=JSON_ROW_BYTES_MAX, values_max=ROW_VALUES_MAX, items_max=ROWS_MAX
)

Columns = list[tuple[str, Any]]


class Reader(Protocol):
    """A reader that takes parts of a body, and returns the rows that are complete."""

    def feed(self, part: bytes) -> list[Any]: ...

    def finish(self) -> list[Any]: ...


class Format(Protocol):
    """A format: how values and rows are read and written."""

    @property
    def media_type(self) -> str: ...

    def encode_value(self, value: Any) -> bytes: ...

    def decode_value(self, content: bytes) -> Any: ...

    def encode_rows(self, columns: Columns, rows: Iterable[Any]) -> bytes: ...

    def row_reader(self) -> Reader: ...


class Yson:
    """YSON, written in one of its three forms. All three are read."""

    def __init__(self, form: Any) -> None:
        if not isinstance(form, str) or form not in YSON_TYPES:
            known = ", ".join(YSON_TYPES)
            raise InvalidRequest(f"The format of yson must be one of {known}, not {form!r}"[:200])
        self._form: Any = form

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
    """JSON. Its text is UTF-8 of which each byte is a character, unless the options say
    otherwise."""

    media_type = JSON_TYPE

    def __init__(self, options: JsonOptions) -> None:
        self._options = options

    def encode_value(self, value: Any) -> bytes:
        return dumps_json(value, self._options)

    def decode_value(self, content: bytes) -> Any:
        return loads_json(content, self._options, _JSON_LIMITS, strings="text")

    def encode_rows(self, columns: Columns, rows: Iterable[Any]) -> bytes:
        names = [name for name, _ in columns]
        return dump_rows_json([_named(it, names) for it in rows], self._options)

    def row_reader(self) -> Reader:
        return _JsonRows(self._options)


def _named(row: Any, names: list[str]) -> Any:
    """Return a plain row as a map, in the order of the columns."""
    if type(row) is tuple:
        return dict(zip(names, row, strict=True))
    return {name: row[name] for name in names if name in row} if type(row) is dict else row


class _JsonRows:
    """A reader of rows. A column's type decides the type of a number, so plain numbers are
    enough."""

    def __init__(self, options: JsonOptions) -> None:
        self._reader = JsonRowReader(options, _JSON_LIMITS, strings="text")

    def feed(self, part: bytes) -> list[Any]:
        return [_with_plain_numbers(it) for it in self._reader.feed(part)]

    def finish(self) -> list[Any]:
        return [_with_plain_numbers(it) for it in self._reader.finish()]


def _with_plain_numbers(value: Any) -> Any:
    if type(value) is Uint64:
        return int(value)
    if type(value) is dict:
        return {name: _with_plain_numbers(it) for name, it in value.items()}
    if type(value) is list:
        return [_with_plain_numbers(it) for it in value]
    return value


def parse_format(given: Any, default: str) -> Format:
    """Return the format that a parameter names. Raises InvalidRequest."""
    name = default if given is None else plain(given)
    attributes: Mapping[str, Any] = given.attributes if isinstance(given, Attributed) else {}
    if name == "yson":
        return Yson(attributes.get("format", "binary"))
    if name == "json":
        return Json(
            JsonOptions(
                encode_utf8=attributes.get("encode_utf8", True) is not False,
                stringify_nan_and_infinity=attributes.get("stringify_nan_and_infinity") is True,
            )
        )
    raise InvalidRequest(f"A format must be yson or json, not {name!r}"[:200])
