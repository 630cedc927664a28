"""Bloom filters of keys: never a wrong no, seldom a wrong yes, and the same bits for ever."""

import time
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dodona.keys import encode_key
from dodona_tablets.core.rows.chunks.bloom import bloom_of, hash_key, hash_keys, may_have, words_of

COUNT = 20_000


def hashes_of(keys: Sequence[bytes]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    offsets = np.cumsum([0, *map(len, keys)]).astype(np.int32)
    return hash_keys(offsets, np.frombuffer(b"".join(keys), np.uint8))


@pytest.mark.parametrize(
    "keys",
    [
        [b"a", b"", b"b", b""],
        [bytes([it]) * length for it in (0, 1, 255) for length in (1, 2, 9, 300)],
        [b"x" * 65_535, b"y" * 65_536, b"z" * 65_537, b"end"],  # around a step
        [b"k" * 40_000, b"l" * 40_000, b"m" * 40_000],
    ],
)
def test_keys_hash_the_same_together_and_alone(keys: list[bytes]) -> None:
    assert hashes_of(keys).tolist() == [hash_key(key) for key in keys]


def test_a_part_of_an_array_hashes_as_the_whole() -> None:
    offsets = np.array([0, 3, 3, 7, 12], np.int32)
    data = np.frombuffer(b"abcdefghijkl", np.uint8)
    assert hash_keys(offsets[1:4], data).tolist() == hash_keys(offsets, data)[1:3].tolist()


PATTERNS: dict[str, Callable[[int], bytes]] = {
    "rising": lambda it: encode_key([it], ["int64"]),
    "spaced": lambda it: encode_key([256 * it], ["int64"]),
    "doubles": lambda it: encode_key([it / 8], ["double"]),
    "pairs": lambda it: encode_key([it // 100, it % 100], ["int64", "uint64"]),
    "text": lambda it: encode_key([f"user-{it:09}"], ["utf8"]),
}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("is_interleaved", [False, True])
def test_keys_that_are_there_are_found_and_few_others(name: str, is_interleaved: bool) -> None:
    numbers = range(0, 2 * COUNT, 2) if is_interleaved else range(COUNT)
    others = range(1, 2 * COUNT, 2) if is_interleaved else range(COUNT, 2 * COUNT)
    keys = [PATTERNS[name](it) for it in numbers]
    bloom = bloom_of(hashes_of(keys))
    assert len(bloom) * 8 < 12.1 * COUNT
    words = words_of(bloom)
    assert all(may_have(words, key) for key in keys)
    wrong = sum(may_have(words, PATTERNS[name](it)) for it in others)
    assert wrong < 0.015 * COUNT


def test_a_filter_of_no_keys_has_none() -> None:
    assert not may_have(words_of(bloom_of(np.empty(0, np.uint64))), b"a")


def test_stored_filters_stay_readable() -> None:
    """A change of any constant would make filters that are on disk deny keys."""
    bloom = bloom_of(hashes_of([PATTERNS["text"](it) for it in range(1000)]))
    assert zlib.crc32(bloom) == 2_068_887_110


@pytest.mark.parametrize(
    "lengths", [[1_000_000], [5, 2_000, 9, 1_024, 1_025, 0, 30], [1_025] * 3, [1_000_000, 8, 8]]
)
def test_hashing_long_keys_is_fast_and_gives_the_same_hashes(lengths: list[int]) -> None:
    """A key of 1 MB took seconds, as each of its words was a step for all keys."""
    keys = [bytes([length % 251]) * length for length in lengths]
    began_s = time.process_time()
    hashes = hashes_of(keys)
    assert time.process_time() - began_s < 0.5
    assert hashes.tolist() == [hash_key(key) for key in keys]
