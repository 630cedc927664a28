"""Metrics: the form of each server's table of metrics, and of its report.

Owns: that form. `exposition` makes the text for Prometheus. A metric says where its value is in the
server's report. The report is made from the `statistics()` of the cores and the runtime at each
scrape. So nothing is counted here, and nothing is done between two scrapes. Names end in their
unit. Values that are counted in µs or ms are given in seconds. Labels have few values, which are
known in advance. A label is never a table's path, a key, or another name that users choose.

Must not import prometheus-client: servers start without it.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, Literal, NamedTuple

from dodona_server.lifecycle import Lifecycle

Kind = Literal["counter", "gauge", "histogram"]
MICROSECONDS: Final = 1_000_000
"""The `per` of a value that is counted in microseconds."""


class Metric(NamedTuple):
    """One row of a server's table. Its full name is `dodona_<server>_<name>`, and `_total` follows
    for a counter."""

    name: str
    kind: Kind
    help: str
    source: str
    """The place of the value in the server's report, as attributes. The value is a number, or None
    if there is none now. With labels it is a mapping from the first label's values to numbers, or
    to mappings for the next label. A histogram is a `Histogram`, or a mapping to histograms."""
    labels: tuple[str, ...] = ()
    per: int = 1
    """The number by which the value is divided."""


def runtime_metrics() -> tuple[Metric, ...]:
    """Return the metrics of every server that has a runtime."""
    return (
        Metric("connections", "gauge", "Open data plane connections", "connections"),
        Metric(
            "requests_refused",
            "counter",
            "Requests refused because too much waited for the log, or because the server was "
            "stopping",
            "runtime.refused_count",
        ),
    )


def log_metrics() -> tuple[Metric, ...]:
    """Return the metrics of every server with a log, or with a store that is written as one."""
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
            "How many records one flush made durable; the sum is the number of all records",
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
            "How long the oldest record or answer has waited for the log",
            "runtime.waiting_age_us",
            per=MICROSECONDS,
        ),
        Metric("log_bytes", "gauge", "Size of the log, or of the store", "log.size_bytes"),
        Metric(
            "log_fill_ratio",
            "gauge",
            "Size of the log, or of the store, as a part of its largest size: 1 is full",
            "log.fill_ratio",
        ),
    )


def server_metrics(*info: str) -> tuple[Metric, ...]:
    """Return the metrics of every server. `info` names its identifying labels after the version."""
    return (
        Metric(
            "info",
            "gauge",
            "Always 1; the labels identify the server and its version",
            "server.info",
            ("version", *info),
        ),
        Metric("ready", "gauge", "1 if the server serves (/readyz), else 0", "server.is_ready"),
        Metric("draining", "gauge", "1 after the signal to stop, else 0", "server.is_draining"),
    )


def full_name(server: str, metric: Metric) -> str:
    """Return the name in Prometheus. A histogram has `_bucket`, `_sum` and `_count` there."""
    suffix = "_total" if metric.kind == "counter" else ""
    return f"dodona_{server}_{metric.name}{suffix}"


class ServerReport(NamedTuple):
    """The part `server` of every server's report."""

    info: Mapping[str, Any]
    is_ready: int
    is_draining: int

    @classmethod
    def of(cls, lifecycle: Lifecycle, instance: str | None = None) -> "ServerReport":
        """`instance` is the value of the label that identifies the server, if it has one."""
        is_ready = lifecycle.why_not_ready() is None
        info = {version("dodona"): 1 if instance is None else {instance: 1}}
        return cls(info, int(is_ready), int(lifecycle.is_draining))


class LogReport(NamedTuple):
    """The part `log` of a report."""

    size_bytes: int
    fill_ratio: float
    written_bytes: int = 0
