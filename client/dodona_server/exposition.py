"""Make the text for Prometheus from a server's table of metrics and from its report.

Owns: the collector. Only servers' pages import this module: it needs prometheus-client.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from dodona_server.metrics import Metric
from dodona_wire.cores.counting import Histogram


class Metrics:
    """The metrics of one server, as text."""

    def __init__(self, server: str, table: Sequence[Metric], report: Callable[[], object]) -> None:
        """`report` is called once for each scrape, and never between two scrapes."""
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(server, table, report))
        ProcessCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its content type, for a request with this header `Accept`."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # the library fails on a version that is no number
            encode, content_type = choose_encoder("")
        return encode(self._registry), content_type


class _Collector(Collector):
    def __init__(self, server: str, table: Sequence[Metric], report: Callable[[], object]) -> None:
        self._server = server
        self._table = [(metric, attrgetter(metric.source)) for metric in table]
        self._report = report

    def describe(self) -> list[Family]:
        """Return nothing: to register the collector must not ask for a report."""
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
    """Yield the values of the labels, and the value that belongs to them."""
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
