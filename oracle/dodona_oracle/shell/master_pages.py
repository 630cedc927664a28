"""The REST pages of a master.

Owns: the list of these pages. Only `master` imports this module, and only after the data plane is
up, because the module needs FastAPI.
"""

from collections.abc import Callable

from fastapi import FastAPI

from dodona_oracle.core.master import MasterCore
from dodona_oracle.shell.metrics import MASTER_METRICS
from dodona_oracle.shell.rest import add_operations
from dodona_oracle.shell.transactions_page import add_transactions_page
from dodona_server.exposition import Metrics
from dodona_server.lifecycle import Lifecycle
from dodona_server.pages import add_metrics, create_application
from dodona_server.recoveries_page import add_recoveries_page
from dodona_server.recovery_book import RecoveryBook
from dodona_server.runtime import Runtime
from dodona_server.statistics_page import add_statistics_page
from dodona_wire.net.cluster_key import Admission


def create_pages(
    core: MasterCore,
    runtime: Runtime,
    book: RecoveryBook,
    lifecycle: Lifecycle,
    admission: Admission,
    report: Callable[[], object],
) -> FastAPI:
    """Return an application with all pages. `report` returns the values of the metrics."""
    pages = create_application("Dodona master", None, lifecycle, admission)
    add_operations(pages, runtime)
    add_statistics_page(
        pages, lambda: {"master": core.statistics(), "runtime": runtime.statistics()}
    )
    add_transactions_page(pages, core)
    add_recoveries_page(pages, book)
    add_metrics(pages, Metrics("master", MASTER_METRICS, report))
    return pages
