"""Values of nested types as JSON, and back. Pure.

Owns: the JSON of lists, structs and dicts. The type says what each part is, so nothing is marked,
except inside a part of type any. A struct is an object with all fields. A dict is an object, whose
names are the keys: numbers as text, and bytes as in CSV. `text_format` has the parts.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.column_kinds import LogicalType, Member
from dodona_wire.rows.nested_values import Pairs, ValueForm, fields_of
from dodona_wire.rows.type_names import DICT, LIST
from dodona_wire.rows.value_rules import mismatch
from dodona_wire.shown import shown

Format = Callable[[Any], Any]
FormatOf = Callable[[LogicalType], Format | None]
"""Returns the function that makes the JSON of a value that is not null; None if it is JSON as it
is."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def nested_formatter(kind: LogicalType, leaf: FormatOf, key_text: Callable[[bytes], str]) -> Format:
    """Return the function that makes the JSON of a user's value of a nested type. `leaf` has the
    types that are not nested, and `key_text` the text of bytes."""
    parts = [_part(it, leaf, key_text) for it in kind.members]
    if kind.form == LIST:
        (item,) = parts
        return lambda value: [item(it) for it in value]
    if kind.form == DICT:
        is_bytes = kind.members[0].kind.stored == "string"
        text, part = key_text if is_bytes else str, parts[1]
        return lambda value: {text(key): part(it) for key, it in value.items()}
    fields = [(it.name, part) for it, part in zip(kind.members, parts, strict=True)]
    return lambda value: {name: part(value.get(name)) for name, part in fields}


def _part(member: Member, leaf: FormatOf, key_text: Callable[[bytes], str]) -> Format:
    kind = member.kind
    convert = nested_formatter(kind, leaf, key_text) if kind.members else leaf(kind)
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _items(value: Any, place: str) -> Sequence[Any]:
    if isinstance(value, list):
        return value
    raise mismatch(value, place, "a list")


def json_form(bytes_of: Callable[[bytes, str], bytes]) -> ValueForm:
    """Return the form of JSON, whose values become users' values. `bytes_of` reads the text of a
    key of bytes."""

    def pairs(kind: LogicalType, value: Any, place: str) -> Pairs:
        if not isinstance(value, dict):
            raise mismatch(value, place, "an object")
        return [_key(kind, it, place) for it in value], value.values()

    def _key(kind: LogicalType, text: Any, place: str) -> Any:
        """MessagePack may have the key itself."""
        if kind.stored == "utf8" or not isinstance(text, str):
            return text
        if kind.stored == "string":
            return bytes_of(text.encode(), place)
        if not _INTEGER.fullmatch(text):
            raise SchemaViolation(
                f"column {place!r} has keys of type {kind.name}, and {shown(text)} is none",
                column=place,
            )
        return int(text)

    return ValueForm(_items, fields_of, pairs, False)
