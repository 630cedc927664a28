"""The states of the model: cells with their queues, and transactions in their clients.

Owns: what a state is, and what a configuration is. Rows are bits of a mask. Must not import: rules.
"""

from typing import Final, NamedTuple

PLAIN, BLIND = "plain", "blind"
"""Transactions that lock nothing early."""
WAIT, NOWAIT, SKIP = "wait", "nowait", "skip_locked"
"""Transactions that lock early, by what they do if a row is not free."""
OWNERS: Final = (WAIT, NOWAIT, SKIP)
IDLE, ASKING, READING, COMMITTING = "idle", "asking", "reading", "committing"
DONE, FAILED = "done", "failed"
"""Where a client is."""
NONE, LOCKED, PREPARED, COMMITTED, REFUSED = "none", "locked", "prepared", "committed", "refused"
"""What a cell knows of a commit."""
UNDECIDED, ABORT = 0, -1
"""What was decided: nothing, or this. A commit is its timestamp, which is above 0."""
UNSAID: Final = -1
"""The cell has not answered yet. An answer is the rows that it granted: 0 means none."""


class Txn(NamedTuple):
    """What one transaction does."""

    kind: str
    locks: int = 0
    """The rows that it locks early. With `skip_locked`, the rows that it may choose from."""
    writes: int = 0
    """With `skip_locked`, it writes what it has locked."""
    requires: int = 0
    """The rows that it locks weakly at its commit, as conditions do."""
    reads: int = 0
    """The rows of one cell that it reads at its start timestamp."""
    takes: int = 1
    """How many rows `skip_locked` takes at most."""
    more: int = 0
    """The rows of a second acquisition."""
    descends: bool = False
    """It asks the highest cell first. Only a transaction that never queues may do so."""


class Case(NamedTuple):
    """A configuration."""

    title: str
    txns: tuple[Txn, ...]
    cell_of: tuple[int, ...]
    """The cell of each row."""
    crashes_max: int = 0
    unmounts_max: int = 0
    leases_end: bool = False
    """The lease of any owner or request may end at any time."""
    may_withdraw: bool = False
    """A client may stop waiting for its locks."""
    recovers: bool = False
    """A prepared participant may ask the coordinator at any time, and not only for the dead."""
    syncs: bool = False
    """An append becomes durable in a step of its own. Otherwise it is durable immediately."""
    is_endless: bool = False
    """A plain writer that has an outcome begins anew, again and again."""


class Request(NamedTuple):
    """What an owner asks one cell for."""

    cell: int
    rows: int


class Entry(NamedTuple):
    """A request in the queue of a cell. The queue is in the order of arrival."""

    at: int
    """The transaction."""
    place: int
    """Which of its requests this is."""
    asked: int
    granted: int = 0


class Record(NamedTuple):
    """A commit in one cell."""

    phase: str = NONE
    p: int = 0
    c: int = 0
    is_durable: bool = True
    is_held: bool = True
    """For a bug: whether its rows are locked."""


class Cell(NamedTuple):
    fence: int
    queue: tuple[Entry, ...]
    ended: int
    """The owners that have ended here, as a mask of transactions."""
    records: tuple[Record, ...]


class Client(NamedTuple):
    phase: str = IDLE
    place: int = 0
    """The request that it waits for. It has sent this one and those before."""
    named_after: int = 0
    """The newest fence when its name was issued. Later fences are above the name."""
    start: int = 0
    said: tuple[int, ...] = ()
    """For each request: what a cell has answered once, which may arrive late."""
    taken: int = 0
    """The rows that it was granted."""
    decided: int = UNDECIDED
    saw: int = 0
    """The transactions whose rows it read before they were durable, as a mask."""


class State(NamedTuple):
    clock: int
    cells: tuple[Cell, ...]
    clients: tuple[Client, ...]
    crashes: int = 0
    unmounts: int = 0

    def with_client(self, at: int, client: Client) -> "State":
        return self._replace(clients=(*self.clients[:at], client, *self.clients[at + 1 :]))

    def with_cell(self, cell: int, after: Cell) -> "State":
        return self._replace(cells=(*self.cells[:cell], after, *self.cells[cell + 1 :]))

    def with_record(self, at: int, cell: int, record: Record) -> "State":
        here = self.cells[cell]
        records = (*here.records[:at], record, *here.records[at + 1 :])
        return self.with_cell(cell, here._replace(records=records))


def rows_named(rows: int) -> str:
    """Return the letters of these rows."""
    return "".join(letter for bit, letter in enumerate("abcd") if rows >> bit & 1) or "nothing"


def ranked(state: State) -> State:
    """Return the state with its timestamps counted from 1, so that endless ones are alike."""
    used = {it.start for it in state.clients} | {it.decided for it in state.clients}
    for cell in state.cells:
        used |= {cell.fence} | {it.p for it in cell.records} | {it.c for it in cell.records}
    ranks = {it: rank for rank, it in enumerate(sorted(used - {ABORT} | {0}))} | {ABORT: ABORT}
    clients = tuple(
        it._replace(start=ranks[it.start], decided=ranks[it.decided]) for it in state.clients
    )
    cells = tuple(
        cell._replace(
            fence=ranks[cell.fence],
            records=tuple(it._replace(p=ranks[it.p], c=ranks[it.c]) for it in cell.records),
        )
        for cell in state.cells
    )
    return state._replace(clock=max(ranks.values()) + 1, cells=cells, clients=clients)
