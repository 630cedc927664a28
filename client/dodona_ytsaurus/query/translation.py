"""Translate a query of YTsaurus's language to one SELECT of Dodona's SQL. Pure.

Owns: the shape of the SELECT, and its columns. A query with GROUP BY becomes two. The inner query
groups, and computes keys and aggregates (g.g0, g.a0, ...). The outer query computes with them. The
columns of a result have names that quoting can't disturb (r0, r1, ...). Their true names and types
are returned beside the SQL. Each is a bigint, ubigint, double, boolean, blob, or JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from dodona_wire.errors import TableNotFound
from dodona_wire.expressions.source import not_too_deep
from dodona_wire.expressions.tree import Node, spread
from dodona_wire.expressions.values import Kind, first_of
from dodona_wire.rows.schema import TableSchema
from dodona_ytsaurus.query.building import Builder
from dodona_ytsaurus.query.comparisons import both, compare
from dodona_ytsaurus.query.names import name_of
from dodona_ytsaurus.query.parser import parse
from dodona_ytsaurus.query.scope import Scope, TableScope
from dodona_ytsaurus.query.sql_values import SQL_TYPES
from dodona_ytsaurus.query.tree import Join, Query, Table
from dodona_ytsaurus.query.typed import CONDITION, VALUE, Expression, bounded

ResultType = Literal["int64", "uint64", "double", "boolean", "string", "any"]
COLUMNS_MAX: Final = 4_096
_TYPES: Final[dict[Kind, ResultType]] = {
    Kind.INT64: "int64",
    Kind.UINT64: "uint64",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.STRING: "string",
    Kind.ANY: "any",
}


class ResultColumn(msgspec.Struct, frozen=True):
    """A column of a result, at its place."""

    name: str
    """The name that YTsaurus gives the column."""
    type: ResultType
    """In Arrow the types are int64, uint64, double, bool and binary; any is a string of JSON."""


class Translated(msgspec.Struct, frozen=True):
    """A query that `db.query` can run."""

    sql: str
    columns: tuple[ResultColumn, ...]
    """The columns of the result, by their places. The Arrow table's own names mean nothing."""


def translate(
    text: str | bytes,
    schemas: Mapping[str, TableSchema],
    placeholders: Mapping[str, Any] | None = None,
) -> Translated:
    """Parse a query and translate it, if its schemas are known before. Raises as `parse` and
    `to_sql`."""
    return to_sql(parse(text, placeholders), schemas)


def to_sql(query: Query, schemas: Mapping[str, TableSchema]) -> Translated:
    """Return the SQL of a parsed query. `schemas` has the schemas of its tables, by path.

    Raises InvalidRequest, with the place, if a column, a function or a type does not fit;
    TableNotFound if a schema is missing; LimitExceeded."""
    with not_too_deep():
        return _Translation(query, schemas).translated()


class _Translation:
    def __init__(self, query: Query, schemas: Mapping[str, TableSchema]) -> None:
        self._query = query
        self._schemas = schemas
        self._source = query.source
        self._scope = Scope(query.source)
        self._builder = Builder(query, self._scope)

    def translated(self) -> Translated:
        query = self._query
        rows = f"from {self._tables()}"
        if query.where is not None:
            rows += f" where {self._condition(query.where, 'WHERE')}"
        if query.group_by is not None:
            return self._grouped(query.group_by, rows)
        selected, columns = self._selected()
        return Translated(_joined("select", selected, rows, self._order(), self._cut()), columns)

    def _grouped(self, nodes: tuple[Node, ...], rows: str) -> Translated:
        query = self._query
        keys = self._keys(nodes)
        having = None if query.having is None else self._condition(query.having, "HAVING")
        selected, columns = self._selected()
        order = self._order()
        # All aggregates are known only now.
        found = [f"{sql} as {name}" for sql, name in self._builder.aggregates.items()]
        named = ", ".join([*[f"{sql} as g{place}" for place, (sql, _) in enumerate(keys)], *found])
        by = ", ".join([sql for sql, _ in keys])
        groups = f"from (select {named} {rows} group by {by}) g"
        groups += "" if having is None else f" where {having}"
        sql = _joined("select", selected, groups, order, self._cut())
        if query.has_totals:
            nulls = [f"cast(null as {kind}) as g{place}" for place, (_, kind) in enumerate(keys)]
            total = f"select {', '.join([*nulls, *found])} {rows} having count(*) > 0"
            sql = bounded(f"({sql}) union all (select {selected} from ({total}) g)")
        return Translated(sql, columns)

    def _cut(self) -> str:
        limit, offset = self._query.limit, self._query.offset
        text = "" if limit is None else f"limit {limit}"
        return text if offset is None else f"{text} offset {offset}"

    def _selected(self) -> tuple[str, tuple[ResultColumn, ...]]:
        """Return the SQL of the result's columns, and their names and types."""
        nodes = self._query.select or self._everything()
        if len(nodes) > COLUMNS_MAX:
            text = f"A result has at most {COLUMNS_MAX} columns. Select fewer."
            raise self._source.limit(nodes[0].at, text, columns_max=COLUMNS_MAX)
        columns, selected = [], []
        for place, node in enumerate(nodes):
            expression = self._builder.expression(node)
            kind = first_of(expression.kinds)
            columns.append(ResultColumn(name_of(node), _TYPES[kind]))
            selected.append(f"{expression.make(kind, VALUE)} as r{place}")
        return bounded(", ".join(selected)), tuple(columns)

    def _everything(self) -> Sequence[Node]:
        """Return the nodes that `*` stands for: all columns, or the keys of the groups."""
        return self._query.group_by or self._scope.all()

    def _order(self) -> str:
        """Return the ORDER BY, in which null is smaller than all other values."""
        pieces = []
        for node, is_descending in self._query.order_by:
            expression = self._builder.expression(node)
            sql = expression.make(self._builder.comparable(expression), VALUE)
            if expression.constant is not None:
                continue  # a constant sorts nothing, and SQL refuses some of them
            pieces.append(f"{sql} {'desc nulls last' if is_descending else 'asc nulls first'}")
        return f"order by {', '.join(pieces)}" if pieces else ""

    def _condition(self, node: Node, clause: str) -> str:
        return self._builder.condition(node, clause).make(Kind.BOOLEAN, CONDITION)

    def _keys(self, nodes: Sequence[Node]) -> list[tuple[str, str]]:
        """Return the SQL and the type of each group key. Later expressions are about groups."""
        groups, keys = [], []
        for place, node in enumerate(nodes):
            expression = self._builder.expression(node)
            kind = self._builder.comparable(expression)
            keys.append((expression.make(kind, VALUE), SQL_TYPES[kind]))
            groups.append((node, name_of(node), self._group_key(place, kind, expression)))
        self._builder.group(groups)
        return keys

    def _group_key(self, place: int, kind: Kind, expression: Expression) -> Expression:
        """Return a key as the outer query sees it."""
        sql = f"g.g{place}"
        return Expression(
            kinds=kind,
            make=lambda kind, mode: sql,
            at=expression.at,
            is_nullable=expression.is_nullable or self._query.has_totals,
            column=sql,
        )

    # ---- tables

    def _tables(self) -> str:
        first = self._open(self._query.table, is_optional=False)
        return " ".join([first, *[self._joined(it) for it in self._query.joins]])

    def _open(self, table: Table, is_optional: bool) -> str:
        """Open a table, so that the query can name its columns from here on. Returns its SQL."""
        schema = self._schemas.get(table.path)
        if schema is None:
            text = "The query names a table that does not exist. Check its path."
            raise TableNotFound(text, path=table.path)
        name = f"t{len(self._scope.tables)}"
        self._scope.tables.append(TableScope(table, schema, name, is_optional))
        return f"[{table.path}] {name}"

    def _joined(self, join: Join) -> str:
        """Return the SQL of a join. The left side of ON sees the tables before; all else sees only
        the joined table."""
        left = self._sides(self._builder, self._scope, join, join.left)
        opened = self._open(join.table, join.is_left)
        foreign = Scope(self._source)
        found = self._scope.tables[-1]
        foreign.tables.append(TableScope(found.table, found.schema, found.sql, is_optional=False))
        builder = Builder(self._query, foreign)
        right = self._sides(builder, foreign, join, join.right)
        if len(left) != len(right):
            text = f"Tuples of {len(left)} and of {len(right)} can't be compared."
            raise self._source.error(left[0].at, text)
        conditions = [compare(self._source, "=", *pair) for pair in zip(left, right, strict=True)]
        if join.predicate is not None:
            conditions.append(builder.condition(join.predicate, "The condition of a JOIN"))
        for reference in join.using:
            self._scope.share(reference)
        word = "left join" if join.is_left else "join"
        return f"{word} {opened} on {both(conditions).make(Kind.BOOLEAN, CONDITION)}"

    def _sides(
        self, builder: Builder, scope: Scope, join: Join, node: Node | None
    ) -> list[Expression]:
        """Return the expressions of one side that must be equal to the other side."""
        if node is not None:
            found = [builder.expression(it) for it in spread(node)]
        else:
            found = [scope.column(it) for it in join.using]
        for it in found:
            builder.comparable(it)
        return found


def _joined(*pieces: str) -> str:
    return bounded(" ".join([it for it in pieces if it]))
