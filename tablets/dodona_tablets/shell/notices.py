"""Log what a node's core only counts.

Owns: the line about an impossible decision: one that breaks the commit protocol.
"""

import logging
from typing import Final

from dodona_server.logs import tell
from dodona_tablets.core.cell.cell import Cell

_logger: Final = logging.getLogger("dodona.node")


class ProtocolViolations:
    """The decisions of other cells that break the commit protocol. This cell did not apply them as
    they were."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._told_count = 0

    def look(self) -> None:
        """Log the last one, if there are more than at the last look."""
        counts = self._cell.counts
        count, last = counts.protocol_violation_count, counts.last_protocol_violation
        if count == self._told_count:
            return
        assert last is not None
        self._told_count = count
        text = (
            "the cell received an impossible decision: its sender does not coordinate the "
            "transaction, or it does not fit the transaction's state or prepare timestamp"
        )
        found = {"transaction": last.transaction, "source": last.source, "count": count}
        tell(_logger, logging.ERROR, "impossible_decision", text, **found)
