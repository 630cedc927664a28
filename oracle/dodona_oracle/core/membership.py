"""The name of this cluster, and the cells that belong to it. Pure.

Owns: the cluster's name, which it gets at its first start, and the cells that have joined. A cell
has joined when its log says so. From then on a process without that log is not that cell. Such a
process must not serve the cell's tablets as if they were empty. It must also not say that it never
heard of a transaction.
"""

from dodona_oracle.core.journal import Journal
from dodona_oracle.core.records import MasterState, put_cell, put_cluster
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.messages.catalog import Heartbeat
from dodona_wire.types import NO_CLUSTER, CellId, ClusterId, Now


class Membership:
    """The cells that have joined."""

    def __init__(self, state: MasterState, journal: Journal, now: Now) -> None:
        self._journal = journal
        self._cells = dict.fromkeys(state.cells)
        self.cluster = state.cluster
        if self.cluster == NO_CLUSTER:
            # Two clusters get different names, unless they begin at the same microsecond of their
            # clocks.
            self.cluster = ClusterId(max(1, now.unix_us))
            journal.add(put_cluster(self.cluster))

    @property
    def cells(self) -> tuple[CellId, ...]:
        """The cells that have joined, in no particular order."""
        return tuple(self._cells)

    def admit(self, heartbeat: Heartbeat) -> bool:
        """Return whether the cell has joined. Raises DataCorrupted, InvalidRequest."""
        cell = heartbeat.cell
        if heartbeat.cluster == self.cluster:
            self._join(cell)
            return True
        if heartbeat.cluster != NO_CLUSTER:
            raise InvalidRequest(
                f"Cell {cell} belongs to another cluster. Either the node has the address of the "
                "wrong master, or this master has lost its data folder.",
                cell=cell,
                cluster=self.cluster,
                cluster_of_cell=heartbeat.cluster,
            )
        if cell in self._cells:
            raise DataCorrupted(
                f"Cell {cell} has an empty log, but belongs to this cluster already. Start the "
                "node with its earlier data folder, or with the id of a new cell.",
                cell=cell,
            )
        return False

    def _join(self, cell: CellId) -> None:
        if cell not in self._cells:
            self._cells[cell] = None
            self._journal.add(put_cell(cell))
