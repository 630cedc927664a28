"""MessagePack, read so that nothing of it is lost: a map names each of its members once.

Owns: how a name that comes twice is found, and how a value of type any is read; `json_text` has the
same for JSON, and the refusal. Pure.

What was read is the same if it is packed anew, unless a member was lost, or another form was taken
than msgspec's. No form is shorter than that, but floats of 32 bits. So the length tells as much
where there are none of these. All else is looked at a second time.
"""

from typing import Any, Final

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.rows.json_text import Place, name_refusal, object_of, place_of_repeated

_FLOAT32: Final = b"\xca"
_decode: Final = msgspec.msgpack.Decoder().decode


def unpacked(packed: bytes, column: str) -> Any:
    """What a value of a column of type any says. Raises SchemaViolation where a name comes twice,
    else as msgspec does: DecodeError, UnicodeError, RecursionError."""
    found = _decode(packed)
    if type(found) in (dict, list) and (place := repeated_in_packed(packed, found)):
        raise name_refusal(place, column=column)
    return found


def repeated_in_packed(packed: bytes, found: Any) -> Place:
    """The place of a name that comes twice in one map of what was read as `found`; nothing if there
    is none."""
    anew = msgspec.msgpack.encode(found)
    if anew == packed or (len(anew) == len(packed) and _FLOAT32 not in packed):
        return []
    # Not at the top: the base install has none, and no columns of Arrow either.
    import msgpack

    try:
        read = msgpack.unpackb(
            packed, object_pairs_hook=object_of, strict_map_key=False, use_list=False
        )
    except ValueError as error:  # msgspec nests deeper
        raise InvalidRequest(
            f"the MessagePack can't be read: {str(error) or 'too deep'}"
        ) from error
    return place_of_repeated(read)
