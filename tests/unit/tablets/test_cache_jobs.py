"""The threads that bring chunks from an object store, and let copies go."""

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from pydantic import ValidationError

from dodona_tablets.shell.cache_jobs import CacheJobs
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.cores.effects import EvictChunks, FetchChunk, TouchChunks
from dodona_wire.messages.base import Failure
from unit.tablets.test_chunk_cache import FIRST, NAMES, Store, cache, files, written

WAIT_S = 60


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


def test_a_chunk_goes_and_comes_back(store: Store, tmp_path: Path) -> None:
    chunks = cache(store, tmp_path)
    info = written(chunks)
    delivered: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    failures: list[BaseException] = []
    jobs = CacheJobs(chunks, lambda *it: delivered.put(it), failures.append)
    handlers = jobs.handlers()
    handlers[TouchChunks](TouchChunks((FIRST,)))
    jobs.evict(EvictChunks((FIRST,)))
    handlers[FetchChunk](FetchChunk(info))
    number, data = delivered.get(timeout=WAIT_S)
    assert (number, len(data)) == (FIRST, info.size_bytes)
    store.is_away = True
    handlers[EvictChunks](EvictChunks((FIRST,)))
    jobs.close()
    assert files(tmp_path) == [f"{FIRST}.index"]
    assert failures == []


def test_failures_of_the_store_are_answers_and_others_are_fatal(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = cache(store, tmp_path)
    info = written(chunks)
    chunks.evict([FIRST])
    delivered: SimpleQueue[tuple[int, Any]] = SimpleQueue()
    fatal: SimpleQueue[BaseException] = SimpleQueue()
    jobs = CacheJobs(chunks, lambda *it: delivered.put(it), fatal.put)
    store.is_away = True
    jobs.fetch(FetchChunk(info))
    number, failure = delivered.get(timeout=WAIT_S)
    assert isinstance(failure, Failure)
    assert (number, failure.kind) == (FIRST, "unavailable")
    store.is_away = False
    (store.folder / NAMES[0]).unlink()
    jobs.fetch(FetchChunk(info))
    _, failure = delivered.get(timeout=WAIT_S)
    assert failure.kind == "data_corrupted"
    assert failure.attributes["object"] == NAMES[0]

    def fail(*_: object) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(store, "get", fail)
    jobs.fetch(FetchChunk(info))
    assert isinstance(fatal.get(timeout=WAIT_S), OSError)
    jobs.close()


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
