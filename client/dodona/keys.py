"""Encode keys as bytes that sort in the order of the key columns.

Exports the public names of `dodona_wire.rows.keys`, which servers and clients share.
"""

from dodona_wire.rows.keys import (
    NULL_TAG,
    NULL_TAGS,
    TAGS,
    decode_key,
    encode_key,
    first_columns,
    null_suffix,
    successor,
)

__all__ = [
    "NULL_TAG",
    "NULL_TAGS",
    "TAGS",
    "decode_key",
    "encode_key",
    "first_columns",
    "null_suffix",
    "successor",
]
