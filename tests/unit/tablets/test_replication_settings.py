"""The settings of a node whose log has copies: read, and refused together."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dodona.errors import InvalidRequest
from dodona_tablets.shell.replicated_node import replication_of
from dodona_tablets.shell.settings import NodeSettings

PLACES = {
    "replicas": "http://a:1, http://b:2,http://c:3",
    "etcd": "http://etcd-0:2379,unix:///run/etcd-1",
    "object_store": "s3://bucket/prefix",
}


def settings(**options: Any) -> NodeSettings:
    return NodeSettings(cell=0, data_dir=Path("data"), **options)


def test_without_replicas_the_log_is_in_the_folder() -> None:
    assert not settings().is_replicated


def test_addresses_have_commas_between_them() -> None:
    found = settings(**PLACES)
    assert found.is_replicated
    assert found.replica_urls == ("http://a:1", "http://b:2", "http://c:3")
    assert found.etcd_urls == ("http://etcd-0:2379", "unix:///run/etcd-1")


def test_the_environment_has_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLACES.items():
        monkeypatch.setenv(f"DODONA_NODE_{name.upper()}", value)
    assert settings().replica_urls == ("http://a:1", "http://b:2", "http://c:3")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"etcd": ""}, "with replicas, set etcd, too"),
        ({"etcd": "", "object_store": ""}, "with replicas, set etcd and object-store, too"),
        ({"replicas": ""}, "of no use without replicas"),
        ({"replicas": "http://a:1"}, "copies is 3, but replicas names 1"),
        ({"replicas": "a,b,c"}, "must be a URL"),
        ({"copies": 2, "copies_min": 3}, r"copies \(2\) is below copies-min \(3\)"),
        ({"cluster": "a/b"}, "can't be the name of this cluster"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        settings(**{**PLACES, **options})


def test_a_log_gets_what_the_settings_say(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hidden\n")
    found = replication_of(
        settings(
            **PLACES,
            cluster="home",
            copies=2,
            copies_min=1,
            lease_ms=0,
            etcd_user="dodona",
            etcd_password_file=password,
        )
    )
    assert (found.cluster, found.copies, found.limits.lease_ms) == ("home", (2, 1), 0)


def test_a_password_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot read the password of etcd's user"):
        replication_of(settings(**PLACES, etcd_user="dodona", etcd_password_file=tmp_path / "none"))
