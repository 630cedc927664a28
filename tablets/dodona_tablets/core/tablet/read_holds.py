"""Hold what serializable transactions have read, from the check until the outcome.

Owns: the read holds of one tablet, found by the key that a writer wants. Most reads are of one row,
so these are in a dictionary. The others are in a list, which is as long as the number of ranges
that are held now. `validation` has the rules of conflicts.
"""

from collections.abc import Iterator, Sequence

from dodona_tablets.core.tablet.transaction import Transaction
from dodona_wire.messages.reads import ReadRange
from dodona_wire.rows.keys import successor
from dodona_wire.types import Key


class ReadHold:
    """A range that a transaction has read, and that stays as it is until the outcome."""

    __slots__ = ("read", "transaction")

    def __init__(self, transaction: Transaction, read: ReadRange) -> None:
        self.transaction = transaction
        self.read = read


class ReadHolds:
    """The read holds of one tablet."""

    __slots__ = ("_ranges", "_rows")

    def __init__(self) -> None:
        self._rows: dict[Key, list[ReadHold]] = {}
        self._ranges: list[ReadHold] = []

    def __iter__(self) -> Iterator[ReadHold]:
        for holds in self._rows.values():
            yield from holds
        yield from self._ranges

    @property
    def is_empty(self) -> bool:
        return not self._rows and not self._ranges

    def of(self, key: Key) -> Iterator[ReadHold]:
        """Yield the holds that cover a row."""
        yield from self._rows.get(key, ())
        for hold in self._ranges:
            if hold.read.lower <= key < hold.read.upper:
                yield hold

    def take(self, transaction: Transaction, reads: Sequence[ReadRange]) -> None:
        """Hold these ranges for a transaction."""
        for read in reads:
            hold = ReadHold(transaction, read)
            if is_one_row(read):
                self._rows.setdefault(read.lower, []).append(hold)
            else:
                self._ranges.append(hold)

    def release(self, transaction: Transaction, reads: Sequence[ReadRange]) -> None:
        """End the holds that `take` made for a transaction."""
        for read in reads:
            if is_one_row(read):
                held = self._rows.pop(read.lower, [])
                left = [it for it in held if it.transaction is not transaction]
                if left:
                    self._rows[read.lower] = left
        self._ranges = [it for it in self._ranges if it.transaction is not transaction]


def is_one_row(read: ReadRange) -> bool:
    """Return whether a range has no key but its first one."""
    return read.upper == successor(read.lower)
