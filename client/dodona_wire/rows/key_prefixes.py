"""Decode bounds of ranges: keys that may lack their last columns. Pure."""

from collections.abc import Sequence
from typing import Any

from dodona_wire.errors import DataCorrupted
from dodona_wire.rows.keys import decode_key
from dodona_wire.types import Key


def decode_prefix(key: Key, types: Sequence[str]) -> tuple[Any, ...]:
    """Return the stored values of an encoded key, which may lack trailing columns. Raises
    DataCorrupted."""
    for count in range(len(types)):
        try:
            return decode_key(key, types[:count])
        except DataCorrupted:
            continue
    return decode_key(key, types)
