"""Which column type holds the values of an Arrow column, or of Python values. Pure.

Owns: the only table of both. A table that is made like a frame gets its columns from it. Owns also
the advice for Arrow types that no column type holds. The other direction, from a column type to
its Arrow type, is in `logical_types`. `arrow_casting` says what an existing column takes.
Times get the types that begin in the year 1, because a later row may be before 1970.
pyarrow is imported on first use.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID  # noqa: TID251 - the type of values; no id is made

from dodona._core.writing.nested_column_types import (
    nested_type_of,
    type_of_dicts,
    type_of_lists,
)
from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.columns import ColumnType
from dodona_wire.rows.logical_types import PRECISION_MAX, SQL_PRECISION_MAX
from dodona_wire.rows.logical_values import no_zone
from dodona_wire.rows.nested_values import is_numpy_array
from dodona_wire.rows.value_rules import plain_scalar
from dodona_wire.rows.values import double_of
from dodona_wire.shown import shown

_ARROW: Final[tuple[tuple[ColumnType, tuple[str, ...]], ...]] = (
    ("boolean", ("is_boolean",)),
    *((it, (f"is_{it}",)) for it in ("int8", "int16", "int32", "int64")),
    *((it, (f"is_{it}",)) for it in ("uint8", "uint16", "uint32", "uint64")),
    ("float", ("is_float16", "is_float32")),
    ("double", ("is_float64",)),
    ("utf8", ("is_string", "is_large_string", "is_string_view")),
    (
        "string",
        ("is_binary", "is_large_binary", "is_binary_view", "is_fixed_size_binary"),
    ),
    ("date32", ("is_date",)),
    ("interval64", ("is_duration",)),
)
"""For each column type, the tests in `pyarrow.types` of which one is true for its Arrow types."""
_EXTENSIONS: Final[dict[str, ColumnType]] = {
    "arrow.bool8": "boolean",
    "arrow.json": "any",
    "arrow.uuid": "uuid",
}
"""The column type of each extension type of Arrow, by its name."""
_PYTHON: Final[dict[frozenset[type], ColumnType]] = {
    frozenset({bool}): "boolean",
    frozenset({float}): "double",
    frozenset({str}): "utf8",
    frozenset({bytes}): "string",
    frozenset({dict, list}): "any",
    frozenset({date}): "date32",
    frozenset({timedelta}): "interval64",
    frozenset({UUID}): "uuid",
}
"""The column type for Python values of these types beside each other."""
_KINDS: Final = (bool, int, float, str, bytes, datetime, date, timedelta, Decimal, UUID)
"""The types of values. A subclass stands before the type above it."""
_ADVICE: Final = (
    ("is_timestamp", "Convert it to int64 first, such as to microseconds since 1970."),
    ("is_date", "Convert it to int64 first, such as to days since 1970, or to text."),
    ("is_duration", "Convert it to int64 first, such as to microseconds."),
    ("is_time", "Convert it to int64 first, such as to microseconds since midnight."),
    ("is_interval", "Convert it to int64 first, or to text."),
    ("is_decimal", "Convert it to text, or to double if it may be rounded."),
    ("is_map", "Use keys that are text, bytes or whole numbers."),
    ("is_nested", "Give the column a type with the same parts, such as list<utf8>."),
    ("is_null", "It has only nulls, so give the schema of the table."),
)
"""For tests in `pyarrow.types`: what to do with data for which one is true, if the column has
another type."""
_NAIVE: Final = "It has no time zone. Give it one first, such as UTC."
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
    if types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return "datetime64" if arrow_type.unit == "s" else "timestamp64"
    if types.is_nested(arrow_type):
        return nested_type_of(arrow_type, column_type_of)
    if types.is_decimal(arrow_type):
        return _decimal(arrow_type.precision, arrow_type.scale)
    for column_type, tests in _ARROW:
        if any(getattr(types, it)(arrow_type) for it in tests):
            return column_type
    return None


def _decimal(precision: int, scale: int) -> ColumnType | None:
    is_possible = 1 <= precision <= PRECISION_MAX and 0 <= scale <= precision
    return f"decimal({precision},{scale})" if is_possible else None


def advice_for(arrow_type: Any) -> str:
    """Return what to do with a column of an Arrow type that no column takes. It may be empty."""
    import pyarrow

    if pyarrow.types.is_timestamp(arrow_type) and arrow_type.tz is None:
        return _NAIVE
    for test, advice in _ADVICE:
        if getattr(pyarrow.types, test)(arrow_type):
            return advice
    return ""


def type_of_values(values: Iterable[Any], column: str) -> ColumnType:
    """Return the column type for Python values. None is null. Raises SchemaViolation if there are
    only nulls, or if no type holds all of the values."""
    given = [plain_scalar(it) for it in values if it is not None]
    if not given:
        text = f"column {column!r} has only nulls: give the schema of the table"
        raise SchemaViolation(text, column=column)
    kinds = {_kind_of(it) for it in given}
    if decide := _BY_VALUES.get(frozenset(kinds)):
        return decide(given, column)
    found = _PYTHON.get(frozenset(kinds))
    if found is None:
        names = ", ".join(sorted(it.__name__ for it in kinds))
        text = f"no column type holds all values of column {column!r}, which have types {names}"
        raise SchemaViolation(text, column=column)
    return found


def _none_holds(ints: list[int], column: str) -> SchemaViolation:
    least, most = shown(min(ints)), shown(max(ints))
    text = f"no column type holds all values of column {column!r}: {least} to {most}"
    return SchemaViolation(text, column=column)


def _kind_of(value: Any) -> type:
    """Return the built-in type of a value, also of a subclass: numpy's floats are floats."""
    if isinstance(value, Mapping):
        return dict
    if isinstance(value, list | tuple) or is_numpy_array(value):
        return list
    return next((it for it in _KINDS if isinstance(value, it)), type(value))


def _type_of_ints(values: list[Any], column: str) -> ColumnType:
    least, most = min(values), max(values)
    if least >= -(1 << 63) and most < 1 << 63:
        return "int64"
    if least >= 0 and most < 1 << 64:
        return "uint64"
    raise _none_holds(values, column)


def _type_of_doubles(values: list[Any], column: str) -> ColumnType:
    for it in values:
        if _kind_of(it) is int:
            double_of(it, column)  # raises SchemaViolation if no double is equal to it
    return "double"


def _type_of_moments(values: list[Any], column: str) -> ColumnType:
    """Without a time zone there is no moment, so no column type holds them."""
    if any(it.utcoffset() is None for it in values):
        raise no_zone(column)
    return "timestamp64"


def _type_of_decimals(values: list[Any], column: str) -> ColumnType:
    """As many digits behind the point as the values have, and as many digits as SQL has, or more if
    the values have more."""
    parts = [Decimal(it).as_tuple() for it in values]
    exponents = [it.exponent for it in parts]
    if not all(isinstance(it, int) for it in exponents):
        text = f"column {column!r} has a decimal that is no finite number"
        raise SchemaViolation(text, column=column)
    scale = max(0, *(-int(it) for it in exponents))
    whole = max(len(it.digits) + int(it.exponent) for it in parts)
    precision = max(SQL_PRECISION_MAX, max(0, whole) + scale)
    found = _decimal(precision, scale)
    if found is None:
        text = f"column {column!r} has decimals of {precision} digits, more than {PRECISION_MAX}"
        raise SchemaViolation(text, column=column)
    return found


_BY_VALUES: Final[dict[frozenset[type], Callable[[list[Any], str], ColumnType]]] = {
    frozenset({int}): _type_of_ints,
    frozenset({int, float}): _type_of_doubles,
    frozenset({datetime}): _type_of_moments,
    frozenset({Decimal}): _type_of_decimals,
    frozenset({Decimal, int}): _type_of_decimals,
    frozenset({list}): lambda values, column: type_of_lists(values, column, type_of_values),
    frozenset({dict}): lambda values, column: type_of_dicts(values, column, type_of_values),
}
"""Types of Python whose column type depends on the values."""
