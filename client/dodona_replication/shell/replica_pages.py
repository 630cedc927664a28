"""The REST pages of a log replica.

Owns: the list of these pages. Only `replica_service` imports this module, and only after the data
plane is up, because the module needs FastAPI.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from fastapi import FastAPI, Response

from dodona_replication.core.replica import LogSummary, ReplicaCore
from dodona_replication.shell.replica_keys import Identity
from dodona_replication.shell.replica_metrics import REPLICA_METRICS
from dodona_server.exposition import Metrics
from dodona_server.lifecycle import Lifecycle
from dodona_server.pages import add_metrics, create_application
from dodona_server.process import read_clock
from dodona_server.runtime import Runtime
from dodona_server.statistics_page import add_statistics_page
from dodona_wire.messages.rest import JSON_TYPE
from dodona_wire.net.cluster_key import Admission

LISTED_MAX: Final = 10_000


class LogsPage(msgspec.Struct, frozen=True):
    """The first logs by name, and the number of all."""

    count: int
    logs: tuple[LogSummary, ...]


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
            "candidates": core.candidates(read_clock()),
            "runtime": runtime.statistics(),
        },
    )
    add_logs_page(pages, core)
    add_metrics(pages, Metrics("replica", REPLICA_METRICS, report))
    return pages


def add_logs_page(pages: FastAPI, core: ReplicaCore) -> None:
    """Serve the list of the logs."""

    @pages.get("/v1/logs", operation_id="list_logs")
    async def list_logs() -> Response:
        """List the logs of this replica: their epochs, their entries, and when the owner sent
        something last."""
        found = tuple(core.summaries(read_clock(), LISTED_MAX))
        page = LogsPage(core.statistics().log_count, found)
        return Response(msgspec.json.encode(page), media_type=JSON_TYPE)
