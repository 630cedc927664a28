"""What a cell counts: its statistics, as metrics and people see them. Owns their names."""

import msgspec

from dodona.types import Timestamp


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
