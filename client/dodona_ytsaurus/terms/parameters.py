"""The parameters of a command: how they are decoded and read. Pure.

Owns: their decoding (a query string, a header and a body, of which the later win) and typed access.
An unknown parameter is ignored, as YTsaurus's servers do: clients send many that concern other
things. A parameter of the wrong type is an error that names it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.json_text import decode_json, without_mark
from dodona_ytsaurus.yson import Attributed, YsonLimits, loads

_LIMITS: Final = YsonLimits(depth_max=64, bytes_max=64 << 20, values_max=200_000)
"""The limits on the content. The code that reads the parameters limits their whole length."""
ATTRIBUTES: Final = "$attributes"
VALUE: Final = "$value"
CHOICES: Final = ("columns", "ranges", "lower_limit", "upper_limit", "rename_columns")
"""The attributes of a path that choose a part of the table."""
_NO_CHOICE: Final = "A path can't select rows or columns. Use select_rows or lookup_rows."


class YtPath(NamedTuple):
    """The path of a node. After `/@` come the names of an attribute and of parts inside its value.
    `attribute` is None for the node itself, and empty for all attributes."""

    node: str
    attribute: str | None = None
    inside: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the path as the catalog knows it, without the parts inside a value."""
        return self.node if self.attribute is None else f"{self.node}/@{self.attribute}"


def decode_parameters(content: bytes, *, is_json: bool) -> dict[str, Any]:
    """Decode a map of parameters. Raises InvalidRequest."""
    decoded = _decode_json(content) if is_json else loads(content, _LIMITS, strings="text")
    if not isinstance(decoded, dict):
        raise InvalidRequest("The parameters must be a map from names to values.")
    return decoded


def _decode_json(content: bytes) -> Any:
    """Decode JSON as clients write it into headers: text is UTF-8, of which each byte is a
    character."""
    try:
        return _unmangled(decode_json(without_mark(content).decode("latin-1")))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The parameters are not JSON: {error}"[:200]) from error


def _unmangled(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return value.encode("latin-1").decode()
        except UnicodeError:
            return value  # the value was plain text
    if isinstance(value, list):
        return [_unmangled(it) for it in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {ATTRIBUTES, VALUE}:
        return _attributed(_unmangled(value[VALUE]), _unmangled(value[ATTRIBUTES]))
    return {_name(name): _unmangled(it) for name, it in value.items()}


def _attributed(value: Any, attributes: Any) -> Any:
    if not isinstance(attributes, dict):
        raise InvalidRequest(f"{ATTRIBUTES} must be a map from names to values.")
    return Attributed(value, attributes) if attributes else value


def _name(name: str) -> str:
    """Return a name of a map, where `$` at the front is doubled."""
    text = str(_unmangled(name))
    return text[1:] if text.startswith("$$") else text


class Parameters:
    """The parameters of one command."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Return the value as it came; None if it did not come."""
        return self._values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text. Raises InvalidRequest, also if there is none and no default."""
        value = plain(self._values.get(name, default))
        if value is None:
            raise InvalidRequest(f"Missing required parameter {name!r}", parameter=name)
        if not isinstance(value, str):
            raise _mismatch(name, "text", value)
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a text as `text` does; None if there is none."""
        return self.text(name) if name in self else None

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean. Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return default
        if value in ("true", "false"):
            return bool(value == "true")
        if type(value) is not bool:
            raise _mismatch(name, "a boolean", value)
        return value

    def number(self, name: str) -> int | None:
        """Return a number; None if there is none. Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 21:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise _mismatch(name, "a number", value)
        return int(value)

    def items(self, name: str) -> list[Any] | None:
        """Return a list; None if there is none. Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return None
        if not isinstance(value, list):
            raise _mismatch(name, "a list", value)
        return value

    def texts(self, name: str) -> list[str] | None:
        """Return a list of texts, without their attributes. Raises InvalidRequest."""
        items = self.items(name)
        if items is None:
            return None
        found = [plain(it) for it in items]
        for it in found:
            if not isinstance(it, str):
                raise _mismatch(name, "a list of texts", it)
        return found

    def map(self, name: str) -> dict[str, Any]:
        """Return a map, which is empty if there is none. Raises InvalidRequest."""
        value = plain(self._values.get(name))
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _mismatch(name, "a map", value)
        return value

    def path(self, name: str = "path") -> YtPath:
        """Return a path. Raises InvalidRequest."""
        given = self._values.get(name)
        if isinstance(given, Attributed):
            _check_whole(given.attributes)
        return parse_path(self.text(name))

    def table(self, name: str = "path") -> str:
        """Return the path of a node itself. Raises InvalidRequest."""
        found = self.path(name)
        if found.attribute is not None:
            text = "The path is that of an attribute. Pass the path of a table."
            raise InvalidRequest(text, path=found.text)
        return found.node


def parse_path(text: str) -> YtPath:
    """Parse a path in YTsaurus's form. Attributes in front may not choose a part of the table, and
    are ignored otherwise. Raises InvalidRequest."""
    if text.startswith("<"):
        text = _without_attributes(text)
    if not text:
        raise InvalidRequest("The path is empty. The path of the root is /.")
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
        message = "The text is not a path. A path begins with //."
        raise InvalidRequest(message, path=text[:200])
    if value is not None:
        _check_whole(value.attributes)
    return text.partition(">")[2]


def _check_whole(attributes: Mapping[str, Any]) -> None:
    """Check that a path stands for the whole table. Raises InvalidRequest."""
    for name in CHOICES:
        if name in attributes:
            raise InvalidRequest(_NO_CHOICE, attribute=name)


def plain(value: Any) -> Any:
    """Return a value without its attributes."""
    return value.value if isinstance(value, Attributed) else value


def _mismatch(name: str, wanted: str, value: Any) -> InvalidRequest:
    kind = type(value).__name__
    return InvalidRequest(f"The parameter {name!r} must be {wanted}, not {kind}.", parameter=name)
