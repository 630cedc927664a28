"""Blocks that the harness only shows, as they start servers for other machines: here they start
them, at addresses of this machine and in temporary folders."""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import dodona
from documents.blocks import blocks_of
from documents.units import Command, command_of, files_of, option, seconds, units_of
from dodona.errors import Unauthenticated

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

READY_S_MAX: Final = 60.0
ACCESS: Final = "docs/reference/access.md"
MACHINES: Final = "docs/how-to/run-on-machines.md"
KEY_LINE: Final = re.compile(r"head -c .* > /etc/dodona/key(?=;)")
PLACES: Final = {  # by unit: the machine's number, and the cell's
    "dodona-master.service": [(1, "")],
    "dodona-proxy.service": [(1, "")],
    "dodona-node@.service": [(2, "0"), (3, "1")],
    "dodona-gateway.service": [(2, ""), (3, "")],
}


class Servers:
    """What was started, and is killed in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def start(self, words: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        log = self.folder / f"log-{len(self._running)}"
        with log.open("wb") as file:
            known = {it: os.environ[it] for it in ("PATH", "LANG") if it in os.environ}
            process = subprocess.Popen(words, stderr=file, env=known | environment, cwd=self.folder)
        self._running.append((process, log))
        return process

    def wait_until_ready(self, url: str) -> None:
        """Raises TimeoutError, with what everybody said last."""
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/readyz").status_code == 200:
                    return
            time.sleep(0.05)
        said = [log.read_text()[-1000:] for _, log in self._running]
        raise TimeoutError(f"{url} is not ready: {said}")

    def close(self) -> None:
        for process, _ in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path)
    yield running
    running.close()


@pytest.fixture
def network() -> str:
    """Of this run's own: others may be tested on this machine, too."""
    return f"127.{secrets.randbelow(200) + 20}.{secrets.randbelow(256)}"


def bash(script: str) -> None:
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True, timeout=60)


def test_a_master_for_other_machines_is_started_with_a_key(
    servers: Servers, network: str, tmp_path: Path
) -> None:
    (block,) = [it for it in blocks_of(ACCESS) if it.language == "text"]
    text = block.text.replace("/etc/dodona", str(tmp_path)).replace("/data", str(tmp_path))
    assert "10.0.0.1" in text
    make_key, start = text.replace("10.0.0.1", f"{network}.1").splitlines()
    bash(make_key)
    python, *words = start.split()
    assert python == "python"
    servers.start([sys.executable, *words], {})
    servers.wait_until_ready(f"http://{network}.1:8500")
    key = (tmp_path / "key").read_text().strip()
    with dodona.connect(f"http://:{key}@{network}.1:8500") as db:
        assert db.list("/") == []
    with pytest.raises(Unauthenticated), dodona.connect(f"http://{network}.1:8500") as db:
        db.list("/")


def test_the_units_make_a_cluster_of_three_machines(
    servers: Servers, network: str, tmp_path: Path
) -> None:
    page = "".join(it.text for it in blocks_of(MACHINES) if it.language == "sh")
    (make_key,) = KEY_LINE.findall(page)
    (tmp_path / "etc").mkdir()
    bash(make_key.replace("/etc/dodona", str(tmp_path / "etc")))
    files = files_of(MACHINES)
    started: dict[str, list[subprocess.Popen[bytes]]] = {}
    urls = []
    for unit in units_of(files):
        for machine, instance in PLACES.get(unit, []):
            command = here(files, unit, instance, f"{network}.{machine}", tmp_path)
            started.setdefault(unit, []).append(servers.start(*command))
            (port,) = [it.removeprefix("--port=") for it in command.words if "--port=" in it]
            urls.append(f"http://{network}.{machine}:{port}")
    assert started.keys() == PLACES.keys()
    for url in urls:
        servers.wait_until_ready(url)
    key = (tmp_path / "etc" / "key").read_text().strip()
    with dodona.connect(f"http://:{key}@{network}.1:8500") as db:
        first = {"name": "id", "type": "int64", "sort_order": "ascending"}
        schema: Any = [first, {"name": "n", "type": "int64"}]
        db.create_table("//bank/accounts", schema, pivot_keys=[[], [10]], mount=True)
        with db.begin() as tx:  # in both cells
            tx.insert_rows("//bank/accounts", [{"id": 1, "n": 1}, {"id": 20, "n": 2}])
    backup = here(files, "dodona-backup.service", "", f"{network}.1", tmp_path)
    (tmp_path / "backups").mkdir()
    subprocess.run(backup.words, env=dict(backup.environment), check=True, timeout=120)
    (made,) = (tmp_path / "backups").iterdir()
    assert (made / "backup.json").exists()
    for unit, processes in reversed(started.items()):
        given_s = seconds(option(files, unit, "TimeoutStopSec") or "")
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [it.wait(given_s) for it in processes] == [0] * len(processes)


def here(files: dict[str, str], unit: str, instance: str, address: str, folder: Path) -> Command:
    """What a unit runs on the machine of this address, with its folders in this one."""
    network = address.rpartition(".")[0]
    places = {
        "/opt/dodona/bin/python": sys.executable,
        "/opt/dodona/bin/dodona": f"{sys.executable} -m dodona_local.cli",
        "/var/lib/dodona": str(folder / address),
        "/var/backups/dodona": str(folder / "backups"),
        "--host=0.0.0.0": f"--host={address}",
        "--drain-ms=5000": "--drain-ms=500",
        "10.0.0.1": f"{network}.1",
        "10.0.0.2": address,
    }
    found = {}
    for path, text in files.items():
        lines = [it for it in text.splitlines() if not it.startswith("#")]
        kept = "\n".join(lines).replace("/etc/dodona/key", str(folder / "etc" / "key"))
        for written, real in places.items():
            kept = kept.replace(written, real)
        found[path] = kept + "\n"
    return command_of(found, unit, instance)
