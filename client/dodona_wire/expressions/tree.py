"""The tree of an expression: what the expression says, as values. Pure.

Owns: the nodes. Nodes are equal if they say the same, at any place in the text. So a grouped
expression is found again later in a query. `depth` counts the nodes on the longest way down. The
parser limits it, so a function that walks a tree may be recursive.
"""

from dataclasses import dataclass, field
from typing import Final

from dodona_wire.expressions.values import Constant

DEPTH_MAX: Final = 50
"""YTsaurus's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An expression, and the place where it begins."""

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
    """A call of a function or an aggregate. The name is as it was written."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    """One of `+ - ~ NOT`, with one operand."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    """An operator with two operands. Those of a comparison may be tuples."""

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
    """Return the items of a tuple, or the node itself if it is no tuple."""
    return node.items if isinstance(node, Tuple) else (node,)


Row = tuple[Literal, ...]
"""Constants, side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class In(Node):
    """The test whether the operands are, side by side, one of these rows."""

    operands: tuple[Node, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Between(Node):
    """The test whether the operands lie in one of these ranges, both ends included. An end may be
    shorter than the operands: it then stands for all rows that begin so."""

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
    """The value beside the row that is equal to the operands; otherwise the default, or null."""

    operands: tuple[Node, ...]
    rows: tuple[Row, ...]
    values: tuple[Row, ...]
    default: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Node):
    """CASE. With an operand, each WHEN is compared with it; without one, each WHEN is a
    condition."""

    operand: Node | None
    branches: tuple[tuple[Node, Node], ...]
    default: Node | None = None
