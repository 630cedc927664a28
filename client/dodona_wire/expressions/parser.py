"""Parse expressions: one token of lookahead, operators by their level. Pure.

Owns: the precedence of operators, and the limits on nesting. From loosest to closest: OR, AND, NOT,
IS [NOT] NULL, = !=, < <= > >= IN BETWEEN LIKE, |, &, << >>, + - ||, * / %, unary + - ~. All are
left-associative. The parser counts a parenthesis in a parenthesis, and an operator over an
operator. So a function that follows the tree may be recursive.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from dodona_wire.errors import InvalidRequest
from dodona_wire.expressions import values
from dodona_wire.expressions.source import Source
from dodona_wire.expressions.tokens import (
    DOUBLE,
    END,
    INT64,
    INT64_END,
    NAME,
    STRING,
    UINT64,
    Token,
)
from dodona_wire.expressions.tree import (
    DEPTH_MAX,
    Alias,
    Between,
    Binary,
    Call,
    Case,
    In,
    Like,
    Literal,
    Logical,
    Node,
    Reference,
    Row,
    Transform,
    Tuple,
    Unary,
    spread,
)
from dodona_wire.expressions.values import NULL, Constant, Kind

NodeT = TypeVar("NodeT", bound=Node)
NESTING_MAX: Final = 50
_CALLS_MAX: Final = 5 * NESTING_MAX
"""The limit on the parser's own nested calls, roughly: nesting costs four, an operator one."""
OR, AND, NOT, IS, EQUALITY, RELATION, BIT_OR, BIT_AND, SHIFT, SUM, PRODUCT = range(11)
_LEVELS: Final = {
    "OR": OR,
    "AND": AND,
    "IS": IS,
    **dict.fromkeys(("=", "!="), EQUALITY),
    **dict.fromkeys(("<", "<=", ">", ">="), RELATION),
    **dict.fromkeys(("IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "REGEXP", "NOT"), RELATION),
    "|": BIT_OR,
    "&": BIT_AND,
    **dict.fromkeys(("<<", ">>"), SHIFT),
    **dict.fromkeys(("+", "-", "||"), SUM),
    **dict.fromkeys(("*", "/", "%"), PRODUCT),
}
_LIKES: Final = {"LIKE": "LIKE", "ILIKE": "ILIKE", "RLIKE": "REGEX", "REGEXP": "REGEX"}
_CONSTANTS: Final = {
    "NULL": NULL,
    "#": NULL,
    "TRUE": Constant(Kind.BOOLEAN, True),
    "FALSE": Constant(Kind.BOOLEAN, False),
    "INF": Constant(Kind.DOUBLE, float("inf")),
}
_KINDS: Final = {
    INT64: Kind.INT64,
    UINT64: Kind.UINT64,
    DOUBLE: Kind.DOUBLE,
    STRING: Kind.STRING,
}


class ExpressionParser:
    """A parser of the expressions of one query. Raises InvalidRequest, LimitExceeded."""

    def __init__(self, source: Source, tokens: Sequence[Token]) -> None:
        self.source: Final = source
        self.aliases: Final[dict[str, Node]] = {}
        """The expressions that `expression as name` has named so far."""
        self._tokens = tokens
        self._place = 0
        self._calls = 0

    # ---- tokens

    @property
    def token(self) -> Token:
        """Return the next token, without taking it."""
        return self._tokens[self._place]

    def take(self) -> Token:
        """Take the next token."""
        token = self._tokens[self._place]
        self._place += token.kind != END
        return token

    def accept(self, *kinds: str) -> Token | None:
        """Take the next token if it is of these kinds, otherwise return None."""
        return self.take() if self.token.kind in kinds else None

    def expect(self, kind: str, what: str = "") -> Token:
        """Take the next token, which must be of that kind. `what` names it in the error."""
        return self.accept(kind) or self._fail(what or kind)

    def unexpected(self, what: str) -> InvalidRequest:
        """Return the error that the next token is not the expected one."""
        token = self.token
        found = token.value if token.kind == NAME else token.kind
        found = f"the end of the {self.source.noun}" if found is END else found
        return self.source.error(token.at, f"Expected {what}, found {found}.", expected=what)

    def _fail(self, what: str) -> Any:
        raise self.unexpected(what)

    # ---- lists and aliases

    def expressions(self) -> tuple[Node, ...]:
        """Parse one or more expressions between commas. Tuples are spread."""
        found = [*spread(self.expression())]
        while self.accept(","):
            found += spread(self.expression())
        return tuple(found)

    def items(self) -> tuple[Node, ...]:
        """Parse one expression, or the items of a tuple."""
        return spread(self.expression())

    def expression(self) -> Node:
        """Parse one expression, which may get a name."""
        node = self.operation(OR)
        alias = self.accept("AS")
        if alias is None:
            return node
        name = self.expect(NAME)
        if isinstance(node, Tuple):
            raise self.source.error(alias.at, "A tuple can't have a name. Leave out AS.")
        if self.aliases.setdefault(name.value, node) is not node:
            text = f"Two expressions are named {name.value}. Give one another name."
            raise self.source.error(name.at, text)
        return self._node(Alias, node.at, node, name=name.value, expression=node)

    # ---- operators

    def operation(self, level: int) -> Node:
        """Parse an expression of operators that bind at least as close as `level`."""
        self._deepen(1)
        left = self._not() if level <= NOT and self.token.kind == "NOT" else self._unary()
        while (found := _LEVELS.get(self.token.kind, -1)) >= level:
            left = self._extended(left, found)
        self._calls -= 1
        return left

    def _extended(self, left: Node, level: int) -> Node:
        operator = self.token.kind
        if level in (OR, AND):
            return self._logical(left, level)
        if operator == "IS":
            return self._is_null(left)
        if level == RELATION and operator not in ("<", "<=", ">", ">="):
            return self._membership(left)
        self.take()
        right = self.operation(level + 1)
        return self._node(Binary, left.at, left, right, operator=operator, left=left, right=right)

    def _logical(self, left: Node, level: int) -> Node:
        """Parse a chain of ANDs (or ORs) as one node, of any length."""
        operator = self.token.kind
        operands = [left]
        while self.accept(operator):
            operands.append(self.operation(level + 1))
        return self._node(Logical, left.at, *operands, operator=operator, operands=tuple(operands))

    def _not(self) -> Node:
        return self._negated(self.take().at, self._nested(lambda: self.operation(IS)))

    def _negated(self, at: int, operand: Node) -> Node:
        return self._node(Unary, at, operand, operator="NOT", operand=operand)

    def _is_null(self, left: Node) -> Node:
        self.take()
        is_negated = self.accept("NOT") is not None
        self.expect("NULL")
        found = self._node(Call, left.at, left, name="is_null", arguments=(left,))
        return self._negated(left.at, found) if is_negated else found

    def _membership(self, left: Node) -> Node:
        """Parse IN, BETWEEN, LIKE and similar, after their operand. NOT may stand before all but
        BETWEEN."""
        is_negated = self.accept("NOT") is not None
        token = self.take()
        if token.kind == "IN":
            found = self._in(left)
        elif token.kind in _LIKES:
            found = self._like(left, _LIKES[token.kind])
        elif token.kind == "BETWEEN" and not is_negated:
            found = self._between(left)
        else:
            self._place -= 1
            raise self.unexpected("IN, LIKE, ILIKE, RLIKE or REGEXP after NOT")
        return self._negated(left.at, found) if is_negated else found

    def _in(self, left: Node) -> Node:
        return self._node(In, left.at, left, operands=spread(left), rows=self._rows())

    def _like(self, text: Node, operator: str) -> Node:
        pattern = self.operation(SUM)
        escape = self.operation(SUM) if self.accept("ESCAPE") else None
        below = [text, pattern, *([] if escape is None else [escape])]
        return self._node(
            Like, text.at, *below, operator=operator, text=text, pattern=pattern, escape=escape
        )

    def _between(self, left: Node) -> Node:
        """Parse `1 and 2`, `(1, 2) and (3, 4)`, or ranges: `(1 and 2, (3, 4) and 5)`."""
        if self.token.kind != "(":
            return self._between_two(left, self._row())
        self.take()
        first = self._row()
        if self.token.kind == "AND":
            return self._between_ranges(left, first)
        row = list(first)
        if len(row) > 1:
            raise self.unexpected("AND")
        while self.accept(","):
            row.append(self._literal())
        self.expect(")", "a comma, AND or )")
        return self._between_two(left, tuple(row))

    def _between_two(self, left: Node, lower: Row) -> Node:
        self.expect("AND")
        ends = {">=": self._tuple(lower), "<=": self._tuple(self._row())}
        compared = [
            self._node(Binary, left.at, left, end, operator=operator, left=left, right=end)
            for operator, end in ends.items()
        ]
        return self._node(Logical, left.at, *compared, operator="AND", operands=tuple(compared))

    def _tuple(self, row: Row) -> Node:
        return row[0] if len(row) == 1 else self._node(Tuple, row[0].at, *row, items=row)

    def _between_ranges(self, left: Node, first: Row) -> Node:
        self.expect("AND")
        ranges = [(first, self._row())]
        while self.accept(","):
            lower = self._row()
            self.expect("AND")
            ranges.append((lower, self._row()))
        self.expect(")")
        return self._node(Between, left.at, left, operands=spread(left), ranges=tuple(ranges))

    # ---- constants

    def _rows(self) -> tuple[Row, ...]:
        """Parse `(1, 2)` or `((1, 2), (3, 4))`."""
        self.expect("(")
        rows = [self._row()]
        while self.accept(","):
            rows.append(self._row())
        self.expect(")", "a comma or )")
        return tuple(rows)

    def _row(self) -> Row:
        """Parse `1` or `(1, 2)`."""
        if not self.accept("("):
            return (self._literal(),)
        row = [self._literal()]
        while self.accept(","):
            row.append(self._literal())
        self.expect(")", "a comma or )")
        return tuple(row)

    def _literal(self) -> Literal:
        """Parse a constant, perhaps with signs before it."""
        first = self.token
        signs = []
        while (sign := self.accept("+", "-", "~")) is not None:
            signs.append(sign.kind)
        token = self.token
        constant = self._constant(token, bool(signs) and signs[-1] == "-")
        if constant is None:
            raise self.unexpected("a literal")
        self.take()
        for it in reversed(signs):
            if constant.kind not in (values.NUMBERS if it != "~" else values.INTEGERS):
                raise self.source.error(token.at, f"The sign {it} needs a number after it.")
            constant = values.unary(it, constant)
        return Literal(at=first.at, constant=constant)

    def _constant(self, token: Token, is_negated: bool) -> Constant | None:
        if token.kind in _CONSTANTS:
            return _CONSTANTS[token.kind]
        if token.kind not in _KINDS:
            return None
        kind, value = _KINDS[token.kind], token.value
        if kind == Kind.INT64 and value >= INT64_END + is_negated:
            hint = f"{value} is too large for int64. Write {value}u."
            raise self.source.error(token.at, hint)
        return Constant(kind, values.wrapped(value, kind) if kind == Kind.INT64 else value)

    # ---- what operators stand between

    def _unary(self) -> Node:
        sign = self.accept("+", "-", "~")
        if sign is None:
            return self._atom(is_negated=False)
        if sign.kind == "-" and self.token.kind == INT64:
            operand = self._atom(is_negated=True)
        else:
            operand = self._nested(self._unary)
        return self._node(Unary, sign.at, operand, operator=sign.kind, operand=operand)

    def _atom(self, is_negated: bool) -> Node:
        token = self.token
        constant = self._constant(token, is_negated)
        if constant is not None:
            return Literal(at=self.take().at, constant=constant)
        match token.kind:
            case "(":
                return self._nested(self._group)
            case "CASE":
                return self._nested(self._case)
            case "TRANSFORM":
                return self._nested(self._transform)
            case "CAST":
                hint = "Use int64(x), string(x) and so on."
                raise self.source.unsupported(token.at, "CAST", hint)
        if token.kind != NAME:
            raise self.unexpected("an expression")
        return self._named()

    def _named(self) -> Node:
        name = self.take()
        if self.accept("("):
            return self._nested(lambda: self._call(name))
        if not self.accept("."):
            return Reference(at=name.at, name=name.value)
        column = self.expect(NAME, "the name of a column")
        if self.token.kind == "." or self.token.kind == DOUBLE:
            raise self.source.unsupported(self.token.at, "access to the members of a column")
        return Reference(at=name.at, name=column.value, table=name.value)

    def reference(self) -> Reference:
        """Parse the name of a column."""
        if self.token.kind != NAME:
            raise self.unexpected("the name of a column")
        found = self._named()
        if not isinstance(found, Reference):
            raise self.source.error(found.at, "Expected the name of a column.", expected=NAME)
        return found

    def _call(self, name: Token) -> Node:
        arguments = () if self.token.kind == ")" else self.expressions()
        self.expect(")", "a comma or )")
        return self._node(Call, name.at, *arguments, name=name.value, arguments=arguments)

    def _group(self) -> Node:
        opening = self.take()
        if self.token.kind in ("SELECT", "FROM"):
            raise self.source.unsupported(self.token.at, "a query in a query")
        items = self.expressions()
        self.expect(")", "a comma or )")
        if len(items) == 1:
            return items[0]
        return self._node(Tuple, opening.at, *items, items=items)

    def _case(self) -> Node:
        opening = self.take()
        operand = None if self.token.kind == "WHEN" else self.expression()
        branches = []
        while self.accept("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            branches.append((condition, self.expression()))
        if not branches:
            raise self.unexpected("WHEN")
        default = self.expression() if self.accept("ELSE") else None
        self.expect("END", "WHEN, ELSE or END")
        below = [it for branch in branches for it in branch]
        below += [it for it in (operand, default) if it is not None]
        return self._node(
            Case, opening.at, *below, operand=operand, branches=tuple(branches), default=default
        )

    def _transform(self) -> Node:
        opening = self.take()
        self.expect("(")
        operand = self.expression()
        self.expect(",", "a comma")
        rows = self._rows()
        self.expect(",", "a comma")
        found = self._rows()
        default = self.expression() if self.accept(",") else None
        self.expect(")", "a comma or )")
        below = [operand, *([] if default is None else [default])]
        return self._node(
            Transform,
            opening.at,
            *below,
            operands=spread(operand),
            rows=rows,
            values=found,
            default=default,
        )

    # ---- bounds

    def _node(self, kind: type[NodeT], at: int, *below: Node, **fields: Any) -> NodeT:
        depth = 1 + max((it.depth for it in below), default=0)
        if depth > DEPTH_MAX:
            text = f"The expression has more than {DEPTH_MAX} nested operators. Make it simpler."
            raise self.source.limit(at, text, depth_max=DEPTH_MAX)
        return kind(at=at, depth=depth, **fields)

    def _nested(self, parse: Callable[[], Node]) -> Node:
        self._deepen(4)
        found = parse()
        self._calls -= 4
        return found

    def _deepen(self, calls: int) -> None:
        self._calls += calls
        if self._calls > _CALLS_MAX:
            text = f"The expression is nested deeper than {NESTING_MAX}. Make it simpler."
            raise self.source.limit(self.token.at, text, depth_max=NESTING_MAX)
