"""What a node needs of the log of its cell, wherever the log is.

Owns: the calls of recovery, of the pages and of the upkeep. The runtime has its own ones, for
appends. `log` has a log in files of the node, `replicated_log` one with copies on log replicas.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from dodona_tablets.core.records import Record


class NodeLog(Protocol):
    """The log of a cell, open."""

    written_bytes: int
    """The bytes of the groups that were appended since the log was opened."""

    @property
    def path(self) -> Path:
        """Return the folder of the node."""
        ...

    @property
    def epoch(self) -> int:
        """Return the epoch in which this process owns the log. 0: the log has no copies elsewhere,
        and the lock of its folder makes it this process's."""
        ...

    @property
    def is_writable(self) -> bool:
        """Return whether the log takes appends."""
        ...

    def make_writable(self) -> bool:
        """Try to make a log writable that is not. Return whether it takes appends now."""
        ...

    def read(self) -> Iterator[Record]:
        """Yield all records in order. Raises DataCorrupted."""
        ...

    def survey(self) -> Iterator[Record]:
        """Yield the records other than rows and outcomes. Raises DataCorrupted."""
        ...

    def truncate_before(self, number: int) -> None:
        """Remove what is before this checkpoint, which is durable. Any thread may call this."""
        ...

    def size_bytes(self) -> int:
        """Return the size of the log."""
        ...

    def fill_ratio(self) -> float:
        """Return the size in relation to its limit. At 1 the log takes no more rows."""
        ...

    def close(self) -> None:
        """Release the folder, and what else the log holds."""
        ...
