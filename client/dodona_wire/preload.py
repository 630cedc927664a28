"""Types that answers, requests and records are read as: described to msgspec before any thread can.

msgspec looks a type's fields up when it is first read as, and shows what it has found to other
threads before it is whole. Two threads that read their first answer of a kind at the same time, if
that kind holds another type, get the process killed by a segmentation fault (msgspec 0.22.0).
Describing a type while its module is imported leaves nothing to look up. Owns: that. Invariant,
which a test keeps: whatever is read by `type=` or `convert` has been here. Imports no clock and no
I/O.
"""

from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")


def preload_decoder(kind: type[Kind]) -> type[Kind]:
    """The type itself, so that it decorates classes. Types that it holds are described with it.
    Raises TypeError if msgspec can't read it."""
    msgspec.msgpack.Decoder(kind)
    return kind
