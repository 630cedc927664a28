"""The values next to a constant of a query, which end the ranges that the query reads."""

from ctypes import c_float
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona._core.sql.constants import predecessor, successor
from dodona.schema import Column, TableSchema
from dodona_wire.rows.logical_types import logical_type

FINITE: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 0, 2**63 - 1]),
    "uint64": st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**64 - 1]),
    "int8": st.integers(-128, 127),
    "date": st.integers(0, 49_672),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "uuid": st.binary(min_size=16, max_size=16) | st.sampled_from([bytes(16), b"\xff" * 16]),
    "decimal(2,0)": st.integers(-99, 99).map(lambda it: (2**31 + it).to_bytes(4, "big")),
}
TEXTS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.binary(max_size=4) | st.binary(min_size=1023, max_size=1026),
    "utf8": st.text(max_size=4)
    | st.sampled_from(["", "\0", "a\0", "\ue000", "\ud7ff", "\U0010ffff", "x" * 1025]),
}


@pytest.mark.parametrize("name", FINITE)
@given(data=st.data())
@settings(deadline=None)
def test_the_value_before_the_next_one_is_the_value(name: str, data: st.DataObject) -> None:
    kind, value = logical_type(name), data.draw(FINITE[name])
    below, above = predecessor(value, kind), successor(value, kind)
    assert below is None or (below < value and successor(below, kind) == value)
    assert above is None or (value < above and predecessor(above, kind) == value)


@pytest.mark.parametrize(
    ("name", "smallest", "greatest"),
    [
        ("int64", -(2**63), 2**63 - 1),
        ("uint64", 0, 2**64 - 1),
        ("int8", -128, 127),
        ("date", 0, 49_672),
        ("double", -1.7976931348623157e308, 1.7976931348623157e308),
        ("float", -c_float(3.4028234663852886e38).value, c_float(3.4028234663852886e38).value),
        ("uuid", bytes(16), b"\xff" * 16),
        ("decimal(2,0)", (2**31 - 99).to_bytes(4, "big"), (2**31 + 99).to_bytes(4, "big")),
    ],
)
def test_the_ends_of_a_type_have_one_neighbour(name: str, smallest: Any, greatest: Any) -> None:
    kind = logical_type(name)
    assert predecessor(smallest, kind) is None
    assert successor(greatest, kind) is None
    assert successor(smallest, kind) is not None
    assert predecessor(greatest, kind) is not None


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
@settings(deadline=None)
def test_a_text_below_another_lies_behind_it_in_a_descending_table(
    name: str, data: st.DataObject
) -> None:
    schema = TableSchema.parse([Column("k", name, "descending"), Column("v", "int64")])
    value = data.draw(TEXTS[name])
    behind = schema.bound_of([predecessor(value, logical_type(name))])
    assert schema.bound_of([value]) < behind <= schema.bound_of([None])


@pytest.mark.parametrize("word", ["a", "b", "ab", "b\0", "ba", "bz", "b" + "z" * 9])
def test_short_texts_do_not_lie_between(word: str) -> None:
    """So a condition on one value reads hardly more than that value."""
    text, raw = logical_type("utf8"), logical_type("string")
    for value in ("b", "b\0", "ba"):
        assert not predecessor(value, text) < word < value
        assert not predecessor(value.encode(), raw) < word.encode() < value.encode()


def test_a_type_without_neighbours_ends_at_null() -> None:
    assert predecessor("{}", logical_type("json")) is None
    assert predecessor(True, logical_type("boolean")) is None
