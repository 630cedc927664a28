"""The tree of a query: what its clauses say, as values. Pure.

Owns: the clauses. `dodona_wire.expressions.tree` has the nodes of their expressions.
"""

from dataclasses import dataclass, field

from dodona_wire.expressions.source import Source
from dodona_wire.expressions.tree import Node, Reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a query, and the alias that qualifies its columns."""

    path: str
    alias: str | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A join. Either `using` names columns of both sides, or `left` equals `right`. The predicate,
    which is about the joined table alone, must be true too."""

    table: Table
    is_left: bool
    using: tuple[Reference, ...] = ()
    left: Node | None = None
    right: Node | None = None
    predicate: Node | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One parsed query. Its columns are not looked up yet."""

    source: Source
    select: tuple[Node, ...] | None
    """None means `*`."""
    table: Table
    joins: tuple[Join, ...] = ()
    where: Node | None = None
    group_by: tuple[Node, ...] | None = None
    has_totals: bool = False
    """Whether a row about all groups follows. It includes the groups that HAVING leaves out."""
    having: Node | None = None
    order_by: tuple[tuple[Node, bool], ...] = ()
    """The expressions, each with whether it is descending."""
    offset: int | None = None
    limit: int | None = None
    aliases: dict[str, Node] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the tables that the query names, each once, in order of appearance."""
        tables = [self.table, *(join.table for join in self.joins)]
        return tuple(dict.fromkeys(table.path for table in tables))
