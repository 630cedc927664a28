"""The threads that bring chunks from an object store, and let copies go."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest
from pydantic import ValidationError

from dodona_tablets.shell.cache_jobs import CacheJobs
from dodona_tablets.shell.chunk_cache import ChunkCache, ChunkGone
from dodona_tablets.shell.objects import check_wanted
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.cores.effects import EvictChunks, FetchChunk, TouchChunks
from dodona_wire.messages.base import Failure
from suite.waiting import wait_until
from unit.tablets.test_chunk_cache import FIRST, NAMES, Store, cache, files, written

WAIT_S = 60


class Bringing:
    """The threads for the chunks of a cell, and what they said."""

    def __init__(self, chunks: ChunkCache) -> None:
        self.delivered: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self.fatal: SimpleQueue[BaseException] = SimpleQueue()
        self.jobs = CacheJobs(chunks, lambda *it: self.delivered.put(it), self.fatal.put)

    def fetched(self) -> tuple[int, Any]:
        """The number of the next chunk that is answered, and its bytes or a failure."""
        return self.delivered.get(timeout=WAIT_S)


@contextmanager
def bringing(chunks: ChunkCache) -> Iterator[Bringing]:
    """Run the threads. What they fail with is looked at before the end, or there is nothing."""
    it = Bringing(chunks)
    yield it
    it.jobs.close()
    assert it.fatal.empty()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


@pytest.fixture
def chunks(store: Store, tmp_path: Path) -> ChunkCache:
    return cache(store, tmp_path)


def test_a_chunk_goes_and_comes_back(store: Store, chunks: ChunkCache, tmp_path: Path) -> None:
    info = written(chunks)
    with bringing(chunks) as it:
        handlers = it.jobs.handlers()
        handlers[TouchChunks](TouchChunks((FIRST,)))
        it.jobs.evict(EvictChunks((FIRST,)))
        handlers[FetchChunk](FetchChunk(info))
        number, data = it.fetched()
        assert (number, len(data)) == (FIRST, info.size_bytes)
        store.is_away = True
        handlers[EvictChunks](EvictChunks((FIRST,)))
        wait_until(lambda: files(tmp_path) == [f"{FIRST}.index"])


def test_failures_of_the_store_are_answers_and_others_are_fatal(
    store: Store, chunks: ChunkCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = written(chunks)
    chunks.evict([FIRST])
    with bringing(chunks) as it:
        store.is_away = True
        it.jobs.fetch(FetchChunk(info))
        number, failure = it.fetched()
        assert isinstance(failure, Failure)
        assert (number, failure.kind) == (FIRST, "unavailable")
        store.is_away = False
        (store.folder / NAMES[0]).unlink()
        it.jobs.fetch(FetchChunk(info))
        _, failure = it.fetched()
        assert failure.kind == "data_corrupted"
        assert failure.attributes["object"] == NAMES[0]

        def fail(*_: object) -> None:
            raise OSError(5, "the disk fails")

        monkeypatch.setattr(store, "get", fail)
        it.jobs.fetch(FetchChunk(info))
        assert isinstance(it.fatal.get(timeout=WAIT_S), OSError)


def test_a_copy_that_is_fetched_again_stays(
    chunks: ChunkCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that removes copies is behind: it has other work until the fetch has ended."""
    info, other = written(chunks), written(chunks, FIRST + 1)
    may_go_on = Event()
    monkeypatch.setattr(chunks, "touch", lambda _: may_go_on.wait(WAIT_S))
    with bringing(chunks) as it:
        it.jobs.touch(TouchChunks((FIRST,)))
        it.jobs.evict(EvictChunks((FIRST, other.number)))
        it.jobs.fetch(FetchChunk(info))
        assert it.fetched()[0] == FIRST
        may_go_on.set()
        wait_until(lambda: not (tmp_path / "here/chunks" / f"{other.number}.arrow").exists())
    assert f"{FIRST}.arrow" in files(tmp_path)
    assert it.jobs._evicting == {}


def test_a_chunk_that_is_removed_while_it_comes_is_no_damage(
    store: Store, chunks: ChunkCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, later = written(chunks), written(chunks, FIRST + 1)
    chunks.evict([FIRST, FIRST + 1])
    get = store.get

    def get_and_lose(name: str, path: Path, *more: Any) -> None:
        get(name, path, *more)
        chunks.remove([FIRST])

    monkeypatch.setattr(store, "get", get_and_lose)
    with pytest.raises(ChunkGone):
        chunks.fetch(info)
    monkeypatch.undo()
    chunks.remove([FIRST + 1])
    with pytest.raises(ChunkGone):
        chunks.fetch(later)
    assert files(tmp_path) == []
    assert sum(chunks.counts.report(None).fetches.values()) == 0
    with bringing(chunks) as it:
        it.jobs.fetch(FetchChunk(info))
        assert it.fetched()[1].kind == "unavailable"


def test_a_stop_waits_for_no_download(
    store: Store, chunks: ChunkCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = written(chunks)
    chunks.evict([FIRST])
    has_begun = Event()

    def get_slowly(name: str, path: Path, is_over: Callable[[], bool]) -> None:
        has_begun.set()
        wait_until(is_over)
        check_wanted(store.place, name, is_over)

    monkeypatch.setattr(store, "get", get_slowly)
    with bringing(chunks) as it:
        it.jobs.fetch(FetchChunk(info))
        assert has_begun.wait(WAIT_S)
    assert it.fetched()[1].kind == "unavailable"


LOCAL: dict[str, Any] = {"cell": 0, "data_dir": Path("data")}
REPLICATED: dict[str, Any] = LOCAL | {
    "replicas": "http://a:1,http://b:1,http://c:1",
    "etcd": "http://e:1",
    "object_store": "file:///objects",
}


def settings(known: dict[str, Any], **more: Any) -> NodeSettings:
    return NodeSettings(**(known | more))


def test_a_limit_of_copies_reaches_the_cell() -> None:
    assert settings(REPLICATED).limits().chunk_cache_bytes_max is None
    limited = settings(REPLICATED, chunk_cache_mib_max=3)
    assert limited.limits().chunk_cache_bytes_max == 3 << 20


@pytest.mark.parametrize("value", [0, -1, "many", 1.5])
def test_a_limit_that_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="chunk_cache_mib_max"):
        settings(REPLICATED, chunk_cache_mib_max=value)


def test_a_limit_without_an_object_store_is_refused() -> None:
    with pytest.raises(ValidationError, match="chunk-cache-mib-max is of no use without replicas"):
        settings(LOCAL, chunk_cache_mib_max=3)
