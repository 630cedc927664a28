"""Compare the values of a row with those that a commit requires.

Owns: when two stored values are the same, and how an error shows them. A number and a boolean are
never the same, and NaN is the same as NaN. The order of the names in a dict means nothing.
Imports no clock and no I/O.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dodona_wire.errors import SchemaViolation
from dodona_wire.rows.logical_values import shown_stored, store_of
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.values import size_bytes_of
from dodona_wire.shown import named, shown

CONDITIONS_MAX: Final = 10_000
"""The most conditions of one transaction. A cell checks them in one step, and looks for each row in
its chunks, while all other work waits."""
SHOWN_COUNT_MAX: Final = 16
"""The most columns that an error shows."""
SHOWN_BYTES_MAX: Final = 100
"""The longest value that an error shows as it is. It shows the beginning of a longer one."""


def required_values(
    schema: TableSchema, expected: Mapping[str, Any]
) -> tuple[int, tuple[Any, ...]]:
    """Return the mask of these columns, and the stored values that they must have. Raises
    SchemaViolation."""
    for name in expected:
        if name not in schema.value_names:
            what = "a key column" if name in schema.key_names else "no column of the table"
            text = f"expect names {named(name)}, which is {what}: name other columns"
            raise SchemaViolation(text, column=name)
    mask, values = 0, []
    for bit, column in enumerate(schema.value_columns):
        if column.name in expected:
            value = expected[column.name]
            if value is None and column.required:
                text = (
                    f"expect asks for null in {named(name)}, a required column: use another value"
                )
                raise SchemaViolation(text, column=name)
            if value is not None:
                value = store_of(column.logical)(value, column.name)
            mask |= 1 << bit
            values.append(value)
    return mask, tuple(values)


def is_same_value(one: Any, other: Any) -> bool:
    """Return whether two stored values of one column are the same."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same_value, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same_value(one[it], other[it]) for it in one)
    return bool(one == other or (one != one and other != other))


def differing(values: Iterable[Any], others: Iterable[Any]) -> list[int]:
    """Return the places at which the values of a row differ from the required ones."""
    pairs = enumerate(zip(values, others, strict=True))
    return [place for place, (one, other) in pairs if not is_same_value(one, other)]


def shown_values(schema: TableSchema, mask: int, values: Iterable[Any]) -> dict[str, Any]:
    """Return values by column, for an error of a cell. Those of logical types are text."""
    kinds = schema.narrow_by_name
    named_values = zip((it.name for it in schema.columns_of(mask)), values, strict=True)
    return {
        name: _shown(shown_stored(kinds[name], it) if name in kinds else it)
        for name, it in named_values
    }


def _shown(value: Any) -> Any:
    is_long = size_bytes_of(value) > SHOWN_BYTES_MAX
    return shown(value, SHOWN_BYTES_MAX) if is_long else value
