"""Python text for logical types, from which `row_code` makes the functions of a schema.

Owns: for each type the test of plain values, and the expressions that convert them. `{0}` is the
name of the value. What is plain is the common case only: `logical_values` has all cases, and gives
the same results. Pure.
"""

import re
from ctypes import c_float
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID  # noqa: TID251 - the type of values; no id is made

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.logical_bytes import (
    EXACT_TIMES,
    UUID_HEAD,
    UUID_OF,
    plain_decimal_of,
    sign_of,
    unit_of,
)
from dodona_wire.rows.logical_types import UUID_BYTES, LogicalType
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
            return TypeCode(test, "c_float({0}).value", scope=(("c_float", c_float),))
        case "date" | "seconds" | "microseconds" | "interval":
            return _time_code(kind)
        case "uuid":
            scope = (("UUID", UUID), ("uuid_of", UUID_OF))
            store, load = (
                f"{{0}}.int.to_bytes({UUID_BYTES}, 'big')",
                f"uuid_of({UUID_HEAD!r} + {{0}})",
            )
            return TypeCode("type({0}) is UUID", store, load, scope)
        case "decimal":
            return _decimal_code(kind)
        case "list" | "struct" | "dict":
            load = f"load_{kind.name.encode().hex()}"
            return TypeCode("False", load=f"{load}({{0}})", scope=((load, load_of(kind)),))
    test = f"type({{0}}) is str and len({{0}}) <= {JSON_BYTES_MAX} and {{0}}.isascii()"
    return TypeCode(f"{test} and is_json({{0}})", scope=(("is_json", _is_json),))


def _time_code(kind: LogicalType) -> TypeCode:
    """The test converts the value, and keeps the stored form under a name of its own. Numbers are
    compared sooner than times."""
    scope: tuple[tuple[str, Any], ...]
    if kind.form == "date":
        scope = (("date", date), ("date_of", DATES))
        stored = f"{{0}}.toordinal() - {EPOCH_ORDINAL}"
        return _ranged_code(kind, "type({0}) is date", stored, "date_of[{0}]", scope)
    if kind.form == "interval":
        scope = (("timedelta", timedelta), ("microsecond", MICROSECOND))
        stored, load = "{0} // microsecond", "{0} * microsecond"
        return _ranged_code(kind, "type({0}) is timedelta", stored, load, scope)
    scope = (("datetime", datetime), ("utc", UTC), ("epoch", EPOCH))
    has_zone = "({0}.tzinfo is utc or {0}.utcoffset() is not None)"
    test = f"type({{0}}) is datetime and {has_zone}"
    if kind.form == "seconds":  # the span has the parts of a second of the zone, too
        test = f"{test} and not ({{0}}_span := {{0}} - epoch).microseconds"
        scope += (("second", SECOND),)
        return _ranged_code(kind, test, "{0}_span // second", "epoch + {0} * second", scope)
    scope += (("microsecond", MICROSECOND),)
    stored, load = "({0} - epoch) // microsecond", "epoch + {0} * microsecond"
    return _ranged_code(kind, test, stored, load, scope)


def _ranged_code(
    kind: LogicalType, test: str, stored: str, load: str, scope: tuple[tuple[str, Any], ...]
) -> TypeCode:
    within = f"{kind.lowest} <= ({{0}}_raw := {stored}) <= {kind.highest}"
    return TypeCode(f"{test} and {within}", "{0}_raw", load, scope)


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
