"""The rows of the storage studies: an int64 key, a double, an int64 and a string of 20 bytes.

Owns: the rows, and the forms in which systems accept them. The key decides all values of a row. So
every system and every round has the same rows. Values are scattered, so that no system gains by
compressing them. Forms of many rows are made without a Python object for each row.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy
import pyarrow
from numpy.typing import NDArray

NOTE_BYTES: Final = 20
NOTE_PREFIX: Final = b"row "
ROW_BYTES: Final = 8 + 8 + 8 + NOTE_BYTES
ARROW_SCHEMA: Final = pyarrow.schema(
    [
        pyarrow.field("id", pyarrow.int64(), nullable=False),
        pyarrow.field("amount", pyarrow.float64()),
        pyarrow.field("count", pyarrow.int64()),
        pyarrow.field("note", pyarrow.binary()),
    ]
)
POSTGRES_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
POSTGRES_COPY_TRAILER: Final = b"\xff\xff"
POSTGRES_COPY_ROW: Final = numpy.dtype(
    [
        ("columns", ">i2"),
        *[("id_bytes", ">i4"), ("id", ">i8")],
        *[("amount_bytes", ">i4"), ("amount", ">f8")],
        *[("count_bytes", ">i4"), ("count", ">i8")],
        *[("note_bytes", ">i4"), ("note", f"S{NOTE_BYTES}")],
    ]
)

_NOISE: Final = random.Random(2013).randbytes(1 << 16)
_HEX_DIGITS: Final = numpy.array([b"%02x" % byte for byte in range(256)], dtype="S2")


@dataclass(frozen=True, slots=True)
class SampleRows:
    """The rows whose keys are first, first + step, first + 2 * step, ..., in this order."""

    count: int
    first: int = 0
    step: int = 1

    @property
    def last(self) -> int:
        """The largest key."""
        return self.first + (self.count - 1) * self.step

    def slices(self, count_max: int) -> "Iterator[SampleRows]":
        """Return all rows in parts of at most `count_max`."""
        for begin in range(0, self.count, count_max):
            count = min(count_max, self.count - begin)
            yield SampleRows(count, self.first + begin * self.step, self.step)


def arrow_table(rows: SampleRows) -> pyarrow.Table:
    """Return the rows in the form of a user who works with Arrow."""
    keys, amounts, counts, notes = _columns(rows)
    offsets = numpy.arange(rows.count + 1, dtype=numpy.int32) * NOTE_BYTES
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(notes)]
    note_array = pyarrow.Array.from_buffers(pyarrow.binary(), rows.count, buffers)
    return pyarrow.table([keys, amounts, counts, note_array], schema=ARROW_SCHEMA)


def dicts(rows: SampleRows, padding_bytes: int = 0) -> list[dict[str, Any]]:
    """Return the rows in the form of a user who writes rows. Notes may be that much longer."""
    assert 0 <= padding_bytes < len(_NOISE) // 2
    found: list[dict[str, Any]] = arrow_table(rows).to_pylist()
    if padding_bytes:
        places = len(_NOISE) - padding_bytes
        for row in found:
            place = row["count"] % places
            row["note"] += _NOISE[place : place + padding_bytes]
    return found


def postgres_copy_data(rows: SampleRows) -> bytes:
    """Return the rows in the fastest form for PostgreSQL's COPY: its own binary format."""
    keys, amounts, counts, notes = _columns(rows)
    records = numpy.empty(rows.count, POSTGRES_COPY_ROW)
    records["columns"] = 4
    for name, values in (("id", keys), ("amount", amounts), ("count", counts)):
        records[f"{name}_bytes"] = 8
        records[name] = values
    records["note_bytes"] = NOTE_BYTES
    records["note"] = notes
    return POSTGRES_COPY_HEADER + records.tobytes() + POSTGRES_COPY_TRAILER


def _columns(
    rows: SampleRows,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    keys = rows.first + numpy.arange(rows.count, dtype=numpy.int64) * rows.step
    scattered = keys.astype(numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    scattered ^= scattered >> numpy.uint64(29)
    amounts = (scattered >> numpy.uint64(11)) / float(1 << 53)
    counts = (scattered >> numpy.uint64(40)).astype(numpy.int64)
    digits = _HEX_DIGITS[scattered.astype(">u8").view(numpy.uint8)]
    notes = numpy.empty((rows.count, NOTE_BYTES), numpy.uint8)
    notes[:, : len(NOTE_PREFIX)] = numpy.frombuffer(NOTE_PREFIX, numpy.uint8)
    notes[:, len(NOTE_PREFIX) :] = digits.view(numpy.uint8).reshape(rows.count, 16)
    return keys, amounts, counts, notes.reshape(-1).view(f"S{NOTE_BYTES}")
