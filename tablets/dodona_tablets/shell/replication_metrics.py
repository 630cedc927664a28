"""The metrics of a node whose log has its copies on log replicas.

Owns: their names, and the part `replication` of the node's report. A node with a log in its own
folder has none of them.
"""

from typing import Final, NamedTuple

from dodona_server.metrics import MICROSECONDS, Metric
from dodona_tablets.shell.cache_counts import CacheReport
from dodona_tablets.shell.object_counts import ObjectCounts
from dodona_wire.cores.copies import CopiesReport


class ReplicationReport(NamedTuple):
    """What a node reports of the copies of its log and of its chunks."""

    copies: CopiesReport
    objects: ObjectCounts
    cache: CacheReport


COPIES: Final = (
    Metric(
        "replication_serving",
        "gauge",
        "1 if the process owns the log of its cell and takes new work, else 0",
        "replication.copies.is_serving",
    ),
    Metric(
        "replication_epoch",
        "gauge",
        "Epoch of the log; it rises by one with each take-over",
        "replication.copies.epoch",
    ),
    Metric(
        "replication_take_over_seconds",
        "gauge",
        "How long the take-over of this process took, from its first look at the document of the "
        "log until the log was open",
        "replication.copies.take_over_us",
        per=MICROSECONDS,
    ),
    Metric(
        "replication_replicas",
        "gauge",
        "Log replicas by role: member (its copy counts), learner (it is being copied to), spare, "
        "or unknown (it has not said who it is)",
        "replication.copies.counts_by_role",
        ("role",),
    ),
    Metric(
        "replication_copies_wanted",
        "gauge",
        "Copies that the log should have (copies)",
        "replication.copies.wanted_count",
    ),
    Metric(
        "replication_copies_min",
        "gauge",
        "With fewer copies the cell serves nothing (copies-min)",
        "replication.copies.copies_min",
    ),
    Metric(
        "replication_set_changes",
        "counter",
        "Changes of the set of replicas: a replica has joined, or it was dropped",
        "replication.copies.changes_by_kind",
        ("change",),
    ),
    Metric(
        "replication_lag_entries",
        "gauge",
        "Entries of the log that a member or a learner has not stored, by its address",
        "replication.copies.lag_entries_by_address",
        ("replica",),
    ),
    Metric(
        "replication_lag_seconds",
        "gauge",
        "How long the oldest entry without an acknowledgement has waited for a replica",
        "replication.copies.lag_us_by_address",
        ("replica",),
        per=MICROSECONDS,
    ),
    Metric(
        "replication_silent_seconds",
        "gauge",
        "How long a replica has left requests of this node unanswered, by its address",
        "replication.copies.silent_us_by_address",
        ("replica",),
        per=MICROSECONDS,
    ),
    Metric(
        "replication_waiting_entries",
        "gauge",
        "Entries that not all members have stored. log_waiting counts the requests behind them",
        "replication.copies.waiting_entries",
    ),
    Metric(
        "replication_coordinator_silent_seconds",
        "gauge",
        "How long etcd has not answered; up to 5 s are usual",
        "replication.copies.coordinator_silent_us",
        per=MICROSECONDS,
    ),
)

CHUNKS: Final = (
    Metric(
        "object_store_calls",
        "counter",
        "Calls to the store of chunks by kind (put, get, remove, list) and outcome (done, "
        "missing, failed); what its client repeats is one call",
        "replication.objects.calls",
        ("call", "outcome"),
    ),
    Metric(
        "object_store_uploaded_bytes",
        "counter",
        "Bytes that the store of chunks has taken",
        "replication.objects.uploaded_bytes",
    ),
    Metric(
        "object_store_fetched_bytes",
        "counter",
        "Bytes that came from the store of chunks",
        "replication.objects.fetched_bytes",
    ),
    Metric(
        "object_store_cached_bytes",
        "gauge",
        "Bytes of the rows of chunks that are in the folder of the node, too; removed files count "
        "as long as a read has them open",
        "replication.cache.size_bytes",
    ),
    Metric(
        "chunk_cache_limit_bytes",
        "gauge",
        "Above this size, copies of chunks go (chunk-cache-mib-max); no sample without a limit",
        "replication.cache.limit_bytes",
    ),
    Metric(
        "chunk_cache_misses",
        "counter",
        "Requests that waited for a chunk that was not in the folder. The other reads were hits",
        "cell.chunk_misses",
    ),
    Metric(
        "chunk_cache_fetches",
        "counter",
        "Attempts to fetch the rows or the index of a chunk by outcome: done, missing (the store "
        "has no such object), damaged (three attempts in a row gave other bytes), or failed (any "
        "other attempt that gave no answer or other bytes)",
        "replication.cache.fetches",
        ("outcome",),
    ),
    Metric(
        "chunk_cache_evicted_bytes",
        "counter",
        "Bytes of copies that were removed because of the limit",
        "replication.cache.evicted_bytes",
    ),
)

REPLICATION_METRICS: Final[tuple[Metric, ...]] = (*COPIES, *CHUNKS)
