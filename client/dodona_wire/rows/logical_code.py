"""Python text for logical types, from which `row_code` makes the functions of a schema.

Owns: for each type the test of plain values, and the expressions that convert them. `{0}` is the
name of the value. What is plain is the common case only: `logical_values` has all cases, and gives
the same results. Pure.
"""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID  # noqa: TID251 - the type of values; no id is made

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.logical_bytes import EXACT_TIMES, plain_decimal_of, sign_of, unit_of
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import (
    DATES,
    EPOCH,
    EPOCH_ORDINAL,
    FLOAT_MAX,
    MICROSECOND,
    SECOND,
    check_json,
    load_of,
    single,
)

JSON_BYTES_MAX: Final = 1 << 16
"""Bytes of a plain JSON text."""


class TypeCode(NamedTuple):
    """The text of one type."""

    test: str
    """Whether a user's value is plain."""
    store: str = "{0}"
    """The stored form of a plain value, behind the test."""
    load: str = "{0}"
    """The user's value of a stored one."""
    scope: tuple[tuple[str, Any], ...] = ()
    """The names that the texts use, and what they mean."""


@lru_cache(4096)
def code_of(kind: LogicalType) -> TypeCode:
    """Return the text of a logical type. No value of a nested type is plain."""
    match kind.form:
        case "integer":
            return TypeCode(f"type({{0}}) is int and {kind.lowest} <= {{0}} <= {kind.highest}")
        case "float":
            test = f"type({{0}}) is float and {-FLOAT_MAX!r} <= {{0}} <= {FLOAT_MAX!r}"
            return TypeCode(test, "single({0})", scope=(("single", single),))
        case "date" | "seconds" | "microseconds" | "interval":
            return _time_code(kind)
        case "uuid":
            scope = (("UUID", UUID), ("load_uuid", load_of(kind)))
            return TypeCode("type({0}) is UUID", "{0}.bytes", "load_uuid({0})", scope)
        case "decimal":
            return _decimal_code(kind)
        case "list" | "struct" | "dict":
            load = f"load_{kind.name.encode().hex()}"
            return TypeCode("False", load=f"{load}({{0}})", scope=((load, load_of(kind)),))
    test = f"type({{0}}) is str and len({{0}}) <= {JSON_BYTES_MAX} and {{0}}.isascii()"
    return TypeCode(f"{test} and is_json({{0}})", scope=(("is_json", _is_json),))


def _time_code(kind: LogicalType) -> TypeCode:
    """The ends are compared as users' values, which are named after the type."""
    low, high = f"{kind.name}_low", f"{kind.name}_high"
    load = load_of(kind)
    ends = ((low, load(kind.lowest)), (high, load(kind.highest)))
    scope: tuple[tuple[str, Any], ...]
    within = f"{low} <= {{0}} <= {high}"
    if kind.form == "date":
        scope = (("date", date), ("date_of", DATES), *ends)
        return TypeCode(
            f"type({{0}}) is date and {within}",
            f"{{0}}.toordinal() - {EPOCH_ORDINAL}",
            "date_of[{0}]",
            scope,
        )
    if kind.form == "interval":
        scope = (("timedelta", timedelta), ("microsecond", MICROSECOND), *ends)
        test = f"type({{0}}) is timedelta and {within}"
        return TypeCode(test, "{0} // microsecond", "{0} * microsecond", scope)
    is_second = kind.form == "seconds"
    unit, size = ("second", SECOND) if is_second else ("microsecond", MICROSECOND)
    scope = (("datetime", datetime), ("utc", UTC), ("epoch", EPOCH), (unit, size), *ends)
    test = f"type({{0}}) is datetime and {{0}}.tzinfo is utc and {within}"
    if is_second:
        test = f"{test} and not {{0}}.microsecond"
    return TypeCode(test, f"({{0}} - epoch) // {unit}", f"epoch + {{0}} * {unit}", scope)


def _decimal_code(kind: LogicalType) -> TypeCode:
    """The test converts the value, and keeps the stored form under a name of its own."""
    name = f"decimal_{kind.precision}_{kind.scale}"
    scope = (
        ("Decimal", Decimal),
        ("number_of", int.from_bytes),
        ("times", EXACT_TIMES),
        (f"plain_{name}", plain_decimal_of(kind)),
        (f"unit_{name}", unit_of(kind)),
    )
    test = f"type({{0}}) is Decimal and ({{0}}_raw := plain_{name}({{0}})) is not None"
    load = f"times(number_of({{0}}) - {sign_of(kind)}, unit_{name})"
    return TypeCode(test, "{0}_raw", load, scope)


def _is_json(text: str) -> bool:
    try:
        check_json(text, "")
    except SchemaViolation:
        return False
    return True


@lru_cache(4096)
def check_code(kind: LogicalType) -> TypeCode:
    """Return the test of a stored value, beyond the test of its stored type."""
    if kind.form == "float":
        return TypeCode("single({0}) == {0}", scope=(("single", single),))
    if kind.form == "json":
        return TypeCode("is_json({0})", scope=(("is_json", _is_json),))
    tests = [f"len({{0}}) == {kind.size_bytes}"] if kind.size_bytes else []
    if kind.lowest is None:
        return TypeCode(" and ".join(tests))
    name = re.sub(r"\W+", "_", kind.name)
    scope = ((f"lowest_{name}", kind.lowest), (f"highest_{name}", kind.highest))
    if isinstance(kind.lowest, int):
        return TypeCode(f"{kind.lowest} <= {{0}} <= {kind.highest}")
    tests.append(f"lowest_{name} <= {{0}} <= highest_{name}")
    return TypeCode(" and ".join(tests), scope=scope)
