"""How large a write is: one estimate for the client, which refuses early, and for cells.

Owns: the estimate. Must not look at a schema: it runs for every write.
"""

from typing import Final

import msgspec

from dodona.types import Write

VALUE_BYTES: Final = 9
"""What a number takes at most on the wire; text and bytes take their length besides."""


def write_bytes(write: Write) -> int:
    """About how long a write is on the wire, never less."""
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
