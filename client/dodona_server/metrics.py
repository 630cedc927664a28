"""Metrics: the form of each server's table of them, and of its report.

Owns: that form; `exposition` makes Prometheus's text of a reading. A metric says where its value is
in the server's report, which is made of the cores' and the runtime's `statistics()` when somebody
asks, so nothing is counted here, and nothing is done between two scrapes. Names end in their unit;
values that are counted in µs or ms are given in seconds. Labels have few values, which are known in
advance: never a table's path, a key, or anything that users make.

Must not import prometheus-client: servers start without it.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, Literal, NamedTuple

from dodona_server.lifecycle import Lifecycle

Kind = Literal["counter", "gauge", "histogram"]
MICROSECONDS: Final = 1_000_000
"""`per` of what is counted in them."""


class Metric(NamedTuple):
    """One row of a server's table. Its whole name is `dodona_<server>_<name>`, and for a counter
    `_total` behind."""

    name: str
    kind: Kind
    help: str
    source: str
    """Where it is in the server's report, as attributes. The value is a number, or None if there is
    none now; with labels, a mapping from the first label's values to numbers, or to mappings from
    the next one's; a histogram is a `Histogram`, or a mapping to such."""
    labels: tuple[str, ...] = ()
    per: int = 1
    """What the value is divided by."""


def runtime_metrics() -> tuple[Metric, ...]:
    """Of every server that has a runtime."""
    return (
        Metric("connections", "gauge", "Data plane connections that are open", "connections"),
        Metric(
            "requests_refused",
            "counter",
            "Requests refused because too much waited for the log, or because it was stopping",
            "runtime.refused_count",
        ),
    )


def log_metrics() -> tuple[Metric, ...]:
    """Of every server with a log, or a store that is written as one."""
    return (
        Metric(
            "log_flush_seconds",
            "histogram",
            "How long the log took to make a group of records durable",
            "runtime.flush_durations_us",
            per=MICROSECONDS,
        ),
        Metric(
            "log_flush_records",
            "histogram",
            "Records that were made durable together; the sum is that of all records",
            "runtime.flush_records",
        ),
        Metric(
            "log_waiting",
            "gauge",
            "Records and answers that wait for the log",
            "runtime.waiting_count",
        ),
        Metric(
            "log_waiting_seconds",
            "gauge",
            "How long the oldest of them has waited",
            "runtime.waiting_age_us",
            per=MICROSECONDS,
        ),
        Metric("log_bytes", "gauge", "What the log, or the store, occupies", "log.size_bytes"),
        Metric(
            "log_fill_ratio",
            "gauge",
            "The same in relation to how large it may become: 1 is full",
            "log.fill_ratio",
        ),
    )


def server_metrics(*info: str) -> tuple[Metric, ...]:
    """Of every server; `info` names the labels that say which one it is, besides its version."""
    return (
        Metric("info", "gauge", "1; the labels say what runs", "server.info", ("version", *info)),
        Metric("ready", "gauge", "1 if it serves, as /readyz says, else 0", "server.is_ready"),
        Metric("draining", "gauge", "1 from the signal to stop on, else 0", "server.is_draining"),
    )


def full_name(server: str, metric: Metric) -> str:
    """As Prometheus knows it; of a histogram there are `_bucket`, `_sum` and `_count`."""
    suffix = "_total" if metric.kind == "counter" else ""
    return f"dodona_{server}_{metric.name}{suffix}"


class ServerReport(NamedTuple):
    """What every server's report has as `server`."""

    info: Mapping[str, Any]
    is_ready: int
    is_draining: int

    @classmethod
    def of(cls, lifecycle: Lifecycle, instance: str | None = None) -> "ServerReport":
        """`instance` is the value of the label that says which server it is, if it has one."""
        is_ready = lifecycle.why_not_ready() is None
        info = {version("dodona"): 1 if instance is None else {instance: 1}}
        return cls(info, int(is_ready), int(lifecycle.is_draining))


class LogReport(NamedTuple):
    """What a report has as `log`."""

    size_bytes: int
    fill_ratio: float
    written_bytes: int = 0
