"""Define what a cell counts, and what it can't decide, for metrics and people.

Owns: the names. An event costs one increment, and a commit no more than that. Four counts give the
number of committed transactions of each protocol, when a reader asks. Replay is not counted.
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
"""The outcome by kind of error. All other errors are refusals."""
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
    "early_locked",
    "read_changed",
    "read_met",
    "held_by_reader",
    LOAD,
    "timeout",
)
"""The kinds of conflicts, named after what the transaction met."""

Counts = dict[str, int]


class ProtocolViolation(msgspec.Struct, frozen=True):
    """A decision that breaks the commit protocol: its transaction, and the cell that sent it."""

    transaction: TransactionId
    source: CellId


class CommitCounts:
    """The commits of a cell since its start. Other parts increment plain numbers in place."""

    __slots__ = (
        "applied",
        "blind",
        "conflicts",
        "coordinated",
        "early_grants",
        "last_protocol_violation",
        "lock_waits",
        "participated",
        "participations_refused",
        "protocol_violation_count",
        "refreshes",
        "refused_count_by_kind",
        "unhappy",
    )

    def __init__(self) -> None:
        self.applied = 0
        """Commits of all kinds."""
        self.blind = 0
        """Among them, commits in one cell without a snapshot."""
        self.coordinated = 0
        """Among them, commits in several cells that this cell decided."""
        self.participated = 0
        """Among them, commits in several cells that another cell decided."""
        self.participations_refused = 0
        self.lock_waits = 0
        self.early_grants = 0
        self.refreshes = 0
        """New attempts of refused transactions. The coordinator counts them."""
        self.conflicts: Counts = dict.fromkeys(CONFLICTS, 0)
        self.refused_count_by_kind: Counts = {}
        """Transactions that were refused here, by kind of error."""
        self.protocol_violation_count = 0
        """The decisions of other cells that break the commit protocol: see `participant`."""
        self.last_protocol_violation: ProtocolViolation | None = None
        self.unhappy = {protocol: dict.fromkeys(UNHAPPY, 0) for protocol in PROTOCOLS}

    def note_refusal(
        self, cell: CellId, participants: tuple[CellId, ...], kind: str, *, is_blind: bool
    ) -> None:
        """Count a transaction that was refused with an error of this kind. Its coordinator counts
        it as a transaction, another cell as a participation. If its participants are unknown, no
        cell counts it."""
        if not participants:
            return
        if participants[:1] != (cell,):
            self.participations_refused += 1
            return
        protocol = TWO_PHASE if len(participants) > 1 else BLIND if is_blind else ONE_CELL
        self.unhappy[protocol][_OUTCOMES.get(kind, REFUSED)] += 1

    def note_refused(self, kind: str) -> None:
        """Count a transaction of any participants that was refused with an error of this kind."""
        self.refused_count_by_kind[kind] = self.refused_count_by_kind.get(kind, 0) + 1

    def note_protocol_violation(self, transaction: TransactionId, source: CellId) -> None:
        """Note a decision of another cell that breaks the commit protocol."""
        self.protocol_violation_count += 1
        self.last_protocol_violation = ProtocolViolation(transaction, source)

    def commits(self) -> dict[str, Counts]:
        """Return the transactions by protocol and outcome."""
        committed = {
            ONE_CELL: self.applied - self.blind - self.coordinated - self.participated,
            BLIND: self.blind,
            TWO_PHASE: self.coordinated,
        }
        return {it: {COMMITTED: committed[it], **self.unhappy[it]} for it in PROTOCOLS}

    def participations(self) -> Counts:
        """Return the participations by outcome."""
        return {COMMITTED: self.participated, REFUSED: self.participations_refused}


class NodeStatistics(msgspec.Struct, frozen=True):
    """The counts of a cell since its start, and some current values. Current values are:
    transactions alive, reads that wait, readers, rows, and tablets that are served or only stored.
    `protocol_violations` counts decisions of other cells that can't be right. Either a client lied,
    or a part is broken."""

    tablets: int
    tablets_stored: int
    tablets_by_state: Counts
    tablets_dropped: int
    rows: int
    transactions_alive: int
    transactions_prepared: int
    transactions_by_state: Counts
    oldest_prepared_us: int
    """How long the oldest prepared transaction has been here. 0 if there is none."""
    lock_waits: int
    early_locks_by_state: Counts
    """Owners of early locks now: those that have their rows, and those in line."""
    early_grants: int
    refreshes: int
    reads_waiting: int
    reads_waited: int
    reads_by_kind: Counts
    readers: int
    oldest_reader_us: int | None
    """The age of the oldest snapshot that a reader holds."""
    oldest_retained_us: int | None
    newest_retained_us: int | None
    """The ages of the oldest and the newest retained timestamp, among served tablets that may have
    removed versions."""
    loads: int
    """Bulk loads that are open."""
    chunks_staged: int
    """Chunks of open loads, which no read sees yet."""
    outcomes_remembered: int
    committed: int
    commits: dict[str, Counts]
    """Transactions by protocol and outcome."""
    participations: Counts
    """Transactions of other coordinators, by outcome in this cell."""
    conflicts_by_kind: Counts
    protocol_violations: int
    last_protocol_violation: ProtocolViolation | None
    refused_by_kind: Counts
    non_atomic_rows: int
    stores_by_state: Counts
    memory_bytes: int
    """An estimate of the memory of rows."""
    tablet_bytes: int
    """An estimate of the memory of tablets without their rows. Stored tablets count, too."""
    memory_bytes_max: int
    batch_bytes: int
    """Bulk data on its way into chunks."""
    batch_bytes_max: int
    chunks: int
    chunk_bytes: int
    chunk_misses: int
    """Requests that waited for a chunk of the object store."""
    flushed: int
    compacted: int
    compacting: dict[str, int | str]
    """The compaction in progress: the path of the table, and how many chunks, versions and
    bytes."""
    compacting_chunks: int
    jobs: dict[str, Counts]
    """Work on chunks, by kind and outcome."""
    jobs_failed: int
    """Flushes and compactions that failed. The cell tries them again."""
    last_failure: str | None
    latest_timestamp: Timestamp
    latest_us: int
    """The latest timestamp as Unix time."""
    oracle_clock: ClockDifference
    """How far the oracle's time is ahead of this machine's clock."""
    client_clock: ClockDifference
    """How far clients' clocks are ahead of the oracle's time."""
    client_clock_refused: int


class InDoubt(msgspec.Struct, frozen=True):
    """A transaction that is prepared here and undecided, as far as this cell knows."""

    transaction: TransactionId
    coordinator: CellId
    participants: tuple[CellId, ...]
    prepare_timestamp: Timestamp
    age_ms: int
    """The time since it came here, or since the cell's start."""
