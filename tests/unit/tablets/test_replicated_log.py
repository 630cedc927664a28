"""The log of a cell whose copies are on replicas: real cores of replicas, without processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dodona_replication.core.coordination import Answer
from dodona_replication.core.document import Document
from dodona_replication.core.errors import LogLost
from dodona_replication.core.owner import Owner
from dodona_replication.core.owner_effects import Ended, OwnerLimits
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.folder import FolderCoordinator
from dodona_replication.shell.owner_host import TakeOverStuck
from dodona_server.process import read_clock
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.shell import replicated_log
from dodona_tablets.shell.replicated_log import ReplicatedCellLog, Replication
from dodona_wire.errors import Forbidden, InvalidRequest
from dodona_wire.net.folder import lock_folder
from dodona_wire.types import CellId
from suite.waiting import WAIT_S_MAX
from unit.replication.replicas import CLUSTER
from unit.tablets.logs import rows
from unit.tablets.replica_links import Replicas

pytestmark = pytest.mark.anyio

BYTES_MAX = 1 << 20
LOG = "cell-1"


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> Replicas:
    made = Replicas()
    monkeypatch.setattr(replicated_log, "ReplicaLinks", made)
    return made


class Log:
    """A log, and what its runtime hears."""

    def __init__(self, log: ReplicatedCellLog) -> None:
        self.log = log
        self.reports: list[BaseException | None] = []
        self._heard = asyncio.Event()
        log.begin(self._hear)

    def _hear(self, error: BaseException | None) -> None:
        self.reports.append(error)
        self._heard.set()

    async def next_report(self) -> BaseException | None:
        async with asyncio.timeout(WAIT_S_MAX):
            while not self.reports:
                self._heard.clear()
                await self._heard.wait()
        return self.reports.pop(0)

    async def append(self, *records: Record) -> None:
        self.log.append(records)
        assert await self.next_report() is None


def log_in(
    folder: Path,
    limits: OwnerLimits | None = None,
    coordinator: type[FolderCoordinator] = FolderCoordinator,
) -> ReplicatedCellLog:
    """The log of a node whose folder is there."""

    async def open_coordinator() -> Coordinator:
        return coordinator.open(folder / "etcd")

    coordination = Replication(
        CLUSTER, tuple("abcd"), open_coordinator, limits=limits or OwnerLimits()
    )
    return ReplicatedCellLog(lock_folder(folder / "node"), CellId(1), BYTES_MAX, coordination)


@asynccontextmanager
async def opened(folder: Path, found: list[Any], **limits: int) -> AsyncIterator[Log]:
    """Open the log as a node does. `found` gets what it replays."""
    log = log_in(folder, OwnerLimits(**limits))
    try:
        await log.prepare(lambda: found.extend([*log.survey(), "all", *log.read()]))
        opened_log = Log(log)
        yield opened_log
        await log.leave()
        assert opened_log.reports == [], "a log that is given up is no fault"
    finally:
        log.close()


async def test_a_new_log_is_empty_and_an_old_one_comes_back(
    tmp_path: Path, replicas: Replicas
) -> None:
    found: list[Any] = []
    async with opened(tmp_path, found) as it:
        assert found == ["all"]
        await it.append(rows(1), rows(2))
        await it.append(rows(3))
        size_bytes = it.log.size_bytes()
        assert size_bytes == it.log.written_bytes > 0
    found = []
    async with opened(tmp_path, found) as it:
        assert found == ["all", rows(1), rows(2), rows(3)]
        assert it.log.size_bytes() == size_bytes
        assert it.log.fill_ratio() == size_bytes / BYTES_MAX
        assert it.log.written_bytes == 0


async def test_a_log_is_cut_before_its_checkpoint(tmp_path: Path, replicas: Replicas) -> None:
    async with opened(tmp_path, []) as it:
        await it.append(rows(1))
        await it.append(Checkpoint(1), rows(2))
        await it.append(Checkpoint(2))
        it.log.truncate_before(1)
        it.log.truncate_before(7)  # of which the log knows nothing
        await it.append(rows(3))
        assert it.log.size_bytes() < it.log.written_bytes
        assert {store.logs()[LOG].tail.first_index for store in replicas.members()} >= {3}
    found: list[Any] = []
    async with opened(tmp_path, found) as it:
        assert found[found.index("all") + 1 :] == [Checkpoint(1), rows(2), Checkpoint(2), rows(3)]
        it.log.truncate_before(2)  # a checkpoint of before the start
        await it.append(rows(4))
    found = []
    async with opened(tmp_path, found):
        assert found[found.index("all") + 1 :] == [Checkpoint(2), rows(3), rows(4)]


async def test_a_batch_without_records_waits_for_all_replicas(
    tmp_path: Path, replicas: Replicas
) -> None:
    async with opened(tmp_path, [], lease_ms=0, silent_ms=60_000, ping_ms=20) as it:
        assert not it.log.may_answer(read_clock())
        it.log.append([])
        assert await it.next_report() is None
        replicas.away = {"b"}
        it.log.append([])
        await asyncio.sleep(0.1)
        assert it.reports == []
        replicas.away = set()
        assert await it.next_report() is None


async def test_a_log_with_too_few_copies_names_the_silent_address(
    tmp_path: Path, replicas: Replicas
) -> None:
    async with opened(tmp_path, [], silent_ms=400, ping_ms=20, repeat_ms=20) as it:
        assert it.log.shortage(read_clock()) is None
        replicas.away = {"b", "c", "d"}
        it.log.append([rows(1)])
        async with asyncio.timeout(WAIT_S_MAX):
            while (text := it.log.shortage(read_clock())) is None:
                await asyncio.sleep(0.01)
        assert "copies and needs 2, but nothing comes from http://" in text
        assert it.reports == []
        replicas.away = set()
        assert await it.next_report() is None


async def test_a_log_that_another_process_has_ends_this_one(
    tmp_path: Path, replicas: Replicas
) -> None:
    async with opened(tmp_path, []) as it:
        for core in [it for it in replicas.cores.values() if LOG in it._logs]:
            core._logs[LOG].epoch += 1  # another process fenced it
        it.log.append([rows(1)])
        error = await it.next_report()
        assert isinstance(error, LogLost)
        assert "log cell-1 is not this process's any more: replica" in error.message


async def test_a_log_that_is_lost_before_the_runtime_begins_is_reported_then(
    tmp_path: Path, replicas: Replicas
) -> None:
    async with opened(tmp_path, []) as it:
        it.log._ended(Ended("another process took the log over"))
        assert isinstance(it.reports.pop(), LogLost)
        again = Log(it.log)
        assert isinstance(again.reports.pop(), LogLost)
        it.log.append([rows(1)])
        it.log.append([])
        assert it.reports == again.reports == []


async def test_an_unexpected_error_of_a_core_is_reported(
    tmp_path: Path, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, []) as it:

        def fail(*_: Any) -> None:
            raise AssertionError("an entry is missing")

        monkeypatch.setattr(Owner, "handle_reply", fail)
        it.log.append([rows(1)])
        assert isinstance(await it.next_report(), AssertionError)


def test_a_log_needs_as_many_addresses_as_copies(tmp_path: Path) -> None:
    async def open_coordinator() -> Coordinator:
        raise NotImplementedError

    folder = lock_folder(tmp_path)
    replication = Replication(CLUSTER, ("a", "b"), open_coordinator)
    with pytest.raises(InvalidRequest, match="gets 3 copies"):
        ReplicatedCellLog(folder, CellId(1), BYTES_MAX, replication)
    folder.close()


async def test_an_owner_that_appends_nothing_keeps_its_lease(
    tmp_path: Path, replicas: Replicas
) -> None:
    async with opened(tmp_path, [], lease_ms=200, ping_ms=20) as it:
        await it.append(rows(1))
        for _ in range(20):
            await asyncio.sleep(0.02)
            assert it.log.shortage(read_clock()) is None
        assert it.log.may_answer(read_clock())


async def test_a_log_reports_its_copies_and_its_take_over(
    tmp_path: Path, replicas: Replicas
) -> None:
    async with opened(tmp_path, []) as it:
        await it.append(rows(1))
        found = it.log.report()
        assert (found.log, found.epoch, found.text) == (LOG, 1, "3 of 3 copies")
        assert found.owner.startswith("node-1/")
        assert found.take_over_us is not None
        assert found.take_over_us > 0
        assert found.coordinator_silent_us == 0
    async with opened(tmp_path, []) as it:
        assert it.log.report().epoch == 2


async def test_replicas_hear_of_the_owner_until_another_event_loop_has_the_log(
    tmp_path: Path, replicas: Replicas
) -> None:
    """A process that builds its server after the take-over asked no replica anything, and another
    one could take the log over."""
    log = log_in(tmp_path, OwnerLimits(ping_ms=5))
    assert await asyncio.to_thread(log.take, lambda: "recovered") == "recovered"
    for is_joined in (False, True):
        if is_joined:
            await log.join()
        enough = replicas.asked_count + 30
        async with asyncio.timeout(WAIT_S_MAX):
            while replicas.asked_count < enough:
                await asyncio.sleep(0.01)
    it = Log(log)
    await it.append(rows(1))
    await log.leave()
    assert it.reports == []
    log.close()


async def test_what_fails_in_the_thread_of_a_take_over_is_raised_to_its_caller(
    tmp_path: Path, replicas: Replicas
) -> None:
    def fail() -> None:
        raise OSError("no such chunk")

    log = log_in(tmp_path)
    with pytest.raises(OSError, match="no such chunk"):
        await asyncio.to_thread(log.take, fail)
    log.close()


async def test_a_take_over_that_does_not_get_on_is_given_up_and_says_what_is_missing(
    tmp_path: Path, replicas: Replicas
) -> None:
    """It would keep a node that stands by from all other cells."""
    async with opened(tmp_path, []) as it:
        await it.append(rows(1))
    replicas.away = {"b", "c"}
    log = log_in(tmp_path)
    with pytest.raises(TakeOverStuck, match=r"got on for 0\.05 s; .* http://b, http://c"):
        await log.prepare(lambda: None, stuck_s=0.05)
    log.close()
    replicas.away = set()
    found: list[Any] = []
    async with opened(tmp_path, found):
        assert found == ["all", rows(1)]


class ReadOnly(FolderCoordinator):
    """The coordinator of a user who may only read, once the log has a document."""

    async def compare(self, log: str, revision: int | None, document: Document) -> Answer:
        if revision is not None:
            raise Forbidden("the user ann needs a role that may write")
        return await super().compare(log, revision, document)


async def test_a_process_that_may_not_write_documents_says_so_and_does_not_wait_for_ever(
    tmp_path: Path, replicas: Replicas
) -> None:
    log = log_in(tmp_path, coordinator=ReadOnly)
    with pytest.raises(Forbidden, match="the user ann needs a role"):
        async with asyncio.timeout(WAIT_S_MAX):
            await log.prepare(lambda: None)
    log.close()
