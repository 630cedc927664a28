"""The size of a write: an estimate for the client, which refuses early, and the truth for cells.

Owns: both. Must not look at a schema: they run for every write.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from dodona_wire.types import WireWrite, Write

VALUE_BYTES: Final = 9
"""Bytes that a number takes at most on the wire; text and bytes take their length besides."""

_encode: Final = msgspec.msgpack.Encoder().encode


def wire_bytes(writes: Sequence[WireWrite]) -> int:
    """Return how long writes are on the wire: never more than the sum of their estimates. Encoding
    them is the cheapest way to know."""
    return len(_encode(writes))


def write_bytes(write: Write) -> int:
    """Return about how long a write is on the wire, never less."""
    key, mask, values = write
    size_bytes = len(key) + VALUE_BYTES * (3 + len(values)) + (mask.bit_length() >> 3)
    for value in values:
        kind = type(value)
        if kind is str:
            size_bytes += len(value) if value.isascii() else len(value.encode())
        elif kind is bytes:
            size_bytes += len(value)
        elif kind is list or kind is dict:
            size_bytes += len(msgspec.msgpack.encode(value))
    return size_bytes
