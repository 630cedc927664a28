"""The values that a column of each type accepts, and how to copy them.

Exports the public names of `dodona_wire.rows.values`, which servers and clients share.
"""

from dodona_wire.rows.values import (
    CHECKS,
    NESTING_DEPTH_MAX,
    VALUE_BYTES_MAX,
    check_key_double,
    double_of,
    is_same,
    own_copies,
    own_copy,
    size_bytes_of,
)

__all__ = [
    "CHECKS",
    "NESTING_DEPTH_MAX",
    "VALUE_BYTES_MAX",
    "check_key_double",
    "double_of",
    "is_same",
    "own_copies",
    "own_copy",
    "size_bytes_of",
]
