"""Columns of versions as numpy arrays: masks, keys in a form that sorts fast, and groups of rows.

Owns: what can be told of many versions at once, without a Python object for each. Column masks are
`Words`: one row of numbers for each 64 value columns, so that tables of any width are treated
alike. Keys that are compared here are whole keys of one table, of which none is a prefix of
another: that is why they may be filled up with zeros.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Key

Words = NDArray[np.uint64]
"""Column masks, as an array of [word, version]: bit b of a mask is bit b % 64 of word b // 64."""
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]
"""Numbers of rows."""

WORD_BITS: Final = 64
_WORD_MAX: Final = (1 << WORD_BITS) - 1
PADDED_BYTES_MAX: Final = 64 << 20
"""Of keys filled up to one length. Longer ones are sorted as they are, which takes longer."""


# ---- masks


def words_of(schema: TableSchema, masks: pa.Array) -> Words:
    """A column of masks, as chunks have it."""
    if not schema.is_wide:
        numbers: Words = masks.to_numpy(zero_copy_only=True).reshape(1, -1)
        return numbers
    width = _word_count(schema) * WORD_BITS // 8
    return padded(masks, width).view("<u8").astype(np.uint64, copy=False).T


def masks_of(schema: TableSchema, words: Words) -> pa.Array:
    """Masks as a column of chunks."""
    if not schema.is_wide:
        return pa.array(words[0])
    matrix = np.ascontiguousarray(words.T).astype("<u8", copy=False).view(np.uint8)
    places = np.arange(1, matrix.shape[1] + 1)
    lengths = ((matrix != 0) * places).max(axis=1)
    return binary_of(matrix[places <= lengths[:, None]], lengths)


def no_masks(schema: TableSchema, count: int) -> pa.Array:
    """A column of empty masks."""
    return masks_of(schema, np.zeros((_word_count(schema), count), np.uint64))


def _word_count(schema: TableSchema) -> int:
    return -(-len(schema.value_columns) // WORD_BITS)


def words_of_mask(mask: int, count: int) -> list[np.uint64]:
    """One mask, word by word."""
    return [np.uint64(mask >> WORD_BITS * place & _WORD_MAX) for place in range(count)]


def has_bit(words: Words, bit: int) -> Flags:
    """Which masks have this bit."""
    found: Flags = (words[bit // WORD_BITS] >> np.uint64(bit % WORD_BITS) & np.uint64(1)) != 0
    return found


def has_all(words: Words, mask: int) -> Flags:
    """Which masks have all bits of this one."""
    found = np.ones(words.shape[1], np.bool_)
    for row, word in zip(words, words_of_mask(mask, len(words)), strict=True):
        if word:
            found &= row & word == word
    return found


def has_any(words: Words, mask: int) -> Flags:
    """Which masks have a bit of this one."""
    found = np.zeros(words.shape[1], np.bool_)
    for row, word in zip(words, words_of_mask(mask, len(words)), strict=True):
        if word:
            np.logical_or(found, row & word, out=found)
    return found


def has_any_bit(words: Words) -> Flags:
    """Which masks are not empty."""
    found: Flags = np.logical_or.reduce(words, axis=0)
    return found


def clear_bit(words: Words, bit: int, where: Flags) -> None:
    """Take a bit from these masks, in place."""
    words[bit // WORD_BITS][where] &= np.uint64(_WORD_MAX ^ 1 << bit % WORD_BITS)


# ---- binary columns


def padded(array: pa.Array, width: int) -> NDArray[np.uint8]:
    """Binary values as rows of a matrix, filled up with zeros. None is longer than `width`."""
    count = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    if not count or data_buffer is None:
        return np.zeros((count, width), np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + count + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    if len(data) == count * width:
        return data.reshape(count, width)
    matrix = np.zeros((count, width), np.uint8)
    matrix[np.arange(width) < np.diff(offsets)[:, None]] = data
    return matrix


def binary_of(data: NDArray[np.uint8], lengths: NDArray[Any]) -> pa.Array:
    """Binary values that lie one behind the other in `data`."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), buffers)


# ---- keys


def sorted_places(runs: Sequence[pa.Array]) -> tuple[Places, Flags]:
    """The order of the keys of several sorted runs, as places in all of them one after the other:
    equal keys stay as they are. And which keys, in that order, are the first of their kind."""
    keys = pa.concat_arrays(runs)
    numbers = _comparable(keys, common_length(runs))
    if numbers is None:
        order = pc.sort_indices(keys).to_numpy().astype(np.intp)
        return order, first_of_kind(keys.take(pa.array(order)))
    order = np.argsort(numbers, kind="stable")  # finds the runs, and merges them
    ordered = numbers[order]
    return order, np.concatenate(
        [np.ones(min(len(order), 1), np.bool_), ordered[1:] != ordered[:-1]]
    )


def common_length(runs: Sequence[pa.Array]) -> int:
    """How many bytes all keys of sorted runs have in common at their beginning."""
    lowest = min(run[0].as_py() for run in runs)
    highest = max(run[-1].as_py() for run in runs)
    count = 0
    for low, high in zip(lowest, highest, strict=False):
        if low != high:
            break
        count += 1
    return count


def _comparable(keys: pa.Array, common: int) -> NDArray[Any] | None:
    """Keys, but for their common beginning, as numbers or texts that compare alike, if it pays."""
    width = pc.max(pc.binary_length(keys)).as_py()
    if width * len(keys) > PADDED_BYTES_MAX:
        return None
    rest = padded(keys, width)[:, common:]
    width = max(width - common, 1)
    if width > WORD_BITS // 8:
        return np.ascontiguousarray(rest).view(f"S{width}").ravel()
    matrix = np.zeros((len(keys), WORD_BITS // 8), np.uint8)
    matrix[:, : rest.shape[1]] = rest
    return matrix.view(">u8").ravel().astype(np.uint64)


def first_of_kind(keys: pa.Array) -> Flags:
    """Which of these sorted keys differ from the one before."""
    starts = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        starts[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(
            zero_copy_only=False
        )
    return starts


def place_of(keys: pa.Array, key: Key) -> int:
    """How many of these sorted keys lie below this one, which may be a bound."""
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < key:
            low = middle + 1
        else:
            high = middle
    return low


# ---- groups: versions of one key, newest first


class Groups:
    """Versions in order, of which some are the first of their key."""

    __slots__ = ("firsts", "numbers")

    def __init__(self, starts: Flags) -> None:
        self.firsts: Places = np.flatnonzero(starts)
        self.numbers: Places = np.cumsum(starts) - 1
        """Which group each version belongs to."""

    def __len__(self) -> int:
        return len(self.firsts)

    def counts_before(self, flags: Flags) -> Places:
        """For each version how many flagged ones its group has before it."""
        before: Places = np.cumsum(flags) - flags
        found: Places = before - before[self.firsts][self.numbers]
        return found

    def counts(self, flags: Flags) -> Places:
        """For each group how many flagged versions it has."""
        return np.bincount(self.numbers[flags], minlength=len(self))
