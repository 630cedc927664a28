"""Find the part of an expression that no row can compute, such as a division by zero. Pure.

Owns: which faults of a term are known without a row. A new schema is refused for such a part. A
stored schema is not: an older server may have accepted it, and its table must stay readable.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from dodona_wire.expressions import values
from dodona_wire.expressions.evaluation import function_of
from dodona_wire.expressions.terms import Term
from dodona_wire.expressions.values import INTEGERS, Constant

_LIMITED: Final = ("/", "%", "<<", ">>")
"""Operators of integers that are impossible for some second operands."""


class ImpossiblePart(NamedTuple):
    """A part of an expression that fails in each row that needs it."""

    at: int
    """The offset of the part in the expression."""
    why: str


def impossible_part(term: Term) -> ImpossiblePart | None:
    """Return the first part that no row can compute, or None."""
    return next(_parts(term), None)


def _parts(term: Term) -> Iterator[ImpossiblePart]:
    for it in term.operands:
        yield from _parts(it)
    try:
        if not _has_columns(term):
            function_of(term)(())
        elif term.operator in _LIMITED and term.kind in INTEGERS:
            _try_operator(term)
    except ValueError as error:
        yield ImpossiblePart(term.at, str(error))


def _try_operator(term: Term) -> None:
    """Compute 1 with the second operand, if it is a constant. Raises ValueError if the operand is
    impossible."""
    right = term.operands[1]
    if not _has_columns(right):
        found = Constant(term.kind, function_of(right)(()))
        values.binary(term.operator, Constant(term.kind, 1), found)


def _has_columns(term: Term) -> bool:
    return term.operator == "column" or any(map(_has_columns, term.operands))
