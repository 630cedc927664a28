"""Describe the types of answers, requests and records to msgspec before any thread needs them.

msgspec looks up the fields of a type when it first reads a value of that type. Other threads can
see the unfinished result. Suppose that a kind of answer contains another type, and two threads read
their first answer of that kind at the same time. Then a segmentation fault kills the process
(msgspec 0.22.0). A type that is described while its module is imported leaves nothing to look up.

Owns: this description. Invariant, which a test keeps: every type that `type=` or `convert` names
was passed to `preload_decoder`. Imports no clock and no I/O.
"""

from typing import TypeVar

import msgspec

Kind = TypeVar("Kind")


def preload_decoder(kind: type[Kind]) -> type[Kind]:
    """Describe a type, and the types that it contains, to msgspec, and return it: a class
    decorator. Raises TypeError if msgspec can't read the type."""
    msgspec.msgpack.Decoder(kind)
    return kind
