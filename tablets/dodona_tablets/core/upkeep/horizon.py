"""How far back somebody may still look: what retention and conflicts depend on.

Owns: the oldest timestamp that is needed in a cell, and the terms on which a tablet's old versions
may go.

Invariants:
- The retained timestamp of a tablet with atomicity stays below every transaction that is alive here
  or could still come, so that their snapshots, their conflicts and their commits all lie above it.
- Without atomicity there are none of these. There it stays below what a read that is under way may
  have been given as its timestamp; new rows are stamped at it or above (see `Tablet.next_stamp`).
- It passes no reader that is registered (see `readers`).
"""

from typing import Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.types import MAX_TIMESTAMP, NULL_TIMESTAMP, TIMESTAMP_COUNTER_BITS, Timestamp

READ_S: Final = 5
"""Between a reader's question for a timestamp and its last request at that timestamp, or its
registration: so long a node lets a read wait, too."""


def oldest_needed(cell: Cell) -> Timestamp:
    """Below lies nothing that a transaction may read, meet or write, alive here or still to come,
    even one with a clock that is behind."""
    limits = cell.limits
    life_s = max(limits.transaction_life_s_max, limits.client_clock_difference_s_max)
    needed = cell.latest - (life_s + limits.forget_slack_s << TIMESTAMP_COUNTER_BITS)
    alive = [it.id - 1 for it in cell.transactions.values() if it.state is not State.COMMITTED]
    return Timestamp(max(min([needed, *alive]), 0))


def oldest_needed_of(cell: Cell, tablet: Tablet) -> Timestamp:
    """The same for one tablet."""
    if tablet.is_atomic:
        return oldest_needed(cell)
    return Timestamp(max(cell.latest - (READ_S << TIMESTAMP_COUNTER_BITS), NULL_TIMESTAMP))


def terms_of(cell: Cell, tablet: Tablet, major: Timestamp = MAX_TIMESTAMP) -> Terms:
    """What may go of a tablet now; what is not at hand begins at `major`."""
    settings, needed = tablet.assignment.settings, oldest_needed_of(cell, tablet)
    young = cell.latest - _ticks(settings.min_data_ttl)
    expired = needed - _ticks(settings.max_data_ttl)
    terms = Terms(Timestamp(min(needed, young)), Timestamp(expired), settings, major)
    return terms.kept_for(cell.readers.oldest(tablet.assignment.tablet))


def are_still_right(cell: Cell, tablet: Tablet, terms: Terms) -> bool:
    """Whether what these terms let go some time ago may go still: who registered to read, or began,
    since then has to find it."""
    oldest = cell.readers.oldest(tablet.assignment.tablet)
    needed = oldest_needed_of(cell, tablet)
    if needed < terms.retained or (oldest is not None and oldest < terms.retained):
        return False
    nothing_expires = terms.settings.min_data_versions > 0 or terms.expired == NULL_TIMESTAMP
    return oldest is None or nothing_expires


def _ticks(milliseconds: int) -> int:
    return (milliseconds << TIMESTAMP_COUNTER_BITS) // 1000
