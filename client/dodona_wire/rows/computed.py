"""The computed key columns of a schema: which there are, and what they give a row. Pure.

Owns: when expressions are loaded. Most tables compute no column, and the parser of expressions is
large. So `computed_column` is imported for the first schema that has one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dodona_wire.rows.columns import Column
from dodona_wire.rows.logical_types import LogicalType

if TYPE_CHECKING:
    from dodona_wire.rows.computed_column import Computed


def computed_of(columns: Sequence[Column], kinds: Sequence[LogicalType]) -> "tuple[Computed, ...]":
    """Return the computed columns among key columns, which have these types of users. Raises
    SchemaViolation."""
    if all(it.expression is None for it in columns):
        return ()
    from dodona_wire.rows.computed_column import KeyPart, computed_of_parts

    return computed_of_parts(
        tuple(
            [
                KeyPart(it.name, kind, it.expression, it.required)
                for it, kind in zip(columns, kinds, strict=True)
            ]
        )
    )


def all_values(computed: "Sequence[Computed]", values: Sequence[Any], given: int) -> list[Any]:
    """Return stored key values with the computed columns. `given` is a mask of the places whose
    values a caller named: there the value must be the computed one. Raises SchemaViolation."""
    found = list(values)
    for it in computed:
        value = it.value_of(values)
        if given >> it.place & 1 and not is_same(value, values[it.place]):
            raise it.difference(values[it.place], value)
        found[it.place] = value
    return found


def check_computed(computed: "Sequence[Computed]", values: Sequence[Any]) -> None:
    """Check the stored values of a whole key. Raises SchemaViolation."""
    for it in computed:
        value = it.value_of(values)
        if not is_same(value, values[it.place]):
            raise it.difference(values[it.place], value)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two stored values of a column are the same key."""
    return bool(one == other)
