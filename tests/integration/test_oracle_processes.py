"""Real masters and proxies: killed while timestamps are asked for, restarted, run twice."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dodona._io.oracle import OracleClient
from dodona.errors import DodonaError
from dodona.types import Timestamp, unix_us_from_timestamp
from dodona_server.process import EXIT_STATUS_SURPRISE
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange
from dodona_wire.net.peer import Peer
from dodona_wire.net.rpc_urls import rpc_url
from suite.waiting import WAIT_S_MAX, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.alone,  # it says how soon a master answers
]

COLUMNS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "any"},
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A master or a proxy that can be killed and started again with the same arguments."""

    def __init__(self, role: str, port: int, *arguments: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.command = [sys.executable, "-m", "dodona_oracle", role, "--port", str(port)]
        self.command += arguments
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)

    def end(self, number: int) -> tuple[int, str]:
        """Send a signal; the exit status and what the process said."""
        assert self.process is not None
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=WAIT_S_MAX)
        status = self.process.returncode
        self.process = None
        return status, said

    async def wait_until_ready(self, is_ready: bool = True) -> None:
        assert self.process is not None
        async with httpx.AsyncClient(trust_env=False) as client, asyncio.timeout(WAIT_S_MAX):
            while self.process.poll() is None:
                try:
                    response = await client.get(f"{self.url}/readyz", timeout=WAIT_S_MAX)
                    if (response.status_code == 200) == is_ready:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.02)
        raise AssertionError(self.process.communicate())


@contextmanager
def running(*processes: Process) -> Iterator[None]:
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            if process.process is not None:
                process.end(signal.SIGKILL)


def master_in(folder: Path, port: int | None = None) -> Process:
    return Process("master", port or free_port(), "--data-dir", str(folder))


def proxy_of(master: Process) -> Process:
    return Process("proxy", free_port(), "--master-url", master.url, "--register-ms", "100")


class Observer:
    """Checks every timestamp that any caller is told, at the moment it is told."""

    def __init__(self) -> None:
        self.told_max = 0
        self.told: set[int] = set()
        self.failure_count = 0

    def note(self, floor: int, first: int, count: int) -> None:
        assert first > floor, f"{first} after {floor} was held by somebody: a regression"
        given = range(first, first + count)
        assert self.told.isdisjoint(given), "a duplicate"
        self.told.update(given)
        self.told_max = max(self.told_max, given[-1])


async def ask_master(observer: Observer, peer: Peer, count: int) -> None:
    while True:
        floor = observer.told_max
        reply = await peer.call(GenerateTimestamps(count))
        if isinstance(reply, TimestampRange):
            assert reply.count == count
            observer.note(floor, reply.first, count)
        else:
            assert isinstance(reply, Failure)
            observer.failure_count += 1
            await asyncio.sleep(0.01)


async def ask_proxy(observer: Observer, oracle: OracleClient) -> None:
    while True:
        floor = observer.told_max
        try:
            observer.note(floor, await oracle.generate(), 1)
        except DodonaError:
            observer.failure_count += 1
            await asyncio.sleep(0.01)


@asynccontextmanager
async def callers(observer: Observer, master: Process, proxy: Process) -> AsyncIterator[None]:
    peer = Peer(rpc_url(master.url), timeout_ms=2000)
    oracle = OracleClient([proxy.url], timeout_ms=2000)
    tasks = [asyncio.create_task(ask_master(observer, peer, count)) for count in (1, 10, 1000)]
    tasks += [asyncio.create_task(ask_proxy(observer, oracle)) for _ in range(20)]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await oracle.close()
        await peer.close()
    assert [it for it in outcomes if not isinstance(it, asyncio.CancelledError)] == []


async def wait_for_more(observer: Observer, count: int) -> None:
    wanted = len(observer.told) + count
    await until(lambda: len(observer.told) >= wanted, pause_s=0.005)


async def test_a_killed_master_restarts_soon_and_its_timestamps_still_rise(tmp_path: Path) -> None:
    master = master_in(tmp_path)
    proxy = proxy_of(master)
    observer = Observer()
    with running(master, proxy):
        await master.wait_until_ready()
        await proxy.wait_until_ready()
        async with callers(observer, master, proxy):
            for turn in range(4):
                await wait_for_more(observer, 3000)
                await asyncio.sleep(0.03 * turn)  # at another place in the window each time
                master.end(signal.SIGKILL)
                held = observer.told_max
                master.start()
                await master.wait_until_ready()
                began, began_us = time.monotonic(), time.time_ns() // 1000
                peer = Peer(rpc_url(master.url))
                reply = await peer.call(GenerateTimestamps(1))
                waited = time.monotonic() - began
                await peer.close()
                assert isinstance(reply, TimestampRange)
                assert reply.first > held
                observer.note(held, reply.first, 1)
                assert waited < 2, "a restarted master let its first caller wait"
                unix_us = unix_us_from_timestamp(Timestamp(reply.first))
                assert began_us - 1000 < unix_us < time.time_ns() // 1000 + 1_000_000
            await wait_for_more(observer, 3000)
        await proxy.wait_until_ready()
    assert observer.failure_count > 0, "no kill was noticed: this test tested nothing"


async def test_a_proxy_without_its_master_reports_unavailable_and_continues_later(
    tmp_path: Path,
) -> None:
    master = master_in(tmp_path)
    proxy = proxy_of(master)
    with running(master, proxy):
        await master.wait_until_ready()
        await proxy.wait_until_ready()
        async with httpx.AsyncClient(trust_env=False) as client:
            cluster = (await client.get(f"{master.url}/v1/cluster")).json()
            assert cluster["proxies"] == [proxy.url]
        peer = Peer(rpc_url(proxy.url))
        master.end(signal.SIGKILL)
        await proxy.wait_until_ready(is_ready=False)
        reply = await peer.call(GenerateTimestamps(1))
        assert isinstance(reply, Failure)
        assert reply.kind == "unavailable"
        master.start()
        await proxy.wait_until_ready()
        async with asyncio.timeout(WAIT_S_MAX):
            while not isinstance(await peer.call(GenerateTimestamps(1)), TimestampRange):
                await asyncio.sleep(0.05)
        await peer.close()
        assert proxy.process is not None
        assert proxy.process.poll() is None


async def test_two_processes_can_not_have_one_folder(tmp_path: Path) -> None:
    first, second = master_in(tmp_path), master_in(tmp_path)
    with running(first):
        await first.wait_until_ready()
        assert first.process is not None
        ended = subprocess.run(
            second.command, capture_output=True, text=True, check=False, timeout=60
        )
        assert ended.returncode == os.EX_TEMPFAIL
        assert f"another process (id {first.process.pid})" in ended.stderr
        assert str(tmp_path) in ended.stderr
        assert "Traceback" not in ended.stderr
        await first.wait_until_ready()
        first.end(signal.SIGKILL)  # the lock does not outlive its holder
        second.start()
        await second.wait_until_ready()
        assert second.end(signal.SIGTERM)[0] == 0


async def test_acknowledged_changes_outlive_a_kill(tmp_path: Path) -> None:
    master = master_in(tmp_path)
    acknowledged: set[str] = set()

    async def make(client: httpx.AsyncClient, number: int) -> None:
        body: dict[str, Any] = {"path": f"//t/{number}", "columns": COLUMNS}
        try:
            response = await client.post("/v1/tables", json=body)
        except httpx.TransportError:
            return  # the kill came first
        assert response.status_code == 201
        acknowledged.add(body["path"])

    with running(master):
        await master.wait_until_ready()
        async with httpx.AsyncClient(base_url=master.url, trust_env=False) as client:
            making = [asyncio.create_task(make(client, number)) for number in range(300)]
            await until(lambda: len(acknowledged) >= 50)
            master.end(signal.SIGKILL)
            await asyncio.gather(*making)
        assert 50 <= len(acknowledged) < 300
        master.start()
        await master.wait_until_ready()
        async with httpx.AsyncClient(base_url=master.url, trust_env=False) as client:
            found = (await client.get("/v1/tables")).json()["paths"]
            tablets = [
                tablet["tablet"]
                for path in found
                for tablet in (await client.get("/v1/table", params={"path": path})).json()[
                    "tablets"
                ]
            ]
        assert acknowledged <= set(found)
        assert len(set(tablets)) == len(tablets)


async def test_a_disk_that_fails_ends_the_process_and_takes_nothing_back(tmp_path: Path) -> None:
    master = master_in(tmp_path)
    acknowledged = []
    with running(master):
        await master.wait_until_ready()
        assert master.process is not None
        async with httpx.AsyncClient(base_url=master.url, trust_env=False) as client:
            for number in range(100):
                if number == 20:  # from here on the kernel refuses the process every write
                    resource.prlimit(master.process.pid, resource.RLIMIT_FSIZE, (0, 0))
                body = {"path": f"//t/{number}", "columns": COLUMNS}
                try:
                    response = await client.post("/v1/tables", json=body)
                except httpx.TransportError:
                    break
                assert response.status_code == 201
                acknowledged.append(body["path"])
        _, said = master.process.communicate(timeout=WAIT_S_MAX)
        assert master.process.returncode == EXIT_STATUS_SURPRISE, said
        assert "stopping the process" in said
        master.start()
        await master.wait_until_ready()
        async with httpx.AsyncClient(base_url=master.url, trust_env=False) as client:
            found = (await client.get("/v1/tables")).json()["paths"]
    assert len(acknowledged) >= 20
    assert set(acknowledged) <= set(found)


async def test_a_term_signal_ends_both_cleanly(tmp_path: Path) -> None:
    master = master_in(tmp_path)
    proxy = proxy_of(master)
    with running(master, proxy):
        await master.wait_until_ready()
        await proxy.wait_until_ready()
        peer = Peer(rpc_url(proxy.url))  # an open connection does not hold it up
        assert isinstance(await peer.call(GenerateTimestamps(1)), TimestampRange)
        for process in (proxy, master):
            status, said = process.end(signal.SIGTERM)
            assert status == 0, said
            assert "Traceback" not in said
            assert "stopped" in said
        await peer.close()


async def test_a_master_reports_that_its_port_is_in_use(tmp_path: Path) -> None:
    first = master_in(tmp_path / "a")
    with running(first):
        await first.wait_until_ready()
        second = master_in(tmp_path / "b", int(first.url.rpartition(":")[2]))
        ended = subprocess.run(
            second.command, capture_output=True, text=True, check=False, timeout=60
        )
    assert ended.returncode != 0
    assert "address already in use" in ended.stderr


def test_a_master_refuses_damaged_data_and_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "master.mdb").write_bytes(b"this is not a store" * 1000)
    command = master_in(tmp_path).command
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert "master.mdb" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_no_server_runs_without_assertions(tmp_path: Path) -> None:
    command = master_in(tmp_path).command
    command.insert(1, "-O")
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert "python -O" in ended.stderr
