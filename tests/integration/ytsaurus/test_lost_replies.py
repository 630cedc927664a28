"""Replies that are lost: the client asks again, and what it asked for was done once."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
import yt.wrapper as yt

from dodona_local.launcher import LocalCluster
from integration.ytsaurus.conftest import merged
from integration.ytsaurus.lossy import Lossy, lossy_proxy

pytestmark = pytest.mark.integration

PATIENT: Final = {
    "proxy": {
        "retries": {"enable": True, "backoff": {"policy": "constant_time", "constant_time": 100}}
    }
}
ASKED_MAX: Final = 12
"""With the time-out below: for 48 s, longer than a gateway tries."""
TABLE: Final = {
    "dynamic": True,
    "schema": [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "n", "type": "int64", "aggregate": "sum"},
    ],
}


@pytest.fixture
def proxy(url: str) -> Iterator[Lossy]:
    with lossy_proxy(url) as running:
        yield running


@pytest.fixture
def patient(proxy: Lossy, connect: Any) -> yt.YtClient:
    """Calls through the proxy, again and again."""
    return connect(proxy.url, **PATIENT)


@pytest.fixture
def table(client: yt.YtClient, folder: str) -> str:
    path = f"{folder}/table"
    client.create("table", path, attributes=TABLE)
    client.mount_table(path, sync=True)
    return path


def add_one(client: yt.YtClient, path: str) -> None:
    client.insert_rows(path, [{"k": 1, "n": 1}], update=True, aggregate=True)


def total(client: yt.YtClient, path: str) -> int:
    return sum(it["n"] for it in client.select_rows(f"n from [{path}]"))


@pytest.mark.parametrize("count", [1, 3])
def test_a_commit_with_a_lost_reply_is_made_once(
    client: yt.YtClient, patient: yt.YtClient, proxy: Lossy, table: str, count: int
) -> None:
    for _ in range(2):
        proxy.lose("commit_transaction", count)
        with patient.Transaction(type="tablet"):
            add_one(patient, table)
    assert total(client, table) == 2
    assert proxy.asked["commit_transaction"] == 2 * (1 + count)


def test_a_conflict_with_a_lost_reply_is_reported_on_the_retry(
    client: yt.YtClient, patient: yt.YtClient, proxy: Lossy, table: str
) -> None:
    begun = patient.Transaction(type="tablet")
    with patient.Transaction(transaction_id=begun.transaction_id, acquire=False):
        patient.insert_rows(table, [{"k": 1, "n": 5}])
    client.insert_rows(table, [{"k": 1, "n": 1}])
    proxy.lose("commit_transaction")
    with pytest.raises(yt.errors.YtTabletTransactionLockConflict):
        begun.commit()
    assert proxy.asked["commit_transaction"] == 2
    assert total(client, table) == 1


def test_a_start_with_a_lost_reply_begins_one_transaction(
    patient: yt.YtClient, proxy: Lossy, table: str
) -> None:
    proxy.lose("start_transaction", 2)
    with patient.Transaction(type="tablet"):
        add_one(patient, table)
    assert proxy.asked["start_transaction"] == 3
    assert total(patient, table) == 1


def test_changes_of_nodes_are_made_once(
    client: yt.YtClient, patient: yt.YtClient, proxy: Lossy, folder: str
) -> None:
    for command in ("create", "copy", "move", "remove", "set", "mount_table", "execute_batch"):
        proxy.lose(command)
    path = f"{folder}/table"
    its_id = patient.create("table", path, attributes=TABLE)
    assert its_id == client.get(f"{path}/@id")
    copied = patient.copy(path, f"{folder}/copy")["node_id"]
    assert patient.move(f"{folder}/copy", f"{folder}/moved")["node_id"] != its_id
    assert copied != its_id
    patient.set(f"{path}/@mine", 1)
    patient.mount_table(path, sync=True)
    patient.remove(f"{folder}/moved")
    batch = patient.create_batch_client()
    made = batch.create("map_node", f"{folder}/d")
    batch.commit_batch()
    assert made.is_ok()
    assert client.list(folder) == ["d", "table"]
    assert client.get(f"{path}/@mine") == 1
    for command in ("create", "copy", "move", "remove", "set", "mount_table", "execute_batch"):
        assert proxy.asked[command] == 2, command


def test_a_master_transaction_is_committed_once(
    client: yt.YtClient, patient: yt.YtClient, proxy: Lossy, folder: str
) -> None:
    proxy.lose("commit_transaction")
    proxy.lose("start_transaction")
    with patient.Transaction():
        patient.mkdir(f"{folder}/d")
    assert client.exists(f"{folder}/d")
    assert proxy.asked["commit_transaction"] == 2


def test_the_gateway_ends_within_the_commit(tmp_path: Path, connect: Any) -> None:
    """The reply is lost, and the gateway that held the transaction with it: the cells know."""
    with (
        LocalCluster(tmp_path / "data", gateway_count=1, is_insecure=True) as cluster,
        lossy_proxy(cluster.gateway_urls[0]) as proxy,
    ):
        patient = connect(proxy.url, **PATIENT)
        patient.create("table", "//t", attributes=TABLE)
        patient.mount_table("//t", sync=True)
        begun = patient.Transaction(type="tablet", ping=False)
        with patient.Transaction(transaction_id=begun.transaction_id, acquire=False):
            add_one(patient, "//t")
        proxy.lose("commit_transaction")
        proxy.when_lost = lambda: cluster.kill("gateway")
        begun.commit()
        assert total(patient, "//t") == 1
        assert cluster.processes["gateway"].start_count == 2
        lost = patient.start_transaction(type="tablet")
        cluster.kill("gateway")
        with pytest.raises(yt.errors.YtNoSuchTransaction):
            patient.commit_transaction(lost)


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[tuple[LocalCluster, Lossy]]:
    """A cluster of its own whose cells may stand still, and a proxy to its gateway."""
    with (
        LocalCluster(tmp_path / "data", gateway_count=1, is_insecure=True) as cluster,
        lossy_proxy(cluster.gateway_urls[0]) as proxy,
    ):
        yield cluster, proxy


def stand(cluster: LocalCluster, *, is_still: bool) -> None:
    for node in ("node 0", "node 1"):
        (cluster.pause if is_still else cluster.resume)(node)


@pytest.mark.parametrize("is_known_by_the_cells", [True, False])
def test_cells_that_stand_still_within_a_commit(
    standing: tuple[LocalCluster, Lossy], connect: Any, is_known_by_the_cells: bool
) -> None:
    """For longer than the gateway waits. If the commit may have come to them, the client asks again
    until they say; if it can't have, it is told at once, and does not repeat it in vain."""
    cluster, proxy = standing
    patient = connect(proxy.url, **merged(PATIENT, {"proxy": {"request_timeout": 4_000}}))
    patient.create("table", "//t", attributes=TABLE)
    patient.mount_table("//t", sync=True)
    if is_known_by_the_cells:  # the gateway is connected with them
        assert total(patient, "//t") == 0
    begun = patient.Transaction(type="tablet", ping=False)
    with patient.Transaction(transaction_id=begun.transaction_id, acquire=False):
        add_one(patient, "//t")
    stand(cluster, is_still=True)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(begun.commit)
        asked_max = 3 if is_known_by_the_cells else ASKED_MAX
        try:
            while proxy.asked["commit_transaction"] < asked_max and not committed.done():
                time.sleep(0.1)
        finally:
            stand(cluster, is_still=False)
        error = committed.exception(timeout=60)
    if is_known_by_the_cells:
        assert error is None
        assert total(patient, "//t") == 1
    else:
        assert isinstance(error, yt.YtResponseError)
        assert error.contains_code(11103)
        assert total(patient, "//t") == 0
