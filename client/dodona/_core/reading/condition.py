"""An SQL condition over one table's columns: which rows it is true for, and what it needs of them.

Owns: the condition's two lives. `plan` has DuckDB say which columns it needs, and which range of
keys can have such rows at all; `Filter` asks it of rows, page by page, in memory. A condition is
an expression over one row: no subqueries, which would see one page only, nor aggregates.
Like a query it sees nothing but the rows, in columns of DuckDB's types: see `query`.
"""

from typing import Any, Final

from dodona._core.protocol.limits import QueryLimits
from dodona._core.reading.query import json_texts, shown_schema, stream
from dodona._core.sql.engine import Engine
from dodona._core.sql.pushdown import ScanRange, column_id, scan_ranges
from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.schema import TableSchema

TEXT_LENGTH_MAX: Final = 1 << 20
_VIEW: Final = "rows"
_ONLY_CONDITION: Final = "a filter is one condition over the columns of a row, as after WHERE"


def plan(schema: TableSchema, condition: str, limits: QueryLimits | None = None) -> ScanRange:
    """What has to be read to find all rows for which the condition is true: the columns that it
    looks at, and a range of keys. Raises InvalidRequest, LimitExceeded."""
    if not condition.strip():
        raise InvalidRequest(_ONLY_CONDITION)
    if len(condition) > TEXT_LENGTH_MAX:
        raise LimitExceeded(f"a filter has at most {TEXT_LENGTH_MAX} characters")
    engine = Engine(limits or QueryLimits())
    ids = [column_id(0, place) for place in range(len(schema.columns))]
    shown = list(zip(ids, [it.name for it in schema.columns], strict=True))
    engine.define("scan0", _VIEW, stream(shown_schema(ids, schema.columns), []), shown)
    text = f"select 1 from {_VIEW} where ({condition}\n)"
    engine.check(text)
    engine.check(_question(condition))  # balanced differently it might be another's clause
    _check(engine, condition)
    (wanted,) = scan_ranges(engine.explain(text), [schema], engine.parse)
    if wanted is None:  # it is never true: what DuckDB plans then reads nothing
        first = schema.key_columns[0].name
        return ScanRange((first,), (), ())
    return wanted


def _question(condition: str) -> str:
    return f"select coalesce(cast(({condition}\n) as boolean), false) from {_VIEW}"


def _check(engine: Engine, condition: str) -> None:
    """That it is one expression, without anything that has rows of its own."""
    tree = engine.parse(f"({condition}\n)")
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if node.get("class") in ("SUBQUERY", "STAR"):
                raise InvalidRequest(f"{_ONLY_CONDITION}: without subqueries and *")
            waiting += node.values()
    if tree is None:
        raise InvalidRequest(_ONLY_CONDITION)


class Filter:
    """A checked condition, asked of some rows after others. For one thread at a time."""

    def __init__(self, schema: TableSchema, condition: str, columns: tuple[str, ...]) -> None:
        """`columns` are those that it needs, as planned."""
        self._columns = [it for it in schema.columns if it.name in columns]
        self._engine = Engine(QueryLimits(threads_max=1))
        self._text = _question(condition)

    def __call__(self, data: Any) -> Any:
        """The rows of a `pyarrow.Table` for which it is true, in their order. Raises
        InvalidRequest where DuckDB can't compute it of some row."""
        names = [it.name for it in self._columns]
        shown = data.select(names)
        for place, column in enumerate(self._columns):
            kept = shown.column(place)
            if kept.type != arrow_type(column):
                text = f"column {column.name!r} is {kept.type}, not {arrow_type(column)}"
                raise InvalidRequest(text)
            if column.type == "any":
                shown = shown.set_column(place, column.name, json_texts(kept))
        ids = [column_id(0, place) for place in range(len(names))]
        columns = list(zip(ids, names, strict=True))
        self._engine.define("scan0", _VIEW, shown.rename_columns(ids), columns)
        return data.filter(self._engine.compute(self._text).column(0))

    def interrupt(self) -> None:
        """Whoever waits for the rows gets an InvalidRequest."""
        self._engine.interrupt()
