"""Limit how much YSON (or JSON in YTsaurus's form) one reader takes.

Owns: the limits, their defaults, and the errors of input that is broken or exceeds them. Imports no
clock and no I/O.
"""

from typing import Final

import msgspec

from dodona_wire.errors import InvalidRequest, LimitExceeded

DEPTH_MAX: Final = 100
"""Nested calls read and write nested values: up to five calls for a level. Python allows about a
thousand."""


class YsonLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a reader. Input that exceeds one raises LimitExceeded before it takes much
    memory."""

    depth_max: int = 64
    """How many lists, maps and attribute maps may be open at the same time; 1 to 100."""
    bytes_max: int = 16 << 20
    """The bytes of one value, or of one item if items are read one by one."""
    values_max: int = 1_000_000
    """The list items, map entries and attributes in one value or item, at all levels together. Each
    takes up to 250 bytes of memory, even if its text is short."""
    items_max: int = 10_000_000
    """The number of items in all, if items are read one by one."""

    def __post_init__(self) -> None:
        if not 1 <= self.depth_max <= DEPTH_MAX:
            raise InvalidRequest(f"depth_max must be 1 to {DEPTH_MAX}", depth_max=self.depth_max)
        if min(self.bytes_max, self.values_max, self.items_max) < 1:
            raise InvalidRequest("limits must be at least 1")


DEFAULT_LIMITS: Final = YsonLimits()


class Malformed(Exception):
    """The input is wrong at this place. This error never leaves the package."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what, at)
        self.what = what
        self.at = at

    def public(self, base: int) -> InvalidRequest:
        """Return the error that the caller sees. `base` is the offset of the buffer in the
        input."""
        return InvalidRequest(f"malformed YSON: {self.what}", offset=base + self.at)


class Excess(Malformed):
    """A limit is exceeded at this place. This error never leaves the package."""

    def public(self, base: int) -> LimitExceeded:
        """Return the error that the caller sees. `base` is the offset of the buffer in the
        input."""
        return LimitExceeded(f"too much YSON: {self.what}", offset=base + self.at)


class NeedMore(Exception):
    """The buffer ends inside a value. This error never leaves the package."""

    def __init__(self, bytes_min: int) -> None:
        super().__init__(bytes_min)
        self.bytes_min = bytes_min
        """The length that the buffer must have at least."""
