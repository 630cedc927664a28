"""Parse a query's text into its tree: the clauses. Pure.

Owns: which clauses there are, their order, and the form of a path. The parser does not know the
columns of the tables, so it accepts any names.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from dodona_wire.expressions.parser import AND, BIT_OR, OR, ExpressionParser
from dodona_wire.expressions.source import Source, not_too_deep
from dodona_wire.expressions.tokens import END, INT64, NAME, Token, tokenize
from dodona_wire.expressions.tree import Node
from dodona_ytsaurus.query.tree import Join, Query, Table

LIMIT_MAX: Final = 10_000_000
"""The limit of LIMIT and of OFFSET; that of LIMIT is YTsaurus's own."""
JOINS_MAX: Final = 16
_PATH: Final = re.compile(r'//[^\]\s"]+')
_NOT_TAKEN: Final = ("WITH INDEX", "WITH HINT", "UNNEST")


def parse(text: str | bytes, placeholders: Mapping[str, Any] | None = None) -> Query:
    """Parse one query. Its `paths` are the tables whose schemas it needs.

    `placeholders` are the values that {name} stands for: None, bool, int, float, str, bytes, or
    lists of them. Raises InvalidRequest with `offset`, `line`, `character`, and with `expected` if
    another word should stand there; LimitExceeded."""
    source = Source(text)
    with not_too_deep():
        return _QueryParser(source, tokenize(source, placeholders or {})).query()


class _QueryParser(ExpressionParser):
    def query(self) -> Query:
        self.accept("SELECT")
        select = None if self.accept("*") else self.expressions()
        self.expect("FROM", "a comma or FROM" if select else "FROM")
        table = self._table()
        joins = self._joins()
        where = self.operation(OR) if self.accept("WHERE") else None
        group_by = self.expressions() if self.accept("GROUP BY") else None
        has_totals = group_by is not None and self.accept("WITH TOTALS") is not None
        having = self._having(group_by)
        order_by = self._order_by()
        offset = self._number("OFFSET")
        limit = self._number("LIMIT")
        self._check_end()
        query = Query(
            source=self.source,
            select=select,
            table=table,
            joins=joins,
            where=where,
            group_by=group_by,
            has_totals=has_totals,
            having=having,
            order_by=order_by,
            offset=offset,
            limit=limit,
            aliases=self.aliases,
        )
        self._check_limit(query)
        return query

    def _check_end(self) -> None:
        self._refuse()
        if self.token.kind != END:
            raise self.unexpected(
                "one of JOIN, WHERE, GROUP BY, HAVING, ORDER BY, OFFSET, LIMIT, in this order,"
                " or the end of the query"
            )

    def _refuse(self) -> None:
        token = self.token
        if token.kind in _NOT_TAKEN:
            raise self.source.unsupported(token.at, token.kind)

    def _check_limit(self, query: Query) -> None:
        """Check YTsaurus's rules: ORDER BY and OFFSET each need a LIMIT. Refuse WITH TOTALS and
        LIMIT without ORDER BY."""
        if query.limit is None and (query.order_by or query.offset is not None):
            what = "ORDER BY" if query.order_by else "OFFSET"
            raise self.unexpected(f"LIMIT, which {what} needs")
        if query.has_totals and query.limit is not None and not query.order_by:
            raise self.source.unsupported(self.token.at, "WITH TOTALS and LIMIT without ORDER BY")

    # ---- tables

    def _table(self) -> Table:
        if self.token.kind in ("(", "UNNEST"):
            raise self.source.unsupported(self.token.at, "a query in FROM", "Name a table.")
        path = self.expect(NAME, "the path of a table")
        if not _PATH.fullmatch(path.value):
            raise self.source.error(
                path.at,
                "The path of a table is malformed. Write [//home/t], without spaces, quotes or ].",
                path=path.value,
            )
        alias = self.expect(NAME) if self.accept("AS") else self.accept(NAME)
        return Table(path=path.value, alias=alias.value if alias else None, at=path.at)

    def _joins(self) -> tuple[Join, ...]:
        joins: list[Join] = []
        while True:
            self._refuse()
            left = self.accept("LEFT")
            if self.token.kind == "ARRAY":
                raise self.source.unsupported(self.token.at, "ARRAY JOIN")
            if left is None and self.token.kind != "JOIN":
                return tuple(joins)
            token = self.expect("JOIN")
            if len(joins) == JOINS_MAX:
                text = f"A query joins at most {JOINS_MAX} tables. Use fewer."
                raise self.source.limit(token.at, text, joins_max=JOINS_MAX)
            joins.append(self._join(self._table(), left is not None))

    def _join(self, table: Table, is_left: bool) -> Join:
        self._refuse()
        if self.accept("USING"):
            using = [self.reference()]
            while self.accept(","):
                using.append(self.reference())
            return Join(
                table=table, is_left=is_left, using=tuple(using), predicate=self._predicate()
            )
        self.expect("ON", "USING or ON")
        left = self.operation(BIT_OR)
        self.expect("=")
        right = self.operation(BIT_OR)
        return Join(
            table=table, is_left=is_left, left=left, right=right, predicate=self._predicate()
        )

    def _predicate(self) -> Node | None:
        return self.operation(AND) if self.accept("AND") else None

    # ---- what follows

    def _having(self, group_by: tuple[Node, ...] | None) -> Node | None:
        having = self.accept("HAVING")
        if having is None:
            return None
        if group_by is None:
            raise self.source.error(having.at, "HAVING needs GROUP BY.", expected="GROUP BY")
        found = self.operation(OR)
        if self.token.kind == "WITH TOTALS":
            raise self.source.unsupported(
                self.token.at, "WITH TOTALS after HAVING", "Write it before HAVING."
            )
        return found

    def _order_by(self) -> tuple[tuple[Node, bool], ...]:
        if not self.accept("ORDER BY"):
            return ()
        found = self._ordered()
        while self.accept(","):
            found += self._ordered()
        return tuple(found)

    def _ordered(self) -> list[tuple[Node, bool]]:
        nodes = self.items()
        word = self.accept("ASC", "DESC")
        return [(it, word is not None and word.kind == "DESC") for it in nodes]

    def _number(self, clause: str) -> int | None:
        if not self.accept(clause):
            return None
        token: Token = self.expect(INT64, "a number of rows")
        if token.value > LIMIT_MAX:
            raise self.source.limit(
                token.at, f"{clause} is at most {LIMIT_MAX}.", rows_max=LIMIT_MAX
            )
        return int(token.value)
