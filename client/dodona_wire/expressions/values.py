"""The kinds of values that an expression computes with, and constants of them. Pure.

Owns: sets of kinds, and the arithmetic of constants. The neighbours of an expression
often decide its kind: the literal 1 may be an int64, a uint64 or a double. Constants wrap around as
in YTsaurus: `1u - 2` is 18446744073709551615u.

An impossible operation with a constant raises ValueError. The caller knows the place in the query.
"""

import enum
import math
from dataclasses import dataclass
from typing import Any, Final

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
UINT64_MAX: Final = (1 << 64) - 1
BITS: Final = 64


class Kind(enum.IntFlag):
    """A kind of value, or a set of kinds. The first kind of a set is the one that it stands for."""

    NULL = 1
    INT64 = 2
    UINT64 = 4
    DOUBLE = 8
    BOOLEAN = 16
    STRING = 32
    ANY = 64


INTEGERS: Final = Kind.INT64 | Kind.UINT64
NUMBERS: Final = INTEGERS | Kind.DOUBLE
COMPARABLE: Final = NUMBERS | Kind.BOOLEAN | Kind.STRING
VALUES: Final = COMPARABLE | Kind.ANY
EVERYTHING: Final = VALUES | Kind.NULL

_ORDER: Final = (Kind.INT64, Kind.UINT64, Kind.DOUBLE, Kind.BOOLEAN, Kind.STRING, Kind.ANY)
KIND_OF_TYPE: Final = {
    "int64": Kind.INT64,
    "uint64": Kind.UINT64,
    "double": Kind.DOUBLE,
    "boolean": Kind.BOOLEAN,
    "string": Kind.STRING,
    "utf8": Kind.STRING,
    "any": Kind.ANY,
}


def first_of(kinds: Kind) -> Kind:
    """Return the kind that a set stands for if nothing else decides. Nulls of no kind are int64."""
    return next((it for it in _ORDER if it in kinds), Kind.INT64)


def names_of(kinds: Kind) -> str:
    """Return the names of kinds, for messages."""
    return " or ".join(str(it.name).lower() for it in Kind if it in kinds and it != Kind.NULL)


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of one kind: int, float, bool, bytes, or None."""

    kind: Kind
    value: Any

    @property
    def kinds(self) -> Kind:
        """Return the kinds that it may be taken for."""
        match self.kind:
            case Kind.NULL:
                return EVERYTHING
            case Kind.INT64:
                return NUMBERS
            case Kind.UINT64:
                return Kind.UINT64 | Kind.DOUBLE
        return self.kind


NULL: Final = Constant(Kind.NULL, None)


def fit(constant: Constant, kind: Kind) -> Constant:
    """Return the constant as one of that kind. Raises ValueError if there is no exact one."""
    value, before = constant.value, constant.kind
    if value is None or before == kind:
        return Constant(kind, value)
    if before not in NUMBERS or kind not in NUMBERS:
        raise ValueError(f"The types do not match: {names_of(before)} and {names_of(kind)}.")
    if kind == Kind.DOUBLE:
        if int(float(value)) != value:
            raise ValueError(f"The type double can't hold {value} exactly.")
        return Constant(kind, float(value))
    if before == Kind.DOUBLE:
        if not (math.isfinite(value) and value.is_integer() and wrapped(int(value), kind) == value):
            raise ValueError(f"The type {names_of(kind)} can't hold {value} exactly.")
        return Constant(kind, int(value))
    if before == Kind.UINT64 and value > INT64_MAX:
        raise ValueError(f"{value} is too large for int64. The largest is {INT64_MAX}.")
    return Constant(kind, wrapped(value, kind))


def wrapped(value: int, kind: Kind) -> int:
    """Return the integer of that kind with the same 64 lowest bits."""
    value &= UINT64_MAX
    return value - (1 << 64) if kind == Kind.INT64 and value > INT64_MAX else value


# ---- arithmetic


def unary(operator: str, operand: Constant) -> Constant:
    """Compute +, - or ~ of a number or a null."""
    kind, value = operand.kind, operand.value
    if value is None or operator == "+":
        return operand
    if operator == "-":
        return Constant(kind, -value if kind == Kind.DOUBLE else wrapped(-value, kind))
    return Constant(kind, wrapped(~value, kind))


def binary(operator: str, left: Constant, right: Constant) -> Constant:
    """Compute + - * / % << >> | & of numbers, or nulls. Raises ValueError."""
    if left.value is None or right.value is None:
        return NULL
    kind = max(left.kind, right.kind)
    one, other = fit(left, kind).value, fit(right, kind).value
    if kind == Kind.DOUBLE:
        return Constant(kind, _doubles(operator, one, other))
    return Constant(kind, wrapped(_integers(operator, one, other), kind))


def _doubles(operator: str, one: float, other: float) -> float:
    match operator:
        case "+":
            return one + other
        case "-":
            return one - other
        case "*":
            return one * other
    if other:
        return one / other
    if not one or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


def _integers(operator: str, one: int, other: int) -> int:
    if operator in ("/", "%"):
        return _divided(operator, one, other)
    if operator in ("<<", ">>"):
        if not 0 <= other < BITS:
            raise ValueError(f"A shift by {other} bits is not possible. Shift by 0 to 63.")
        return one << other if operator == "<<" else one >> other
    match operator:
        case "+":
            return one + other
        case "-":
            return one - other
        case "*":
            return one * other
        case "|":
            return one | other
    return one & other


def _divided(operator: str, one: int, other: int) -> int:
    """Divide towards zero. The remainder has the sign of the first operand."""
    if not other:
        raise ValueError("The expression divides by zero.")
    if one == INT64_MIN and other == -1:
        raise ValueError(f"{INT64_MIN} can't be divided by -1.")
    quotient = abs(one) // abs(other)
    quotient = quotient if (one < 0) == (other < 0) else -quotient
    return quotient if operator == "/" else one - quotient * other
