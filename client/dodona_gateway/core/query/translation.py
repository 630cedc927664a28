"""A query of YTsaurus's language as one SELECT of Dodona's SQL. Pure.

Owns: the SELECT's shape, and what its columns are. A query with GROUP BY becomes two: the inner
one groups, and computes keys and aggregates (g.g0, g.a0, ...); the outer computes with them. The
columns of a result have names that quoting can't disturb (r0, r1, ...); what they are called, and
of which type they are, is said beside. Each is a bigint, ubigint, double, boolean, blob, or JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from dodona_gateway.core.query.building import Builder
from dodona_gateway.core.query.comparisons import both, compare
from dodona_gateway.core.query.names import name_of
from dodona_gateway.core.query.parser import parse
from dodona_gateway.core.query.scope import Scope, TableScope
from dodona_gateway.core.query.source import not_too_deep
from dodona_gateway.core.query.tree import Join, Node, Query, Table, spread
from dodona_gateway.core.query.typed import CONDITION, VALUE, Expression, bounded
from dodona_gateway.core.query.values import SQL_TYPES, Kind, first_of
from dodona_wire.errors import TableNotFound
from dodona_wire.rows.schema import TableSchema

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
    """As YTsaurus calls it."""
    type: ResultType
    """In Arrow: int64, uint64, double, bool, binary; any is a string, JSON."""


class Translated(msgspec.Struct, frozen=True):
    """A query that `db.query` can run."""

    sql: str
    columns: tuple[ResultColumn, ...]
    """Of the result, by their places: the Arrow table's own names mean nothing."""


def translate(
    text: str | bytes,
    schemas: Mapping[str, TableSchema],
    placeholders: Mapping[str, Any] | None = None,
) -> Translated:
    """`parse` and `to_sql`, for those who know the schemas beforehand. Raises as both."""
    return to_sql(parse(text, placeholders), schemas)


def to_sql(query: Query, schemas: Mapping[str, TableSchema]) -> Translated:
    """The SQL of a parsed query, whose tables have these schemas, by their paths.

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
        """What the result is made of, and what that is called."""
        nodes = self._query.select or self._everything()
        if len(nodes) > COLUMNS_MAX:
            text = f"a result has at most {COLUMNS_MAX} columns"
            raise self._source.limit(nodes[0].at, text, columns_max=COLUMNS_MAX)
        columns, selected = [], []
        for place, node in enumerate(nodes):
            expression = self._builder.expression(node)
            kind = first_of(expression.kinds)
            columns.append(ResultColumn(name_of(node), _TYPES[kind]))
            selected.append(f"{expression.make(kind, VALUE)} as r{place}")
        return bounded(", ".join(selected)), tuple(columns)

    def _everything(self) -> Sequence[Node]:
        """What `*` stands for: all columns, or the keys of the groups."""
        return self._query.group_by or self._scope.all()

    def _order(self) -> str:
        """Null is smaller than all."""
        pieces = []
        for node, is_descending in self._query.order_by:
            expression = self._builder.expression(node)
            sql = expression.make(self._builder.comparable(expression), VALUE)
            if expression.constant is not None:
                continue  # which all rows have; SQL takes some of them for a mistake
            pieces.append(f"{sql} {'desc nulls last' if is_descending else 'asc nulls first'}")
        return f"order by {', '.join(pieces)}" if pieces else ""

    def _condition(self, node: Node, clause: str) -> str:
        return self._builder.condition(node, clause).make(Kind.BOOLEAN, CONDITION)

    def _keys(self, nodes: Sequence[Node]) -> list[tuple[str, str]]:
        """The SQL of each key of the groups, and its type. What is built afterwards is about
        groups."""
        groups, keys = [], []
        for place, node in enumerate(nodes):
            expression = self._builder.expression(node)
            kind = self._builder.comparable(expression)
            keys.append((expression.make(kind, VALUE), SQL_TYPES[kind]))
            groups.append((node, name_of(node), self._group_key(place, kind, expression)))
        self._builder.group(groups)
        return keys

    def _group_key(self, place: int, kind: Kind, expression: Expression) -> Expression:
        """A key, as it is seen from outside of the groups."""
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
        """Let its columns be named from here on → the table as SQL."""
        schema = self._schemas.get(table.path)
        if schema is None:
            raise TableNotFound("the query names a table that is not there", path=table.path)
        name = f"t{len(self._scope.tables)}"
        self._scope.tables.append(TableScope(table, schema, name, is_optional))
        return f"[{table.path}] {name}"

    def _joined(self, join: Join) -> str:
        """What stands at the left of ON sees the tables before, all else the joined one alone."""
        left = self._sides(self._builder, self._scope, join, join.left)
        opened = self._open(join.table, join.is_left)
        foreign = Scope(self._source)
        found = self._scope.tables[-1]
        foreign.tables.append(TableScope(found.table, found.schema, found.sql, is_optional=False))
        builder = Builder(self._query, foreign)
        right = self._sides(builder, foreign, join, join.right)
        if len(left) != len(right):
            text = f"tuples of {len(left)} and of {len(right)} can't be compared"
            raise self._source.error(left[0].at, text)
        conditions = [compare(self._source, "=", *pair) for pair in zip(left, right, strict=True)]
        if join.predicate is not None:
            conditions.append(builder.condition(join.predicate, "the condition of a JOIN"))
        for reference in join.using:
            self._scope.share(reference)
        word = "left join" if join.is_left else "join"
        return f"{word} {opened} on {both(conditions).make(Kind.BOOLEAN, CONDITION)}"

    def _sides(
        self, builder: Builder, scope: Scope, join: Join, node: Node | None
    ) -> list[Expression]:
        """What has to be equal, of one side."""
        if node is not None:
            found = [builder.expression(it) for it in spread(node)]
        else:
            found = [scope.column(it) for it in join.using]
        for it in found:
            builder.comparable(it)
        return found


def _joined(*pieces: str) -> str:
    return bounded(" ".join([it for it in pieces if it]))
