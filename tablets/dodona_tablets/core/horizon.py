"""How far back somebody may still look: what retention and conflicts depend on.

Owns: the oldest timestamp that is needed in a cell, and the terms on which a tablet's old versions
may go.

Invariant: a tablet's retained timestamp stays below every transaction that is alive here or could
still come, so that their snapshots, their conflicts and their commits all lie above it.
"""

from dodona.types import MAX_TIMESTAMP, TIMESTAMP_COUNTER_BITS, TableSettings, Timestamp
from dodona_tablets.core.cell import Cell
from dodona_tablets.core.retention import Terms
from dodona_tablets.core.transaction import State


def oldest_needed(cell: Cell) -> Timestamp:
    """Below lies nothing that a transaction may read, meet or write, alive here or still to come,
    even one with a clock that is behind."""
    limits = cell.limits
    life_s = max(limits.transaction_life_s_max, limits.client_clock_difference_s_max)
    needed = cell.latest - (life_s + limits.forget_slack_s << TIMESTAMP_COUNTER_BITS)
    alive = [it.id - 1 for it in cell.transactions.values() if it.state is not State.COMMITTED]
    return Timestamp(max(min([needed, *alive]), 0))


def terms_of(cell: Cell, settings: TableSettings, major: Timestamp = MAX_TIMESTAMP) -> Terms:
    """What may go now of a tablet with these settings; what is not at hand begins at `major`."""
    needed = oldest_needed(cell)
    young = cell.latest - _ticks(settings.min_data_ttl)
    expired = needed - _ticks(settings.max_data_ttl)
    return Terms(Timestamp(min(needed, young)), Timestamp(expired), settings, major)


def _ticks(milliseconds: int) -> int:
    return (milliseconds << TIMESTAMP_COUNTER_BITS) // 1000
