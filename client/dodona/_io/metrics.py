"""Metrics: a table of them for each server, and what makes Prometheus's text of a reading.

Owns: the form of the tables, and the collector. A metric says where its value is in the server's
report, which is made of the cores' and the runtime's `statistics()` when somebody asks, so nothing
is counted here, and nothing is done between two scrapes. Names end in their unit; values that are
counted in µs or ms are given in seconds. Labels have few values, which are known in advance: never
a table's path, a key, or anything that users make.

Only servers import this: it needs prometheus-client.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from dodona._core.counting import Histogram
from dodona._io.life import Life

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
    def of(cls, life: Life, instance: str | None = None) -> "ServerReport":
        """`instance` is the value of the label that says which server it is, if it has one."""
        is_ready = life.why_not_ready() is None
        info = {version("dodona"): 1 if instance is None else {instance: 1}}
        return cls(info, int(is_ready), int(life.is_draining))


class LogReport(NamedTuple):
    """What a report has as `log`."""

    size_bytes: int
    fill_ratio: float
    written_bytes: int = 0


class Metrics:
    """One server's metrics, to be asked for its text."""

    def __init__(self, server: str, table: Sequence[Metric], report: Callable[[], object]) -> None:
        """`report` is called for each scrape, and never between two."""
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(server, table, report))
        ProcessCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """→ what to answer, and its type, for somebody whose header `Accept` says that."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number is too much for the library
            encode, content_type = choose_encoder("")
        return encode(self._registry), content_type


class _Collector(Collector):
    def __init__(self, server: str, table: Sequence[Metric], report: Callable[[], object]) -> None:
        self._server = server
        self._table = [(metric, attrgetter(metric.source)) for metric in table]
        self._report = report

    def describe(self) -> list[Family]:
        """Nothing: to register is no reason to ask for a report."""
        return []

    def collect(self) -> Iterator[Family]:
        report = self._report()
        for metric, find in self._table:
            yield _family(f"dodona_{self._server}_{metric.name}", metric, find(report))


def _family(name: str, metric: Metric, value: Any) -> Family:
    labels = metric.labels
    if metric.kind == "histogram":
        durations = HistogramMetricFamily(name, metric.help, labels=labels)
        for values, histogram in _samples(value, len(labels)):
            buckets = list(_buckets(histogram, metric.per))
            durations.add_metric(values, buckets, histogram.total / metric.per)
        return durations
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.help, labels=labels)
    for values, number in _samples(value, len(labels)):
        family.add_metric(values, number / metric.per)
    return family


def _samples(value: Any, depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    """→ the values of the labels, and the value under them."""
    if depth:
        for name, below in value.items():
            for names, found in _samples(below, depth - 1):
                yield (str(name), *names), found
    elif value is not None:
        yield (), value


def _buckets(histogram: Histogram, per: int) -> Iterator[tuple[str, float]]:
    below = 0
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        below += count
        yield "+Inf" if bound is None else repr(bound / per), below
