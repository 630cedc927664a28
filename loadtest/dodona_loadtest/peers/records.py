"""The records of YCSB that the rows of serializable transactions change.

Owns: how many there are, and how their keys are drawn: with the Zipfian choice of `scenarios.draws`
at 0.99. Each record has ten fields of 100 bytes, as YCSB has them, and a counter. A change reads
the record, adds 1 to the counter, and writes one field. So no change can get lost unseen.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from dodona_loadtest.scenarios import draws
from dodona_loadtest.scenarios.scenario import FILLER
from dodona_loadtest.scenarios.ycsb import key_of

RECORDS: Final = 1_000
THETA: Final = 0.99
FIELD_BYTES: Final = 100
FIELDS: Final = tuple(f"field{number}" for number in range(10))


class Records:
    """The draws of one run. A load makes them in its client process, since they can't be sent."""

    def __init__(self) -> None:
        self._random = Random(2013)
        self._choose = draws.scrambled_zipfian(RECORDS, THETA, lambda: RECORDS - 1)
        self.done_count = 0
        """The changes that were acknowledged."""

    def draw(self) -> tuple[str, str, str]:
        """Draw a change: the key of a record, a field, and its new value."""
        key = key_of(self._choose(self._random))
        return key, self._random.choice(FIELDS), self._value()

    def first(self) -> Iterator[dict[str, Any]]:
        """Return the records at first."""
        for number in range(RECORDS):
            yield {"id": key_of(number), "count": 0, **{name: self._value() for name in FIELDS}}

    def _value(self) -> str:
        place = self._random.randrange(len(FILLER) - FIELD_BYTES)
        return FILLER[place : place + FIELD_BYTES]
