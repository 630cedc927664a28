"""Bound a query to its first rows, by a limit in its text.

Owns: the place of the limit. If the text has no such place, or is no query, it stays as it is. So
an error describes the text that the caller wrote.
"""

from collections.abc import Iterator
from typing import Final

from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.engine import Engine
from dodona._core.sql.references import find_tables
from dodona_wire.errors import DodonaError

TEXT_LENGTH_MAX: Final = 50_000
"""A longer text was not written by a person, and is not parsed several times."""


def limit_rows(sql: str, rows_max: int) -> str:
    """Return the query with a limit of `rows_max` rows. This takes as long as DuckDB needs to parse
    the query a few times."""
    if len(sql) > TEXT_LENGTH_MAX:
        return sql
    engine = Engine(QueryLimits())
    if not _is_query(engine, sql):
        return sql
    return next((it for it in _ways(sql, rows_max) if _is_query(engine, it)), sql)


def _ways(sql: str, rows_max: int) -> Iterator[str]:
    """Yield texts with the limit behind the query, where positions in the text and names of columns
    stay. Yield also texts with the limit around it, for a query with its own limit. After a last
    semicolon there may be a comment, so the end is cut off in two ways."""
    for bare in (sql.rstrip().rstrip(";"), sql.rpartition(";")[0]):
        yield f"{bare}\nlimit {rows_max}"
        yield f"select * from ({bare}\n) limit {rows_max}"


def _is_query(engine: Engine, sql: str) -> bool:
    try:
        engine.check(find_tables(sql)[1])
    except DodonaError:
        return False
    return True
