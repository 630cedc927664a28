"""Types that have types inside: lists, structs and dicts. Pure.

Owns: which types may be inside, and the table's entry of a nested type. `type_names` has the
grammar of the names. The other types come from `logical_types`, which calls this module.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.column_kinds import Form, LogicalType, Member
from dodona_wire.rows.type_names import (
    DICT,
    FIELD_LENGTH_MAX,
    LIST,
    NESTED,
    OPTIONAL,
    STRUCT,
    TypeName,
    field_word,
)
from dodona_wire.shown import shown

KEY_TYPES: Final = (
    "utf8", "string", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip
"""The types of the keys of a dict."""
Find = Callable[[str], LogicalType]
"""Returns a type that is not nested, by its name. Raises SchemaViolation."""
IsWider = Callable[[LogicalType, LogicalType], bool]

EXAMPLES: Final = {
    **dict.fromkeys(("list", "array"), "list<int64>"),
    "struct": "struct<id:int64,name:utf8>",
    **dict.fromkeys(("dict", "map"), "dict<utf8,int64>"),
    OPTIONAL: "list<optional<int64>>",
}


def nested_of_name(name: TypeName, find: Find) -> LogicalType:
    """Return the type of this name. Raises SchemaViolation."""
    word, parts = name
    if not parts:
        return find(word)
    if word == OPTIONAL:
        raise SchemaViolation(
            "optional<T> is for types inside lists, structs and dicts. Columns and optional types "
            "may be null anyway: write the type alone"
        )
    if word not in NESTED:
        near = f" Write {EXAMPLES[word]}." if word in EXAMPLES else ""
        raise SchemaViolation(
            f"the types with types inside are {', '.join(NESTED)}, not {shown(word)}.{near}"
        )
    if word == STRUCT:
        return struct_type([_member(*it, find) for it in parts])
    count = 1 if word == LIST else 2
    if len(parts) != count:
        raise SchemaViolation(f"write a {word} as {EXAMPLES[word]}: it has {count} types inside")
    if word == LIST:
        return list_type(_member("item", parts[0][1], find))
    return dict_type(_member("key", parts[0][1], find), _member("value", parts[1][1], find))


def _member(name: str, given: TypeName, find: Find) -> Member:
    if given.word != OPTIONAL or not given.parts:
        return Member(name, nested_of_name(given, find))
    if len(given.parts) != 1:
        raise SchemaViolation(f"write {EXAMPLES[OPTIONAL]}: optional has one type inside")
    return Member(name, nested_of_name(given.parts[0][1], find), is_optional=True)


def _nested(
    form: Form, name: str, arrow: str, sql: str, text: str, members: tuple[Member, ...]
) -> LogicalType:
    return LogicalType(
        name=name,
        stored="any",
        form=form,
        python="`list`" if form == LIST else "`dict`",
        arrow=arrow,
        sql=sql,
        type_v3=form,
        pandas="object",
        text=text,
        members=members,
    )


def list_type(item: Member) -> LogicalType:
    """Return the type of lists of such items."""
    name = f"{LIST}<{item.type_name}>"
    return _nested(
        "list", name, f"list<{_arrow_field(item)}>", f"{item.kind.sql}[]", "array", (item,)
    )


def struct_type(fields: Sequence[Member]) -> LogicalType:
    """Return the type of structs with these fields. Raises SchemaViolation."""
    names = [it.name for it in fields]
    for name in names:
        if not 0 < len(name) <= FIELD_LENGTH_MAX or not _is_text(name):
            raise SchemaViolation(
                f"the name of a field has 1 to {FIELD_LENGTH_MAX} characters of Unicode, not "
                f"{shown(name)}"
            )
    if len(set(names)) < len(names):
        twice = next(it for it in names if names.count(it) > 1)
        raise SchemaViolation(f"a struct has two fields of the name {shown(twice)}")
    inside = ",".join([f"{field_word(it.name)}:{it.type_name}" for it in fields])
    sql = ", ".join([f'"{it.name.replace(chr(34), 2 * chr(34))}" {it.kind.sql}' for it in fields])
    arrow = ", ".join(map(_arrow_field, fields))
    return _nested(
        "struct", f"{STRUCT}<{inside}>", f"struct<{arrow}>", f"STRUCT({sql})", "object",
        tuple(fields),
    )  # fmt: skip


def dict_type(key: Member, value: Member) -> LogicalType:
    """Return the type of dicts with such keys and values. Raises SchemaViolation."""
    if key.is_optional or key.kind.name not in KEY_TYPES:
        raise SchemaViolation(
            f"the keys of a dict are one of {', '.join(KEY_TYPES)}, not {key.type_name}"
        )
    name = f"{DICT}<{key.type_name},{value.type_name}>"
    arrow = f"map<{key.kind.arrow}, {value.kind.arrow}>"
    sql = f"MAP({key.kind.sql}, {value.kind.sql})"
    return _nested("dict", name, arrow, sql, "object", (key, value))


def _arrow_field(member: Member) -> str:
    return f"{member.name}: {member.kind.arrow}{'' if member.is_optional else ' not null'}"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def leaves_of(kind: LogicalType) -> Iterator[LogicalType]:
    """Yield the types inside that have no types inside; the type itself if it has none."""
    if not kind.members:
        yield kind
    for member in kind.members:
        yield from leaves_of(member.kind)


def structs_of(kind: LogicalType) -> Iterator[LogicalType]:
    """Yield the structs of a type, also the type itself."""
    if kind.form == STRUCT:
        yield kind
    for member in kind.members:
        yield from structs_of(member.kind)


# ---- changes


def are_wider(narrow: LogicalType, wide: LogicalType, is_wider: IsWider) -> bool:
    """Return whether each stored value of a nested type is one of another of the same form.
    Fields may come behind the others if they are optional: values without them read as null."""
    added = wide.members[len(narrow.members) :]
    if len(wide.members) < len(narrow.members) or not all(it.is_optional for it in added):
        return False
    pairs = zip(narrow.members, wide.members, strict=False)
    return all(
        was.name == now.name
        and now.is_optional >= was.is_optional
        and (was.kind == now.kind or is_wider(was.kind, now.kind))
        for was, now in pairs
    )
