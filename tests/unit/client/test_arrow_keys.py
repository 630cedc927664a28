"""Keys in columns: what is refused, and how it is told. That they are right is a property."""

import math
from typing import Any

import pyarrow
import pytest

from dodona.errors import DataCorrupted, LimitExceeded, SchemaViolation
from dodona.keys import encode_key
from dodona.schema import Column, TableSchema
from dodona.types import KEY_MIN
from dodona_wire.rows import arrow_keys
from dodona_wire.rows.arrow_keys import cut_at, decode_keys, encode_keys, in_order, order_of

SCHEMA = TableSchema.parse(
    [
        Column("number", "double", "ascending"),
        Column("text", "utf8", "ascending", required=True),
        Column("value", "int64"),
    ]
)
TYPES = SCHEMA.key_types


def batch(numbers: list[float | None], texts: list[str | None]) -> Any:
    return pyarrow.record_batch(
        {
            "number": pyarrow.array(numbers, pyarrow.float64()),
            "text": pyarrow.array(texts, pyarrow.string()),
        }
    )


@pytest.mark.parametrize(
    ("refused", "attributes"),
    [
        (batch([1.0, 2.0], ["a", None]), {"column": "text", "row_index": 1}),
        (batch([None, math.nan, math.nan], ["a"] * 3), {"column": "number", "row_index": 1}),
    ],
)
def test_an_invalid_key_is_reported_with_column_and_row(
    refused: Any, attributes: dict[str, Any]
) -> None:
    with pytest.raises(SchemaViolation) as caught:
        encode_keys(SCHEMA, refused)
    assert caught.value.attributes == attributes
    with pytest.raises(SchemaViolation) as caught:
        encode_keys(SCHEMA, pyarrow.Table.from_batches([batch([1.0], ["a"]), refused]))
    assert caught.value.attributes == attributes | {"row_index": attributes["row_index"] + 1}


def test_a_key_that_is_too_long_is_reported_with_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_keys, "KEY_BYTES_MAX", 100)
    fitting = batch([1.0] * 3, ["a", "b" * 88, "c"])
    assert max(map(len, encode_keys(SCHEMA, fitting).to_pylist())) == 100
    with pytest.raises(SchemaViolation, match="key is longer than 100 bytes") as caught:
        encode_keys(SCHEMA, batch([1.0] * 3, ["a", "b" * 89, "c"]))
    assert caught.value.attributes == {"size_bytes": 101, "row_index": 1}


def test_more_keys_than_an_array_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_keys, "KEYS_BYTES_MAX", 100)
    with pytest.raises(LimitExceeded, match="use fewer rows"):
        encode_keys(SCHEMA, batch([1.0], ["a" * 50]))


def test_the_error_names_the_corrupted_key_among_valid_keys() -> None:
    good = encode_key([1.0, "a"], TYPES)
    bad = encode_key([2.0, b"\xff"], ("double", "string"))
    for keys in ([good, bad], [bad, good], [good, bad, good]):
        with pytest.raises(DataCorrupted, match="utf-8") as caught:
            decode_keys(SCHEMA, pyarrow.array(keys, pyarrow.binary()))
        assert caught.value.attributes == {"key": bad}


@pytest.mark.parametrize("column_type", ["int64", "uint64", "double", "boolean"])
def test_beneath_nulls_are_zeros_and_no_bytes_of_other_keys(column_type: str) -> None:
    """Whoever compares or sends whole buffers sees them, too."""
    types = (column_type, "utf8")
    value = column_type == "boolean" or 1
    keys = [encode_key(key, types) for key in ([None, "of the first"], [None, ""], [value, ""])]
    schema = TableSchema.parse(
        [Column(f"k{place}", it, "ascending") for place, it in enumerate(types)]
        + [Column("value", "int64")]
    )
    found = decode_keys(schema, pyarrow.array(keys, pyarrow.binary()))[0]
    expected = pyarrow.array([None, None, value], found.type)
    assert found.equals(expected)
    assert [it.to_pybytes().strip(b"\0") for it in found.buffers()] == [
        it.to_pybytes().strip(b"\0") for it in expected.buffers()
    ]


def test_nothing_has_no_keys() -> None:
    keys = encode_keys(SCHEMA, batch([], []))
    assert keys.to_pylist() == []
    assert [it.to_pylist() for it in decode_keys(SCHEMA, keys)] == [[], []]
    assert in_order(keys)[0] is None
    assert order_of(keys).to_pylist() == []
    assert cut_at(keys, [KEY_MIN]) == []
