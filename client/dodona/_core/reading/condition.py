"""An SQL condition over one table's columns: find what it needs, and filter rows with it.

Owns: the two uses of a condition. `plan` asks DuckDB which columns the condition needs, and which
range of keys can have matching rows. `Filter` applies the condition to rows in memory, page by
page. A condition is an expression over one row. It has no aggregates and no subqueries, which would
see one page only.
As a query does, a condition sees only the rows, in columns of DuckDB's types: see `query`.
"""

from typing import Any, Final

from dodona._core.protocol.limits import QueryLimits
from dodona._core.reading.query import stream
from dodona._core.sql.engine import Engine
from dodona._core.sql.pushdown import ScanRange, column_id, scan_ranges
from dodona._core.sql.shown_columns import check_shown, shown_columns, shown_schema
from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.schema import TableSchema

TEXT_LENGTH_MAX: Final = 1 << 20
_VIEW: Final = "rows"
_ONLY_CONDITION: Final = "a filter is one condition over the columns of a row, as after WHERE"


def plan(schema: TableSchema, condition: str, limits: QueryLimits | None = None) -> ScanRange:
    """Return what to read to find all rows for which the condition is true: the columns that it
    uses, and a range of keys. Raises InvalidRequest, LimitExceeded."""
    if not condition.strip():
        raise InvalidRequest(_ONLY_CONDITION)
    if len(condition) > TEXT_LENGTH_MAX:
        raise LimitExceeded(f"a filter has at most {TEXT_LENGTH_MAX} characters")
    engine = Engine(limits or QueryLimits())
    ids = [column_id(0, place) for place in range(len(schema.columns))]
    shown = list(zip(ids, [it.name for it in schema.columns], strict=True))
    engine.define("scan0", _VIEW, stream(shown_schema(ids, schema.columns), []), shown)
    text = f"select 1 from {_VIEW} where ({condition}\n)"
    if engine.check(text):
        raise InvalidRequest("A filter has no parameters. Write the values in it as literals.")
    engine.check(_question(condition))  # unbalanced brackets could end this clause
    _check(engine, condition)
    (wanted,) = scan_ranges(engine.explain(text), [schema], engine.parse)
    if wanted is None:  # it is never true: DuckDB's plan reads nothing
        first = schema.key_columns[0].name
        return ScanRange((first,), (), ())
    check_shown(schema.columns, wanted.columns)
    return wanted


def _question(condition: str) -> str:
    return f"select coalesce(cast(({condition}\n) as boolean), false) from {_VIEW}"


def _check(engine: Engine, condition: str) -> None:
    """Check that the condition is one expression, without parts that have rows of their own. Raises
    InvalidRequest."""
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
    """A checked condition, applied to one table of rows after another. One thread uses it at a
    time."""

    def __init__(self, schema: TableSchema, condition: str, columns: tuple[str, ...]) -> None:
        """Make a filter. `columns` are the columns that the condition needs, from its plan."""
        self._columns = [it for it in schema.columns if it.name in columns]
        self._engine = Engine(QueryLimits(threads_max=1))
        self._text = _question(condition)
        self._engine.check(self._text)

    def __call__(self, data: Any) -> Any:
        """Return the rows of a `pyarrow.Table` for which the condition is true, in their order.
        Raises InvalidRequest if DuckDB can't compute the condition for a row."""
        names = [it.name for it in self._columns]
        shown = data.select(names)
        for place, column in enumerate(self._columns):
            kept = shown.column(place)
            if kept.type != arrow_type(column):
                text = f"column {column.name!r} is {kept.type}, not {arrow_type(column)}"
                raise InvalidRequest(text)
        shown = shown_columns(self._columns, shown)
        ids = [column_id(0, place) for place in range(len(names))]
        columns = list(zip(ids, names, strict=True))
        self._engine.define("scan0", _VIEW, shown.rename_columns(ids), columns)
        return data.filter(self._engine.compute(self._text).column(0))

    def interrupt(self) -> None:
        """Stop the work. The thread that waits for it gets an InvalidRequest."""
        self._engine.interrupt()
