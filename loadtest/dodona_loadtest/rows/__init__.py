"""The benchmark rows: what each measures, with how many callers, and against which peers."""

from dodona_loadtest.harness.row import Row
from dodona_loadtest.rows import (
    async_writes,
    commits,
    embedded,
    hot_rows,
    lookups,
    serializable,
    timestamps,
    two_node_commits,
    work_queue,
)

ROWS: tuple[Row, ...] = (
    timestamps.ROW,
    commits.ROW,
    commits.ONE_CORE_ROW,
    commits.TRANSACTIONS_ROW,
    two_node_commits.ROW,
    hot_rows.ROW,
    hot_rows.LINE_ROW,
    hot_rows.ONE_ROW,
    work_queue.ROW,
    serializable.BANK_ROW,
    serializable.RECORD_ROW,
    async_writes.ROW,
    async_writes.BATCHES_ROW,
    lookups.ROW,
    lookups.WIDE_ROW,
    embedded.ROW,
)
