"""Two gateways that ask for tokens, and the real client: who is who, who may what, and where."""

import itertools
import json
from collections.abc import Callable
from typing import Any, Final

import pytest
import requests
import yt.wrapper as yt

from dodona_local.launcher import LocalCluster
from integration.ytsaurus.lossy import lossy_proxy
from integration.ytsaurus.plain import ask, error_of

pytestmark = pytest.mark.integration

Gone = yt.errors.YtNoSuchTransaction
TABLE: Final = {
    "dynamic": True,
    "schema": [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "string"},
    ],
}


_numbers: Final = itertools.count()


@pytest.fixture
def urls(guarded_cluster: LocalCluster) -> tuple[str, ...]:
    return guarded_cluster.gateway_urls


@pytest.fixture
def admin(guarded_cluster: LocalCluster, urls: tuple[str, ...], connect: Any) -> yt.YtClient:
    return connect(urls[0], guarded_cluster.admin_token)


@pytest.fixture
def table(admin: yt.YtClient, request: pytest.FixtureRequest) -> str:
    path = f"//gateways/{request.node.originalname}/{next(_numbers)}/t"
    admin.create("table", path, recursive=True, attributes=TABLE)
    admin.mount_table(path, sync=True)
    admin.insert_rows(path, [{"k": 1, "v": "x"}])
    return path


def test_each_gateway_names_itself(urls: tuple[str, ...]) -> None:
    for url in urls:
        hosts = requests.get(f"{url}/hosts", timeout=60).json()
        assert [f"http://{it}" for it in hosts] == [url]


def test_no_proxy_speaks_rpc(urls: tuple[str, ...]) -> None:
    url = urls[0]
    assert requests.get(f"{url}/hosts?role=rpc", timeout=60).json() == []
    for wanted, found in (("", [url]), ("?type=http", [url]), ("?type=rpc", []), ("?role=rpc", [])):
        told = requests.get(f"{url}/api/v4/discover_proxies{wanted}", timeout=60)
        assert [f"http://{it}" for it in told.json()["proxies"]] == found, wanted


def test_a_transaction_lives_at_one_gateway(
    admin: yt.YtClient,
    guarded_cluster: LocalCluster,
    urls: tuple[str, ...],
    connect: Any,
    table: str,
) -> None:
    elsewhere = connect(urls[1], guarded_cluster.admin_token)
    with admin.Transaction(type="tablet") as begun:
        admin.insert_rows(table, [{"k": 2, "v": "y"}])
        its_id = begun.transaction_id
        for call in (
            elsewhere.commit_transaction,
            elsewhere.abort_transaction,
            elsewhere.ping_transaction,
        ):
            with pytest.raises(Gone, match="Another gateway"):
                call(its_id)
        attached = elsewhere.Transaction(transaction_id=its_id, acquire=False, type="tablet")
        with attached, pytest.raises(Gone):
            elsewhere.insert_rows(table, [{"k": 3, "v": "z"}])
    rows = elsewhere.select_rows(f"k from [{table}]")
    assert [it["k"] for it in rows] == [1, 2]
    with admin.Transaction() as begun, pytest.raises(Gone):
        elsewhere.ping_transaction(begun.transaction_id)


def test_a_commit_is_known_at_the_other_gateway(
    admin: yt.YtClient, guarded_cluster: LocalCluster, urls: tuple[str, ...], table: str
) -> None:
    """When the client asks there again: the cells know what became of it."""
    begun = admin.start_transaction(type="tablet")
    with admin.Transaction(transaction_id=begun, acquire=False, type="tablet"):
        admin.insert_rows(table, [{"k": 1, "v": "z"}])
    admin.commit_transaction(begun)
    headers = {"Authorization": f"OAuth {guarded_cluster.admin_token}"}
    answers = [
        requests.post(
            f"{url}/api/v4/commit_transaction",
            json={"transaction_id": begun, "retry": True, "mutation_id": "1-2-3-4"},
            headers=headers,
            timeout=60,
        )
        for url in urls
    ]
    assert [it.status_code for it in answers] == [200, 200]
    (row,) = admin.lookup_rows(table, [{"k": 1}], versioned=True)
    committed = row.attributes["write_timestamps"][0]
    assert [it.json()["primary_commit_timestamp"] for it in answers] == [committed] * 2


@pytest.mark.parametrize("token", ["nonsense", "dodona_x_y", "dodona_" + "a" * 16 + "_" + "b" * 43])
def test_tokens_that_are_none(urls: tuple[str, ...], connect: Any, table: str, token: str) -> None:
    client = connect(urls[0], token)
    with pytest.raises(yt.errors.YtTokenError) as refused:
        client.get(f"{table}/@type")
    assert refused.value.contains_code(900)
    with pytest.raises(yt.errors.YtTokenError):
        client.lookup_rows(table, [{"k": 1}])
    with pytest.raises(yt.errors.YtTokenError):
        client.Transaction(type="tablet")
    assert token not in str(refused.value)


def test_without_a_token_only_the_first_requests_of_the_client_are_answered(
    urls: tuple[str, ...], connect: Any, table: str
) -> None:
    with pytest.raises(yt.errors.YtTokenError):
        connect(urls[0]).get(f"{table}/@type")
    for path in ("/api", "/api/v4", "/hosts"):
        assert requests.get(urls[0] + path, timeout=60).status_code == 200
    assert requests.post(f"{urls[0]}/auth/whoami", timeout=60).status_code == 401


def test_a_token_has_a_name(
    urls: tuple[str, ...], connect: Any, make_token: Any, admin: yt.YtClient
) -> None:
    assert connect(urls[1], make_token("ada", "read://x")).get_user_name() == "ada"
    assert admin.get_user_name() == "first"


def test_a_revoked_token_is_refused(
    urls: tuple[str, ...], connect: Any, make_token: Any, guarded_cluster: LocalCluster, table: str
) -> None:
    token = make_token("ada", "read://**")
    client = connect(urls[0], token)
    assert client.exists(table)
    answer = requests.delete(
        f"{urls[0]}/v1/token",
        params={"id": token.split("_")[1]},
        headers={"Authorization": f"Bearer {guarded_cluster.admin_token}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    with pytest.raises(yt.errors.YtTokenError):
        client.exists(table)


def test_calls_that_a_token_does_not_allow_are_denied(
    urls: tuple[str, ...], connect: Any, make_token: Any, table: str
) -> None:
    reader = connect(urls[0], make_token("reader", f"read:{table}"))
    assert reader.get(f"{table}/@type") == "table"
    assert isinstance(reader.get(table), yt.yson.YsonEntity)
    assert len(list(reader.lookup_rows(table, [{"k": 1}]))) == 1
    assert len(list(reader.select_rows(f"* from [{table}]"))) == 1
    folder = table.rpartition("/")[0]
    with_a_child = f"v from [{table}] join [//gateways/other] using k"
    denied: list[Callable[[], Any]] = [
        lambda: reader.insert_rows(table, [{"k": 1, "v": "y"}]),
        lambda: reader.delete_rows(table, [{"k": 1}]),
        lambda: reader.mount_table(table),
        lambda: reader.set(f"{table}/@mine", 1),
        lambda: reader.remove(table),
        lambda: reader.copy(table, f"{table}.copy"),
        lambda: reader.list(folder),
        lambda: reader.get(folder),
        lambda: reader.exists(folder),
        lambda: reader.select_rows(with_a_child),
        reader.start_transaction,
        lambda: reader.get("//sys/tablet_cells"),
    ]
    for call in denied:
        with pytest.raises(yt.YtResponseError) as refused:
            call()
        assert refused.value.is_access_denied()
    lister = connect(urls[0], make_token("lister", f"read:{folder}"))
    assert [dict(it.attributes) for it in lister.list(folder, attributes=["type"])] == [{}]
    batch = reader.create_batch_client()
    removed, shown = batch.remove(table), batch.get(f"{table}/@type")
    batch.commit_batch()
    assert yt.YtResponseError(removed.get_error()).is_access_denied()
    assert shown.get_result() == "table"


def test_no_client_can_read_the_table_of_tokens(
    urls: tuple[str, ...], connect: Any, make_token: Any
) -> None:
    client = connect(urls[0], make_token("sys", "admin://sys/**", "read://sys"))
    assert "tokens" in client.list("//sys")
    denied: list[Callable[[], Any]] = [
        lambda: client.get("//sys/tokens/@schema"),
        lambda: client.select_rows("* from [//sys/tokens]"),
        lambda: client.lookup_rows("//sys/tokens", [{"id": "x"}]),
        lambda: client.insert_rows("//sys/tokens", [{"id": "x"}]),
        lambda: client.copy("//sys", "//sys2"),
        lambda: client.get("//sys"),
    ]
    for call in denied:
        with pytest.raises(yt.YtResponseError) as refused:
            call()
        assert refused.value.is_access_denied()
    shown = client.list("//sys", attributes=["type", "schema"])
    assert {str(it): getattr(it, "attributes", {}) for it in shown}["tokens"] == {}


def test_the_client_config_is_reported_missing_and_not_denied(
    guarded_cluster: LocalCluster, urls: tuple[str, ...], connect: Any, make_token: Any, table: str
) -> None:
    """The real client asks for it with whatever token it has, and says aloud if it may not."""
    with lossy_proxy(urls[0]) as proxy:
        for _ in range(2):
            reader = connect(proxy.url, make_token("reader", f"read:{table}"))
            assert len(list(reader.lookup_rows(table, [{"k": 1}]))) == 1
        assert proxy.asked["get"] == 1
    token = make_token("reader", f"read:{table}")
    answer = ask(urls[0], "get", {"path": "//sys/client_config"}, token=token)
    assert error_of(answer)["code"] == 500
    answer = ask(urls[0], "get", {"path": "//sys/other"}, token=token)
    assert error_of(answer)["code"] == 901


def test_a_client_cannot_impersonate_another_user(
    urls: tuple[str, ...], connect: Any, guarded_cluster: LocalCluster, table: str
) -> None:
    token = guarded_cluster.admin_token
    with pytest.raises(yt.YtResponseError, match="impersonation") as refused:
        connect(urls[0], token, impersonation_user="eve").exists(table)
    assert refused.value.is_access_denied()
    assert connect(urls[0], token, impersonation_user="first").exists(table)


def test_the_audit_log_contains_the_calls_of_an_administrator(
    guarded_cluster: LocalCluster, admin: yt.YtClient, table: str
) -> None:
    folder = table.rpartition("/")[0]
    admin.mkdir(f"{folder}/alone")
    batch = admin.create_batch_client()
    batch.create("map_node", f"{folder}/of_a_batch")
    batch.get(f"{folder}/@type")
    batch.remove(f"{folder}/nothing")
    batch.commit_batch()
    logs = guarded_cluster._launch.folder.audit_log("gateway").read_text()
    lines = [json.loads(it) for it in logs.splitlines()]
    written = {it["path"]: (it["operation"], it["principal"], it["outcome"]) for it in lines}
    assert written[f"{folder}/alone"] == ("create", "first", "ok")
    assert written[f"{folder}/of_a_batch"] == ("create", "first", "ok")
    assert written[f"{folder}/nothing"] == ("remove", "first", "table_not_found")
    assert not any(it["operation"] == "get" for it in lines)
