"""The metrics of a log replica.

Owns: the names of the metrics. A source is an attribute of the report that `replica_service` makes
for a scrape (see `dodona_server.metrics`).
"""

from typing import Final

from dodona_server.metrics import Metric, log_metrics, runtime_metrics, server_metrics

REPLICA_METRICS: Final[tuple[Metric, ...]] = (
    *server_metrics("replica"),
    Metric("logs", "gauge", "Logs that the replica has", "core.log_count"),
    Metric("entries", "gauge", "Entries of all logs", "core.entry_count"),
    Metric("entries_stored", "counter", "Entries stored", "core.stored_count"),
    Metric(
        "stored_bytes", "counter", "Bytes of the records of stored entries", "core.stored_bytes"
    ),
    Metric("fences", "counter", "How often a log got a higher epoch", "core.fence_count"),
    Metric(
        "refusals",
        "counter",
        "Requests of owners that were refused, by kind",
        "core.refused_by_kind",
        ("kind",),
    ),
    Metric(
        "candidates_waiting",
        "gauge",
        "Processes that wait for a log without an owner",
        "core.waiter_count",
    ),
    Metric(
        "owner_silent_seconds",
        "gauge",
        "How long the owner of a log has sent nothing to this replica. A log whose owner has "
        "dropped the replica stays silent. No samples if the replica has more than 256 logs",
        "owners_silent_ms",
        ("log",),
        per=1_000,
    ),
    Metric(
        "other_cluster_requests",
        "counter",
        "Requests that named another cluster, and were refused",
        "core.other_cluster_count",
    ),
    Metric(
        "full",
        "gauge",
        "1 if new entries are refused because the disk or the data file is full, else 0",
        "core.is_full",
    ),
    Metric("disk_free_bytes", "gauge", "Free space of the disk", "disk_free_bytes"),
    Metric(
        "disk_free_ratio",
        "gauge",
        "Free space as a part of the disk: 0 is full",
        "disk_free_ratio",
    ),
    *log_metrics(),
    *runtime_metrics(),
)
