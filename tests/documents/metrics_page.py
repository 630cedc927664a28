"""The tables of `docs/reference/metrics.md`, made of the servers'.

Owns: their form. What a metric says is in the server's own table.
"""

from collections.abc import Iterator
from typing import Final

from dodona_gateway.shell.metrics import GATEWAY_METRICS
from dodona_oracle.shell.metrics import MASTER_METRICS, PROXY_METRICS
from dodona_replication.shell.replica_metrics import REPLICA_METRICS
from dodona_server.metrics import MICROSECONDS, Metric, full_name
from dodona_tablets.shell.metrics import NODE_METRICS
from dodona_tablets.shell.replication_metrics import REPLICATION_METRICS
from dodona_tablets.shell.standby_pages import STANDBY_METRICS

TABLES: Final[dict[str, tuple[Metric, ...]]] = {
    "master": MASTER_METRICS,
    "proxy": PROXY_METRICS,
    "node": NODE_METRICS,
    "gateway": GATEWAY_METRICS,
    "replica": REPLICA_METRICS,
}
"""By the server's name, which is in the names of its metrics."""
REPLICATED: Final = {"node": REPLICATION_METRICS}
"""The metrics that only servers have whose log has copies, by the server's name."""
STANDING_BY: Final = {"node": STANDBY_METRICS}
"""The metrics of servers that stand by, by the server's name. They have `info`, `ready` and
`draining`, too, and no others."""
TITLES: Final = {"replica": "Log replica"}


def metrics_text() -> str:
    """A table for each server."""
    lines = (line for server in TABLES for line in _section(server))
    return "\n".join(lines).rstrip()


def _section(server: str) -> Iterator[str]:
    yield f"## {TITLES.get(server, server.capitalize())}\n"
    yield from _table(server, TABLES[server])
    if server in REPLICATED:
        where = "[copies](../how-to/keep-copies-of-logs.md)"
        yield f"A {server} whose log has {where} has these, too:\n"
        yield from _table(server, REPLICATED[server])
    if server in STANDING_BY:
        where = "[stands by](../how-to/keep-copies-of-logs.md#nodes-that-stand-by)"
        yield f"A {server} that {where} has these, and `info`, `ready` and `draining`:\n"
        yield from _table(server, STANDING_BY[server])


def _table(server: str, table: tuple[Metric, ...]) -> Iterator[str]:
    yield "| name | type | labels | what it says | from |"
    yield "|---|---|---|---|---|"
    for metric in table:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        source = f"`{metric.source}`" + (" (µs)" if metric.per == MICROSECONDS else "")
        name = full_name(server, metric)
        yield f"| `{name}` | {metric.kind} | {labels} | {metric.help} | {source} |"
    yield ""
