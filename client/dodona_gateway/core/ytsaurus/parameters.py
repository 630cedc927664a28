"""The parameters of a command: where they come from, and what they are. Pure.

Owns: their decoding (a query string, a header and a body, of which the later win) and typed access.
A parameter that is not known is left alone, as YTsaurus's servers do: clients send many that are
about other things. One of the wrong type is an error that names it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dodona_gateway.core.yson import Attributed, YsonLimits, loads
from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.json_text import decode_json, without_mark

_LIMITS: Final = YsonLimits(depth_max=64, bytes_max=64 << 20, values_max=200_000)
"""Of what is inside; how long the whole may be, those who read it know."""
ATTRIBUTES: Final = "$attributes"
VALUE: Final = "$value"
CHOICES: Final = ("columns", "ranges", "lower_limit", "upper_limit", "rename_columns")
"""Attributes of a path that choose a part of the table."""
_NO_CHOICE: Final = "rows and columns are not chosen by a path here"


class YtPath(NamedTuple):
    """A node's path, and behind `/@` the names of an attribute and of what is inside its value;
    `attribute` is None for the node itself, empty for all attributes."""

    node: str
    attribute: str | None = None
    inside: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As the catalog knows it, without what is inside a value."""
        return self.node if self.attribute is None else f"{self.node}/@{self.attribute}"


def decode_parameters(content: bytes, *, is_json: bool) -> dict[str, Any]:
    """A map of parameters. Raises InvalidRequest."""
    decoded = _decode_json(content) if is_json else loads(content, _LIMITS, strings="text")
    if not isinstance(decoded, dict):
        raise InvalidRequest("parameters are a map from names to values")
    return decoded


def _decode_json(content: bytes) -> Any:
    """JSON as clients write it into headers: text is UTF-8, of which each byte is a character."""
    try:
        return _unmangled(decode_json(without_mark(content).decode("latin-1")))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the parameters are no JSON: {error}"[:200]) from error


def _unmangled(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return value.encode("latin-1").decode()
        except UnicodeError:
            return value  # it was plain text
    if isinstance(value, list):
        return [_unmangled(it) for it in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {ATTRIBUTES, VALUE}:
        return _attributed(_unmangled(value[VALUE]), _unmangled(value[ATTRIBUTES]))
    return {_name(name): _unmangled(it) for name, it in value.items()}


def _attributed(value: Any, attributes: Any) -> Any:
    if not isinstance(attributes, dict):
        raise InvalidRequest(f"{ATTRIBUTES} are a map from names to values")
    return Attributed(value, attributes) if attributes else value


def _name(name: str) -> str:
    """In maps `$` at the front is doubled."""
    text = str(_unmangled(name))
    return text[1:] if text.startswith("$$") else text


class Parameters:
    """Those of one command."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """As it came; None if it did not."""
        return self._values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Raises InvalidRequest; also if there is none, and no default."""
        value = plain(self._values.get(name, default))
        if value is None:
            raise InvalidRequest(f"Missing required parameter {name!r}", parameter=name)
        if not isinstance(value, str):
            raise _mismatch(name, "text", value)
        return value

    def optional_text(self, name: str) -> str | None:
        """As `text`; None if there is none."""
        return self.text(name) if name in self else None

    def flag(self, name: str, default: bool = False) -> bool:
        """Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return default
        if value in ("true", "false"):
            return bool(value == "true")
        if type(value) is not bool:
            raise _mismatch(name, "a boolean", value)
        return value

    def number(self, name: str) -> int | None:
        """Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 21:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _mismatch(name, "a number", value)
        return int(value)

    def items(self, name: str) -> list[Any] | None:
        """A list. Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return None
        if not isinstance(value, list):
            raise _mismatch(name, "a list", value)
        return value

    def texts(self, name: str) -> list[str] | None:
        """A list of texts, or of such with attributes. Raises InvalidRequest."""
        items = self.items(name)
        if items is None:
            return None
        found = [plain(it) for it in items]
        for it in found:
            if not isinstance(it, str):
                raise _mismatch(name, "a list of texts", it)
        return found

    def map(self, name: str) -> dict[str, Any]:
        """Empty if there is none. Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _mismatch(name, "a map", value)
        return value

    def path(self, name: str = "path") -> YtPath:
        """Raises InvalidRequest."""
        given = self._values.get(name)
        if isinstance(given, Attributed):
            _check_whole(given.attributes)
        return parse_path(self.text(name))

    def table(self, name: str = "path") -> str:
        """The path of a node itself. Raises InvalidRequest."""
        found = self.path(name)
        if found.attribute is not None:
            raise InvalidRequest("this is an attribute's path, not a table's", path=found.text)
        return found.node


def parse_path(text: str) -> YtPath:
    """A path in YTsaurus's form, of which attributes in front say nothing here. Raises
    InvalidRequest."""
    if text.startswith("<"):
        text = _without_attributes(text)
    if not text:
        raise InvalidRequest("a path is not empty: / is the root")
    if text.endswith(("}", "]")):
        raise InvalidRequest(_NO_CHOICE, path=text[:200])
    node, mark, rest = text.partition("/@")
    node = node.removesuffix("&") or "/"
    if not mark:
        return YtPath(node)
    attribute, *inside = rest.split("/") if rest else [""]
    return YtPath(node, attribute, tuple(inside))


def _without_attributes(text: str) -> str:
    value = loads(text.partition(">")[0].encode() + b">#", _LIMITS, strings="text")
    if not isinstance(value, Attributed) and value is not None:
        raise InvalidRequest("this is no path", path=text[:200])
    if value is not None:
        _check_whole(value.attributes)
    return text.partition(">")[2]


def _check_whole(attributes: Mapping[str, Any]) -> None:
    """That a path stands for the whole table."""
    for name in CHOICES:
        if name in attributes:
            raise InvalidRequest(_NO_CHOICE, attribute=name)


def plain(value: Any) -> Any:
    """A value without its attributes."""
    return value.value if isinstance(value, Attributed) else value


def _mismatch(name: str, wanted: str, value: Any) -> InvalidRequest:
    kind = type(value).__name__
    return InvalidRequest(f"parameter {name!r} is {wanted}, not {kind}", parameter=name)
