"""The REST pages of a proxy.

Owns: the list of these pages. Only `proxy` imports this module, and only after the data plane is
up, because the module needs FastAPI.
"""

from collections.abc import Callable

from fastapi import FastAPI

from dodona_oracle.core.proxy import ProxyCore
from dodona_oracle.shell.metrics import PROXY_METRICS
from dodona_server.exposition import Metrics
from dodona_server.lifecycle import Lifecycle
from dodona_server.pages import add_metrics, create_application
from dodona_server.runtime import Runtime
from dodona_server.statistics_page import add_statistics_page
from dodona_wire.net.cluster_key import Admission


def create_pages(
    core: ProxyCore,
    runtime: Runtime,
    lifecycle: Lifecycle,
    admission: Admission,
    report: Callable[[], object],
) -> FastAPI:
    """Return an application with all pages. `report` returns the values of the metrics."""
    pages = create_application("Dodona proxy", None, lifecycle, admission)
    add_statistics_page(
        pages, lambda: {"proxy": core.statistics(), "runtime": runtime.statistics()}
    )
    add_metrics(pages, Metrics("proxy", PROXY_METRICS, report))
    return pages
