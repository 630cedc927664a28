"""Measure the content of a block: its order, its keys and its timestamps, column by column.

Owns: the definition of order in a chunk, and of garbage. The same code measures chunks that are
written and chunks that are checked. So a check finds everything that writing would not have
written.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dodona_tablets.core.rows.chunks.bloom import bloom_of, hash_keys
from dodona_tablets.core.rows.chunks.layout import KEY, MASK, TIMESTAMP
from dodona_wire.types import NULL_TIMESTAMP, Key, Timestamp

Flags = npt.NDArray[np.bool_]


class LastRow(NamedTuple):
    """The last row of the block before."""

    key: Key
    timestamp: Timestamp


NO_ROW: Final = LastRow(Key(b""), NULL_TIMESTAMP)


class Measures(NamedTuple):
    """The measures of one block, which follows another block."""

    misplaced_row: int | None
    """The first row that does not come after the row before it. None if all rows are in order."""
    key_count: int
    """The number of different keys in the block."""
    lower: Key
    upper: Key
    min_timestamp: Timestamp
    max_timestamp: Timestamp
    bloom: bytes
    mask_max: int
    """The largest mask, if masks are numbers. Otherwise 0."""
    garbage_count: int
    """The number of versions that are deletions, or not the newest of their key in the chunk."""
    last: LastRow


def measure(batch: pa.RecordBatch, before: LastRow) -> Measures:
    """Measure a block of at least one row in chunk layout."""
    keys = batch.column(KEY)
    stamps = _stamps(batch)
    lower, upper = Key(keys[0].as_py()), Key(keys[-1].as_py())
    begins = np.ones(len(keys), np.bool_)
    begins[1:] = _flags(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1)))
    key_count = int(np.count_nonzero(begins))
    garbage_count = len(keys) - int(np.count_nonzero(begins & _are_writes(batch)))
    if lower == before.key and begins[0] and _are_writes(batch.slice(0, 1))[0]:
        garbage_count += 1
    last = LastRow(upper, NULL_TIMESTAMP if stamps is None else Timestamp(int(stamps[-1])))
    return Measures(
        _misplaced_row(keys, stamps, begins, before),
        key_count,
        lower,
        upper,
        NULL_TIMESTAMP if stamps is None else Timestamp(int(stamps.min())),
        NULL_TIMESTAMP if stamps is None else Timestamp(int(stamps.max())),
        bloom_of(_hashes(keys)[begins]),
        _mask_max(batch),
        garbage_count,
        last,
    )


def _stamps(batch: pa.RecordBatch) -> npt.NDArray[np.uint64] | None:
    if TIMESTAMP not in batch.schema.names:
        return None
    stamps: npt.NDArray[np.uint64] = batch.column(TIMESTAMP).to_numpy()
    return stamps


def _are_writes(batch: pa.RecordBatch) -> Flags:
    if MASK not in batch.schema.names:
        return np.ones(batch.num_rows, np.bool_)
    masks = batch.column(MASK)
    if masks.type == pa.uint64():
        return np.asarray(masks.to_numpy() != 0)
    return _flags(pc.not_equal(pc.binary_length(masks), 0))


def _mask_max(batch: pa.RecordBatch) -> int:
    if MASK not in batch.schema.names or batch.column(MASK).type != pa.uint64():
        return 0
    return int(batch.column(MASK).to_numpy().max())


def _misplaced_row(
    keys: pa.Array, stamps: npt.NDArray[np.uint64] | None, begins: Flags, before: LastRow
) -> int | None:
    first = Key(keys[0].as_py())
    is_newer = stamps is None or stamps[0] >= before.timestamp
    if first < before.key or (first == before.key and is_newer):
        return 0
    follows = ~begins[1:]
    if not follows.any():
        return None
    is_right = np.zeros(len(follows), np.bool_)
    if stamps is not None:
        same = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
        is_right = _flags(same) & (stamps[:-1] > stamps[1:])
    wrong = np.flatnonzero(follows & ~is_right)
    return int(wrong[0]) + 1 if len(wrong) else None


def _hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    _, offsets, data = keys.buffers()
    return hash_keys(
        np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1],
        np.frombuffer(b"" if data is None else data, np.uint8),
    )


def _flags(array: pa.Array) -> Flags:
    flags: Flags = array.to_numpy(zero_copy_only=False)
    return flags
