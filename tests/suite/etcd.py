"""Real clusters of etcd, for tests: members on this machine that are killed, stopped and started.

Owns: their command line and their ports. Must not import: any product.
"""

import os
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from suite.waiting import wait_until

PROGRAM: Final = shutil.which("etcd")
NEEDS_ETCD: Final = pytest.mark.skipif(
    PROGRAM is None, reason="no etcd: apt-get install etcd-server"
)
HEARTBEAT_MS: Final = 50
ELECTION_MS: Final = 500
HOST: Final = "127.0.0.1"
NEW_STARTS_MAX: Final = 5
"""How often new members begin anew, if a port was taken."""


class Member:
    """One member. Its folder and its ports outlive its process."""

    def __init__(self, folder: Path, name: str, scheme: str, options: Sequence[str]) -> None:
        self.name = name
        self._scheme = scheme
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.choose_ports()

    def choose_ports(self) -> None:
        """Take ports that are free now. Another program may take one of them before the start."""
        self.port, self.peer_port = free_port(), free_port()
        self.url = f"{self._scheme}://{HOST}:{self.port}"
        self.peer_url = f"http://{HOST}:{self.peer_port}"
        self.probe_url = f"http://{HOST}:{free_port()}"

    def begin_anew(self) -> None:
        """Forget what there is, also the ports."""
        self.kill()
        shutil.rmtree(self._folder / self.name, ignore_errors=True)
        self.choose_ports()

    @property
    def has_data(self) -> bool:
        return (self._folder / self.name).exists()

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def start(self, cluster: str) -> None:
        """Start the process. It answers when `is_healthy`."""
        assert PROGRAM is not None
        command = [PROGRAM, "--name", self.name, "--data-dir", str(self._folder / self.name)]
        command += ["--heartbeat-interval", str(HEARTBEAT_MS), "--election-timeout"]
        command += [str(ELECTION_MS), "--initial-cluster", cluster]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-metrics-urls", self.probe_url]
        command += ["--listen-peer-urls", self.peer_url]
        command += ["--initial-advertise-peer-urls", self.peer_url, "--unsafe-no-fsync"]
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.probe_url}/health", timeout=2) as answer:
                return b"true" in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def is_leader(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.probe_url}/metrics", timeout=2) as answer:
                return b"\netcd_server_is_leader 1" in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """As a crash. A repeat is harmless."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class EtcdCluster:
    """Some members that know each other."""

    def __init__(
        self, folder: Path, member_count: int = 1, scheme: str = "http", options: Sequence[str] = ()
    ) -> None:
        self.members = [Member(folder, f"m{at}", scheme, options) for at in range(member_count)]

    @property
    def _text(self) -> str:
        return ",".join(f"{it.name}={it.peer_url}" for it in self.members)

    def start(self, *, is_waiting: bool = True) -> None:
        """Start all members. New ones that end, since a port was taken, begin anew with others."""
        left = 0 if any(it.has_data for it in self.members) else NEW_STARTS_MAX
        self._launch()
        while is_waiting:
            wait_until(self._is_decided, "etcd does not start")
            if not any(it.has_ended for it in self.members):
                return
            assert left, "etcd ends at its start: see the logs of the members in its folder"
            left -= 1
            for member in self.members:
                member.begin_anew()
            self._launch()

    def _launch(self) -> None:
        for member in self.members:
            member.start(self._text)

    def _is_decided(self) -> bool:
        """Whether all members are healthy, or one has ended."""
        has_ended = any(it.has_ended for it in self.members)
        return has_ended or all(it.is_healthy() for it in self.members)

    def restart(self, member: Member) -> None:
        """Kill a member and start it again, from its folder."""
        member.kill()
        member.start(self._text)

    def leader(self) -> Member:
        found = wait_until(lambda: [it for it in self.members if it.is_leader()], "no leader")
        return found[0]

    def close(self) -> None:
        for member in self.members:
            member.kill()


@contextmanager
def etcd_cluster(folder: Path, member_count: int = 1) -> Iterator[EtcdCluster]:
    """Start a cluster that ends with the block."""
    cluster = EtcdCluster(folder, member_count)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def free_port() -> int:
    """A port that was free just now."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
