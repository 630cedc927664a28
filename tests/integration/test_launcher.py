"""`dodona up` and `LocalCluster` with the real servers: what they print, survive and leave behind.

Owns: the launcher as its users see it. How processes are kept up is in test_launcher_supervisor.
"""

import importlib.metadata
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

import dodona
import dodona_local.cli
import dodona_local.cli.extras
from dodona.errors import FolderInUse
from dodona_local.errors import ExtraMissing, LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.launcher import LocalCluster
from dodona_local.ports import HOST, reserve_ports
from dodona_local.supervisor import Plan
from suite.programs import program

pytestmark = pytest.mark.integration

COMMAND: Final = (sys.executable, "-m", "dodona_local.cli")
STOP_WAIT_S_MAX: Final = 60.0
SCHEMA: Final = (
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
)


@contextmanager
def up(data_dir: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """`dodona up`, killed at the end if it still runs."""
    with program(
        [*COMMAND, "up", "--data-dir", str(data_dir), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until_ready(process: "subprocess.Popen[str]") -> dict[str, str]:
    """The addresses printed, by name."""
    assert process.stdout is not None
    addresses = {}
    for line in iter(process.stdout.readline, "ready\n"):
        assert line, "it ended before it was ready"
        name, _, url = line.rstrip("\n").rpartition(" ")
        addresses[name] = url
    return addresses


def without_waits(lines: Iterable[str]) -> list[str]:
    """What else was said: on a slow machine the launcher also says what it waits for."""
    return [line for line in lines if " is not ready yet: " not in line]


def is_served(url: str) -> bool:
    try:
        with socket.create_connection((HOST, httpx.URL(url).port or 0), timeout=1):
            return True
    except OSError:
        return False


@pytest.mark.part("dodona up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_prints_addresses_serves_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    with up(tmp_path / "data", "--port-base", "0") as process:
        addresses = read_until_ready(process)
        token = Path(addresses.pop("admin token in"))
        assert token.read_text().startswith("dodona_")
        assert token.stat().st_mode & 0o777 == 0o600
        assert addresses.pop("console") == f"{addresses['gateway']}/console"
        assert list(addresses) == ["master", "proxy", "gateway", "node 0", "node 1"]
        for url in addresses.values():
            assert httpx.get(f"{url}/healthz").status_code == 200
            assert httpx.get(f"{url}/readyz").status_code == 200
        process.send_signal(number)
        assert process.wait(STOP_WAIT_S_MAX) == 0
        assert process.stderr is not None
        assert without_waits(process.stderr) == []
    assert not any(map(is_served, addresses.values()))
    DataFolder(tmp_path / "data").close()  # every process that inherited the lock is gone
    logs = sorted(path.name for path in (tmp_path / "data" / "logs").iterdir())
    assert logs == [
        "fork-server.log",
        "gateway-audit.jsonl",
        "gateway.log",
        "master.log",
        "node-0.log",
        "node-1.log",
        "proxy.log",
    ]


@pytest.mark.parametrize("options", [(), ("--insecure",)])
def test_the_gateway_requires_a_token_unless_an_option_turns_tokens_off(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with up(tmp_path / "data", "--port-base", "0", "--nodes", "1", *options) as process:
        addresses = read_until_ready(process)
        url = f"{addresses['gateway']}/v1/timestamps"
        unknown = httpx.post(url, json={})
        if options:
            assert "admin token in" not in addresses
            assert unknown.status_code == 200
        else:
            assert unknown.status_code == 401
            token = Path(addresses["admin token in"]).read_text().strip()
            headers = {"authorization": f"Bearer {token}"}
            assert httpx.post(url, json={}, headers=headers).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_WAIT_S_MAX) == 0
        assert process.stderr is not None
        assert ("asks for no tokens" in process.stderr.read()) == bool(options)


def test_the_servers_end_when_the_up_command_is_killed(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--port-base", "0", "--nodes", "1") as process:
        addresses = read_until_ready(process)
        del addresses["admin token in"], addresses["console"]
        assert all(map(is_served, addresses.values()))
        process.kill()
        process.wait()
    DataFolder(tmp_path / "data").close()
    assert not any(map(is_served, addresses.values()))


def complaint(data_dir: Path, *options: str) -> str:
    """What `dodona up` says when it refuses: one line, nothing else, status 1."""
    with up(data_dir, *options) as process:
        said, complained = process.communicate(timeout=STOP_WAIT_S_MAX)
    assert (said, process.returncode) == ("", 1)
    assert complained.count("\n") == 1
    return complained


def test_a_taken_port_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        text = complaint(tmp_path / "data", "--port-base", str(port - 3))
    assert text.startswith("dodona: port ")
    assert f"port {port} is not free" in text


def test_a_folder_in_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    text = complaint(tmp_path / "data", "--port-base", "0")
    folder.close()
    assert text.startswith(f"dodona: {tmp_path / 'data'} is in use by another process (pid ")


def test_a_folder_is_either_a_cluster_s_or_an_embedded_database_s(tmp_path: Path) -> None:
    """Both keep their data alike, so either may go on where the other stopped, but not beside."""
    with dodona.open(str(tmp_path)) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        db.insert_rows("//t", [{"k": 1, "v": 2}])
        with pytest.raises(LaunchFailed, match="in use by another process"):
            LocalCluster(tmp_path, node_count=1).__enter__()
    with LocalCluster(tmp_path, node_count=1) as cluster:
        with pytest.raises(FolderInUse):
            dodona.open(str(tmp_path))
        with dodona.connect(cluster.master_url) as db:
            assert list(db.select("//t")) == [{"k": 1, "v": 2}]


@pytest.mark.part("kill -9 under a supervisor")
def test_a_cluster_restarts_killed_servers_at_the_same_addresses(tmp_path: Path) -> None:
    said: list[str] = []
    with LocalCluster(tmp_path / "data", warn=said.append) as cluster:
        urls = (cluster.master_url, cluster.proxy_url, *cluster.node_urls)
        assert len(set(urls)) == 4
        for name in ("master", "proxy", "node 0", "node 1"):
            before = cluster.processes[name]
            cluster.kill(name)
            cluster.wait_until_ready(name, start_count=2)
            after = cluster.processes[name]
            assert (after.url, after.start_count) == (before.url, 2)
            assert after.pid != before.pid
            assert httpx.get(f"{after.url}/readyz").status_code == 200
        left = [status.pid for status in cluster.processes.values()]
    ended = [line.partition(" ended")[0] for line in without_waits(said)]
    assert ended == ["master", "proxy", "node 0", "node 1"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in left)


def test_a_cluster_can_have_several_proxies_and_callers_can_change_its_plans(
    tmp_path: Path,
) -> None:
    planned: list[str] = []

    def arrange(plans: list[Plan]) -> list[Plan]:
        planned.extend(plan.name for plan in plans)
        return [
            plan.with_option("--public-url", "http://127.0.0.1:1")
            if plan.name == "proxy 1"
            else plan.with_option("--port", plan.url.rpartition(":")[2])
            for plan in plans
        ]

    with LocalCluster(tmp_path, node_count=1, proxy_count=2, arrange=arrange) as cluster:
        assert list(cluster.processes) == planned == ["master", "proxy", "proxy 1", "node 0"]
        assert cluster.node_urls == (cluster.processes["node 0"].url,)
        with dodona.connect(cluster.master_url) as db:
            proxies = set(db.get_cluster().proxies)
        assert proxies == {cluster.proxy_url, "http://127.0.0.1:1"}


def test_a_paused_process_does_not_answer_until_the_process_is_resumed(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, node_count=1) as cluster:
        url = f"{cluster.node_urls[0]}/readyz"
        cluster.pause("node 0")
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(url, timeout=0.5)
        cluster.resume("node 0")
        assert httpx.get(url, timeout=STOP_WAIT_S_MAX).status_code == 200
        assert cluster.processes["node 0"].start_count == 1


def test_a_cluster_that_cannot_start_reports_the_reason_and_releases_its_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "master").write_text("a file where the master wants a folder")
    with pytest.raises(LaunchFailed, match=r"master failed to start 5 times in a row"):
        LocalCluster(tmp_path / "data", node_count=1).__enter__()
    DataFolder(tmp_path / "data").close()


def test_a_taken_port_leaves_the_folder_free(tmp_path: Path) -> None:
    reservation = reserve_ports(0, 3)
    reservation.release()
    with (
        socket.create_server((HOST, reservation.ports[2])),
        pytest.raises(LaunchFailed, match="is not free"),
    ):
        LocalCluster(tmp_path, node_count=1, port_base=reservation.ports[0]).__enter__()
    DataFolder(tmp_path).close()


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


def test_help_lists_the_commands_without_heavy_imports() -> None:
    text = run("--help").stdout
    assert "up " in text
    assert "demo " in text
    heavy = "{'pyspark', 'pyarrow', 'fastapi', 'lmdb', 'httpx'}"
    check = f"import sys, dodona_local.cli; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"server": ("lmdb", "no_such_package"), "demo": ("also_not_there",)}
    monkeypatch.setattr(dodona_local.cli.extras, "PACKAGES_BY_EXTRA", packages)
    with pytest.raises(ExtraMissing) as raised:
        dodona_local.cli.extras.require_extras("server", "demo")
    assert "(no_such_package, also_not_there)" in raised.value.message
    assert "pip install 'dodona[server,demo]'" in raised.value.message


def test_the_extras_are_those_of_the_distribution() -> None:
    for extra in dodona_local.cli.extras.PACKAGES_BY_EXTRA:
        dodona_local.cli.extras.require_extras(extra)


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == f"dodona {importlib.metadata.version('dodona')}\n"
