"""The compose file, run as it says: each service is a process of this machine, with its own
command, variables, volumes and health check. What Compose itself would do is not shown here."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

NEEDED = "Helm comes with the extra `chart`, for Linux on x86-64 only"
pytest.importorskip("helm_python", reason=NEEDED)

from helm_chart import COMPOSE  # noqa: E402
from helm_chart.compose import PREPARE, PYTHON, TOOLS  # noqa: E402
from helm_chart.compose_file import Service, read_compose  # noqa: E402
from helm_chart.kubelet import entry_point  # noqa: E402

pytestmark = pytest.mark.integration

HEALTHY_S_MAX: Final = 60.0
COMMAND_S_MAX: Final = 60.0
PAUSE_S: Final = 0.2
"""Between two health checks. Compose waits longer."""


class Project:
    """All services of the file: an address on loopback for each, and a folder for each volume."""

    def __init__(self, folder: Path, network: str) -> None:
        self._file = read_compose(COMPOSE)
        self._folder = folder
        self.addresses = {
            name: f"{network}.{number}" for number, name in enumerate(self._file.services, 1)
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for volume in self._file.volumes:
            (folder / volume).mkdir()

    def prepare(self) -> None:
        """As Compose does before all others. Only root may give files to others, so the user is
        the one who runs this."""
        service = self._file.services[PREPARE]
        words = [*service.entrypoint, *service.command[:-1], str(os.getuid())]
        volumes = {it.rpartition("/")[0] for it in service.mounts}
        assert volumes == {"/volumes"}
        placed = [it.replace("/volumes", str(self._folder)) for it in words]
        self._run(service, placed)

    def start(self) -> None:
        for service in self._servers():
            words = [*entry_point(service.role), *service.command]
            with self.log(service.name).open("wb") as log:
                self.running[service.name] = subprocess.Popen(
                    self._here(service, words), env=self._environment(service), stderr=log
                )

    def wait_until_healthy(self) -> None:
        """By the checks of the file. Raises TimeoutError."""
        deadline = time.monotonic() + HEALTHY_S_MAX
        for service in self._servers():
            words = self._here(service, service.health[1:])
            timeout_s = float(service.raw["healthcheck"]["timeout"].removesuffix("s"))
            while not _passes(words, timeout_s):
                if time.monotonic() > deadline:
                    said = self.log(service.name).read_text()[-2000:]
                    raise TimeoutError(f"{service.name} is not healthy: {said}")
                time.sleep(PAUSE_S)

    def dodona(self, *words: str) -> str:
        """What `docker compose run tools WORDS` prints."""
        service = self._file.services[TOOLS]
        return self._run(service, self._here(service, [*service.entrypoint, *words]))

    def stop(self) -> dict[str, int]:
        """The exit status of each, within the time that the file gives. Raises TimeoutExpired."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        given_s = {
            it.name: int(it.raw["stop_grace_period"].removesuffix("s")) for it in self._servers()
        }
        return {name: it.wait(given_s[name]) for name, it in self.running.items()}

    def kill(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def file(self, volume: str, name: str) -> Path:
        return self._folder / volume / name

    def _servers(self) -> list[Service]:
        return [it for it in self._file.services.values() if "healthcheck" in it.raw]

    def _run(self, service: Service, words: list[str]) -> str:
        ended = subprocess.run(
            [sys.executable if it == PYTHON else it for it in words if it != "-I"],
            env=self._environment(service),
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S_MAX,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def _here(self, service: Service, words: list[str]) -> list[str]:
        """With this Python, and with addresses and folders of this machine. Published is the port
        of the gateway at its own address."""
        own = self.addresses[service.name]
        return [self._placed(service, it, own) for it in words if it != "-I"]

    def _environment(self, service: Service) -> dict[str, str]:
        own = self.addresses[service.name]
        variables = {
            name: self._placed(service, it, own) for name, it in service.environment.items()
        }
        paths = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return {**paths, **variables}

    def _placed(self, service: Service, text: str, own: str) -> str:
        for place, volume in service.mounts.items():
            text = re.sub(rf"(?<![\w.]){place}(?=/|$|\s)", str(self._folder / volume), text)
        for name, address in self.addresses.items():
            text = text.replace(f"http://{name}:", f"http://{address}:")
        text = text.replace(f"{PYTHON} -I", sys.executable).replace(PYTHON, sys.executable)
        return text.replace("127.0.0.1", own).replace("0.0.0.0", own)


def _passes(words: list[str], timeout_s: float) -> bool:
    try:
        ended = subprocess.run(words, check=False, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    # A network of this run's own: others may test on this machine, too.
    network = f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}"
    found = Project(tmp_path, network)
    yield found
    found.kill()


def test_the_services_become_a_cluster_that_is_closed_and_ends_in_time(project: Project) -> None:
    project.prepare()
    project.start()
    project.wait_until_healthy()
    found = json.loads(project.dodona("cluster", "status", "--format", "json"))
    assert [it["part"] for it in found] == ["master", "proxy", "cell 0", "cell 1"]
    assert {it["state"] for it in found} == {"ready"}
    project.dodona("create", "//shop/orders", "--schema", "id:int64:key,total:double")
    gateway = f"http://{project.addresses['gateway']}:8502/v1"
    assert httpx.get(f"{gateway}/tables").status_code == 401
    token = project.file("first-token", "token").read_text().strip()
    as_admin = {"authorization": f"Bearer {token}"}
    rows = {"table": "//shop/orders", "rows": [{"id": 1, "total": 9.5}]}
    assert httpx.post(f"{gateway}/rows/insert", json=rows, headers=as_admin).status_code == 200
    master = f"http://{project.addresses['master']}:8500"
    assert httpx.get(f"{master}/v1/master-transactions").status_code == 401
    project.dodona("backup", "/backups/monday")
    assert project.file("backups", "monday/backup.json").exists()
    assert project.stop() == dict.fromkeys(project.running, 0)
