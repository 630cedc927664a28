"""Run DuckDB in isolation: it sees the Arrow tables that it gets, and nothing else.

Owns: the connection, which statements may run in it, and the translation of its errors. Each query
has its own database, in memory and in UTC. It has no files, no network, no extensions and no
variables of the caller. So a query on one snapshot has one answer in every process. Its text is one
SELECT, and calls no table functions but those below.
duckdb is imported on first use. A call takes as long as DuckDB takes, so an event loop runs it in a
thread.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from dodona._core.protocol.limits import QueryLimits
from dodona._core.sql.constants import Expression
from dodona._core.sql.farm_hash import NAME, checked_count, define_farm_hash
from dodona._core.sql.messages import moved_up, parameter_at, without_call, without_trace
from dodona._core.sql.parameters import NAMES_SHOWN_MAX
from dodona._core.sql.result_columns import ResultColumns, quoted
from dodona._core.sql.result_values import ResultValues
from dodona_wire.errors import InvalidRequest, LimitExceeded
from dodona_wire.shown import shown

TABLE_FUNCTIONS: Final = frozenset({"generate_series", "json_each", "json_tree", "range", "unnest"})
_QUERY_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
_DICTS: Final = ("STRUCT(", "MAP(")
_OUT_OF_MEMORY: Final = "Out of Memory Error"
_MIXED: Final = "Mixing named and positional parameters"
_PARAMETER: Final = "VALUE_PARAMETER"
_NAME: Final = re.compile(rb"[\w\x80-\xff]*")
_EXPLAIN: Final = "explain (format json)"
_ONLY_SELECT: Final = "a query is one SELECT statement"
# These two would hide a condition from the plan, or treat a table that is not read yet as empty.
_OPTIMIZERS_OFF: Final = "in_clause,statistics_propagation"
# Without this, the process decides both. They belong to the ICU extension, so `config` can't set
# them.
_SAME_EVERYWHERE: Final = "set TimeZone = 'UTC'; set Calendar = 'gregorian'"


class Engine:
    """The DuckDB of one query. One thread uses it at a time. Only `interrupt` is for other
    threads."""

    def __init__(self, limits: QueryLimits) -> None:
        self._duckdb = load_duckdb()
        self._limits = limits
        self._parameters_by_place: dict[int, str] = {}
        self._hash_counts: set[int] = set()
        """How many arguments the calls of farm_hash have, as far as it is defined for them."""
        self._connection = self._duckdb.connect(
            ":memory:",
            config={
                "allow_community_extensions": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "enable_external_access": "false",
                "memory_limit": f"{limits.memory_mib_max}MiB",
                "python_enable_replacements": "false",
                "python_scan_all_frames": "false",
                "temp_directory": "",
                "threads": str(limits.threads_max),
            },
        )
        self._connection.execute(_SAME_EVERYWHERE)

    def check(self, text: str) -> list[str]:
        """Check that the text is one SELECT that uses nothing outside. Return the names of its
        parameters, each once; the name of a parameter by place is a number. Raises
        InvalidRequest."""
        with self._refusals():
            self._connection.extract_statements(text)  # its error shows the place
            tree = self._serialize(text)
        if tree["error"] or len(tree["statements"]) != 1:
            raise InvalidRequest(_ONLY_SELECT)
        names = [it["key"] for it in tree["statements"][0]["named_param_map"]]
        self._parameters_by_place.clear()
        hash_counts: set[int] = set()
        raw = text.encode()
        waiting: list[tuple[Any, int]] = [(tree["statements"], 0)]
        while waiting:
            node, depth = waiting.pop()
            if isinstance(node, list):
                waiting += [(it, depth) for it in node]
            elif isinstance(node, dict):
                _check_node(node)
                if node.get("type") == _PARAMETER:
                    _check_parameter(node, raw)
                    self._parameters_by_place[node["query_location"]] = node["identifier"].lower()
                if node.get("type") == "FUNCTION" and node["function_name"].lower() == NAME:
                    depth += 1
                    hash_counts.add(checked_count(node["arguments"], depth))
                waiting += [(it, depth) for it in node.values()]
        self._define_hash(hash_counts)
        return sorted(names, key=lambda it: (len(it) if it.isdecimal() else 0, it))

    def _define_hash(self, counts: set[int]) -> None:
        if not counts <= self._hash_counts:
            is_new = not self._hash_counts
            self._hash_counts |= counts
            define_farm_hash(self._connection, self._hash_counts, is_new=is_new)

    def parse(self, condition: str) -> Expression | None:
        """Return the syntax tree of a condition, or None if DuckDB can't parse it."""
        try:
            tree = self._serialize(f"select {condition}")
        except (self._duckdb.Error, RecursionError):
            return None
        columns = [] if tree["error"] else tree["statements"][0]["node"]["select_list"]
        return columns[0] if len(columns) == 1 else None

    def _serialize(self, text: str) -> dict[str, Any]:
        ((found,),) = self._connection.execute("select json_serialize_sql(?)", [text]).fetchall()
        tree: dict[str, Any] = msgspec.json.decode(found)
        return tree

    def define(self, name: str, view: str, data: Any, columns: Sequence[tuple[str, str]]) -> None:
        """Make `view` show `data`, which is a table or a stream of Arrow. `columns` has an
        expression over `data` for each column, and the column's name."""
        listed = ", ".join(f"{expression} as {quoted(it)}" for expression, it in columns)
        with self._refusals():
            self._connection.register(name, data)
            self._connection.execute(
                f"create or replace view {quoted(view)} as select {listed} from {name}"
            )

    def explain(self, text: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the plan of a checked query, over views without rows. `values` are those of its
        parameters, by name. In the plan they are constants. Raises InvalidRequest."""
        self._connection.execute(f"set disabled_optimizers = '{_OPTIMIZERS_OFF}'")
        with self._refusals(text, values, line_count=1):
            explained = self._connection.execute(f"{_EXPLAIN}\n{text}", values or None).fetchall()
        self._connection.execute("reset disabled_optimizers")
        plan: list[dict[str, Any]] = msgspec.json.decode(explained[0][1])
        return plan

    def run(self, text: str, values: Mapping[str, Any] | None = None) -> Any:
        """Return the result of a checked query as a `pyarrow.Table`. `values` are those of its
        parameters, by name. This is the last call of the engine. Raises InvalidRequest,
        LimitExceeded."""
        import pyarrow

        row_count = size_bytes = 0
        batches = []
        with self._refusals(text, values):
            self._connection.execute("set lock_configuration = true")
            columns = ResultColumns(self._connection.sql(text, params=values or None))
            reader = columns.relation.to_arrow_reader(self._limits.rows_per_batch)
            schema = columns.schema(reader.schema)
            values_of_result = ResultValues(schema)
            for batch in reader:
                row_count += batch.num_rows
                size_bytes += batch.nbytes
                check_size("The result", row_count, size_bytes, self._limits)
                _check_result(size_bytes, self._limits.result_bytes_max)
                values_of_result.check(batch)
                batches.append(columns.batch(schema, batch))
            return pyarrow.Table.from_batches(batches, schema)

    def compute(self, text: str) -> Any:
        """Return the result of a checked query that has one row for each row of its table, in their
        order. Further calls may follow, over other rows. Raises InvalidRequest, LimitExceeded."""
        with self._refusals():
            return self._connection.sql(text).to_arrow_table()

    def interrupt(self) -> None:
        """Stop the engine's work. The thread that waits for it gets an InvalidRequest."""
        self._connection.interrupt()

    @contextmanager
    def _refusals(
        self, text: str = "", values: Mapping[str, Any] | None = None, line_count: int = 0
    ) -> Iterator[None]:
        """Translate DuckDB's errors. Arrow raises some of them while a result is read. DuckDB got
        `line_count` lines before the text."""
        import pyarrow

        try:
            yield
        except (self._duckdb.OutOfMemoryException, MemoryError) as error:
            raise self._out_of_memory(error) from error
        except (self._duckdb.Error, pyarrow.ArrowException, OSError) as error:
            if _OUT_OF_MEMORY in str(error):  # Arrow raises it as another type
                raise self._out_of_memory(error) from error
            message = moved_up(without_call(without_trace(str(error)).strip()), line_count)
            raise self._refusal(message, text, values or {}) from error
        except RecursionError as error:
            raise InvalidRequest("The query is nested too deeply. Simplify the query.") from error

    def _refusal(self, message: str, text: str, values: Mapping[str, Any]) -> InvalidRequest:
        """Return the error for a message of DuckDB. It names the parameter that the message points
        at, since the text of the query does not show the value."""
        pointed = parameter_at(message, text, self._parameters_by_place)
        name = next((it for it in values if it.lower() == pointed), None)
        if name is None:
            return InvalidRequest(_with_hint(_with_dicts(message, values)))
        hint = f"The parameter {name} is the {type(values[name]).__name__} {shown(values[name])}."
        return InvalidRequest(f"{message}\n\n{hint}", parameter=name)

    def _out_of_memory(self, error: BaseException) -> LimitExceeded:
        mib = self._limits.memory_mib_max
        reason = without_trace(str(error))
        text = f"The query needs more than {mib} MiB. Query fewer rows or columns. Reason: {reason}"
        return LimitExceeded(text, memory_mib_max=mib)


def _with_dicts(message: str, values: Mapping[str, Any]) -> str:
    """Add the names of parameters that are dicts if the message is about a value of their types.
    DuckDB often points at the other side of a comparison."""
    names = [f"${name}" for name, it in values.items() if isinstance(it, dict)]
    if not names or not any(it in message for it in _DICTS):
        return message
    return (
        f"{message}\n\nIn SQL a dict is a STRUCT or a MAP: {', '.join(names[:NAMES_SHOWN_MAX])}. "
        "To compare it with a column of type any, pass dodona.json_of_any(value)."
    )


def _with_hint(message: str) -> str:
    """Add how to name a table, since DuckDB does not know this syntax, or parameters."""
    if _MIXED in message:
        return f"{message}\n\nName all parameters as $name, or none of them."
    is_name_likely = "Table with name" in message or 'near "//"' in message or 'near "["' in message
    return f"{message}\n\nA table is named as [//path]." if is_name_likely else message


def check_size(what: str, row_count: int, size_bytes: int, limits: QueryLimits) -> None:
    """Check the size of data against the limits. Raises LimitExceeded."""
    if row_count > limits.rows_max:
        text = f"{what} has more than {limits.rows_max} rows. Query fewer rows."
        raise LimitExceeded(text, query_rows_max=limits.rows_max)
    if size_bytes > limits.memory_mib_max << 20:
        text = f"{what} has more than {limits.memory_mib_max} MiB. Query fewer rows or columns."
        raise LimitExceeded(text, memory_mib_max=limits.memory_mib_max)


def _check_result(size_bytes: int, bytes_max: int | None) -> None:
    if bytes_max is not None and size_bytes > bytes_max:
        text = f"The result has more than {bytes_max} bytes. Query fewer rows, or read in bulk."
        raise LimitExceeded(text, bytes_max=bytes_max)


def load_duckdb() -> Any:
    """Import and return the module. Raises InvalidRequest if the extra is not installed."""
    try:
        import duckdb
        import pyarrow  # noqa: F401 -- said here, before anything is asked of anybody
    except ImportError as error:
        text = "SQL needs DuckDB and Arrow: pip install 'dodona[sql]'"
        raise InvalidRequest(text, missing=error.name) from error
    return duckdb


def _check_node(node: dict[str, Any]) -> None:
    kind = str(node.get("type", ""))
    if kind == "SHOW_REF" or (kind.endswith("_NODE") and kind not in _QUERY_NODES):
        raise InvalidRequest(_ONLY_SELECT)
    if kind == "TABLE_FUNCTION":
        name = node["function"]["function_name"].lower()
        if name not in TABLE_FUNCTIONS:
            raise InvalidRequest(
                f"A query can't call the table function {name}. Use tables of Dodona and "
                f"{', '.join(sorted(TABLE_FUNCTIONS))} only."
            )


def _check_parameter(node: dict[str, Any], text: bytes) -> None:
    """Check that a parameter is written as DuckDB's Python client reads it: a name or a number
    right after the $, without quotes. Raises InvalidRequest."""
    name, at = node["identifier"], node["query_location"]
    if not text.startswith(b"$", at):
        return
    if text.startswith(b'$"', at):
        raise InvalidRequest(
            f"The parameter {shown(name)} has quotes. Write a name of letters, digits and "
            "underscores, without quotes."
        )
    written = _NAME.match(text, at + 1)
    found = "" if written is None else written[0].decode(errors="replace")
    if found.lower() != name.lower() and found.lstrip("0") != name:
        raise InvalidRequest(
            f"The parameter {shown(name)} has a blank after its $, or letters after its number. "
            f"Write {shown(f'${name}')}, and a blank after it."
        )
