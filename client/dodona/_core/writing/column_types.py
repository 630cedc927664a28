"""Which column type holds the values of an Arrow column, or of Python values. Pure.

Owns: the only table of both. A table that is made like a frame gets its columns from it. Owns also
the advice for Arrow types that no column type holds. The other direction, from a column type to
its Arrow type, is in `dodona_wire.rows.arrow`. `arrow_casting` says what an existing column takes.
To add a column type, extend `_ARROW` and `_PYTHON`, and remove its advice.
pyarrow is imported on first use.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.schema import ColumnType
from dodona_wire.shown import shown

_ARROW: Final[tuple[tuple[ColumnType, tuple[str, ...]], ...]] = (
    ("boolean", ("is_boolean",)),
    ("int64", ("is_signed_integer",)),
    ("uint64", ("is_unsigned_integer",)),
    ("double", ("is_floating",)),
    ("utf8", ("is_string", "is_large_string", "is_string_view")),
    (
        "string",
        ("is_binary", "is_large_binary", "is_binary_view", "is_fixed_size_binary"),
    ),
)
"""For each column type, the tests in `pyarrow.types` of which one is true for its Arrow types."""
_EXTENSIONS: Final[dict[str, ColumnType]] = {
    "arrow.bool8": "boolean",
    "arrow.json": "any",
    "arrow.uuid": "string",
}
"""The column type of each extension type of Arrow, by its name."""
_PYTHON: Final[dict[frozenset[type], ColumnType]] = {
    frozenset({bool}): "boolean",
    frozenset({int}): "int64",
    frozenset({float}): "double",
    frozenset({int, float}): "double",
    frozenset({str}): "utf8",
    frozenset({bytes}): "string",
    frozenset({dict}): "any",
    frozenset({list}): "any",
    frozenset({dict, list}): "any",
}
"""The column type for Python values of these types beside each other."""
_ADVICE: Final = (
    ("is_timestamp", "Convert it to int64 first, such as to microseconds since 1970."),
    ("is_date", "Convert it to int64 first, such as to days since 1970, or to text."),
    ("is_time", "Convert it to int64 first, such as to microseconds since midnight."),
    ("is_duration", "Convert it to int64 first, such as to microseconds."),
    ("is_interval", "Convert it to int64 first, or to text."),
    ("is_decimal", "Convert it to text, or to double if it may be rounded."),
    ("is_nested", "Convert it to JSON text, or to MessagePack for a column of type any."),
    ("is_null", "It has only nulls, so give the schema of the table."),
)
"""For tests in `pyarrow.types`: what to do with a column for which one is true."""
DEPTH_MAX: Final = 8
"""How deep dictionaries and runs may be nested."""


def column_type_of(arrow_type: Any) -> ColumnType | None:
    """Return the column type that holds all values of an Arrow type, or None if there is none."""
    import pyarrow

    types = pyarrow.types
    for _ in range(DEPTH_MAX):
        if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
            arrow_type = arrow_type.value_type
    if isinstance(arrow_type, pyarrow.BaseExtensionType):
        return _EXTENSIONS.get(arrow_type.extension_name)
    for column_type, tests in _ARROW:
        if any(getattr(types, it)(arrow_type) for it in tests):
            return column_type
    return None


def advice_for(arrow_type: Any) -> str:
    """Return what to do with a column of an Arrow type that no column takes. It may be empty."""
    import pyarrow

    for test, advice in _ADVICE:
        if getattr(pyarrow.types, test)(arrow_type):
            return advice
    return ""


def type_of_values(values: Iterable[Any], column: str) -> ColumnType:
    """Return the column type for Python values. None is null. Raises SchemaViolation if there are
    only nulls, or if no type holds all of the values."""
    given = [it for it in values if it is not None]
    if not given:
        text = f"column {column!r} has only nulls: give the schema of the table"
        raise SchemaViolation(text, column=column)
    kinds = {_kind_of(it) for it in given}
    found = _PYTHON.get(frozenset(kinds))
    if int in kinds and found is not None:
        found = _type_of_numbers([it for it in given if _kind_of(it) is int], found, column)
    if found is None:
        names = ", ".join(sorted(it.__name__ for it in kinds))
        text = f"no column type holds all values of column {column!r}, which have types {names}"
        raise SchemaViolation(text, column=column)
    return found


def _type_of_numbers(ints: Sequence[int], found: ColumnType, column: str) -> ColumnType:
    """Return the column type that holds these integers, beside floats if it is double. Raises
    SchemaViolation if no type holds all of them."""
    least, most = min(ints), max(ints)
    if found == "double":
        if all(is_exact_double(it) for it in ints):
            return found
    elif least >= -(1 << 63) and most < 1 << 63:
        return "int64"
    elif least >= 0 and most < 1 << 64:
        return "uint64"
    text = f"no column type holds all values of column {column!r}: {shown(least)} to {shown(most)}"
    raise SchemaViolation(text, column=column)


def is_exact_double(number: int) -> bool:
    """Return whether a double has this value."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _kind_of(value: Any) -> type:
    """Return the built-in type of a value, also of a subclass: numpy's floats are floats."""
    if isinstance(value, Mapping):
        return dict
    if isinstance(value, list | tuple):
        return list
    return next((it for it in (bool, int, float, str, bytes) if isinstance(value, it)), type(value))
