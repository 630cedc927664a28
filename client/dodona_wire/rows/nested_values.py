"""Convert values of nested types: from any form to another, part by part. Pure.

Owns: how lists, structs and dicts are taken apart and put together, and the place of a part that is
refused, such as `tags[3].price`. The parts themselves are converted by the functions of their
types, which the caller passes.
A *form* of values says how the parts are found. Users have lists, dicts of fields, and dicts. What
is stored has lists, dicts of fields in their order, and lists of pairs.
Invariant: a conversion never returns a list or a dict that it was given. So Dodona and its caller
share none. A value is converted once. Only a refused one is read again, for the place.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.column_kinds import LogicalType, Member
from dodona_wire.rows.type_names import DICT, LIST, field_word
from dodona_wire.rows.value_rules import items_of_array, mismatch
from dodona_wire.rows.values import VALUE_BYTES_MAX
from dodona_wire.shown import named, shown

Convert = Callable[[Any, str], Any]
"""Takes a value that is not None and its place. Raises SchemaViolation."""
ConvertOf = Callable[[LogicalType], Convert]
Load = Callable[[Any], Any]
Pairs = tuple[Collection[Any], Collection[Any]]

_NAMES_SHOWN_MAX: Final = 10
_PLAIN: Final[dict[str, type]] = {
    "int64": int,
    "uint64": int,
    "double": float,
    "boolean": bool,
    "string": bytes,
    "utf8": str,
}
"""Stored type → the type of Python of which many values are checked together."""
_INTEGERS: Final = {"int64": (-(1 << 63), (1 << 63) - 1), "uint64": (0, (1 << 64) - 1)}
_encode: Final = msgspec.msgpack.Encoder().encode


class ValueForm(NamedTuple):
    """How the parts of a value are found. Each function raises SchemaViolation for a value that has
    another form."""

    items: Callable[[Any, str], Sequence[Any]]
    """The items of a list."""
    fields: Callable[[tuple[str, ...], Any, str], Sequence[Any]]
    """The values of these fields of a struct, with None for one that is not there."""
    pairs: Callable[[LogicalType, Any, str], Pairs]
    """The keys and the values of a dict whose keys have this type."""
    are_pairs_made: bool
    """Whether a dict becomes a list of pairs, as it is stored."""


def is_numpy_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy, which is a list here."""
    return type(value).__module__ == "numpy" and bool(getattr(value, "shape", ()))


# ---- the forms


def _user_items(value: Any, place: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    if is_numpy_array(value):
        return items_of_array(value)
    raise mismatch(value, place, "a list")


def fields_of(names: tuple[str, ...], value: Any, place: str) -> Sequence[Any]:
    """Return the values of fields that have names. Raises SchemaViolation for other fields."""
    if not isinstance(value, Mapping):
        raise mismatch(value, place, f"a dict with {_listed(names)}")
    if len(value) != sum([name in value for name in names]):
        stranger = next((it for it in value if it not in names), None)
        if stranger is None:
            text = f"column {place!r} got a {type(value).__name__} that lacks its own names"
            raise SchemaViolation(f"{text}. Pass a dict with {_listed(names)}", column=place)
        text = f"column {place!r} has no field {named(stranger)}: it has {_listed(names)}"
        raise SchemaViolation(text, column=place)
    return [value.get(name) for name in names]


def _user_pairs(_: LogicalType, value: Any, place: str) -> Pairs:
    if isinstance(value, Mapping):
        return value.keys(), value.values()
    pairs = [_pair(it) for it in value] if isinstance(value, list | tuple) else [()]
    if not all(pairs):
        raise mismatch(value, place, "a dict, or a list of pairs")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _pair(value: Any) -> tuple[Any, ...]:
    """Return a key and its value, in the forms that Arrow and polars have; empty for others."""
    if isinstance(value, tuple) and len(value) == 2:
        return value
    if isinstance(value, dict) and value.keys() == {"key", "value"}:
        return value["key"], value["value"]
    return ()


def _stored_items(value: Any, place: str) -> Sequence[Any]:
    if type(value) is not list:
        raise mismatch(value, place, "a list")
    return value


def _stored_fields(names: tuple[str, ...], value: Any, place: str) -> Sequence[Any]:
    if type(value) is not dict or tuple(value) != names:
        raise mismatch(value, place, f"a map with {_listed(names)}, in this order")
    return [*value.values()]


def _stored_pairs(_: LogicalType, value: Any, place: str) -> Pairs:
    is_list = type(value) is list
    if not is_list or not all(type(it) is list and len(it) == 2 for it in value):
        raise mismatch(value, place, "a list of pairs")
    return [key for key, _ in value], [its for _, its in value]


def _listed(names: Sequence[str]) -> str:
    first = ", ".join([field_word(it) for it in names[:_NAMES_SHOWN_MAX]])
    more = ", …" if len(names) > _NAMES_SHOWN_MAX else ""
    return f"the field{'s' if len(names) > 1 else ''} {first}{more}"


USER_TO_STORED: Final = ValueForm(_user_items, fields_of, _user_pairs, True)
STORED: Final = ValueForm(_stored_items, _stored_fields, _stored_pairs, True)


# ---- conversions


def converter_of(kind: LogicalType, form: ValueForm, leaf: ConvertOf) -> Convert:
    """Return the function that converts a value of a nested type. Its errors name the column, and
    the place inside. `leaf` returns the functions of the types that are not nested."""
    convert = _part_of(kind, form, leaf)

    def located(value: Any, column: str) -> Any:
        try:
            return convert(value, column)
        except SchemaViolation:
            error = _refusal(kind, form, leaf, value, column)
            place = error.attributes.get("column", column)
            if place != column:
                error.attributes.update(place=place)
            error.attributes["column"] = column
            raise error from None

    return located


def checked_size(convert: Convert) -> Convert:
    """Return a conversion to stored values whose results are not too long."""

    def checked(value: Any, column: str) -> Any:
        found = convert(value, column)
        if len(_encode(found)) > VALUE_BYTES_MAX:
            raise SchemaViolation(f"value is longer than {VALUE_BYTES_MAX} bytes", column=column)
        return found

    return checked


def _part_of(kind: LogicalType, form: ValueForm, leaf: ConvertOf) -> Convert:
    if not kind.members:
        return leaf(kind)
    parts = [_member_of(it, form, leaf) for it in kind.members]
    if kind.form == LIST:
        items, many = form.items, _many_of(kind.members[0], parts[0])
        return lambda value, place: many(items(value, place), place)
    if kind.form == DICT:
        return _dict_of(kind, form, parts)
    names = tuple([it.name for it in kind.members])
    fields = form.fields

    def convert(value: Any, place: str) -> dict[str, Any]:
        found = fields(names, value, place)
        return {name: part(it, place) for name, part, it in zip(names, parts, found, strict=True)}

    return convert


def _dict_of(kind: LogicalType, form: ValueForm, parts: Sequence[Convert]) -> Convert:
    pairs, are_pairs_made, key_kind = form.pairs, form.are_pairs_made, kind.members[0].kind
    keys_of, values_of = [_many_of(*it) for it in zip(kind.members, parts, strict=True)]

    def convert(value: Any, place: str) -> Any:
        given_keys, given = pairs(key_kind, value, place)
        keys, values = keys_of([*given_keys], place), values_of([*given], place)
        if len(set(keys)) < len(keys):
            twice = next(it for at, it in enumerate(keys) if it in keys[:at])
            raise SchemaViolation(
                f"column {place!r} has the key {shown(twice)} twice", column=place
            )
        if are_pairs_made:
            return [[key, its] for key, its in zip(keys, values, strict=True)]
        return dict(zip(keys, values, strict=True))

    return convert


def _member_of(member: Member, form: ValueForm, leaf: ConvertOf) -> Convert:
    """Return the conversion of a part that may be None."""
    convert = _part_of(member.kind, form, leaf)
    if member.is_optional:
        return lambda value, place: None if value is None else convert(value, place)

    def required(value: Any, place: str) -> Any:
        if value is None:
            raise null_refusal(member, place)
        return convert(value, place)

    return required


def null_refusal(member: Member, place: str) -> SchemaViolation:
    """Return the error for a part that is null and not optional."""
    text = (
        f"column {place!r} is missing or null, and its type is {member.kind.name}: only "
        "optional<T> may be null"
    )
    return SchemaViolation(text, column=place)


def _many_of(member: Member, convert: Convert) -> Callable[[Sequence[Any], str], list[Any]]:
    """Return the conversion of many parts of one type. Plain values are checked together."""
    kind = member.kind
    plain = _PLAIN[kind.stored] if kind.name in _PLAIN or kind.form == "integer" else None
    lowest, highest = _INTEGERS.get(kind.stored, (None, None))
    if kind.form == "integer":
        lowest, highest = kind.lowest, kind.highest

    def are_plain(values: Sequence[Any]) -> bool:
        kinds = set(map(type, values))
        if member.is_optional:
            kinds.discard(type(None))
        if not kinds:
            return True
        if kinds != {plain}:
            return False
        if lowest is not None:
            numbers = [it for it in values if it is not None] if member.is_optional else values
            return bool(lowest <= min(numbers) and max(numbers) <= highest)
        if plain is str:
            return all(it is None or it.isascii() for it in values)
        return True

    def convert_all(values: Sequence[Any], place: str) -> list[Any]:
        if plain is not None and are_plain(values):
            return [*values]
        return [convert(it, place) for it in values]

    return convert_all


# ---- the place of a refused part


def _refusal(
    kind: LogicalType, form: ValueForm, leaf: ConvertOf, value: Any, place: str
) -> SchemaViolation:
    """Return the error for a value that was refused, with the place of the first part that is."""
    try:
        for step, member, part in _parts_at(kind, form, value, place):
            if part is None or not member.kind.members:
                _convert_part(member, form, leaf, part, step)
                continue
            try:
                _part_of(member.kind, form, leaf)(part, step)
            except SchemaViolation:
                return _refusal(member.kind, form, leaf, part, step)
        _part_of(kind, form, leaf)(value, place)
    except SchemaViolation as error:
        error.attributes.setdefault("value", shown(value))
        error.attributes.setdefault("type", kind.name)
        return error
    raise AssertionError("a value is refused every time, or never")


def _convert_part(member: Member, form: ValueForm, leaf: ConvertOf, part: Any, place: str) -> None:
    try:
        _member_of(member, form, leaf)(part, place)
    except SchemaViolation as error:
        error.attributes.setdefault("value", shown(part))
        error.attributes["type"] = member.kind.name
        raise


def _parts_at(
    kind: LogicalType, form: ValueForm, value: Any, place: str
) -> list[tuple[str, Member, Any]]:
    """Return the parts of a value with their places. Raises SchemaViolation if it has another
    form."""
    members = kind.members
    if kind.form == LIST:
        items = form.items(value, place)
        return [(f"{place}[{at}]", members[0], it) for at, it in enumerate(items)]
    if kind.form == DICT:
        keys, values = form.pairs(members[0].kind, value, place)
        pairs = zip(keys, values, strict=True)
        return [
            (f"{place}[{shown(key)}]", member, it)
            for key, its in pairs
            for member, it in zip(members, (key, its), strict=True)
        ]
    names = tuple([it.name for it in members])
    found = form.fields(names, value, place)
    return [
        (f"{place}.{field_word(it.name)}", it, part)
        for it, part in zip(members, found, strict=True)
    ]


# ---- from the stored value to a user's


def loader_of(kind: LogicalType, leaf: Callable[[LogicalType], Load | None]) -> Load:
    """Return the function that makes a user's value of a stored one. `leaf` returns None for types
    whose values stay as they are. A field that an older value lacks is None."""
    loads = [_member_load(it, leaf) for it in kind.members]
    if kind.form == LIST:
        item = loads[0]
        return list if item is None else lambda value: [item(it) for it in value]
    if kind.form == DICT:
        key_load, load = loads
        if key_load is None and load is None:
            return lambda value: {key: its for key, its in value}  # noqa: C416 - pairs are lists
        as_key, as_value = key_load or _same, load or _same
        return lambda value: {as_key(key): as_value(its) for key, its in value}
    fields = [(it.name, load or _same) for it, load in zip(kind.members, loads, strict=True)]
    return lambda value: {name: load(value.get(name)) for name, load in fields}


def _member_load(member: Member, leaf: Callable[[LogicalType], Load | None]) -> Load | None:
    load = loader_of(member.kind, leaf) if member.kind.members else leaf(member.kind)
    if load is None or not member.is_optional:
        return load
    return lambda value: None if value is None else load(value)


def _same(value: Any) -> Any:
    return value


def nested_copy(value: Any) -> Any:
    """Return a copy of a user's value of a nested type, which its caller may change."""
    if type(value) is list:
        return [nested_copy(it) for it in value]
    if type(value) is dict:
        return {key: nested_copy(it) for key, it in value.items()}
    return value
