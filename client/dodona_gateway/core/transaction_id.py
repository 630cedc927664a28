"""The id of a transaction that a gateway holds: `a-b-c-d`, four numbers in hexadecimal.

Owns: the layout, which is that of YTsaurus's object ids, so that its clients accept it. `a` and `b`
are the two halves of the timestamp that names the transaction everywhere. `c` says which gateway
holds it, and of which kind it is. `d` is random, so that callers can't guess an id. Pure.
"""

import re
from typing import Final

import msgspec

from dodona_wire.errors import InvalidRequest
from dodona_wire.types import MAX_TIMESTAMP, Atomicity, Timestamp

HALF_BITS: Final = 32
HALF_MASK: Final = (1 << HALF_BITS) - 1
KIND_BITS: Final = 16
KIND_MASK: Final = (1 << KIND_BITS) - 1
GATEWAY_MAX: Final = (1 << 16) - 1
KINDS: Final[dict[Atomicity, int]] = {"full": 2, "none": 3}
"""YTsaurus's numbers. Its client refuses rows under ids of the kinds 1 and 4, which are master
transactions."""
ATOMICITIES: Final = {kind: atomicity for atomicity, kind in KINDS.items()}
_PART: Final = "(0|[1-9a-f][0-9a-f]{0,7})"
_FORM: Final = re.compile("-".join([_PART] * 4))
"""An id has exactly one text form."""


class HeldId(msgspec.Struct, frozen=True):
    """The parts of an id. `gateway` is 0 to 65,535. `nonce` is a random number of 32 bits."""

    name: Timestamp
    """The start timestamp. A non-atomic transaction has a timestamp that no other transaction
    has."""
    atomicity: Atomicity
    gateway: int
    nonce: int

    def __str__(self) -> str:
        kind = self.gateway << KIND_BITS | KINDS[self.atomicity]
        return f"{self.name >> HALF_BITS:x}-{self.name & HALF_MASK:x}-{kind:x}-{self.nonce:x}"


def parse_held_id(text: str) -> HeldId:
    """Return the parts of an id. Raises InvalidRequest on a text that no gateway gave out."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise _mismatch(text)
    high, low, kind, nonce = [int(part, 16) for part in found.groups()]
    name = high << HALF_BITS | low
    atomicity = ATOMICITIES.get(kind & KIND_MASK)
    if atomicity is None or not 0 < name <= MAX_TIMESTAMP:
        raise _mismatch(text)
    return HeldId(Timestamp(name), atomicity, kind >> KIND_BITS, nonce)


def _mismatch(text: str) -> InvalidRequest:
    return InvalidRequest(
        "The text is not a transaction's id. Pass the id from the answer to its begin, as in "
        "1a2b3c4-5d6e7f80-30002-9a8b7c6d.",
        transaction=text[:64],
    )
