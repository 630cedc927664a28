"""The metrics of the master and of the proxy.

Owns: the names of the metrics. A source is an attribute of the report that `master` or `proxy`
makes for a scrape (see `dodona_server.metrics`).
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
        "Requests for timestamps from proxies, nodes and clients",
        "core.timestamp_request_count",
    ),
    Metric(
        "timestamps_per_request",
        "histogram",
        "How many timestamps each request got: the size of the batches that come here",
        "core.request_sizes",
    ),
    Metric("ceilings", "counter", "How often the durable ceiling was raised", "core.ceiling_count"),
    Metric(
        "newest_timestamp_seconds",
        "gauge",
        "The newest timestamp that was given out, as Unix time",
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
        "The largest value of clock_difference_seconds since the start",
        "core.clock.max_us",
        per=MICROSECONDS,
    ),
    Metric(
        "catalog_requests",
        "counter",
        "Catalog requests, heartbeats included",
        "core.catalog_request_count",
    ),
    Metric(
        "catalog_refusals",
        "counter",
        "Catalog requests that were refused, by kind of error",
        "core.catalog_refused_by_kind",
        ("kind",),
    ),
    Metric("tables", "gauge", "Tables", "core.catalog.table_count"),
    Metric("tablets", "gauge", "Tablets of all tables", "core.catalog.tablet_count"),
    Metric(
        "tablets_moving",
        "gauge",
        "Tablets that are being mounted, unmounted, frozen, unfrozen or copied",
        "core.catalog.moving_tablet_count",
    ),
    Metric("tree_nodes", "gauge", "Nodes of the tree", "core.catalog.node_count"),
    Metric(
        "tree_transactions",
        "gauge",
        "Master transactions that are open",
        "core.catalog.tree_transaction_count",
    ),
    Metric("tree_locks", "gauge", "Locks of open master transactions", "core.catalog.lock_count"),
    Metric(
        "cells",
        "gauge",
        "Cells that have joined: alive, or silent for more than 2 s",
        "attendance.cells",
        ("state",),
    ),
    Metric("proxies", "gauge", "Proxies that are alive", "attendance.proxy_count"),
    *log_metrics(),
    *runtime_metrics(),
)

PROXY_METRICS: Final[tuple[Metric, ...]] = (
    *server_metrics(),
    Metric("timestamps", "counter", "Timestamps passed on to callers", "core.timestamp_count"),
    Metric("timestamp_requests", "counter", "Requests for timestamps", "core.request_count"),
    Metric(
        "batch_timestamps",
        "histogram",
        "How many timestamps each batch asked the master for; the count is the number of batches",
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
        "Batches that the master refused, or did not answer in time",
        "core.failed_batch_count",
    ),
    Metric("callers_waiting", "gauge", "Requests that wait for timestamps", "core.waiting_count"),
    *runtime_metrics(),
)
