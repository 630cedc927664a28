"""SIGTERM under load: nothing that was acknowledged is lost, and nobody sees more than a retryable
error; and what probes say of a node while it reads its log."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import dodona
from dodona.errors import DodonaError
from dodona_local.launcher import LocalCluster
from dodona_local.ports import reserve_ports
from dodona_local.supervisor import Plan
from integration.slow_node import GATE
from suite.waiting import WAIT_S_MAX, wait_until

# Alone: beside others a node may take longer to start than a client waits for it.
pytestmark = [pytest.mark.integration, pytest.mark.alone]

SCHEMA = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
HERE, THERE = 0, 1_000
"""The first keys of each cell."""
STOP_SECONDS_MAX = 8.0
"""Besides the time of grace."""
STUCK_STOP_SECONDS_MAX = 45.0
"""Of a node whose disk hangs: all the bounds that there are, one after the other."""
DRAIN_MS = 4_000
"""Longer than a machine stands still: whoever balances loads has to notice in that time."""


class Drained(NamedTuple):
    cluster: LocalCluster
    said: list[str]
    """What the supervisor reports: how processes ended."""
    logs: Path


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drained]:
    """Whose gateways let load balancers notice that they are about to stop."""
    said: list[str] = []

    def with_grace(plans: list[Plan]) -> list[Plan]:
        return [
            it.with_option("--drain-ms", str(DRAIN_MS)) if it.name.startswith("gateway") else it
            for it in plans
        ]

    folder = tmp_path_factory.mktemp("drained") / "data"
    with LocalCluster(
        folder,
        proxy_count=2,
        gateway_count=2,
        is_insecure=True,
        warn=said.append,
        back_off_s_max=0.2,
        arrange=with_grace,
    ) as cluster:
        with dodona.connect(cluster.master_url) as db:
            db.create_table("//a", SCHEMA, pivot_keys=[[], [THERE]], mount=True)
        yield Drained(cluster, said, folder / "logs")


class Worker(threading.Thread):
    """Writes rising numbers to keys of its own, and remembers what was acknowledged."""

    def __init__(self, place: int, write: Callable[[list[int], int], None]) -> None:
        super().__init__(daemon=True)
        keys = [HERE + place, THERE + place]
        self.keys = keys if place % 2 else keys[place // 2 % 2 :][:1]  # one cell, or both
        self._write = write
        self.tried = self.acknowledged = self.failed_count = 0
        self.surprises: list[BaseException] = []
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            self.tried += 1
            try:
                self._write(self.keys, self.tried)
            except DodonaError as error:
                self.failed_count += 1
                if not error.is_retryable:
                    self.surprises.append(error)
            except Exception as error:  # noqa: BLE001 - told by the test
                self.surprises.append(error)
            else:
                self.acknowledged = self.tried

    def check(self, found: dict[int, int]) -> None:
        assert self.surprises == []
        assert self.acknowledged > 0
        for key in self.keys:
            assert self.acknowledged <= found[key] <= self.tried


@contextmanager
def loaded(write: Callable[[list[int], int], None], db: dodona.Client) -> Iterator[list[Worker]]:
    """Six writers, who are told to stop at the end, and whose rows are looked at then."""
    workers = [Worker(place, write) for place in range(6)]
    for worker in workers:
        worker.start()
    try:
        wait_until(lambda: all(it.acknowledged for it in workers))
        yield workers
    finally:
        for worker in workers:
            worker.is_over = True
        for worker in workers:
            worker.join()
    found = {row["k"]: row["v"] for row in db.select("//a")}
    for worker in workers:
        worker.check(found)


def terminate(drained: Drained, name: str) -> float:
    """→ how many seconds it took to end. It is ready again."""
    cluster, status = drained.cluster, drained.cluster.processes[name]
    drained.said.clear()
    assert status.pid is not None
    began = time.monotonic()
    os.kill(status.pid, signal.SIGTERM)
    wait_until(lambda: ended_of(drained.said), pause_s=0.005)
    took_s = time.monotonic() - began
    assert ended_of(drained.said)[0] == f"{name} ended (exit status 0): starting it again"
    cluster.wait_until_ready(name, start_count=status.start_count + 1)
    return took_s


def ended_of(said: list[str]) -> list[str]:
    """What the launcher said of processes that ended. On a slow machine it may also say that one is
    not ready yet."""
    return [line for line in said if " ended " in line]


def last_words(drained: Drained, name: str) -> str:
    """What the process said from the signal on, before it was started again."""
    (log,) = drained.logs.glob(f"{name.replace(' ', '-')}.log")
    return log.read_text("utf-8").rpartition("about to stop")[2]


@pytest.mark.parametrize("name", ["node 0", "node 1", "master", "proxy"])
def test_a_server_stop_loses_no_commit_and_causes_only_retryable_errors(
    drained: Drained, name: str
) -> None:
    with dodona.connect(drained.cluster.master_url) as db:

        def write(keys: list[int], value: int) -> None:
            with db.begin() as tx:
                tx.insert_rows("//a", [{"k": key, "v": value} for key in keys])

        with loaded(write, db) as workers:
            assert terminate(drained, name) < STOP_SECONDS_MAX
            assert "did not end within" not in last_words(drained, name), "all of it has ended"
            counts = [it.acknowledged for it in workers]
            pairs = [*zip(workers, counts, strict=True)]
            wait_until(lambda: all(it.acknowledged > count for it, count in pairs), "they go on")


def test_callers_behind_a_load_balancer_notice_nothing(drained: Drained) -> None:
    """Not one request fails, on connections that are kept: whoever chooses the gateway looks at
    `/readyz`, and goes elsewhere once that says no."""
    chosen, other = drained.cluster.gateway_urls
    clients: dict[int, httpx.Client] = {}

    def write(keys: list[int], value: int) -> None:
        http = clients.get(threading.get_ident())
        if http is None:
            http = clients[threading.get_ident()] = httpx.Client()
        body = {"table": "//a", "rows": [{"k": key, "v": value} for key in keys]}
        answer = http.post(f"{chosen}/v1/rows/insert", json=body)
        assert answer.status_code == 200, answer.text

    pid, start_count = _started(drained.cluster)
    assert pid is not None
    drained.said.clear()
    with dodona.connect(drained.cluster.master_url) as db, loaded(write, db) as workers:
        with httpx.Client() as http:
            began = time.monotonic()
            os.kill(pid, signal.SIGTERM)
            while http.get(f"{chosen}/readyz").status_code == 200:
                assert time.monotonic() < began + DRAIN_MS / 1000, "it says so at once"
        chosen = other
        wait_until(lambda: ended_of(drained.said), pause_s=0.005)
        assert 0 < time.monotonic() - began - DRAIN_MS / 1000 < STOP_SECONDS_MAX
    assert all(it.failed_count == 0 for it in workers)
    assert ended_of(drained.said)[0] == "gateway ended (exit status 0): starting it again"
    assert "did not end within" not in last_words(drained, "gateway")
    drained.cluster.wait_until_ready("gateway", start_count=start_count + 1)
    for http in clients.values():
        http.close()


def _started(cluster: LocalCluster) -> tuple[int | None, int]:
    """The gateway's process, and the how manieth it is."""
    status = cluster.processes["gateway"]
    return status.pid, status.start_count


def test_a_gateway_finishes_held_transactions_and_begins_none(drained: Drained) -> None:
    url = drained.cluster.gateway_urls[0]
    pid, start_count = _started(drained.cluster)
    assert pid is not None
    with httpx.Client(base_url=url) as http:
        held = http.post("/v1/transactions").json()["transaction"]
        os.kill(pid, signal.SIGTERM)
        seen: dict[str, Any] = {}
        until = time.monotonic() + DRAIN_MS / 1000 + 5
        while "refused" not in seen:  # in the time of grace all is as ever
            assert time.monotonic() < until
            assert http.get("/readyz").status_code in (200, 503)
            assert http.get("/healthz").status_code == 200
            begun = http.post("/v1/transactions")
            if begun.status_code == 201:
                assert http.post(f"/v1/transactions/{begun.json()['transaction']}/abort").is_success
            else:
                seen["refused"] = begun
        refused = seen["refused"]
        assert refused.status_code == 503
        assert refused.json()["retryable"] is True
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["connection"] == "close"
        lookup = http.post("/v1/rows/lookup", json={"table": "//a", "keys": [{"k": HERE}]})
        assert (lookup.status_code, lookup.json()["retryable"]) == (503, True)
        rows = {"table": "//a", "rows": [{"k": 77, "v": 7}]}
        assert http.post(f"/v1/transactions/{held}/insert", json=rows).status_code == 200
        assert http.post(f"/v1/transactions/{held}/commit").status_code == 200
    drained.cluster.wait_until_ready("gateway", start_count=start_count + 1)
    with dodona.connect(drained.cluster.master_url) as db:
        assert db.lookup_rows("//a", [{"k": 77}]) == [{"k": 77, "v": 7}]


# ---- a node whose disk hangs


def test_a_node_whose_disk_hangs_ends_on_sigterm_and_logs_an_error(tmp_path: Path) -> None:
    said: list[str] = []

    def hanging(plans: list[Plan]) -> list[Plan]:
        more = ("--inline-flush-us-max", "0", "--finish-ms-max", "200")
        return [
            replace(it, module="integration.hanging_node", arguments=(*it.arguments, *more))
            if it.name == "node 0"
            else it
            for it in plans
        ]

    with (
        LocalCluster(
            tmp_path / "cluster", node_count=1, arrange=hanging, warn=said.append
        ) as cluster,
        dodona.connect(cluster.master_url) as db,
        ThreadPoolExecutor(1) as pool,
    ):
        db.create_table("//a", SCHEMA, mount=True)
        db.insert_rows("//a", [{"k": 1, "v": 1}])
        (log,) = (tmp_path / "cluster").rglob("log/*.mdb")
        hang = log.parents[1] / "hang"
        hang.touch()
        writing = pool.submit(db.insert_rows, "//a", [{"k": 2, "v": 2}])
        try:
            url = cluster.node_urls[0]
            wait_until(lambda: httpx.get(f"{url}/readyz").status_code != 200, pause_s=0.05)
            pid = cluster.processes["node 0"].pid
            assert pid is not None
            os.kill(pid, signal.SIGTERM)
            until = time.monotonic() + STUCK_STOP_SECONDS_MAX
            while not ended_of(said):
                assert time.monotonic() < until
                time.sleep(0.05)
        finally:
            hang.unlink()
        assert ended_of(said)[0] == "node 0 ended (exit status 1): starting it again"
        words = last_words(Drained(cluster, said, tmp_path / "cluster" / "logs"), "node 0")
        assert "ERROR dodona.runtime: the disk does not answer" in words
        assert "Traceback" not in words
        cluster.wait_until_ready("node 0", start_count=2)
        with suppress(DodonaError):  # it can't know
            writing.result(STUCK_STOP_SECONDS_MAX)
        assert {"k": 1, "v": 1} in list(db.select("//a"))


# ---- a node that reads its log


def test_a_node_that_replays_is_alive_and_has_not_started(tmp_path: Path) -> None:
    gate, ports = tmp_path / "gate", reserve_ports(0, 1)
    url = f"http://127.0.0.1:{ports.ports[0]}"
    arguments = ["--cell", "0", "--port", str(ports.ports[0]), "--data-dir", str(tmp_path / "d")]
    process = subprocess.Popen(
        [sys.executable, "-m", "integration.slow_node", *arguments],
        env={**os.environ, GATE: str(gate)},
        stderr=subprocess.PIPE,
    )
    try:
        statuses = wait_for(url, {"healthz": 200, "startupz": 503, "readyz": 503})
        for _ in range(3):
            assert probe(url) == statuses
        gate.touch()
        # There is no master, so that it does not serve; but it has started, for good.
        wait_for(url, {"healthz": 200, "startupz": 200, "readyz": 503})
        process.terminate()
        _, said = process.communicate(timeout=WAIT_S_MAX)
        assert process.returncode == 0, said
    finally:
        process.kill()
        process.communicate()
        ports.release()


def test_a_node_can_be_stopped_while_the_node_replays_its_log(tmp_path: Path) -> None:
    ports = reserve_ports(0, 1)
    url = f"http://127.0.0.1:{ports.ports[0]}"
    arguments = ["--cell", "0", "--port", str(ports.ports[0]), "--data-dir", str(tmp_path / "d")]
    process = subprocess.Popen(
        [sys.executable, "-m", "integration.slow_node", *arguments],
        env={**os.environ, GATE: str(tmp_path / "never")},
    )
    try:
        wait_for(url, {"healthz": 200, "startupz": 503, "readyz": 503})
        process.terminate()
        assert process.wait(timeout=WAIT_S_MAX) == 0
    finally:
        process.kill()
        process.wait()
        ports.release()


def probe(url: str) -> dict[str, int]:
    """What each probe is answered with; nothing while nobody listens."""
    found = {}
    for it in ("healthz", "startupz", "readyz"):
        try:
            found[it] = httpx.get(f"{url}/{it}").status_code
        except httpx.ConnectError:
            return {}
    return found


def wait_for(url: str, wanted: dict[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}

    def is_so() -> bool:
        found.clear()
        found.update(probe(url))
        assert found.get("healthz", 200) == 200
        return found == wanted

    wait_until(is_so, lambda: found)
    return found
