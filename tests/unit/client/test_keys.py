"""The encoding of keys: bytes sort as the columns do, and nothing is lost."""

import math
import struct
from contextlib import suppress
from functools import total_ordering
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.errors import DataCorrupted, SchemaViolation
from dodona.keys import decode_key, encode_key, null_suffix, successor
from dodona.types import KEY_MAX, KEY_MIN, Key

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.binary(max_size=20) | st.lists(st.sampled_from([0, 1, 254, 255])).map(bytes),
    "utf8": st.text(max_size=20) | st.text(alphabet="\x00\x01a", max_size=6),
}

KEY_TYPES = st.tuples(st.sampled_from(["", "-"]), st.sampled_from(sorted(VALUES))).map("".join)
# The first text drawn builds tables of all characters, which takes seconds.
EXAMPLES = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)


@st.composite
def _keys(draw: st.DrawFn, count: int) -> tuple[list[str], list[list[Any]]]:
    """Column types, and that many keys of them."""
    types = draw(st.lists(KEY_TYPES, min_size=1, max_size=4))
    column = [st.none() | VALUES[it.removeprefix("-")] for it in types]
    return types, [[draw(it) for it in column] for _ in range(count)]


@total_ordering
class _Descending:
    """A value that sorts the other way round."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.value == other.value)

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other.value < self.value)

    __hash__ = None  # type: ignore[assignment]  # nothing keeps it in a set


def _sort_key(values: list[Any], types: list[str]) -> list[Any]:
    """Null first, then by value; text by its UTF-8 bytes. All of that the other way round in a
    descending column."""
    plain = [
        (it is not None, it.encode() if isinstance(it, str) else (0 if it is None else it))
        for it in values
    ]
    return [
        _Descending(it) if kind.startswith("-") else it
        for it, kind in zip(plain, types, strict=False)
    ]


@EXAMPLES
@given(_keys(1))
def test_a_key_keeps_values_and_types_through_encoding_and_decoding(
    drawn: tuple[list[str], list[list[Any]]],
) -> None:
    types, (values,) = drawn
    decoded = decode_key(encode_key(values, types), types)
    assert list(decoded) == values
    assert [type(it) for it in decoded] == [type(it) for it in values]


@EXAMPLES
@given(_keys(2))
def test_bytes_sort_as_the_columns_do(drawn: tuple[list[str], list[list[Any]]]) -> None:
    types, (left, right) = drawn
    left_key, right_key = encode_key(left, types), encode_key(right, types)
    left_place, right_place = _sort_key(left, types), _sort_key(right, types)
    assert (left_key < right_key) == (left_place < right_place)
    assert (left_key == right_key) == (left_place == right_place)


@EXAMPLES
@given(_keys(2))
def test_a_prefix_is_a_lower_bound(drawn: tuple[list[str], list[list[Any]]]) -> None:
    types, (bound, values) = drawn
    prefix = encode_key(bound[:-1], types)
    whole = encode_key(values, types)
    assert encode_key(bound, types).startswith(prefix)
    assert (whole < prefix) == (_sort_key(values, types) < _sort_key(bound[:-1], types))


@EXAMPLES
@given(_keys(1))
def test_every_key_lies_between_the_ends(drawn: tuple[list[str], list[list[Any]]]) -> None:
    types, (values,) = drawn
    key = encode_key(values, types)
    assert KEY_MIN < key < KEY_MAX
    assert key < successor(key)


@EXAMPLES
@given(_keys(2))
def test_no_key_lies_between_a_key_and_its_successor(
    drawn: tuple[list[str], list[list[Any]]],
) -> None:
    types, (values, other) = drawn
    key, other_key = encode_key(values, types), encode_key(other, types)
    assert not key < other_key < successor(key)


@EXAMPLES
@given(st.binary(max_size=40), st.lists(KEY_TYPES, min_size=1, max_size=3))
def test_any_bytes_are_a_key_or_corrupted(raw: bytes, types: list[str]) -> None:
    with suppress(DataCorrupted):
        assert encode_key(decode_key(Key(raw), types), types) == raw


@EXAMPLES
@given(_keys(1), st.data())
def test_bytes_that_were_changed_are_corrupted_or_another_key(
    drawn: tuple[list[str], list[list[Any]]], data: st.DataObject
) -> None:
    types, (values,) = drawn
    raw = bytearray(encode_key(values, types))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFD, 0xFF]))
    with suppress(DataCorrupted):
        assert encode_key(decode_key(Key(bytes(raw)), types), types) == bytes(raw)


ONE_OF_EACH: list[tuple[str, Any]] = [
    ("int64", None),
    *(("int64", it) for it in (-(1 << 63), -1, 0, 1, (1 << 63) - 1)),
    *(("uint64", it) for it in (0, 1, (1 << 64) - 1)),
    *(("double", it) for it in (-math.inf, -1.5, 0.0, 5e-324, 1.5, math.inf)),
    *(("boolean", it) for it in (False, True)),
    *(("string", it) for it in (b"", b"\x00", b"\x00\x00", b"\x00\x01", b"\x01", b"a", b"a\x00")),
]


def test_types_follow_one_another_and_null_is_before_all_of_them() -> None:
    keys = [encode_key([value], [kind]) for kind, value in ONE_OF_EACH]
    assert keys == sorted(set(keys))


PINNED: list[tuple[str, Any, str]] = [
    ("int64", None, "02"),
    ("int64", 1, "03 8000000000000001"),
    ("uint64", 1, "04 0000000000000001"),
    ("double", -1.5, "05 4007ffffffffffff"),
    ("boolean", True, "06 01"),
    ("string", b"a\x00", "10 61 00ff 0001"),
    ("utf8", "a", "10 61 0001"),
    ("-int64", None, "fd"),
    ("-int64", 1, "fc 7ffffffffffffffe"),
    ("-uint64", 1, "fb fffffffffffffffe"),
    ("-double", -1.5, "fa bff8000000000000"),
    ("-boolean", True, "f9 fe"),
    ("-string", b"a\x00", "ef 9e ff00 fffe"),
    ("-utf8", "a", "ef 9e fffe"),
]


@pytest.mark.parametrize(("kind", "value", "encoded"), PINNED)
def test_the_bytes_of_keys_stay_what_they_are(kind: str, value: Any, encoded: str) -> None:
    assert encode_key([value], [kind]) == bytes.fromhex(encoded)


def test_null_suffix_is_null_in_each_column() -> None:
    types = ["int64", "-int64", "-utf8", "string"]
    assert null_suffix(types) == encode_key([None] * 4, types)


def test_negative_zero_is_zero() -> None:
    assert encode_key([-0.0], ["double"]) == encode_key([0.0], ["double"])


def test_infinities_are_the_ends_of_doubles() -> None:
    ordered = [-math.inf, -1e308, -1.0, 0.0, 5e-324, 1.0, math.inf]
    keys = [encode_key([it], ["double"]) for it in ordered]
    assert keys == sorted(keys)


def test_nan_is_no_key() -> None:
    nan = struct.unpack(">d", b"\x7f\xf8\x00\x00\x00\x00\x00\x01")[0]
    with pytest.raises(SchemaViolation, match="NaN"):
        encode_key([nan], ["double"])


@pytest.mark.parametrize(
    ("raw", "types"),
    [
        (b"", ["int64"]),
        (b"\x03\x00", ["int64"]),
        (b"\x04" + bytes(8), ["int64"]),
        (b"\x10abc", ["string"]),
        (b"\x10\xff\x00\x01", ["utf8"]),
        (b"\x06\x01extra", ["boolean"]),
        (b"\x06\x02", ["boolean"]),
        (b"\x10a\x00\x02", ["string"]),
        (b"\x10a\x00", ["string"]),
        (b"\x05" + struct.pack(">Q", 0xFFF8 << 48), ["double"]),
        (b"\x05" + struct.pack(">Q", (1 << 63) - 1), ["double"]),
        (b"\x02", ["-int64"]),
        (b"\xfd", ["int64"]),
        (b"\x03" + bytes(8), ["-int64"]),
        (b"\xfc" + bytes(8), ["int64"]),
        (b"\xfc" + bytes(7), ["-int64"]),
        (b"\xf9\xfd", ["-boolean"]),
        (b"\xef\x9e\xff", ["-string"]),
        (b"\xef\x00\xff\xfe", ["-utf8"]),
        (b"\xfa" + struct.pack(">Q", 1 << 63), ["-double"]),
    ],
)
def test_the_decoder_refuses_bytes_that_no_encoder_produces(raw: bytes, types: list[str]) -> None:
    with pytest.raises(DataCorrupted):
        decode_key(Key(raw), types)
