"""Choose the task of a bulk write for each row, by an SQL expression of Spark over the key columns.

Owns: how tablets are divided among tasks, and how pivot keys become SQL. The SQL must put a row
where the client would send it. Null comes first, and last in a descending column. Text is compared
by its UTF-8 bytes, -0.0 is 0.0, and uint64 is a decimal. No Python runs for a row, and Spark
broadcasts nothing. The expression is a binary search, whose depth is the logarithm of the number of
tasks. It only makes a write fast: the client finds the tablet of each row in any case.

Invariant: rows with one key are in one partition.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
)

from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.logical_types import SQL_PRECISION_MAX
from dodona_wire.rows.logical_values import store_of
from dodona_wire.rows.schema import Column
from pyspark_dodona.columns import UINT64_DIGITS, check_type

PARTITIONS_MAX: Final = 100_000
RANGES_MAX: Final = 256
"""Spark makes one Java method from the search, which may have 64 KiB."""
_LONG_MAX: Final = (1 << 63) - 1
_SECOND_US: Final = 1_000_000
_PLAIN_COLLATION: Final = StringType().collation


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Ranges of keys. Each range has the same number of partitions, and a hash of the key chooses
    one."""

    bounds: tuple[tuple[Any, ...], ...]
    """The leading key values at which all ranges but the first begin, in the order of the table."""
    splits: int

    @property
    def count(self) -> int:
        return (len(self.bounds) + 1) * self.splits


def share_out(
    pivot_keys: Sequence[tuple[Any, ...]],
    wanted: int | None,
    *,
    parallelism: int,
    partitions_max: int,
) -> Partitioning:
    """Divide the tablets among partitions. By default, each tablet is one partition.

    If that leaves some of the `parallelism` cores idle, each tablet has several partitions. If
    there are more than `partitions_max` tablets, neighbouring tablets share a partition. `wanted`
    asks for about this many partitions. Raises InvalidRequest."""
    tablets = len(pivot_keys)
    if wanted is None:
        ranges = min(tablets, max(partitions_max, parallelism), RANGES_MAX)
        splits = -(-parallelism // ranges)
    else:
        if type(wanted) is not int or not 0 < wanted <= PARTITIONS_MAX:
            raise InvalidRequest(f"`partitions` must be 1 to {PARTITIONS_MAX}, not {wanted!r}")
        ranges = min(tablets, wanted, RANGES_MAX)
        splits = wanted // ranges
    firsts = [at * tablets // ranges for at in range(1, ranges)]
    return Partitioning(tuple([pivot_keys[first] for first in firsts]), splits)


class KeyColumns:
    """The key columns of a table in a DataFrame."""

    def __init__(self, columns: Sequence[Column], frame: StructType, path: str) -> None:
        """Find the columns. Raises SchemaViolation if one is missing, or has a type that does not
        convert."""
        types = {field.name: field.dataType for field in frame.fields}
        self._columns = []
        self.names: list[str] = []
        for key in (column for column in columns if column.sort_order is not None):
            if key.name not in types:
                text = f"the DataFrame lacks the key column {key.name!r} of table {path}"
                raise SchemaViolation(text)
            check_type(key, types[key.name], path)
            self.names.append(key.name)
            self._columns.append(_KeyColumn(key, types[key.name]))

    def order(self) -> list[tuple[str, bool]]:
        """Return the expressions by which to sort the rows in the order of the table, each with
        whether it is descending."""
        return [(column.value, column.is_descending) for column in self._columns]

    def partition(self, partitioning: Partitioning) -> str:
        """Return the SQL expression of the number of a row's partition."""
        bounds, splits = partitioning.bounds, partitioning.splits
        number = self._search(bounds, 0, len(bounds))
        if splits == 1:
            return number
        values = ", ".join([column.hashed for column in self._columns])
        return f"{number} * {splits} + CAST(pmod(xxhash64({values}), {splits}L) AS INT)"

    def _search(self, bounds: Sequence[tuple[Any, ...]], first: int, last: int) -> str:
        """Return the expression of the number of a row's range, between `first` and `last`."""
        if first == last:
            return str(first)
        middle = (first + last + 1) // 2
        below = self._search(bounds, first, middle - 1)
        above = self._search(bounds, middle, last)
        return f"IF({self._is_at_least(bounds[middle - 1])}, {above}, {below})"

    def _is_at_least(self, bound: tuple[Any, ...]) -> str:
        """Return the condition that the key of a row is the bound or behind it in the table. A null
        result counts as false, because the condition has no NOT in it."""
        *leading, last = zip(self._columns, bound, strict=False)
        condition = last[0].is_at_least(last[1])
        for column, value in reversed(leading):
            condition = f"({column.is_behind(value)} OR ({column.equals(value)} AND {condition}))"
        return condition


class _KeyColumn:
    """Comparisons of one column with constants."""

    def __init__(self, column: Column, given: DataType) -> None:
        self._column = column
        self._given = given
        self.is_descending = column.is_descending
        name = f"`{column.name.replace('`', '``')}`"
        is_text_as_bytes = isinstance(given, StringType) and (
            column.type == "string" or given.collation != _PLAIN_COLLATION
        )
        self.value = f"CAST({name} AS BINARY)" if is_text_as_bytes else name
        if not column.logical.is_stored:
            self.value = _value_of(column, given, name)
        self._is_text = isinstance(given, StringType) and not is_text_as_bytes
        is_float = isinstance(given, FloatType | DoubleType)
        self.hashed = f"IF({self.value} = 0, 0, {self.value})" if is_float else self.value

    def is_at_least(self, value: Any) -> str:
        if self.is_descending:
            return self.equals(None) if value is None else self._compared_or_null("<=", value)
        return "TRUE" if value is None else self._compared(">=", value)

    def is_behind(self, value: Any) -> str:
        if self.is_descending:
            return "FALSE" if value is None else self._compared_or_null("<", value)
        return f"{self.value} IS NOT NULL" if value is None else self._compared(">", value)

    def equals(self, value: Any) -> str:
        return f"{self.value} IS NULL" if value is None else self._compared("=", value)

    def _compared_or_null(self, operator: str, value: Any) -> str:
        return f"({self._compared(operator, value)} OR {self.value} IS NULL)"

    def _compared(self, operator: str, value: Any) -> str:
        if self._column.type == "uint64" and not isinstance(self._given, DecimalType):
            if value > _LONG_MAX:  # larger than all values of this DataFrame's type
                return "TRUE" if operator.startswith("<") else "FALSE"
            return f"{self.value} {operator} {value}L"
        return f"{self.value} {operator} {self._literal(value)}"

    def _literal(self, value: Any) -> str:
        if not self._column.logical.is_stored:
            return _logical_literal(self._column, value)
        match self._column.type:
            case "int64":
                return f"{value}L"
            case "uint64":
                return f"CAST('{value}' AS DECIMAL({UINT64_DIGITS}, 0))"
            case "double":
                return f"CAST('{value!r}' AS DOUBLE)"
            case "boolean":
                return "TRUE" if value else "FALSE"
        raw = value.encode() if isinstance(value, str) else value
        return f"CAST(X'{raw.hex()}' AS STRING)" if self._is_text else f"X'{raw.hex()}'"


def _value_of(column: Column, given: DataType, name: str) -> str:
    """Return a value of a logical type so that equal keys are equal, in the order of the table."""
    match column.logical.form:
        case "float":
            return f"CAST({name} AS FLOAT)"
        case "decimal":
            return f"CAST({name} AS DECIMAL({_digits(column)}))"
        case "uuid" if isinstance(given, StringType):
            return f"UNHEX(REPLACE({name}, '-', ''))"
        case "json":
            return f"CAST({name} AS BINARY)"
    return name


def _digits(column: Column) -> str:
    kind = column.logical
    if kind.precision > SQL_PRECISION_MAX:
        text = f"Spark can't divide a key of type {kind.name} among tasks. Write without it."
        raise SchemaViolation(text, column=column.name)
    return f"{kind.precision}, {kind.scale}"


def _logical_literal(column: Column, value: Any) -> str:
    """Return a key value of a logical type as SQL, which does not depend on the session's zone."""
    kind = column.logical
    stored = store_of(kind)(value, column.name)
    match kind.form:
        case "integer":
            return f"{stored}L"
        case "float":
            return f"CAST('{stored!r}' AS FLOAT)"
        case "date":
            return f"DATE_FROM_UNIX_DATE({stored})"
        case "seconds":
            return f"TIMESTAMP_SECONDS({stored}L)"
        case "microseconds":
            return f"TIMESTAMP_MICROS({stored}L)"
        case "interval":
            seconds, rest = divmod(abs(stored), _SECOND_US)
            sign = "-" if stored < 0 else ""
            return f"INTERVAL '{sign}{seconds}.{rest:06}' SECOND"
        case "decimal":
            return f"CAST('{value:f}' AS DECIMAL({_digits(column)}))"
    raw = stored.encode() if isinstance(stored, str) else stored
    return f"X'{raw.hex()}'"
