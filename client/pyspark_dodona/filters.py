"""Filters that Spark pushes down, as ranges of keys and as Arrow expressions over columns.

Owns: their meaning, which must be Spark's also for null and NaN. Spark does not check rows again
after a filter that was handled. NaN equals itself and is above all numbers, 0.0 equals -0.0, and a
comparison with null is null. A filter that can't be converted exactly is left to Spark. Values are
compared in the types of the table, not in those of Spark, which has decimals for uint64.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from dodona._core.sql.pushdown import RANGES_MAX, Interval, fewest, intersection, key_ranges
from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import store_of
from dodona_wire.rows.schema import Column, TableSchema
from pyspark_dodona.ranges import Range

if TYPE_CHECKING:
    import pyarrow.compute

NO_VALUE: Final = object()
"""Stands for a constant that has no equal in the type of the column."""

_EVERYTHING: Final[Interval] = (None, None)
_LAST_CHARACTER: Final = chr(0x10FFFF)
_SURROGATES: Final = range(0xD800, 0xE000)
_PUSHED_FORMS: Final = ("integer", "date", "seconds", "microseconds", "decimal")
_RANGED: Final = ("int64", "uint64", "double", "string", "utf8")

_Comparison = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
_Match = StringStartsWith | StringEndsWith | StringContains


# ---- as Arrow expressions


def expression_of(
    columns: Sequence[Column], condition: Filter
) -> "pyarrow.compute.Expression | None":
    """Return an expression that is true for exactly the rows that Spark keeps. None if Spark must
    apply the filter itself."""
    if isinstance(condition, Not):
        inner = expression_of(columns, condition.child)
        return None if inner is None else ~inner
    column = _column_of(columns, condition)
    if column is None:
        return None
    if isinstance(condition, IsNull | IsNotNull):
        import pyarrow.compute

        field = pyarrow.compute.field(column.name)
        return field.is_null() if isinstance(condition, IsNull) else field.is_valid()
    if isinstance(condition, EqualNullSafe):
        return _equal_null_safe(column, condition.value)
    if isinstance(condition, In):
        return _is_in(column, condition.value)
    if isinstance(condition, _Comparison):
        return _compared(column, condition)
    if isinstance(condition, _Match):
        return _matched(column, condition)
    return None


def _column_of(columns: Sequence[Column], condition: Filter) -> Column | None:
    path = getattr(condition, "attribute", ())
    return next((it for it in columns if (it.name,) == tuple(path)), None)


def _constant(column: Column, value: Any) -> Any:
    """Return the value in the type of the column, or NO_VALUE."""
    if not column.logical.is_stored:
        return _logical_constant(column, value)
    match column.type, value:
        case "int64" | "uint64", Decimal() if value == value.to_integral_value():
            value = int(value)
    match column.type, value:
        case "boolean", bool():
            return value
        case "int64", int() if type(value) is int and -(1 << 63) <= value < 1 << 63:
            return value
        case "uint64", int() if type(value) is int and 0 <= value < 1 << 64:
            return value
        case "double", float() if not math.isnan(value):
            return value
        case "utf8", str():
            return value
        case "string" | "any", bytes() | bytearray():
            return bytes(value)
    return NO_VALUE


def _logical_constant(column: Column, value: Any) -> Any:
    """Texts, intervals and floats have no constants: Spark may compare them in another way."""
    kind = column.logical
    if kind.form in ("seconds", "microseconds") and getattr(value, "tzinfo", None) is None:
        return NO_VALUE
    if kind.form not in _PUSHED_FORMS:
        return NO_VALUE
    try:
        store_of(kind)(value, column.name)
    except SchemaViolation:
        return NO_VALUE
    return value


def _scalar(column: Column, value: Any) -> "pyarrow.compute.Expression":
    import pyarrow.compute

    return pyarrow.compute.scalar(pyarrow.scalar(value, arrow_type(column)))


def _compared(column: Column, condition: _Comparison) -> "pyarrow.compute.Expression | None":
    import pyarrow.compute

    value = _constant(column, condition.value)
    if value is NO_VALUE:
        return None
    field, constant = pyarrow.compute.field(column.name), _scalar(column, value)
    if isinstance(condition, EqualTo):
        return field == constant
    if column.type == "boolean":
        return None  # Arrow does not order booleans
    if isinstance(condition, LessThan):
        return field < constant
    if isinstance(condition, LessThanOrEqual):
        return field <= constant
    is_above = field > constant if isinstance(condition, GreaterThan) else field >= constant
    return is_above | field.is_nan() if column.type == "double" else is_above


def _equal_null_safe(column: Column, value: Any) -> "pyarrow.compute.Expression | None":
    import pyarrow.compute

    field = pyarrow.compute.field(column.name)
    if value is None:
        return field.is_null()
    constant = _constant(column, value)
    if constant is NO_VALUE:
        return None
    return pyarrow.compute.coalesce(field == _scalar(column, constant), pyarrow.scalar(False))


def _is_in(column: Column, values: Sequence[Any]) -> "pyarrow.compute.Expression | None":
    """Return the expression of `IN`. It is null if the column is null. It is also null if no value
    equals the column and one of the values is null."""
    import pyarrow.compute

    constants = [_constant(column, it) for it in values if it is not None]
    if NO_VALUE in constants:
        return None
    if column.type == "double":
        constants = [other for it in constants for other in ((0.0, -0.0) if it == 0 else (it,))]
    field = pyarrow.compute.field(column.name)
    is_found = field.isin(pyarrow.array(constants, arrow_type(column)))
    nothing = pyarrow.scalar(None, pyarrow.bool_())
    if None in values:
        is_found = pyarrow.compute.if_else(is_found, True, nothing)
    return pyarrow.compute.if_else(field.is_valid(), is_found, nothing)


def _matched(column: Column, condition: _Match) -> "pyarrow.compute.Expression | None":
    import pyarrow.compute

    if column.type != "utf8" or not isinstance(condition.value, str):
        return None
    functions = {
        StringStartsWith: pyarrow.compute.starts_with,
        StringEndsWith: pyarrow.compute.ends_with,
        StringContains: pyarrow.compute.match_substring,
    }
    field = pyarrow.compute.field(column.name)
    return functions[type(condition)](field, pattern=condition.value)


# ---- as a range of keys


def key_range_of(schema: TableSchema, conditions: Sequence[Filter]) -> Range:
    """Return a range that has all rows that all filters keep. It may also have other rows."""
    columns = schema.key_columns

    def interval_of(place: int, kind: LogicalType) -> Interval:
        if kind.name not in _RANGED and kind.form not in _PUSHED_FORMS:
            return _EVERYTHING
        own = [it for it in conditions if _column_of(columns, it) == columns[place]]
        ends = intersection(*[_interval(columns[place], it) for it in own])
        least, greatest = (None if it is None else _stored(columns[place], it) for it in ends)
        return least, greatest

    def points_of(place: int, kind: LogicalType) -> frozenset[Any] | None:
        column = columns[place]
        if kind.name not in _RANGED and kind.form not in _PUSHED_FORMS:
            return None
        own = [it for it in conditions if _column_of(columns, it) == column]
        return fewest([_points(column, it) for it in own])

    ranges = key_ranges(schema, interval_of, points_of)
    lower, upper = ranges[0][0], ranges[-1][1]
    return Range(schema.load_bound(lower or None), schema.load_bound(upper))


def _points(column: Column, condition: Filter) -> frozenset[Any] | None:
    """Return the stored values of the column if the condition is true; None if there may be
    others."""
    given: Sequence[Any] = ()
    if isinstance(condition, In):
        given = [it for it in condition.value if it is not None]
    elif isinstance(condition, EqualTo):
        given = [condition.value]
    constants = [_constant(column, it) for it in given[: RANGES_MAX + 1]]
    if not constants or len(constants) > RANGES_MAX or NO_VALUE in constants:
        return None
    return frozenset([_stored(column, it) for it in constants])


def _stored(column: Column, value: Any) -> Any:
    kind = column.logical
    return value if kind.is_stored else store_of(kind)(value, column.name)


def _interval(column: Column, condition: Filter) -> Interval:
    """Return the range of the column's values if the condition is true, both ends included."""
    if isinstance(condition, In):
        constants = [_constant(column, it) for it in condition.value if it is not None]
        if NO_VALUE in constants or not constants:
            return _EVERYTHING
        return min(constants), max(constants)
    if isinstance(condition, StringStartsWith) and column.type == "utf8":
        return condition.value, _behind_prefix(condition.value)
    if not isinstance(condition, _Comparison | EqualNullSafe):
        return _EVERYTHING
    value = _constant(column, condition.value)
    if value is NO_VALUE:
        return _EVERYTHING
    if isinstance(condition, EqualTo | EqualNullSafe):
        return value, value
    is_below = isinstance(condition, LessThan | LessThanOrEqual)
    return (None, value) if is_below else (value, None)


def _behind_prefix(prefix: str) -> str | None:
    """Return a text that is above all texts with this prefix. None if there is none."""
    prefix = prefix.rstrip(_LAST_CHARACTER)
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return prefix[:-1] + chr(following)
