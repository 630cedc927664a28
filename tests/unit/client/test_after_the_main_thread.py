"""Clients in a thread that goes on after the main thread has ended: they work, or say why not.

Python's own pools of threads take no work there, and can't be imported for the first time.
A report of the same kind elsewhere: python/cpython #148280.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import dodona
from dodona._io import engine
from suite.levels import share
from unit.client.cluster import SCHEMA, FakeCluster

PROGRAM = """
import sys, threading
{before}

def work():
    threading.main_thread().join()
    import asyncio
    import dodona, dodona.aio
    place = {place!r}
    try:
{work}
    except dodona.DodonaError as error:
        print(type(error).__name__, error.message)

threading.Thread(target=work).start()
"""
BEFORE = {
    "imported late": "",
    "imported before": "import dodona, dodona.aio",
    "without uvloop": "sys.modules['uvloop'] = None; import dodona, dodona.aio",
}
ASYNC = """
async def main():
    async with await dodona.aio.{begin}(place) as db:
        {create}
        await db.insert_rows("//t", [{{"id": 1, "balance": 2}}])
        print(await db.lookup_rows("//t", [{{"id": 1}}]))
        {more}
asyncio.run(main())
"""
BLOCKING = """
with dodona.{begin}(place) as db:
    {create}
    db.insert_rows("//t", [{{"id": 1, "balance": 2}}])
    print(db.lookup_rows("//t", [{{"id": 1}}]))
    {more}
"""
CREATE = f'db.create_table("//t", {SCHEMA!r}, mount=True)'
QUERY = 'print(db.query("select count(*) from [//t]").num_rows)'
UNMOUNT = 'db.unmount_table("//t")'  # flushes its rows, which takes a thread
ROWS = "[{'id': 1, 'balance': 2}]\n"


def said(before: str, place: str, work: str) -> str:
    indented = "\n".join(f"        {line}" for line in work.splitlines())
    program = PROGRAM.format(before=BEFORE[before], place=place, work=indented)
    run = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


@pytest.mark.parametrize("before", share(["imported late", "imported before"], one_in=2))
def test_an_embedded_database_opens(tmp_path: Path, before: str) -> None:
    for name, work in (("blocking", BLOCKING), ("async", ASYNC)):
        is_async = work is ASYNC
        steps = [CREATE, UNMOUNT]
        if is_async:
            steps = [f"await {it}" for it in steps]
        filled = work.format(begin="open", create=steps[0], more=steps[1])
        assert said(before, str(tmp_path / name), filled) == ROWS


def test_an_embedded_client_answers_queries_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    before = "imported before"
    query = 'print((await db.query("select count(*) from [//t]")).num_rows)'
    work = ASYNC.format(begin="open", create=f"await {CREATE}", more=query)
    assert said(before, str(tmp_path / "data"), work) == f"{ROWS}1\n"
    work = BLOCKING.format(begin="open", create="pass", more=QUERY)
    assert said(before, str(tmp_path / "data"), work) == f"{ROWS}1\n"


@pytest.fixture
def url(cluster: FakeCluster) -> str:
    with dodona.connect(cluster.url) as db:
        db.create_table("//t", SCHEMA, mount=True)
    return cluster.url


@pytest.mark.parametrize("before", share(BEFORE, one_in=3))
def test_a_cluster_is_connected_to(url: str, before: str) -> None:
    for work in (BLOCKING, ASYNC):
        filled = work.format(begin="connect", create="pass", more="pass")
        assert said(before, url, filled) == ROWS


@pytest.mark.parametrize("before", share(["imported late", "without uvloop"], one_in=2))
def test_after_the_main_thread_a_host_is_resolved_or_the_error_names_the_cause(
    url: str, before: str
) -> None:
    """A program's own event loop looks up names in Python's threads."""
    name = url.replace("127.0.0.1", "localhost")
    blocking = BLOCKING.format(begin="connect", create="pass", more="pass")
    assert said(before, name, blocking) == ROWS
    of_loop = "await dodona.aio.connect(place, timeout_ms=100)"
    asynchronous = f"async def main(): {of_loop}\nasyncio.run(main())"
    found = said(before, name, asynchronous)
    assert found.startswith("Unavailable ")
    assert "can't be reached: can" in found
    assert "after" in found


def test_connect_raises_the_error_of_an_event_loop_that_cannot_be_created(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was waited for, for ever."""

    def fail() -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(engine, "new_event_loop", fail)
    with pytest.raises(OSError, match="too many open files"):
        dodona.connect(cluster.url)
