"""The first rows of a query: its text with a bound that it did not ask for.

Owns: where the bound goes. A text whose place is not found, or that is no query, stays as it is, so
that what is wrong with it is said of what was written.
"""

from collections.abc import Iterator
from typing import Final

from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.engine import Engine
from dodona._core.sql.references import find_tables
from dodona_wire.errors import DodonaError

TEXT_LENGTH_MAX: Final = 50_000
"""What is longer no person wrote, and is not read several times."""


def limit_rows(sql: str, rows_max: int) -> str:
    """A query of so many of its rows at most. Takes as long as DuckDB takes to read it a few
    times."""
    if len(sql) > TEXT_LENGTH_MAX:
        return sql
    engine = Engine(QueryLimits())
    if not _is_query(engine, sql):
        return sql
    return next((it for it in _ways(sql, rows_max) if _is_query(engine, it)), sql)


def _ways(sql: str, rows_max: int) -> Iterator[str]:
    """Behind it, where places in the text and names of columns stay; else around it, if it has a
    bound of its own. What a last semicolon has behind it is a comment, or it is none."""
    for bare in (sql.rstrip().rstrip(";"), sql.rpartition(";")[0]):
        yield f"{bare}\nlimit {rows_max}"
        yield f"select * from ({bare}\n) limit {rows_max}"


def _is_query(engine: Engine, sql: str) -> bool:
    try:
        engine.check(find_tables(sql)[1])
    except DodonaError:
        return False
    return True
