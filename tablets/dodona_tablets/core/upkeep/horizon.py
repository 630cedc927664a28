"""Compute how far back reads and transactions may look: retention and conflict checks depend on it.

Owns: the oldest timestamp that a cell needs, and the terms on which a tablet's old versions may go.

Invariants:
- In a tablet with atomicity, the retained timestamp stays below every transaction that is alive
  here or could still come. So the snapshots, conflicts and commits of these transactions lie above
  it.
- A tablet without atomicity has no such transactions. Its retained timestamp stays below the
  timestamp that a read under way may have. New rows get a timestamp at it or above (see
  `Tablet.next_stamp`).
- The retained timestamp passes no reader that is registered (see `readers`).
"""

from typing import Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State
from dodona_wire.types import MAX_TIMESTAMP, NULL_TIMESTAMP, TIMESTAMP_COUNTER_BITS, Timestamp

READ_S: Final = 5
"""The most seconds between a reader's request for a timestamp and its last request at that
timestamp, or its registration. A node lets a read wait for so long, too, and longer for a chunk of
an object store."""


def oldest_needed(cell: Cell) -> Timestamp:
    """Return a timestamp with nothing below it that a transaction may read, meet or write. This
    holds for transactions that are alive here or still to come, even from a client whose clock is
    behind."""
    limits = cell.limits
    life_s = max(limits.transaction_life_s_max, limits.client_clock_difference_s_max)
    needed = cell.latest - (life_s + limits.forget_slack_s << TIMESTAMP_COUNTER_BITS)
    alive = [it for it in cell.transactions.values() if it.state is not State.COMMITTED]
    oldest = [min(it.id, it.read_at) - 1 for it in alive]  # a new attempt has read before its start
    return Timestamp(max(min([needed, *oldest]), 0))


def oldest_needed_of(cell: Cell, tablet: Tablet) -> Timestamp:
    """Return the same for one tablet."""
    if tablet.is_atomic:
        return oldest_needed(cell)
    limits, read_s = cell.limits, READ_S
    if limits.has_object_store:
        read_s += limits.chunk_wait_ms_max // 1000
    return Timestamp(max(cell.latest - (read_s << TIMESTAMP_COUNTER_BITS), NULL_TIMESTAMP))


def terms_of(cell: Cell, tablet: Tablet, major: Timestamp = MAX_TIMESTAMP) -> Terms:
    """Return what may go of a tablet now. Versions that the caller does not have begin at
    `major`."""
    settings, needed = tablet.assignment.settings, oldest_needed_of(cell, tablet)
    young = cell.latest - _ticks(settings.min_data_ttl)
    expired = needed - _ticks(settings.max_data_ttl)
    terms = Terms(Timestamp(min(needed, young)), Timestamp(expired), settings, major)
    return terms.kept_for(cell.readers.oldest(tablet.assignment.tablet))


def are_still_right(cell: Cell, tablet: Tablet, terms: Terms) -> bool:
    """Return whether these earlier terms still hold, so that the versions may go. Readers that
    registered since then, and transactions that began, must still find their versions."""
    oldest = cell.readers.oldest(tablet.assignment.tablet)
    needed = oldest_needed_of(cell, tablet)
    if needed < terms.retained or (oldest is not None and oldest < terms.retained):
        return False
    nothing_expires = terms.settings.min_data_versions > 0 or terms.expired == NULL_TIMESTAMP
    return oldest is None or nothing_expires


def _ticks(milliseconds: int) -> int:
    return (milliseconds << TIMESTAMP_COUNTER_BITS) // 1000
