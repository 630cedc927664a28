"""The types of columns: one table of them, with everything that depends on the type of a column.

Owns: for each type its stored type, the Python values of users, and the ends of its range. Also the
types that Arrow, SQL and YTsaurus have for it. `logical_values` converts single
values, `logical_arrow` converts columns.
A *nested* type is a list, a struct or a dict. It has types inside, and is stored as type any. Each
value inside has its stored form. A list is a list. A struct is a map with all names, in the order
of the type. A dict is a list of pairs.
A *stored* type is the type of the bytes that cells keep. Messages, logs, chunks and keys know only
stored types. A *logical* type is a stored type with a meaning, and nearly always a narrower range:
a `date` is a `uint64` of days. Stored values have the order of the logical values.
Invariant: each value of a logical type has exactly one stored form, and comes back as it was.
Imports no clock and no I/O. pyarrow is imported by `logical_arrow` alone.
"""

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.column_kinds import DECIMAL_BYTES
from dodona_wire.rows.column_kinds import PRECISION_MAX as PRECISION_MAX
from dodona_wire.rows.column_kinds import SQL_PRECISION_MAX as SQL_PRECISION_MAX
from dodona_wire.rows.column_kinds import STORED_TYPES as STORED_TYPES
from dodona_wire.rows.column_kinds import UUID_BYTES as UUID_BYTES
from dodona_wire.rows.column_kinds import Form as Form
from dodona_wire.rows.column_kinds import LogicalType as LogicalType
from dodona_wire.rows.column_kinds import StoredType as StoredType
from dodona_wire.rows.nested_types import EXAMPLES, are_wider, nested_of_name
from dodona_wire.rows.type_names import TYPE_LENGTH_MAX, parse_type_name
from dodona_wire.shown import shown

DAY_SECONDS: Final = 86_400
SECOND_US: Final = 1_000_000
FIRST_DAY: Final = -719_162
"""Days from 1970 to 0001-01-01, the first date of Python, SQL and ISO 8601."""
LAST_DAY: Final = 2_932_896
"""Days from 1970 to 9999-12-31, the last one."""
DATE_LAST_DAY: Final = 49_672
"""Days from 1970 to 2105-12-31, where YTsaurus's unsigned dates end."""
INTERVAL64_US_MAX: Final = (2 * 53_375_808 + 1) * DAY_SECONDS * SECOND_US
"""Microseconds of YTsaurus's longest interval64."""
NAMES_SHOWN: Final = "decimal(p,s), list<T>, struct<name:T,…>, dict<K,T>"
_KINDS_MAX: Final = 4096
"""Nested types that are kept."""

_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)", re.ASCII)


def _stored(name: StoredType, python: str, arrow: str, sql: str, text: str, pandas: str) -> Any:
    type_v3 = {"boolean": "bool", "any": "yson"}.get(name, name)
    return LogicalType(
        name=name,
        stored=name,
        python=python,
        arrow=arrow,
        sql=sql,
        type_v3=type_v3,
        pandas=pandas,
        text=text,
    )


def _integer(name: str, bits: int, *, is_signed: bool, sql: str) -> LogicalType:
    lowest = -(1 << bits - 1) if is_signed else 0
    return LogicalType(
        name=name,
        stored="int64" if is_signed else "uint64",
        form="integer",
        lowest=lowest,
        highest=lowest + (1 << bits) - 1,
        python="`int`",
        arrow=name,
        sql=sql,
        type_v3=name,
        pandas=name.replace("i", "I").replace("u", "U"),
        text="number",
    )


def _moment(
    name: str, form: Form, unit: int, python: str, arrow: str, sql: str, text: str, pandas: str
) -> LogicalType:
    """A day or a moment. `unit` is how many of its units a day has. The types without a number at
    the end are unsigned, with YTsaurus's ends."""
    is_wide = name.endswith(("32", "64"))
    first, last = (FIRST_DAY, LAST_DAY) if is_wide else (0, DATE_LAST_DAY)
    return LogicalType(
        name=name,
        stored="int64" if is_wide else "uint64",
        form=form,
        lowest=first * unit,
        highest=(last + 1) * unit - 1,
        python=python,
        arrow=arrow,
        sql=sql,
        type_v3=name,
        pandas=pandas,
        text=text,
    )


def _interval(name: str, us_max: int, sql: str = "INTERVAL") -> LogicalType:
    """DuckDB returns an INTERVAL in nanoseconds, of which 64 bits hold no long interval64."""
    return LogicalType(
        name=name,
        stored="int64",
        form="interval",
        lowest=-us_max,
        highest=us_max,
        python="`datetime.timedelta`",
        arrow="duration[us]",
        sql=sql,
        type_v3=name,
        pandas="timedelta64[us]",
        text='`"P1DT2.5S"`',
    )


_DATE: Final = ("`datetime.date`", "date32[day]", "DATE", '`"2024-05-31"`', "object")
_SECONDS: Final = (
    "`datetime.datetime` with a time zone",
    "timestamp[s, tz=UTC]",
    "TIMESTAMP WITH TIME ZONE",
    '`"2024-05-31T12:30:00Z"`',
    "datetime64[s, UTC]",
)
_MICROSECONDS: Final = (
    "`datetime.datetime` with a time zone",
    "timestamp[us, tz=UTC]",
    "TIMESTAMP WITH TIME ZONE",
    '`"2024-05-31T12:30:00.000001Z"`',
    "datetime64[us, UTC]",
)

_TYPES: Final[tuple[LogicalType, ...]] = (
    _integer("int8", 8, is_signed=True, sql="TINYINT"),
    _integer("int16", 16, is_signed=True, sql="SMALLINT"),
    _integer("int32", 32, is_signed=True, sql="INTEGER"),
    _stored("int64", "`int`", "int64", "BIGINT", "number", "Int64"),
    _integer("uint8", 8, is_signed=False, sql="UTINYINT"),
    _integer("uint16", 16, is_signed=False, sql="USMALLINT"),
    _integer("uint32", 32, is_signed=False, sql="UINTEGER"),
    _stored("uint64", "`int`", "uint64", "UBIGINT", "number", "UInt64"),
    LogicalType(
        name="float",
        stored="double",
        form="float",
        python="`float`",
        arrow="float",
        sql="FLOAT",
        type_v3="float",
        pandas="Float32",
        text="number",
    ),
    _stored("double", "`float`", "double", "DOUBLE", "number", "Float64"),
    _stored("boolean", "`bool`", "bool", "BOOLEAN", "`true`, `false`", "boolean"),
    _stored("string", "`bytes`", "binary", "BLOB", "text, or base64", "object"),
    _stored("utf8", "`str`", "string", "VARCHAR", "text", "string"),
    LogicalType(
        name="json",
        stored="utf8",
        form="json",
        python="`str` of JSON",
        arrow="string",
        sql="VARCHAR",
        type_v3="json",
        pandas="string",
        text="text of JSON",
    ),
    _moment("date", "date", 1, *_DATE),
    _moment("datetime", "seconds", DAY_SECONDS, *_SECONDS),
    _moment("timestamp", "microseconds", DAY_SECONDS * SECOND_US, *_MICROSECONDS),
    _interval("interval", (DATE_LAST_DAY + 1) * DAY_SECONDS * SECOND_US - 1),
    _moment("date32", "date", 1, *_DATE),
    _moment("datetime64", "seconds", DAY_SECONDS, *_SECONDS),
    _moment("timestamp64", "microseconds", DAY_SECONDS * SECOND_US, *_MICROSECONDS),
    _interval("interval64", INTERVAL64_US_MAX, sql="BIGINT"),
    LogicalType(
        name="uuid",
        stored="string",
        form="uuid",
        python="`uuid.UUID`",
        arrow="fixed_size_binary[16]",
        sql="UUID",
        type_v3="uuid",
        pandas="object",
        text='`"a3bb189e-8bf9-3888-9912-ace4e6543002"`',
    ),
    _stored(
        "any",
        "numbers, `bool`, `str`, `bytes`, lists, dicts",
        "binary",
        "VARCHAR",
        "any JSON",
        "object",
    ),
)
TYPES: Final[dict[str, LogicalType]] = {it.name: it for it in _TYPES}
"""All types by name, except decimals, which have parameters."""


@lru_cache(1 + PRECISION_MAX * PRECISION_MAX)
def decimal_type(precision: int, scale: int) -> LogicalType:
    """Return the type of decimals of so many digits, `scale` of them behind the point. Raises
    SchemaViolation."""
    if not 1 <= precision <= PRECISION_MAX or not 0 <= scale <= precision:
        raise SchemaViolation(
            f"decimal(p,s) has a precision p of 1 to {PRECISION_MAX} digits, and a scale s of 0 to "
            f"p, not p={precision} and s={scale}"
        )
    size = next(size for digits, size in DECIMAL_BYTES if precision <= digits)
    largest, sign = 10**precision - 1, 1 << 8 * size - 1
    name = f"decimal({precision},{scale})"
    return LogicalType(
        name=name,
        stored="string",
        form="decimal",
        lowest=(sign - largest).to_bytes(size, "big"),
        highest=(sign + largest).to_bytes(size, "big"),
        precision=precision,
        scale=scale,
        python="`decimal.Decimal`",
        arrow=f"decimal{128 if precision <= SQL_PRECISION_MAX else 256}({precision}, {scale})",
        sql=f"DECIMAL({precision},{scale})",
        type_v3=name,
        pandas="object",
        text='`"12.50"`',
    )


def logical_type(name: str) -> LogicalType:
    """Return the type with this name. Raises SchemaViolation, with the nearest name, if there is
    none."""
    found = TYPES.get(name)
    return _unusual(name) if found is None else found


def _unusual(name: str) -> LogicalType:
    if "<" in name:
        return _nested_type(name)
    if parts := _DECIMAL.fullmatch(name):
        return decimal_type(int(parts[1]), int(parts[2]))
    if name.startswith("decimal"):
        example = "decimal(10,2), with its digits and those behind the point"
        raise SchemaViolation(f"write a decimal as {example}, not as {shown(name)}")
    if name in EXAMPLES:
        raise SchemaViolation(f"write a type with types inside as {EXAMPLES[name]}")
    known = ", ".join([*TYPES, NAMES_SHOWN])
    near = get_close_matches(name.lower(), TYPES, 1)
    hint = f". Did you mean {near[0]}?" if near else ""
    raise SchemaViolation(f"type of a column is one of {known}, not {shown(name)}{hint}")


@lru_cache(_KINDS_MAX)
def _nested_type(name: str) -> LogicalType:
    found = nested_of_name(parse_type_name(name), logical_type)
    if len(found.name) > TYPE_LENGTH_MAX:
        raise SchemaViolation(f"the name of a type has at most {TYPE_LENGTH_MAX} characters")
    return found


def is_wider_type(narrow: LogicalType, wide: LogicalType) -> bool:
    """Return whether each stored value of one type is the same value in another type."""
    if narrow.members:
        return narrow.form == wide.form and are_wider(narrow, wide, is_wider_type)
    numbers = ("integer", "stored") if narrow.form == "integer" else ("stored",)
    if narrow.form not in ("integer", "float") or wide.form not in numbers:
        return False
    if narrow.stored != wide.stored or wide.is_stored:
        return narrow.stored == wide.stored
    return bool(wide.lowest <= narrow.lowest and narrow.highest <= wide.highest)
