"""What a replica knows of a log without its bytes: where it begins and ends, and its epochs.

Owns: `Tail`. The entries of one epoch are adjacent, so an epoch and the index of its first entry
stand for all of them. Indexes begin with 1. The *entry before* the first one is named by its index
and epoch only: it was cut, or it is the imagined entry (0, 0).

Invariant: epochs and indexes rise. A caller looks first, and then changes: a change that does not
fit is a failed assertion.
Must not import: any shell.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from dodona_wire.messages.replicas import Entry

NO_EPOCH: Final = 0
"""The epoch of the imagined entry 0. No owner has it."""


class Tail:
    """The entries of one log, without their records."""

    __slots__ = ("epoch_before", "first_index", "last_index", "starts")

    def __init__(
        self,
        first_index: int = 1,
        epoch_before: int = NO_EPOCH,
        starts: Sequence[tuple[int, int]] = (),
        last_index: int = 0,
    ) -> None:
        self.first_index = first_index
        """The first entry that is not cut. An empty log has its next entry there."""
        self.epoch_before = epoch_before
        """The epoch of the entry before the first one."""
        self.starts = list(starts)
        """Each epoch that has entries, rising, and the index of its first entry here."""
        self.last_index = last_index
        """One less than `first_index` if the log is empty."""

    def copy(self) -> "Tail":
        """Return a tail that changes by itself."""
        return Tail(self.first_index, self.epoch_before, self.starts, self.last_index)

    def __len__(self) -> int:
        return self.last_index - self.first_index + 1

    @property
    def last_epoch(self) -> int:
        """The epoch of the last entry. Of an empty log, it is that of the entry before."""
        return self.starts[-1][0] if self.starts else self.epoch_before

    @property
    def last_entry_epoch(self) -> int:
        """The epoch of the last entry. `NO_EPOCH` if the log is empty."""
        return self.starts[-1][0] if self.starts else NO_EPOCH

    @property
    def last_indexes(self) -> tuple[tuple[int, int], ...]:
        """Each epoch that has entries, rising, and the index of its last entry."""
        ends = [first - 1 for _, first in self.starts[1:]] + [self.last_index]
        return tuple([(epoch, end) for (epoch, _), end in zip(self.starts, ends, strict=False)])

    def epoch_at(self, index: int) -> int | None:
        """Return the epoch of the entry at this index, also of the entry before the first one. None
        if the log does not have it."""
        if index == self.first_index - 1:
            return self.epoch_before
        if not self.first_index <= index <= self.last_index:
            return None
        return self.starts[bisect_right(self.starts, index, key=_first_of) - 1][0]

    def has(self, index: int, epoch: int) -> bool:
        """Return whether the log has the entry itself, and not only its name."""
        return index >= self.first_index and self.epoch_at(index) == epoch

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add entries behind the last one."""
        for entry in entries:
            assert entry.index == self.last_index + 1, "an entry is missing"
            assert entry.epoch >= self.last_epoch, "epochs fall"
            if not self.starts or entry.epoch > self.starts[-1][0]:
                self.starts.append((entry.epoch, entry.index))
            self.last_index = entry.index

    def drop_behind(self, index: int) -> None:
        """Drop all entries behind this one, or all if it is the one before the first."""
        assert self.first_index - 1 <= index <= self.last_index
        self.starts = [it for it in self.starts if it[1] <= index]
        self.last_index = index

    def cut_before(self, index: int) -> None:
        """Drop all entries before this one."""
        before = self.epoch_at(index - 1)
        assert before is not None
        assert index <= self.last_index, "the checkpoint is not here"
        position = bisect_right(self.starts, index, key=_first_of) - 1
        epoch, _ = self.starts[position]
        self.starts[: position + 1] = [(epoch, index)]
        self.first_index, self.epoch_before = index, before


def _first_of(start: tuple[int, int]) -> int:
    return start[1]
