"""The metrics of master and proxy: the two tables.

Owns: their names. A source is an attribute of the report that `master` or `proxy` makes for a
scrape, as `dodona_server.metrics` says.
"""

from typing import Final

from dodona_server.metrics import (
    MICROSECONDS,
    Metric,
    log_metrics,
    runtime_metrics,
    server_metrics,
)

MASTER_METRICS: Final[tuple[Metric, ...]] = (
    *server_metrics(),
    Metric("timestamps", "counter", "Timestamps given out", "core.timestamp_count"),
    Metric(
        "timestamp_requests",
        "counter",
        "Requests for timestamps, of proxies, nodes and clients",
        "core.timestamp_request_count",
    ),
    Metric(
        "timestamps_per_request",
        "histogram",
        "How many timestamps a request was given: the batches that come here",
        "core.request_sizes",
    ),
    Metric(
        "ceilings", "counter", "Times that the durable ceiling was raised", "core.ceiling_count"
    ),
    Metric(
        "newest_timestamp_seconds",
        "gauge",
        "The newest timestamp given out, as Unix time",
        "core.newest_us",
        per=MICROSECONDS,
    ),
    Metric(
        "ceiling_timestamp_seconds",
        "gauge",
        "The durable ceiling below which timestamps are given out, as Unix time",
        "core.ceiling_us",
        per=MICROSECONDS,
    ),
    Metric(
        "clock_difference_seconds",
        "gauge",
        "How far the newest timestamp lay ahead of this machine's clock when it was given out",
        "core.clock.last_us",
        per=MICROSECONDS,
    ),
    Metric(
        "clock_difference_max_seconds",
        "gauge",
        "The largest such difference since the start",
        "core.clock.max_us",
        per=MICROSECONDS,
    ),
    Metric(
        "catalog_requests",
        "counter",
        "Requests of the catalog, heartbeats among them",
        "core.catalog_request_count",
    ),
    Metric(
        "catalog_refusals",
        "counter",
        "Of them, those that were refused, by kind of error",
        "core.catalog_refused_by_kind",
        ("kind",),
    ),
    Metric("tables", "gauge", "Tables", "core.catalog.table_count"),
    Metric("tablets", "gauge", "Tablets of all tables", "core.catalog.tablet_count"),
    Metric(
        "tablets_moving",
        "gauge",
        "Tablets that are being mounted, unmounted, frozen or divided",
        "core.catalog.moving_tablet_count",
    ),
    Metric("tree_nodes", "gauge", "Nodes of the tree", "core.catalog.node_count"),
    Metric(
        "tree_transactions",
        "gauge",
        "Master transactions that are open",
        "core.catalog.tree_transaction_count",
    ),
    Metric("tree_locks", "gauge", "Locks that they hold", "core.catalog.lock_count"),
    Metric(
        "cells",
        "gauge",
        "Cells that have joined: alive, or silent for some seconds",
        "attendance.cells",
        ("state",),
    ),
    Metric("proxies", "gauge", "Proxies that are alive", "attendance.proxy_count"),
    *log_metrics(),
    *runtime_metrics(),
)

PROXY_METRICS: Final[tuple[Metric, ...]] = (
    *server_metrics(),
    Metric("timestamps", "counter", "Timestamps handed on", "core.timestamp_count"),
    Metric("timestamp_requests", "counter", "Requests for timestamps", "core.request_count"),
    Metric(
        "batch_timestamps",
        "histogram",
        "How many timestamps the master was asked for at once; the count is that of batches",
        "core.batch_sizes",
    ),
    Metric(
        "batch_seconds",
        "histogram",
        "How long the master took to answer a batch",
        "core.batch_durations_us",
        per=MICROSECONDS,
    ),
    Metric(
        "batches_failed",
        "counter",
        "Batches that the master did not answer, or not in time",
        "core.failed_batch_count",
    ),
    Metric("callers_waiting", "gauge", "Requests that wait now", "core.waiting_count"),
    *runtime_metrics(),
)
