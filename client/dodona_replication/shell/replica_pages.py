"""The REST pages of a log replica.

Owns: the list of these pages. Only `replica_service` imports this module, and only after the data
plane is up, because the module needs FastAPI.
"""

from collections.abc import Callable

import msgspec
from fastapi import FastAPI

from dodona_replication.core.replica import ReplicaCore
from dodona_replication.shell.replica_keys import Identity
from dodona_replication.shell.replica_metrics import REPLICA_METRICS
from dodona_server.exposition import Metrics
from dodona_server.lifecycle import Lifecycle
from dodona_server.pages import add_metrics, create_application
from dodona_server.runtime import Runtime
from dodona_server.statistics_page import add_statistics_page
from dodona_wire.net.cluster_key import Admission


def create_pages(
    core: ReplicaCore,
    runtime: Runtime,
    identity: Identity,
    lifecycle: Lifecycle,
    admission: Admission,
    report: Callable[[], object],
) -> FastAPI:
    """Return an application with all pages. `report` returns the values of the metrics."""
    pages = create_application("Dodona log replica", None, lifecycle, admission)
    add_statistics_page(
        pages,
        lambda: {
            "identity": msgspec.structs.asdict(identity),
            "replica": core.statistics(),
            "runtime": runtime.statistics(),
        },
    )
    add_metrics(pages, Metrics("replica", REPLICA_METRICS, report))
    return pages
