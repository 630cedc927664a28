"""Which conditions of one transaction for one row are the same, and which contradict each other."""

from typing import Any

import pytest

from dodona._core.writing.conditions import conditions_of, requirement_of
from dodona.errors import InvalidRequest
from dodona.schema import TableSchema
from unit.client.protocols import key

SCHEMA = TableSchema.parse(
    [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "a", "type": "any"},
        {"name": "d", "type": "double"},
    ]
)


def both(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Require one after the other of the same row."""
    first, second = requirement_of(False, None, one), requirement_of(False, None, other)
    assert first is not None
    assert second is not None
    known = conditions_of(SCHEMA, [key(1)], first, {}).by_key
    conditions_of(SCHEMA, [key(1)], second, known)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"d": float("nan")}, {"d": float("nan")}),
        ({"a": [float("nan")]}, {"a": [float("nan")]}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}),
        ({"a": None}, {"a": None}),
    ],
)
def test_the_same_values_are_one_condition(one: dict[str, Any], other: dict[str, Any]) -> None:
    both(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": [0]}, {"a": [False]}),
        ({"a": 1}, {"a": 1.0}),
        ({"d": float("nan")}, {"d": 0.0}),
        ({"d": None}, {"a": None}),
    ],
)
def test_other_values_are_another_condition(one: dict[str, Any], other: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="another condition"):
        both(one, other)
