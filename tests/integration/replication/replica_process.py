"""A log replica as a process, for tests.

Owns: its start, its end, its address and its id.
"""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from dodona_wire.messages.replicas import LogRequest
from suite.programs import program
from suite.waiting import WAIT_S_MAX, wait_until


class Replica:
    """The process, its address, and its id."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.words = [sys.executable, "-m", "dodona_tablets", "replica", "--cluster", "home"]
        self.words += ["--data-dir", str(folder), "--port", str(port)]
        self._stack = ExitStack()
        self.process: subprocess.Popen[Any]

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        self.process = self._stack.enter_context(program(self.words))

    def wait_until_ready(self) -> None:
        wait_until(self._is_ready, "the replica does not get ready")
        self.id = str(self.statistics()["identity"]["replica"])

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, "the replica ended"
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_S_MAX)

    def statistics(self) -> Any:
        return httpx.get(f"{self.url}/v1/statistics").raise_for_status().json()

    def request(self, kind: type[LogRequest], log: str, epoch: int, *fields: Any) -> Any:
        return kind("home", log, self.id, epoch, *fields)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._stack.close()
