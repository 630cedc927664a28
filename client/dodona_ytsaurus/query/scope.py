"""Find the columns that a query's names stand for. Pure.

Owns: the tables in the order of their joins, their names in SQL (t0, t1, ...), and YTsaurus's rules
of names. `t.a` is a column of the table called t, and `a` is a column of the tables without a name.
Columns that USING names are one column.
"""

from typing import Final

from dodona_wire.expressions.source import Source
from dodona_wire.expressions.tree import Reference
from dodona_wire.expressions.values import KIND_OF_TYPE
from dodona_wire.rows.schema import Column, TableSchema
from dodona_ytsaurus.query.names import reference_name
from dodona_ytsaurus.query.tree import Table
from dodona_ytsaurus.query.typed import Expression, bounded


class TableScope:
    """A table of the query, and its name in SQL."""

    __slots__ = ("_columns", "_first_of_name", "is_optional", "schema", "sql", "table")

    def __init__(self, table: Table, schema: TableSchema, sql: str, is_optional: bool) -> None:
        """`is_optional` says whether a row may come without a row of this table."""
        self.table: Final = table
        self.schema: Final = schema
        self.sql: Final = sql
        self.is_optional: Final = is_optional
        self._columns = {column.name: column for column in schema.columns}
        self._first_of_name: dict[str, Column] = {}
        for column in schema.columns:
            self._first_of_name.setdefault(column.name.lower(), column)

    def find(self, name: str) -> Column | None:
        """Return the column of that name, or None."""
        return self._columns.get(name)

    def twin(self, column: Column) -> Column:
        """Return the first column whose name differs from this one only in upper and lower case."""
        return self._first_of_name[column.name.lower()]


class Scope:
    """The tables to which a reference may refer."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.tables: Final[list[TableScope]] = []
        self._shared: list[tuple[str | None, str]] = []

    def share(self, reference: Reference) -> None:
        """Note that the column is the same in two tables."""
        self._shared.append((reference.table, reference.name))

    def all(self) -> list[Reference]:
        """Return every column, as `*` means it. A shared column comes only once."""
        found = [
            Reference(at=scope.table.at, name=column.name, table=scope.table.alias)
            for scope in self.tables
            for column in scope.schema.columns
        ]
        return [
            it
            for place, it in enumerate(found)
            if (it.table, it.name) not in self._shared or it not in found[:place]
        ]

    def column(self, reference: Reference) -> Expression:
        """Return the column. Raises InvalidRequest if there is none, or if it might be two."""
        found = [
            (scope, column)
            for scope in self.tables
            if scope.table.alias == reference.table
            and (column := scope.find(reference.name)) is not None
        ]
        if not found:
            raise self._unknown(reference)
        if len(found) > 1 and (reference.table, reference.name) not in self._shared:
            name = reference_name(reference.table, reference.name)
            paths = " and in ".join([scope.table.path for scope, _ in found])
            raise self._source.error(
                reference.at, f"The column {name} is in {paths}. Name the tables with AS."
            )
        return self._expression(reference, *found[0])

    def _expression(self, reference: Reference, scope: TableScope, column: Column) -> Expression:
        self._check_case(reference, scope, column)
        quoted = column.name.replace('"', '""')
        sql = f'{scope.sql}."{quoted}"'
        is_text = column.type == "utf8"
        return Expression(
            kinds=KIND_OF_TYPE[column.type],
            make=lambda kind, mode: bounded(f"encode({sql})" if is_text else sql),
            at=reference.at,
            is_nullable=scope.is_optional or not column.required,
            column=sql,
            text=sql if is_text else None,
        )

    def _check_case(self, reference: Reference, scope: TableScope, column: Column) -> None:
        """Refuse a column if another name differs only in case: SQL takes both for one."""
        twin = scope.twin(column)
        if twin is not column:
            raise self._source.unsupported(
                reference.at,
                f"the column {column.name} beside {twin.name}",
                f"Queries do not tell them apart in {scope.table.path}. Rename one.",
            )

    def _unknown(self, reference: Reference) -> Exception:
        """Return the error that there is no such column. It also says where there is one."""
        name = reference_name(reference.table, reference.name)
        others = [
            reference_name(scope.table.alias, reference.name)
            for scope in self.tables
            if scope.find(reference.name) is not None
        ]
        hint = f" Use {' or '.join(others)}." if others else ""
        return self._source.error(reference.at, f"There is no column {name}.{hint}", column=name)
