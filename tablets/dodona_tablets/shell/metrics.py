"""The metrics of a tablet node: the table.

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
        "Transactions by protocol and outcome, each counted once in the cluster: one_cell, blind "
        "(one cell, no snapshot), two_phase (by its coordinator), and non_atomic, where each "
        "request to a tablet counts. What becomes of a transaction: committed, conflict, aborted "
        "(by its client, or because another cell refused or was not heard of), refused",
        "cell.commits",
        ("protocol", "outcome"),
    ),
    Metric(
        "participations",
        "counter",
        "Transactions that another cell coordinates, by what became of them here",
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
        "Conflicts found here, by what stood in the way: a row that since the start was written, "
        "also in shared mode (shared_written), or locked without a write (locked, shared_locked, "
        "read_locked); one that somebody who commits holds (write_held, shared_write_held, "
        "read_held); a bulk load; or a wait for a prepared row that took too long (timeout)",
        "cell.conflicts_by_kind",
        ("kind",),
    ),
    Metric(
        "lock_waits",
        "counter",
        "Times that a commit waited for another transaction's outcome",
        "cell.lock_waits",
    ),
    Metric(
        "transactions",
        "gauge",
        "Transactions under way: waiting for others, locked (the oracle is asked), prepared, or "
        "committed (and not acknowledged by all cells yet)",
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
        "Decisions of other cells that can't be: a client lied, or something is broken",
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
        "Reads by kind: lookup, scan, and those of versions",
        "cell.reads_by_kind",
        ("kind",),
    ),
    Metric(
        "reads_waiting",
        "gauge",
        "Reads that wait now, for a prepared row or for the oracle",
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
        "Age of the oldest snapshot that is held; no sample if none is",
        "cell.oldest_reader_us",
        per=MICROSECONDS,
    ),
    Metric(
        "oldest_retained_seconds",
        "gauge",
        "Age of the oldest retained timestamp of a served tablet: so far back one reads there. "
        "No sample while nothing was let go",
        "cell.oldest_retained_us",
        per=MICROSECONDS,
    ),
    Metric(
        "newest_retained_seconds",
        "gauge",
        "Age of the newest retained timestamp of a served tablet: so far back one reads everywhere",
        "cell.newest_retained_us",
        per=MICROSECONDS,
    ),
)

STORAGE: Final = (
    Metric(
        "tablets",
        "gauge",
        "Tablets that are served, or stored without being served",
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
        "Rows, about: one that is in several stores or chunks counts in each",
        "cell.rows",
    ),
    Metric("memory_bytes", "gauge", "What dynamic stores take", "cell.memory_bytes"),
    Metric(
        "tablet_bytes",
        "gauge",
        "What tablets take besides their rows, mounted or not",
        "cell.tablet_bytes",
    ),
    Metric(
        "memory_limit_bytes",
        "gauge",
        "Above that writes are refused",
        "cell.memory_bytes_max",
    ),
    Metric(
        "batch_bytes",
        "gauge",
        "Bulk data on its way into chunks",
        "cell.batch_bytes",
    ),
    Metric(
        "batch_limit_bytes",
        "gauge",
        "Above that bulk data is refused",
        "cell.batch_bytes_max",
    ),
    Metric("chunks", "gauge", "Chunks", "cell.chunks"),
    Metric("chunk_bytes", "gauge", "What they occupy", "cell.chunk_bytes"),
    Metric(
        "loads",
        "gauge",
        "Bulk loads that are open",
        "cell.loads",
    ),
    Metric(
        "chunks_staged",
        "gauge",
        "Chunks of open loads, which nobody sees yet",
        "cell.chunks_staged",
    ),
    Metric(
        "jobs",
        "counter",
        "Work on chunks by kind (flush, compaction, batch, seal) and outcome (done, failed)",
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
        "The largest such difference since the start, either way",
        "cell.oracle_clock.max_us",
        per=MICROSECONDS,
    ),
    Metric(
        "client_clock_difference_seconds",
        "gauge",
        "How far the last client's clock was ahead of the oracle's time, in a write without "
        "atomicity; the cell's idea of that time may be half a second old",
        "cell.client_clock.last_us",
        per=MICROSECONDS,
    ),
    Metric(
        "client_clock_difference_max_seconds",
        "gauge",
        "The largest such difference since the start, either way",
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
