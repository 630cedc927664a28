"""Which cells belong to this cluster, and which cluster this is. Pure.

Owns: the cluster's name, given to it at its first start, and the cells that have joined. A cell has
joined when its log says so; from then on a process without that log is not that cell: it must
not serve its tablets as if they were empty, nor say of a transaction that it never heard of it.
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
            # Two clusters begin at different microseconds, or else by clocks that are far off.
            self.cluster = ClusterId(max(1, now.unix_us))
            journal.add(put_cluster(self.cluster))

    @property
    def cells(self) -> tuple[CellId, ...]:
        """Those that have joined, in no particular order."""
        return tuple(self._cells)

    def admit(self, heartbeat: Heartbeat) -> bool:
        """Whether the cell has joined. If not, it may. Raises DataCorrupted, InvalidRequest."""
        cell = heartbeat.cell
        if heartbeat.cluster == self.cluster:
            self._join(cell)
            return True
        if heartbeat.cluster != NO_CLUSTER:
            raise InvalidRequest(
                f"cell {cell} belongs to another cluster: its node was pointed at the wrong master,"
                " or this master has lost its data folder",
                cell=cell,
                cluster=self.cluster,
                cluster_of_cell=heartbeat.cluster,
            )
        if cell in self._cells:
            raise DataCorrupted(
                f"cell {cell} comes with an empty log, but it has data in this cluster: start its "
                "node with the data folder that it had, or with the id of a new cell",
                cell=cell,
            )
        return False

    def _join(self, cell: CellId) -> None:
        if cell not in self._cells:
            self._cells[cell] = None
            self._journal.add(put_cell(cell))
