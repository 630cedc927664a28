"""Handle columns of versions as numpy arrays: masks, keys in a form that sorts fast, and row
groups.

Owns: operations on many versions at a time, without a Python object for each. Column masks are
`Words`, with one row of numbers for each 64 value columns. So tables of any width are treated
alike. Keys that are compared here are whole keys of one table, and none of these is a prefix of
another. So they may be padded with zeros.
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
"""The most bytes of keys that are padded to one length. Longer keys are sorted as they are, which
takes longer."""


# ---- masks


def words_of(schema: TableSchema, masks: pa.Array) -> Words:
    """Return a column of masks, in the form that chunks have, as words."""
    if not schema.is_wide:
        numbers: Words = masks.to_numpy(zero_copy_only=True).reshape(1, -1)
        return numbers
    width = _word_count(schema) * WORD_BITS // 8
    return padded(masks, width).view("<u8").astype(np.uint64, copy=False).T


def masks_of(schema: TableSchema, words: Words) -> pa.Array:
    """Return words as a column of masks in a chunk."""
    if not schema.is_wide:
        return pa.array(words[0])
    matrix = np.ascontiguousarray(words.T).astype("<u8", copy=False).view(np.uint8)
    places = np.arange(1, matrix.shape[1] + 1)
    lengths = ((matrix != 0) * places).max(axis=1)
    return binary_of(matrix[places <= lengths[:, None]], lengths)


def no_masks(schema: TableSchema, count: int) -> pa.Array:
    """Return a column of empty masks."""
    return masks_of(schema, np.zeros((_word_count(schema), count), np.uint64))


def _word_count(schema: TableSchema) -> int:
    return -(-len(schema.value_columns) // WORD_BITS)


def words_of_mask(mask: int, count: int) -> list[np.uint64]:
    """Return one mask, word by word."""
    return [np.uint64(mask >> WORD_BITS * place & _WORD_MAX) for place in range(count)]


def has_bit(words: Words, bit: int) -> Flags:
    """Return which masks have this bit."""
    found: Flags = (words[bit // WORD_BITS] >> np.uint64(bit % WORD_BITS) & np.uint64(1)) != 0
    return found


def has_all(words: Words, mask: int) -> Flags:
    """Return which masks have all bits of this one."""
    found = np.ones(words.shape[1], np.bool_)
    for row, word in zip(words, words_of_mask(mask, len(words)), strict=True):
        if word:
            found &= row & word == word
    return found


def has_any(words: Words, mask: int) -> Flags:
    """Return which masks have a bit of this one."""
    found = np.zeros(words.shape[1], np.bool_)
    for row, word in zip(words, words_of_mask(mask, len(words)), strict=True):
        if word:
            np.logical_or(found, row & word, out=found)
    return found


def has_any_bit(words: Words) -> Flags:
    """Return which masks are not empty."""
    found: Flags = np.logical_or.reduce(words, axis=0)
    return found


def clear_bit(words: Words, bit: int, where: Flags) -> None:
    """Remove a bit from these masks, in place."""
    words[bit // WORD_BITS][where] &= np.uint64(_WORD_MAX ^ 1 << bit % WORD_BITS)


# ---- binary columns


def padded(array: pa.Array, width: int) -> NDArray[np.uint8]:
    """Return binary values as rows of a matrix, padded with zeros. No value is longer than
    `width`."""
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
    """Return an array of the binary values that lie one behind the other in `data`."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(lengths), buffers)


# ---- keys


def sorted_places(runs: Sequence[pa.Array]) -> tuple[Places, Flags]:
    """Return the order of the keys of several sorted runs, as places in all runs one after the
    other. Equal keys keep their order. Return also which keys, in that order, are the first of
    their kind."""
    keys = pa.concat_arrays(runs)
    numbers = _comparable(keys, common_length(runs))
    if numbers is None:
        order = pc.sort_indices(keys).to_numpy().astype(np.intp)
        return order, first_of_kind(keys.take(pa.array(order)))
    order = np.argsort(numbers, kind="stable")  # a stable sort finds the runs, and merges them
    ordered = numbers[order]
    return order, np.concatenate(
        [np.ones(min(len(order), 1), np.bool_), ordered[1:] != ordered[:-1]]
    )


def common_length(runs: Sequence[pa.Array]) -> int:
    """Return how many bytes all keys of sorted runs have in common at their beginning."""
    lowest = min(run[0].as_py() for run in runs)
    highest = max(run[-1].as_py() for run in runs)
    count = 0
    for low, high in zip(lowest, highest, strict=False):
        if low != high:
            break
        count += 1
    return count


def _comparable(keys: pa.Array, common: int) -> NDArray[Any] | None:
    """Return keys without their common beginning, as numbers or texts that have the same order.
    Return None if they are too long to be padded."""
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
    """Return which of these sorted keys differ from the one before."""
    starts = np.ones(len(keys), np.bool_)
    if len(keys) > 1:
        starts[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(
            zero_copy_only=False
        )
    return starts


def place_of(keys: pa.Array, key: Key) -> int:
    """Return how many of these sorted keys are below this key, which may be a bound."""
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
    """The groups of versions in order: a group has all versions of one key."""

    __slots__ = ("firsts", "numbers")

    def __init__(self, starts: Flags) -> None:
        self.firsts: Places = np.flatnonzero(starts)
        self.numbers: Places = np.cumsum(starts) - 1
        """The group of each version."""

    def __len__(self) -> int:
        return len(self.firsts)

    def counts_before(self, flags: Flags) -> Places:
        """Return for each version how many flagged versions come before it in its group."""
        before: Places = np.cumsum(flags) - flags
        found: Places = before - before[self.firsts][self.numbers]
        return found

    def counts(self, flags: Flags) -> Places:
        """Return for each group how many flagged versions it has."""
        return np.bincount(self.numbers[flags], minlength=len(self))
