"""Build comparisons, AND, OR and NOT, with YTsaurus's rules for nulls. Pure.

Owns: these rules. Null is a value like others. It is equal to itself and smaller than all others,
so a comparison is never null. Where possible, a comparison becomes one of SQL, which the engine
turns into a range of keys. The SQL mentions null only where null makes a difference. In a
condition, `a < 5` needs it (`a < 5 or a is null`). It does not need it if another condition beside
it, such as `a > 1`, excludes nulls.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

from dodona_wire.expressions.source import Source
from dodona_wire.expressions.values import COMPARABLE, Kind, first_of, names_of
from dodona_ytsaurus.query.typed import Expression, Make, Mode, bounded

INVERSE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_SIDES_NOT_NULL: Final = {">": (True, False), "<": (False, True)}


def compare(source: Source, operator: str, left: Expression, right: Expression) -> Expression:
    """Build a comparison: one of = != < <= > >=. Raises InvalidRequest."""
    if right.constant is not None and right.constant.value is None:
        return _compared_with_null(operator, left)
    if left.constant is not None and left.constant.value is None:
        return _compared_with_null(_MIRRORED[operator], right)
    kind = _common_kind(source, operator, left, right)

    def make(_: Kind, mode: Mode) -> str:
        inside = mode.value()
        if kind == Kind.STRING and left.text is not None and right.text is not None:
            one, other = left.text, right.text
        else:
            one, other = left.make(kind, inside), right.make(kind, inside)
        nulls = left.is_null_in(mode), right.is_null_in(mode)
        return bounded(_sql(operator, (one, other), nulls, mode.is_condition))

    return Expression(
        kinds=Kind.BOOLEAN,
        make=make,
        at=left.at,
        is_nullable=False,
        proves=_proven(operator, left, right),
    )


def _common_kind(source: Source, operator: str, left: Expression, right: Expression) -> Kind:
    common = left.kinds & right.kinds & COMPARABLE
    if common:
        return first_of(common)
    if Kind.ANY in (left.kinds, right.kinds):
        raise source.unsupported(
            left.at, "a comparison of a value of type any", "Compare int64(x), string(x) and so on."
        )
    kinds = f"{names_of(left.kinds)} {operator} {names_of(right.kinds)}"
    raise source.error(left.at, f"The types do not match: {kinds}. Convert one of them.")


def _compared_with_null(operator: str, expression: Expression) -> Expression:
    """Build a comparison whose right operand is null."""
    if operator in ("<", ">="):
        text = "true" if operator == ">=" else "false"
        return _never_null(expression, lambda sql: text, ())
    if operator in ("=", "<="):
        return is_null(expression)
    return is_not_null(expression)


def is_null(expression: Expression) -> Expression:
    return _never_null(expression, lambda sql: f"({sql} is null)", ())


def is_not_null(expression: Expression) -> Expression:
    proves = () if expression.column is None else (expression.column,)
    return _never_null(expression, lambda sql: f"({sql} is not null)", proves)


def _never_null(
    expression: Expression, render: Callable[[str], str], proves: tuple[str, ...]
) -> Expression:
    def make(_: Kind, mode: Mode) -> str:
        column = expression.column
        sql = column or expression.make(first_of(expression.kinds), mode.value())
        return bounded(render(sql))

    return Expression(
        kinds=Kind.BOOLEAN, make=make, at=expression.at, is_nullable=False, proves=proves
    )


def _proven(operator: str, left: Expression, right: Expression) -> tuple[str, ...]:
    """Return the columns that are not null if the comparison is true. A column is not null if it is
    greater than the other operand. It is also not null if it is equal or no smaller, and the other
    operand is not null."""
    is_left, is_right = _SIDES_NOT_NULL.get(operator, (False, False))
    is_left = is_left or (operator in ("=", ">=") and not right.is_nullable)
    is_right = is_right or (operator in ("=", "<=") and not left.is_nullable)
    sides = ((is_left, left.column), (is_right, right.column))
    return tuple([column for is_sure, column in sides if is_sure and column is not None])


def _sql(
    operator: str, sides: tuple[str, str], nulls: tuple[bool, bool], is_condition: bool
) -> str:
    """Return the SQL of a comparison. `nulls` says which operands may be null."""
    if operator in ("=", "!="):
        return _equality(operator, sides, nulls, is_condition)
    plain = f"{sides[0]} {operator} {sides[1]}"
    is_mirrored = operator in (">", ">=")
    lesser, greater = sides[::-1] if is_mirrored else sides
    may_lesser, may_greater = nulls[::-1] if is_mirrored else nulls
    if may_lesser:  # null is smaller than all other values
        is_less = f"{lesser} is null"
        if may_greater and operator in ("<", ">"):
            is_less = f"({is_less} and {greater} is not null)"
        plain = f"{plain} or {is_less}"
    return f"({plain})" if is_condition or not may_greater else f"coalesce({plain}, false)"


def _equality(
    operator: str, sides: tuple[str, str], nulls: tuple[bool, bool], is_condition: bool
) -> str:
    one, other = sides
    is_plain = not any(nulls) or (operator == "=" and is_condition and not all(nulls))
    if is_plain:
        return f"({one} {'=' if operator == '=' else '<>'} {other})"
    return f"({one} is {'not ' if operator == '=' else ''}distinct from {other})"


def compare_tuples(
    source: Source, operator: str, left: Sequence[Expression], right: Sequence[Expression]
) -> Expression:
    """Compare tuples item by item: where the first items are equal, the next decide. Raises
    InvalidRequest."""
    if operator in ("=", "!="):
        pairs = [compare(source, operator, *it) for it in zip(left, right, strict=True)]
        return both(pairs) if operator == "=" else either(pairs)
    *before, (one, other) = zip(left, right, strict=True)
    found = compare(source, operator, one, other)
    for one, other in reversed(before):
        equal = compare(source, "=", one, other)
        strictly = compare(source, operator[0], one, other)
        found = either([strictly, both([equal, found])])
    return found


# ---- AND, OR, NOT


def both(operands: Sequence[Expression]) -> Expression:
    """Build AND. Operands may rely on what others prove about nulls. Of the operands that prove
    that a column is not null, the first one must not rely on it: its SQL alone excludes nulls."""
    if len(operands) == 1:
        return operands[0]
    proves = tuple(dict.fromkeys([it for operand in operands for it in operand.proves]))

    def make(_: Kind, mode: Mode) -> str:
        if not mode.is_condition:
            return _joined(" and ", operands, [mode] * len(operands))
        modes, unproven = [], set(proves)
        for operand in operands:
            its = unproven.intersection(operand.proves)
            unproven -= its
            modes.append(mode.without(it for it in proves if it not in its))
        return _joined(" and ", operands, modes)

    return _logical(operands, make, proves)


def either(operands: Sequence[Expression]) -> Expression:
    """Build OR."""
    if len(operands) == 1:
        return operands[0]
    first, *others = [operand.proves for operand in operands]
    proves = reduce(lambda one, other: tuple([it for it in one if it in other]), others, first)

    def make(_: Kind, mode: Mode) -> str:
        return _joined(" or ", operands, [mode] * len(operands))

    return _logical(operands, make, proves)


def negation(operand: Expression) -> Expression:
    """Build NOT of an operand that is no comparison, AND or OR: those are inverted before."""
    return Expression(
        kinds=Kind.BOOLEAN,
        make=lambda _, mode: bounded(f"(not {operand.make(Kind.BOOLEAN, mode.value())})"),
        at=operand.at,
        is_nullable=operand.is_nullable,
    )


def _logical(operands: Sequence[Expression], make: Make, proves: tuple[str, ...]) -> Expression:
    return Expression(
        kinds=Kind.BOOLEAN,
        make=make,
        at=operands[0].at,
        is_nullable=any(it.is_nullable for it in operands),
        proves=proves,
    )


def _joined(word: str, operands: Sequence[Expression], modes: Sequence[Mode]) -> str:
    parts = [it.make(Kind.BOOLEAN, mode) for it, mode in zip(operands, modes, strict=True)]
    return bounded("(" + word.join(parts) + ")")
