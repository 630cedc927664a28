"""What a node's log says of what its core only counts.

Owns: the line about a decision that can't be.
"""

import logging
from typing import Final

from dodona_server.logs import tell
from dodona_tablets.core.cell.cell import Cell

_logger: Final = logging.getLogger("dodona.node")


class ProtocolViolations:
    """Decisions of other cells that this cell did not obey."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._told_count = 0

    def look(self) -> None:
        """Say which was the last one, if there were more."""
        count, last = self._cell.protocol_violation_count, self._cell.last_protocol_violation
        if count == self._told_count:
            return
        assert last is not None
        self._told_count = count
        text = "a cell was told a decision that can't be"
        found = {"transaction": last.transaction, "source": last.source, "count": count}
        tell(_logger, logging.ERROR, "impossible_decision", text, **found)
