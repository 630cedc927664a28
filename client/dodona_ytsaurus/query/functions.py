"""The functions and aggregates of a query, as DuckDB's. Pure.

Owns: the tables of these functions, and the list of YTsaurus's functions that Dodona lacks. Strings
are BLOBs in DuckDB, which has few functions for them. So some functions see a string as text where
it is text, and some see it in hexadecimal. Others see it with all bytes escaped that are not ASCII
(`blob::varchar`), which is exact for any bytes.
"""

from collections.abc import Sequence
from typing import Final

from dodona_wire.expressions.values import COMPARABLE, EVERYTHING, INTEGERS, NUMBERS, VALUES, Kind
from dodona_ytsaurus.query.calls import Argument, Function, function
from dodona_ytsaurus.query.json_values import JSON_FUNCTIONS, converted
from dodona_ytsaurus.query.matching import match_sql
from dodona_ytsaurus.query.sql_values import SQL_TYPES, blob_sql, text_sql

_ALL_BITS: Final = "18446744073709551615::hugeint"
_HALF: Final = "9223372036854775808::hugeint"


# ---- conversions


def _number(given: Sequence[Argument], kind: Kind) -> str:
    """Convert a number as C does: integers keep their bits, doubles lose their fraction."""
    (it,) = given
    if it.kind == Kind.ANY:
        return converted(it, kind)
    if it.kind == kind:
        return it.sql
    if kind == Kind.DOUBLE:
        return f"({it.sql})::double"
    if it.kind == Kind.DOUBLE:
        return f"trunc({it.sql})::{SQL_TYPES[kind]}"
    if kind == Kind.UINT64:
        return f"(({it.sql})::hugeint & {_ALL_BITS})::ubigint"
    return f"(((({it.sql})::hugeint + {_HALF}) & {_ALL_BITS}) - {_HALF})::bigint"


def _to(kind: Kind) -> Function:
    return Function((NUMBERS | Kind.ANY,), kind, lambda given: _number(given, kind), nulls="may be")


def _boolean(given: Sequence[Argument]) -> str:
    (it,) = given
    if it.kind == Kind.ANY:
        return converted(it, Kind.BOOLEAN)
    return it.sql if it.kind == Kind.BOOLEAN else f"({it.sql} <> 0)"


def _string(given: Sequence[Argument]) -> str:
    (it,) = given
    return converted(it, Kind.STRING) if it.kind == Kind.ANY else it.sql


def _abs(given: Sequence[Argument]) -> str:
    (it,) = given
    return it.sql if it.kind == Kind.UINT64 else f"abs({it.sql})"


# ---- choices


def _if(given: Sequence[Argument]) -> str:
    """Return the SQL of `if`. A condition that is null makes a null."""
    condition, one, other = given
    if not condition.expression.is_nullable:
        return f"case when {condition.sql} then {one.sql} else {other.sql} end"
    return (
        f"case when {condition.sql} then {one.sql} when {condition.sql} is null then null"
        f" else {other.sql} end"
    )


def _listed(name: str) -> Function:
    """Return a function of any number of arguments of one kind."""

    def render(given: Sequence[Argument]) -> str:
        return f"{name}({', '.join([it.sql for it in given])})"

    kinds = VALUES if name == "coalesce" else COMPARABLE
    return Function((kinds,), None, render, shared=(0,), is_repeated=True, nulls="all")


# ---- strings


def _cased(name: str) -> Function:
    """Change the case: of text by the rules of Unicode, of other bytes by those of ASCII."""

    def render(given: Sequence[Argument]) -> str:
        (it,) = given
        if it.expression.text is not None:
            return f"encode({name}({it.text}))"
        ascii_only = f"{name}(({it.sql})::varchar)"
        if name == "upper":  # the x of an escape must stay in lower case
            ascii_only = rf"replace({ascii_only}, '\X', '\x')"
        return f"coalesce(encode({name}({it.text})), ({ascii_only})::blob)"

    return Function((Kind.STRING,), Kind.STRING, render)


def _is_prefix(given: Sequence[Argument]) -> str:
    """Return the SQL of `is_prefix`. For a literal it is a range, so that fewer rows are read."""
    prefix, whole = given
    lower = prefix.constant
    end = None if lower is None else lower.rstrip(b"\xff")
    if not end:
        return f"(({whole.sql})[1:octet_length({prefix.sql})] = {prefix.sql})"
    upper = end[:-1] + bytes([end[-1] + 1])
    texts = whole.expression.text, _text(lower), _text(upper)
    if None not in texts:
        return f"({texts[0]} >= {texts[1]} and {texts[0]} < {texts[2]})"
    return f"({whole.sql} >= {blob_sql(lower)} and {whole.sql} < {blob_sql(upper)})"


def _text(value: bytes) -> str | None:
    return text_sql(value.decode()) if value.isascii() and b"\0" not in value else None


def _is_substring(given: Sequence[Argument]) -> str:
    """Search in hexadecimal, with a space after each byte, so that no match begins within a
    byte."""
    part, whole = given
    return f"contains({_spaced(whole)}, {_spaced(part)})"


def _spaced(it: Argument) -> str:
    if it.constant is not None:
        return text_sql("".join([f"{byte:02X} " for byte in it.constant]))
    return rf"regexp_replace(hex({it.sql}), '(..)', '\1 ', 'g')"


def _matches(operator: str) -> Function:
    def render(given: Sequence[Argument]) -> str:
        pattern, text = given
        return match_sql(operator, text, pattern)

    return Function((Kind.STRING, Kind.STRING), Kind.BOOLEAN, render)


# ---- tables of them

_DOUBLE, _INT64, _STRING, _BOOLEAN = Kind.DOUBLE, Kind.INT64, Kind.STRING, Kind.BOOLEAN


def _floor_of(unit: str) -> Function:
    moment = "make_timestamp({0} * 1000000)"
    template = f"(epoch_us(date_trunc('{unit}', {moment})) // 1000000)"
    return function([_INT64], _INT64, template)


FUNCTIONS: Final[dict[str, Function]] = {
    "if": Function((_BOOLEAN, EVERYTHING, EVERYTHING), None, _if, shared=(1, 2)),
    "is_null": function([EVERYTHING], _BOOLEAN, "({0} is null)", "never"),
    "if_null": Function(
        (EVERYTHING, EVERYTHING),
        None,
        lambda given: f"coalesce({given[0].sql}, {given[1].sql})",
        shared=(0, 1),
        nulls="all",
    ),
    "coalesce": _listed("coalesce"),
    "greatest": _listed("greatest"),
    "int64": _to(Kind.INT64),
    "uint64": _to(Kind.UINT64),
    "double": _to(Kind.DOUBLE),
    "boolean": Function((INTEGERS | _BOOLEAN | Kind.ANY,), _BOOLEAN, _boolean, nulls="may be"),
    "string": Function((_STRING | Kind.ANY,), _STRING, _string, nulls="may be"),
    "abs": Function((NUMBERS,), None, _abs, shared=(0,)),
    "length": function([_STRING], _INT64, "octet_length({0})"),
    "concat": function([_STRING, _STRING], _STRING, "({0} || {1})"),
    "lower": _cased("lower"),
    "upper": _cased("upper"),
    "farm_hash": Function(
        (INTEGERS | _BOOLEAN | _STRING,),
        Kind.UINT64,
        lambda given: f"farm_hash({', '.join([it.sql for it in given])})",
        is_repeated=True,
        nulls="never",
    ),
    "is_prefix": Function((_STRING, _STRING), _BOOLEAN, _is_prefix),
    "is_substr": Function((_STRING, _STRING), _BOOLEAN, _is_substring),
    "regex_full_match": _matches("REGEX"),
    "regex_partial_match": _matches("REGEX PART"),
    "is_nan": function([_DOUBLE], _BOOLEAN, "coalesce(isnan({0}), false)", "never"),
    "is_finite": function([_DOUBLE], _BOOLEAN, "isfinite({0})"),
    "is_inf": function([_DOUBLE], _BOOLEAN, "isinf({0})"),
    **{
        name: function([_DOUBLE], _INT64, name + "({0})::bigint")
        for name in ("ceil", "floor", "round", "trunc", "sign")
    },
    **{
        name: function([_DOUBLE], _DOUBLE, name + "({0})")
        for name in ("cbrt", "exp", "ln", "log10", "log2", "sqrt")
    },
    "log": function([_DOUBLE], _DOUBLE, "log10({0})"),
    "pow": function([_DOUBLE, _DOUBLE], _DOUBLE, "pow({0}, {1})"),
    **{
        f"timestamp_floor_{unit}": _floor_of(unit)
        for unit in ("hour", "day", "week", "month", "quarter", "year")
    },
    **JSON_FUNCTIONS,
}


def _sum(given: Sequence[Argument]) -> str:
    (it,) = given
    return f"sum({it.sql})" + ("" if it.kind == _DOUBLE else f"::{SQL_TYPES[it.kind]}")


def _one(name: str) -> Function:
    kinds = VALUES if name == "first" else COMPARABLE
    return Function((kinds,), None, lambda given: f"{name}({given[0].sql})", (0,), nulls="may be")


def _at_extreme(name: str) -> Function:
    return Function(
        (VALUES, COMPARABLE),
        None,
        lambda given: f"{name}({given[0].sql}, {given[1].sql})",
        shared=(0,),
        nulls="may be",
    )


AGGREGATES: Final[dict[str, Function]] = {
    "sum": Function((NUMBERS,), None, _sum, shared=(0,), nulls="may be"),
    "min": _one("min"),
    "max": _one("max"),
    "first": _one("first"),
    "avg": function([NUMBERS], _DOUBLE, "avg({0})", "may be"),
    # Null counts as a value here. YTsaurus only estimates this number.
    "cardinality": function(
        [COMPARABLE],
        Kind.UINT64,
        "(count(distinct {0}) + count(distinct case when {0} is null then 1 end))::ubigint",
        "never",
    ),
    "argmin": _at_extreme("arg_min"),
    "argmax": _at_extreme("arg_max"),
}

_OTHERS: Final = (
    "acos any_to_yson_string array_agg asin atan2 bigb_hash bit_count cardinality_merge"
    " cardinality_merge_state cardinality_state cos cot degrees dict_sum even factorial"
    " format_guid format_timestamp format_timestamp_localtime format_timestamp_tz gamma gcd"
    " is_valid_utf8 lcm lgamma list_contains list_has_intersection make_entity make_list make_map"
    " make_ngrams numeric_to_string parse_double parse_int64 parse_uint64 radians regex_escape"
    " regex_extract regex_replace_all regex_replace_first signbit sin sleep split tan to_any"
    " to_valid_utf8 uniq uniq_merge uniq_merge_state uniq_state xdelta xor yson_length"
    " yson_string_to_any"
)
NOT_TAKEN: Final = frozenset(_OTHERS.split())
"""The functions that YTsaurus has and Dodona lacks."""
