"""The benchmark rows: what is measured, with how many callers, against whom."""

from dodona_loadtest.harness.row import Row
from dodona_loadtest.rows import commits, embedded, timestamps, two_node_commits

ROWS: tuple[Row, ...] = (
    timestamps.ROW,
    commits.ROW,
    commits.ONE_CORE_ROW,
    commits.TRANSACTIONS_ROW,
    two_node_commits.ROW,
    embedded.ROW,
)
