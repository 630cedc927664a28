"""What a cell's tablets have, one by one: as people see it. Owns the names; changes nothing."""

import msgspec

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.types import TabletId, Timestamp


class TabletCounts(msgspec.Struct, frozen=True):
    """One tablet as it is now."""

    tablet: TabletId
    table: str
    """Its path."""
    state: str
    """`mounted`, `frozen`, `stored` (its rows are here, and nobody is served), or what it is about
    to become."""
    rows: int
    """About: one that is in memory and in a chunk counts in each."""
    memory_bytes: int
    chunks: int
    chunk_bytes: int
    retained_timestamp: Timestamp
    """Below it nobody reads: versions may be gone."""
    writers: int
    """Transactions that hold locks here, and batches under way."""


def count_tablets(cell: Cell, listed_max: int) -> list[TabletCounts]:
    """The first of them, by number."""
    return [_counts_of(cell.tablets[number]) for number in sorted(cell.tablets)[:listed_max]]


def _counts_of(tablet: Tablet) -> TabletCounts:
    stores = tablet.stores
    return TabletCounts(
        tablet.assignment.tablet,
        tablet.assignment.path,
        _state_of(tablet),
        stores.row_count,
        stores.memory_bytes,
        len(stores.chunks),
        sum([it.attached.info.size_bytes for it in stores.chunks]),
        tablet.retained_timestamp,
        tablet.active_count,
    )


def _state_of(tablet: Tablet) -> str:
    if not tablet.is_mounted:
        return "stored"
    if tablet.is_closing:
        return "unmounting"
    if tablet.is_freezing:
        return "freezing"
    return "frozen" if tablet.is_frozen else "mounted"
