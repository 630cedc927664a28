"""Lock all groups of a row that is absent.

Owns: what the absence of a row means for locks without data. A write of any lock group creates the
row, so its presence belongs to all of its groups. A lock without data takes all groups of an absent
row, even if the request names only some. Otherwise a writer of other groups could create the row
that the transaction found absent. Reads have the same rule: see `snapshot.blocker_of_keys`. Writers
do not. Two writers of different groups do not see each other, and both of them create the row.
"""

from msgspec.structs import replace

from dodona_tablets.core.tablet.locks import Lost
from dodona_tablets.core.tablet.snapshot import Look, values_of
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_wire.errors import DataCorrupted
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.data import Lookup, RowLock, TabletModifications
from dodona_wire.rows.columns import MAIN_LOCK_MASK
from dodona_wire.types import Key, Timestamp


def widened(tablet: Tablet, part: TabletModifications, start: Timestamp) -> TabletModifications:
    """Return the part of a transaction with the locks that it takes if all are free now. They are
    recorded, so that replay takes the same locks. Raises Lost if a chunk that shows whether a row
    exists is damaged."""
    if not part.locks or tablet.schema.lock_mask_all == MAIN_LOCK_MASK:
        return part
    locks = tuple([_widened(tablet, it, start) for it in part.locks])
    return part if locks == part.locks else replace(part, locks=locks)


def _widened(tablet: Tablet, lock: RowLock, start: Timestamp) -> RowLock:
    if not lock.lock_mask or lock.lock_mask & MAIN_LOCK_MASK:  # the main lock stands for all groups
        return lock
    try:
        if is_there(tablet, lock.key, start):
            return lock
    except DataCorrupted as error:
        raise Lost(failure_of(error)) from None
    return replace(lock, lock_mask=tablet.schema.lock_mask_all)


def is_there(tablet: Tablet, key: Key, at: Timestamp) -> bool:
    """Return whether a row exists at a timestamp, with values in any of its columns. Raises
    DataCorrupted."""
    nothing = Lookup(tablet.assignment.tablet, tablet.assignment.revision, at, (key,), 0)
    return values_of(tablet.stores, key, Look(tablet, nothing)) is not None
