"""What aggregates make of values: whoever folds what first, it comes to the same."""

from itertools import product
from typing import Any, Final

import msgspec
import pytest

from dodona.schema import AGGREGATE_TYPES, Column
from dodona_wire.rows.aggregates import combine

VALUES: Final[dict[str, list[Any]]] = {
    "int64": [-(1 << 63), -1, 0, 1, (1 << 63) - 1],
    "uint64": [0, 1, 1 << 63, (1 << 64) - 1],
    "double": [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.0, -5.0],
    "boolean": [False, True],
    "string": [b"", b"a", b"\xff"],
    "utf8": ["", "a", "\uffff", "\U00010000"],
    "any": [{"a": [1]}, [], 1, "a"],
}
NAN: Final = float("nan")
COLUMNS: Final = [
    msgspec.convert({"name": "v", "type": it, "aggregate": how}, Column)
    for how, types in AGGREGATE_TYPES.items()
    for it in types
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda it: f"{it.aggregate} of {it.type}")
def test_changes_may_be_folded_in_any_groups(column: Column) -> None:
    values = [None, *VALUES[column.type]]
    for first, second, third in product(values, repeat=3):
        left = combine(column, combine(column, first, second), third)
        right = combine(column, first, combine(column, second, third))
        assert repr(left) == repr(right), (first, second, third)
        if column.aggregate in ("min", "max"):
            assert repr(combine(column, first, second)) == repr(combine(column, second, first))


@pytest.mark.parametrize(
    ("aggregate", "values", "expected"),
    [
        ("min", [NAN, 1.0], 1.0),
        ("min", [NAN, NAN], NAN),
        ("min", [0.0, -0.0], -0.0),
        ("max", [NAN, 1.0], NAN),
        ("max", [NAN, float("inf")], NAN),
        ("max", [-0.0, 0.0], 0.0),
        ("sum", [float("inf"), float("-inf")], NAN),
    ],
)
def test_not_a_number_comes_after_all_numbers(
    aggregate: Any, values: list[float], expected: float
) -> None:
    column = Column("v", "double", aggregate=aggregate)
    for first, second in (values, reversed(values)):
        assert repr(combine(column, first, second)) == repr(expected)
