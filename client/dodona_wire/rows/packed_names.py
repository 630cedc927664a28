"""Read MessagePack without any loss: a map names each of its members once.

Owns: how a repeated name is found, and how a value of type any is read. `json_text` has the same
for JSON, and the refusal. Pure.

A value packed again gives the same bytes, unless a member was lost, or the writer used another form
than msgspec. No other form is shorter, except floats of 32 bits. So the length is enough if there
are none of these. All other values need a second pass.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.json_text import Place, name_refusal, object_of, place_of_repeated
from dodona_wire.rows.values import CHECKS

_FLOAT32: Final = b"\xca"
_decode: Final = msgspec.msgpack.Decoder().decode


def unpacked(packed: bytes, column: str) -> Any:
    """Return a value of a column of type any. Raises SchemaViolation if a name comes twice, else
    the errors of msgspec: DecodeError, UnicodeError, RecursionError."""
    found = _decode(packed)
    if type(found) in (dict, list) and (place := repeated_in_packed(packed, found)):
        raise name_refusal(place, column=column)
    return found


def nulls_in_packed(values: Sequence[bytes | None], column: str) -> list[bool]:
    """Check the values of a column of type any. Return which of them are null: None, or the
    MessagePack of null. Raises SchemaViolation, which names the row."""
    check = CHECKS["any"]
    is_null = [False] * len(values)
    row = 0
    try:
        for row, packed in enumerate(values):
            is_null[row] = packed is None or check(unpacked(packed, column), column) is None
    except SchemaViolation as error:
        error.attributes.setdefault("row_index", row)
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"not MessagePack: {error}"
        raise SchemaViolation(text, column=column, row_index=row) from error
    return is_null


def repeated_in_packed(packed: bytes, found: Any) -> Place:
    """Return the place of a name that comes twice in one map of a value that was read as `found`;
    empty if there is none."""
    anew = msgspec.msgpack.encode(found)
    if anew == packed or (len(anew) == len(packed) and _FLOAT32 not in packed):
        return []
    # Not at the top: the base install lacks msgpack, and has no Arrow columns either.
    import msgpack

    try:
        read = msgpack.unpackb(
            packed, object_pairs_hook=object_of, strict_map_key=False, use_list=False
        )
    except ValueError as error:  # msgspec allows more depth
        raise InvalidRequest(
            f"the MessagePack can't be read: {str(error) or 'too deep'}"
        ) from error
    return place_of_repeated(read)
