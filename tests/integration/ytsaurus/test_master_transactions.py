"""Master transactions through the real client: `Transaction()` by default, nested, locks."""

import time
from typing import Any, Final

import pytest
import yt.wrapper as yt

from suite.waiting import wait_until, with_enough_time

pytestmark = pytest.mark.integration

TABLE: Final = {
    "dynamic": True,
    "schema": [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "string"},
    ],
}
Locked = yt.errors.YtCypressTransactionLockConflict
Gone = yt.errors.YtNoSuchTransaction


def test_changes_are_seen_outside_after_the_commit(
    any_client: yt.YtClient, other: yt.YtClient, folder: str
) -> None:
    client = any_client
    with client.Transaction() as begun:
        client.create("table", f"{folder}/t", attributes=TABLE)
        client.mkdir(f"{folder}/d")
        client.set(f"{folder}/@mine", 1)
        assert client.list(folder) == ["d", "t"]
        assert client.get(f"{folder}/@mine") == 1
        assert other.list(folder) == []
        assert not other.exists(f"{folder}/@mine")
        assert client.get(f"#{begun.transaction_id}/@timeout") > 0
        assert client.exists(f"//sys/transactions/{begun.transaction_id}")
    assert other.list(folder) == ["d", "t"]
    assert other.get(f"{folder}/@mine") == 1
    assert not client.exists(f"#{begun.transaction_id}")


def test_an_exception_aborts(client: yt.YtClient, folder: str) -> None:
    def fail() -> None:
        with client.Transaction():
            client.mkdir(f"{folder}/d")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert client.list(folder) == []


def test_nested_transactions_end_in_their_parents(
    client: yt.YtClient, other: yt.YtClient, folder: str
) -> None:
    with client.Transaction():
        with client.Transaction():
            client.mkdir(f"{folder}/inner")
        inner = client.Transaction()
        with client.Transaction(transaction_id=inner.transaction_id, acquire=False):
            client.mkdir(f"{folder}/aborted")
        inner.abort()
        assert client.list(folder) == ["inner"]
        assert other.list(folder) == []
    assert other.list(folder) == ["inner"]


def test_locks_keep_others_out(client: yt.YtClient, other: yt.YtClient, folder: str) -> None:
    client.mkdir(f"{folder}/d")
    with client.Transaction():
        lock = client.lock(f"{folder}/d", waitable=True, wait_for=1_000)
        assert lock["node_id"] == client.get(f"{folder}/d/@id")
        assert client.get(f"#{lock['lock_id']}/@state") == "acquired"
        with pytest.raises(Locked):
            other.set(f"{folder}/d/@mine", 1)
        with pytest.raises(Locked):
            other.remove(f"{folder}/d")
        with other.Transaction(), pytest.raises(Locked):
            other.lock(f"{folder}/d", mode="shared")
        assert other.list(f"{folder}/d") == []
    other.remove(f"{folder}/d")


def test_shared_locks_of_children_and_attributes(
    client: yt.YtClient, other: yt.YtClient, folder: str
) -> None:
    with client.Transaction(), other.Transaction():
        client.lock(folder, mode="shared", child_key="a")
        other.lock(folder, mode="shared", child_key="b")
        client.lock(folder, mode="shared", attribute_key="x")
        with pytest.raises(Locked):
            other.lock(folder, mode="shared", child_key="a")
        with pytest.raises(Locked):
            other.lock(folder, mode="shared", attribute_key="x")


def test_a_snapshot_lock_keeps_the_old_value_for_its_transaction(
    client: yt.YtClient, other: yt.YtClient, folder: str
) -> None:
    client.set(f"{folder}/@mine", "old")
    with client.Transaction():
        client.lock(folder, mode="snapshot")
        other.set(f"{folder}/@mine", "new")
        assert client.get(f"{folder}/@mine") == "old"
        assert other.get(f"{folder}/@mine") == "new"


def test_locks_that_make_no_sense(client: yt.YtClient, folder: str) -> None:
    with pytest.raises(yt.YtResponseError, match="needs a master transaction"):
        client.lock(folder)
    with client.Transaction():
        with pytest.raises(yt.YtResponseError, match="mode"):
            client.lock(folder, mode="other")
        with pytest.raises(yt.errors.YtResolveError):
            client.lock(f"{folder}/nothing")
        with pytest.raises(yt.YtResponseError, match="Only transactions and locks"):
            client.get("#0-1-c8-0/@state")


def test_rows_are_no_matter_of_master_transactions(
    url: str, client: yt.YtClient, folder: str
) -> None:
    """The real client refuses them by itself; whoever does not is refused by the gateway."""
    import requests

    begun = client.start_transaction()
    parameters = {"query": f"* from [{folder}]", "transaction_id": begun}
    answer = requests.get(f"{url}/api/v4/select_rows", params=parameters, timeout=60)
    assert answer.status_code == 400
    assert "under master transaction" in answer.json()["message"]
    client.abort_transaction(begun)


def test_a_master_transaction_ends_with_its_commit_or_its_lease(
    client: yt.YtClient, folder: str
) -> None:
    begun = client.start_transaction()
    with client.Transaction(transaction_id=begun, acquire=False):
        client.mkdir(f"{folder}/d")
    client.commit_transaction(begun)
    for call in (client.commit_transaction, client.ping_transaction):
        with pytest.raises(Gone):
            call(begun)
    assert client.list(folder) == ["d"]
    lost = client.start_transaction(timeout=1_000)
    wait_until(lambda: not client.exists(f"#{lost}"), pause_s=0.1)
    for call in (client.commit_transaction, client.ping_transaction):
        with pytest.raises(Gone):
            call(lost)
    assert not client.exists(f"#{lost}")


def test_pings_keep_a_transaction(client: yt.YtClient, folder: str) -> None:
    def hold(timeout_ms: int) -> None:
        with client.Transaction(timeout=timeout_ms):
            client.mkdir(f"{folder}/d")
            time.sleep(3 * timeout_ms / 1000)

    with_enough_time(hold, 1_000, Gone)
    assert client.list(folder) == ["d"]


def test_the_second_of_two_conflicting_transactions_gets_the_error(
    client: yt.YtClient, other: yt.YtClient, folder: str
) -> None:
    with client.Transaction():
        client.mkdir(f"{folder}/d")
        with other.Transaction(), pytest.raises(Locked):
            other.mkdir(f"{folder}/d")


@pytest.mark.parametrize("timeout", [-1, 0, 1, 10**9])
def test_time_outs_that_make_no_sense(client: yt.YtClient, timeout: int) -> None:
    with pytest.raises(yt.YtResponseError, match=r"timeout (of a master transaction )?is"):
        client.start_transaction(timeout=timeout)


def test_transactions_are_their_owners(guarded_cluster: Any, connect: Any, make_token: Any) -> None:
    url = guarded_cluster.gateway_urls[0]
    ada = connect(url, make_token("ada", "admin://**"))
    eve = connect(url, make_token("eve", "admin://**"))
    with ada.Transaction() as begun:
        for call in (eve.commit_transaction, eve.abort_transaction, eve.ping_transaction):
            with pytest.raises(Gone):
                call(begun.transaction_id)
        assert not eve.exists(f"#{begun.transaction_id}")
    with ada.Transaction(type="tablet") as begun:
        for call in (eve.commit_transaction, eve.abort_transaction, eve.ping_transaction):
            with pytest.raises(Gone):
                call(begun.transaction_id)
        assert not eve.exists(f"#{begun.transaction_id}")
