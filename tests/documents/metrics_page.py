"""The tables of `docs/reference/metrics.md`, made of the servers'.

Owns: their form. What a metric says is in the server's own table.
"""

from collections.abc import Iterator
from typing import Final

from dodona_gateway.shell.metrics import GATEWAY_METRICS
from dodona_oracle.shell.metrics import MASTER_METRICS, PROXY_METRICS
from dodona_server.metrics import MICROSECONDS, Metric, full_name
from dodona_tablets.shell.metrics import NODE_METRICS

TABLES: Final[dict[str, tuple[Metric, ...]]] = {
    "master": MASTER_METRICS,
    "proxy": PROXY_METRICS,
    "node": NODE_METRICS,
    "gateway": GATEWAY_METRICS,
}
"""By the server's name, which is in the names of its metrics."""


def metrics_text() -> str:
    """A table for each server."""
    lines = (line for server in TABLES for line in _section(server, TABLES[server]))
    return "\n".join(lines).rstrip()


def _section(server: str, table: tuple[Metric, ...]) -> Iterator[str]:
    yield f"## {server.capitalize()}\n"
    yield "| name | type | labels | what it says | from |"
    yield "|---|---|---|---|---|"
    for metric in table:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        source = f"`{metric.source}`" + (" (µs)" if metric.per == MICROSECONDS else "")
        name = full_name(server, metric)
        yield f"| `{name}` | {metric.kind} | {labels} | {metric.help} | {source} |"
    yield ""
