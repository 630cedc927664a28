"""What the clients of a run did and saw, and what the tables held in the end.

Owns: the plain records that the checkers judge. They come from the callers' side only: what a
caller asked for, when, and the answer. Invariant: instants are virtual microseconds of one clock.
Must not import: any core, the simulated cluster, or the checkers.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

Status = Literal["open", "ok", "fail", "info"]
"""ok: the answer says committed; fail: it says not; info: no sure answer; open: still running."""

Columns = tuple[tuple[str, Any], ...]
"""Column names and values, sorted by name."""


def frozen(value: Any) -> Any:
    """Return a value in the form of a history, which is compared and hashed: a list is a tuple, and
    a dict has its pairs in their order."""
    if isinstance(value, list | tuple):
        return tuple([frozen(it) for it in value])
    return tuple([frozen(it) for it in value.items()]) if isinstance(value, dict) else value


def visible(columns: dict[str, Any] | None) -> Columns | None:
    """Return a row as readers see it: null is the same as absent."""
    if columns is None:
        return None
    pairs = sorted(columns.items(), key=lambda it: it[0])
    return tuple([(name, frozen(value)) for name, value in pairs if value is not None])


class RowKey(NamedTuple):
    """A row of the whole database. Keys of one table sort as its rows do."""

    table: str
    key: bytes


BYTES_PER_RECORD: Final = 1_024
READS_PER_RECORD: Final = 100
"""Reads of a scan: each is a reference to a state that is kept once."""


class Read(NamedTuple):
    """One row as a transaction saw it: its columns that are not null, or None for no row."""

    row: RowKey
    columns: Columns | None


def _bytes_of(read: Read) -> int:
    """Return the rough size of a read: that of its texts."""
    return sum(_text_bytes(value) for _, value in read.columns or ())


def _text_bytes(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(map(_text_bytes, value))
    return len(value) if isinstance(value, str | bytes) else 0


class Glance(NamedTuple):
    """Some columns of one row as a transaction saw them: those of `names` that are not null, or
    None for no row."""

    row: RowKey
    names: tuple[str, ...]
    columns: Columns | None


class Scan(NamedTuple):
    """All rows of a table that a transaction saw at lower ≤ key < upper."""

    table: str
    lower: bytes
    upper: bytes
    reads: tuple[Read, ...]


class Write(NamedTuple):
    """One row's change: the columns set (null included), or None for a deletion.

    `groups` are the lock groups that it takes; 0 is the main one. Values of `added` columns are
    added to the old values. Shared writes of one group go together: the later commit wins.
    """

    row: RowKey
    columns: Columns | None
    groups: tuple[int, ...] = (0,)
    added: tuple[str, ...] = ()
    is_shared: bool = False


def after(state: dict[str, Any] | None, write: Write) -> dict[str, Any] | None:
    """Return a row's columns, null or not, after this write; None for no row."""
    if write.columns is None:
        return None
    changed = {**(state or {}), **dict(write.columns)}
    for name in write.added:
        before = (state or {}).get(name)
        changed[name] += 0 if before is None else before
    return changed


class Lock(NamedTuple):
    """A lock on one row without data. It is for reading, or exclusive, which excludes as much as a
    write. Of those for reading, only a strong one stops older writers after the commit."""

    row: RowKey
    is_strong: bool
    groups: tuple[int, ...] = (0,)
    is_exclusive: bool = False
    is_condition: bool = False
    """Whether it keeps the row of a condition. Then earlier commits to the row are no conflict."""


class Condition(NamedTuple):
    """What a row must be at the commit: it has these columns, or it is absent."""

    row: RowKey
    columns: Columns | None


class Erased(NamedTuple):
    """A range lower ≤ key < upper in which a bulk load leaves only its own rows."""

    table: str
    lower: bytes
    upper: bytes

    def has(self, row: RowKey) -> bool:
        return row.table == self.table and self.lower <= row.key < self.upper


Presence = Literal["any", "absent", "there"]
"""What a bulk load requires of each row before it writes it: anything, nothing, or a row."""


class Version(NamedTuple):
    """One entry of the final dump: the columns after a commit to a row, None for a deletion."""

    row: RowKey
    timestamp: int
    columns: Columns | None


class Acquisition(NamedTuple):
    """Timestamps `first` to `last`, asked for and received at these instants."""

    source: str
    asked_us: int
    received_us: int
    first: int
    last: int


class Conflict(NamedTuple):
    """What a refusal said. The transaction lost one of these rows to the transaction that started
    at `winner_start`, or to the commit at `winner_commit`. None: the refusal did not say."""

    rows: tuple[RowKey, ...]
    winner_start: int | None = None
    winner_commit: int | None = None


class LatestRead(NamedTuple):
    """A read of the last committed state, outside of transactions."""

    asked_us: int
    answered_us: int
    read: Read


class Crash(NamedTuple):
    """A cell's process ended; data that were not durable are gone."""

    cell: int
    at_us: int


class StampedRead(NamedTuple):
    """One row of a table without atomicity, as it was some time between these instants."""

    session: str
    asked_us: int
    answered_us: int
    read: Read


@dataclass(slots=True)
class StampedWrite:
    """One row of a write without atomicity. The rows of one call share a number."""

    session: str
    number: int
    write: Write
    is_durable: bool
    """Whether an answer means that no crash takes the row back."""
    asked_us: int
    answered_us: int | None = None
    status: Status = "open"
    cell: int | None = None
    """The cell to which it was sent last; None if to none."""
    told: int | None = None
    """The largest timestamp that a row of the call got."""
    error: str = ""
    clocks: tuple[int, int] | None = None
    """The timestamps of the client's and the server's clock, if the server called them too
    different."""

    @property
    def name(self) -> str:
        return f"{self.session}~{self.number}"


@dataclass(slots=True)
class Transaction:
    """One attempt of one session, from the request of a start timestamp to the last answer."""

    session: str
    number: int
    begin_us: int
    begun_us: int | None = None
    start: int = 0
    commit_us: int | None = None
    end_us: int | None = None
    commit: int | None = None
    status: Status = "open"
    reads: list[Read] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    locks: list[Lock] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    error: str = ""
    conflict: Conflict | None = None
    is_fresh: bool = True
    """Whether the oracle gave `start` for this transaction. Some readers choose it."""
    is_blind: bool = False
    """Whether it reads nothing and begins where it commits. Then it has no start, and no earlier
    commit is a conflict."""
    names: list[int] = field(default_factory=list)
    """The names on the wire of one without a transaction, in turn, before it had its start. They
    are timestamps, mostly from a reserve, each used once, that say nothing of when. For a bulk
    load: the names of the transactions that were to publish it."""
    again: list[int] = field(default_factory=list)
    """The ids under which it was sent again after a refusal, in turn. They are later than `start`,
    and only the last one can be committed."""
    owners: list[int] = field(default_factory=list)
    """The names, which are timestamps, under which it asked for early locks."""
    asked: list[RowKey] = field(default_factory=list)
    """The rows that it asked for before it began."""
    locked_early: list[RowKey] = field(default_factory=list)
    """Those of them that it had when it began. They are in `locks`, too."""
    is_start_of_cell: bool = False
    """Whether a cell had acquired `start`, and gave it with the last grant."""
    load: int = 0
    """The id of the bulk load that it is, 0 if it is none. One that overwrites is blind. Others
    conflict with writes since `start`, and with read locks since they took their own locks. That is
    after the last of `names` was issued."""
    is_serializable: bool = False
    """Whether its commit demands that all that it read is unchanged."""
    glances: list[Glance] = field(default_factory=list)
    """What a serializable transaction read of rows, but not all columns."""
    presence: Presence = "any"
    erased: list[Erased] = field(default_factory=list)
    """Ranges that it empties, except for its own rows. Each removed row has a deletion."""

    @property
    def name(self) -> str:
        return f"{self.session}#{self.number}"

    @property
    def aliases(self) -> tuple[int, ...]:
        """All timestamps that stand for it, but its start and its commit."""
        return (*self.names, *self.again, *self.owners)

    @property
    def written_from(self) -> int:
        """The timestamp from which on nobody else may have changed the rows that it writes."""
        return self.again[-1] if self.again else self.start

    @property
    def rows(self) -> list[RowKey]:
        """All rows on which it takes locks."""
        return [write.row for write in self.writes] + [lock.row for lock in self.locks]

    @property
    def is_writer(self) -> bool:
        return bool(self.writes or self.locks or self.erased)


@dataclass(slots=True)
class History:
    """All transactions in the order in which they began, and all timestamps seen on the way."""

    transactions: list[Transaction] = field(default_factory=list)
    acquisitions: list[Acquisition] = field(default_factory=list)
    latest_reads: list[LatestRead] = field(default_factory=list)
    unknown_count: int = 0
    """Commits whose callers got an unknown outcome. Most then ask for it, and learn it."""
    stamped_writes: list[StampedWrite] = field(default_factory=list)
    stamped_reads: list[StampedRead] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    """Crashes of cells, noted by the code that makes them. They excuse answers from memory."""

    _shared: dict[Read, Read] = field(default_factory=dict)
    _more: int = 0
    """Records that long scans and large states count as."""

    @property
    def record_count(self) -> int:
        """The number of records, with each distinct state of a row that was seen. It is a measure
        of the size in memory. Scans and states count by their length, too."""
        records = len(self.transactions) + len(self.acquisitions) + len(self.latest_reads)
        stamped = len(self.stamped_writes) + len(self.stamped_reads)
        return records + stamped + len(self._shared) + self._more

    def shared(self, read: Read) -> Read:
        """Return an equal read, of which there is only one. A row's state is kept once, even if it
        is seen often."""
        known = self._shared.setdefault(read, read)
        if known is read:
            self._more += _bytes_of(read) // BYTES_PER_RECORD
        return known

    def weigh(self, scan: Scan) -> None:
        """Count one more scan."""
        self._more += 1 + len(scan.reads) // READS_PER_RECORD

    def begin(self, session: str, now_us: int) -> Transaction:
        transaction = Transaction(session, len(self.transactions), now_us)
        self.transactions.append(transaction)
        return transaction

    def digest(self) -> str:
        """Return a digest that is equal for equal histories, in any process."""
        trace = hashlib.sha256()
        for items in (
            self.transactions,
            self.acquisitions,
            self.latest_reads,
            self.stamped_writes,
            self.stamped_reads,
        ):
            for item in items:
                trace.update(repr(item).encode())
        return trace.hexdigest()
