"""Build expressions with known columns and kinds from the tree of a query. Pure.

Owns: what a name stands for (a group's key, then an alias, then a column), which functions may
stand where, and the folding of constants. An alias stands for its expression at each use, so a
short query can be a long one. So the number of visited nodes has a limit.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dodona_wire.expressions import values
from dodona_wire.expressions.tree import (
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
from dodona_wire.expressions.values import (
    EVERYTHING,
    INTEGERS,
    NUMBERS,
    Constant,
    Kind,
    first_of,
    names_of,
)
from dodona_ytsaurus.query.calls import Function, call
from dodona_ytsaurus.query.comparisons import (
    INVERSE,
    both,
    compare,
    compare_tuples,
    either,
    is_not_null,
    is_null,
    negation,
)
from dodona_ytsaurus.query.functions import AGGREGATES, FUNCTIONS, NOT_TAKEN
from dodona_ytsaurus.query.matching import match_sql
from dodona_ytsaurus.query.membership import in_ranges, in_rows
from dodona_ytsaurus.query.scope import Scope
from dodona_ytsaurus.query.sql_values import sql_of, text_of, text_sql
from dodona_ytsaurus.query.tree import Query
from dodona_ytsaurus.query.typed import Expression, Mode, bounded

VISITS_MAX: Final = 100_000
DEPTH_MAX: Final = 100
"""The depth of nested expressions, with every alias replaced by its expression."""
_OPERAND_KINDS: Final = {
    **dict.fromkeys("+-*/", NUMBERS),
    **dict.fromkeys(("%", "<<", ">>", "|", "&", "~"), INTEGERS),
    "||": Kind.STRING,
}


class Builder:
    """Builds the expressions of one query. Raises InvalidRequest, LimitExceeded."""

    def __init__(self, query: Query, scope: Scope) -> None:
        self.source: Final = query.source
        self.aggregates: Final[dict[str, str]] = {}
        """By the SQL of each aggregate that became SQL, its name."""
        self._aliases = query.aliases
        self._scope = scope
        self._keys_by_node: dict[Node, Expression] = {}
        self._keys_by_name: dict[str, Expression] = {}
        self._has_groups = False
        self._is_grouped = False
        self._used: list[str] = []
        self._visits = 0
        self._depth = 0

    def group(self, keys: list[tuple[Node, str, Expression]]) -> None:
        """Build expressions over groups from here on. `keys` are each key's node, name and
        expression."""
        for node, name, expression in keys:
            said = node.expression if isinstance(node, Alias) else node
            self._keys_by_node.setdefault(said, expression)
            self._keys_by_name.setdefault(name, expression)
        self._has_groups = self._is_grouped = True

    def expression(self, node: Node) -> Expression:
        """Build the expression of one value."""
        self._visits += 1
        self._depth += 1
        if self._visits > VISITS_MAX or self._depth > DEPTH_MAX:
            raise self.source.limit(
                node.at,
                "The query is too large after its aliases are replaced. Use fewer nested aliases.",
                visits_max=VISITS_MAX,
                depth_max=DEPTH_MAX,
            )
        found = self._group_key(node) or _BUILDERS[type(node)](self, node)
        self._depth -= 1
        return found

    def condition(self, node: Node, clause: str) -> Expression:
        """Build the expression of one boolean. `clause` names its place in the error."""
        found = self.expression(node)
        if Kind.BOOLEAN not in found.kinds:
            raise self.source.error(
                node.at, f"{clause} needs a boolean, not {names_of(found.kinds)}."
            )
        return found

    def comparable(self, expression: Expression) -> Kind:
        """Return the kind of an expression to sort, group or join by. Raises InvalidRequest."""
        kinds = expression.kinds & values.COMPARABLE
        if not kinds:
            wanted, found = names_of(values.COMPARABLE), names_of(expression.kinds)
            text = f"A key to sort, group or join by must be {wanted}, not {found}. Convert it."
            raise self.source.error(expression.at, text)
        return first_of(kinds)

    # ---- names

    def _group_key(self, node: Node) -> Expression | None:
        if not self._is_grouped or isinstance(node, Literal):
            return None  # an equal key would lose the constant of the literal
        if isinstance(node, Reference) and node.table is None and node.name in self._keys_by_name:
            return self._keys_by_name[node.name]
        return self._keys_by_node.get(node)

    def _reference(self, node: Reference) -> Expression:
        alias = self._aliases.get(node.name) if node.table is None else None
        if alias is not None and node.name not in self._used:
            self._used.append(node.name)
            found = self.expression(alias)
            self._used.pop()
            return found
        column = self._scope.column(node)
        if self._is_grouped:
            text = f"The column {node.name} is not in GROUP BY."
            hint = "Add it there, or use it in an aggregate."
            raise self.source.error(node.at, f"{text} {hint}")
        return column

    def _alias(self, node: Alias) -> Expression:
        return self.expression(Reference(at=node.at, name=node.name))

    # ---- constants and operators

    def _literal(self, node: Literal) -> Expression:
        return self.constant(node.constant, node.at)

    def constant(self, constant: Constant, at: int, kinds: Kind | None = None) -> Expression:
        """Build a constant of one of `kinds`, by default of all kinds that it may be taken for."""
        text = text_of(constant.value) if constant.kind == Kind.STRING else None
        return Expression(
            kinds=constant.kinds if kinds is None else kinds,
            make=lambda kind, mode: sql_of(self._folded(at, values.fit, constant, kind)),
            at=at,
            is_nullable=constant.value is None,
            constant=constant,
            text=None if text is None else text_sql(text),
        )

    def _folded(self, at: int, compute: Callable[..., Constant], *arguments: Any) -> Constant:
        try:
            return compute(*arguments)
        except ValueError as error:
            raise self.source.error(at, str(error)) from error

    def _unary(self, node: Unary) -> Expression:
        if node.operator == "NOT":
            return self._not(node.operand)
        operand = self._scalar(node.operand)
        kinds = self._operands(node, node.operator, operand)
        if operand.constant is not None:
            folded = self._folded(node.at, values.unary, node.operator, operand.constant)
            return self.constant(folded, node.at, kinds)

        def make(kind: Kind, mode: Mode) -> str:
            sql = operand.make(kind, mode.value())
            return sql if node.operator == "+" else bounded(f"({node.operator}{sql})")

        return Expression(kinds=kinds, make=make, at=node.at, is_nullable=operand.is_nullable)

    def _operands(self, node: Node, operator: str, *operands: Expression) -> Kind:
        """Return the kinds that all operands have, and with which the operator can compute."""
        kinds = _OPERAND_KINDS[operator]
        for it in operands:
            if not kinds & it.kinds:
                wanted = names_of(_OPERAND_KINDS[operator])
                given = " and ".join([names_of(it.kinds) for it in operands])
                text = f"The operator {operator} takes operands of one type ({wanted})"
                raise self.source.error(node.at, f"{text}, not {given}.")
            kinds &= it.kinds
        return kinds

    def _binary(self, node: Binary) -> Expression:
        if node.operator in INVERSE:
            return self._comparison(node, node.operator)
        left, right = self._scalar(node.left), self._scalar(node.right)
        kinds = self._operands(node, node.operator, left, right)
        if left.constant is not None and right.constant is not None and node.operator != "||":
            return self.constant(self._fold(node, left.constant, right.constant), node.at, kinds)
        return Expression(
            kinds=kinds,
            make=lambda kind, mode: bounded(
                f"({left.make(kind, mode.value())} {self._operator(node.operator, kind)}"
                f" {right.make(kind, mode.value())})"
            ),
            at=node.at,
            is_nullable=left.is_nullable or right.is_nullable,
        )

    def _fold(self, node: Binary, left: Constant, right: Constant) -> Constant:
        return self._folded(node.at, values.binary, node.operator, left, right)

    @staticmethod
    def _operator(operator: str, kind: Kind) -> str:
        return "//" if operator == "/" and kind in INTEGERS else operator

    # ---- conditions

    def _comparison(self, node: Binary, operator: str) -> Expression:
        left, right = self._items(node.left), self._items(node.right)
        if len(left) != len(right):
            raise self.source.error(
                node.at, f"Tuples of {len(left)} and of {len(right)} can't be compared."
            )
        return compare_tuples(self.source, operator, left, right)

    def _logical(self, node: Logical) -> Expression:
        operands = [self.condition(it, node.operator) for it in node.operands]
        return both(operands) if node.operator == "AND" else either(operands)

    def _not(self, operand: Node) -> Expression:
        """Negate an operand. A comparison becomes its inverse, so that the engine sees ranges of
        keys."""
        match operand:
            case Unary(operator="NOT"):
                return self.condition(operand.operand, "NOT")
            case Binary() if operand.operator in INVERSE:
                return self._comparison(operand, INVERSE[operand.operator])
            case Call(arguments=(argument,)) if operand.name.lower() == "is_null":
                return is_not_null(self.expression(argument))
            case Logical():
                turned = [self._not(it) for it in operand.operands]
                return either(turned) if operand.operator == "AND" else both(turned)
        return negation(self.condition(operand, "NOT"))

    def _in(self, node: In) -> Expression:
        operands = [self.expression(it) for it in node.operands]
        return in_rows(self.source, self.constant, operands, node.rows, node.at)

    def _between(self, node: Between) -> Expression:
        operands = [self.expression(it) for it in node.operands]
        return in_ranges(self.source, self.constant, operands, node.ranges, node.at)

    def _like(self, node: Like) -> Expression:
        nodes = [node.text, node.pattern, *([] if node.escape is None else [node.escape])]
        if node.escape is not None and node.operator == "REGEX":
            raise self.source.error(
                node.escape.at, "ESCAPE is for LIKE, not for RLIKE. Leave it out."
            )
        function = Function(
            (Kind.STRING,) * len(nodes),
            Kind.BOOLEAN,
            lambda given: match_sql(node.operator, *given),
        )
        given = [self._scalar(it) for it in nodes]
        return call(self.source, node.operator, function, given, node.at)

    # ---- functions

    def _call(self, node: Call) -> Expression:
        name = node.name.lower()
        if name in AGGREGATES:
            return self._aggregate(node, AGGREGATES[name])
        if name == "is_null" and len(node.arguments) == 1:
            return is_null(self.expression(node.arguments[0]))
        if name not in FUNCTIONS:
            raise self._no_function(node, name)
        given = [self.expression(it) for it in node.arguments]
        return call(self.source, name, FUNCTIONS[name], given, node.at)

    def _no_function(self, node: Call, name: str) -> Exception:
        if name in NOT_TAKEN or name.startswith(("hll_", "timestamp_floor_")):
            return self.source.unsupported(node.at, f"the function {name}")
        hint = " Use sum(1) to count rows." if name == "count" else ""
        return self.source.error(node.at, f"There is no function {node.name}.{hint}", function=name)

    def _aggregate(self, node: Call, aggregate: Function) -> Expression:
        """Build an aggregate. Its arguments concern the rows of a group; all else concerns the
        group."""
        if not self._is_grouped:
            within = "is inside another aggregate. Compute it in one aggregate only."
            outside = "needs GROUP BY, and can't stand in WHERE, JOIN or a key of GROUP BY."
            where = within if self._has_groups else outside
            raise self.source.error(node.at, f"The aggregate {node.name} {where}")
        self._is_grouped = False
        given = [self.expression(it) for it in node.arguments]
        self._is_grouped = True
        found = call(self.source, node.name.lower(), aggregate, given, node.at)

        def make(kind: Kind, mode: Mode) -> str:
            sql = found.make(kind, Mode())
            return f"g.{self.aggregates.setdefault(sql, f'a{len(self.aggregates)}')}"

        return Expression(kinds=found.kinds, make=make, at=node.at, is_nullable=found.is_nullable)

    # ---- choices

    def _case(self, node: Case) -> Expression:
        conditions = [self._when(node.operand, condition) for condition, _ in node.branches]
        found = [self._scalar(result) for _, result in node.branches]
        default = None if node.default is None else self._scalar(node.default)
        return self._chosen(node, conditions, found, default)

    def _when(self, operand: Node | None, condition: Node) -> Expression:
        if operand is None:
            return self.condition(condition, "WHEN")
        return compare(self.source, "=", self._scalar(operand), self._scalar(condition))

    def _transform(self, node: Transform) -> Expression:
        if len(node.rows) != len(node.values):
            counts = f"{len(node.rows)} and {len(node.values)}"
            text = f"TRANSFORM needs two lists of one size, not {counts}."
            raise self.source.error(node.at, text)
        operands = [self.expression(it) for it in node.operands]
        conditions = [
            in_rows(self.source, self.constant, operands, (row,), node.at) for row in node.rows
        ]
        found = [self._value(row) for row in node.values]
        default = None if node.default is None else self._scalar(node.default)
        return self._chosen(node, conditions, found, default)

    def _value(self, row: Row) -> Expression:
        if len(row) != 1:
            raise self.source.error(row[0].at, "A tuple can't be used here. Write one value.")
        return self._literal(row[0])

    def _chosen(
        self,
        node: Node,
        conditions: Sequence[Expression],
        results: Sequence[Expression],
        default: Expression | None,
    ) -> Expression:
        """Build the choice of the result beside the first condition that is true."""
        all_results = [*results, *([] if default is None else [default])]
        kinds = EVERYTHING
        for it in all_results:
            kinds &= it.kinds
        if not kinds:
            names = " and ".join(dict.fromkeys([names_of(it.kinds) for it in all_results]))
            text = f"The results must have one type, not {names}. Convert some of them."
            raise self.source.error(node.at, text)

        def make(kind: Kind, mode: Mode) -> str:
            inside = mode.value()
            condition = Mode(is_condition=True, not_null=mode.not_null)
            pieces = ["case"]
            for when, then in zip(conditions, results, strict=True):
                pieces.append(f"when {when.make(Kind.BOOLEAN, condition)}")
                pieces.append(f"then {then.make(kind, inside)}")
            pieces += [] if default is None else [f"else {default.make(kind, inside)}"]
            return bounded(" ".join([*pieces, "end"]))

        is_nullable = default is None or any(it.is_nullable for it in all_results)
        return Expression(kinds=kinds, make=make, at=node.at, is_nullable=is_nullable)

    # ---- tuples

    def _scalar(self, node: Node) -> Expression:
        if isinstance(node, Tuple):
            raise self.source.error(node.at, "A tuple can't be used here. Write one value.")
        return self.expression(node)

    def _items(self, node: Node) -> list[Expression]:
        return [self.expression(it) for it in spread(node)]

    def _tuple(self, node: Tuple) -> Expression:
        return self._scalar(node)


_BUILDERS: Final[dict[type[Node], Callable[[Builder, Any], Expression]]] = {
    Alias: Builder._alias,
    Between: Builder._between,
    Binary: Builder._binary,
    Call: Builder._call,
    Case: Builder._case,
    In: Builder._in,
    Like: Builder._like,
    Literal: Builder._literal,
    Logical: Builder._logical,
    Reference: Builder._reference,
    Transform: Builder._transform,
    Tuple: Builder._tuple,
    Unary: Builder._unary,
}
