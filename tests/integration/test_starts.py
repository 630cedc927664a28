"""Why a server is not ready, and how soon one is there again: with servers as small as can be."""

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import dodona
from dodona_local import fork_server, reasons, supervisor
from dodona_local.folder import DataFolder
from dodona_local.fork_server import ForkServer
from dodona_local.launcher import FORK_MODULES, LocalCluster
from dodona_local.ports import HOST, reserve_ports
from dodona_local.supervisor import Plan, Supervisor
from suite.waiting import WAIT_S_MAX, until

pytestmark = pytest.mark.integration

TOLD_S = 10.0
"""In this time a small server can start, and the reason why it is not ready be told."""
SERVER = """
    import os, signal, sys, time
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from small import parts

    behaviour, port = sys.argv[1], int(sys.argv[2])
    print(behaviour, "imported by", parts.IMPORTED_BY, flush=True)
    fate = "INFO all is well" if behaviour == "dawdles" else "ERROR the folder was lost"
    print(f"2026 {fate}", "2026 INFO going on", sep="\\n", flush=True)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if behaviour == "waits" else 200)
            self.end_headers()
            self.wfile.write(b'{"detail": "it waits for the master"}')

        def log_message(self, *arguments):
            pass

    if behaviour == "lingers":
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), os._exit(0)))
    if behaviour in ("silent", "dawdles", "lingers"):
        time.sleep(60)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataFolder]:
    package = tmp_path / "small"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(textwrap.dedent(SERVER))
    (package / "parts.py").write_text("import os\nIMPORTED_BY = os.getpid()\n")
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    opened = DataFolder(tmp_path / "data")
    yield opened
    opened.close()


def plan(behaviour: str) -> Plan:
    reservation = reserve_ports(0, 1)
    reservation.release()
    (port,) = reservation.ports
    return Plan("node 0", "small", (behaviour, str(port)), f"http://{HOST}:{port}")


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("waits", "it waits for the master; its last error: 2026 ERROR the folder was lost"),
        ("silent", "2026 ERROR the folder was lost"),
    ],
)
def test_the_supervisor_reports_why_a_server_is_not_ready(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, behaviour: str, reason: str
) -> None:
    """Nothing was printed for a minute, and only an exit status then."""
    for module in (reasons, supervisor):
        monkeypatch.setattr(module, "TELL_AFTER_S", 1.0)
    monkeypatch.setattr(supervisor, "READY_WAIT_S_MAX", TOLD_S)
    said: list[str] = []

    async def watch() -> None:
        stop = asyncio.Event()
        running = Supervisor([plan(behaviour)], folder, said.append).run(lambda: None, stop)
        supervising = asyncio.create_task(running)
        await until(lambda: any("was not ready within" in it for it in said))
        stop.set()
        await supervising

    asyncio.run(watch())
    told = [it for it in said if "is not ready yet" in it]
    assert [reason in it for it in told][-1:] == [True], said
    assert len(told) == len(set(told)), "each reason once"
    assert any(it.startswith("node 0 was not ready within 10 s: ") and reason in it for it in said)


def test_no_process_is_left_by_a_stop_amid_another_end(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to end, and nobody waited for that any more."""
    monkeypatch.setattr(supervisor, "READY_WAIT_S_MAX", 3.0)
    it, said = plan("lingers"), list[str]()

    async def watch() -> int:
        stop = asyncio.Event()
        running = Supervisor([it], folder, said.append)
        supervising = asyncio.create_task(running.run(lambda: None, stop))
        await until(lambda: said)
        pid = running.statuses()[it.name].pid
        assert pid is not None
        await asyncio.sleep(0.2)  # so that it is amid its end, unless the machine is slow
        stop.set()
        await supervising
        return pid

    pid = asyncio.run(watch())
    assert "was not ready within" in said[0]
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("slow_after_s", "is_told"), [(60.0, False), (0.5, True)])
def test_the_supervisor_reports_a_slow_start_only_after_slow_after_s(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, slow_after_s: float, is_told: bool
) -> None:
    """Each start on a small machine looked as if something were wrong."""
    monkeypatch.setattr(supervisor, "TELL_AFTER_S", 0.5)
    monkeypatch.setattr(supervisor, "SLOW_AFTER_S", slow_after_s)
    monkeypatch.setattr(supervisor, "READY_WAIT_S_MAX", TOLD_S / 2)
    said: list[str] = []

    async def watch() -> None:
        stop = asyncio.Event()
        running = Supervisor([plan("dawdles")], folder, said.append).run(lambda: None, stop)
        supervising = asyncio.create_task(running)
        await until(lambda: any("was not ready within" in it for it in said))
        stop.set()
        await supervising

    asyncio.run(watch())
    assert any("is not ready yet" in it for it in said) is is_told
    assert not any("last error" in it for it in said)


class Kept:
    """One small server that a supervisor with a fork server keeps up."""

    def __init__(self, folder: DataFolder, behaviour: str, *modules: str) -> None:
        self.plan, self.said = plan(behaviour), list[str]()
        self._folder = folder
        self.supervisor = Supervisor([self.plan], folder, self.said.append, fork_modules=modules)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ready, stop = asyncio.Event(), asyncio.Event()
        supervising = asyncio.create_task(self.supervisor.run(ready.set, stop))
        async with asyncio.timeout(WAIT_S_MAX):
            await ready.wait()
            yield
            pids = {self.pid, self.server.pid if self.has_server else self.pid}
            stop.set()
            await supervising
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)

    @property
    def pid(self) -> int:
        return self.supervisor.statuses()[self.plan.name].pid or 0

    @property
    def has_server(self) -> bool:
        return self._forks._link is not None

    @property
    def server(self) -> asyncio.subprocess.Process:
        """The fork server."""
        assert self._forks._process is not None
        return self._forks._process

    @property
    def _forks(self) -> ForkServer:
        assert self.supervisor._fork_server is not None
        return self.supervisor._fork_server

    def importer(self) -> int:
        """Who imported what the server needs."""
        lines = self._folder.log_path(self.plan.name).read_text().splitlines()
        return [int(line.split()[-1]) for line in lines if "imported by" in line][-1]

    async def end(self, number: int = 9) -> None:
        """Have the server end, and wait for the next."""
        count = self.supervisor.statuses()[self.plan.name].start_count
        os.kill(self.pid, number)

        def is_back() -> bool:
            status = self.supervisor.statuses()[self.plan.name]
            return status.start_count > count and status.is_ready

        await until(is_back)


def test_starts_are_forks_of_a_process_that_has_the_imports(folder: DataFolder) -> None:
    kept = Kept(folder, "serves", "small.parts")

    async def see() -> None:
        async with kept.running():
            assert kept.importer() == kept.server.pid != kept.pid
            words = Path(f"/proc/{kept.pid}/cmdline").read_text()
            assert words.startswith(f"python -m small serves {kept.plan.arguments[1]}")
            assert os.getsid(kept.pid) == kept.pid, "Ctrl-C is for the supervisor alone"
            for number, how in ((9, "signal SIGKILL"), (15, "signal SIGTERM")):
                await kept.end(number)
                assert kept.importer() == kept.server.pid
                assert kept.said.pop() == f"node 0 ended ({how}): starting it again"

    asyncio.run(see())


def test_servers_survive_the_end_of_their_fork_server(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "AGAIN_S_MIN", 3.0)
    kept = Kept(folder, "serves", "small.parts")

    async def see() -> None:
        async with kept.running():
            server, pid = kept.server.pid, kept.pid
            kept.server.kill()
            await until(lambda: not kept.has_server)
            assert (kept.pid, kept.importer()) == (pid, server)
            await kept.end()  # which is seen without it, and the next is started without it
            assert kept.said == ["node 0 ended (exit status unknown): starting it again"]
            assert kept.importer() == kept.pid or kept.has_server
            await until(lambda: kept.has_server)
            await kept.end()
            assert kept.importer() == kept.server.pid != server

    asyncio.run(see())


def test_a_failed_import_of_the_fork_server_is_logged_and_servers_start_without_it(
    folder: DataFolder,
) -> None:
    kept = Kept(folder, "serves", "small.missing")

    async def see() -> None:
        async with kept.running():
            assert kept.importer() == kept.pid
            await kept.end()
            assert kept.importer() == kept.pid

    asyncio.run(see())
    assert "No module named 'small.missing'" in folder.log_tail(fork_server.NAME)


def test_a_server_starts_without_a_fork_server_that_hangs(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(folder, "serves", "small.parts")

    async def see() -> None:
        async with kept.running():
            monkeypatch.setattr(fork_server, "FORK_WAIT_S_MAX", 0.5)
            server = kept.server.pid
            os.kill(server, 19)
            os.kill(pid := kept.pid, 9)
            await until(lambda: kept.pid not in (0, pid))
            await until(lambda: kept.supervisor.statuses()["node 0"].is_ready)
            assert kept.importer() == kept.pid
            os.kill(server, 18)  # the fork that nobody waits for any more runs nothing
            await kept.end()
            assert kept.importer() == server
            assert Path(f"/proc/{server}/task/{server}/children").read_text().split() == [
                str(kept.pid)
            ]

    asyncio.run(see())


def test_imports_before_a_fork_start_no_threads_and_open_no_files() -> None:
    """All servers would have what is open, and none of them the threads."""
    modules = [name for names in FORK_MODULES.values() for name in names]
    code = f"""
import importlib, os
os.environ["OPENBLAS_NUM_THREADS"] = "1"
for name in {modules}: importlib.import_module(name)
tasks = os.listdir("/proc/self/task")
threads = {{open(f"/proc/self/task/{{it}}/comm").read().strip() for it in tasks}}
files = sorted(os.listdir("/proc/self/fd"), key=int)
print(len(threads - {{"jemalloc_bg_thd"}}), len(tasks) < 3, files)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "1 True ['0', '1', '2', '3']\n", "the fourth is that of the list"


@pytest.mark.part("kill -9 of the master")
def test_a_killed_master_is_restarted_by_the_fork_server(tmp_path: Path) -> None:
    """Of the 2 s until the next timestamp nearly all were imports."""
    with (
        LocalCluster(tmp_path / "data", node_count=1) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        before = db.generate_timestamp()
        forks = cluster._thread._supervisor._fork_server
        assert forks is not None
        assert forks._process is not None
        cluster.kill("master")
        cluster.wait_until_ready("master", start_count=2)
        pid = cluster.processes["master"].pid
        children = Path(f"/proc/{forks._process.pid}/task/{forks._process.pid}/children")
        assert str(pid) in children.read_text().split()
        assert db.generate_timestamp() > before
