"""Read single values of Arrow arrays as Python objects, straight from the buffers.

Owns: a getter for each column type. A getter is a function from a row to its value, which may be
null. To make a getter takes some microseconds, and it keeps the array's memory. To call it takes a
tenth of a microsecond, while an Arrow scalar takes several. Getters trust the array: its bytes were
verified before.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa

Getter = Callable[[int], Any]

_FORMATS: Final = {"int64": "q", "uint64": "Q", "double": "d"}
_decode: Final = msgspec.msgpack.Decoder().decode


def getter_of(array: pa.Array, column_type: str) -> Getter:
    """Return a getter for an array of a column of this type. A column that was text may be read as
    `string`."""
    if array.null_count == len(array):
        return _nothing
    get: Getter
    if column_type in _FORMATS:
        get = numbers_of(array, _FORMATS[column_type]).__getitem__
    elif column_type == "boolean":
        get = _bit_getter(array.buffers()[1], array.offset)
    else:
        get = _bytes_getter(array, column_type)
    if array.null_count == 0:
        return get
    return _nullable(get, _bit_getter(array.buffers()[0], array.offset))


def numbers_of(array: pa.Array, number_format: Any) -> memoryview:
    """Return the numbers of an array. The format is one of `struct` with 8 bytes. Nulls have any
    number."""
    numbers: memoryview = memoryview(array.buffers()[1]).cast("B").cast(number_format)
    return numbers[array.offset : array.offset + len(array)]


def offsets_of(array: pa.Array) -> "memoryview[int]":
    """Return where each value of a binary array begins in its data, and where the last one ends."""
    offsets = memoryview(array.buffers()[1]).cast("B").cast("i")
    return offsets[array.offset : array.offset + len(array) + 1]


def data_of(array: pa.Array) -> memoryview:
    """Return the values of a binary array, one after the other."""
    data = array.buffers()[2]
    return memoryview(b"" if data is None else data).cast("B")


def mask_getter(array: pa.Array) -> Getter:
    """Return a getter of column masks. Masks are numbers, or bytes in wide tables."""
    if array.type == pa.uint64():
        return numbers_of(array, "Q").__getitem__
    get = _bytes_getter(array, "string")
    return lambda row: int.from_bytes(get(row), "little")


def _bit_getter(bits: Any, offset: int) -> Getter:
    view = memoryview(bits).cast("B")

    def get(row: int) -> bool:
        row += offset
        return view[row >> 3] >> (row & 7) & 1 == 1

    return get


def _bytes_getter(array: pa.Array, column_type: str) -> Getter:
    offsets, data = offsets_of(array), data_of(array)

    def get_bytes(row: int) -> bytes:
        return data[offsets[row] : offsets[row + 1]].tobytes()

    def get_text(row: int) -> str:
        return str(data[offsets[row] : offsets[row + 1]], "utf-8")

    def get_any(row: int) -> Any:
        return _decode(data[offsets[row] : offsets[row + 1]])

    return {"string": get_bytes, "utf8": get_text, "any": get_any}[column_type]


class Constant:
    """A sequence in which all numbers are the same."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __getitem__(self, row: int) -> int:
        return self._number


def _nothing(row: int) -> None:
    return None


def _nullable(get: Getter, is_set: Getter) -> Getter:
    return lambda row: get(row) if is_set(row) else None
