"""What a transaction that a gateway holds is called: `a-b-c-d`, four numbers in hexadecimal.

Owns: the layout, which is that of YTsaurus's object ids, so that its clients take it. `a` and `b`
are the two halves of the timestamp that names the transaction everywhere, `c` says which gateway
holds it and of which kind it is, `d` is drawn, so that nobody guesses an id. Pure.
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
"""YTsaurus's numbers: its client refuses rows under ids of kind 1 and 4, master transactions."""
ATOMICITIES: Final = {kind: atomicity for atomicity, kind in KINDS.items()}
_PART: Final = "(0|[1-9a-f][0-9a-f]{0,7})"
_FORM: Final = re.compile("-".join([_PART] * 4))
"""An id has one spelling."""


class HeldId(msgspec.Struct, frozen=True):
    """The parts of an id. `gateway` is 0 to 65,535, `nonce` a drawn number of 32 bits."""

    name: Timestamp
    """The start timestamp; of a non-atomic transaction a timestamp that is no one else's."""
    atomicity: Atomicity
    gateway: int
    nonce: int

    def __str__(self) -> str:
        kind = self.gateway << KIND_BITS | KINDS[self.atomicity]
        return f"{self.name >> HALF_BITS:x}-{self.name & HALF_MASK:x}-{kind:x}-{self.nonce:x}"


def parse_held_id(text: str) -> HeldId:
    """The parts of an id. Raises InvalidRequest on what no gateway gave out."""
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
        "a transaction's id is like 1a2b3c4-5d6e7f80-30002-9a8b7c6d, as its begin was answered",
        transaction=text[:64],
    )
