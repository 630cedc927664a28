"""FarmHash fingerprints of single values, as YTsaurus's `farm_hash` combines them. Pure.

Owns: Google's Fingerprint64 of bytes, its Fingerprint of one number and of two, and how the
fingerprints of several values become one. These functions never change: tables keep their results.
`farm_hash_arrays` computes the same for columns.
"""

from typing import Any, Final

K0: Final = 0xC3A5C85C97CB3127
K1: Final = 0xB492B66FBE98F273
K2: Final = 0x9AE16A3B2F90404F
"""Factors of the hash of bytes."""
NUMBER: Final = 0x9DDFEA08EB382D69
"""The factor of the hash of numbers."""
FIRST: Final = 0xDEADC0DE
"""YTsaurus begins with this number, before the first value."""
SEED: Final = 81
BLOCK_BYTES: Final = 64
_ALL: Final = (1 << 64) - 1


def farm_hash(*values: Any) -> int:
    """Return YTsaurus's `farm_hash` of values: int, bool, bytes, or None. A negative int counts as
    the unsigned one with the same 64 bits."""
    result = FIRST
    for value in values:
        result = pair_fingerprint(result, fingerprint(value))
    return result ^ len(values)


def fingerprint(value: Any) -> int:
    """Return the fingerprint of one value. Null has that of 0, and true that of 1."""
    if type(value) is bytes:
        return bytes_fingerprint(value)
    return number_fingerprint(value or 0)


def number_fingerprint(number: int) -> int:
    """Return Google's Fingerprint of one number of 64 bits."""
    mixed = number * NUMBER & _ALL
    mixed = (mixed ^ mixed >> 44) * NUMBER & _ALL
    return (mixed ^ mixed >> 41) * NUMBER & _ALL


def pair_fingerprint(low: int, high: int) -> int:
    """Return Google's Fingerprint of a number of 128 bits."""
    mixed = (low ^ high) * NUMBER & _ALL
    mixed = (high ^ mixed ^ mixed >> 47) * NUMBER & _ALL
    mixed = (mixed ^ mixed >> 44) * NUMBER & _ALL
    return (mixed ^ mixed >> 41) * NUMBER & _ALL


def bytes_fingerprint(text: bytes) -> int:
    """Return Google's Fingerprint64 of bytes."""
    size = len(text)
    if size <= 16:
        return _up_to_16(text, size)
    if size <= 32:
        return _up_to_32(text, size)
    if size <= BLOCK_BYTES:
        return _up_to_64(text, size)
    return _longer(text, size)


def _word(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 8], "little")


def _turned(value: int, count: int) -> int:
    """Rotate a number of 64 bits to the right."""
    return (value >> count | value << 64 - count) & _ALL


def _folded(value: int) -> int:
    return value ^ value >> 47


def _joined(one: int, other: int, factor: int) -> int:
    mixed = _folded((one ^ other) * factor & _ALL)
    return _folded((other ^ mixed) * factor & _ALL) * factor & _ALL


def _up_to_16(text: bytes, size: int) -> int:
    if size >= 8:
        factor = K2 + 2 * size & _ALL
        first, last = _word(text, 0) + K2 & _ALL, _word(text, size - 8)
        one = _turned(last, 37) * factor + first & _ALL
        return _joined(one, (_turned(first, 25) + last) * factor & _ALL, factor)
    if size >= 4:
        first = int.from_bytes(text[:4], "little")
        last = int.from_bytes(text[-4:], "little")
        return _joined(size + (first << 3), last, K2 + 2 * size & _ALL)
    if size:
        one = text[0] + (text[size >> 1] << 8)
        other = size + (text[-1] << 2)
        return _folded((one * K2 ^ other * K0) & _ALL) * K2 & _ALL
    return K2


def _up_to_32(text: bytes, size: int) -> int:
    factor = K2 + 2 * size & _ALL
    first, second = _word(text, 0) * K1 & _ALL, _word(text, 8)
    last, before = _word(text, size - 8) * factor & _ALL, _word(text, size - 16) * K2
    one = _turned(first + second & _ALL, 43) + _turned(last, 30) + before & _ALL
    other = first + _turned(second + K2 & _ALL, 18) + last & _ALL
    return _joined(one, other, factor)


def _up_to_64(text: bytes, size: int) -> int:
    factor = K2 + 2 * size & _ALL
    first, second = _word(text, 0) * K2 & _ALL, _word(text, 8)
    last, before = _word(text, size - 8) * factor & _ALL, _word(text, size - 16) * K2
    one = _turned(first + second & _ALL, 43) + _turned(last, 30) + before & _ALL
    other = _joined(one, first + _turned(second + K2 & _ALL, 18) + last & _ALL, factor)
    third, fourth = _word(text, 16) * factor & _ALL, _word(text, 24)
    near = (one + _word(text, size - 32)) * factor & _ALL
    far = (other + _word(text, size - 24)) * factor
    return _joined(
        _turned(third + fourth & _ALL, 43) + _turned(near, 30) + far & _ALL,
        third + _turned(fourth + first & _ALL, 18) + near & _ALL,
        factor,
    )


def _longer(text: bytes, size: int) -> int:
    x, y = SEED * K2 + _word(text, 0) & _ALL, SEED * K1 + 113 & _ALL
    z = _folded(y * K2 + 113 & _ALL) * K2 & _ALL
    state = x, y, z, (0, 0), (0, 0)
    for at in range(0, (size - 1) // BLOCK_BYTES * BLOCK_BYTES, BLOCK_BYTES):
        state = _block(text, at, state, K1, 1)
    x, y, z, v, w = state
    factor = K1 + ((z & 0xFF) << 1) & _ALL
    w = w[0] + (size - 1 & BLOCK_BYTES - 1) & _ALL, w[1]
    v = v[0] + w[0] & _ALL, v[1]
    w = w[0] + v[0] & _ALL, w[1]
    x, y, z, v, w = _block(text, size - BLOCK_BYTES, (x, y, z, v, w), factor, 9)
    one = _joined(v[0], w[0], factor) + _folded(y) * K0 + z & _ALL
    return _joined(one, _joined(v[1], w[1], factor) + x & _ALL, factor)


_State = tuple[int, int, int, tuple[int, int], tuple[int, int]]


def _block(text: bytes, at: int, state: _State, factor: int, weight: int) -> _State:
    """Return the state after 64 bytes more. The last block has another factor and weight."""
    x, y, z, v, w = state
    x = _turned(x + y + v[0] + _word(text, at + 8) & _ALL, 37) * factor & _ALL
    y = _turned(y + v[1] + _word(text, at + 48) & _ALL, 42) * factor & _ALL
    x ^= w[1] * weight & _ALL
    y = y + v[0] * weight + _word(text, at + 40) & _ALL
    z = _turned(z + w[0] & _ALL, 33) * factor & _ALL
    v = _half(text, at, v[1] * factor, x + w[0])
    w = _half(text, at + 32, z + w[1], y + _word(text, at + 16))
    return z, y, x, v, w


def _half(text: bytes, at: int, one: int, other: int) -> tuple[int, int]:
    first, second, third, fourth = [_word(text, at + 8 * place) for place in range(4)]
    one += first
    other = _turned(other + one + fourth & _ALL, 21)
    before = one
    one = one + second + third & _ALL
    return one + fourth & _ALL, other + _turned(one, 44) + before & _ALL
