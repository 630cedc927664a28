"""The tables of metrics: names, sources, text, and who may see it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from documents.metrics_page import REPLICATED, TABLES
from dodona.errors import ERRORS_BY_KIND, InvalidRequest
from dodona.types import CellId, Now, TabletId, TransactionId, TreeTransactionId
from dodona_gateway.core.traffic import Traffic, route_of
from dodona_oracle.core.master import MasterCore
from dodona_server.exposition import Metrics
from dodona_server.lifecycle import Lifecycle
from dodona_server.metrics import Metric, full_name
from dodona_server.pages import add_metrics, create_application
from dodona_wire.cores.counting import Tally
from dodona_wire.messages.catalog import GetTable, MountTable
from dodona_wire.messages.data import CommitOne
from dodona_wire.messages.tree import BeginTreeTransaction, CommitTreeTransaction
from dodona_wire.net.cluster_key import Admission, ClusterKey, MetricsKey
from unit.oracle.realm import create
from unit.oracle.test_application import no_lifespan
from unit.tablets.cells import Bench, changes, put

DOCS = Path(__file__).resolve().parents[3] / "docs"
KEY, METRICS_KEY = "the-key-of-the-cluster", "the-key-of-metrics"
UNITS = ("_seconds", "_bytes", "_ratio")


class Report(NamedTuple):
    plain: int
    missing: int | None
    by_kind: dict[str, int]
    nested: dict[str, dict[int, int]]
    took_us: Any


TABLE = (
    Metric("plain", "counter", "Plain", "plain"),
    Metric("missing", "gauge", "None", "missing"),
    Metric("by_kind", "counter", "One label", "by_kind", ("kind",)),
    Metric("nested", "gauge", "Two", "nested", ("route", "status")),
    Metric("took_seconds", "histogram", "Durations", "took_us", per=1_000_000),
)


def metrics() -> Metrics:
    tally = Tally((1_000, 1_000_000))
    for value in (10, 1_000, 5_000, 9_000_000):
        tally.add(value)
    report = Report(7, None, {"a": 1, "b": 2}, {"rows": {200: 3}}, tally.read())
    return Metrics("test", TABLE, lambda: report)


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("dodona_")
    }


def test_a_report_becomes_prometheus_s_text() -> None:
    content, content_type = metrics().text("")
    assert content_type.startswith("text/plain")
    assert samples(content.decode()) == {
        ("dodona_test_plain_total",): 7,
        ("dodona_test_by_kind_total", "a"): 1,
        ("dodona_test_by_kind_total", "b"): 2,
        ("dodona_test_nested", "rows", "200"): 3,
        ("dodona_test_took_seconds_bucket", "0.001"): 2,
        ("dodona_test_took_seconds_bucket", "1.0"): 3,
        ("dodona_test_took_seconds_bucket", "+Inf"): 4,
        ("dodona_test_took_seconds_count",): 4,
        ("dodona_test_took_seconds_sum",): 9.00601,
    }
    assert b"process_resident_memory_bytes" in content


@pytest.mark.parametrize(
    "accept",
    ["text/plain;version=x", "application/openmetrics-text;version=x", ";;,=", "*/*;q=x"],
)
def test_metrics_are_returned_for_an_unusual_accept_header(accept: str) -> None:
    content, content_type = metrics().text(accept)
    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert b"dodona_test_plain_total 7" in content


def test_nothing_is_asked_before_a_scrape() -> None:
    asked: list[int] = []

    def report() -> Report:
        asked.append(1)
        return Report(len(asked), None, {}, {}, Tally((1,)).read())

    made = Metrics("test", TABLE, report)
    assert asked == []
    assert samples(made.text("")[0].decode())["dodona_test_plain_total",] == 1
    assert len(asked) == 1


@pytest.mark.parametrize("server", TABLES)
def test_names_are_good_and_given_once(server: str) -> None:
    table = (*TABLES[server], *REPLICATED.get(server, ()))
    names = [full_name(server, it) for it in table]
    assert len(set(names)) == len(names)
    for metric, name in zip(table, names, strict=True):
        assert re.fullmatch(r"dodona_[a-z]+_[a-z][a-z_]*[a-z]", name)
        assert not metric.name.endswith("_total")
        assert metric.help[0].isupper() or metric.help[0].isdigit()
        assert not metric.help.endswith(".")
        assert metric.per == 1 or "_seconds" in name
        assert ("seconds" in name or "bytes" in name or "ratio" in name) <= name.endswith(
            (*UNITS, "_bytes_total")
        )


# ---- who may see them


def caller(key: str | None, metrics_key: str | None) -> TestClient:
    application = create_application(
        "test",
        no_lifespan,
        Lifecycle(),
        Admission(
            None if key is None else ClusterKey(key),
            None if metrics_key is None else MetricsKey(metrics_key),
        ),
    )
    add_metrics(application, metrics())

    @application.get("/v1/other")
    async def other() -> dict[str, str]:
        return {}

    return TestClient(application)


SHOWN = {
    "nothing": None,
    "cluster": ClusterKey(KEY).authorization(),
    "metrics": f"Bearer {METRICS_KEY}",
    "bearer": f"Bearer {KEY}",
    "basic": ClusterKey(METRICS_KEY).authorization(),
    "empty": "Bearer ",
    "strange": "Bearer \xff",
}


@pytest.mark.parametrize(
    ("keys", "metrics_for", "others_for"),
    [
        ((None, None), {*SHOWN}, {*SHOWN}),
        ((KEY, None), {"cluster"}, {"cluster"}),
        ((KEY, METRICS_KEY), {"cluster", "metrics"}, {"cluster"}),
        ((None, METRICS_KEY), {"metrics"}, {*SHOWN}),
    ],
)
def test_the_metrics_key_opens_only_the_metrics(
    keys: tuple[str | None, str | None], metrics_for: set[str], others_for: set[str]
) -> None:
    http = caller(*keys)
    for who, shown in SHOWN.items():
        headers = {} if shown is None else {b"authorization": shown.encode("latin-1")}
        for path, allowed in (("/metrics", metrics_for), ("/v1/other", others_for)):
            status = http.get(path, headers=headers).status_code
            assert status == (200 if who in allowed else 401), (who, path)
        assert http.get("/startupz", headers=headers).status_code == 200


@pytest.mark.parametrize("text", ["", "short", "with a blank in it", "x" * 257])
def test_a_key_of_metrics_is_long_enough_and_is_never_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match="key of the metrics has 16 to 256") as caught:
        MetricsKey.read(file)
    assert not text or text not in str(caught.value)
    with pytest.raises(InvalidRequest, match="can't be read"):
        MetricsKey.read(tmp_path / "nothing")
    assert METRICS_KEY not in repr(MetricsKey(METRICS_KEY))


# ---- a gateway's traffic


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/rows/insert", "rows"),
        ("/v1/transactions", "transactions"),
        ("/v1/transactions/x/commit", "transactions"),
        ("/v1/table/mount", "tables"),
        ("/v1/token", "tokens"),
        ("/api/v4/select_rows", "ytsaurus"),
        ("/console/tables", "console"),
        ("/readyz", "pages"),
        ("/v1/nonsense", "other"),
        ("//", "other"),
    ],
)
def test_paths_fall_into_a_few_classes(path: str, route: str) -> None:
    assert route_of(path) == route


def test_unknown_paths_and_methods_get_no_metric_label_of_their_own() -> None:
    traffic = Traffic()
    for place in range(100):
        traffic.note(f"/x/{place}", f"METHOD{place}", 404, 5, 1, 2)
    traffic.note("/v1/rows/insert", "POST", 401, 5, 1, 2)
    found = traffic.statistics()
    assert found.requests == {"other": {"other": {404: 100}}, "rows": {"POST": {401: 1}}}
    assert (found.received_bytes["other"], found.sent_bytes["other"]) == (100, 200)
    assert found.refusals == {"unauthenticated": 1, "forbidden": 0, "overloaded": 0}
    assert found.durations_us["rows"].count == 1


def refused_by_a_cell() -> dict[str, int]:
    """Whatever it counts by kind, after it has refused what it can."""
    bench = Bench()
    late, aborted = bench.begin(), bench.begin()
    bench.commit(put(1, 1))
    bench.commit_one(late, put(1, 2))
    bench.prepare(aborted, put(3, 1), cell=0)
    bench.decide(aborted, None)
    start = bench.begin()
    moved = replace(changes(put(4, 1)), tablet=TabletId(4711))
    bench.ask(CommitOne(start, (moved,)))
    bench.ask(CommitOne(TransactionId(bench.timestamp() + (1 << 50)), (changes(put(6, 1)),)))
    bench.settle()
    return bench.nodes[CellId(0)].statistics().refused_by_kind


def refused_by_a_master() -> dict[str, int]:
    now = Now(0, 1_700_000_000_000_000)
    core = MasterCore.recover([], now)
    for request in (
        create("//a"),
        create("//a"),
        create("no path"),
        GetTable("//none"),
        MountTable("//a"),
        BeginTreeTransaction(10**9),
        CommitTreeTransaction(TreeTransactionId(4711)),
    ):
        core.handle("route", request, now)
    return core.statistics().catalog_refused_by_kind


@pytest.mark.parametrize(
    ("refuse", "kind_count_min"), [(refused_by_a_cell, 3), (refused_by_a_master, 3)]
)
def test_labels_of_errors_are_the_kinds_that_there_are(
    refuse: Callable[[], dict[str, int]], kind_count_min: int
) -> None:
    """Nothing else ends up in `kind`: neither a message nor anything that a caller made up."""
    kinds = refuse().keys()
    assert len(kinds) >= kind_count_min, kinds
    assert kinds <= ERRORS_BY_KIND.keys()
    assert all(re.fullmatch(r"[a-z_]+", kind) for kind in kinds)
