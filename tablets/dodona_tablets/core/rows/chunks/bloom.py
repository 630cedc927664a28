"""Check whether a key can be in a block: a Bloom filter, built with numpy, asked in a microsecond.

Owns: the hash of keys, which is the same for one key and for many together, and the filter's bits.
A key sets five bits of one 64-bit word. With 12 bits for each key, the filter lets one absent key
in a hundred pass. Filters are stored: no constant here may ever change without a new version of the
index.

The hash is the key as a number, little-endian, modulo a prime. For many keys together, sums over
words of eight bytes, each times its power of 2⁶⁴, give the same result. If keys are multiples of
one number, their remainders are, too. So the remainder is squared modulo a larger prime, which
keeps different remainders apart.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]

KEY_BITS: Final = 12
_PRIME_BITS: Final = 30
_PRIME_GAP: Final = 35
_PRIME: Final = (1 << _PRIME_BITS) - _PRIME_GAP
_SQUARES_PRIME: Final = (1 << 31) - 1
"""More than twice the other prime, so that squares of two different remainders differ."""
_WORD_BYTES: Final = 8
_WORD_FACTOR: Final = (1 << 64) % _PRIME
_MASK_COUNT: Final = 1 << 12


def _mixed(numbers: Bits) -> Bits:
    """Scramble numbers, with the finishing steps of splitmix64."""
    numbers = numbers * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


_WORD_MASKS: Final = np.array([(1 << 8 * it) - 1 for it in range(_WORD_BYTES + 1)], np.uint64)
_DRAWN: Final = _mixed(np.arange(1, 5 * _MASK_COUNT + 1, dtype=np.uint64)) & np.uint64(63)
_MASKS: Final[Bits] = np.bitwise_or.reduce((np.uint64(1) << _DRAWN).reshape(_MASK_COUNT, 5), axis=1)
_PLAIN_MASKS: Final[list[int]] = _MASKS.tolist()


LONG_KEY_BYTES: Final = 1024
"""A longer key is hashed alone."""


def hash_key(key: bytes) -> int:
    """Return the hash of one key: a number below 2³¹."""
    remainder = int.from_bytes(key, "little") % _PRIME
    return remainder * remainder % _SQUARES_PRIME


def hash_keys(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> Bits:
    """Return the hash of each key of an Arrow binary array.

    Key i is `data[offsets[i]:offsets[i + 1]]`.
    """
    lengths = offsets[1:] - offsets[:-1]
    longest = int(lengths.max(initial=0))
    if longest > LONG_KEY_BYTES:
        return _hashes_beside_long(offsets, data, lengths)
    data = np.concatenate((data[offsets[0] : offsets[-1]], np.zeros(_WORD_BYTES, "u1")))
    if (lengths == longest).all():
        found = _words_of_even(data, len(lengths), longest)
    else:
        found = _words_of_any(data, offsets[:-1] - offsets[0], lengths)
    sums = np.zeros(len(lengths), np.uint64)
    factor = 1
    for rows, words in found:
        remainders = _folded(words)
        if factor > 1:
            remainders = _folded(_folded(remainders) * np.uint64(factor))
        sums[rows] += remainders
        factor = factor * _WORD_FACTOR % _PRIME
    remainders = sums % np.uint64(_PRIME)
    return remainders * remainders % np.uint64(_SQUARES_PRIME)


def _hashes_beside_long(
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], lengths: Any
) -> Bits:
    """Return hashes of keys of which some are long. Long keys are hashed one by one. Together, keys
    are taken a word at a time, and each word of the few long keys would be one more step."""
    hashes = np.zeros(len(lengths), np.uint64)
    is_long = lengths > LONG_KEY_BYTES
    for row in is_long.nonzero()[0].tolist():
        hashes[row] = hash_key(data[offsets[row] : offsets[row + 1]].tobytes())
    rows = (~is_long).nonzero()[0]
    if rows.size:
        ends = np.concatenate((np.zeros(1, np.int32), lengths[rows].cumsum(dtype=np.int32)))
        kept = data[offsets[0] : offsets[-1]][np.repeat(~is_long, lengths)]
        hashes[rows] = hash_keys(ends, kept)
    return hashes


Words = Iterator[tuple[Any, Bits]]
"""Which keys have more bytes, and their next eight bytes as numbers: from the first bytes on."""


def _words_of_even(data: npt.NDArray[np.uint8], count: int, length: int) -> Words:
    """Yield the words of keys that have the same length."""
    for at in range(0, length, _WORD_BYTES):
        words = np.ndarray(count, "<u8", data, at, (length,))
        yield slice(None), words & _WORD_MASKS[min(length - at, _WORD_BYTES)]


def _words_of_any(data: npt.NDArray[np.uint8], starts: Any, lengths: Any) -> Words:
    windows = np.ndarray(len(data) - _WORD_BYTES + 1, "<u8", data, 0, (1,))
    rows = lengths.nonzero()[0]
    at = 0
    while rows.size:
        words = windows[starts[rows] + at]
        yield rows, words & _WORD_MASKS[np.minimum(lengths[rows] - at, _WORD_BYTES)]
        at += _WORD_BYTES
        rows = rows[lengths[rows] > at]


def _folded(numbers: Bits) -> Bits:
    """Return smaller numbers that are the same modulo the prime. They are below 2⁴⁰, or below 2³¹
    if the numbers were below 2⁴⁰."""
    above = numbers >> np.uint64(_PRIME_BITS)
    numbers = numbers & np.uint64((1 << _PRIME_BITS) - 1)
    above *= np.uint64(_PRIME_GAP)
    numbers += above
    return numbers


def bloom_of(hashes: Bits) -> bytes:
    """Return the filter of the keys with these hashes, one hash for each key."""
    words = np.zeros(max(1, -(-len(hashes) * KEY_BITS // 64)), "<u8")
    places = (hashes * np.uint64(len(words))) >> np.uint64(31)
    np.bitwise_or.at(words, places.astype(np.intp), _MASKS[_mask_places(hashes)])
    return words.tobytes()


def _mask_places(hashes: Bits) -> npt.NDArray[np.intp]:
    return (hashes & np.uint64(_MASK_COUNT - 1)).astype(np.intp)


def words_of(bloom: Any) -> "memoryview[int]":
    """Return a stored filter as the numbers that `may_have` reads."""
    return memoryview(bloom).cast("Q")


def may_have(words: "memoryview[int]", key: bytes) -> bool:
    """Return False if the key is not among those of which the filter was made."""
    remainder = int.from_bytes(key, "little") % _PRIME
    hashed = remainder * remainder % _SQUARES_PRIME
    mask = _PLAIN_MASKS[hashed & (_MASK_COUNT - 1)]
    return words[hashed * len(words) >> 31] & mask == mask
