"""JSON text, read so that nothing of it is lost: an object names each of its members once.

Owns: how a name that comes twice is found, at any depth, and its refusal. Readers of JSON keep the
last of such members, and lose the others without a word. And the byte order mark, which some
programs write before UTF-8: whoever reads a file or a body takes it, wherever it comes from. Pure.

The check must cost little beside the reading of a row. Colons tell nearly always: a text has one
for each member, and those inside of its strings. What was read has as many if it is written anew,
unless a member was lost. Where no string has a colon, the number of a row's members tells already.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.shown import shown

Place = list[str | int]
"""Where a member is: names, and numbers of items, from the outermost value on."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COLON: Final = b":"
_ESCAPED_COLON: Final = b"\\u003"
"""How one begins. It is a colon of what was read, and none of the text."""
_encode: Final = msgspec.json.Encoder().encode


def without_mark(text: bytes) -> bytes:
    """The text behind a byte order mark, if there is one. For the beginning of a file or a body."""
    return text.removeprefix(_BYTE_ORDER_MARK)


def decode_json(text: bytes | str) -> Any:
    """What a JSON text says. Raises SchemaViolation where a name comes twice, else as msgspec
    does: DecodeError, UnicodeError, RecursionError."""
    raw = text.encode() if isinstance(text, str) else text
    found = msgspec.json.decode(raw)
    if place := repeated_name(raw, found):
        raise name_refusal(place)
    return found


def repeated_name(text: bytes, found: Any) -> Place:
    """The place of a name that comes twice in one object of a text that was read as `found`;
    nothing if there is none. Raises RecursionError."""
    count = text.count(_COLON)
    if not count or (type(found) is dict and len(found) == count):
        return []
    # A search for one byte is quick, for several it takes as long as writing the value.
    may_be_escaped = b"\\" in text and _ESCAPED_COLON in text
    if not may_be_escaped and _encode(found).count(_COLON) == count:
        return []
    return place_of_repeated(_READER.decode(text.decode()))


def name_refusal(place: Place, **attributes: Any) -> SchemaViolation:
    """Of an object, `attributes` say which."""
    text = f"{shown(place[-1])} is named twice in one object: name it once"
    return SchemaViolation(text, **attributes)


def column_refusal(place: Place, **attributes: Any) -> SchemaViolation:
    """Of a row, `attributes` say which."""
    column, *inner = place
    if inner:
        return name_refusal(place, column=column, **attributes)
    text = f"the column {shown(column)} is named twice in one row: name it once"
    return SchemaViolation(text, column=column, **attributes)


# ---- the second look, which takes several times as long as reading


class RepeatedMembers:
    """An object that names two of its members the same."""

    def __init__(self, members: Sequence[tuple[Any, Any]]) -> None:
        self.members = members


def object_of(members: Sequence[tuple[Any, Any]]) -> Any:
    """What a reader makes of an object's members, for `place_of_repeated`."""
    found = dict(members)
    return found if len(found) == len(members) else RepeatedMembers(members)


def place_of_repeated(value: Any) -> Place:
    """Where the first such object is in a value, whose objects `object_of` made."""
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


# Numbers are none of its business: they may be longer than Python reads.
_READER: Final = json.JSONDecoder(object_pairs_hook=object_of, parse_int=str, parse_float=str)
