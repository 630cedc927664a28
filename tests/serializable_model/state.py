"""The states of the model: what a configuration is, and what cells and clients know.

Owns: rows, ranges, versions, records and clients. A row is a number, and a range is two of them.
Must not import: rules.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

SERIAL, PLAIN, BLIND = "serializable", "plain", "blind"
"""Transactions whose reads are validated, those with snapshot isolation, and those that begin when
they have their locks. Reads of a plain transaction promise nothing, so the model has none."""
FIRST, SECOND = 1, 2
ALL: Final = FIRST | SECOND
"""Lock groups, as masks."""
NONE, LOCKED, PREPARED, COMMITTED, REFUSED = "none", "locked", "prepared", "committed", "refused"
"""What a cell knows of a commit."""
HELD: Final = (LOCKED, PREPARED)
ENDED: Final = (COMMITTED, REFUSED)
UNDECIDED, ABORT = 0, -1
"""What a client has reported: nothing, or this. A commit is its timestamp, which is above 0."""
UNSAID, NO = 0, -1
"""What a cell has answered: nothing, or this. "Prepared" is its timestamp, which is above 0."""
FROM_START: Final = -1
"""Wrote the rows that are there at the beginning."""


class Range(NamedTuple):
    """Rows from `lower` to before `upper`. A single key is the range to its successor."""

    lower: int
    upper: int
    groups: int = FIRST


class Write(NamedTuple):
    row: int
    groups: int = FIRST
    is_delete: bool = False
    """A deletion writes all groups."""


class Txn(NamedTuple):
    """What one transaction does."""

    kind: str = SERIAL
    reads: tuple[Range, ...] = ()
    writes: tuple[Write, ...] = ()
    condenses: bool = False
    """It records so many ranges that it merges neighbours."""
    again_of: int | None = None
    """For a new attempt: the transaction that it sends again, with the same writes. To the cells, a
    new attempt is a transaction of its own. It begins when the first one is refused, or never."""


class Case(NamedTuple):
    """A configuration."""

    title: str
    txns: tuple[Txn, ...]
    row_count: int
    borders: tuple[int, ...]
    """The first row of cell 1: at the beginning, and after a reshard if there is one. The reshard
    moves rows to cell 1."""
    present: int
    """The rows that are there at the beginning, as a mask."""
    crashes_max: int = 0
    recovers: bool = False
    """A prepared participant may ask the coordinator at any time."""


class Version(NamedTuple):
    """What one commit has made of a row."""

    at: int
    by: int
    groups: int
    is_delete: bool


class Record(NamedTuple):
    """A commit in one cell."""

    phase: str = NONE
    at: int = 0
    """Its p, and once it is committed, the commit timestamp."""
    is_held: bool = True
    """For a bug: whether its reads are held."""
    is_checked: bool = False
    """For a bug: whether it was checked in an earlier step."""


class Client(NamedTuple):
    start: int = 0
    division: int = 0
    """How many reshards there were when it began. By this it knows which cell has a row."""
    ended_before: int = 0
    """The transactions whose end was reported before it began, as a mask."""
    said: tuple[int, ...] = (UNSAID, UNSAID)
    """What each cell has answered first. The answer may arrive late, or never."""
    decided: int = UNDECIDED
    since: int = 0
    """For a new attempt: the timestamp of its reads, which is the start of the first attempt."""

    @property
    def read_at(self) -> int:
        return self.since or self.start


class State(NamedTuple):
    clock: int
    fences: tuple[int, int]
    records: tuple[tuple[Record, Record], ...]
    """For each transaction, in each cell."""
    clients: tuple[Client, ...]
    crashes: int = 0
    reshards: int = 0
    moved_fence: int = 0
    """The fence of the rows that a reshard has moved to cell 1."""

    def with_client(self, at: int, client: Client) -> "State":
        return self._replace(clients=(*self.clients[:at], client, *self.clients[at + 1 :]))

    def with_record(self, at: int, cell: int, record: Record) -> "State":
        mine = self.records[at]
        pair = (mine[0], record) if cell else (record, mine[1])
        return self._replace(records=(*self.records[:at], pair, *self.records[at + 1 :]))


def groups_by_row(ranges: Sequence[Range], row_count: int) -> tuple[int, ...]:
    """Return for each row the groups that these ranges cover."""
    found = [0] * row_count
    for it in ranges:
        for row in range(it.lower, it.upper):
            found[row] |= it.groups
    return tuple(found)


def changes(versions: Sequence[Version], groups: int) -> Iterator[Version]:
    """Yield the versions that change what a read of these groups sees, the oldest first. A version
    of another group does so if the row was absent before it."""
    is_there = False
    for it in versions:
        if it.groups & groups or not is_there:
            yield it
        is_there = not it.is_delete


def alike(state: State) -> State:
    """Return one state for all that differ only in what no longer counts."""
    clients = tuple(
        _ended(it, state.records[at]) if it.decided else it for at, it in enumerate(state.clients)
    )
    starts = [it.read_at for it in clients if it.start]
    one, two, moved = (
        it if any(start <= it for start in starts) else 0
        for it in (*state.fences, state.moved_fence)
    )
    return _ranked(state._replace(clients=clients, fences=(one, two), moved_fence=moved))


def _ended(client: Client, records: tuple[Record, Record]) -> Client:
    """Answers to a client that has reported do not count, nor does when an abort began."""
    client = client._replace(said=(UNSAID, UNSAID))
    if client.decided != ABORT:
        return client
    is_over = all(it.phase == REFUSED for it in records)
    if is_over:
        return client._replace(ended_before=0, start=1, since=0)
    return client._replace(ended_before=0)


def _ranked(state: State) -> State:
    """Return the state with its timestamps counted from 1: only their order counts."""
    used = {UNDECIDED, *state.fences, state.moved_fence}
    for client in state.clients:
        used.update((client.start, client.since, client.decided, *client.said))
    for one, two in state.records:
        used.update((one.at, two.at))
    used.discard(ABORT)
    if len(used) == state.clock:
        return state
    ranks = {it: rank for rank, it in enumerate(sorted(used))} | {ABORT: ABORT}
    return state._replace(
        clock=len(used),
        fences=(ranks[state.fences[0]], ranks[state.fences[1]]),
        moved_fence=ranks[state.moved_fence],
        records=tuple(
            (one._replace(at=ranks[one.at]), two._replace(at=ranks[two.at]))
            for one, two in state.records
        ),
        clients=tuple(
            it._replace(
                start=ranks[it.start],
                since=ranks[it.since],
                said=(ranks[it.said[0]], ranks[it.said[1]]),
                decided=ranks[it.decided],
            )
            for it in state.clients
        ),
    )
