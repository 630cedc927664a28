"""What people see of a cluster whose logs have copies: in metrics, commands, REST, the console."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import dodona
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from dodona_server.metrics import full_name
from dodona_tablets.shell.replication_metrics import REPLICATION_METRICS
from suite.etcd import NEEDS_ETCD
from suite.waiting import wait_until

pytestmark = [pytest.mark.integration, NEEDS_ETCD]

SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("seen")
    with LocalCluster(
        folder / "data", node_count=1, gateway_count=1, is_insecure=True, replicas=Replicas(3)
    ) as it:
        with dodona.connect(it.master_url, timeout_ms=60_000) as db:
            db.create_table("//t", schema=SCHEMA, mount=True)
            db.insert_rows("//t", [{"k": 1, "v": 1}])
        yield it


def samples_of(cluster: LocalCluster) -> dict[str, float]:
    """By name and labels; only those of the node's own."""
    text = httpx.get(f"{cluster.node_urls[0]}/metrics", timeout=30).raise_for_status().text
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("dodona_node_")
    }


def run(cluster: LocalCluster, *words: str) -> Any:
    command = [sys.executable, "-m", "dodona_local.cli", "cluster", *words, "--format", "json"]
    command += ["--url", cluster.master_url]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    return msgspec.json.decode(done.stdout)


def copies_of(cluster: LocalCluster) -> Any:
    url = f"{cluster.gateway_urls[0]}/v1/cluster/copies"
    return httpx.get(url, timeout=30).raise_for_status().json()


def replica_urls(cluster: LocalCluster) -> list[str]:
    return [cluster.processes[f"replica {it}"].url for it in range(3)]


@pytest.mark.part("the copies of a log, in each place where people look")
def test_the_copies_are_in_the_metrics_the_status_the_console_and_rest(
    cluster: LocalCluster,
) -> None:
    urls = replica_urls(cluster)
    wait_until(
        lambda: samples_of(cluster)["dodona_node_replication_replicas member"] == 3,
        "the log has not got its copies",
    )
    names = {it.partition(" ")[0] for it in samples_of(cluster)}
    known = {full_name("node", it) for it in REPLICATION_METRICS}
    assert known - names == {"dodona_node_chunk_cache_limit_bytes"}, "there is no limit"
    parts = run(cluster, "status")
    assert [it["address"] for it in parts if it["part"] == "replica"] == urls
    (cell,) = [it for it in parts if it["part"] == "cell 0"]
    assert (cell["copies"], cell["epoch"]) == ("3 of 3 copies", 1)
    assert [(it["address"], it["role"]) for it in run(cluster, "copies")] == [
        (it, "member") for it in urls
    ]
    (log,) = copies_of(cluster)["logs"]
    assert (log["cell"], log["owner"], log["text"]) == (0, cell["owner"], "3 of 3 copies")
    page = f"{cluster.gateway_urls[0]}/console"

    def has_replicas() -> bool:
        shown = httpx.get(page, timeout=30).text
        return "3 of 3 copies" in shown and all(it in shown for it in urls)

    wait_until(has_replicas, "the console does not show the replicas")


@pytest.mark.rest("the unit tests of the report show it without processes")
def test_a_replica_that_stands_still_is_named_until_it_is_back(cluster: LocalCluster) -> None:
    url = replica_urls(cluster)[1]

    def text() -> str:
        (log,) = copies_of(cluster)["logs"]
        return str(log["text"])

    before = samples_of(cluster)
    cluster.pause("replica 1")
    begin = f"2 of 3 copies: {url} "
    wait_until(lambda: f"{url} has not answered for" in text(), "nothing is said of the replica")
    assert text().startswith(begin)
    during = samples_of(cluster)
    assert during["dodona_node_replication_replicas member"] == 2
    assert during[f"dodona_node_replication_silent_seconds {url}"] >= 1
    dropped = "dodona_node_replication_set_changes_total dropped"
    assert during[dropped] == before[dropped] + 1
    cluster.resume("replica 1")
    wait_until(lambda: text() == "3 of 3 copies", "the replica has not come back")


@pytest.mark.rest("the tests of the watch show it without processes")
def test_an_etcd_that_stands_still_is_measured(cluster: LocalCluster) -> None:
    name = "dodona_node_replication_coordinator_silent_seconds"
    assert samples_of(cluster)[name] < 10
    for index in range(3):
        cluster.pause(f"etcd {index}")
    wait_until(lambda: samples_of(cluster)[name] > 10, "etcd does not seem to be away")
    assert "etcd has not answered for" in run(cluster, "status")[2]["copies"]
    assert samples_of(cluster)["dodona_node_replication_serving"] == 1
    for index in range(3):
        cluster.resume(f"etcd {index}")
    wait_until(lambda: samples_of(cluster)[name] < 5, "etcd does not seem to be back")
