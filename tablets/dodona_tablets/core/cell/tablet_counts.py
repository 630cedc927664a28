"""Describe each tablet of a cell, for people. Owns: the names. Changes nothing."""

import msgspec

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.types import TabletId, Timestamp


class TabletCounts(msgspec.Struct, frozen=True):
    """The state and numbers of one tablet, as it is now."""

    tablet: TabletId
    table: str
    """The path of the table."""
    state: str
    """`mounted`, `frozen`, `unmounting`, `freezing`, or `stored`: its rows are here, and it serves
    no requests."""
    rows: int
    """An estimate: a row in memory and in a chunk counts in each."""
    memory_bytes: int
    chunks: int
    chunk_bytes: int
    retained_timestamp: Timestamp
    """Reads below it are refused, because versions may be gone."""
    writers: int
    """The transactions that hold locks here, and batches in progress."""


def count_tablets(cell: Cell, listed_max: int) -> list[TabletCounts]:
    """Return the numbers of the first tablets, by tablet number."""
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
