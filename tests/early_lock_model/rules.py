"""The decisions of the rules, one each. A planted bug gets one of them wrong.

Owns: in which order owners ask, what a cell grants, and what a commit checks. Must not import: the
model.
"""

from early_lock_model.state import (
    COMMITTED,
    LOCKED,
    PREPARED,
    WAIT,
    Case,
    Cell,
    Entry,
    Record,
    Request,
    Txn,
)


class Rules:
    """The rules as they are designed."""

    refuses_second = True
    """An owner locks once. A second acquisition is refused before it is sent."""
    begins_after_grants = True
    """The start timestamp is asked for after the last grant."""
    grants_whole = True
    """A request is granted as a whole."""
    looks_at_owners = True
    looks_at_earlier = True
    """A request waits for an earlier one that overlaps."""
    wakes_all = True
    """The whole queue is looked at. Otherwise only the first request that waits."""
    wakes_at_end = True
    """The queue is looked at when a lease ends, or a request is withdrawn."""
    wakes_at_outcome = True
    closes = True
    """A request that waits only for commits closes its rows to later writers."""
    blind_queues = True
    """A blind transaction joins the queue. Otherwise it waits beside the queue."""
    refuses_plain = True
    """A plain writer is refused by an early lock. Otherwise it does not see the lock."""
    plain_waits = False
    """A plain writer waits for an early lock."""
    refuses_conditions = True
    """A condition on a row is refused by an early lock of it, as a write is."""
    grants_wait_for_weak = True
    """A request also waits for commits that hold its rows weakly: they could refuse the owner."""
    commits_locks = True
    """Rows that are locked early and not written are exclusive locks of the commit."""
    has_lease = True
    lease_keeps_commit = True
    """The end of a lease leaves the locks of a commit."""
    remembers_ended = True
    remembers_blocked = True
    """A cell that had no rows for a request with `nowait` or `skip_locked` ends its owner."""
    obeys_fence = True
    """A cell answers "ended" to owners whose name is not above its fence."""
    answers_ended = True
    unmount_ends = True
    """An unmount ends all early locks and requests."""
    nowait_queues = False
    skips_closed = True
    """`skip_locked` passes over rows that an earlier request waits for."""
    reads_wait_for_syncs = True
    """A read waits until what it saw is durable. Only an owner's read of its rows does not."""
    hands_over = COMMITTED
    """The phase of the owner's commit that ends its early locks in a cell."""

    def route(self, case: Case, at: int) -> tuple[Request, ...]:
        """Return what a transaction asks for, in this order: one request for each cell."""
        txn = case.txns[at]
        asked = self.split(case, txn, txn.locks)
        if txn.descends:
            asked = asked[::-1]
        return asked if self.refuses_second else (*asked, *self.split(case, txn, txn.more))

    def split(self, case: Case, txn: Txn, rows: int) -> tuple[Request, ...]:
        """Divide rows by cells, the lowest cell first."""
        masks = [0] * (max(case.cell_of) + 1)
        for row, cell in enumerate(case.cell_of):
            masks[cell] |= rows & 1 << row
        return tuple(Request(cell, mask) for cell, mask in enumerate(masks) if mask)

    def is_holder(self, record: Record, is_owner: bool) -> bool:
        """Return whether a grant waits for this commit."""
        return record.is_held and record.phase in (LOCKED, PREPARED)

    def rows_to_check(self, rows: int, txn: Txn) -> int:
        """Return for which rows a commit looks at holders and versions: for all."""
        return rows

    def may_wait(self, txn: Txn) -> bool:
        return txn.kind == WAIT or self.nowait_queues


def overlapping(cell: Cell, at: int, rows: int) -> list[tuple[int, Entry]]:
    """Return the entries of others in the queue that have one of these rows, with their places."""
    return [(i, it) for i, it in enumerate(cell.queue) if it.at != at and it.asked & rows]


def is_next(cell: Cell, index: int) -> bool:
    """Return whether no early lock and no earlier request stands before this request."""
    entry = cell.queue[index]
    before = overlapping(cell, entry.at, entry.asked)
    return not any(other.granted & entry.asked or i < index for i, other in before)
