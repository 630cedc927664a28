"""Clients that nobody has any more: Python collects them in any thread, under any lock.

So what is done then waits for nothing: whatever it waits for may need what that thread has.
"""

import asyncio
import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona._io.network import Network
from suite.waiting import WAIT_S_MAX, wait_until
from unit.client.cluster import SCHEMA, FakeCluster
from unit.client.interrupting import in_time


def test_collecting_a_cluster_client_does_not_wait_for_its_thread(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may need a lock of the import system that whoever collects it has."""
    may_end, close = threading.Event(), Network.close

    async def close_late(network: Network) -> None:
        while not may_end.is_set():
            await asyncio.sleep(0.01)
        await close(network)

    monkeypatch.setattr(Network, "close", close_late)
    db = dodona.connect(cluster.url)
    db.generate_timestamp()
    driver: Any = db._driver
    engine = driver._engine
    del driver
    del db
    in_time(gc.collect)
    assert engine._is_closed
    assert not engine._is_over
    may_end.set()
    wait_until(lambda: engine._is_over)


def test_an_embedded_database_is_collected_while_no_thread_can_start(tmp_path: Path) -> None:
    """A collection may come while `threading` has its lock."""
    db = dodona.open(tmp_path / "data")
    db.generate_timestamp()
    driver: Any = db._driver
    combiner = driver._combiner
    del driver
    del db

    def collect() -> None:
        with threading._active_limbo_lock:  # type: ignore[attr-defined]
            gc.collect()

    # `in_time` can't: it begins a thread.
    collecting = threading.Thread(target=collect, daemon=True)
    collecting.start()
    collecting.join(WAIT_S_MAX)
    assert not collecting.is_alive()
    combiner.wait_closed(WAIT_S_MAX)
    assert combiner._is_over
    dodona.open(tmp_path / "data").close()


AT_THE_END = """
import dodona
db = dodona.connect({url!r})
db.generate_timestamp()
from dodona._io.network import Network
close = Network.close
async def close_late(network):
    import asyncio
    await asyncio.sleep(0.2)
    await close(network)
    print("goodbye")
Network.close = close_late
"""


@pytest.mark.integration
@pytest.mark.part("a client at the end of a process")
def test_a_client_that_is_open_at_process_exit_closes_its_network(cluster: FakeCluster) -> None:
    program = AT_THE_END.format(url=cluster.url)
    run = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "goodbye\n", "")


BEFORE_THE_IMPORT = """
import atexit

@atexit.register
def use_it():
    first = db.generate_timestamp()
    with db.begin() as transaction:
        transaction.insert_rows("//bank/accounts", [{{"id": 1, "balance": 2}}])
    print(db.lookup_rows("//bank/accounts", [{{"id": 1}}])[0]["balance"])
    print(dodona.connect(url).generate_timestamp() > first)

import threading
import dodona
from dodona._io.network import Network
url = {url!r}
{work}
close = Network.close
async def close_late(network):
    import asyncio
    await asyncio.sleep(0.05)
    await close(network)
    print("goodbye\\n", end="")  # by two threads
Network.close = close_late
"""
WORKS = {
    "called before": "db = dodona.connect(url)",
    "by name": "url = url.replace('127.0.0.1', 'localhost'); db = dodona.connect(url)",
    "of another thread": "db = None\ndef make(): global db; db = dodona.connect(url)\n"
    "thread = threading.Thread(target=make); thread.start(); thread.join()",
}


@pytest.mark.integration
@pytest.mark.part("a client at the end of a process")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("work", WORKS)
def test_a_handler_that_was_there_before_the_import_can_use_a_client(
    cluster: FakeCluster, work: str, loop: str
) -> None:
    """It runs after all that were registered later. The clients say goodbye then."""
    with dodona.connect(cluster.url) as db:
        db.create_table("//bank/accounts", SCHEMA, mount=True)
    program = BEFORE_THE_IMPORT.format(url=cluster.url, work=WORKS[work])
    if loop == "asyncio":
        program = f"import sys; sys.modules['uvloop'] = None\n{program}"
    run = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "2\nTrue\ngoodbye\ngoodbye\n"
