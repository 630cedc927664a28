"""Run one SQL query, from its text to its result, in four phases.

Owns: the order of the phases. `prepare` finds the tables and the timestamp. `plan` asks DuckDB what
the query needs from them. `fetch` reads that. `answer` lets DuckDB compute the result.
The first and third phase are protocols, which run as all others do. The second and fourth compute
for as long as DuckDB takes, in a thread that the caller chooses. All tables are read at one
timestamp.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dodona._core.protocol.arguments import Parameters, check_text
from dodona._core.protocol.context import Context
from dodona._core.protocol.limits import QueryLimits
from dodona._core.protocol.routing import TableRoute
from dodona._core.protocol.spans import traced_as
from dodona._core.protocol.steps import Protocol
from dodona._core.reading.reading import Ranges, check_retention, check_timestamp
from dodona._core.sql.engine import Engine, check_size, load_duckdb
from dodona._core.sql.parameters import bound_parameters, checked_parameters
from dodona._core.sql.pushdown import ScanRange, column_id, scan_ranges
from dodona._core.sql.references import find_tables
from dodona._core.sql.shown_columns import check_shown, shown_columns, shown_schema, sql_type
from dodona_wire.errors import LimitExceeded, MetadataChanged
from dodona_wire.messages.data import ArrowPage, ScanPage
from dodona_wire.rows.arrow import arrow_type
from dodona_wire.rows.logical_arrow import stored_table
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.rows.sizes import write_bytes
from dodona_wire.types import NULL_TIMESTAMP, SYNC_LAST_COMMITTED, Timestamp

ReadRanges = Callable[[str, Ranges, Sequence[str], Timestamp], Protocol[Any]]
"""The arguments path, ranges, columns, timestamp; the result is a `pyarrow.Table`. As
`Session.read_ranges`."""


class Source:
    """A table of a query: its schema, what the query needs from it, and the data that was read."""

    __slots__ = ("data", "path", "read_schema", "schema", "timestamp", "wanted")

    def __init__(
        self,
        path: str,
        schema: TableSchema,
        timestamp: Timestamp,
        read_schema: TableSchema | None = None,
    ) -> None:
        self.path = path
        self.schema = schema
        """The schema that the query sees."""
        self.read_schema = schema if read_schema is None else read_schema
        """The schema of the table as it is read."""
        self.timestamp = timestamp
        self.wanted: ScanRange | None = None
        self.data: Any = None


def prepare(
    context: Context,
    text: str,
    parameters: Parameters | None,
    timestamp: Timestamp,
    retention_timestamp: Timestamp,
    is_stored: bool = False,
) -> Protocol["Query"]:
    """Find the tables and the timestamp of a query, and check the values of its parameters. With
    `is_stored` it sees stored values. Raises InvalidRequest, LimitExceeded, TableNotFound,
    Unavailable."""
    limits = context.limits.query
    at = check_timestamp(timestamp)
    retention = check_retention(retention_timestamp, at)
    load_duckdb()
    check_text(text, "a query")
    if len(text) > limits.text_length_max:
        raise LimitExceeded(f"a query has at most {limits.text_length_max} characters")
    given = checked_parameters(parameters, limits)
    paths, text = find_tables(text)
    routes: dict[str, TableRoute] = {}
    for path in paths:
        # Plans are made outside of protocols, so a plan from an old schema could not ask for a new
        # one.
        routes[path] = yield from context.fresh_route(path)
    fresh = at
    if at == SYNC_LAST_COMMITTED and any(it.atomicity == "full" for it in routes.values()):
        fresh = yield from context.generate_timestamp()
    sources = [
        # Timestamps of non-atomic tables may be ahead of the oracle, so there the newest is read.
        Source(
            it.path,
            it.schema.stored if is_stored else it.schema,
            fresh if it.atomicity == "full" else at,
            it.schema,
        )
        for it in routes.values()
    ]
    return Query(text, sources, limits, retention, given)


class Query:
    """A query whose tables are known. Call `plan`, `fetch`, `answer`, in that order, once."""

    def __init__(
        self,
        text: str,
        sources: list[Source],
        limits: QueryLimits,
        retention_timestamp: Timestamp = NULL_TIMESTAMP,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self.parameters: Mapping[str, Any] = parameters or {}
        """The checked values of parameters, by name."""
        self.retention_timestamp = retention_timestamp
        """If it is not null, versions older than this are not read."""
        self.text = text
        """The text, with a name that DuckDB knows instead of each `[//path]`."""
        self.sources = sources
        self.limits = limits
        self._values: Mapping[str, Any] = {}
        self._engine: Engine | None = None

    def plan(self) -> None:
        """Find out what the query needs from each table. Raises InvalidRequest."""
        engine = self._engine = Engine(self.limits)
        self._values = bound_parameters(engine.check(self.text), self.parameters)
        for number, source in enumerate(self.sources):
            columns = source.schema.columns
            ids = [column_id(number, place) for place in range(len(columns))]
            shown = list(zip(ids, [it.name for it in columns], strict=True))
            nothing = stream(shown_schema(ids, columns), [])
            engine.define(f"scan{number}", source.path, nothing, shown)
        schemas = [it.schema for it in self.sources]
        wanted = scan_ranges(engine.explain(self.text, self._values), schemas, engine.parse)
        for source, its in zip(self.sources, wanted, strict=True):
            if its is not None:
                check_shown(source.schema.columns, its.columns)
            source.wanted = its

    @traced_as("query")
    def fetch(self, read_ranges: ReadRanges) -> Protocol[None]:
        """Read what the query needs. Raises LimitExceeded, and the errors of reads."""
        budget = _Budget(self.limits)
        for source in self.sources:
            if (wanted := source.wanted) is None:
                continue
            load = source.read_schema.load_bound
            ranges = [(load(lower), load(upper)) for lower, upper in wanted.parts()]
            read = read_ranges(source.path, ranges, wanted.columns, source.timestamp)
            data = yield from budget.watch(read)
            columns = [it for it in source.read_schema.columns if it.name in wanted.columns]
            if data.schema.types != [arrow_type(it) for it in columns]:
                raise _altered(source.path)
            data = data.select([it.name for it in columns])
            is_as_read = source.schema is source.read_schema
            source.data = data if is_as_read else stored_table(columns, data)

    def answer(self) -> Any:
        """Return the result, a `pyarrow.Table`. Raises InvalidRequest, LimitExceeded."""
        engine = self._engine
        assert engine is not None, "a query is planned before it is answered, and once"
        try:
            for number, source in enumerate(self.sources):
                columns, data = _shown(number, source)
                engine.define(f"scan{number}", source.path, data, columns)
                source.data = None
            return engine.run(self.text, self._values)
        finally:
            self._engine = None

    def interrupt(self) -> None:
        """Stop what another thread computes, since the caller no longer waits for it."""
        engine = self._engine
        if engine is not None:
            engine.interrupt()


def _altered(path: str) -> MetadataChanged:
    text = f"Table {path} was altered while the query read it. Run the query again."
    return MetadataChanged(text, table=path)


class _Budget:
    """A counter of the rows and bytes that the scans of a query read, as they arrive."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits = limits
        self._row_count = 0
        self._size_bytes = 0

    def watch(self, protocol: Protocol[Any]) -> Protocol[Any]:
        """Run the protocol step by step. Raises LimitExceeded between two steps."""
        try:
            step = next(protocol)
            while True:
                replies = yield step
                for reply in replies:
                    if type(reply) is ArrowPage:
                        self._row_count += reply.row_count
                        self._size_bytes += len(reply.batch)
                    elif type(reply) is ScanPage:
                        self._row_count += len(reply.rows)
                        rows = zip(reply.keys, reply.rows, strict=True)
                        self._size_bytes += sum(write_bytes((key, 0, row)) for key, row in rows)
                check_size(
                    "The data that the query reads", self._row_count, self._size_bytes, self._limits
                )
                step = protocol.send(replies)
        except StopIteration as stop:
            return stop.value
        finally:
            protocol.close()


def _shown(number: int, source: Source) -> tuple[list[tuple[str, str]], Any]:
    """Return a table for its view. Columns that were read are there as they are. Other columns
    raise an error if the query uses them after all, which the plan excludes. If the plan has no
    scan of the table, any use of a row raises an error."""
    columns = source.schema.columns
    ids = [column_id(number, place) for place in range(len(columns))]
    if source.wanted is None:
        data = stream(shown_schema(ids, columns), _unread(source.path))
        return list(zip(ids, [it.name for it in columns], strict=True)), data
    expressions = [
        it if column.name in source.wanted.columns else _absent(column)
        for it, column in zip(ids, columns, strict=True)
    ]
    read = [it for it in zip(ids, columns, strict=True) if it[1].name in source.wanted.columns]
    data = shown_columns([column for _, column in read], source.data)
    data = data.rename_columns([it for it, _ in read])
    return list(zip(expressions, [it.name for it in columns], strict=True)), data


def _absent(column: Column) -> str:
    return f"cast(error('a column was not read that the query needs') as {sql_type(column)})"


def _unread(path: str) -> Iterator[Any]:
    raise AssertionError(f"table {path} was not read, and the query needs it")
    yield  # makes this an iterator, which fails only when a row is read


def stream(schema: Any, batches: Any) -> Any:
    """Return a stream of Arrow batches. It does not say how many rows it has, so no plan relies on
    there being none."""
    import pyarrow

    return pyarrow.RecordBatchReader.from_batches(schema, batches)
