"""What a real cluster's metrics say: what was asked for, exact counts, and who may see it."""

import re
import secrets
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

import dodona
from documents.metrics_page import TABLES
from dodona.errors import InvalidRequest, TransactionConflict
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from dodona_server.metrics import full_name
from dodona_wire.net.cluster_key import ClusterKey
from suite.waiting import wait_until

pytestmark = pytest.mark.integration

KEY, METRICS_KEY = secrets.token_hex(16), secrets.token_hex(16)
BEARER = {"authorization": f"Bearer {METRICS_KEY}"}
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
HERE, THERE = 1, 11
"""Keys of each cell."""

Samples = dict[tuple[str, frozenset[str]], float]
"""By the metric's name and the values of its labels."""


class Watched(NamedTuple):
    cluster: LocalCluster
    url: str
    """With the cluster's key in it."""
    servers: dict[str, str]

    def scrape(self, name: str) -> Samples:
        answer = httpx.get(f"{self.servers[name]}/metrics", headers=BEARER)
        assert answer.status_code == 200, answer.text
        return {
            (sample.name, frozenset(sample.labels.values())): sample.value
            for family in prometheus(answer.text)
            for sample in family.samples
        }

    def cells(self) -> Samples:
        """The sum over both nodes."""
        total: Samples = {}
        for name in ("node 0", "node 1"):
            for key, value in self.scrape(name).items():
                total[key] = total.get(key, 0) + value
        return total


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "key").write_text(KEY)
    (folder / "metrics-key").write_text(METRICS_KEY)

    def with_keys(plans: list[Plan]) -> list[Plan]:
        return [
            plan.with_option("--cluster-key-file", str(folder / "key")).with_option(
                "--metrics-key-file", str(folder / "metrics-key")
            )
            for plan in plans
        ]

    with LocalCluster(folder / "data", gateway_count=1, arrange=with_keys) as cluster:
        url = cluster.master_url.replace("http://", f"http://:{KEY}@")
        servers = {name: it.url for name, it in cluster.processes.items()}
        with dodona.connect(url) as db:
            pivots: list[list[int]] = [[], [10]]
            db.create_table("//a", SCHEMA, pivot_keys=pivots, mount=True)
            db.create_table("//n", SCHEMA, pivot_keys=pivots, mount=True, atomicity="none")
        yield Watched(cluster, url, servers)


def of(samples: Samples, name: str, *labels: str) -> float:
    return samples.get((name, frozenset(labels)), 0.0)


class Change:
    """What a block of code changed in a reading."""

    def __init__(self, before: Samples) -> None:
        self.before = before
        self.after: Samples = {}

    def of(self, name: str, *labels: str) -> float:
        return of(self.after, name, *labels) - of(self.before, name, *labels)


# ---- what there is


@pytest.mark.part("metrics of every server")
@pytest.mark.parametrize("server", ["master", "proxy", "node 0", "node 1", "gateway"])
def test_every_server_reports_all_its_metrics_in_both_formats(
    watched: Watched, server: str
) -> None:
    url = f"{watched.servers[server]}/metrics"
    plain = httpx.get(url, headers=BEARER)
    assert plain.headers["content-type"].startswith("text/plain; version=")
    families = {it.name: it for it in prometheus(plain.text)}
    asked = httpx.get(url, headers={**BEARER, "accept": OPEN_METRICS})
    assert asked.headers["content-type"].startswith("application/openmetrics-text")
    assert asked.text.endswith("# EOF\n")
    kind = server.split(" ")[0]
    for metric in TABLES[kind]:
        name = full_name(kind, metric).removesuffix("_total")
        assert families[name].type == metric.kind
        assert families[name].documentation == metric.help
    found = open_metrics(asked.text)  # type: ignore[no-untyped-call]
    assert {it.name for it in found} == {*families}
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6


LISTED = {
    "timestamps": ("dodona_master_timestamps_total", "dodona_proxy_timestamps_total"),
    "batches": ("dodona_master_timestamps_per_request_count", "dodona_proxy_batch_timestamps_sum"),
    "commits by protocol and outcome": ("dodona_node_commits_total",),
    "conflicts by kind": ("dodona_node_conflicts_total",),
    "lock waits": ("dodona_node_lock_waits_total", "dodona_node_reads_waited_total"),
    "prepared now": ("dodona_node_transactions", "dodona_node_oldest_prepared_seconds"),
    "log and flush": (
        "dodona_node_log_written_bytes_total",
        "dodona_node_log_fill_ratio",
        "dodona_node_log_flush_seconds_bucket",
        "dodona_master_log_flush_records_bucket",
    ),
    "stores": ("dodona_node_stores",),
    "chunks": ("dodona_node_chunks", "dodona_node_chunk_bytes"),
    "memory": ("dodona_node_memory_bytes", "process_resident_memory_bytes"),
    "clock differences": (
        "dodona_master_clock_difference_seconds",
        "dodona_node_oracle_clock_difference_max_seconds",
        "dodona_node_client_clock_difference_seconds",
    ),
    "held snapshots": ("dodona_node_oldest_reader_seconds",),
}
"""What was asked for, by what says it."""
RETAINED = ("dodona_node_oldest_retained_seconds", "dodona_node_newest_retained_seconds")
"""These have a value once a tablet lets old versions go, which none does in its first minute:
`unit/observed/test_counting` has the numbers."""


@pytest.mark.parametrize("item", LISTED)
def test_the_servers_report_the_metrics_of_each_listed_item(watched: Watched, item: str) -> None:
    with dodona.connect(watched.url) as db:
        db.insert_rows("//n", [{"k": HERE, "v": 1}, {"k": THERE, "v": 1}])
        with db.hold_snapshot(["//a"]) if item == "held snapshots" else db:
            names = {name for server in watched.servers for name, _ in watched.scrape(server)}
    assert names >= {*LISTED[item]}


def test_retained_timestamps_have_their_place(watched: Watched) -> None:
    page = httpx.get(f"{watched.servers['node 0']}/metrics", headers=BEARER).text
    assert {it.name for it in prometheus(page)} >= {*RETAINED}


# ---- what is exact


@pytest.mark.part("metrics of every server")
def test_transactions_are_counted_exactly(watched: Watched) -> None:
    """Each once in the cluster, whichever cells it concerned."""
    with dodona.connect(watched.url) as db:
        db.insert_rows("//a", [{"k": HERE, "v": 0}, {"k": THERE, "v": 0}])  # so that it has ids
        wait_for_decisions(watched)
        change = Change(watched.cells())
        for _ in range(3):
            with db.begin() as tx:
                tx.insert_rows("//a", [{"k": HERE, "v": 1}])
        for _ in range(2):
            db.insert_rows("//a", [{"k": THERE, "v": 2}])
        for _ in range(4):
            with db.begin() as tx:
                tx.insert_rows("//a", [{"k": HERE, "v": 3}, {"k": THERE, "v": 3}])
        late = db.begin()
        late.insert_rows("//a", [{"k": HERE, "v": 4}])
        db.insert_rows("//a", [{"k": HERE, "v": 5}])
        with pytest.raises(TransactionConflict):
            late.commit()
        db.begin().abort()  # nobody hears of it
        db.insert_rows("//n", [{"k": number, "v": 6} for number in range(5, 15)])
        for _ in range(5):
            db.lookup_rows("//a", [{"k": HERE}])
        db.select("//a")
        wait_for_decisions(watched)
        change.after = watched.cells()
    commits = "dodona_node_commits_total"
    assert change.of(commits, "one_cell", "committed") == 3
    assert change.of(commits, "blind", "committed") == 3
    assert change.of(commits, "two_phase", "committed") == 4
    assert change.of(commits, "one_cell", "conflict") == 1
    assert change.of(commits, "non_atomic", "committed") == 2, "a request for each tablet"
    others = [("blind", "conflict"), ("two_phase", "aborted"), ("one_cell", "refused")]
    assert [change.of(commits, *labels) for labels in others] == [0, 0, 0]
    assert change.of("dodona_node_participations_total", "committed") == 4
    assert change.of("dodona_node_conflicts_total", "written") == 1
    assert change.of("dodona_node_refusals_total", "transaction_conflict") == 1
    assert change.of("dodona_node_non_atomic_rows_total") == 10
    assert change.of("dodona_node_reads_total", "lookup") == 5
    assert change.of("dodona_node_reads_total", "scan") == 2, "one for each tablet"
    # One record for each commit of one cell, two of each for each cell of the others, and theirs
    # of the coordinator that all have acknowledged; the requests without atomicity.
    assert change.of("dodona_node_log_flush_records_sum") >= 3 + 3 + 4 * 4 + 2
    assert change.of("dodona_node_log_written_bytes_total") > 0


def wait_for_decisions(watched: Watched) -> None:
    """Until no transaction is under way: a decision is not waited for by who takes it."""

    def is_under_way() -> bool:
        return any(
            of(watched.cells(), "dodona_node_transactions", state)
            for state in ("waiting", "locked", "prepared", "committed")
        )

    wait_until(lambda: not is_under_way())


def test_a_client_s_clock_that_is_off_is_seen(watched: Watched) -> None:
    change = Change(watched.cells())
    with dodona.connect(watched.url) as db, pytest.MonkeyPatch.context() as patch:
        ahead_us = 3_600 * 1_000_000
        context = db._session._context
        real = context.unix_us
        patch.setattr(context, "unix_us", lambda: real() + ahead_us)
        with pytest.raises(InvalidRequest, match="check the local clock"):
            db.insert_rows("//n", [{"k": HERE, "v": 1}])
    change.after = watched.cells()
    assert change.of("dodona_node_client_clock_refusals_total") == 1
    assert change.of("dodona_node_commits_total", "non_atomic", "refused") == 1
    largest = of(watched.cells(), "dodona_node_client_clock_difference_max_seconds")
    assert 3_599 < largest < 3_700


def test_timestamps_and_batches_are_counted(watched: Watched) -> None:
    change = Change(watched.scrape("proxy"))
    master = Change(watched.scrape("master"))
    with dodona.connect(watched.url) as db:
        for _ in range(20):
            db.generate_timestamp()
    change.after = watched.scrape("proxy")
    master.after = watched.scrape("master")
    assert change.of("dodona_proxy_timestamps_total") == 20
    assert change.of("dodona_proxy_timestamp_requests_total") == 20
    assert change.of("dodona_proxy_batch_timestamps_count") == 20, "one caller, one after the other"
    assert change.of("dodona_proxy_batch_seconds_count") == 20
    assert master.of("dodona_master_timestamps_total") >= 20
    assert of(master.after, "dodona_master_cells", "alive") == 2
    assert of(master.after, "dodona_master_tables") >= 2
    newest = of(master.after, "dodona_master_newest_timestamp_seconds")
    assert abs(newest - time.time()) < 60


def test_a_gateway_counts_requests_by_route_method_and_status(watched: Watched) -> None:
    token = {"authorization": f"Bearer {watched.cluster.admin_token}"}
    with httpx.Client(base_url=watched.servers["gateway"], headers=token) as http:
        body = {"table": "//a", "keys": [{"k": HERE}]}
        assert http.post("/v1/rows/lookup", json=body).is_success
        change = Change(watched.scrape("gateway"))
        for _ in range(3):
            answer = http.post("/v1/rows/lookup", json=body)
        http.post("/v1/rows/lookup", json={"table": "//none", "keys": [{"k": 1}]})
        http.post("/v1/rows/lookup", json=body, headers={"authorization": "Bearer nobody's"})
        http.patch("/v1/rows/lookup")
        http.get(f"/v1/{secrets.token_hex(4)}")
        held = [http.post("/v1/transactions").json()["transaction"] for _ in range(2)]
        change.after = watched.scrape("gateway")
        sent_bytes, received_bytes = len(answer.content), len(answer.request.content)
        requests = "dodona_gateway_requests_total"
        assert change.of(requests, "rows", "POST", "200") == 3
        assert change.of(requests, "rows", "POST", "404") == 1
        assert change.of(requests, "rows", "POST", "401") == 1
        assert change.of(requests, "rows", "PATCH", "405") == 1
        assert change.of(requests, "other", "GET", "404") == 1
        assert change.of("dodona_gateway_request_seconds_count", "rows") == 6
        assert change.of("dodona_gateway_refusals_total", "unauthenticated") == 1
        assert change.of("dodona_gateway_received_bytes_total", "rows") >= 3 * received_bytes
        assert change.of("dodona_gateway_sent_bytes_total", "rows") >= 3 * sent_bytes
        assert change.of("dodona_gateway_transactions") == 2
        assert of(change.after, "dodona_gateway_requests_in_flight") == 1, "the scrape itself"
        http.post(f"/v1/transactions/{held[0]}/commit")
        http.post(f"/v1/transactions/{held[1]}/abort")
        change.after = watched.scrape("gateway")
    assert change.of("dodona_gateway_transactions") == 0
    assert change.of("dodona_gateway_transactions_ended_total", "committed") == 1
    assert change.of("dodona_gateway_transactions_ended_total", "aborted") == 1


@pytest.mark.parametrize("server", ["master", "proxy", "node 0", "gateway"])
def test_counters_never_fall_and_no_name_is_made_by_users(watched: Watched, server: str) -> None:
    before = watched.scrape(server)
    secret = f"//{secrets.token_hex(8)}"
    with dodona.connect(watched.url) as db:
        db.create_table(secret, SCHEMA, mount=True)
        db.insert_rows(secret, [{"k": 4711_0815, "v": 1}])
    token = {"authorization": f"Bearer {watched.cluster.admin_token}"}
    with httpx.Client(base_url=watched.servers["gateway"], headers=token) as http:
        keys = {"table": secret, "keys": [{"k": 4711_0815}]}
        assert http.post("/v1/rows/lookup", json=keys).is_success
        for method, path in (("GET", f"/v1{secret}"), (f"M{secret[2:]}", "/v1/rows/lookup")):
            assert http.request(method.upper(), path).is_client_error
    after = watched.scrape(server)
    rising = re.compile(r".*_(total|bucket|count|sum)")
    fallen = [it for it, value in before.items() if rising.fullmatch(it[0]) and after[it] < value]
    assert fallen == []
    labels = {label for _, values in after for label in values}
    assert not any(secret[2:] in label.lower() or "47110815" in label for label in labels)
    assert all(len(label) < 40 for label in labels)


# ---- who may see it


@pytest.mark.parametrize("server", ["master", "proxy", "node 0"])
def test_servers_show_metrics_to_the_cluster_key_and_the_metrics_key(
    watched: Watched, server: str
) -> None:
    url = watched.servers[server]
    cluster = {"authorization": ClusterKey(KEY).authorization()}
    assert httpx.get(f"{url}/metrics", headers=cluster).status_code == 200
    assert httpx.get(f"{url}/metrics").status_code == 401
    assert httpx.get(f"{url}/v1/statistics", headers=BEARER).status_code == 401
    upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    upgrade["sec-websocket-key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    assert httpx.get(f"{url}/rpc?version=1", headers={**upgrade, **BEARER}).status_code == 401


def test_a_gateway_shows_metrics_to_administrators_and_not_to_readers(watched: Watched) -> None:
    url = watched.servers["gateway"]
    admin = {"authorization": f"Bearer {watched.cluster.admin_token}"}
    grants = ["read://**"]
    made = httpx.post(f"{url}/v1/tokens", json={"name": "reader", "grants": grants}, headers=admin)
    reader = {"authorization": f"Bearer {made.json()['token']}"}
    assert httpx.get(f"{url}/metrics", headers=admin).status_code == 200
    assert httpx.get(f"{url}/metrics", headers=reader).status_code == 403
    assert httpx.get(f"{url}/metrics").status_code == 401
    assert httpx.get(f"{url}/v1/tables", headers=BEARER).status_code == 401


@pytest.mark.parametrize("server", ["master", "proxy", "node 0", "gateway"])
def test_probes_need_no_key(watched: Watched, server: str) -> None:
    for probe in ("healthz", "readyz", "startupz"):
        assert httpx.get(f"{watched.servers[server]}/{probe}").status_code == 200
        head = httpx.head(f"{watched.servers[server]}/{probe}")
        assert (head.status_code, head.content) == (200, b"")
    head = httpx.head(f"{watched.servers[server]}/metrics", headers=BEARER)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 1000
    assert httpx.head(f"{watched.servers[server]}/metrics").status_code == 401
