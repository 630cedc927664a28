"""Name the objects of a cell's chunks, so that no two processes use one name.

Owns: the names, and how an epoch is part of a chunk's number. A name has the name and the id of the
cluster, the cell, the epoch of the owner and a counter (R26, R30). Two clusters with one name have
different ids. No two processes own a log in one epoch, and a process counts its chunks.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dodona_wire.types import NO_CLUSTER, CellId, ClusterId

EPOCH_SHIFT: Final = 32
"""The place of the epoch in a chunk's number. Below it is the counter."""
_COUNTER_MASK: Final = (1 << EPOCH_SHIFT) - 1


class ChunkNames(NamedTuple):
    """The names of one cell's chunks, for the owner of its log in one epoch."""

    cluster_name: str
    cell: CellId
    epoch: int

    @property
    def prefix(self) -> str:
        """Return what the names of all chunks of the cell begin with, in any cluster."""
        return f"{self.cluster_name}/cell-{self.cell}"

    @property
    def first_number(self) -> int:
        """Return the lowest number that this process may give to a chunk."""
        return (self.epoch << EPOCH_SHIFT) + 1

    def name_of(self, cluster: ClusterId, number: int, suffix: str) -> str:
        """Return the name of one of the two objects of a chunk."""
        assert cluster != NO_CLUSTER, "a cell makes chunks after it has joined a cluster"
        counter = number & _COUNTER_MASK
        return f"{self.prefix}/{cluster:016x}/{self.epoch_of(number)}/{counter}{suffix}"

    def epoch_of(self, number: int) -> int:
        """Return the epoch in which a chunk was made."""
        return number >> EPOCH_SHIFT

    def numbers_of(self, names: Iterable[str], cluster: ClusterId) -> set[int]:
        """Return the numbers in names, also of objects that never got whole. Without a cluster,
        those of all clusters count."""
        return {
            number
            for name in names
            if (found := self._parse(name)) is not None
            for its_cluster, number in [found]
            if cluster in (NO_CLUSTER, its_cluster)
        }

    def _parse(self, name: str) -> tuple[int, int] | None:
        words = name.removeprefix(f"{self.prefix}/").split("/")
        if len(words) != 3 or not words[1].isdecimal():
            return None
        counter, _, suffix = words[2].partition(".")
        if suffix.partition(".")[0] not in ("arrow", "index") or not counter.isdecimal():
            return None
        try:
            cluster = int(words[0], 16)
        except ValueError:
            return None
        return cluster, (int(words[1]) << EPOCH_SHIFT) + int(counter)
