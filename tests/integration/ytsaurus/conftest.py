"""Fixtures for the real `ytsaurus-client` against real gateways.

One cluster asks for no tokens and has one gateway, the other asks for tokens and has two. Each test
has a folder of its own. Clients don't repeat what failed, unless a test is about that.
"""

import gc
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yt.wrapper as yt
from yt.logger import LOGGER

from dodona_local.launcher import LocalCluster

LOGGER.setLevel(logging.CRITICAL)

PLAIN: Final[dict[str, Any]] = {
    "enable_token": False,
    "ping_failed_mode": "pass",
    "proxy": {"retries": {"enable": False}},
    "dynamic_table_retries": {"enable": False},
    "tablets_check_interval": 20,
}
"""With proxy discovery, and binary YSON in brotli, since that is installed here."""

FOLDER: Final = Path(__file__).parent
_numbers: Final = itertools.count()
MakeClient = Callable[..., yt.YtClient]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The client leaves connections behind on which errors came."""
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two configurations as one; the other wins."""
    both = {**one}
    for name, value in other.items():
        inner = both.get(name)
        is_map = isinstance(inner, Mapping) and isinstance(value, Mapping)
        both[name] = merged(inner, value) if is_map and inner is not None else value
    return both


def json_formats(*, encode_utf8: bool) -> dict[str, Any]:
    """A configuration without any YSON."""
    return {
        "structured_data_format": yt.JsonFormat(encoding="utf-8", encode_utf8=encode_utf8),
        "tabular_data_format": yt.JsonFormat(
            control_attributes_mode="none", encoding="utf-8", encode_utf8=encode_utf8
        ),
    }


CONFIGURATIONS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "gzip": {"proxy": {"content_encoding": "gzip", "enable_proxy_discovery": False}},
    "identity": {"proxy": {"content_encoding": "identity", "accept_encoding": "identity"}},
    "json": json_formats(encode_utf8=True),
    "json-utf8": json_formats(encode_utf8=False),
    "text": {"tabular_data_format": yt.YsonFormat(format="text")},
}


@pytest.fixture(scope="session")
def open_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes, and a gateway that asks for no tokens."""
    folder = tmp_path_factory.mktemp("open") / "data"
    with LocalCluster(folder, node_count=2, gateway_count=1, is_insecure=True) as running:
        yield running


@pytest.fixture(scope="session")
def guarded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes, and two gateways that ask for tokens."""
    folder = tmp_path_factory.mktemp("guarded") / "data"
    with LocalCluster(folder, node_count=2, gateway_count=2) as running:
        yield running


@pytest.fixture(scope="session")
def url(open_cluster: LocalCluster) -> str:
    """Of the gateway that asks for no tokens."""
    return open_cluster.gateway_urls[0]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Connections that are left behind end with their test: others are strict about them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def connect(collected: None) -> Iterator[MakeClient]:
    """Makes clients, which are closed at the end."""
    made: list[yt.YtClient] = []

    def make(url: str, token: str | None = None, **config: Any) -> yt.YtClient:
        configured = merged(PLAIN, config)
        if token is not None:
            configured["enable_token"] = True
        made.append(yt.YtClient(proxy=url, token=token, config=configured))
        return made[-1]

    yield make
    for client in made:
        session = yt.config.get_option("_requests_session", client)
        if session is not None:
            session.close()


@pytest.fixture
def client(url: str, connect: MakeClient) -> yt.YtClient:
    """As it is configured by default."""
    return connect(url)


@pytest.fixture
def other(url: str, connect: MakeClient) -> yt.YtClient:
    """Another client of the same gateway, in no transaction of the first."""
    return connect(url)


@pytest.fixture(params=list(CONFIGURATIONS))
def any_client(url: str, connect: MakeClient, request: pytest.FixtureRequest) -> yt.YtClient:
    """One of each configuration."""
    return connect(url, **CONFIGURATIONS[request.param])


@pytest.fixture
def folder(request: pytest.FixtureRequest, client: yt.YtClient) -> str:
    """A directory of this test's own."""
    path = f"//{request.node.path.stem}/{request.node.originalname}/{next(_numbers)}"
    client.create("map_node", path, recursive=True)
    return path


MakeTable = Callable[..., str]


@pytest.fixture
def make_table(client: yt.YtClient, folder: str) -> MakeTable:
    """Makes a mounted table of columns `name type [sort_order|lock|aggregate]`."""

    def make(*columns: str, name: str = "table", **attributes: Any) -> str:
        path = f"{folder}/{name}"
        schema = [column(it) for it in columns]
        client.create("table", path, attributes={"dynamic": True, "schema": schema, **attributes})
        client.mount_table(path, sync=True)
        return path

    return make


def column(text: str) -> dict[str, Any]:
    """`k int64 key`, `v string`, `v string lock=a required`, `n int64 aggregate=sum`."""
    name, kind, *rest = text.split()
    found: dict[str, Any] = {"name": name, "type": kind}
    for word in rest:
        option, _, value = word.partition("=")
        if option == "key":
            found["sort_order"] = "ascending"
        else:
            found[option] = value or True
    return found


MakeToken = Callable[..., str]


@pytest.fixture
def make_token(guarded_cluster: LocalCluster) -> MakeToken:
    """Makes a token with grants of the guarded cluster. → its text."""

    def make(name: str, *grants: str) -> str:
        answer = requests.post(
            f"{guarded_cluster.gateway_urls[0]}/v1/tokens",
            json={"name": name, "grants": list(grants)},
            headers={"Authorization": f"Bearer {guarded_cluster.admin_token}"},
            timeout=60,
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    return make
