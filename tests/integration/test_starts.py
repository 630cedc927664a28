"""Why a server is not ready, and how soon one is there again: with servers as small as can be."""

import asyncio
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona_local import reasons, supervisor
from dodona_local.folder import DataFolder
from dodona_local.launcher import LocalCluster
from dodona_local.ports import HOST, reserve_ports
from dodona_local.supervisor import Plan, Supervisor
from suite.waiting import WAIT_S_MAX, until, wait_until

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
def test_whoever_waits_for_a_server_hears_why(
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
def test_a_start_that_is_only_slow_is_told_later(
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


def test_the_next_start_is_made_by_a_process_that_has_the_imports(folder: DataFolder) -> None:
    it = plan("serves")
    log = folder.log_path(it.name)

    def importers() -> list[int]:
        return [int(line.split()[-1]) for line in log.read_text().splitlines() if "by" in line]

    async def kill_twice() -> list[int]:
        stop, ready = asyncio.Event(), asyncio.Event()
        running = Supervisor([it], folder, print, spare_modules=["small.parts"])
        supervising = asyncio.create_task(running.run(ready.set, stop))
        killed = []
        async with asyncio.timeout(WAIT_S_MAX):
            await ready.wait()
            for count in (1, 2):
                spare = running._spare
                assert spare is not None
                while not spare.is_ready:
                    await asyncio.sleep(0.05)
                pid = running.statuses()[it.name].pid
                assert pid is not None
                killed.append(pid)
                os.kill(pid, 9)
                while not (running.statuses()[it.name].start_count > count):
                    await asyncio.sleep(0.02)
                while not running.statuses()[it.name].is_ready:
                    await asyncio.sleep(0.02)
            killed.append(running.statuses()[it.name].pid or 0)
            stop.set()
            await supervising
        return killed

    pids = asyncio.run(kill_twice())
    assert importers() == pids, "each was the process that had imported the parts"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.part("kill -9 of the master")
def test_a_master_that_was_killed_is_started_without_its_imports(tmp_path: Path) -> None:
    """Of the 2 s until the next timestamp nearly all were imports."""
    with (
        LocalCluster(tmp_path / "data", node_count=1, has_spare=True) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        before = db.generate_timestamp()
        spare = cluster._supervisor._spare
        assert spare is not None
        wait_until(lambda: spare.is_ready, pause_s=0.05)
        process = spare._process
        assert process is not None
        cluster.kill("master")
        cluster.wait_until_ready("master", start_count=2)
        assert cluster.processes["master"].pid == process.pid
        assert db.generate_timestamp() > before
