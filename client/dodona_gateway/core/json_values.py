"""Values that JSON lacks, in JSON: bytes that are no text, and numbers that are none.

Owns: their spelling. `{"$base64": "…"}` is bytes, `{"$double": "nan"}` (or `inf`, `-inf`) a number;
in maps of a user's own a name that begins with `$` has it doubled. A `string` column's bytes are
plain text where they are UTF-8, since text is taken for such a column, too; in an `any` column text
and bytes are two things, and bytes are always marked. So what is read can be written again, and is
the same. Pure.
"""

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from dodona._core.versions import VersionedRow, VersionedValue
from dodona.errors import InvalidRequest
from dodona.schema import Column

MARK: Final = "$"
BASE64: Final = "$base64"
DOUBLE: Final = "$double"
DEPTH_MAX: Final = 40
"""More than `any` values may have: the client says what is too deep for them."""
_DOUBLES: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

Convert = Callable[[Any], Any]


# ---- to JSON


def converters(columns: Iterable[Column]) -> dict[str, Convert]:
    """By name, what has to be done to the values of those columns that JSON may not have."""
    return {it.name: _CONVERTERS[it.type] for it in columns if it.type in _CONVERTERS}


def convert_rows(
    rows: Iterable[Mapping[str, Any] | None], convert: Mapping[str, Convert]
) -> list[dict[str, Any] | None]:
    """Rows as JSON has them. A None stays."""
    if not convert:
        return [None if row is None else dict(row) for row in rows]
    return [None if row is None else _row(row, convert) for row in rows]


def _row(row: Mapping[str, Any], convert: Mapping[str, Convert]) -> dict[str, Any]:
    return {
        name: value if value is None or name not in convert else convert[name](value)
        for name, value in row.items()
    }


def convert_history(row: VersionedRow, convert: Mapping[str, Convert]) -> VersionedRow:
    """All versions of a row as JSON has them."""
    values = {
        name: [_converted(it, convert[name]) for it in items] if name in convert else items
        for name, items in row.values.items()
    }
    return msgspec.structs.replace(row, key=_row(row.key, convert), values=values)


def _converted(item: VersionedValue, convert: Convert) -> VersionedValue:
    value = None if item.value is None else convert(item.value)
    return msgspec.structs.replace(item, value=value)


def _string(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _marked_bytes(value)


def _double(value: float) -> Any:
    if math.isfinite(value):
        return value
    return {DOUBLE: "nan" if value != value else "inf" if value > 0 else "-inf"}


def _marked_bytes(value: bytes) -> dict[str, str]:
    return {BASE64: base64.b64encode(value).decode()}


def any_to_json(value: Any) -> Any:
    """A value of an `any` column, an attribute of an error, a cell of a query's result."""
    if isinstance(value, bytes):
        return _marked_bytes(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, Mapping):
        return {_escaped(name): any_to_json(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [any_to_json(it) for it in value]
    return value


def shown_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """An error's attributes, for people first: bytes are text where they can be."""
    return {str(name): _shown(value) for name, value in attributes.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return _string(value)
    if isinstance(value, Mapping):
        return {str(name): _shown(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(it) for it in value]
    if value is None or isinstance(value, str | int | float):
        return any_to_json(value)
    return str(value)


def _escaped(name: object) -> str:
    text = name if isinstance(name, str) else str(name)
    return MARK + text if text.startswith(MARK) else text


_CONVERTERS: Final[dict[str, Convert]] = {
    "string": _string,
    "double": _double,
    "any": any_to_json,
}


# ---- from JSON


def may_be_marked(content: bytes) -> bool:
    """Whether a JSON text may have marks in it at all: nearly none has."""
    return b'"$' in content or b"\\u0024" in content


def from_json(value: Any, depth: int = 0) -> Any:
    """What a decoded JSON value stands for. Raises InvalidRequest on a mark that is none."""
    if depth > DEPTH_MAX:
        raise InvalidRequest(f"the body is nested deeper than {DEPTH_MAX}")
    if isinstance(value, list):
        return [from_json(it, depth + 1) for it in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        if name == BASE64:
            return _bytes(inner)
        if name == DOUBLE:
            return _number(inner)
    return {_unescaped(name): from_json(it, depth + 1) for name, it in value.items()}


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidRequest(f"{BASE64} is not base64: {error}") from error


def _number(text: Any) -> float:
    if not isinstance(text, str) or text not in _DOUBLES:
        raise InvalidRequest(f"{DOUBLE} is one of {', '.join(_DOUBLES)}, not {text!r}")
    return _DOUBLES[text]


def _unescaped(name: str) -> str:
    if not name.startswith(MARK):
        return name
    if name.startswith(MARK * 2):
        return name[1:]
    raise InvalidRequest(
        f"{name!r} is no mark that is known: a name that begins with {MARK} has it doubled"
    )
