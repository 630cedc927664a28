"""The REST pages of a proxy.

Owns: which there are. Only `proxy` imports this, once the data plane is up: it needs FastAPI.
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
    """All of them. `report` is what the metrics are made of."""
    pages = create_application("Dodona proxy", None, lifecycle, admission)
    add_statistics_page(
        pages, lambda: {"proxy": core.statistics(), "runtime": runtime.statistics()}
    )
    add_metrics(pages, Metrics("proxy", PROXY_METRICS, report))
    return pages
