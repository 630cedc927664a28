"""The key of a cluster: where it comes from, and who is let in by it."""

from pathlib import Path

import pytest

from dodona.errors import InvalidRequest
from dodona_wire.net.cluster_key import ENVIRONMENT, ClusterKey, key_headers

TEXT = "correct-horse:battery"


def test_a_cluster_key_is_read_from_a_file_that_contains_only_the_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(TEXT + "\n")
    assert ClusterKey.read(path).admits(ClusterKey(TEXT).authorization())
    path.write_text(TEXT + "\nand more")
    with pytest.raises(InvalidRequest, match="16 to 256") as caught:
        ClusterKey.read(path)
    assert TEXT not in str(caught.value)
    with pytest.raises(InvalidRequest, match="can't be read"):
        ClusterKey.read(tmp_path / "none")


@pytest.mark.parametrize("url", ["http://:{}@127.0.0.1:8500", "any:{}@127.0.0.1:8500"])
def test_the_cluster_key_in_the_url_overrides_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "another-key-altogether")
    key = ClusterKey.of_client(url.format(TEXT.replace(":", "%3A")))
    assert key is not None
    assert ClusterKey(TEXT).admits(key.authorization())


def test_a_client_takes_the_cluster_key_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENVIRONMENT, TEXT)
    key = ClusterKey.of_client("http://127.0.0.1:8500")
    assert key is not None
    assert ClusterKey(TEXT).admits(key.authorization())
    monkeypatch.delenv(ENVIRONMENT)
    assert ClusterKey.of_client("http://127.0.0.1:8500") is None
    assert key_headers(None) == {}


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic " + "A" * 1001,
        f"Bearer {TEXT}",
        ClusterKey(TEXT + "x").authorization(),
        ClusterKey(TEXT[:-1]).authorization(),
        ClusterKey(TEXT).authorization() + "=",
    ],
)
def test_a_cluster_key_admits_no_other_authorization_header(header: str | None) -> None:
    assert not ClusterKey(TEXT).admits(header)


def test_repr_and_errors_do_not_show_the_cluster_key(tmp_path: Path) -> None:
    assert TEXT not in repr(ClusterKey(TEXT))
    for text in ("short", "with a space in it, long", "x" * 257):
        (tmp_path / "key").write_text(text)
        with pytest.raises(InvalidRequest) as caught:
            ClusterKey.read(tmp_path / "key")
        assert text not in str(caught.value)
