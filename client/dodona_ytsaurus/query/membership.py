"""Build IN and BETWEEN: operands compared with rows of literals. Pure.

Owns: the comparison with many rows together. Literals take the operands' kinds, as in YTsaurus
(`1u in (1, 2.0)`), and null is a value like others. Beside a list of tuples, the SQL also lists the
values of each single operand. From these the engine makes a range of keys.
"""

from collections.abc import Callable, Sequence

from dodona_wire.expressions.source import Source
from dodona_wire.expressions.tree import Literal, Row
from dodona_wire.expressions.values import COMPARABLE, Constant, Kind, first_of, fit, names_of
from dodona_ytsaurus.query.comparisons import both, compare_tuples, either, is_null
from dodona_ytsaurus.query.sql_values import sql_of, text_of, text_sql
from dodona_ytsaurus.query.typed import Expression, Mode, bounded

Make = Callable[[Constant, int], Expression]
"""Makes an expression of a constant and its place in the text."""


def in_rows(
    source: Source, constant: Make, operands: Sequence[Expression], rows: Sequence[Row], at: int
) -> Expression:
    """Build the test whether the operands are one of the rows. Raises InvalidRequest."""
    kinds = [_kind(source, it) for it in operands]
    fitted = [_fitted(source, kinds, row, at, len(kinds)) for row in rows]
    plain = [row for row in fitted if all(it.value is not None for it in row)]
    with_null = [row for row in fitted if any(it.value is None for it in row)]
    found = [_equal(source, constant, operands, row, at) for row in with_null]
    if plain and len(operands) == 1:
        found.append(_in_values(operands[0], kinds[0], [value for (value,) in plain], at))
    elif len(plain) == 1:
        found.append(_equal(source, constant, operands, plain[0], at))
    elif plain:
        found.append(_in_tuples(operands, kinds, plain, at))
    return either(found)


def in_ranges(
    source: Source,
    constant: Make,
    operands: Sequence[Expression],
    ranges: Sequence[tuple[Row, Row]],
    at: int,
) -> Expression:
    """Build the test whether the operands lie in one of the ranges. Raises InvalidRequest."""
    kinds = [_kind(source, it) for it in operands]

    def end(operator: str, row: Row) -> Expression:
        fitted = _fitted(source, kinds, row, at, len(row))
        expressions = [constant(it, at) for it in fitted]
        return compare_tuples(source, operator, operands[: len(row)], expressions)

    return either([both([end(">=", lower), end("<=", upper)]) for lower, upper in ranges])


def _kind(source: Source, operand: Expression) -> Kind:
    kinds = operand.kinds & COMPARABLE
    if not kinds:
        found = names_of(operand.kinds)
        text = f"IN, BETWEEN and TRANSFORM do not take values of type {found}."
        raise source.error(operand.at, f"{text} Convert it with int64(x), string(x) and so on.")
    return first_of(kinds)


def _fitted(source: Source, kinds: Sequence[Kind], row: Row, at: int, width: int) -> list[Constant]:
    """Return the literals as constants of the operands' kinds."""
    if len(row) != width or width > len(kinds):
        expected, found = _count(len(kinds)), _count(len(row))
        raise source.error(row[0].at, f"Expected {expected}, found {found}.", expected=expected)
    return [_fit(source, it, kind) for it, kind in zip(row, kinds, strict=False)]


def _count(width: int) -> str:
    return "one value" if width == 1 else f"a tuple of {width}"


def _fit(source: Source, literal: Literal, kind: Kind) -> Constant:
    try:
        return fit(literal.constant, kind)
    except ValueError as error:
        raise source.error(literal.at, str(error)) from error


def _equal(
    source: Source,
    constant: Make,
    operands: Sequence[Expression],
    row: Sequence[Constant],
    at: int,
) -> Expression:
    if len(row) == 1 and row[0].value is None:
        return is_null(operands[0])
    return compare_tuples(source, "=", operands, [constant(it, at) for it in row])


def _in_values(operand: Expression, kind: Kind, values: list[Constant], at: int) -> Expression:
    """Build the test whether the operand is one of some values that are not null."""

    def make(_: Kind, mode: Mode) -> str:
        sql = _one_of(operand, kind, values, mode)
        is_exact = mode.is_condition or not operand.is_null_in(mode)
        return bounded(sql if is_exact else f"coalesce({sql}, false)")

    proves = () if operand.column is None else (operand.column,)
    return Expression(kinds=Kind.BOOLEAN, make=make, at=at, is_nullable=False, proves=proves)


def _one_of(operand: Expression, kind: Kind, values: Sequence[Constant], mode: Mode) -> str:
    """Return the SQL, which is null where the operand is null. Text is compared as text, for the
    range of keys."""
    texts = [text_of(it.value) if kind == Kind.STRING else None for it in values]
    if operand.text is not None and None not in texts:
        listed = ", ".join([text_sql(it) for it in texts if it is not None])
        return f"({operand.text} in ({listed}))"
    listed = ", ".join([sql_of(it) for it in values])
    return f"({operand.make(kind, mode.value())} in ({listed}))"


def _in_tuples(
    operands: Sequence[Expression], kinds: Sequence[Kind], rows: list[list[Constant]], at: int
) -> Expression:
    """Build the test whether the operands are, side by side, one of some rows without nulls."""
    columns = [list(dict.fromkeys(it)) for it in zip(*rows, strict=True)]

    def make(_: Kind, mode: Mode) -> str:
        each = [
            _one_of(operand, kind, values, mode)
            for operand, kind, values in zip(operands, kinds, columns, strict=True)
        ]
        row = ", ".join(
            [it.make(kind, mode.value()) for it, kind in zip(operands, kinds, strict=True)]
        )
        listed = ", ".join([f"({', '.join([sql_of(it) for it in values])})" for values in rows])
        sql = f"({' and '.join(each)} and ({row}) in ({listed}))"
        is_exact = mode.is_condition or not any(it.is_null_in(mode) for it in operands)
        return bounded(sql if is_exact else f"coalesce({sql}, false)")

    proves = tuple([it.column for it in operands if it.column is not None])
    return Expression(kinds=Kind.BOOLEAN, make=make, at=at, is_nullable=False, proves=proves)
