"""How processes are kept up: with servers that are as small as can be and fail on demand.

Owns: the checks of `supervisor`, `child`, `folder` and `ports`. Every process started here is
found again by its own pid, which it writes down, so that "nothing is left" is asked of the kernel.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import InvalidRequest
from dodona_local import supervisor as supervisor_module
from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.ports import HOST, reserve_ports
from dodona_local.restart import (
    BACK_OFF_S_MAX,
    BACK_OFF_S_MIN,
    START_AGAIN_S,
    START_FAILURES_MAX,
    RestartRules,
)
from dodona_local.supervisor import Plan, ProcessStatus, Supervisor
from suite.programs import program
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.integration

FAKE_SERVER = """
    import os, pathlib, signal, sys, time
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    behaviour, port, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    with (folder / "pids").open("a") as pids:
        pids.write(f"{os.getpid()}\\n")
    if behaviour == "fails":
        sys.exit("the disk is made of cheese")
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            is_ready = behaviour != "never-ready" and self.path == "/readyz"
            self.send_response(200 if is_ready else 503)
            self.end_headers()

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataFolder]:
    """An open data folder, from where the module `fake_server` can be run."""
    (tmp_path / "fake_server.py").write_text(textwrap.dedent(FAKE_SERVER))
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    opened = DataFolder(tmp_path / "data")
    yield opened
    opened.close()


def plans(folder: DataFolder, *behaviours: str) -> list[Plan]:
    reservation = reserve_ports(0, len(behaviours))
    reservation.release()
    return [
        Plan(
            f"node {index}",
            "fake_server",
            (behaviour, str(port), str(folder.path)),
            f"http://{HOST}:{port}",
        )
        for index, (behaviour, port) in enumerate(zip(behaviours, reservation.ports, strict=True))
    ]


def pids(folder: DataFolder) -> list[int]:
    return [int(line) for line in (folder.path / "pids").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Run:
    """A supervisor under test, and what it said."""

    def __init__(self, folder: DataFolder, *behaviours: str, is_essential: bool = False) -> None:
        self.said: list[str] = []
        self.stop = asyncio.Event()
        self.ready = asyncio.Event()
        made = [replace(it, is_essential=is_essential) for it in plans(folder, *behaviours)]
        self.supervisor = Supervisor(made, folder, self.said.append, start_again_s=0.2)

    def drive(self, script: Callable[["Run"], Coroutine[Any, Any, None]]) -> None:
        """Run the supervisor, and beside it the script once all is ready; then stop."""
        asyncio.run(self._drive(script))

    async def _drive(self, script: Callable[["Run"], Coroutine[Any, Any, None]]) -> None:
        async def act() -> None:
            try:
                await self.ready.wait()
                await script(self)
            finally:
                self.stop.set()

        async with asyncio.timeout(WAIT_S_MAX):
            actor = asyncio.create_task(act())
            try:
                await self.supervisor.run(self.ready.set, self.stop)
            finally:
                actor.cancel()
                ends = await asyncio.gather(actor, return_exceptions=True)
            if isinstance(ends[0], Exception):
                raise ends[0]

    def status(self, name: str) -> ProcessStatus:
        return self.supervisor.statuses()[name]


async def nothing_more(run: Run) -> None:
    assert all(status.is_ready for status in run.supervisor.statuses().values())


def test_a_stop_leaves_no_process_behind(folder: DataFolder) -> None:
    Run(folder, "normal", "normal").drive(nothing_more)
    assert len(pids(folder)) == 2
    assert not any(map(is_running, pids(folder)))


def test_a_process_that_ignores_sigterm_is_killed(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_WAIT_S_MAX", 0.3)
    Run(folder, "stubborn").drive(nothing_more)
    assert not any(map(is_running, pids(folder)))


def test_the_supervisor_restarts_a_killed_process_at_the_same_address(folder: DataFolder) -> None:
    async def kill_one(run: Run) -> None:
        before = run.status("node 1")
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        while run.status("node 1").start_count == 1 or not run.status("node 1").is_ready:
            await asyncio.sleep(0.02)
        after = run.status("node 1")
        assert (after.url, after.start_count) == (before.url, 2)
        assert after.pid not in {None, before.pid}
        assert run.status("node 0").start_count == 1

    run = Run(folder, "normal", "normal")
    run.drive(kill_one)
    assert run.said == ["node 1 ended (signal SIGKILL): starting it again"]


def test_a_process_that_cannot_start_leaves_the_others_serving(folder: DataFolder) -> None:
    async def wait_for_more_starts(run: Run) -> None:
        assert run.status("node 1").is_ready
        assert not run.status("node 0").is_ready
        while run.status("node 0").start_count < START_FAILURES_MAX + 2:
            await asyncio.sleep(0.02)
        assert run.supervisor.failures() == {"node 0": "the disk is made of cheese"}
        assert run.status("node 1").start_count == 1

    run = Run(folder, "fails", "normal")
    run.drive(wait_for_more_starts)
    *_, last = run.said
    assert "node 0 failed to start 5 times in a row" in last
    assert "the disk is made of cheese; starting it again every 0.2 s, the others continue" in last
    assert len(run.said) == START_FAILURES_MAX, "the same reason is told once"
    assert not any(map(is_running, pids(folder)))


def test_the_launch_fails_with_the_error_of_an_essential_process_that_cannot_start(
    folder: DataFolder,
) -> None:
    run = Run(folder, "fails", "normal", is_essential=True)
    with pytest.raises(LaunchFailed, match=r"(?s)node 0 failed to start 5 times.*made of cheese"):
        run.drive(nothing_more)
    assert len(run.said) == START_FAILURES_MAX - 1
    assert not any(map(is_running, pids(folder)))


def test_a_stop_before_all_is_ready_is_obeyed(folder: DataFolder) -> None:
    run = Run(folder, "never-ready")

    async def stop_early() -> None:
        supervising = asyncio.create_task(run.supervisor.run(run.ready.set, run.stop))
        while run.status("node 0").pid is None:
            await asyncio.sleep(0.02)
        run.stop.set()
        async with asyncio.timeout(WAIT_S_MAX):
            await supervising

    asyncio.run(stop_early())
    assert not run.ready.is_set()
    assert run.status("node 0").pid is None


@pytest.mark.parametrize("has_fork", [False, True])
def test_a_killed_supervisor_leaves_no_server_and_releases_its_folder(
    folder: DataFolder, has_fork: bool
) -> None:
    folder.close()
    script = f"""
        import asyncio, os, pathlib, signal
        from dodona_local.folder import DataFolder
        from dodona_local.supervisor import Plan, Supervisor
        folder = DataFolder(pathlib.Path({str(folder.path)!r}))
        supervisor = Supervisor({plans(folder, "normal", "stubborn")!r}, folder, print)
        def ready():
            child = os.fork() if {has_fork} else 0
            if {has_fork} and child == 0:
                signal.pause()
            print("ready", child, flush=True)
        asyncio.run(supervisor.run(ready, asyncio.Event()))
    """
    with program(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        said, child = launcher.stdout.readline().split()
        assert said == "ready"
        started = pids(folder)
        assert all(map(is_running, started))
        launcher.kill()
        launcher.wait(WAIT_S_MAX)
        try:
            DataFolder(folder.path).close()  # waits for the servers of the dead launcher
            assert len(started) == 2
            wait_until(lambda: not any(map(is_running, started)))
        finally:
            if has_fork:
                os.kill(int(child), signal.SIGKILL)


def test_a_folder_stays_taken_while_any_server_lives(folder: DataFolder) -> None:
    async def let_go(run: Run) -> None:
        folder.close()
        with pytest.raises(LaunchFailed, match="is in use"):
            DataFolder(folder.path)

    Run(folder, "normal").drive(let_go)
    DataFolder(folder.path).close()


def test_a_folder_has_one_user(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    with pytest.raises(LaunchFailed, match=rf"in use by another process \(pid {os.getpid()}\)"):
        DataFolder(tmp_path / "data")
    first.close()
    DataFolder(tmp_path / "data").close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=r"file/data' can't be used: Not a directory"):
        DataFolder(tmp_path / "file" / "data")
    with pytest.raises(LaunchFailed, match=r"cannot use /proc/nowhere as data folder"):
        DataFolder(Path("/proc/nowhere"))


def test_no_node_with_data_is_left_out(folder: DataFolder) -> None:
    for name in ("node-0", "node-2", "node-x"):
        (folder.path / name).mkdir()
    folder.check_node_count(3)
    with pytest.raises(LaunchFailed, match="has the data of 3 nodes: start it with --nodes 3"):
        folder.check_node_count(2)


@pytest.mark.parametrize(
    ("left", "is_refused"),
    [
        ((), False),
        (("node-0/dodona.lock",), False),
        (("master/dodona.lock", "node-0/log/1.mdb"), False),  # a first start that did not end well
        (("node-0/log/1.mdb",), True),
        (("master/dodona.lock", "node-0/log/1.mdb", "node-0/chunks/1.arrow"), True),
        (("master/master.mdb", "node-0/log/1.mdb", "node-0/chunks/1.arrow"), False),
    ],
)
def test_no_new_master_is_made_beside_the_data_of_nodes(
    folder: DataFolder, left: tuple[str, ...], *, is_refused: bool
) -> None:
    for name in left:
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).touch()
    if is_refused:
        with pytest.raises(LaunchFailed, match=r"master\.mdb is missing"):
            folder.check_master()
    else:
        folder.check_master()


def test_an_overgrown_log_is_set_aside(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dodona_local.folder.LOG_BYTES_MAX", 10)
    for text in (b"first line, long\n", b"second\n"):
        log_fd = folder.open_log("node 0")
        os.write(log_fd, text)
        os.close(log_fd)
    assert folder.log_tail("node 0") == "second"
    assert (folder.logs / "node-0.log.1").read_text() == "first line, long\n"


def test_a_taken_port_is_named_and_nothing_stays_reserved() -> None:
    base = reserve_ports(0, 3)
    base.release()
    first, second, _ = base.ports
    with socket.create_server((HOST, second)):
        with pytest.raises(LaunchFailed, match=rf"port {second} is not free"):
            reserve_ports(first, 3)
        reserve_ports(first, 1).release()
    with pytest.raises(LaunchFailed, match="do not exist"):
        reserve_ports(65_535, 2)


def test_a_reserved_port_can_be_served_on() -> None:
    reservation = reserve_ports(0, 1)
    address = (HOST, reservation.ports[0])
    try:
        with (
            socket.create_server(address) as server,
            socket.create_connection(address, timeout=WAIT_S_MAX),
        ):
            server.accept()[0].close()
    finally:
        reservation.release()


def test_restarts_are_quick_at_first_then_slow_then_quick_again_after_a_long_life() -> None:
    rules = RestartRules()
    waits = [rules.note_end(1.0) for _ in range(20)]
    assert waits[0] == BACK_OFF_S_MIN
    assert waits == sorted(waits)
    assert waits[-1] == BACK_OFF_S_MAX
    assert rules.note_end(3600.0) == BACK_OFF_S_MIN
    assert not rules.is_failing
    assert max(map(RestartRules(0.3).note_end, [1.0] * 20)) == 0.3


def test_only_failed_starts_in_a_row_end_the_patience() -> None:
    rules = RestartRules()
    for ready_s in [*[None] * (START_FAILURES_MAX - 1), 0.5, *[None] * (START_FAILURES_MAX - 1)]:
        rules.note_end(ready_s)
        assert not rules.is_failing
    assert rules.note_end(None) == START_AGAIN_S
    assert rules.is_failing
    assert rules.note_end(1.0) <= BACK_OFF_S_MAX
    assert not rules.is_failing
