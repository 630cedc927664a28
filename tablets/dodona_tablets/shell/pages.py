"""Make the REST pages of a node.

Owns: which pages there are. Only `service` imports this, once the data plane is up: it needs
FastAPI.
"""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from dodona_server.exposition import Metrics
from dodona_server.lifecycle import Lifecycle
from dodona_server.pages import add_metrics, create_application
from dodona_server.recoveries_page import add_recoveries_page
from dodona_server.recovery_book import RecoveryBook
from dodona_server.runtime import Runtime
from dodona_server.statistics_page import add_statistics_page
from dodona_tablets.core.node import NodeCore
from dodona_tablets.shell.doubt_page import add_doubt_page
from dodona_tablets.shell.metrics import NODE_METRICS
from dodona_tablets.shell.node_log import NodeLog
from dodona_tablets.shell.outcome_page import add_outcome_page
from dodona_tablets.shell.replication_metrics import REPLICATION_METRICS, ReplicationReport
from dodona_tablets.shell.tablets_page import add_tablets_page
from dodona_wire.net.cluster_key import Admission


def create_pages(
    core: NodeCore,
    runtime: Runtime,
    log: NodeLog,
    book: RecoveryBook,
    lifecycle: Lifecycle,
    admission: Admission,
    report: Callable[[], object],
    report_copies: Callable[[], ReplicationReport] | None = None,
) -> FastAPI:
    """Return all pages. `report` returns what the metrics are made of, `report_copies` what is
    known of the copies of the log, if it has copies."""

    def collect() -> dict[str, Any]:
        found: dict[str, Any] = {
            "cell": core.statistics(),
            "runtime": runtime.statistics(),
            "log_bytes": log.size_bytes(),
            "log_fill_ratio": log.fill_ratio(),
        }
        if report_copies is not None:
            copies, objects, cache = report_copies()
            found |= {"copies": copies, "objects": objects, "cached_bytes": cache.size_bytes}
        return found

    pages = create_application("Dodona tablet node", None, lifecycle, admission)
    add_statistics_page(pages, collect)
    add_outcome_page(pages, runtime)
    add_doubt_page(pages, core)
    add_tablets_page(pages, core)
    add_recoveries_page(pages, book)
    more = () if report_copies is None else REPLICATION_METRICS
    add_metrics(pages, Metrics("node", (*NODE_METRICS, *more), report))
    return pages
