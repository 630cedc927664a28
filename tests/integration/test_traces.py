"""One trace through real processes: from a caller through the gateway to nodes and their logs."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import dodona
from dodona.errors import TransactionConflict
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from dodona_wire.net.spans import Spans
from integration.collector import Collector, Seen

pytestmark = pytest.mark.integration

SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "string"},
]
HERE, THERE = {"k": 1, "v": "x"}, {"k": 11, "v": "y"}
"""A row of each cell."""


class Traced(NamedTuple):
    cluster: LocalCluster
    collector: Collector

    @property
    def gateway(self) -> str:
        return self.cluster.gateway_urls[0]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """Two nodes and a gateway that trace, and send what they have soon."""
    folder = tmp_path_factory.mktemp("traced")
    with Collector() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")

        def with_traces(plans: list[Plan]) -> list[Plan]:
            return [
                plan.with_option("--trace-url", collector.url)
                if plan.name.startswith(("node", "gateway"))
                else plan
                for plan in plans
            ]

        with LocalCluster(
            folder / "data", gateway_count=1, is_insecure=True, arrange=with_traces
        ) as cluster:
            with dodona.connect(cluster.master_url) as db:
                db.create_table("//a", SCHEMA, pivot_keys=[[], [10]], mount=True)
            yield Traced(cluster, collector)


def fresh_trace() -> tuple[str, str]:
    """A trace's id, and what a caller says who has begun it."""
    trace = secrets.token_hex(16)
    return trace, f"00-{trace}-{secrets.token_hex(8)}-01"


def by_name(spans: list[Seen]) -> dict[str, Seen]:
    return {it.name: it for it in spans}


@pytest.mark.part("a trace over all servers")
def test_a_trace_goes_from_a_caller_through_the_gateway_to_a_log(traced: Traced) -> None:
    trace, header = fresh_trace()
    answer = httpx.post(
        f"{traced.gateway}/v1/rows/insert",
        json={"table": "//a", "rows": [HERE]},
        headers={"traceparent": header},
    )
    assert answer.status_code == 200
    names = ("gateway POST", "dodona insert_rows", "node CommitOne", "node log flush")
    spans = by_name(traced.collector.wait_for(trace, names))
    gateway, client, node, log = (spans[name] for name in names)
    assert answer.headers["traceparent"] == f"00-{trace}-{gateway.span}-01"
    assert header[36:52] == gateway.parent
    assert [client.parent, node.parent, log.parent] == [gateway.span, client.span, node.span]
    services = [gateway.service, client.service, node.service, log.service]
    assert services == ["dodona-gateway", "dodona-gateway", "dodona-node", "dodona-node"]
    assert gateway.attributes["http.response.status_code"] == 200
    assert gateway.attributes["dodona.request_id"] == answer.headers["x-request-id"]
    assert client.attributes["dodona.protocol"] == "blind"
    assert client.attributes["dodona.rows"] == 1
    assert log.attributes["dodona.records"] >= 1


@contextmanager
def tracing_client(cluster: LocalCluster) -> Iterator[tuple[dodona.Client, InMemorySpanExporter]]:
    """A client whose spans stay here."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        spans = Spans(provider, is_own=False)
        patch.setattr("dodona._io.making_drivers.client_spans", lambda: spans)
        with dodona.connect(cluster.master_url) as db:
            yield db, exporter
    provider.shutdown()


def test_a_commit_in_two_cells_is_one_trace(traced: Traced) -> None:
    with tracing_client(traced.cluster) as (db, exporter):
        with db.begin() as tx:
            tx.insert_rows("//a", [HERE, THERE])
        (commit,) = exporter.get_finished_spans()
    assert commit.name == "dodona commit"
    assert commit.attributes is not None
    assert commit.attributes["dodona.protocol"] == "two_phase"
    assert commit.attributes["dodona.outcome"] == "done"
    assert commit.attributes["dodona.cells"] == (0, 1)
    assert commit.attributes["dodona.rows"] == 2
    trace = f"{commit.context.trace_id:032x}"
    names = ("node Prepare", "node Prepare", "node Decide", "node log flush", "node log flush")
    spans = traced.collector.wait_for(trace, names)
    assert [it.name for it in spans].count("node Prepare") == 2
    below = {it.span for it in spans if it.name.startswith("node Pre")}
    assert below <= {it.parent for it in spans if "log" in it.name}


def test_spans_name_the_error_of_a_commit_and_the_rows_of_a_read(traced: Traced) -> None:
    with tracing_client(traced.cluster) as (db, exporter):
        assert db.lookup_rows("//a", [{"k": 5}, {"k": 6}]) == []
        late = db.begin()
        late.insert_rows("//a", [HERE])
        db.insert_rows("//a", [HERE])
        with pytest.raises(TransactionConflict):
            late.commit()
        lookup, _, commit = exporter.get_finished_spans()
    assert lookup.attributes is not None
    assert commit.attributes is not None
    assert (lookup.name, lookup.attributes["dodona.rows"]) == ("dodona lookup_rows", 2)
    assert not lookup.status.description
    assert commit.attributes["error.type"] == "transaction_conflict"
    trace = f"{commit.context.trace_id:032x}"
    (node,) = traced.collector.wait_for(trace, ["node CommitOne"])
    assert node.attributes["error.type"] == "transaction_conflict"


def test_a_request_that_is_not_sampled_leaves_no_trace_behind(traced: Traced) -> None:
    ids = []
    for flags in ("00", "01"):
        trace, header = fresh_trace()
        ids.append(trace)
        body = {"table": "//a", "keys": [{"k": 1}]}
        headers = {"traceparent": header[:-2] + flags}
        answer = httpx.post(f"{traced.gateway}/v1/rows/lookup", json=body, headers=headers)
        assert answer.headers["traceparent"].endswith(flags)
    traced.collector.wait_for(ids[1], ("gateway POST", "node Lookup"))
    assert traced.collector.of(ids[0]) == []


def test_a_failure_of_the_trace_collector_fails_no_request(traced: Traced) -> None:
    traced.collector.statuses += [500] * 3
    for _ in range(20):
        body = {"table": "//a", "rows": [HERE]}
        assert httpx.post(f"{traced.gateway}/v1/rows/insert", json=body).status_code == 200
    trace, header = fresh_trace()
    body = {"table": "//a", "rows": [THERE]}
    headers = {"traceparent": header}
    assert httpx.post(f"{traced.gateway}/v1/rows/insert", json=body, headers=headers).is_success
    traced.collector.wait_for(trace, ["node log flush"])
