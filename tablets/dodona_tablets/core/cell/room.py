"""Say whether a cell has room for new writes: on the disk, in the log and in memory.

Owns: what the shell reported about disk and log, the memory of stores, and whether the cell is
about to stop. Reads, flushes and transactions in progress go on without room. Without a writable
log, only reads go on.
"""

from dodona_tablets.core.cell.limits import CellLimits
from dodona_wire.errors import DiskFull, Overloaded, Unavailable
from dodona_wire.types import CellId


class Room:
    """The room of one cell. Its attributes change only through its methods."""

    def __init__(self, cell: CellId, limits: CellLimits) -> None:
        self._cell = cell
        self._limits = limits
        self.is_log_writable = True
        """False if the disk had no space at all. The cell then appends nothing."""
        self.disk_shortage: str | None = None
        """Why the disk has no space for new writes, as reported last."""
        self.log_bytes = 0
        self.log_fill_ratio = 0.0
        """The size of the log in relation to its limit, as reported last."""
        self.memory_bytes = 0
        """The memory of stores, as of the last tick."""
        self.is_draining = False
        """Whether the cell is about to stop, and takes no more writes."""

    def note_disk(self, shortage: str | None, *, is_log_writable: bool = True) -> None:
        """Note why the disk has no space for new writes, or None if it has. The cell refuses writes
        until there is space."""
        self.disk_shortage = shortage
        self.is_log_writable = is_log_writable

    def note_log(self, size_bytes: int, fill_ratio: float) -> None:
        """Note the size of the log. If it is too large, the cell refuses writes until it is
        smaller again."""
        self.log_bytes = size_bytes
        self.log_fill_ratio = fill_ratio

    def note_memory(self, size_bytes: int) -> None:
        """Note the memory of all stores."""
        self.memory_bytes = size_bytes

    def drain(self) -> None:
        """Take no more writes, since the cell is about to stop."""
        self.is_draining = True

    @property
    def is_log_full(self) -> bool:
        """Whether the log has room only for records that must be logged."""
        return self.log_fill_ratio > self._limits.log_fill_ratio_max

    @property
    def is_memory_full(self) -> bool:
        """Whether the stores have all the memory that they may have: a flush makes room again."""
        return self.memory_bytes > self._limits.memory_bytes_max

    def check_log(self) -> None:
        """Raise DiskFull or Overloaded if the disk or the log has no room for new writes."""
        if self.disk_shortage is not None:
            raise DiskFull(self.disk_shortage, cell=self._cell)
        if self.is_log_full:
            raise Overloaded(
                "The log is full. The cell refuses writes until it has flushed rows and truncated "
                "the log. Repeat later.",
                cell=self._cell,
                log_fill_percent=int(100 * self.log_fill_ratio),
            )

    def check_draining(self) -> None:
        """Raise Unavailable if the cell is about to stop."""
        if self.is_draining:
            raise Unavailable("The cell is about to stop.", cell=self._cell)
