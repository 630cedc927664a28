"""Read JSON text without any loss: an object names each of its members once.

Owns: how a repeated name is found, at any depth, and its refusal. Readers of JSON keep the last of
such members, and lose the others silently. Also owns the byte order mark, which some programs write
before UTF-8: readers of files and bodies accept it from any source. Pure.

The check must be cheap beside the reading of a row. Counting colons is nearly always enough. A text
has one for each member, and those inside its strings. The value has as many if it is encoded again,
unless a member was lost. If no string has a colon, the number of a row's members is enough.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.shown import shown

Place = list[str | int]
"""The place of a member: names, and numbers of items, from the outermost value inwards."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COLON: Final = b":"
_ESCAPED_COLON: Final = b"\\u003"
"""The beginning of an escaped colon, which is a colon of the value and not of the text."""
_encode: Final = msgspec.json.Encoder().encode


def without_mark(text: bytes) -> bytes:
    """Return the text after a byte order mark, if any. For the beginning of a file or a body."""
    return text.removeprefix(_BYTE_ORDER_MARK)


def decode_json(text: bytes | str) -> Any:
    """Return the value of a JSON text. Raises SchemaViolation if a name comes twice, else the
    errors of msgspec: DecodeError, UnicodeError, RecursionError."""
    raw = text.encode() if isinstance(text, str) else text
    found = msgspec.json.decode(raw)
    if place := repeated_name(raw, found):
        raise name_refusal(place)
    return found


def repeated_name(text: bytes, found: Any) -> Place:
    """Return the place of a name that comes twice in one object of a text that was read as `found`;
    empty if there is none. Raises RecursionError."""
    count = text.count(_COLON)
    if not count or (type(found) is dict and len(found) == count):
        return []
    # A search for one byte is quick. One for several takes as long as encoding the value.
    may_be_escaped = b"\\" in text and _ESCAPED_COLON in text
    if not may_be_escaped and _encode(found).count(_COLON) == count:
        return []
    return place_of_repeated(_READER.decode(text.decode()))


def name_refusal(place: Place, **attributes: Any) -> SchemaViolation:
    """Return the error for an object; `attributes` say which."""
    text = f"{shown(place[-1])} is named twice in one object: name it once"
    return SchemaViolation(text, **attributes)


def column_refusal(place: Place, **attributes: Any) -> SchemaViolation:
    """Return the error for a row; `attributes` say which."""
    column, *inner = place
    if inner:
        return name_refusal(place, column=column, **attributes)
    text = f"the column {shown(column)} is named twice in one row: name it once"
    return SchemaViolation(text, column=column, **attributes)


# ---- the second pass, which takes several times as long as reading


class RepeatedMembers:
    """An object that has two members of the same name."""

    def __init__(self, members: Sequence[tuple[Any, Any]]) -> None:
        self.members = members


def object_of(members: Sequence[tuple[Any, Any]]) -> Any:
    """Make a value of an object's members, for `place_of_repeated`."""
    found = dict(members)
    return found if len(found) == len(members) else RepeatedMembers(members)


def place_of_repeated(value: Any) -> Place:
    """Return the place of the first repeated name in a value, whose objects `object_of` made."""
    inner: Any = ()
    if isinstance(value, RepeatedMembers):
        names = [name for name, _ in value.members]
        return [next(it for at, it in enumerate(names) if it in names[:at])]
    if isinstance(value, list | tuple):
        inner = enumerate(value)
    elif isinstance(value, dict):
        inner = value.items()
    for name, held in inner:
        if place := place_of_repeated(held):
            return [name, *place]
    return []


# Numbers stay text: they may be longer than Python reads.
_READER: Final = json.JSONDecoder(object_pairs_hook=object_of, parse_int=str, parse_float=str)
