"""What a cell does: its queue of early locks, and the checks of a commit.

Owns: grants, the ends of locks, and whether a commit takes its locks, waits, or is refused. Must
not import: the model, promises.
"""

from typing import Final

from early_lock_model.rules import Rules, is_next, overlapping
from early_lock_model.state import (
    BLIND,
    COMMITTED,
    LOCKED,
    PLAIN,
    PREPARED,
    REFUSED,
    SKIP,
    Case,
    Entry,
    Record,
    State,
    Txn,
)

TAKE, STAY, LOSE = "take", "stay", "lose"
"""A commit takes its locks, waits, or is refused."""
HELD: Final = (LOCKED, PREPARED)


class Cells:
    """The cells of one configuration under some rules."""

    def __init__(self, case: Case, rules: Rules | None = None) -> None:
        self.case = case
        self.rules = rules or Rules()
        self.title = case.title
        self.routes = tuple(self.rules.route(case, at) for at in range(len(case.txns)))
        self.masks = [0] * (max(case.cell_of) + 1)
        for row, cell in enumerate(case.cell_of):
            self.masks[cell] |= 1 << row

    # ---- rows

    def claimed(self, state: State, at: int) -> int:
        """Return the rows that a transaction locks early."""
        txn = self.case.txns[at]
        if txn.kind == SKIP:
            return state.clients[at].taken
        return txn.locks | (0 if self.rules.refuses_second else txn.more)

    def written(self, state: State, at: int) -> int:
        txn = self.case.txns[at]
        return state.clients[at].taken if txn.kind == SKIP else txn.writes

    def exclusive(self, state: State, at: int) -> int:
        """Return the rows that its commit locks exclusively."""
        written = self.written(state, at)
        return written | self.claimed(state, at) if self.rules.commits_locks else written

    def participants(self, state: State, at: int) -> list[int]:
        rows = self.exclusive(state, at) | self.case.txns[at].requires
        return [cell for cell, mask in enumerate(self.masks) if rows & mask]

    def owned(self, state: State, at: int, cell: int) -> int:
        """Return the rows of requests that this cell has granted to it, and not ended."""
        queue = state.cells[cell].queue
        return sum(it.asked for it in queue if it.at == at and it.granted)

    # ---- the queue

    def has_ended(self, state: State, at: int, cell: int) -> bool:
        here = state.cells[cell]
        is_old = self.rules.obeys_fence and here.fence > state.clients[at].named_after
        return is_old or bool(here.ended >> at & 1)

    def is_free(self, state: State, cell: int, entry: Entry, rows: int, index: int) -> bool:
        """Return whether these rows can be granted to the entry with this place in the queue."""
        here, rules = state.cells[cell], self.rules
        for i, other in overlapping(here, entry.at, rows):
            if other.granted & rows and rules.looks_at_owners:
                return False
            if not other.granted and i < index and rules.looks_at_earlier:
                return False
        for at, record in enumerate(here.records):
            if record.phase not in HELD or at == entry.at:
                continue
            held = self.exclusive(state, at)
            if rules.grants_wait_for_weak or self.case.txns[entry.at].kind == BLIND:
                held |= self.case.txns[at].requires
            if held & rows and rules.is_holder(record, bool(rows & self.claimed(state, at))):
                return False
        return True

    def look(self, state: State, cell: int) -> State:
        """Grant what can be granted, in the order of arrival."""
        waiting = [it for it in state.cells[cell].queue if not it.granted]
        for entry in waiting if self.rules.wakes_all else waiting[:1]:
            index = state.cells[cell].queue.index(entry)
            granted = self._grantable(state, cell, entry, index)
            if granted and self.case.txns[entry.at].kind == BLIND:
                state = self._without(state, cell, entry.at)
                state = state.with_record(entry.at, cell, Record(LOCKED))
            elif granted:
                state = self.granted(state, cell, index, granted)
        return state

    def _grantable(self, state: State, cell: int, entry: Entry, index: int) -> int:
        if self.rules.grants_whole:
            is_free = self.is_free(state, cell, entry, entry.asked, index)
            return entry.asked if is_free else 0
        rows = [1 << row for row in range(len(self.case.cell_of)) if entry.asked >> row & 1]
        return sum(it for it in rows if self.is_free(state, cell, entry, it, index))

    def granted(self, state: State, cell: int, index: int, rows: int) -> State:
        here = state.cells[cell]
        entry = here.queue[index]._replace(granted=rows)
        queue = (*here.queue[:index], entry, *here.queue[index + 1 :])
        said = entry.asked if self.case.txns[entry.at].kind != SKIP else rows
        after = state.with_cell(cell, here._replace(queue=queue))
        return self.answered(after, entry.at, entry.place, said)

    def answered(self, state: State, at: int, place: int, rows: int) -> State:
        client = state.clients[at]
        said = (*client.said[:place], rows, *client.said[place + 1 :])
        return state.with_client(at, client._replace(said=said))

    def end(self, state: State, cell: int, at: int, *, remembers: bool = True) -> State:
        """End all that an owner has in the cell, and remember the owner."""
        after = self._without(state, cell, at)
        here = after.cells[cell]
        mask = 1 << at if remembers else 0
        return after.with_cell(cell, here._replace(ended=here.ended | mask))

    def _without(self, state: State, cell: int, at: int) -> State:
        here = state.cells[cell]
        queue = tuple([it for it in here.queue if it.at != at])
        return state.with_cell(cell, here._replace(queue=queue))

    # ---- a commit

    def meeting(self, state: State, at: int, cell: int) -> tuple[str, int]:
        """Return whether a commit takes its locks, waits or loses, and for which rows it loses."""
        mask, txn = self.masks[cell], self.case.txns[at]
        mine, weak = self.exclusive(state, at) & mask, txn.requires & mask
        early, lost = self.early(state, at, cell), 0
        if early and not (self.rules.plain_waits or txn.kind == BLIND):
            lost |= early
        mine = self.rules.rows_to_check(mine, txn)
        must_wait = bool(early)
        for other, record in enumerate(state.cells[cell].records):
            if other == at or record.phase not in HELD or not record.is_held:
                continue
            met = self._holder(state, at, other, cell, mine, weak)
            if met and self._waits_for(state, at, record):
                must_wait = True
            else:
                lost |= met
        if txn.kind != BLIND:
            lost |= self._newer(state, at, cell, mine)
        return (LOSE, lost) if lost else (STAY if must_wait else TAKE, 0)

    def early(self, state: State, at: int, cell: int) -> int:
        """Return the rows that early locks or requests of others keep a commit from."""
        here, rules, txn = state.cells[cell], self.rules, self.case.txns[at]
        if txn.kind == PLAIN and not rules.refuses_plain:
            return 0
        rows = self.exclusive(state, at) | (txn.requires if rules.refuses_conditions else 0)
        rows, found = rows & self.masks[cell], 0
        for index, other in overlapping(here, at, rows):
            is_closed = not other.granted and self._closes(state, cell, index, txn)
            if is_closed or other.granted & rows:
                found |= other.asked & rows
        return found

    def _closes(self, state: State, cell: int, index: int, txn: Txn) -> bool:
        """Return whether a request that waits keeps a commit from its rows."""
        if txn.kind == BLIND:
            return self.rules.blind_queues
        return self.rules.closes and is_next(state.cells[cell], index)

    def _holder(self, state: State, at: int, other: int, cell: int, mine: int, weak: int) -> int:
        """Return the rows that both want, unless both only want them weakly."""
        mask = self.masks[cell]
        theirs = self.exclusive(state, other) & mask
        return mine & (theirs | self.case.txns[other].requires & mask) | weak & theirs

    def _waits_for(self, state: State, at: int, record: Record) -> bool:
        """Return whether a writer waits for the outcome of a holder. Otherwise it is refused."""
        start, txn = state.clients[at].start, self.case.txns[at]
        is_prepared_before = record.phase == PREPARED and record.p < start
        return txn.kind == BLIND or is_prepared_before

    def _newer(self, state: State, at: int, cell: int, mine: int) -> int:
        """Return the rows of its writes and locks that were committed after its start."""
        start, found = state.clients[at].start, 0
        for other, record in enumerate(state.cells[cell].records):
            if other != at and record.phase == COMMITTED and record.c > start:
                found |= mine & self.exclusive(state, other)
        return found

    def read(self, state: State, at: int, cell: int) -> int | None:
        """Return whose rows a read sees that are not durable, or None if it waits."""
        start, rows, saw = state.clients[at].start, self.case.txns[at].reads, 0
        for other, record in enumerate(state.cells[cell].records):
            if other == at or not self.written(state, other) & rows:
                continue
            is_below = record.phase == PREPARED and record.p <= start
            if is_below or (record.phase == LOCKED and state.clients[other].start < start):
                return None
            if record.phase == COMMITTED and not record.is_durable and record.c <= start:
                saw |= 1 << other
        is_owner = not rows & ~self.owned(state, at, cell)
        return None if saw and self.rules.reads_wait_for_syncs and not is_owner else saw

    def refused(self, state: State, at: int, cell: int) -> State:
        after = state.with_record(at, cell, Record(REFUSED))
        return self.look(after, cell) if self.rules.wakes_at_outcome else after
