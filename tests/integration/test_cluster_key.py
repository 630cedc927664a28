"""A cluster whose processes and clients show each other a key: everybody else stays out."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

import dodona
from dodona.errors import Unauthenticated
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from suite.waiting import wait_until

pytestmark = pytest.mark.integration

KEY = "a-key-that-nobody-else-has"
SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "string"},
]


class Keyed(NamedTuple):
    cluster: LocalCluster
    logs: Path

    @property
    def url(self) -> str:
        return self.cluster.master_url.replace("http://", f"http://:{KEY}@")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keyed")
    file = folder / "key"
    file.write_text(KEY)

    def with_key(plans: list[Plan]) -> list[Plan]:
        return [plan.with_option("--cluster-key-file", str(file)) for plan in plans]

    data = folder / "data"
    with LocalCluster(data, gateway_count=1, is_insecure=True, arrange=with_key) as cluster:
        yield Keyed(cluster, data / "logs")


def test_clients_and_servers_with_the_cluster_key_work_as_usual(keyed: Keyed) -> None:
    with dodona.connect(keyed.url) as db:
        db.create_table("//a", SCHEMA, pivot_keys=[[], [10]], mount=True)
        with db.begin() as tx:  # in both cells: they talk to each other
            tx.insert_rows("//a", [{"k": 1, "v": "x"}, {"k": 20, "v": "y"}])
        assert [row["k"] for row in db.select("//a")] == [1, 20]
        assert KEY not in repr(db)
    (gateway,) = keyed.cluster.gateway_urls
    body = {"table": "//a", "keys": [{"k": 20}]}
    found = httpx.post(f"{gateway}/v1/rows/lookup", json=body).json()
    assert found == {"rows": [{"k": 20, "v": "y"}]}
    console = f"{gateway}/console"
    wait_until(lambda: httpx.get(console).text.count("//a</a>") >= 2)  # in both cells


@pytest.mark.parametrize("key", ["", ":a-key-that-is-another@"])
def test_a_caller_without_the_cluster_key_is_refused(keyed: Keyed, key: str) -> None:
    with pytest.raises(Unauthenticated, match="does not have the cluster's key"):
        dodona.connect(keyed.cluster.master_url.replace("http://", f"http://{key}"))
    for url in (keyed.cluster.master_url, keyed.cluster.proxy_url, *keyed.cluster.node_urls):
        assert httpx.get(f"{url}/healthz").status_code == 200
        refused = httpx.get(f"{url}/v1/statistics")
        assert refused.status_code == 401
        assert refused.json()["kind"] == "unauthenticated"
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        upgrade["sec-websocket-key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
        assert httpx.get(f"{url}/rpc?version=1", headers=upgrade).status_code == 401


def test_no_log_contains_the_cluster_key(keyed: Keyed) -> None:
    texts = [path.read_text() for path in keyed.logs.iterdir()]
    assert texts
    assert not any(KEY in text for text in texts)
