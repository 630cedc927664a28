"""Queries that a signal ends: what its handler raised reaches the caller as it is.

DuckDB that computes in the main thread replaces it by an error of its own, without a word of what
it was. Reports of the same kind: duckdb/duckdb #15925 and #10216.
"""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import uvloop

import dodona
import dodona.aio
from dodona._core.sql.engine import Engine
from dodona._io.computing import TooLong, _at_work, compute
from dodona.errors import InvalidRequest
from dodona.schema import TableSchema
from suite.levels import share
from suite.waiting import WAIT_S_MAX, wait_until
from unit.client.cluster import PATH, SCHEMA, FakeCluster
from unit.client.interrupting import Alarm, interrupted, points_of

ENDS_S_MAX = 20.0
LONG = "select count(*) from range(100000000) a, range(100000000) b where a.range != 1"


class SoftLimit(Exception):
    """As Celery's, by SIGALRM."""


class Hard(BaseException):
    """Of a kind that `except Exception` leaves alone."""


KINDS: list[type[BaseException]] = [
    KeyboardInterrupt, SoftLimit, Hard, TimeoutError, RuntimeError, InvalidRequest, MemoryError,
]  # fmt: skip


@contextmanager
def signalled(
    kind: type[BaseException], when: threading.Event, delay_s: float = 0.2
) -> Iterator[None]:
    """A signal, whose handler raises this, comes to this process some time after the event."""
    number = signal.SIGINT if kind is KeyboardInterrupt else signal.SIGALRM

    def handle(*_: object) -> None:
        raise kind("by a handler")

    def send() -> None:
        if when.wait(ENDS_S_MAX):
            time.sleep(delay_s)
            os.kill(os.getpid(), number)

    before = signal.signal(number, handle)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        when.set()
        sender.join()
        signal.signal(number, before)


@pytest.fixture
def computing(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once DuckDB is about to compute the result."""
    began = threading.Event()
    run = Engine.run

    def watched(engine: Engine, text: str, values: Mapping[str, Any]) -> Any:
        if text.startswith("select count"):
            began.set()
        return run(engine, text, values)

    monkeypatch.setattr(Engine, "run", watched)
    return began


@pytest.fixture(params=["embedded", "cluster"])
def db(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: FakeCluster
) -> Iterator[dodona.Client]:
    opened = dodona.connect(cluster.url) if request.param == "cluster" else dodona.open(tmp_path)
    with opened as client:
        client.create_table(PATH, SCHEMA, mount=True)
        yield client


def check_over(began_s: float) -> None:
    assert time.monotonic() - began_s < ENDS_S_MAX
    wait_until(lambda: not is_computing())  # an interrupted caller waits for the end, but not long


def is_computing() -> bool:
    return bool(_at_work) or "dodona-query" in [it.name for it in threading.enumerate()]


def check_usable(db: Any) -> None:
    assert db.query("select 41 + 1 as v").to_pydict() == {"v": [42]}


@pytest.mark.slow("a query for each place")
@pytest.mark.part("interrupts of a query")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("timeout_ms", share([None, 60_000], one_in=2))
def test_the_handlers_own_error_reaches_the_caller(
    kind: type[BaseException], timeout_ms: int | None, db: dodona.Client, computing: threading.Event
) -> None:
    check_usable(db)
    began_s = time.monotonic()
    with signalled(kind, computing), pytest.raises(kind, match="by a handler"):
        db.query(LONG, timeout_ms=timeout_ms)
    check_over(began_s)
    check_usable(db)


def test_an_error_of_a_signal_handler_ends_a_query_in_a_transaction(
    db: dodona.Client, computing: threading.Event
) -> None:
    with db.begin() as tx:
        with signalled(SoftLimit, computing), pytest.raises(SoftLimit):
            tx.query(LONG)
        check_usable(tx)


def test_an_error_of_a_signal_handler_ends_the_planning_of_a_query(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = threading.Event()
    check = Engine.check

    def slowly(engine: Engine, text: str) -> list[str]:
        planning.set()
        time.sleep(0.5)
        return check(engine, text)

    monkeypatch.setattr(Engine, "check", slowly)
    with signalled(KeyboardInterrupt, planning), pytest.raises(KeyboardInterrupt):
        db.query("select 1")
    check_usable(db)


def test_a_handler_that_raises_nothing_changes_nothing(
    db: dodona.Client, computing: threading.Event
) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: came.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        text = "select count(*) as v from range(3000) a, range(3000) b where a.range != b.range"
        assert db.query(text).to_pydict() == {"v": [3000 * 2999]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert came


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_embedded", [True, False])
def test_ctrl_c_in_asyncio(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    is_embedded: bool,
    tmp_path: Path,
    cluster: FakeCluster,
    computing: threading.Event,
) -> None:
    """The runner cancels the task, which ends the query, and raises KeyboardInterrupt."""

    async def run() -> None:
        make = dodona.aio.open(tmp_path) if is_embedded else dodona.aio.connect(cluster.url)
        async with await make as db:
            await db.query(LONG)

    began_s = time.monotonic()

    def send() -> None:
        computing.wait(ENDS_S_MAX)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send, daemon=True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sender.start()
        with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(KeyboardInterrupt):
            runner.run(run())
    finally:
        sender.join()
        signal.signal(signal.SIGINT, before)
    check_over(began_s)


def test_a_filter_of_spark_is_computed_where_no_signal_arrives() -> None:
    from dodona._core.reading.condition import Filter
    from pyspark_dodona import pages

    threads: list[threading.Thread] = []

    class Watched(Filter):
        def __call__(self, data: Any) -> Any:
            threads.append(threading.current_thread())
            return super().__call__(data)

    keep = pages._Keep.__new__(pages._Keep)
    keep._expressions = []
    keep._condition = Watched(TableSchema.parse(SCHEMA), "id > 1", ("id",))
    kept = keep(pyarrow.table({"id": pyarrow.array([1, 2], pyarrow.int64())}))
    assert kept.to_pydict() == {"id": [2]}
    assert threads[0] is not threading.main_thread()


# ---- by itself


def test_compute_returns_the_result_or_raises_the_error_of_the_function() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    assert compute(lambda: 42, lambda: None) == 42
    with pytest.raises(ZeroDivisionError):
        compute(fail, lambda: None)
    with pytest.raises(ZeroDivisionError):
        compute(fail, lambda: None, 1.0)


class Stubborn:
    """Ends at the third interruption: earlier ones may be lost."""

    def __init__(self, error: Exception | None = None) -> None:
        self.counts = [0]
        self._error = error
        self._is_begun = False
        self._is_ended = threading.Event()

    def interrupt(self) -> None:
        self.counts[0] += 1
        if self.counts[0] == 3:
            self._is_ended.set()

    def work(self) -> bool:
        self._is_begun = True
        assert self._is_ended.wait(WAIT_S_MAX)
        if self._error is not None:
            raise self._error
        return True

    def computed(self) -> bool:
        """In a time that is too short; what could not even begin in it does not count."""
        while True:
            try:
                return compute(self.work, self.interrupt, 0.01)
            except TooLong:
                if self._is_begun:
                    raise


def test_compute_interrupts_work_over_its_timeout_until_the_work_ends() -> None:
    stubborn = Stubborn(InvalidRequest("interrupted"))
    with pytest.raises(TooLong):
        stubborn.computed()
    assert stubborn.counts[0] >= 3


def test_work_that_succeeds_after_an_interruption_returns_its_result() -> None:
    assert Stubborn().computed() is True


def test_work_that_has_not_begun_at_the_timeout_never_begins() -> None:
    begun: list[bool] = []
    with suppress(TooLong):
        compute(lambda: begun.append(True), lambda: None, 0)
    began = list(begun)
    wait_until(lambda: not is_computing())
    assert begun == began


def test_a_caller_may_be_interrupted_anywhere() -> None:
    """Also while it ends what takes too long: nothing goes on computing, and no thread stays."""

    def call() -> None:
        is_stopped = threading.Event()
        with suppress(TooLong):
            compute(lambda: is_stopped.wait(WAIT_S_MAX), is_stopped.set, 0.01)
        compute(int, is_stopped.set)

    points = points_of(call, set())
    assert len(points) > 30
    for number, point in enumerate(points):
        interrupted(call, point, KeyboardInterrupt() if number % 2 else Alarm())
        wait_until(lambda: not is_computing(), f"it goes on after {point}")


# ---- its threads


class SlowEnd(threading.local):
    """Has the end of a thread that touches it take some time."""

    def touch(self) -> None:
        self.it = _Slow()


class _Slow:
    def __del__(self) -> None:
        time.sleep(0.5)


def test_the_worker_thread_ends_before_compute_returns() -> None:
    slow_end, threads = SlowEnd(), []

    def work() -> None:
        slow_end.touch()
        threads.append(threading.current_thread())

    compute(work, lambda: None)
    assert not threads[0].is_alive()


def test_a_thread_that_still_ends_refers_to_nothing() -> None:
    """Python stops it there if the process ends: DuckDB complains of each object that is left."""
    slow_end = SlowEnd()

    class Slowly(Stubborn):
        def interrupt(self) -> None:
            slow_end.touch()
            super().interrupt()

    def ended() -> "weakref.ref[Stubborn]":
        stubborn = Slowly(InvalidRequest("interrupted"))
        with suppress(TooLong):
            stubborn.computed()
        return weakref.ref(stubborn)

    stubborn = ended()
    gc.collect()
    assert stubborn() is None


LEFT = """
    computing.END_SECONDS_MAX = 0  # as if DuckDB took its time to notice an interruption
    try:
        db.query(LONG, timeout_ms=1_000)
    except dodona.Unavailable:
        pass
"""
DAEMON = """
    threading.Thread(target=lambda: db.query(LONG), daemon=True).start()
    while not computing._at_work:
        time.sleep(0.01)
    time.sleep(0.5)
"""


def test_process_exit_waits_for_a_timed_out_query_that_still_runs(tmp_path: Path) -> None:
    done = exited(LEFT, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_exit_ends_the_queries_of_a_daemon_s_thread(tmp_path: Path) -> None:
    """DuckDB complains of the objects that the thread itself refers to."""
    done = exited(DAEMON, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr


def test_an_exit_may_compute(tmp_path: Path) -> None:
    """Also after what was begun before has ended."""
    program = """
        import atexit
        from dodona._io import computing
        atexit.unregister(computing._end_all)
        atexit.register(lambda: print(db.query("select 1 as v").to_pydict()))
        atexit.register(computing._end_all)
    """
    done = exited(program, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{'v': [1]}\n", "")


def exited(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """As a script: DuckDB shows a progress bar to who seems to be at a console."""
    prelude = f"""
        import sys, threading, time
        import dodona
        from dodona._io import computing
        LONG = {LONG!r}
        db = dodona.open(sys.argv[1])
        db.query("select 1")
    """
    script = folder / "program.py"
    script.write_text(textwrap.dedent(prelude) + textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, str(script), str(folder / "data")],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
