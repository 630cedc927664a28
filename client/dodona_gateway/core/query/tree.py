"""What a query says, as a tree of values. Pure.

Owns: the nodes. Nodes are equal if they say the same, wherever they stand in the text: so a
grouped expression is found again in what follows. `depth` counts the nodes on the longest way
down; the parser bounds it, so that whoever walks a tree may call itself.
"""

from dataclasses import dataclass, field
from typing import Final

from dodona_gateway.core.query.source import Source
from dodona_gateway.core.query.values import Constant

DEPTH_MAX: Final = 50
"""YTsaurus's own bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An expression, and where it begins."""

    at: int = field(compare=False)
    depth: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Node):
    """A constant."""

    constant: Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(Node):
    """A column, or an alias: `name` or `table.name`."""

    name: str
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias(Node):
    """`expression as name`, which the whole query can refer to."""

    name: str
    expression: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A function, or an aggregate, of arguments. The name is as it was written."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    """`+ - ~ NOT` of one operand."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    """Two operands; those of a comparison may be tuples."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Logical(Node):
    """AND or OR of two or more operands."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuple(Node):
    """`(a, b)`: two or more expressions, none of them a tuple."""

    items: tuple[Node, ...]


def spread(node: Node) -> tuple[Node, ...]:
    """The items of a tuple; of anything else, itself."""
    return node.items if isinstance(node, Tuple) else (node,)


Row = tuple[Literal, ...]
"""Constants, side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class In(Node):
    """Whether the operands are, side by side, one of these rows."""

    operands: tuple[Node, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Between(Node):
    """Whether the operands lie in one of these ranges, both ends included. An end may be shorter
    than the operands: it stands for all that begins so."""

    operands: tuple[Node, ...]
    ranges: tuple[tuple[Row, Row], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Like(Node):
    """LIKE, ILIKE, or REGEX (also written RLIKE and REGEXP)."""

    operator: str
    text: Node
    pattern: Node
    escape: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform(Node):
    """The value beside that of the rows which the operands are; otherwise the default, or null."""

    operands: tuple[Node, ...]
    rows: tuple[Row, ...]
    values: tuple[Row, ...]
    default: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Node):
    """CASE, with an operand that is compared with each WHEN, or with WHENs that are conditions."""

    operand: Node | None
    branches: tuple[tuple[Node, Node], ...]
    default: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a query, and what its columns are qualified with."""

    path: str
    alias: str | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Either `using` names columns of both sides, or `left` equals `right`; and the predicate,
    which is about the joined table alone, is true."""

    table: Table
    is_left: bool
    using: tuple[Reference, ...] = ()
    left: Node | None = None
    right: Node | None = None
    predicate: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One parsed query. Its columns are not looked at yet."""

    source: Source
    select: tuple[Node, ...] | None
    """None is `*`."""
    table: Table
    joins: tuple[Join, ...] = ()
    where: Node | None = None
    group_by: tuple[Node, ...] | None = None
    has_totals: bool = False
    """Whether a row about all groups follows: those before HAVING, whatever that leaves."""
    having: Node | None = None
    order_by: tuple[tuple[Node, bool], ...] = ()
    """Each with whether it is descending."""
    offset: int | None = None
    limit: int | None = None
    aliases: dict[str, Node] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The tables that it names, each once, in order of appearance."""
        tables = [self.table, *(join.table for join in self.joins)]
        return tuple(dict.fromkeys(table.path for table in tables))
