"""FarmHash fingerprints of columns: what `farm_hash` computes for one value, for arrays of numpy.

Owns: the same functions for many values together. Texts of one length are hashed together, so the
time grows with the number of lengths, and no Python object is made for a text. numpy is imported on
first use: the light client works without it.
Invariant: each result equals that of `farm_hash`.
"""

from typing import Any, Final

from dodona_wire.expressions.farm_hash import BLOCK_BYTES, FIRST, K0, K1, K2, NUMBER, SEED

_Arrays = tuple[Any, Any]
_ALL: Final = (1 << 64) - 1


def combined(fingerprints: list[Any], count: int) -> Any:
    """Return the `farm_hash` of rows: of each value, the array of its fingerprints."""
    numpy = _numpy()
    result = numpy.full(count, FIRST, "u8")
    for its in fingerprints:
        result = _pair(result, its)
    return result ^ numpy.uint64(len(fingerprints))


def number_fingerprints(numbers: Any) -> Any:
    """Return the fingerprints of an array of type u8."""
    factor = _numpy().uint64(NUMBER)
    mixed = numbers * factor
    mixed = (mixed ^ mixed >> 44) * factor
    return (mixed ^ mixed >> 41) * factor


def _pair(low: Any, high: Any) -> Any:
    factor = _numpy().uint64(NUMBER)
    mixed = (low ^ high) * factor
    mixed = (high ^ mixed ^ mixed >> 47) * factor
    mixed = (mixed ^ mixed >> 44) * factor
    return (mixed ^ mixed >> 41) * factor


def text_fingerprints(offsets: Any, data: Any) -> Any:
    """Return the fingerprints of texts. Text i has the bytes (type u1) from offset i to i + 1."""
    numpy = _numpy()
    starts, sizes = offsets[:-1].astype("i8"), numpy.diff(offsets.astype("i8"))
    found = numpy.empty(len(sizes), "u8")
    order = sizes.argsort(kind="stable")
    lengths, firsts = numpy.unique(sizes[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(order)]
    for size, first, end in zip(
        lengths.tolist(), firsts.tolist(), ends[: len(firsts)], strict=True
    ):
        rows = order[first:end]
        found[rows] = _Texts(data, starts[rows], size).fingerprints()
    return found


def _turned(values: Any, count: int) -> Any:
    return values >> count | values << 64 - count


def _folded(values: Any) -> Any:
    return values ^ values >> 47


def _joined(one: Any, other: Any, factor: Any) -> Any:
    mixed = _folded((one ^ other) * factor)
    return _folded((other ^ mixed) * factor) * factor


class _Texts:
    """Texts of one length, each somewhere in the data."""

    def __init__(self, data: Any, starts: Any, size: int) -> None:
        self._data = data
        self._starts = starts
        self._size = size
        self._k0, self._k1, self._k2 = map(_numpy().uint64, (K0, K1, K2))
        self._factor = _numpy().uint64(K2 + 2 * size & _ALL)

    def fingerprints(self) -> Any:
        with _numpy().errstate(over="ignore"):
            if self._size <= 16:
                return self._up_to_16()
            if self._size <= 32:
                return self._up_to_32()
            return self._up_to_64() if self._size <= BLOCK_BYTES else self._longer()

    def _number(self, at: int, width: int) -> Any:
        """Return the little-endian numbers of so many bytes at this place of each text."""
        windows = _numpy().lib.stride_tricks.sliding_window_view(self._data, width)
        return windows[self._starts + at].view(f"<u{width}")[:, 0].astype("u8")

    def _word(self, at: int) -> Any:
        return self._number(at, 8)

    def _up_to_16(self) -> Any:
        numpy, size, factor = _numpy(), self._size, self._factor
        if size >= 8:
            first, last = self._word(0) + self._k2, self._word(size - 8)
            one = _turned(last, 37) * factor + first
            return _joined(one, (_turned(first, 25) + last) * factor, factor)
        if size >= 4:
            first, last = self._number(0, 4), self._number(size - 4, 4)
            return _joined((first << 3) + size, last, factor)
        if size:
            one = self._number(0, 1) + (self._number(size >> 1, 1) << 8)
            other = (self._number(size - 1, 1) << 2) + size
            return _folded(one * self._k2 ^ other * self._k0) * self._k2
        return numpy.full(len(self._starts), K2, "u8")

    def _up_to_32(self) -> Any:
        size, factor = self._size, self._factor
        first, second = self._word(0) * self._k1, self._word(8)
        last, before = self._word(size - 8) * factor, self._word(size - 16) * self._k2
        one = _turned(first + second, 43) + _turned(last, 30) + before
        return _joined(one, first + _turned(second + self._k2, 18) + last, factor)

    def _up_to_64(self) -> Any:
        size, factor = self._size, self._factor
        first, second = self._word(0) * self._k2, self._word(8)
        last, before = self._word(size - 8) * factor, self._word(size - 16) * self._k2
        one = _turned(first + second, 43) + _turned(last, 30) + before
        other = _joined(one, first + _turned(second + self._k2, 18) + last, factor)
        third, fourth = self._word(16) * factor, self._word(24)
        near = (one + self._word(size - 32)) * factor
        far = (other + self._word(size - 24)) * factor
        return _joined(
            _turned(third + fourth, 43) + _turned(near, 30) + far,
            third + _turned(fourth + first, 18) + near,
            factor,
        )

    def _longer(self) -> Any:
        numpy, size = _numpy(), self._size
        count = len(self._starts)
        x = self._word(0) + numpy.uint64(SEED * K2 & _ALL)
        y = numpy.full(count, SEED * K1 + 113 & _ALL, "u8")
        z = _folded(y * self._k2 + 113) * self._k2
        nothing = numpy.zeros(count, "u8")
        v = w = (nothing, nothing)
        for at in range(0, (size - 1) // BLOCK_BYTES * BLOCK_BYTES, BLOCK_BYTES):
            x, y, z, v, w = self._block(at, (x, y, z, v, w), self._k1, 1)
        factor = self._k1 + ((z & 0xFF) << 1)
        w = w[0] + (size - 1 & BLOCK_BYTES - 1), w[1]
        v = v[0] + w[0], v[1]
        w = w[0] + v[0], w[1]
        x, y, z, v, w = self._block(size - BLOCK_BYTES, (x, y, z, v, w), factor, 9)
        one = _joined(v[0], w[0], factor) + _folded(y) * self._k0 + z
        return _joined(one, _joined(v[1], w[1], factor) + x, factor)

    def _block(self, at: int, state: Any, factor: Any, weight: int) -> Any:
        x, y, z, v, w = state
        x = _turned(x + y + v[0] + self._word(at + 8), 37) * factor
        y = _turned(y + v[1] + self._word(at + 48), 42) * factor
        x = x ^ w[1] * weight
        y = y + v[0] * weight + self._word(at + 40)
        z = _turned(z + w[0], 33) * factor
        v = self._half(at, v[1] * factor, x + w[0])
        w = self._half(at + 32, z + w[1], y + self._word(at + 16))
        return z, y, x, v, w

    def _half(self, at: int, one: Any, other: Any) -> _Arrays:
        first, second, third, fourth = [self._word(at + 8 * place) for place in range(4)]
        one = one + first
        other = _turned(other + one + fourth, 21)
        before = one
        one = one + second + third
        return one + fourth, other + _turned(one, 44) + before


def _numpy() -> Any:
    import numpy

    return numpy
