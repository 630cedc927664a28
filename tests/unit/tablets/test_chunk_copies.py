"""Copies of the chunks of an object store: which come, which go, and when."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import InvalidRequest, Unavailable
from unit.tablets.test_chunk_cache import (
    EPOCH,
    FIRST,
    NAMES,
    Store,
    cache,
    files,
    rows_of,
    written,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


def test_a_copy_that_was_evicted_is_fetched_again(store: Store, tmp_path: Path) -> None:
    chunks = cache(store, tmp_path)
    info = written(chunks)
    chunks.evict([FIRST])
    assert store.everything() == NAMES
    assert bytes(chunks.fetch(info)) == (store.folder / NAMES[0]).read_bytes()
    assert store.got == [NAMES[0]]


def test_the_order_of_use_survives_a_restart(store: Store, tmp_path: Path) -> None:
    chunks = cache(store, tmp_path)
    numbers = [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]
    needed = {it: written(chunks, it) for it in numbers}
    chunks.touch([FIRST + 1, FIRST])
    chunks.evict([FIRST + 2])
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    opened = again.open_all(needed)
    assert [it for it in opened if not opened[it].is_away] == [FIRST + 3, FIRST + 1, FIRST]


def test_a_damaged_copy_is_never_used_and_stays_until_a_good_one_comes(
    store: Store, tmp_path: Path
) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    path = tmp_path / "here" / "chunks" / f"{FIRST}.arrow"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"!")
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    assert again.open_all(needed)[FIRST].is_away
    store.is_away = True
    with pytest.raises(Unavailable):
        again.fetch(needed[FIRST])
    assert path.read_bytes() == good[:-1] + b"!"
    store.is_away = False
    assert bytes(again.fetch(needed[FIRST])) == good == path.read_bytes()


def test_a_copy_stays_until_the_store_is_known_to_have_the_chunk(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store did not list its objects at the start."""
    needed = {FIRST: written(cache(store, tmp_path))}
    for name in NAMES:
        (store.folder / name).unlink()
    store.is_away = True
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    again.open_all(needed)
    store.answers = 0
    again.evict([FIRST])
    assert files(tmp_path) == [f"{FIRST}.arrow", f"{FIRST}.index"]
    assert caplog.records[-1].fields["event"] == "chunks_not_evicted"  # type: ignore[attr-defined]
    assert len(again.fetch(needed[FIRST])) == needed[FIRST].size_bytes, "it is here"
    store.is_away, store.answers = False, 2
    assert again.evict([]) == [FIRST], "it is tried again"
    assert store.everything() == NAMES
    assert files(tmp_path) == [f"{FIRST}.index"]


def test_rows_whose_index_was_fetched_go_only_if_the_store_has_them(
    store: Store, tmp_path: Path
) -> None:
    """The store does not list its objects at the start, but gives the index."""
    needed = {FIRST: written(cache(store, tmp_path))}
    (store.folder / NAMES[0]).unlink()
    (tmp_path / "here" / "chunks" / f"{FIRST}.index").unlink()
    store.is_away = True
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    store.is_away = False
    assert not again.open_all(needed)[FIRST].is_away
    store.is_away = True
    assert again.evict([FIRST]) == []
    store.is_away = False
    assert again.evict([]) == [FIRST]
    assert store.everything() == NAMES


def test_a_store_that_can_not_be_used_keeps_copies_and_is_asked_once(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needed = {it: written(cache(store, tmp_path), it) for it in (FIRST, FIRST + 1)}
    store.is_away = True
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    again.open_all(needed)
    store.is_away = False
    fresh = written(again, (EPOCH + 1 << 32) + 1)
    asked: list[str] = []

    def refuse(prefix: str) -> Iterator[str]:
        asked.append(prefix)
        raise InvalidRequest("403")

    store.names = refuse  # type: ignore[method-assign]
    caplog.clear()
    assert again.evict([FIRST, fresh.number, FIRST + 1]) == [fresh.number]
    assert len(asked) == 1
    (told,) = caplog.records
    assert told.fields["event"] == "chunks_not_evicted"  # type: ignore[attr-defined]
    assert len([it for it in files(tmp_path) if it.endswith(".arrow")]) == 2


def test_a_file_that_is_no_chunk_is_not_counted(store: Store, tmp_path: Path) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    (tmp_path / "here" / "chunks" / f"{FIRST}.arrow").write_bytes(b"short")
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    again.open_all(needed)
    again.evict([FIRST])
    gc.collect()
    assert again.counts.size_bytes == 0


def test_a_damaged_byte_in_a_copy_is_found_at_the_start(store: Store, tmp_path: Path) -> None:
    """The index and the sizes are right."""
    needed = {FIRST: written(cache(store, tmp_path))}
    path = tmp_path / "here" / "chunks" / f"{FIRST}.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    chunk = again.open_all(needed)[FIRST]
    chunk.bring(again.fetch(needed[FIRST]))
    assert rows_of(chunk) == needed[FIRST].row_count


def test_a_store_that_lacks_a_chunk_gets_it_again(store: Store, tmp_path: Path) -> None:
    """Perhaps a rule of the store removed it, or the store is a new one."""
    needed = {it: written(cache(store, tmp_path), it) for it in (FIRST, FIRST + 1)}
    (store.folder / NAMES[1]).unlink()
    before = store.answers
    cache(store, tmp_path, epoch=EPOCH + 1).open_all(needed)
    assert NAMES[1] in store.everything()
    assert before - store.answers == 1, "only this object was uploaded"
    cache(store, tmp_path, "there", EPOCH + 2).open_all(needed)


def test_a_fetch_without_an_answer_is_repeated(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    there = cache(store, tmp_path, "there", EPOCH + 1)
    get, failures = store.get, [Unavailable("no answer"), Unavailable("no answer")]

    def get_later(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        get(*arguments)

    monkeypatch.setattr(store, "get", get_later)
    assert there.open_all(needed)[FIRST].is_away
    failures = [Unavailable("no answer"), Unavailable("no answer")]
    assert len(there.fetch(needed[FIRST])) == needed[FIRST].size_bytes
    assert there.counts.report(None).fetches["failed"] == 4
