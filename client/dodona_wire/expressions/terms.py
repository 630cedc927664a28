"""Expressions whose kinds are decided: what single values and columns are computed from. Pure.

Owns: which expressions a computed column may have, and the kind of each part, by YTsaurus's rules.
The operands of an operator have one kind, and a literal takes the kind of its neighbours. A part
that stands for a day or a moment has a unit, too: `timestamp_floor_day` of a `date` is a `date`.
Null is equal to itself and smaller than all else, in comparisons; nearly all else of null is null.
Constants are computed here, so that a division of them by zero is an error of the expression.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from dodona_wire.expressions import values
from dodona_wire.expressions.parser import OR, ExpressionParser
from dodona_wire.expressions.source import Source, not_too_deep
from dodona_wire.expressions.time_floors import FLOORS
from dodona_wire.expressions.tokens import END, tokenize
from dodona_wire.expressions.tree import (
    Binary,
    Call,
    In,
    Literal,
    Logical,
    Node,
    Reference,
    Tuple,
    Unary,
)
from dodona_wire.expressions.values import (
    COMPARABLE,
    EVERYTHING,
    INTEGERS,
    NUMBERS,
    Constant,
    Kind,
    first_of,
    names_of,
)

_DAY_SECONDS: Final = 86_400
LENGTH_MAX: Final = 4_096
"""Characters of an expression."""
COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_OPERANDS: Final = {
    **dict.fromkeys("+-*/", NUMBERS),
    **dict.fromkeys(("%", "<<", ">>", "|", "&", "~"), INTEGERS),
}
_HASHED: Final = INTEGERS | Kind.BOOLEAN | Kind.STRING


class Input(NamedTuple):
    """A column that an expression may use."""

    place: int
    """Its place among the values of a row."""
    kind: Kind
    unit: str = ""
    """The name of its type, if it has days or moments; "" for a plain number or another value."""
    per_day: int = _DAY_SECONDS
    """How many of its units a day has."""


@dataclass(frozen=True, slots=True)
class Term:
    """A part of an expression, of one kind."""

    operator: str
    """An operator, the name of a function, "literal", "column" or "cast"."""
    kind: Kind
    operands: tuple["Term", ...] = ()
    value: Any = None
    """Of a literal its value, of a column its place, of a floor how many units a day has."""
    at: int = field(default=0, compare=False)
    """Its offset in the expression, for errors."""


class _Draft(NamedTuple):
    """A part of an expression whose kind its neighbours decide."""

    kinds: Kind
    make: Callable[[Kind], Term]
    at: int
    constant: Constant | None = None
    unit: str = ""
    per_day: int = _DAY_SECONDS


def term_of(text: str, inputs: Mapping[str, Input], kind: Kind) -> tuple[Term, str]:
    """Return the term of an expression that gives this kind, and the unit of what it gives.
    `inputs` are the columns that it may use, by name. Raises InvalidRequest, which names the place;
    LimitExceeded."""
    source = Source(text, "expression", LENGTH_MAX)
    with not_too_deep():
        parser = ExpressionParser(source, tokenize(source, {}))
        node = parser.operation(OR)
        if parser.token.kind != END:
            raise parser.unexpected("an operator, or the end of the expression")
        draft = _Drafts(source, inputs).draft(node)
    if kind not in draft.kinds:
        text = f"The expression gives {names_of(draft.kinds)}, and the column is {names_of(kind)}."
        raise source.error(draft.at, f"{text} Change the type, or convert the value.")
    return draft.make(kind), draft.unit


class _Drafts:
    def __init__(self, source: Source, inputs: Mapping[str, Input]) -> None:
        self._source = source
        self._inputs = inputs

    def draft(self, node: Node) -> _Draft:
        match node:
            case Literal():
                return self._constant(node.constant, node.at)
            case Reference():
                return self._reference(node)
            case Unary(operator="NOT"):
                operand = self._boolean(node.operand)
                return self._plain("not", Kind.BOOLEAN, [operand], node.at)
            case Unary():
                return self._unary(node)
            case Binary():
                return self._binary(node)
            case Logical():
                operands = [self._boolean(it) for it in node.operands]
                return self._plain(node.operator.lower(), Kind.BOOLEAN, operands, node.at)
            case In():
                return self._in(node)
            case Call():
                return self._call(node)
            case Tuple():
                raise self._source.error(node.at, "A tuple can't be used here. Write one value.")
        text = f"{type(node).__name__.upper()} in a computed column"
        raise self._source.unsupported(node.at, text, "Use if(condition, a, b) and comparisons.")

    # ---- names and constants

    def _constant(self, constant: Constant, at: int, kinds: Kind | None = None) -> _Draft:
        def make(kind: Kind) -> Term:
            fitted = self._folded(at, values.fit, constant, kind)
            return Term("literal", kind, value=fitted.value, at=at)

        return _Draft(constant.kinds if kinds is None else kinds, make, at, constant)

    def _folded(self, at: int, compute: Callable[..., Constant], *arguments: Any) -> Constant:
        try:
            return compute(*arguments)
        except ValueError as error:
            raise self._source.error(at, str(error)) from error

    def _reference(self, node: Reference) -> _Draft:
        found = None if node.table else self._inputs.get(node.name)
        if found is None:
            name = f"{node.table}.{node.name}" if node.table else node.name
            near = get_close_matches(name, list(self._inputs), 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(self._inputs)}."
            text = f"{name} is no key column without an expression. {hint}"
            raise self._source.error(node.at, text, known=[*self._inputs])
        term = Term("column", found.kind, value=found.place, at=node.at)
        return _Draft(found.kind, lambda kind: term, node.at, None, found.unit, found.per_day)

    # ---- operators

    def _plain(self, operator: str, kind: Kind, operands: Sequence[_Draft], at: int) -> _Draft:
        """Return a term of one kind, whose operands have the first kind that they may have."""

        def make(_: Kind) -> Term:
            made = tuple([it.make(first_of(it.kinds)) for it in operands])
            return Term(operator, kind, made, at=at)

        return _Draft(kind, make, at)

    def _boolean(self, node: Node) -> _Draft:
        found = self.draft(node)
        if Kind.BOOLEAN not in found.kinds:
            text = f"A condition must be a boolean, not {names_of(found.kinds)}."
            raise self._source.error(node.at, text)
        return found._replace(kinds=Kind.BOOLEAN)

    def _common(self, what: str, wanted: Kind, drafts: Sequence[_Draft], at: int) -> Kind:
        kinds = wanted
        for it in drafts:
            kinds &= it.kinds
        if not kinds & ~Kind.NULL:
            given = " and ".join([names_of(it.kinds) or "null" for it in drafts])
            text = f"{what} takes values of one type ({names_of(wanted)}), not {given}."
            raise self._source.error(at, f"{text} Convert one of them.")
        return kinds

    def _unary(self, node: Unary) -> _Draft:
        operand = self.draft(node.operand)
        wanted = INTEGERS if node.operator == "~" else NUMBERS
        kinds = self._common(f"The operator {node.operator}", wanted, [operand], node.at)
        if operand.constant is not None:
            constant = self._folded(node.at, values.unary, node.operator, operand.constant)
            return self._constant(constant, node.at, kinds)
        if node.operator == "+":
            return operand._replace(kinds=kinds)
        operator = "negative" if node.operator == "-" else "~"

        def make(kind: Kind) -> Term:
            return Term(operator, kind, (operand.make(kind),), at=node.at)

        return _Draft(kinds, make, node.at)

    def _binary(self, node: Binary) -> _Draft:
        left, right = self.draft(node.left), self.draft(node.right)
        if node.operator == "||":
            return self._call(Call(at=node.at, name="concat", arguments=(node.left, node.right)))
        if node.operator in COMPARISONS:
            return self._comparison(node.operator, left, right, node.at)
        wanted = _OPERANDS[node.operator]
        kinds = self._common(f"The operator {node.operator}", wanted, [left, right], node.at)
        if left.constant is not None and right.constant is not None:
            pair = left.constant, right.constant
            constant = self._folded(node.at, values.binary, node.operator, *pair)
            return self._constant(constant, node.at, kinds)

        def make(kind: Kind) -> Term:
            operands = left.make(kind), right.make(kind)
            return Term(node.operator, kind, operands, at=node.at)

        return _Draft(kinds, make, node.at)

    def _comparison(self, operator: str, left: _Draft, right: _Draft, at: int) -> _Draft:
        wanted = COMPARABLE | Kind.NULL
        kind = first_of(self._common(f"The operator {operator}", wanted, [left, right], at))
        made = Term(operator, Kind.BOOLEAN, (left.make(kind), right.make(kind)), at=at)
        return _Draft(Kind.BOOLEAN, lambda _: made, at)

    def _in(self, node: In) -> _Draft:
        if len(node.operands) > 1:
            raise self._source.error(node.at, "A tuple can't be used here. Compare each value.")
        operand = self.draft(node.operands[0])
        equal = []
        for row in node.rows:
            if len(row) > 1:
                raise self._source.error(row[0].at, "A tuple can't be used here. Write one value.")
            equal.append(self._comparison("=", operand, self.draft(row[0]), node.at))
        return equal[0] if len(equal) == 1 else self._plain("or", Kind.BOOLEAN, equal, node.at)

    # ---- functions

    def _call(self, node: Call) -> _Draft:
        name = node.name.lower()
        if name not in FUNCTIONS:
            near = get_close_matches(name, FUNCTIONS, 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(FUNCTIONS)}."
            text = f"There is no function {node.name} for computed columns. {hint}"
            raise self._source.error(node.at, text, function=node.name)
        given = [self.draft(it) for it in node.arguments]
        least, most = FUNCTIONS[name]
        if not least <= len(given) <= most:
            count = str(least) if least == most else f"{least} or more"
            noun = "argument" if count == "1" else "arguments"
            text = f"{name} takes {count} {noun}, not {len(given)}."
            raise self._source.error(node.at, text, function=name)
        if name in FLOORS:
            return self._floor(name, given[0], node.at)
        match name:
            case "if":
                return self._shared("if", [self._boolean(node.arguments[0])], given[1:], node.at)
            case "if_null" | "coalesce":
                return self._shared("coalesce", (), given, node.at)
            case "is_null":
                return self._plain("is_null", Kind.BOOLEAN, given, node.at)
            case "farm_hash":
                return self._of(name, Kind.UINT64, given, _HASHED | Kind.NULL)
            case "concat" | "lower" | "upper":
                return self._of(name, Kind.STRING, given, Kind.STRING)
            case "length":
                return self._of(name, Kind.INT64, given, Kind.STRING)
        kind = _CASTS[name]
        wanted = (INTEGERS if kind == Kind.BOOLEAN else NUMBERS) | (kind & Kind.BOOLEAN)
        (operand,) = given
        made = self._of("cast", kind, given, wanted)
        return operand._replace(kinds=kind, unit="") if operand.kinds == kind else made

    def _of(self, name: str, kind: Kind, given: Sequence[_Draft], wanted: Kind) -> _Draft:
        """Return the call of a function whose arguments have any of the wanted kinds each."""
        for place, it in enumerate(given):
            if not it.kinds & wanted:
                text = f"Argument {place + 1} of {name} must be {names_of(wanted)}"
                raise self._source.error(it.at, f"{text}, not {names_of(it.kinds)}.")
        fit = [it._replace(kinds=it.kinds & wanted) for it in given]
        return self._plain(name, kind, fit, given[0].at)

    def _shared(
        self, name: str, leading: Sequence[_Draft], sharing: Sequence[_Draft], at: int
    ) -> _Draft:
        """Return a call whose result has the kind, and the unit, that its last arguments share."""
        kinds = self._common(name, EVERYTHING & ~Kind.ANY, sharing, at)
        units = {it.unit for it in sharing if it.constant is None or it.constant.value is not None}
        unit = units.pop() if len(units) == 1 else ""

        def make(kind: Kind) -> Term:
            first = [it.make(first_of(it.kinds)) for it in leading]
            return Term(name, kind, (*first, *[it.make(kind) for it in sharing]), at=at)

        per_day = next((it.per_day for it in sharing if it.unit), _DAY_SECONDS)
        return _Draft(kinds, make, at, None, unit, per_day)

    def _floor(self, name: str, operand: _Draft, at: int) -> _Draft:
        kinds = self._common(name, INTEGERS, [operand], at)

        def make(kind: Kind) -> Term:
            return Term(name, kind, (operand.make(kind),), operand.per_day, at)

        return _Draft(kinds, make, at, None, operand.unit, operand.per_day)


_CASTS: Final = {
    "int64": Kind.INT64,
    "uint64": Kind.UINT64,
    "double": Kind.DOUBLE,
    "boolean": Kind.BOOLEAN,
}
ARGUMENTS_MAX: Final = 64
FUNCTIONS: Final[dict[str, tuple[int, int]]] = {
    "farm_hash": (1, ARGUMENTS_MAX),
    "if": (3, 3),
    "is_null": (1, 1),
    "if_null": (2, 2),
    "coalesce": (1, ARGUMENTS_MAX),
    **dict.fromkeys(_CASTS, (1, 1)),
    "concat": (2, 2),
    "length": (1, 1),
    "lower": (1, 1),
    "upper": (1, 1),
    **dict.fromkeys(FLOORS, (1, 1)),
}
"""Functions of computed columns, and how many arguments each takes: the least and the most."""
