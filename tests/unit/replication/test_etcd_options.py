"""The options of etcd: what is refused before anything is asked, and what never shows."""

from pathlib import Path
from typing import Any

import pytest

from dodona_replication.shell.etcd_options import Endpoint, EtcdOptions
from dodona_wire.errors import InvalidRequest

SECRET = "s3cr3t-w0rd"
URL = "https://etcd-0:2379"


def options(**changed: Any) -> EtcdOptions:
    return EtcdOptions(**{"endpoints": [URL], "cluster": "c1", **changed})


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("etcd-0", Endpoint("etcd-0", 2379, False)),
        ("10.0.0.1:1234", Endpoint("10.0.0.1", 1234, False)),
        ("http://etcd-0:1", Endpoint("etcd-0", 1, False)),
        ("https://etcd-0/", Endpoint("etcd-0", 2379, True)),
        ("https://[::1]:1234", Endpoint("::1", 1234, True)),
        ("unix:///run/etcd:1", Endpoint("/run/etcd:1", 0, False)),
    ],
)
def test_an_endpoint_is_a_url_of_a_host(url: str, endpoint: Endpoint) -> None:
    assert Endpoint.of(url) == endpoint
    assert Endpoint.of(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "unix://etcd-0",
        "ftp://etcd-0",
        "http://",
        "http://etcd-0:x",
        "http://etcd-0:99999",
        "http://etcd-0/v3",
    ],
)
def test_a_bad_endpoint_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="endpoint of etcd"):
        options(endpoints=[url])


def test_no_password_is_shown() -> None:
    assert SECRET not in repr(options(user="dodona", password=SECRET))
    with pytest.raises(InvalidRequest) as caught:
        options(endpoints=[f"https://dodona:{SECRET}@etcd-0:2379"])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"cluster": "a/b"}, "cluster"),
        ({"endpoints": []}, "0 endpoints"),
        ({"endpoints": [URL] * 17}, "17 endpoints"),
        ({"user": "dodona"}, "password"),
        ({"password": SECRET}, "user"),
        ({"key_file": Path("key.pem")}, "certificate"),
        ({"certificate_file": Path("it.pem")}, "key"),
        ({"ca_file": Path("ca.pem"), "endpoints": [URL, "etcd-1:2379"]}, "https"),
        ({"attempt_ms_max": 0}, "above 0"),
        ({"progress_ms": 5_000}, "silence_ms_max"),
    ],
    ids=lambda it: it if isinstance(it, str) else next(iter(it)),
)
def test_options_that_cannot_work_are_refused(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text) as caught:
        options(**changed)
    assert SECRET not in str(caught.value)


def test_a_key_has_the_cluster_and_the_log() -> None:
    assert options().key("cell-7") == b"/dodona/c1/logs/cell-7"
    with pytest.raises(InvalidRequest):
        options().key("../c2/logs/cell-7")
