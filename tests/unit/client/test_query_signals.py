"""Queries that a signal ends: what its handler raised reaches the caller as it is.

DuckDB that computes in the main thread replaces it by an error of its own, without a word of what
it was. Reports of the same kind: duckdb/duckdb #15925 and #10216.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import uvloop

import dodona
import dodona.aio
from dodona._core.sql.engine import Engine
from dodona._io.computing import TooLong, compute
from dodona.errors import InvalidRequest
from dodona.schema import TableSchema
from unit.client.cluster import PATH, SCHEMA, FakeCluster

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

    def watched(engine: Engine, text: str) -> Any:
        if text.startswith("select count"):
            began.set()
        return run(engine, text)

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
    names = [it.name for it in threading.enumerate()]
    assert "dodona-query" not in names


def check_usable(db: Any) -> None:
    assert db.query("select 41 + 1 as v").to_pydict() == {"v": [42]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("timeout_ms", [None, 60_000])
def test_the_handlers_own_error_reaches_the_caller(
    kind: type[BaseException], timeout_ms: int | None, db: dodona.Client, computing: threading.Event
) -> None:
    check_usable(db)
    began_s = time.monotonic()
    with signalled(kind, computing), pytest.raises(kind, match="by a handler"):
        db.query(LONG, timeout_ms=timeout_ms)
    check_over(began_s)
    check_usable(db)


def test_so_it_is_in_a_transaction(db: dodona.Client, computing: threading.Event) -> None:
    with db.begin() as tx:
        with signalled(SoftLimit, computing), pytest.raises(SoftLimit):
            tx.query(LONG)
        check_usable(tx)


def test_so_it_is_while_the_plan_is_made(
    db: dodona.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = threading.Event()
    check = Engine.check

    def slowly(engine: Engine, text: str) -> None:
        planning.set()
        time.sleep(0.5)
        check(engine, text)

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
    from dodona._core.sql.condition import Filter
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


def test_what_is_computed_raises_as_it_does() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    assert compute(lambda: 42, lambda: None) == 42
    with pytest.raises(ZeroDivisionError):
        compute(fail, lambda: None)
    with pytest.raises(ZeroDivisionError):
        compute(fail, lambda: None, 1.0)


def test_what_takes_too_long_is_interrupted_until_it_ends() -> None:
    interrupted, counts = threading.Event(), [0]

    def interrupt() -> None:
        counts[0] += 1
        if counts[0] == 3:  # the first ones are lost
            interrupted.set()

    def work() -> None:
        interrupted.wait(ENDS_S_MAX)
        raise InvalidRequest("interrupted")

    with pytest.raises(TooLong):
        compute(work, interrupt, 0.01)
    assert counts[0] >= 3


def test_what_ends_all_the_same_has_a_result() -> None:
    interrupted = threading.Event()
    assert compute(lambda: interrupted.wait(ENDS_S_MAX), interrupted.set, 0.01) is True
