"""Convert types between YTsaurus's `type_v3` and Dodona's. Pure.

Owns: the names of types in both, and the maps of types that have parameters or types inside. In
YTsaurus a column is a member, too: it may be optional. A type of YTsaurus that Dodona lacks, such
as a tuple or a variant, is refused, also inside another type.
"""

from collections.abc import Mapping
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.column_kinds import LogicalType, Member
from dodona_wire.rows.logical_types import TYPES, decimal_type, logical_type
from dodona_wire.rows.nested_types import dict_type, list_type, struct_type
from dodona_wire.rows.type_names import DICT, LIST, NESTED, OPTIONAL, STRUCT, TYPE_DEPTH_MAX
from dodona_wire.shown import shown
from dodona_ytsaurus.terms.parameters import plain

TYPES_V3: Final = {it.type_v3: it.name for it in TYPES.values()}
DECIMAL: Final = "decimal"
"""A type of YTsaurus that has parameters, and therefore no name of one word. Only `type_v3` has
it: `type` says string."""


def member_of_v3(name: str, v3: Any, depth: int = 0) -> Member:
    """Return the type of a column or of a part of one. Raises SchemaViolation."""
    if depth > 2 * TYPE_DEPTH_MAX + 1:
        raise SchemaViolation(f"A column's types are nested at most {TYPE_DEPTH_MAX} deep.")
    v3 = plain(v3)
    if isinstance(v3, Mapping) and v3.get("type_name") == OPTIONAL:
        return Member(name, _kind(plain(v3.get("item")), depth), True)
    return Member(name, _kind(v3, depth), False)


def _kind(v3: Any, depth: int) -> LogicalType:
    if isinstance(v3, str):
        found = TYPES_V3.get(v3)
        if found is not None:
            return TYPES[found]
    if isinstance(v3, Mapping):
        word = v3.get("type_name")
        if word == DECIMAL:
            return _decimal(plain(v3.get("precision")), plain(v3.get("scale")))
        if word in NESTED:
            # By its name, so that the limits of names hold.
            return logical_type(_nested(str(word), v3, depth + 1).name)
        if word in TYPES_V3:
            return TYPES[TYPES_V3[word]]
    known = ", ".join([*TYPES_V3, DECIMAL, *NESTED])
    text = f"A column's type_v3 must be one of {known}, or optional of these, not {shown(v3)}."
    raise SchemaViolation(text[:500])


def _decimal(precision: Any, scale: Any) -> LogicalType:
    if not isinstance(precision, int) or not isinstance(scale, int):
        raise SchemaViolation("The type_v3 decimal needs whole numbers precision and scale.")
    return decimal_type(int(precision), int(scale))


def _nested(word: str, v3: Mapping[str, Any], depth: int) -> LogicalType:
    if word == LIST:
        return list_type(member_of_v3("item", _given(v3, "item", word), depth))
    if word == DICT:
        key, value = (member_of_v3(it, _given(v3, it, word), depth) for it in ("key", "value"))
        return dict_type(key, value)
    fields = _given(v3, "members", word)
    if not isinstance(fields, list) or not fields:
        raise SchemaViolation("The type_v3 struct needs a list of one or more members.")
    return struct_type([_field(plain(it), depth) for it in fields])


def _given(v3: Mapping[str, Any], field: str, word: str) -> Any:
    found = plain(v3.get(field))
    if found is None:
        raise SchemaViolation(f"The type_v3 {word} needs {field}.")
    return found


def _field(given: Any, depth: int) -> Member:
    name = plain(given.get("name")) if isinstance(given, Mapping) else None
    if not isinstance(name, str):
        raise SchemaViolation("A member of the type_v3 struct needs a name and a type.")
    return member_of_v3(name, _given(given, "type", f"of the member {shown(name)}"), depth)


def v3_of_member(member: Member) -> Any:
    """Return the `type_v3` of a column or of a part of one."""
    v3 = _v3(member.kind)
    return {"type_name": OPTIONAL, "item": v3} if member.is_optional else v3


def _v3(kind: LogicalType) -> Any:
    if kind.form == DECIMAL:
        return {"type_name": DECIMAL, "precision": kind.precision, "scale": kind.scale}
    if kind.form == STRUCT:
        fields = [{"name": it.name, "type": v3_of_member(it)} for it in kind.members]
        return {"type_name": STRUCT, "members": fields}
    if kind.members:
        return {"type_name": kind.form} | {it.name: v3_of_member(it) for it in kind.members}
    return kind.type_v3
