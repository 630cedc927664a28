"""Early locks: row locks that a program takes before it begins its transaction.

Owns: the requests for early locks, and their answers. The rules are in
`docs/explanation/commit-protocol.md#early-locks`.
"""

from dodona_wire.messages.base import Failure, Message
from dodona_wire.types import Key, Owner, Revision, TabletId


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


class ReleaseLocks(Message, frozen=True, array_like=True, gc=False, tag=48):
    """End the locks of an owner, and its request. The cell grants nothing to this owner any more.
    → LocksReleased."""

    owner: Owner


class LocksGranted(Message, frozen=True, array_like=True, gc=False, tag=60):
    """The owner has its locks. `tablets` has the rows, if the owner asked for those that are
    free."""

    owner: Owner
    tablets: tuple[TabletKeys, ...] = ()


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
