"""Whether a key can be in a block: a Bloom filter, built with numpy, asked in a microsecond.

Owns: the hash of keys, the same for many at once and for one alone, and the filter's bits. A key
sets five bits of one 64-bit word: with 12 bits a key, one absent key in a hundred is not noticed.
Filters are stored: no constant here may ever change without a new version of the index.

The hash is the key as a number, little end first, modulo a prime. Of many keys at once, sums over
the bytes, each times its power of 256, give the same. Multiples of a number stay multiples of one,
so the remainder is squared modulo a larger prime, which puts no two of them together.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]

KEY_BITS: Final = 12
_PRIME: Final = (1 << 30) - 35
_SQUARES_PRIME: Final = (1 << 31) - 1
"""Above twice the other: squares of two different remainders differ."""
_STEP_BYTES: Final = 1 << 16
"""Of keys hashed at once: what is computed with stays in the processor's cache."""
_MASK_COUNT: Final = 1 << 12


def _powers(base: int) -> Bits:
    """The powers of a number modulo the prime, for each byte of a step."""
    powers = np.ones(_STEP_BYTES, np.uint64)
    known = 1
    while known < _STEP_BYTES:
        step = np.uint64(pow(base, known, _PRIME))
        powers[known : 2 * known] = powers[:known] * step % np.uint64(_PRIME)
        known *= 2
    return powers


def _mixed(numbers: Bits) -> Bits:
    """Numbers in disorder: the finishing steps of splitmix64."""
    numbers = numbers * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


_POWERS: Final = _powers(256)
_INVERSE_POWERS: Final = _powers(pow(256, -1, _PRIME))
_DRAWN: Final = _mixed(np.arange(1, 5 * _MASK_COUNT + 1, dtype=np.uint64)) & np.uint64(63)
_MASKS: Final[Bits] = np.bitwise_or.reduce((np.uint64(1) << _DRAWN).reshape(_MASK_COUNT, 5), axis=1)
_PLAIN_MASKS: Final[list[int]] = _MASKS.tolist()


def hash_key(key: bytes) -> int:
    """A number below 2³¹."""
    remainder = int.from_bytes(key, "little") % _PRIME
    return remainder * remainder % _SQUARES_PRIME


def hash_keys(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> Bits:
    """The hash of each key of an Arrow binary array: key i is data[offsets[i]:offsets[i + 1]]."""
    count = len(offsets) - 1
    remainders = np.empty(count, np.uint64)
    row = 0
    while row < count:
        limit = int(offsets[row]) + _STEP_BYTES
        end = int(np.searchsorted(offsets, limit, side="right")) - 1
        if end > row:
            remainders[row:end] = _remainders(offsets[row : end + 1], data)
        else:  # a key that is longer than a step
            end = row + 1
            key = data[offsets[row] : offsets[end]].tobytes()
            remainders[row] = int.from_bytes(key, "little") % _PRIME
        row = end
    return remainders * remainders % np.uint64(_SQUARES_PRIME)


def _remainders(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> Bits:
    part = data[offsets[0] : offsets[-1]]
    sums = np.zeros(len(part) + 1, np.uint64)
    np.cumsum(part * _POWERS[: len(part)], out=sums[1:])
    starts = offsets - offsets[0]
    ends = sums[starts]
    remainders: Bits = (ends[1:] - ends[:-1]) % np.uint64(_PRIME)
    remainders *= _INVERSE_POWERS[np.minimum(starts[:-1], _STEP_BYTES - 1)]
    return remainders % np.uint64(_PRIME)


def bloom_of(hashes: Bits) -> bytes:
    """The filter of keys with these hashes, one each."""
    words = np.zeros(max(1, -(-len(hashes) * KEY_BITS // 64)), "<u8")
    places = (hashes * np.uint64(len(words))) >> np.uint64(31)
    np.bitwise_or.at(words, places.astype(np.intp), _MASKS[_mask_places(hashes)])
    return words.tobytes()


def _mask_places(hashes: Bits) -> npt.NDArray[np.intp]:
    return (hashes & np.uint64(_MASK_COUNT - 1)).astype(np.intp)


def words_of(bloom: Any) -> "memoryview[int]":
    """A stored filter as the numbers that `may_have` looks at."""
    return memoryview(bloom).cast("Q")


def may_have(words: "memoryview[int]", key: bytes) -> bool:
    """False if the key is not among those that the filter was made of."""
    remainder = int.from_bytes(key, "little") % _PRIME
    hashed = remainder * remainder % _SQUARES_PRIME
    mask = _PLAIN_MASKS[hashed & (_MASK_COUNT - 1)]
    return words[hashed * len(words) >> 31] & mask == mask
