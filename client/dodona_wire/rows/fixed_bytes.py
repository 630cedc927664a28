"""Binary values of one length as rows of bytes, and such rows as arrays of Arrow.

Owns: the memory behind arrays of decimals, UUIDs and other values of one length. Nothing is copied
where the bytes already lie as they are needed. `arrow_bytes` does the same for keys. numpy and
pyarrow are imported on first use.
"""

from collections.abc import Iterator
from typing import Any, Final

from dodona_wire.rows.arrow_bytes import numpy_module

_WORD_BYTES: Final = 8
BLOCK_ROWS: Final = 1 << 13
"""Words of one block take 64 KiB. From 128 KiB on, the C library may get each block from the system
and return it, which takes longer than the work on it."""
_OFFSET_MAX: Final = (1 << 31) - 1
"""Bytes of all values of a binary array. Arrow has the refusal of longer ones."""


def bytes_of(array: Any, width: int) -> Any:
    """Return the values of a type of so many bytes as rows of bytes, as they are in memory."""
    numpy = numpy_module()
    data = numpy.frombuffer(array.buffers()[1] or b"", "u1")
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def value_rows(array: Any, width: int) -> Any:
    """Return the values of a binary array as rows of bytes, uncopied: with all nulls, or without
    any. None: a value has another length, or only some nulls have bytes."""
    numpy = numpy_module()
    if not len(array):
        return numpy.empty((0, width), "u1")
    _, ends, data = array.buffers()
    ends = numpy.frombuffer(ends, "i4", len(array) + 1, array.offset * 4)
    if not _are_apart(ends, width):
        if not array.null_count:
            return None
        if (ends[1:] - ends[:-1] != valid_of(array) * numpy.int32(width)).any():
            return None
    return numpy.frombuffer(data or b"", "u1")[ends[0] : ends[-1]].reshape(-1, width)


def _are_apart(ends: Any, width: int) -> bool:
    """Return whether all values between these ends have this length."""
    first, last = ends[:-1], ends[1:]
    return all((last[it] - first[it] == width).all() for it in blocks_of(len(first)))


def blocks_of(count: int) -> Iterator[slice]:
    """Yield slices of so many rows, whose intermediate results stay in the cache. To get more
    memory from the system takes longer than most of the steps here."""
    for start in range(0, count, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, count))


def full_rows(array: Any, width: int) -> Any:
    """Return the values of a binary array as rows of bytes, with any bytes for a null. Raises
    ArrowInvalid if a value has another length."""
    import pyarrow

    rows = value_rows(array, width)
    if rows is None:
        fixed = array.fill_null(bytes(width)) if array.null_count else array
        return bytes_of(fixed.cast(pyarrow.binary(width)), width)
    if len(rows) == len(array):
        return rows
    if not len(rows):
        return numpy_module().zeros((len(array), width), "u1")
    word = f"V{width}"  # as one item each, rows move as quickly as numbers
    places = valid_of(array).cumsum() - 1
    return rows.view(word)[:, 0][places].view("u1").reshape(-1, width)


def valid_of(array: Any) -> Any:
    """Return as a mask of numpy which values are not null."""
    return array.is_valid().to_numpy(zero_copy_only=False)


def array_of_rows(wanted: Any, rows: Any, like: Any) -> Any:
    """Return rows of bytes or words as an array of a type of that size, with the nulls of
    `like`."""
    import pyarrow

    buffer = pyarrow.py_buffer(numpy_module().ascontiguousarray(rows))
    return array_of_buffer(wanted, buffer, like)


def new_rows(count: int, width: int, word: str) -> tuple[Any, Any]:
    """Return a buffer for values of so many bytes, and its words of this type of numpy in rows,
    which the caller fills. Arrow keeps memory that is free again. numpy returns it to the system,
    which takes longer than to fill it."""
    import pyarrow

    numpy = numpy_module()
    buffer = pyarrow.allocate_buffer(count * width)
    words = numpy.frombuffer(buffer, word)
    return buffer, words.reshape(count, width // words.itemsize)


def array_of_buffer(wanted: Any, buffer: Any, like: Any) -> Any:
    """Return the values in a buffer as an array of this type, with the nulls of `like`."""
    import pyarrow

    return pyarrow.Array.from_buffers(wanted, len(like), [_mask_of(like), buffer])


def binary_of_rows(rows: Any, like: Any) -> Any:
    """Return rows of bytes as binary values, with null where `like` has it. A null has zeros."""
    import pyarrow

    count, width = rows.shape
    if like.null_count:
        word = f"u{min(width, _WORD_BYTES)}"
        rows = rows.view(word) * valid_of(like).astype(word)[:, None]
    if count * width > _OFFSET_MAX:
        return array_of_rows(pyarrow.binary(width), rows, like).cast(pyarrow.binary())
    buffers = [_mask_of(like), _offsets_of(count, width), pyarrow.py_buffer(rows)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)


def _offsets_of(count: int, width: int) -> Any:
    """Return the offsets of so many values of one length, in memory of Arrow."""
    numpy = numpy_module()
    buffer, offsets = new_rows(count + 1, 4, "i4")
    for block in blocks_of(count + 1):
        ends = block.start * width, (block.stop - 1) * width + 1
        offsets[block, 0] = numpy.arange(*ends, width, dtype="i4")
    return buffer


def _mask_of(array: Any) -> Any:
    """Return the buffer that says which values are not null, or None if none is."""
    import pyarrow

    if not array.null_count:
        return None
    return pyarrow.py_buffer(numpy_module().packbits(valid_of(array), bitorder="little"))
