"""FarmHash: published results of Google's and YTsaurus's own tests, for single values and columns.

Owns: these results. They come from the tests of go-farm (made with Google's code), and from
YTsaurus's tests of `FarmFingerprint` and of `farm_hash`. They never change.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona_wire.expressions.farm_hash import (
    bytes_fingerprint,
    farm_hash,
    number_fingerprint,
    pair_fingerprint,
)
from dodona_wire.expressions.farm_hash_arrays import (
    combined,
    number_fingerprints,
    text_fingerprints,
)

LOREM = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut "
    "labore et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco "
    "laboris nisi ut aliquip ex ea commodo consequat. Duis aute irure dolor in reprehenderit in "
    "voluptate velit esse cillum dolore eu fugiat nulla pariatur. Excepteur sint occaecat "
    "cupidatat non proident, sunt in culpa qui officia deserunt mollit anim id est laborum."
)
TEXTS = {
    "": 0x9AE16A3B2F90404F,
    "a": 0xB3454265B6DF75E3,
    "ab": 0xAA8D6E5242ADA51E,
    "abc": 0x24A5B3A074E7F369,
    "abcd": 0x1A5502DE4A1F8101,
    "abcdefg": 0x3C40C92B1CCB7355,
    "abcdefgh": 0xFEE9D22990C82909,
    "0123456789": 0xAD052244B781C4EB,
    "0123456789'01234": 0x4283D4EF43627F64,
    "0123456789=012345": 0x46A7416ED4861E3B,
    "0123456789%0123456789£": 0x4DBD128AF51D77E8,
    "C is as portable as Stonehedge!!": 0xB944F8A16261E414,
    "Discard medicine more than two years old.": 0xE8F89AB6DF9BDD25,
    "The days of the digital watch are numbered.  -Tom Stoppard": 0x2A578B80BB82147C,
    "For every action there is an equal and opposite government program.": 0x55182F8859ECA4CE,
    "Give me a rock, paper and scissors and I will move the world.  CCFestoon": 0xA2B8BF3032021993,
    LOREM: 0xC3F02C4FFD5D71E6,
    "MDwhat?": 10997514911242581312,
}


def of_texts(texts: list[bytes]) -> list[int]:
    offsets = np.cumsum([0, *map(len, texts)]).astype("i4")
    found: list[int] = text_fingerprints(offsets, np.frombuffer(b"".join(texts), "u1")).tolist()
    return found


@pytest.mark.parametrize("text", TEXTS, ids=lambda it: f"{len(it.encode())} bytes")
def test_bytes_have_googles_fingerprint(text: str) -> None:
    assert bytes_fingerprint(text.encode()) == TEXTS[text]


def test_a_column_of_bytes_has_googles_fingerprints() -> None:
    assert of_texts([it.encode() for it in TEXTS]) == list(TEXTS.values())


def test_numbers_have_ytsauruss_fingerprints() -> None:
    assert number_fingerprint(42) == 17355217915646310598
    assert pair_fingerprint(1234, 5678) == 16769064555670434975
    assert number_fingerprints(np.array([42], "u8")).tolist() == [17355217915646310598]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3, b"hello", True), 13185060272037541714),
        ((54, None, False), 1607147011416532415),
    ],
)
def test_rows_have_ytsauruss_farm_hash(values: tuple[Any, ...], expected: int) -> None:
    assert farm_hash(*values) == expected


@given(st.lists(st.binary(max_size=200) | st.binary(min_size=60, max_size=70), max_size=20))
def test_columns_of_texts_and_single_texts_are_alike(texts: list[bytes]) -> None:
    assert of_texts(texts) == [bytes_fingerprint(it) for it in texts]


@given(st.lists(st.integers(-(1 << 63), (1 << 64) - 1), max_size=20))
def test_columns_of_numbers_and_single_numbers_are_alike(numbers: list[int]) -> None:
    array = np.array([it % (1 << 64) for it in numbers], "u8")
    its = number_fingerprints(array)
    assert its.tolist() == [number_fingerprint(it) for it in numbers]
    assert combined([its, its], len(numbers)).tolist() == [farm_hash(it, it) for it in numbers]


def test_the_length_of_a_text_counts_in_bytes_of_a_slice() -> None:
    array = pa.array([b"x", b"abc", b"a"], pa.binary()).slice(1)
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, "i4", 3, 4)
    found = text_fingerprints(places, np.frombuffer(data, "u1"))
    assert found.tolist() == [TEXTS["abc"], TEXTS["a"]]
