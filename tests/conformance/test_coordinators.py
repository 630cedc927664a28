"""Coordinators: one document a log, changed by compare, whatever keeps it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from itertools import count
from pathlib import Path

import pytest

from conformance.coordinators import Backend, EtcdBackend, FolderBackend, SimulatedBackend
from dodona_loadtest.harness.relay import Relays
from dodona_replication.core.coordination import Applied, Compare, InDoubt, Refused, Superseded
from dodona_replication.core.document import Document, Revisioned, owner_id
from dodona_replication.core.errors import DocumentUnreadable
from dodona_replication.shell.coordinator import Coordinator
from dodona_wire.errors import FolderInUse, InvalidRequest, Unavailable
from suite.etcd import NEEDS_ETCD, EtcdCluster, etcd_cluster

FIRST = Document.initial(["a", "b"], 2)
EPOCHS = 5
CONTENDERS = 4
REAL = [NEEDS_ETCD, pytest.mark.integration, pytest.mark.part("a real etcd")]

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path_factory.mktemp("etcd")) as started:
        yield started


@pytest.fixture(scope="module")
def relays() -> Iterator[Relays]:
    with Relays() as running:
        yield running


@pytest.fixture(params=["folder", "simulated", pytest.param("etcd", marks=REAL)])
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Backend:
    if request.param == "folder":
        return FolderBackend(tmp_path, monkeypatch)
    if request.param == "simulated":
        return SimulatedBackend()
    return EtcdBackend(request.getfixturevalue("cluster"), request.getfixturevalue("relays"))


@pytest.fixture
def log() -> str:
    """A log that no other test has."""
    return f"log-{next(_numbers)}"


def owner(number: int) -> str:
    return owner_id(f"node-{number}", number.to_bytes(8, "big"))


async def created(coordinator: Coordinator, log: str) -> Revisioned:
    answer = await coordinator.compare(log, None, FIRST)
    assert isinstance(answer, Applied)
    return Revisioned(FIRST, answer.revision)


async def attempt(backend: Backend) -> Coordinator | None:
    try:
        return await backend.open()
    except FolderInUse:
        return None


def test_exactly_one_of_many_takes_over_in_each_epoch(backend: Backend, log: str) -> None:
    async def compete() -> None:
        maker = await backend.open()
        await created(maker, log)
        await maker.close()
        for epoch in range(1, EPOCHS + 1):
            opened = [await attempt(backend) for _ in range(CONTENDERS)]
            contenders = [it for it in opened if it is not None]
            assert len(contenders) == (CONTENDERS if backend.may_share else 1)
            seen = await asyncio.gather(*(it.read(log) for it in contenders))
            assert {it.document.epoch for it in seen if it is not None} == {epoch - 1}
            proposed = [
                Compare(it.revision, it.document.take_over(owner(100 * epoch + at)))
                for at, it in enumerate(seen)
                if it is not None
            ]
            answers = await asyncio.gather(
                *(
                    it.compare(log, compare.revision, compare.document)
                    for it, compare in zip(contenders, proposed, strict=True)
                )
            )
            won = [
                Revisioned(compare.document, it.revision)
                for it, compare in zip(answers, proposed, strict=True)
                if isinstance(it, Applied)
            ]
            assert len(won) == 1
            lost = [it for it in answers if not isinstance(it, Applied)]
            assert lost == [Refused(won[0])] * (len(contenders) - 1)
            assert [await it.read(log) for it in contenders] == won * len(contenders)
            for it in contenders:
                await it.close()

    asyncio.run(compete())


def test_a_document_is_created_once(backend: Backend, log: str) -> None:
    async def create() -> None:
        coordinator = await backend.open()
        assert await coordinator.read(log) is None
        assert await coordinator.compare(log, 7, FIRST) == Refused(None)
        first = await created(coordinator, log)
        assert first.revision > 0
        assert await coordinator.compare(log, None, FIRST) == Refused(first)
        assert await coordinator.read(log) == first
        assert await coordinator.read(f"{log}-2") is None
        await coordinator.close()

    asyncio.run(create())


def test_all_documents_are_read_together(backend: Backend, log: str) -> None:
    async def read() -> None:
        coordinator = await backend.open()
        first = await created(coordinator, log)
        other = await created(coordinator, f"{log}-2")
        found = await coordinator.documents()
        assert (found[log], found[f"{log}-2"]) == (first, other)
        taken = first.document.take_over(owner(1))
        answer = await coordinator.compare(log, first.revision, taken)
        assert isinstance(answer, Applied)
        assert (await coordinator.documents())[log] == Revisioned(taken, answer.revision)
        await coordinator.close()

    asyncio.run(read())


def test_a_compare_on_an_old_revision_is_refused_with_the_current_document(
    backend: Backend, log: str
) -> None:
    async def change() -> None:
        coordinator = await backend.open()
        first = await created(coordinator, log)
        taken = first.document.take_over(owner(1))
        answer = await coordinator.compare(log, first.revision, taken)
        assert isinstance(answer, Applied)
        current = Revisioned(taken, answer.revision)
        assert current.revision > first.revision
        late = first.document.take_over(owner(2))
        assert await coordinator.compare(log, first.revision, late) == Refused(current)
        changed = taken.with_members(["a", "c"])
        assert isinstance(await coordinator.compare(log, current.revision, changed), Applied)
        await coordinator.close()

    asyncio.run(change())


def test_a_watch_shows_rising_revisions_up_to_the_newest(backend: Backend, log: str) -> None:
    async def watch() -> None:
        coordinator = await backend.open()
        first = await created(coordinator, log)
        observer = await backend.open() if backend.may_share else coordinator
        watching = asyncio.create_task(
            collected(observer, log, 0, lambda it: it.document.epoch == 20)
        )
        later = asyncio.create_task(
            collected(observer, log, first.revision, lambda it: it.document.epoch == 20)
        )
        newest = first
        for _ in range(20):
            newest = await taken_over(coordinator, log, newest)
            await asyncio.sleep(0)
        seen = await watching
        assert seen[-1] == newest
        assert [it.revision for it in seen] == sorted({it.revision for it in seen})
        assert (await later)[-1] == newest
        assert min(it.revision for it in await later) > first.revision
        await observer.close()
        await coordinator.close()

    asyncio.run(watch())


async def taken_over(coordinator: Coordinator, log: str, current: Revisioned) -> Revisioned:
    document = current.document.take_over(owner(current.document.epoch + 1))
    answer = await coordinator.compare(log, current.revision, document)
    assert isinstance(answer, Applied)
    return Revisioned(document, answer.revision)


async def collected(
    coordinator: Coordinator, log: str, after_revision: int, is_last: Callable[[Revisioned], bool]
) -> list[Revisioned]:
    found = []
    async with aclosing(coordinator.watch(log, after_revision)) as watch:
        async for it in watch:
            found.append(it)
            if is_last(it):
                break
    return found


def test_a_lost_answer_is_settled_by_what_is_read_later(backend: Backend, log: str) -> None:
    async def lose() -> None:
        coordinator = await backend.open()
        first = await created(coordinator, log)
        compare = Compare(first.revision, first.document.take_over(owner(1)))
        async with backend.lose_answers(coordinator):
            answer = await coordinator.compare(log, compare.revision, compare.document)
        assert isinstance(answer, InDoubt)
        assert isinstance(compare.settle(first), InDoubt), "the old revision proves nothing"
        await coordinator.close()
        again = await backend.open()
        seen = await again.read(log)
        while isinstance(settled := compare.settle(seen), InDoubt):
            seen = await again.read(log)  # a real etcd may need a moment more
        assert seen is not None
        assert (seen.document.epoch, seen.document.owner) == (1, owner(1))
        if backend.may_share:
            assert settled == Applied(seen.revision)
        else:
            assert settled == Superseded(seen), "the process that had the folder is gone"
            assert seen.document == compare.document.release()
        # A repeat is refused, and its refusal settles the doubt as well.
        repeated = await again.compare(log, compare.revision, compare.document)
        assert repeated == Refused(seen)
        await again.close()

    asyncio.run(lose())


def test_documents_and_watches_outlive_a_restart(backend: Backend, log: str) -> None:
    async def restart() -> None:
        coordinator = await backend.open()
        first = await taken_over(coordinator, log, await created(coordinator, log))
        async with aclosing(coordinator.watch(log, 0)) as watch:
            assert await anext(watch) == first
            await backend.restart()
            assert await available(coordinator, log) == first
            newest = await taken_over(coordinator, log, first)
            assert await anext(watch) == newest
        await coordinator.close()
        again = await backend.open()
        seen = await again.read(log)
        assert seen is not None
        assert (seen.revision, seen.document.epoch) == (newest.revision, 2)
        following = await taken_over(again, log, seen)
        assert following.revision > newest.revision
        await again.close()

    asyncio.run(restart())


async def available(coordinator: Coordinator, log: str) -> Revisioned | None:
    """Read until the coordinator answers."""
    while True:
        try:
            return await coordinator.read(log)
        except Unavailable:
            continue


def test_a_closed_coordinator_ends_its_watches_and_answers_nothing(
    backend: Backend, log: str
) -> None:
    async def close() -> None:
        coordinator = await backend.open()
        await created(coordinator, log)
        is_begun = asyncio.Event()

        async def watch() -> None:
            async with aclosing(coordinator.watch(log, 0)) as watch:
                async for _ in watch:
                    is_begun.set()

        watching = asyncio.create_task(watch())
        await is_begun.wait()
        await coordinator.close()
        await coordinator.close()
        await watching
        with pytest.raises(Unavailable):
            await coordinator.read(log)
        with pytest.raises(Unavailable):
            await coordinator.compare(log, None, FIRST)

    asyncio.run(close())


@pytest.mark.parametrize("name", ["", "../a", "a/b", "a" * 65, "a\nb", "."])
def test_a_bad_name_of_a_log_is_refused(backend: Backend, name: str) -> None:
    async def ask() -> None:
        coordinator = await backend.open()
        with pytest.raises(InvalidRequest):
            await coordinator.read(name)
        with pytest.raises(InvalidRequest):
            await coordinator.compare(name, None, FIRST)
        await coordinator.close()

    asyncio.run(ask())


def test_a_document_that_no_process_could_read_is_not_stored(backend: Backend, log: str) -> None:
    async def store() -> None:
        coordinator = await backend.open()
        with pytest.raises(DocumentUnreadable, match="members"):
            await coordinator.compare(log, None, Document(0, None, (), 1, True))
        assert await coordinator.read(log) is None
        await coordinator.close()

    asyncio.run(store())
