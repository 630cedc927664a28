"""Which task of a bulk write gets a row, as an SQL expression of Spark's own over its key columns.

Owns: how tablets are shared out among tasks, and the translation of pivot keys into SQL that puts a
row where the client would send it: null first, text by its UTF-8 bytes, -0.0 as 0.0, decimals where
the table has uint64. No Python runs for a row, and nothing is broadcast: the expression is a binary
search, as deep as the logarithm of the number of tasks. What it says only makes a write fast: the
client finds the tablet of each row anyway.

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
from dodona_wire.rows.schema import Column
from pyspark_dodona.columns import UINT64_DIGITS, check_type

PARTITIONS_MAX: Final = 100_000
RANGES_MAX: Final = 256
"""Spark makes one method of Java of the search, which may have 64 KiB."""
_LONG_MAX: Final = (1 << 63) - 1
_PLAIN_COLLATION: Final = StringType().collation


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Ranges of keys, each of so many partitions, among which hashes of keys divide its rows."""

    bounds: tuple[tuple[Any, ...], ...]
    """Leading key values at which all ranges but the first begin, rising."""
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
    """A partition for each tablet. If that leaves some of the `parallelism` cores idle, each tablet
    has several; with more than `partitions_max` tablets some neighbours share one. If a number is
    `wanted`, about so many. Raises InvalidRequest."""
    tablets = len(pivot_keys)
    if wanted is None:
        ranges = min(tablets, max(partitions_max, parallelism), RANGES_MAX)
        splits = -(-parallelism // ranges)
    else:
        if type(wanted) is not int or not 0 < wanted <= PARTITIONS_MAX:
            raise InvalidRequest(f"there are 1 to {PARTITIONS_MAX} partitions, not {wanted!r}")
        ranges = min(tablets, wanted, RANGES_MAX)
        splits = wanted // ranges
    firsts = [at * tablets // ranges for at in range(1, ranges)]
    return Partitioning(tuple([pivot_keys[first] for first in firsts]), splits)


class KeyColumns:
    """The key columns of a table, as a DataFrame has them."""

    def __init__(self, columns: Sequence[Column], frame: StructType, path: str) -> None:
        """Raises SchemaViolation if they are not all there, in types that they can be made of."""
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

    def order(self) -> list[str]:
        """By what to sort, so that rows are in the order of the table."""
        return [column.value for column in self._columns]

    def partition(self, partitioning: Partitioning) -> str:
        """The number of a row's partition."""
        bounds, splits = partitioning.bounds, partitioning.splits
        number = self._search(bounds, 0, len(bounds))
        if splits == 1:
            return number
        values = ", ".join([column.hashed for column in self._columns])
        return f"{number} * {splits} + CAST(pmod(xxhash64({values}), {splits}L) AS INT)"

    def _search(self, bounds: Sequence[tuple[Any, ...]], first: int, last: int) -> str:
        """The number of a row's range, which is one of first to last."""
        if first == last:
            return str(first)
        middle = (first + last + 1) // 2
        below = self._search(bounds, first, middle - 1)
        above = self._search(bounds, middle, last)
        return f"IF({self._is_at_least(bounds[middle - 1])}, {above}, {below})"

    def _is_at_least(self, bound: tuple[Any, ...]) -> str:
        """Whether a row's key is the bound or above it. Null here is as good as false: there is no
        NOT in it."""
        *leading, last = zip(self._columns, bound, strict=False)
        condition = last[0].is_at_least(last[1])
        for column, value in reversed(leading):
            condition = f"({column.is_above(value)} OR ({column.equals(value)} AND {condition}))"
        return condition


class _KeyColumn:
    """Comparisons of one column with constants."""

    def __init__(self, column: Column, given: DataType) -> None:
        self._column = column
        self._given = given
        name = f"`{column.name.replace('`', '``')}`"
        is_text_as_bytes = isinstance(given, StringType) and (
            column.type == "string" or given.collation != _PLAIN_COLLATION
        )
        self.value = f"CAST({name} AS BINARY)" if is_text_as_bytes else name
        self._is_text = isinstance(given, StringType) and not is_text_as_bytes
        is_float = isinstance(given, FloatType | DoubleType)
        self.hashed = f"IF({name} = 0, 0, {name})" if is_float else self.value

    def is_at_least(self, value: Any) -> str:
        return "TRUE" if value is None else self._compared(">=", value)

    def is_above(self, value: Any) -> str:
        return f"{self.value} IS NOT NULL" if value is None else self._compared(">", value)

    def equals(self, value: Any) -> str:
        return f"{self.value} IS NULL" if value is None else self._compared("=", value)

    def _compared(self, operator: str, value: Any) -> str:
        if self._column.type == "uint64" and not isinstance(self._given, DecimalType):
            if value > _LONG_MAX:  # more than a value of this DataFrame can be
                return "FALSE"
            return f"{self.value} {operator} {value}L"
        return f"{self.value} {operator} {self._literal(value)}"

    def _literal(self, value: Any) -> str:
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
