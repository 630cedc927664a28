"""The REST pages of a proxy.

Owns: which there are. Only `proxy` imports this, once the data plane is up: it needs FastAPI.
"""

from collections.abc import Callable

from fastapi import FastAPI

from dodona._io.cluster_key import Admission
from dodona._io.exposition import Metrics
from dodona._io.life import Life
from dodona._io.pages import add_metrics, create_application
from dodona._io.runtime import Runtime
from dodona._io.statistics_page import add_statistics_page
from dodona_oracle.core.proxy import ProxyCore
from dodona_oracle.shell.metrics import PROXY_METRICS


def create_pages(
    core: ProxyCore,
    runtime: Runtime,
    life: Life,
    admission: Admission,
    report: Callable[[], object],
) -> FastAPI:
    """All of them. `report` is what the metrics are made of."""
    pages = create_application("Dodona proxy", None, life, admission)
    add_statistics_page(
        pages, lambda: {"proxy": core.statistics(), "runtime": runtime.statistics()}
    )
    add_metrics(pages, Metrics("proxy", PROXY_METRICS, report))
    return pages
