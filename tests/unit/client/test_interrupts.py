"""Interrupts: a signal handler that raises anywhere within a call, and one that calls the client.

Whatever it raises reaches its caller. The next call works, in this thread and in others, and what
had been acknowledged is there. The handlers of Celery's soft time limits are such, and Ctrl-C.
"""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona._io import loops
from dodona.errors import InvalidRequest
from dodona_wire.net.paths import place_of
from suite.levels import sample, share
from suite.waiting import WAIT_S_MAX, wait_until
from unit.client.cluster import FakeCluster
from unit.client.interrupting import (
    IS_WHOLE,
    Alarm,
    Interrupter,
    in_time,
    interrupted,
    points_of,
)

T = "//bank/accounts"
SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "balance", "type": "int64"},
]
KEY = {"id": 1}
tried: set[tuple[str, int]] = set()
Call = Callable[[dodona.Client, int], Any]


def commit(db: dodona.Client, number: int) -> None:
    with db.begin() as tx:
        tx.lookup_rows(T, [KEY])
        tx.insert_rows(T, [{**KEY, "balance": number}])


def load(db: dodona.Client, number: int) -> None:
    import pyarrow

    with db.loads.begin([T]) as it:
        it.write(T, pyarrow.table({"id": [KEY["id"]], "balance": [number]}))


def hold(db: dodona.Client, number: int) -> None:
    with db.hold_snapshot([T]) as snapshot:
        list(snapshot.read_batches(T))


def directory(db: dodona.Client, number: int) -> None:
    with db.begin_master() as tx:
        tx.create_directory(f"//made/{uuid.uuid4().hex}", recursive=True)


def rerun(db: dodona.Client, number: int) -> None:
    db.run_in_transaction(lambda tx: tx.insert_rows(T, [{**KEY, "balance": number}]))


WRITES: dict[str, Call] = {
    "insert": lambda db, number: db.insert_rows(T, [{**KEY, "balance": number}]),
    "commit": commit,
    "rerun": rerun,
    "write": lambda db, number: db.write(T, [{**KEY, "balance": number}]),
}
READS: dict[str, Call] = {
    "timestamp": lambda db, number: db.generate_timestamp(),
    "lookup": lambda db, number: db.lookup_rows(T, [KEY]),
    "select": lambda db, number: list(db.select(T)),
    "begin": lambda db, number: db.begin(),
    "get_table": lambda db, number: db.get_table(T),
    "delete": lambda db, number: db.delete_rows(T, [{"id": 77}]),
}
EMBEDDED: dict[str, Call] = {
    **WRITES,
    **READS,
    "load": load,
    "hold": hold,
    "directory": directory,
    "read_arrow": lambda db, number: db.read_arrow(T),
    "query": lambda db, number: db.query(f"select * from [{T}]"),
    "changes": lambda db, number: list(db.read_changes(T, 0)),
    "mount": lambda db, number: db.mount_table(T),
}


def balance(db: dodona.Client) -> int:
    ((row),) = db.lookup_rows(T, [KEY])
    return int(row["balance"])


def check(db: dodona.Client, call: Call) -> None:
    """At each of its check points."""
    numbers = iter(range(1_000_000))
    last = [next(numbers)]
    db.insert_rows(T, [{**KEY, "balance": last[0]}])

    def calling() -> None:
        last[0] = next(numbers)
        call(db, last[0])

    for number, point in enumerate(points_of(calling, tried)):
        kinds: list[type[BaseException]] = [KeyboardInterrupt, Alarm]
        for kind in kinds if IS_WHOLE else [kinds[number % 2]]:
            before = balance(db)
            was_interrupted = interrupted(calling, point, kind("now"))
            after = in_time(lambda: balance(db))
            allowed = {before, last[0]} if was_interrupted or call in READS.values() else {last[0]}
            if call not in WRITES.values() and call is not load:
                allowed = {before}
            assert after in allowed, (point, kind)
            assert balance(db) == after, (point, kind)


@pytest.fixture(autouse=True)
def no_callbacks_of_the_collector() -> Iterator[None]:
    """What a signal handler raises in one reaches nobody, and hypothesis has one."""
    kept = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(kept)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dodona.Client]:
    with dodona.open(tmp_path_factory.mktemp("interrupts")) as client:
        client.create_table(T, SCHEMA, mount=True)
        yield client


@pytest.fixture(params=share(["uvloop", "asyncio"], one_in=2))
def light(
    cluster: FakeCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dodona.Client]:
    if request.param == "asyncio":
        monkeypatch.setattr("dodona._io.engine.new_event_loop", asyncio.new_event_loop)
    with dodona.connect(cluster.url) as client:
        client.create_table(T, SCHEMA, mount=True)
        yield client


@pytest.mark.slow("a call for each place")
@pytest.mark.parametrize("name", sample(EMBEDDED, one_in=2, why="interrupts of a call"))
def test_an_embedded_call_may_be_interrupted_anywhere(embedded: dodona.Client, name: str) -> None:
    check(embedded, EMBEDDED[name])


@pytest.mark.slow("a call for each place")
@pytest.mark.parametrize("name", sample([*WRITES, *READS], one_in=2, why="interrupts of a call"))
def test_a_light_client_s_call_may_be_interrupted_anywhere(light: dodona.Client, name: str) -> None:
    check(light, {**WRITES, **READS}[name])


OF_PYTHON: list[type[Exception]] = [RuntimeError, TimeoutError, IndexError]
"""Exceptions that Dodona expects itself where threads meet, and where it opens files."""
MEETINGS = ("embedded_combiner.py", "embedded_turns.py", "engine.py", "paths.py", "threads.py")


def check_meetings(call: Callable[[], Any]) -> None:
    """Raise exceptions of Python's own before each line where threads meet. Elsewhere a trace
    function raises as no signal does: a generator that is collected is called, for example."""
    with Interrupter() as seen:
        call()
    points = [it for it in seen.points if it[0].endswith(MEETINGS) and it[3] == "line"]
    assert points
    for point in points:
        for kind in OF_PYTHON:
            interrupted(call, point, kind("time is up"))  # it fails if it is swallowed
    in_time(call)


@pytest.mark.slow("a call for each place")
def test_a_handler_s_exception_of_python_s_own_reaches_the_embedded_caller(
    embedded: dodona.Client,
) -> None:
    check_meetings(lambda: embedded.insert_rows(T, [{**KEY, "balance": 1}]))


@pytest.mark.slow("a call for each place")
def test_a_handler_s_exception_of_python_s_own_reaches_the_light_client_s_caller(
    light: dodona.Client,
) -> None:
    check_meetings(lambda: light.insert_rows(T, [{**KEY, "balance": 1}]))


def test_a_handler_s_exception_is_not_taken_for_a_wrong_path(tmp_path: Path) -> None:
    check_meetings(lambda: place_of(tmp_path))


@pytest.mark.slow("an open for each place")
def test_open_and_close_may_be_interrupted_anywhere(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    def opened() -> None:
        with dodona.open(folder) as db:
            db.list_tables()

    with dodona.open(folder) as db:
        db.create_table(T, SCHEMA, mount=True)
        db.insert_rows(T, [{**KEY, "balance": 5}])

    def reopened() -> dodona.Client:
        """An interrupt before the first step of `close` leaves the client open, until it is
        collected; the next call says so."""
        try:
            return dodona.open(folder)
        except dodona.FolderInUse:
            gc.collect()
            return dodona.open(folder)

    for number, point in enumerate(points_of(opened, tried)):
        interrupted(opened, point, KeyboardInterrupt() if number % 2 else Alarm())
        with in_time(reopened) as db:
            assert balance(db) == 5, point


def test_connecting_and_closing_may_be_interrupted_anywhere(cluster: FakeCluster) -> None:
    def connected() -> None:
        with dodona.connect(cluster.url) as db:
            db.generate_timestamp()

    for number, point in enumerate(points_of(connected, tried)):
        interrupted(connected, point, KeyboardInterrupt() if number % 2 else Alarm())
    in_time(connected)


# ---- with real signals


@pytest.fixture
def alarms() -> Iterator[Callable[[float], Any]]:
    """Begins to interrupt the main thread after so many seconds. Without the collector: whatever is
    raised in its callbacks, such as Hypothesis has, Python prints and drops."""
    before = signal.getsignal(signal.SIGALRM)
    gc.collect()
    gc.disable()
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.enable()


@pytest.mark.parametrize("kind", share([Alarm, TimeoutError, RuntimeError], one_in=3))
def test_an_exception_of_a_signal_handler_reaches_the_caller(
    embedded: dodona.Client, alarms: Callable[[float], Any], kind: type[Exception]
) -> None:
    """Also an exception of Python's own, such as the cores may raise too."""
    raised = []

    def handle(*_: object) -> None:
        error = kind("time is up")
        raised.append(error)
        raise error

    signal.signal(signal.SIGALRM, handle)
    embedded.insert_rows(T, [{**KEY, "balance": 0}])
    acknowledged, caught = 0, []
    for number in range(1, 60):
        try:  # on a busy machine it comes before the call
            alarms(0.0002 + number * 0.00003)
            embedded.insert_rows(T, [{**KEY, "balance": number}])
            acknowledged = number
        except kind as error:
            caught.append(error)
        try:
            alarms(0)
        except kind as error:
            caught.append(error)
        assert acknowledged <= balance(embedded) <= number
    assert caught == raised


# ---- callers from within


def test_a_signal_handler_that_calls_in_is_answered_or_refused(
    embedded: dodona.Client, alarms: Callable[[float], Any]
) -> None:
    answers: list[Any] = []

    def handle(*_: object) -> None:
        try:
            answers.append(embedded.insert_rows(T, [{"id": 2, "balance": len(answers)}]))
        except InvalidRequest as error:
            answers.append(error)

    signal.signal(signal.SIGALRM, handle)
    for number in range(40):
        alarms(0.0001 + number * 0.00003)
        embedded.insert_rows(T, [{**KEY, "balance": number}])
        alarms(0)
        assert balance(embedded) == number
    for _, answer in zip(range(40), answers, strict=False):
        assert isinstance(answer, int) or "signal handler" in answer.message


def test_a_signal_handler_may_use_the_light_client(
    light: dodona.Client, alarms: Callable[[float], Any]
) -> None:
    answers: list[Any] = []
    signal.signal(signal.SIGALRM, lambda *_: answers.append(light.generate_timestamp()))
    for number in range(60):
        alarms(0.0001 + number * 0.00002)
        light.insert_rows(T, [{**KEY, "balance": number}])
        alarms(0)
    assert len(answers) == len({*answers})
    assert balance(light) == 59


class Dying:
    """Uses the client when it is collected, in whatever thread that happens to be."""

    def __init__(self, call: Callable[[], Any], said: list[Any]) -> None:
        self.call, self.said, self.itself = call, said, self

    def __del__(self) -> None:
        try:
            self.said.append(self.call())
        except BaseException as error:  # noqa: BLE001 - it is looked at by the test
            self.said.append(error)


def test_finalizers_may_use_the_light_client(light: dodona.Client) -> None:
    check_finalizers(light)


def test_finalizers_may_use_an_embedded_database(embedded: dodona.Client) -> None:
    check_finalizers(embedded)


def check_finalizers(db: dodona.Client) -> None:
    """They run wherever Python collects garbage: within a call of the client too. They are
    answered or refused."""
    said: list[Any] = []
    threshold = gc.get_threshold()
    gc.set_threshold(7, 1, 1)
    made = 0
    try:
        for number in range(60):
            for call in (db.generate_timestamp, lambda: db.insert_rows(T, [{"id": 3}])):
                Dying(call, said)
                made += 1
            in_time(partial(db.insert_rows, T, [{**KEY, "balance": number}]))
            db.insert_rows(T, [{**KEY, "balance": number}])
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    wait_until(lambda: len(said) >= made)
    assert len(said) == made
    for answer in said:
        assert answer is None or isinstance(answer, int | InvalidRequest), answer
    assert balance(db) == 59


# ---- forks

FORKED = """
import os, sys
import dodona
db = dodona.{how}({place!r})
db.generate_timestamp()
child = os.fork()
if child == 0:
    try:
        db.generate_timestamp()
    except dodona.InvalidRequest as error:
        print(error.message)
    sys.stdout.flush()
    sys.exit(0)
_, status = os.waitpid(child, 0)
db.generate_timestamp()
db.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def run_forked(how: str, place: str) -> None:
    program = FORKED.format(how=how, place=place)
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
        )
        assert (run.returncode, run.stderr) == (0, "")
        assert "fork" in run.stdout


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_fork_of_a_client_ends_well(cluster: FakeCluster, host: str) -> None:
    """libuv's own threads, which look up names, would be waited for by the end of the fork."""
    run_forked("connect", cluster.url.replace("127.0.0.1", host))


def test_a_fork_of_an_embedded_database_ends_well(tmp_path: Path) -> None:
    run_forked("open", str(tmp_path / "data"))


def test_names_are_looked_up_as_ever(cluster: FakeCluster) -> None:
    async def ask() -> None:
        loop = asyncio.get_running_loop()
        port = int(cluster.url.rpartition(":")[2])
        transport, _ = await loop.create_connection(asyncio.Protocol, "localhost", port)
        transport.close()
        with pytest.raises(OSError, match=r"."):
            await loop.create_connection(asyncio.Protocol, "no.such.host.invalid", port)

    loop = loops.new_event_loop()
    loop.run_until_complete(ask())
    loop.close()


def test_an_interrupted_thread_does_not_block_calls_of_other_threads(
    embedded: dodona.Client,
) -> None:
    """Others who wait while the main thread is interrupted get their answers."""
    stop, failures = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            try:
                embedded.lookup_rows(T, [KEY])
            except dodona.DodonaError as error:
                failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in range(30):
        timer = threading.Timer(0.0005 + number * 0.0002, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            embedded.insert_rows(T, [{**KEY, "balance": number}])
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            timer.join()
    signal.signal(signal.SIGINT, before)
    stop.set()
    for thread in threads:
        thread.join(WAIT_S_MAX)
        assert not thread.is_alive()
    assert [it for it in failures if it.kind != "unavailable"] == []
