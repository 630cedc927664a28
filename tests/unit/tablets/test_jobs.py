"""Long work in threads: how fast it goes, and what its end is."""

import asyncio
import errno
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from dodona.errors import ConcurrentAppend, DiskFull, InvalidRequest
from dodona.types import KEY_MAX, KEY_MIN, MAX_TIMESTAMP, MIN_TIMESTAMP, TableSettings, Timestamp
from dodona_tablets.core.rows.chunks.jobs import (
    Batches,
    BatchJob,
    Built,
    CompactionJob,
    FlushJob,
    Job,
    Make,
    SealJob,
    batches_of,
    build,
)
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.shell import jobs
from dodona_tablets.shell.chunk_files import ChunkFiles
from dodona_tablets.shell.jobs import Jobs
from dodona_tablets.shell.turns import GivenUp
from dodona_wire.cores.effects import RunJob
from dodona_wire.messages.base import Failure
from suite.waiting import WAIT_S_MAX, wait_until
from unit.tablets.chunks.making import SCHEMA, at, key, made_of

BYTES_PER_S = 1_000
ROWS = 9_000
TERMS = Terms(MIN_TIMESTAMP, MIN_TIMESTAMP, TableSettings(), Timestamp(MAX_TIMESTAMP))


def compaction(number: int = 9) -> CompactionJob:
    chunks = [
        made_of({key(row): [at(7)] for row in rows}, number=place)
        for place, rows in enumerate((range(ROWS // 2), range(ROWS // 2, ROWS)))
    ]
    return CompactionJob(number, SCHEMA, tuple([it.view() for it in chunks]), TERMS)


def flush(number: int = 8) -> FlushJob:
    store = DynamicStore(1)
    for row in range(ROWS):
        store.put(key(row), at(7))
    return FlushJob(number, SCHEMA, store, None)


class Worker:
    """Jobs by a clock that only sleeping moves."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slept_s = 0.0
        self.ended: list[Any] = []
        self._has_ended = threading.Event()
        clock = SimpleNamespace(monotonic=lambda: self.slept_s, sleep=self._sleep)
        monkeypatch.setattr(jobs, "time", clock)
        self.files = ChunkFiles(folder)
        self.jobs = Jobs(self.files, BYTES_PER_S, self._deliver, self._fail)

    def _sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def _deliver(self, token: Any, result: Any) -> None:
        self.ended.append((token, result))
        self._has_ended.set()

    def _fail(self, error: BaseException) -> None:
        self.ended.append(error)
        self._has_ended.set()

    def end_of(self, job: Job) -> Any:
        self._has_ended.clear()
        self.jobs.run(RunJob("token", job))
        assert self._has_ended.wait(WAIT_S_MAX)
        return self.ended[-1]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    made = Worker(tmp_path, monkeypatch)
    yield made
    with suppress(OSError):  # one that a test has seen
        made.jobs.close()


def test_a_compaction_keeps_its_rate_limit(worker: Worker) -> None:
    job = compaction()
    token, result = worker.end_of(job)
    assert (token, type(result)) == ("token", Built)
    size_bytes = sum(batch.nbytes for batch in batches_of(job))
    assert worker.slept_s == pytest.approx(size_bytes / BYTES_PER_S)


def test_a_flush_waits_for_nothing(worker: Worker) -> None:
    _, result = worker.end_of(flush())
    assert result.info.row_count == ROWS
    assert worker.slept_s == 0


def test_a_seal_returns_its_deletions_or_the_conflict(worker: Worker) -> None:
    view = made_of({key(row): [at(7)] for row in range(ROWS)}).view()
    everything = ((KEY_MIN, KEY_MAX),)
    job = SealJob(9, SCHEMA, (), (view,), "upsert", Timestamp(7), everything)
    _, result = worker.end_of(job)
    assert (result.info.row_count, result.info.garbage_count) == (ROWS, ROWS)
    assert worker.slept_s == 0
    _, result = worker.end_of(replace(job, number=10, since=Timestamp(6)))
    assert isinstance(result, Failure)
    assert result.kind == ConcurrentAppend.kind
    assert worker.end_of(replace(job, number=11, erased=())) == ("token", None)
    assert sorted(it.name for it in worker.files.path.iterdir()) == ["9.arrow", "9.index"]


def test_a_batch_that_does_not_fit_is_an_answer(worker: Worker) -> None:
    """And not the end of the node: whoever sent it would send it to the next one."""
    job = BatchJob(9, SCHEMA, b"this is no Arrow stream", KEY_MIN, KEY_MAX)
    for kind in ("write", "update", "delete"):
        _, result = worker.end_of(replace(job, kind=kind))
        assert isinstance(result, Failure), result
        assert result.kind == InvalidRequest.kind
    assert list(worker.files.path.iterdir()) == []


def test_a_full_disk_is_an_answer(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise DiskFull("no space for a chunk")

    monkeypatch.setattr(worker.files, "write", refuse)
    _, result = worker.end_of(flush())
    assert isinstance(result, Failure)
    assert result.kind == DiskFull.kind


def test_the_log_names_failed_chunk_work_and_its_error_without_rows(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker.end_of(BatchJob(9, SCHEMA, b"this is no Arrow stream", KEY_MIN, KEY_MAX))
    assert caplog.records == [], "whose batch it is has been told"

    def refuse(*_: Any) -> None:
        raise DiskFull("no space for a chunk", path="/data/chunks/8.arrow")

    monkeypatch.setattr(worker.files, "write", refuse)
    for number in range(3):
        worker.end_of(flush(number))
    (told,) = caplog.records
    assert told.fields == {  # type: ignore[attr-defined]
        "event": "chunk_work_failed",
        "work": "flush",
        "kind": "disk_full",
        "reason": "no space for a chunk",
        "path": "/data/chunks/8.arrow",
    }
    worker.slept_s += jobs.TOLD_SECONDS_MIN
    worker.end_of(flush())
    assert len(caplog.records) == 2


def test_a_disk_error_is_passed_to_the_core_and_raised_again_at_close(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(worker.files, "write", fail)
    assert isinstance(worker.end_of(flush()), OSError)
    with pytest.raises(OSError, match="input/output error"):
        worker.jobs.close()


@pytest.mark.parametrize(
    ("number", "told"), [(errno.EIO, OSError), (errno.ENOSPC, GivenUp)], ids=["fails", "is full"]
)
def test_a_disk_error_during_cancelled_work_is_raised_unless_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: type[Exception]
) -> None:
    """What a full disk keeps is removed by the next start."""

    def give_up() -> Iterator[Any]:
        raise GivenUp
        yield

    def fail(path: Path, **_: object) -> None:
        raise OSError(number, "x", str(path))

    files = ChunkFiles(tmp_path)
    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(told):
        files.write(1, SCHEMA, give_up())


@pytest.mark.parametrize("job", [compaction(), flush()])
def test_work_is_given_up_at_the_end(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    is_waiting, may_go_on = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        is_waiting.set()
        assert may_go_on.wait(WAIT_S_MAX)

    monkeypatch.setattr("dodona_tablets.shell.jobs.time.sleep", sleep)
    worker.jobs.run(RunJob("token", job))
    assert is_waiting.wait(WAIT_S_MAX)
    closing = threading.Thread(target=worker.jobs.close)
    closing.start()
    wait_until(lambda: worker.jobs._is_closing)
    may_go_on.set()
    closing.join(WAIT_S_MAX)
    assert worker.ended == []
    assert list(worker.files.path.iterdir()) == []


def test_an_event_loop_that_shares_the_work_makes_only_the_batches_of_flushes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: the chunk is the one that a thread alone would have made."""
    makers: dict[type, set[int]] = {}

    def watched(job: Job, make: Make) -> Iterator[Any]:
        def noted(items: Batches) -> Batches:
            for item in items:
                makers.setdefault(type(job), set()).add(threading.get_ident())
                yield item

        return batches_of(job, lambda items: make(noted(items)))

    monkeypatch.setattr(jobs, "batches_of", watched)

    async def run(job: Job) -> Any:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        results: list[Any] = []

        def deliver(_: Any, result: Any) -> None:
            results.append(result)
            loop.call_soon_threadsafe(ended.set)

        worker = Jobs(files, 1 << 30, deliver, lambda error: deliver(None, error), shares_loop=True)
        worker.run(RunJob("token", job))
        await asyncio.wait_for(ended.wait(), WAIT_S_MAX)
        await asyncio.to_thread(worker.close)
        return results[0]

    files = ChunkFiles(tmp_path)
    flushed = asyncio.run(run(flush()))
    assert flushed.info == build(flush()).info  # type: ignore[union-attr]
    assert makers == {FlushJob: {threading.get_ident()}}
    compacted = asyncio.run(run(compaction()))
    assert compacted.info.row_count == ROWS
    assert makers == {FlushJob: {threading.get_ident()}}


def test_a_close_by_the_event_loop_cancels_a_running_flush(tmp_path: Path) -> None:
    """As a loop does that closes everything itself: nobody makes the rest meanwhile."""

    async def run() -> None:
        worker = Jobs(files, 1 << 30, lambda *it: ended.append(it), ended.append, shares_loop=True)
        worker.run(RunJob("token", flush()))
        await asyncio.sleep(0.001)
        worker.close()

    files, ended = ChunkFiles(tmp_path), list[Any]()
    asyncio.run(asyncio.wait_for(run(), WAIT_S_MAX))
    assert ended == []
    assert list(files.path.iterdir()) == []
