"""What a cell counts, and what it can't decide: as metrics and people see it. Owns the names.

A count costs its place an increment, and a commit no more than that: how many transactions of which
protocol were committed is worked out of four counts when somebody asks. Whatever replay does is no
part of it.
"""

from typing import Final

import msgspec

from dodona_wire.cores.counting import ClockDifference
from dodona_wire.errors import ERRORS_BY_KIND, TransactionAborted, TransactionConflict
from dodona_wire.types import CellId, Timestamp, TransactionId

ONE_CELL: Final = "one_cell"
BLIND: Final = "blind"
TWO_PHASE: Final = "two_phase"
NON_ATOMIC: Final = "non_atomic"
PROTOCOLS: Final = (ONE_CELL, BLIND, TWO_PHASE)
COMMITTED: Final = "committed"
REFUSED: Final = "refused"
UNHAPPY: Final = ("conflict", "aborted", REFUSED)
_OUTCOMES: Final = {
    TransactionAborted.kind: "aborted",
    **{
        kind: "conflict"
        for kind, error in ERRORS_BY_KIND.items()
        if issubclass(error, TransactionConflict)
    },
}
"""Other errors are refusals."""
LOAD: Final = "load"

CONFLICTS: Final = (
    "written",
    "shared_written",
    "locked",
    "shared_locked",
    "read_locked",
    "write_held",
    "shared_write_held",
    "read_held",
    LOAD,
    "timeout",
)
"""What stood in a transaction's way."""

Counts = dict[str, int]


class CommitCounts:
    """Of a cell, since its start. Plain numbers are incremented in place."""

    __slots__ = (
        "applied",
        "blind",
        "conflicts",
        "coordinated",
        "lock_waits",
        "participated",
        "participations_refused",
        "unhappy",
    )

    def __init__(self) -> None:
        self.applied = 0
        """Commits of all kinds."""
        self.blind = 0
        """Of them, those of one cell without a snapshot."""
        self.coordinated = 0
        """Of them, those of several cells that were decided here."""
        self.participated = 0
        """Of them, those of several cells that were decided elsewhere."""
        self.participations_refused = 0
        self.lock_waits = 0
        self.conflicts: Counts = dict.fromkeys(CONFLICTS, 0)
        self.unhappy = {protocol: dict.fromkeys(UNHAPPY, 0) for protocol in PROTOCOLS}

    def note_refusal(
        self, cell: CellId, participants: tuple[CellId, ...], kind: str, *, is_blind: bool
    ) -> None:
        """A transaction was not committed, with an error of this kind. Its coordinator counts it
        as a transaction, others as a part of one; of whom it is nothing known, nobody does."""
        if not participants:
            return
        if participants[:1] != (cell,):
            self.participations_refused += 1
            return
        protocol = TWO_PHASE if len(participants) > 1 else BLIND if is_blind else ONE_CELL
        self.unhappy[protocol][_OUTCOMES.get(kind, REFUSED)] += 1

    def commits(self) -> dict[str, Counts]:
        """By protocol and outcome."""
        committed = {
            ONE_CELL: self.applied - self.blind - self.coordinated - self.participated,
            BLIND: self.blind,
            TWO_PHASE: self.coordinated,
        }
        return {it: {COMMITTED: committed[it], **self.unhappy[it]} for it in PROTOCOLS}

    def participations(self) -> Counts:
        """By outcome."""
        return {COMMITTED: self.participated, REFUSED: self.participations_refused}


class ProtocolViolation(msgspec.Struct, frozen=True):
    """A decision that can't be: about which transaction, and from which cell."""

    transaction: TransactionId
    source: CellId


class NodeStatistics(msgspec.Struct, frozen=True):
    """The counts of a cell since its start. `alive`, `waiting`, `readers`, `rows`, and the tablets
    that are served or only stored are current values. `protocol_violations` counts decisions of
    other cells that can't be right: a client lied, or a part is broken."""

    tablets: int
    tablets_stored: int
    tablets_by_state: Counts
    tablets_dropped: int
    rows: int
    transactions_alive: int
    transactions_prepared: int
    transactions_by_state: Counts
    oldest_prepared_us: int
    """How long it has been here; 0 if there is none."""
    lock_waits: int
    reads_waiting: int
    reads_waited: int
    reads_by_kind: Counts
    readers: int
    oldest_reader_us: int | None
    """The age of the oldest snapshot that is held."""
    oldest_retained_us: int | None
    newest_retained_us: int | None
    """Ages of the retained timestamps of served tablets that let anything go."""
    loads: int
    """Bulk loads that are open."""
    chunks_staged: int
    """Of them, seen by nobody yet."""
    outcomes_remembered: int
    committed: int
    commits: dict[str, Counts]
    """Transactions, by protocol and outcome."""
    participations: Counts
    """Transactions of other coordinators, by outcome here."""
    conflicts_by_kind: Counts
    protocol_violations: int
    last_protocol_violation: ProtocolViolation | None
    refused_by_kind: Counts
    non_atomic_rows: int
    stores_by_state: Counts
    memory_bytes: int
    """Of rows in memory, about."""
    tablet_bytes: int
    """Of tablets without their rows, about: of stored ones too."""
    memory_bytes_max: int
    batch_bytes: int
    """Of bulk data on its way into chunks."""
    batch_bytes_max: int
    chunks: int
    chunk_bytes: int
    flushed: int
    compacted: int
    compacting: dict[str, int | str]
    """What is being compacted: the table's path, how many chunks, versions and bytes."""
    compacting_chunks: int
    jobs: dict[str, Counts]
    """Work on chunks, by kind and outcome."""
    jobs_failed: int
    """Flushes and compactions; they are tried again."""
    last_failure: str | None
    latest_timestamp: Timestamp
    latest_us: int
    """The same, as Unix time."""
    oracle_clock: ClockDifference
    """How far the oracle's time is ahead of this machine's clock."""
    client_clock: ClockDifference
    """How far clients' clocks are ahead of the oracle's time."""
    client_clock_refused: int


class InDoubt(msgspec.Struct, frozen=True):
    """A transaction that is prepared here and not decided yet, as far as this cell knows."""

    transaction: TransactionId
    coordinator: CellId
    participants: tuple[CellId, ...]
    prepare_timestamp: Timestamp
    age_ms: int
    """Since it came here, or since the cell's start."""
