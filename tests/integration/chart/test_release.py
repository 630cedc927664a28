"""A whole release, run as the chart says it, with real processes: it becomes ready, passes its own
check, keeps its data through a rolling restart, and opens to nobody whom it should not."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)

from dodona_wire.net.cluster_key import ClusterKey  # noqa: E402
from helm_chart.pods import Release  # noqa: E402
from helm_chart.rendering import render  # noqa: E402

pytestmark = pytest.mark.integration

KEY: Final = secrets.token_urlsafe(32)
METRICS_KEY: Final = secrets.token_urlsafe(32)
TOKEN: Final = f"dodona_{'0b' * 8}_{secrets.token_urlsafe(32)}"
SECRETS: Final = {
    ("dodona-cluster-key", "key"): KEY,
    ("metrics-key", "key"): METRICS_KEY,
    ("first-token", "token"): TOKEN,
}
VALUES: Final = {
    "metrics": {"existingSecret": "metrics-key"},
    "backup": {"enabled": True, "existingClaim": "backups"},
    "proxy": {"replicas": 1, "settings": {"drain_ms": 0}},
    "node": {"replicas": 2, "settings": {"map_mib_max": 512}},
    "gateway": {
        "firstToken": {"existingSecret": "first-token"},
        "audit": {"enabled": True},
        "settings": {"drain_ms": 0},
    },
}
SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "owner", "type": "utf8"},
]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("release")
    # A network of this run's own: others may test a chart on this machine, too.
    network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}"
    with Release(render(VALUES), SECRETS, folder, network) as running:
        yield running


@pytest.fixture
def as_admin() -> dict[str, str]:
    return {"authorization": f"Bearer {TOKEN}"}


@pytest.mark.part("the chart's processes")
def test_a_release_passes_its_own_check(release: Release) -> None:
    ended = release.run("Pod", "check")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[-1] == "all is well"


def test_a_check_fails_where_there_is_no_such_cluster(release: Release, tmp_path: Path) -> None:
    wrong = {**SECRETS, ("dodona-cluster-key", "key"): "another-key-than-it-is"}
    other = Release(release.rendered, wrong, tmp_path, release.network)
    ended = other.run("Pod", "check")
    assert ended.returncode != 0
    assert "does not have the cluster's key" in ended.stderr


def test_the_first_token_is_the_one_of_the_secret(
    release: Release, as_admin: dict[str, str]
) -> None:
    body = {"path": "//orders", "schema": SCHEMA, "mount": True}
    one, other = release.of("gateway")
    assert httpx.post(f"{one.url}/v1/tables", json=body).status_code == 401
    made = httpx.post(f"{one.url}/v1/tables", json=body, headers=as_admin)
    assert made.status_code == 201, made.text
    listed = httpx.get(f"{other.url}/v1/tokens", headers=as_admin).json()
    assert [it["name"] for it in listed["tokens"]] == ["first"], "all gateways have the same file"
    audits = [pod.folder / "audit" / "audit.jsonl" for pod in (one, other)]
    lines = [json.loads(line) for file in audits for line in file.read_text().splitlines()]
    assert "//orders" in [it["path"] for it in lines]


def test_the_key_of_the_metrics_opens_those_alone(release: Release) -> None:
    scraper = {"authorization": f"Bearer {METRICS_KEY}"}
    for pod in release.pods.values():
        assert httpx.get(f"{pod.url}/metrics").status_code == 401
        found = httpx.get(f"{pod.url}/metrics", headers=scraper)
        assert (found.status_code, "_ready 1" in found.text) == (200, True)
    for pod in release.of("node"):
        assert httpx.get(f"{pod.url}/v1/statistics", headers=scraper).status_code == 401
        member = {"authorization": ClusterKey(KEY).authorization()}
        assert httpx.get(f"{pod.url}/v1/statistics", headers=member).status_code == 200


def test_data_outlive_a_rolling_restart(release: Release, as_admin: dict[str, str]) -> None:
    gateway, _ = release.of("gateway")
    table = {"path": "//kept", "schema": SCHEMA, "mount": True, "tablet_count": 2}
    assert httpx.post(f"{gateway.url}/v1/tables", json=table, headers=as_admin).is_success
    rows = [{"id": 1, "owner": "ada"}, {"id": -1, "owner": "bob"}]
    written = httpx.post(
        f"{gateway.url}/v1/rows/insert", json={"table": "//kept", "rows": rows}, headers=as_admin
    )
    assert written.is_success, written.text
    # As a StatefulSet does it: the last first, each once the one before is ready.
    for pod in [*reversed(release.of("node")), *release.of("master")]:
        assert pod.stop() == 0
        release.start(pod)
        pod.wait_until_ready()
    body = {"table": "//kept", "keys": [{"id": 1}, {"id": -1}]}
    found = httpx.post(f"{gateway.url}/v1/rows/lookup", json=body, headers=as_admin)
    assert found.json() == {"rows": rows}


def test_the_backup_job_writes_a_backup_into_its_own_folder(
    release: Release, as_admin: dict[str, str]
) -> None:
    gateway, _ = release.of("gateway")
    table = {"path": "//saved", "schema": SCHEMA, "mount": True}
    assert httpx.post(f"{gateway.url}/v1/tables", json=table, headers=as_admin).is_success
    ended = release.run("CronJob", "backup-1")
    assert ended.returncode == 0, ended.stderr
    (folder,) = (release.of("master")[0].folder.parent / "backup-1" / "backup").iterdir()
    assert (folder.name, (folder / "backup.json").is_file()) == ("backup-1", True)


def test_no_log_has_a_secret(release: Release) -> None:
    logs = [pod.log.read_text() for pod in release.pods.values()]
    assert all(logs)
    for secret in SECRETS.values():
        assert not any(secret in log for log in logs)
