"""The rows that every contender writes: 100 bytes each, keys uniform over a million.

Keys are drawn from a seeded generator per client process, so that all contenders meet the same
mix of new and repeated keys. Values come from a small pool: making random bytes is not measured.
"""

import random
from typing import Final

KEYS_COUNT: Final = 1_000_000
KEY_BYTES: Final = 8
VALUE_BYTES: Final = 92
ROW_BYTES: Final = KEY_BYTES + VALUE_BYTES
VALUES_COUNT: Final = 256


class RowSource:
    """An endless supply of (key, value)."""

    def __init__(self, seed: int = 2013) -> None:
        generator = random.Random(seed)
        self._random = generator.random
        self._values = [generator.randbytes(VALUE_BYTES) for _ in range(VALUES_COUNT)]

    def next_key(self, below: int = KEYS_COUNT) -> int:
        """A key in [0, below)."""
        return int(self._random() * below)

    def next_value(self) -> bytes:
        """92 bytes: with its 8-byte key, a row of 100."""
        return self._values[int(self._random() * VALUES_COUNT)]
