"""Arrow's binary arrays as their bytes, and back. No Python object is made for each value.

Owns: the buffers of a binary array, and the error without numpy. Imports no clock and no I/O. numpy
and pyarrow are imported on first use.
"""

from typing import Any

from dodona_wire.errors import InvalidRequest


def views(array: Any) -> tuple[Any, Any]:
    """Return the offsets from 0, and the bytes, of a binary array. Only a slice is copied."""
    numpy = numpy_module()
    if len(array) == 0:
        return numpy.zeros(1, "i4"), numpy.empty(0, "u1")
    _, places, data = array.buffers()
    offsets = numpy.frombuffer(places, "i4", len(array) + 1, array.offset * 4)
    size_bytes = int(offsets[-1] - offsets[0])
    if size_bytes == 0:
        return offsets - offsets[0], numpy.empty(0, "u1")
    first = int(offsets[0])
    return offsets - first if first else offsets, numpy.frombuffer(data, "u1", size_bytes, first)


def width_of(offsets: Any) -> int | None:
    """Return the length of the keys, if it is one for all and not 0; else None."""
    row_count = len(offsets) - 1
    width = int(offsets[-1]) // max(row_count, 1)
    is_it = width > 0 and (offsets[1:] - offsets[:-1] == width).all()
    return width if is_it else None


def binary_of(rows: Any) -> Any:
    """Return the rows of a matrix of bytes as a binary array; no bytes are copied."""
    import pyarrow

    row_count, width = rows.shape
    offsets = numpy_module().arange(0, row_count * width + 1, width, "i4")
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(rows)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), row_count, buffers)


def numpy_module() -> Any:
    """Import numpy. Raises InvalidRequest if it is not there."""
    try:
        import numpy
    except ImportError as error:
        raise InvalidRequest("bulk writes need numpy: pip install 'dodona[sql]'") from error
    return numpy


def flipped(array: Any) -> Any:
    """Return the same values with all bits flipped. Nulls give any bytes."""
    import pyarrow

    offsets, data = views(array)
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(~data)]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(array), buffers)


def has_zeros(array: Any) -> bool:
    """Return whether some value of a binary array has a byte 00."""
    _, data = views(array)
    return data.size > 0 and not data.min()
