"""Compute a term for one row, and write it as Python text for rows without nulls. Pure.

Owns: the meaning of each operator and function for single values. `arrays` computes columns, with
the same results and the same errors. What a term gives never depends on the order of rows, on a
clock, or on a version of Dodona: tables keep it.
"""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from dodona_wire.expressions import values
from dodona_wire.expressions.farm_hash import (
    FIRST,
    bytes_fingerprint,
    farm_hash,
    number_fingerprint,
    pair_fingerprint,
)
from dodona_wire.expressions.terms import COMPARISONS, Term
from dodona_wire.expressions.time_floors import FLOORS, HOURS_PER_DAY, floor_days
from dodona_wire.expressions.values import INTEGERS, Constant, Kind

TEXT_BYTES_MAX: Final = 16 << 20
"""Bytes of each text that an expression makes."""
Compute = Callable[[Sequence[Any]], Any]
"""Takes the stored values of a row, texts as bytes. Raises ValueError."""
_ENDS: Final = {
    Kind.INT64: (values.INT64_MIN, values.INT64_MAX),
    Kind.UINT64: (0, values.UINT64_MAX),
}
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def function_of(term: Term) -> Compute:
    """Return the function that computes a term for one row."""
    kind, value = term.kind, term.value
    given = [function_of(it) for it in term.operands]
    if term.operator in COMPARISONS:
        return _comparison(_COMPARE[term.operator], *given)
    match term.operator:
        case "literal":
            return lambda row: value
        case "column":
            return operator.itemgetter(value)
        case "and" | "or":
            return _chain(given, is_and=term.operator == "and")
        case "if":
            return _if(*given)
        case "is_null":
            (only,) = given
            return lambda row: only(row) is None
        case "coalesce":
            return lambda row: next((it for f in given if (it := f(row)) is not None), None)
        case "farm_hash":
            return lambda row: farm_hash(*[f(row) for f in given])
    of_values = _of_values(term, kind)

    def compute(row: Sequence[Any]) -> Any:
        found = [f(row) for f in given]
        return None if None in found else of_values(*found)

    return compute


def _comparison(compare: Callable[[Any, Any], bool], left: Compute, right: Compute) -> Compute:
    """Null is equal to itself, and smaller than all other values."""

    def compute(row: Sequence[Any]) -> bool:
        one, other = left(row), right(row)
        if one is None or other is None:
            return compare(one is not None, other is not None)
        return compare(one, other)

    return compute


def _chain(given: Sequence[Compute], *, is_and: bool) -> Compute:
    """Return AND or OR. The first operand that decides ends it."""

    def compute(row: Sequence[Any]) -> bool | None:
        has_null = False
        for it in given:
            found = it(row)
            if found is None:
                has_null = True
            elif found is not is_and:
                return not is_and
        return None if has_null else is_and

    return compute


def _if(condition: Compute, one: Compute, other: Compute) -> Compute:
    def compute(row: Sequence[Any]) -> Any:
        is_so = condition(row)
        return None if is_so is None else (one if is_so else other)(row)

    return compute


def _of_values(term: Term, kind: Kind) -> Callable[..., Any]:
    """Return the function of operands that are not null."""
    name = term.operator
    if name in FLOORS:
        to, per_day = FLOORS[name], term.value
        return lambda value: floored(value, to, per_day, kind)
    match name:
        case "not":
            return operator.not_
        case "negative":
            return lambda value: values.unary("-", Constant(kind, value)).value
        case "~":
            return lambda value: values.wrapped(~value, kind)
        case "cast":
            return lambda value: cast(value, kind)
        case "concat":
            return concat
        case "length":
            return len
        case "lower" | "upper":
            is_upper = name == "upper"
            return lambda text: cased(text, is_upper=is_upper)
    return lambda one, other: values.binary(name, Constant(kind, one), Constant(kind, other)).value


# ---- functions of values that are not null


def cast(value: Any, kind: Kind) -> Any:
    """Convert a number as YTsaurus does: integers keep their bits, doubles lose their fraction.
    Raises ValueError if no integer is left."""
    if kind == Kind.BOOLEAN:
        return value != 0
    if kind == Kind.DOUBLE:
        return float(value)
    if isinstance(value, float):
        low, high = _ENDS[kind]
        if not math.isfinite(value) or not low <= math.trunc(value) <= high:
            raise ValueError(f"The value {value} does not fit in {str(kind.name).lower()}.")
        return math.trunc(value)
    return values.wrapped(value, kind)


def concat(one: bytes, other: bytes) -> bytes:
    """Join two texts. Raises ValueError if the result is too long."""
    if len(one) + len(other) > TEXT_BYTES_MAX:
        raise ValueError(f"The text is longer than {TEXT_BYTES_MAX} bytes.")
    return one + other


def cased(text: bytes, *, is_upper: bool) -> bytes:
    """Change the case: of text by the rules of Unicode, of other bytes by those of ASCII."""
    if not text.isascii():
        try:
            plain = text.decode()
        except UnicodeDecodeError:
            plain = ""
        if plain:
            return (plain.upper() if is_upper else plain.lower()).encode()
    return text.upper() if is_upper else text.lower()


def floored(value: int, to: str, per_day: int, kind: Kind) -> int:
    """Round a day or a moment down. Raises ValueError if the type has no value there."""
    if to == "hour":
        step = max(per_day // HOURS_PER_DAY, 1)
        found = value - value % step
    elif to == "day":
        found = value - value % per_day
    else:
        found = floor_days(value // per_day, to) * per_day
    if found < _ENDS[kind][0]:
        raise ValueError(f"The {to} of {value} begins before the first value of the type.")
    return found


# ---- as text, for rows without nulls


SCOPE: Final[dict[str, Any]] = {
    "bytes_hash": bytes_fingerprint,
    "number_hash": number_fingerprint,
    "pair_hash": pair_fingerprint,
    "as_number": cast,
    "floored": floored,
    "lower": lambda text: cased(text, is_upper=False),
    "upper": lambda text: cased(text, is_upper=True),
    "concat": concat,
    **{f"is_{it}": Kind[it] for it in ("INT64", "UINT64", "DOUBLE", "BOOLEAN")},
}
"""The names that texts of `code_of` use."""
TEXT_LENGTH_MAX: Final = 1 << 14
_ALL: Final = values.UINT64_MAX
_SIGN: Final = 1 << 63


def code_of(term: Term, names: Sequence[str]) -> str | None:
    """Return Python text that computes a term from variables with these names, of which none is
    None. Texts are bytes. None: there is no such text, or it is too long. It raises ValueError and
    ZeroDivisionError for rows for which the function of the term raises ValueError."""
    found = _code(term, names)
    return None if found is None or len(found) > TEXT_LENGTH_MAX else found


def _code(term: Term, names: Sequence[str]) -> str | None:
    if term.operator == "literal":
        is_plain = term.value is not None and term.kind != Kind.DOUBLE
        return repr(term.value) if is_plain else None
    if term.operator == "column":
        place: int = term.value
        return names[place]
    given = []
    for it in term.operands:
        part = _code(it, names)
        if part is None or len(part) > TEXT_LENGTH_MAX:
            return None
        given.append(part)
    name = term.operator
    if name in _TEMPLATES:
        return _TEMPLATES[name].format(*given)
    if name in ("and", "or"):
        return f"({f' {name} '.join(given)})"
    if name == "farm_hash":
        return _hash_code(term, given)
    if name == "cast":
        return f"as_number({given[0]}, is_{term.kind.name})"
    if name in FLOORS:
        return f"floored({given[0]}, {FLOORS[name]!r}, {term.value}, is_{term.kind.name})"
    return _arithmetic_code(term, given)


_TEMPLATES: Final = {
    "if": "({1} if {0} else {2})",
    "not": "(not {0})",
    "is_null": "({0} is None)",
    "coalesce": "{0}",
    "length": "len({0})",
    "concat": "concat({0}, {1})",
    "lower": "lower({0})",
    "upper": "upper({0})",
    "=": "({0} == {1})",
    **{it: f"({{0}} {it} {{1}})" for it in ("!=", "<", "<=", ">", ">=")},
}


def _hash_code(term: Term, given: Sequence[str]) -> str:
    found = str(FIRST)
    for it, text in zip(term.operands, given, strict=True):
        name = "bytes_hash" if it.kind == Kind.STRING else "number_hash"
        found = f"pair_hash({found}, {name}({text}))"
    return f"({found} ^ {len(given)})"


def _arithmetic_code(term: Term, given: Sequence[str]) -> str | None:
    name, kind = term.operator, term.kind
    if kind not in INTEGERS:
        return None
    is_unsigned = kind == Kind.UINT64
    match name:
        case "<<" | ">>":
            bits = term.operands[1].value
            if term.operands[1].operator != "literal" or not 0 <= bits < values.BITS:
                return None
            whole = f"{given[0]} {name} {bits}"
        case "&" | "|":
            return f"({given[0]} {name} {given[1]})"
        case "/" | "%" if is_unsigned:
            return f"({given[0]} {'//' if name == '/' else '%'} {given[1]})"
        case "+" | "-" | "*":
            whole = f"{given[0]} {name} {given[1]}"
        case "negative" | "~":
            whole = f"{'-' if name == 'negative' else '~'}{given[0]}"
        case _:
            return None
    if is_unsigned:
        return f"(({whole}) & {_ALL})"
    return f"((({whole}) + {_SIGN} & {_ALL}) - {_SIGN})"
