"""What a cell counts, and what it can't decide: as metrics and people see it. Owns the names."""

import msgspec

from dodona.types import CellId, Timestamp, TransactionId


class NodeStatistics(msgspec.Struct, frozen=True):
    """What a cell counts, since its start; `alive`, `waiting`, `readers`, `rows` and the tablets
    that are served, or stored without being served, are of now. `misfits` are decisions of other
    cells that can't be: some client lied, or something is broken."""

    tablets: int
    tablets_stored: int
    tablets_dropped: int
    rows: int
    transactions_alive: int
    transactions_prepared: int
    reads_waiting: int
    reads_waited: int
    readers: int
    loads: int
    """Bulk loads that are open."""
    chunks_staged: int
    """Of them, seen by nobody yet."""
    outcomes_remembered: int
    committed: int
    misfits: int
    refused_by_kind: dict[str, int]
    non_atomic_rows: int
    memory_bytes: int
    """Of rows in memory, about."""
    chunks: int
    chunk_bytes: int
    flushed: int
    compacted: int
    compacting: dict[str, int | str]
    """What is being compacted: the table's path, how many chunks, versions and bytes."""
    jobs_failed: int
    """Flushes and compactions; they are tried again."""
    last_failure: str | None
    latest_timestamp: Timestamp


class InDoubt(msgspec.Struct, frozen=True):
    """A transaction that is prepared here and not decided yet, as far as this cell knows."""

    transaction: TransactionId
    coordinator: CellId
    participants: tuple[CellId, ...]
    prepare_timestamp: Timestamp
    age_ms: int
    """Since it came here, or since the cell's start."""
