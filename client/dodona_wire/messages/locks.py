"""Early locks: row locks that a program takes before it begins its transaction.

Owns: the requests for early locks, and their answers. The rules are in
`docs/explanation/commit-protocol.md#early-locks`.
"""

from typing import Any

from dodona_wire.messages.base import Failure, Message
from dodona_wire.types import NULL_TIMESTAMP, Key, Owner, Revision, TabletId, Timestamp

StoredRow = tuple[Any, ...]
"""The stored values of all value columns of a row."""


class TabletKeys(Message, frozen=True, array_like=True, gc=False):
    """Rows of one tablet. No key comes twice."""

    tablet: TabletId
    revision: Revision
    keys: tuple[Key, ...]


class AcquireLocks(Message, frozen=True, array_like=True, gc=False, tag=47):
    """Lock all of these rows for an owner, or wait in line for them. The owner asks each cell once.
    A repeated request renews the lease, and gets the same answer.
    → LocksGranted | LocksAwaited | Failure."""

    owner: Owner
    tablets: tuple[TabletKeys, ...]
    lease_ms: int
    """How long the owner keeps its locks, unless it renews them or commits before."""
    wait_ms: int = 0
    """How long the cell keeps the request until it answers that the owner still waits. With 0, the
    owner does not wait in line: the answer is a grant, or the final RowBlocked."""
    skip_max: int = 0
    """Above 0: lock only rows that are free now, and no more than so many. Then nothing waits."""
    is_last: bool = False
    """No other cell is asked after this one. So the grant may have the start timestamp."""


class ReleaseLocks(Message, frozen=True, array_like=True, gc=False, tag=48):
    """End the locks of an owner, and its request. The cell grants nothing to this owner any more.
    → LocksReleased."""

    owner: Owner


class LocksGranted(Message, frozen=True, array_like=True, gc=False, tag=60):
    """The owner has its locks, those of these rows."""

    owner: Owner
    tablets: tuple[TabletKeys, ...] = ()
    start: Timestamp = NULL_TIMESTAMP
    """A start timestamp, which the cell has asked for after the grant, or none."""
    rows: tuple[tuple[StoredRow | None, ...], ...] = ()
    """For each of `tablets` the values of all columns of its rows at the start, or None for a row
    that is absent. Left out if they are many. They are certain only if the owner commits."""


class LocksAwaited(Message, frozen=True, array_like=True, gc=False, tag=61):
    """The owner waits in line: it must repeat the request soon, or leave the line. `reason` names a
    row that is in the way, and who holds it."""

    owner: Owner
    reason: Failure


class LocksReleased(Message, frozen=True, array_like=True, gc=False, tag=62):
    """The owner has no locks in this cell, and waits for none."""

    owner: Owner


LocksRequest = AcquireLocks | ReleaseLocks
LocksReply = LocksGranted | LocksAwaited | LocksReleased | Failure
