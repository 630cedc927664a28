"""How much YSON (or JSON in YTsaurus's form) one reader takes.

Owns: the limits, their defaults, and the errors of input that is broken or passes them. Imports no
clock and no I/O.
"""

from typing import Final

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded

DEPTH_MAX: Final = 100
"""Nested values are read and written by nested calls: up to five for a level, of which Python
allows about a thousand."""


class YsonLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What passes one of these raises LimitExceeded before it takes much memory."""

    depth_max: int = 64
    """How many lists, maps and attribute maps may be open at a time; 1 to 100."""
    bytes_max: int = 16 << 20
    """Of one value, or of one item where items are read one by one."""
    values_max: int = 1_000_000
    """In one value or item: list items, map entries and attributes, at all levels together. Each
    takes up to 250 bytes of memory, however short it was."""
    items_max: int = 10_000_000
    """Where items are read one by one: how many there may be in all."""

    def __post_init__(self) -> None:
        if not 1 <= self.depth_max <= DEPTH_MAX:
            raise InvalidRequest(f"depth_max must be 1 to {DEPTH_MAX}", depth_max=self.depth_max)
        if min(self.bytes_max, self.values_max, self.items_max) < 1:
            raise InvalidRequest("limits must be at least 1")


DEFAULT_LIMITS: Final = YsonLimits()


class Malformed(Exception):
    """What is at this place can't be there. Never leaves the package."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what, at)
        self.what = what
        self.at = at

    def public(self, base: int) -> InvalidRequest:
        """What the caller gets to see; `base` is where in the input the buffer begins."""
        return InvalidRequest(f"malformed YSON: {self.what}", offset=base + self.at)


class Excess(Malformed):
    """A limit is passed at this place. Never leaves the package."""

    def public(self, base: int) -> LimitExceeded:
        """What the caller gets to see; `base` is where in the input the buffer begins."""
        return LimitExceeded(f"too much YSON: {self.what}", offset=base + self.at)


class NeedMore(Exception):
    """The buffer ends inside of a value. Never leaves the package."""

    def __init__(self, bytes_min: int) -> None:
        super().__init__(bytes_min)
        self.bytes_min = bytes_min
        """The buffer has to be so long at least."""
