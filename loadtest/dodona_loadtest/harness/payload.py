"""The rows that every contender writes: 100 bytes each, keys uniform over a million.

Each client process draws keys from a seeded generator. So all contenders meet the same mix of new
and repeated keys. Values come from a small pool, because making random bytes is not measured.
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
        """Return a key in [0, below)."""
        return int(self._random() * below)

    def next_value(self) -> bytes:
        """Return 92 bytes: with its 8-byte key, a row has 100."""
        return self._values[int(self._random() * VALUES_COUNT)]
