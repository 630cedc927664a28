"""What is inside an attribute's value: looked at, set, removed."""

from typing import Any

import pytest

from dodona_ytsaurus.terms.inside import MISSING, inside, put
from dodona_ytsaurus.yson import Attributed

SCHEMA = Attributed([{"name": "k"}], {"strict": True})


@pytest.mark.parametrize(
    ("value", "name", "found"),
    [
        ({"a": 1}, "a", 1),
        ({"a": 1}, "b", MISSING),
        ({"0": 1}, "0", 1),
        ([5, 6], "0", 5),
        ([5, 6], "-1", 6),
        ([5, 6], "2", MISSING),
        ([5, 6], "-3", MISSING),
        ([5, 6], "x", MISSING),
        ([5, 6], "", MISSING),
        ([5, 6], "-", MISSING),
        ([5, 6], "1" * 5_000, MISSING),
        ([5, 6], "٣", MISSING),
        ("text", "0", MISSING),
        (5, "0", MISSING),
        (None, "a", MISSING),
        (MISSING, "a", MISSING),
        (SCHEMA, "0", {"name": "k"}),
        (SCHEMA, "@strict", True),
        (SCHEMA, "@nothing", MISSING),
        (SCHEMA, "@", {"strict": True}),
    ],
)
def test_looking(value: Any, name: str, found: Any) -> None:
    assert inside(value, name) is found or inside(value, name) == found


@pytest.mark.parametrize(
    ("target", "name", "value", "after"),
    [
        ({}, "a", 1, {"a": 1}),
        ({"a": 1}, "a", None, {"a": None}),
        ({"a": 1}, "a", MISSING, {}),
        ({"a": 1}, "b", MISSING, None),
        ([5, 6], "0", 1, [1, 6]),
        ([5, 6], "-1", 1, [5, 1]),
        ([5, 6], "2", 1, None),
        ([5, 6], "end", 1, [5, 6, 1]),
        ([5, 6], "end", MISSING, None),
        ([5, 6], "0", MISSING, [6]),
        ([5, 6], "x", 1, None),
        ("text", "0", 1, None),
        (5, "a", 1, None),
        (None, "a", MISSING, None),
        (MISSING, "a", 1, None),
    ],
)
def test_changing(target: Any, name: str, value: Any, after: Any) -> None:
    """`after` is None where there is no such place."""
    before = repr(target)
    assert put(target, name, value) is (after is not None)
    if after is None:
        assert repr(target) == before
    else:
        assert target == after
