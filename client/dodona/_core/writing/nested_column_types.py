"""Which nested type holds the values of an Arrow column, or of Python values. Pure.

Owns: the rules for lists, structs and dicts. `column_types` has the types inside.
An Arrow type says what may be null. Values of Python do not, so there every part is optional: a
later row may have null. Parts without a common type, or without a value, are of type any. So are
dicts with different keys: a later row may have other keys. pyarrow is imported on first use.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.columns import ColumnType
from dodona_wire.rows.logical_types import logical_type
from dodona_wire.rows.nested_types import KEY_TYPES
from dodona_wire.rows.nested_values import is_numpy_array
from dodona_wire.rows.type_names import OPTIONAL, field_word
from dodona_wire.rows.value_rules import items_of_array
from dodona_wire.rows.values import CHECKS

TypeOf = Callable[[Any], ColumnType | None]
TypeOfValues = Callable[[list[Any], str], ColumnType]
ANY: Final = "any"


def nested_type_of(arrow_type: Any, type_of: TypeOf) -> ColumnType | None:
    """Return the type that holds all values of a nested type of Arrow, or None if there is none."""
    import pyarrow

    types = pyarrow.types
    if types.is_map(arrow_type):
        key = type_of(arrow_type.key_type)
        value = _inside(arrow_type.item_field, type_of)
        is_possible = value is not None and key in KEY_TYPES
        return _checked(f"dict<{key},{value}>") if is_possible else None
    if types.is_struct(arrow_type):
        parts = [(it.name, _inside(it, type_of)) for it in arrow_type]
        if not parts or any(found is None for _, found in parts):
            return None
        return _checked(_struct([(name, str(found)) for name, found in parts]))
    is_list = hasattr(arrow_type, "value_field")
    item = _inside(arrow_type.value_field, type_of) if is_list else None
    return None if item is None else _checked(f"list<{item}>")


def _inside(field: Any, type_of: TypeOf) -> str | None:
    found = type_of(field.type)
    return f"{OPTIONAL}<{found}>" if found is not None and field.nullable else found


def _struct(parts: Sequence[tuple[str, str]]) -> ColumnType:
    return f"struct<{','.join([f'{field_word(name)}:{found}' for name, found in parts])}>"


def _checked(name: str) -> ColumnType | None:
    """Return the name, or None for a type that no column has: it is too long or too deep."""
    try:
        return logical_type(name).name
    except SchemaViolation:
        return None


def type_of_lists(values: list[Any], column: str, type_of: TypeOfValues) -> ColumnType:
    """Return the type for lists of Python. Raises SchemaViolation."""
    lists = [items_of_array(it) if is_numpy_array(it) else it for it in values]
    item = _common([*chain.from_iterable(lists)], column, type_of)
    return _checked(f"list<{item}>") or _any(values, column)


def type_of_dicts(
    values: list[Mapping[Any, Any]], column: str, type_of: TypeOfValues
) -> ColumnType:
    """Return the type for dicts of Python. Raises SchemaViolation."""
    names = [*values[0]]
    are_alike = all(len(it) == len(names) and set(it) == set(names) for it in values)
    if not names or not are_alike or not all(isinstance(it, str) for it in names):
        return _any(values, column)
    parts = [(name, _common([it[name] for it in values], column, type_of)) for name in names]
    return _checked(_struct(parts)) or _any(values, column)


def _common(values: Sequence[Any], column: str, type_of: TypeOfValues) -> str:
    """Return the type of parts that may be null. Without a value, it may be any."""
    given = [it for it in values if it is not None]
    try:
        found = type_of(given, column) if given else ANY
    except SchemaViolation:
        found = _any(given, column)
    return f"{OPTIONAL}<{found}>"


def _any(values: Sequence[Any], column: str) -> ColumnType:
    """Return the type any, if it holds all of the values. Raises SchemaViolation."""
    check = CHECKS[ANY]
    try:
        for value in values:
            check(value, column)
    except SchemaViolation as error:
        text = f"no column type holds all values of column {column!r}: {error.message}"
        raise SchemaViolation(text, column=column) from error
    return ANY
