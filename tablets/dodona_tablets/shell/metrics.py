"""Define the metrics of a tablet node, as a table.

Owns: their names. A source is an attribute of the report that `service` makes for a scrape, as
`dodona_server.metrics` says.
"""

from typing import Final

from dodona_server.metrics import (
    MICROSECONDS,
    Metric,
    log_metrics,
    runtime_metrics,
    server_metrics,
)

COMMITS: Final = (
    Metric(
        "commits",
        "counter",
        "Transactions by protocol and outcome; each counts once in the cluster. The protocol is "
        "one_cell, blind (one cell, no snapshot), two_phase (counted by its coordinator), or "
        "non_atomic (each request to a tablet counts). The outcome is committed, conflict, "
        "aborted (by its client, or because another cell refused or did not answer), or refused",
        "cell.commits",
        ("protocol", "outcome"),
    ),
    Metric(
        "participations",
        "counter",
        "Transactions that another cell coordinates, by their outcome in this cell",
        "cell.participations",
        ("outcome",),
    ),
    Metric(
        "refusals",
        "counter",
        "Transactions that this cell refused, by kind of error",
        "cell.refused_by_kind",
        ("kind",),
    ),
    Metric(
        "conflicts",
        "counter",
        "Conflicts found in this cell, by cause. After the transaction began, another one wrote "
        "the row (written, shared_written) or locked it without a write (locked, shared_locked, "
        "read_locked). Another one that commits now holds the row (write_held, "
        "shared_write_held, read_held), or locked it before it began (early_locked). What the "
        "transaction has read was changed (read_changed) or is being written (read_met). A "
        "serializable transaction that commits now has read the row (held_by_reader). A bulk "
        "load and another writer met (load). The wait for a prepared row took too long (timeout)",
        "cell.conflicts_by_kind",
        ("kind",),
    ),
    Metric(
        "lock_waits",
        "counter",
        "How often a commit waited for the outcome of another transaction",
        "cell.lock_waits",
    ),
    Metric(
        "refreshes",
        "counter",
        "New attempts of transactions that met a change of rows that they had not read. Their "
        "programs did not run again. The coordinator counts them",
        "cell.refreshes",
    ),
    Metric(
        "early_locks",
        "gauge",
        "Owners of early locks by state: those that have all of their rows here (granted), and "
        "those that wait in line (waiting)",
        "cell.early_locks_by_state",
        ("state",),
    ),
    Metric(
        "early_grants",
        "counter",
        "How often all rows of an owner were locked before its transaction began",
        "cell.early_grants",
    ),
    Metric(
        "transactions",
        "gauge",
        "Transactions under way by state: waiting for others, locked (waits for a timestamp), "
        "prepared, or committed (but not all cells have acknowledged it)",
        "cell.transactions_by_state",
        ("state",),
    ),
    Metric(
        "oldest_prepared_seconds",
        "gauge",
        "How long the oldest prepared transaction has been here; 0 if there is none",
        "cell.oldest_prepared_us",
        per=MICROSECONDS,
    ),
    Metric(
        "outcomes_remembered",
        "gauge",
        "Outcomes of transactions that are remembered",
        "cell.outcomes_remembered",
    ),
    Metric(
        "protocol_violations",
        "counter",
        "Decisions of other cells that are impossible: a client or a server has a fault",
        "cell.protocol_violations",
    ),
    Metric(
        "non_atomic_rows",
        "counter",
        "Rows written without atomicity",
        "cell.non_atomic_rows",
    ),
)

READS: Final = (
    Metric(
        "reads",
        "counter",
        "Reads by kind: lookup, scan, or of versions",
        "cell.reads_by_kind",
        ("kind",),
    ),
    Metric(
        "reads_waiting",
        "gauge",
        "Reads that wait now for a prepared row or for the oracle",
        "cell.reads_waiting",
    ),
    Metric(
        "reads_waited",
        "counter",
        "Reads that met a prepared row and waited for its outcome",
        "cell.reads_waited",
    ),
    Metric("readers", "gauge", "Readers that hold a snapshot", "cell.readers"),
    Metric(
        "oldest_reader_seconds",
        "gauge",
        "Age of the oldest held snapshot; no sample if no snapshot is held",
        "cell.oldest_reader_us",
        per=MICROSECONDS,
    ),
    Metric(
        "oldest_retained_seconds",
        "gauge",
        "Age of the oldest retained timestamp of all served tablets: reads can go back so far in "
        "one of them. No sample while no version was removed",
        "cell.oldest_retained_us",
        per=MICROSECONDS,
    ),
    Metric(
        "newest_retained_seconds",
        "gauge",
        "Age of the newest retained timestamp of all served tablets: reads can go back so far in "
        "each of them",
        "cell.newest_retained_us",
        per=MICROSECONDS,
    ),
)

STORAGE: Final = (
    Metric(
        "tablets",
        "gauge",
        "Tablets by state: served, or stored without being served",
        "cell.tablets_by_state",
        ("state",),
    ),
    Metric("tablets_dropped", "counter", "Tablets dropped", "cell.tablets_dropped"),
    Metric(
        "stores",
        "gauge",
        "Dynamic stores in memory: active (takes writes), unflushed (waits for its flush), or "
        "flushed (kept for conflicts)",
        "cell.stores_by_state",
        ("state",),
    ),
    Metric(
        "rows",
        "gauge",
        "Estimated number of rows: a row in several stores or chunks counts in each",
        "cell.rows",
    ),
    Metric("memory_bytes", "gauge", "Memory of dynamic stores", "cell.memory_bytes"),
    Metric(
        "tablet_bytes",
        "gauge",
        "Memory of tablets besides their rows, mounted or not",
        "cell.tablet_bytes",
    ),
    Metric(
        "memory_limit_bytes",
        "gauge",
        "Writes are refused if memory_bytes is above this",
        "cell.memory_bytes_max",
    ),
    Metric(
        "batch_bytes",
        "gauge",
        "Bulk data that is in no chunk yet",
        "cell.batch_bytes",
    ),
    Metric(
        "batch_limit_bytes",
        "gauge",
        "Bulk data is refused if batch_bytes is above this",
        "cell.batch_bytes_max",
    ),
    Metric("chunks", "gauge", "Chunks", "cell.chunks"),
    Metric("chunk_bytes", "gauge", "Size of all chunks", "cell.chunk_bytes"),
    Metric(
        "loads",
        "gauge",
        "Open bulk loads",
        "cell.loads",
    ),
    Metric(
        "chunks_staged",
        "gauge",
        "Chunks of open loads, which no reader sees yet",
        "cell.chunks_staged",
    ),
    Metric(
        "jobs",
        "counter",
        "Jobs on chunks by kind (flush, compaction, batch, seal) and outcome (done, failed)",
        "cell.jobs",
        ("kind", "outcome"),
    ),
    Metric("compacting", "gauge", "Chunks that are being compacted", "cell.compacting_chunks"),
)

CLOCKS: Final = (
    Metric(
        "newest_timestamp_seconds",
        "gauge",
        "The newest timestamp that this cell knows of, as Unix time",
        "cell.latest_us",
        per=MICROSECONDS,
    ),
    Metric(
        "oracle_clock_difference_seconds",
        "gauge",
        "How far the oracle's last timestamp lay ahead of this machine's clock",
        "cell.oracle_clock.last_us",
        per=MICROSECONDS,
    ),
    Metric(
        "oracle_clock_difference_max_seconds",
        "gauge",
        "The largest difference between the oracle's timestamps and this machine's clock since "
        "the start, either way",
        "cell.oracle_clock.max_us",
        per=MICROSECONDS,
    ),
    Metric(
        "client_clock_difference_seconds",
        "gauge",
        "How far the last client's clock was ahead of the oracle's time, in a write without "
        "atomicity; the time that the cell knows may be half a second old",
        "cell.client_clock.last_us",
        per=MICROSECONDS,
    ),
    Metric(
        "client_clock_difference_max_seconds",
        "gauge",
        "The largest difference between a client's clock and the oracle's time since the start, "
        "either way",
        "cell.client_clock.max_us",
        per=MICROSECONDS,
    ),
    Metric(
        "client_clock_refusals",
        "counter",
        "Writes without atomicity that were refused because the client's clock is too far off",
        "cell.client_clock_refused",
    ),
)

NODE_METRICS: Final[tuple[Metric, ...]] = (
    *server_metrics("cell"),
    *COMMITS,
    *READS,
    *STORAGE,
    *CLOCKS,
    Metric(
        "log_written_bytes",
        "counter",
        "Bytes of the groups that were written to the log",
        "log.written_bytes",
    ),
    *log_metrics(),
    *runtime_metrics(),
)
