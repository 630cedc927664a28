"""Chunks in an object store, with copies in a folder: uploaded first, and fetched again."""

import errno
import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dodona.errors import DataCorrupted, DiskFull, Unavailable
from dodona.types import CellId
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.objects import FolderObjects, never
from dodona_wire.types import NO_CLUSTER, ClusterId
from unit.tablets.chunks.making import SCHEMA
from unit.tablets.chunks.test_chunk_files import batches

CELL = CellId(3)
EPOCH = 7
FIRST = (EPOCH << 32) + 1
CLUSTER = ClusterId(0xABC)
ROOM = "home/cell-3/0000000000000abc"
NAMES = [f"{ROOM}/{EPOCH}/1.arrow", f"{ROOM}/{EPOCH}/1.index"]


def joined() -> ClusterId:
    return CLUSTER


def alone() -> ClusterId:
    return NO_CLUSTER


class Store(FolderObjects):
    """A store whose answers are lost from some put on, or which is away."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.answers = 1_000_000
        self.is_away = False
        self.got: list[str] = []

    def put(self, name: str, path: Path) -> None:
        super().put(name, path)
        self.answers -= 1
        if self.answers < 0:
            raise Unavailable("no answer")

    def get(self, name: str, path: Path, is_over: Callable[[], bool] = never) -> None:
        self._reach()
        self.got.append(name)
        super().get(name, path, is_over)

    def remove(self, names: Iterable[str]) -> None:
        self._reach()
        super().remove(names)

    def names(self, prefix: str) -> Iterator[str]:
        self._reach()
        return super().names(prefix)

    def _reach(self) -> None:
        if self.is_away:
            raise Unavailable("away")

    def everything(self) -> list[str]:
        return sorted(super().names(""))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


def cache(store: Store, tmp_path: Path, machine: str = "here", epoch: int = EPOCH) -> ChunkCache:
    """The cache of a node that has replayed its log and listed the store."""
    made = unlisted(store, tmp_path, machine, epoch)
    with suppress(Unavailable):
        made.numbers(joined)
    return made


def unlisted(
    store: Store, tmp_path: Path, machine: str = "here", epoch: int = EPOCH, cell: CellId = CELL
) -> ChunkCache:
    folder = tmp_path / machine
    folder.mkdir(exist_ok=True)
    return ChunkCache(folder, store, ChunkNames("home", cell, epoch))


def written(chunks: ChunkCache, number: int = FIRST) -> ChunkInfo:
    info = chunks.write(number, SCHEMA, batches())
    assert info is not None
    return info


def files(tmp_path: Path, machine: str = "here") -> list[str]:
    return sorted(it.name for it in (tmp_path / machine / "chunks").iterdir())


def open_and_fetch(chunks: ChunkCache, needed: dict[int, ChunkInfo]) -> None:
    chunks.open_all(needed)
    for info in needed.values():
        chunks.fetch(info)


def rows_of(chunk: Chunk) -> int:
    return sum(chunk.block(it).batch.num_rows for it in range(len(chunk.index.blocks)))


# Writing


def test_a_chunk_is_in_the_store_and_in_the_folder(store: Store, tmp_path: Path) -> None:
    chunks = cache(store, tmp_path)
    info = written(chunks)
    assert store.everything() == NAMES
    assert files(tmp_path) == [f"{FIRST}.arrow", f"{FIRST}.index"]
    assert rows_of(chunks.open(info)) == info.row_count


def test_the_cache_knows_how_much_it_has(store: Store, tmp_path: Path) -> None:
    chunks = cache(store, tmp_path)
    assert chunks.counts.size_bytes == 0
    infos = [written(chunks), written(chunks, FIRST + 1)]
    assert chunks.counts.size_bytes == sum(it.size_bytes for it in infos) > 0
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    again.open_all({it.number: it for it in infos})
    assert again.counts.size_bytes == chunks.counts.size_bytes
    again.remove([FIRST])
    again.remove([FIRST])
    assert again.counts.size_bytes == infos[1].size_bytes


def test_a_removed_copy_counts_until_its_map_ends(store: Store, tmp_path: Path) -> None:
    chunks = cache(store, tmp_path)
    info = written(chunks)
    reader = chunks.open(info)
    chunks.evict([FIRST])
    assert files(tmp_path) == [f"{FIRST}.index"]
    assert rows_of(reader) == info.row_count, "its map stays"
    assert chunks.counts.size_bytes == info.size_bytes
    reader.let_go()
    gc.collect()
    assert chunks.counts.size_bytes == 0
    assert chunks.counts.report(None).evicted_bytes == info.size_bytes


def test_no_rows_make_no_object(store: Store, tmp_path: Path) -> None:
    assert cache(store, tmp_path).write(FIRST, SCHEMA, []) is None
    assert store.everything() == []


@pytest.mark.parametrize("answers", [0, 1])
def test_without_an_answer_the_chunk_is_none_and_the_store_is_left_alone(
    store: Store, tmp_path: Path, answers: int
) -> None:
    """The upload may have arrived, or may still arrive. Its name is not used again."""
    chunks = cache(store, tmp_path)
    store.answers = answers
    with pytest.raises(Unavailable):
        written(chunks)
    assert store.everything() == NAMES[: answers + 1]
    assert files(tmp_path) == []


def test_a_chunk_is_removed_from_both(store: Store, tmp_path: Path) -> None:
    chunks = cache(store, tmp_path)
    written(chunks)
    written(chunks, FIRST + 1)
    chunks.remove([FIRST])
    assert store.everything() == [it.replace("/1.", "/2.") for it in NAMES]
    assert files(tmp_path) == [f"{FIRST + 1}.arrow", f"{FIRST + 1}.index"]


def test_a_removal_that_fails_is_told_and_left_to_a_later_start(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chunks = cache(store, tmp_path)
    written(chunks)
    store.is_away = True
    chunks.remove([FIRST])
    (told,) = caplog.records
    assert told.fields["event"] == "chunks_not_removed"  # type: ignore[attr-defined]
    store.is_away = False
    assert cache(store, tmp_path, epoch=EPOCH + 1).numbers(joined) == {FIRST}


# The start


def test_another_machine_fetches_what_the_log_names(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    here = cache(store, tmp_path)
    needed = {it: written(here, it) for it in range(FIRST, FIRST + 20)}
    there = cache(store, tmp_path, "there", EPOCH + 1)
    opened = there.open_all(needed)
    assert all(it.is_away for it in opened.values())
    assert files(tmp_path, "there") == [it for it in files(tmp_path) if it.endswith(".index")]
    (told,) = caplog.records
    assert told.fields["event"] == "chunks_away"  # type: ignore[attr-defined]
    assert told.fields["chunks"] == 20  # type: ignore[attr-defined]
    for number, chunk in opened.items():
        chunk.bring(there.fetch(needed[number]))
        assert rows_of(chunk) == needed[number].row_count
    assert files(tmp_path, "there") == files(tmp_path)
    assert there.counts.size_bytes == sum(it.size_bytes for it in needed.values())
    assert there.counts.report(5).fetches == {"done": 40, "missing": 0, "damaged": 0, "failed": 0}


def test_a_start_with_good_copies_needs_no_store(store: Store, tmp_path: Path) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    store.is_away = True
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    assert again.numbers(joined) == set()
    assert rows_of(again.open_all(needed)[FIRST]) == needed[FIRST].row_count


@pytest.mark.parametrize("suffix", ["arrow", "index"])
@pytest.mark.parametrize("damage", ["missing", "short", "another"])
def test_a_bad_copy_is_fetched_again(
    store: Store, tmp_path: Path, suffix: str, damage: str
) -> None:
    here = cache(store, tmp_path)
    needed = {FIRST: written(here)}
    path = tmp_path / "here" / "chunks" / f"{FIRST}.{suffix}"
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        other = cache(store, tmp_path, "other", EPOCH - 1)
        number = other.first_number
        assert other.write(number, SCHEMA, list(batches())[:2]) is not None
        (tmp_path / "other" / "chunks" / f"{number}.{suffix}").replace(path)
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    chunk = again.open_all(needed)[FIRST]
    chunk.bring(again.fetch(needed[FIRST]))
    assert rows_of(chunk) == needed[FIRST].row_count
    assert store.got == [it for it in NAMES if it.endswith(suffix)], "the other file is good"


def test_files_that_the_log_does_not_name_leave_the_folder_and_not_the_store(
    store: Store, tmp_path: Path
) -> None:
    here = cache(store, tmp_path)
    needed = {FIRST: written(here)}
    written(here, FIRST + 1)
    (tmp_path / "here" / "chunks" / "5.arrow.part").write_bytes(b"")
    again = cache(store, tmp_path, epoch=EPOCH + 1)
    again.open_all(needed)
    assert files(tmp_path) == [f"{FIRST}.arrow", f"{FIRST}.index"]
    assert again.numbers(joined) == {FIRST, FIRST + 1}


@pytest.mark.parametrize("suffix", ["arrow", "index"])
@pytest.mark.parametrize("at", [0, 100, -1])
def test_an_object_with_other_bytes_is_never_used(
    store: Store, tmp_path: Path, suffix: str, at: int
) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    path = store.folder / f"{ROOM}/{EPOCH}/1.{suffix}"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    there = cache(store, tmp_path, "there", EPOCH + 1)
    with pytest.raises(DataCorrupted, match=r"The log names chunk .* restore a backup") as caught:
        open_and_fetch(there, needed)
    name = f"{ROOM}/{EPOCH}/1.{suffix}"
    assert caught.value.attributes == {
        "object_store": there.place,
        "object": name,
        "chunk": FIRST,
    }
    assert store.got.count(name) == 3
    assert files(tmp_path, "there") == ([f"{FIRST}.index"] if suffix == "arrow" else [])
    counted = there.counts.report(None).fetches
    assert (counted["damaged"], counted["failed"]) == (1, 2)


def test_an_index_that_is_missing_ends_a_start_and_is_named(store: Store, tmp_path: Path) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    (store.folder / NAMES[1]).unlink()
    with pytest.raises(DataCorrupted, match=f"there is no object {NAMES[1]}"):
        cache(store, tmp_path, "there", EPOCH + 1).open_all(needed)


def test_rows_that_are_missing_are_an_alarm_at_the_start_and_an_error_of_those_who_need_them(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    (store.folder / NAMES[0]).unlink()
    there = cache(store, tmp_path, "there", EPOCH + 1)
    assert there.open_all(needed)[FIRST].is_away
    (told,) = [it for it in caplog.records if it.levelname == "ERROR"]
    assert told.fields["event"] == "chunk_lost"  # type: ignore[attr-defined]
    with pytest.raises(DataCorrupted, match=f"there is no object {NAMES[0]}"):
        there.fetch(needed[FIRST])
    assert there.counts.report(None).fetches["missing"] == 1


def test_a_store_that_is_away_is_no_damage(store: Store, tmp_path: Path) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    there = cache(store, tmp_path, "there", EPOCH + 1)
    there.open_all(needed)
    store.is_away = True
    with pytest.raises(Unavailable, match="away"):
        there.fetch(needed[FIRST])
    with pytest.raises(Unavailable, match="away"):
        cache(store, tmp_path, "elsewhere", EPOCH + 1).open_all(needed)


def test_a_fetch_without_space_says_so_and_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {FIRST: written(cache(store, tmp_path))}
    there = cache(store, tmp_path, "there", EPOCH + 1)
    there.open_all(needed)

    def fill(name: str, path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(store, "get", fill)
    with pytest.raises(DiskFull):
        there.fetch(needed[FIRST])
    assert files(tmp_path, "there") == [f"{FIRST}.index"]


# Names


def test_only_chunks_of_this_cell_and_cluster_may_be_orphans(store: Store, tmp_path: Path) -> None:
    written(cache(store, tmp_path, epoch=6), (6 << 32) + 1)
    (store.folder / ROOM / "6" / "2.arrow.part").write_bytes(b"it never got whole")
    (store.folder / "home/cell-3/notes.txt").write_text("not a chunk")
    (store.folder / ROOM / "6" / "notes.arrow").write_text("not a chunk")
    other_cell = unlisted(store, tmp_path, "other cell", 1, CellId(30))
    other_cell.numbers(joined)
    written(other_cell, (1 << 32) + 1)
    other_cluster = unlisted(store, tmp_path, "other cluster", 1)
    other_cluster.numbers(lambda: ClusterId(0xDEF))
    written(other_cluster, (1 << 32) + 1)
    here = cache(store, tmp_path)
    orphans = here.numbers(joined)
    assert orphans == {(6 << 32) + 1, (6 << 32) + 2}
    here.remove(sorted(orphans))
    assert [it for it in store.everything() if it.startswith(f"{ROOM}/")] == [
        f"{ROOM}/6/notes.arrow"
    ]
    assert len(store.everything()) == 6


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1])
def test_chunks_of_this_epoch_or_a_later_one_are_an_alarm(
    store: Store, tmp_path: Path, epoch: int
) -> None:
    """A later owner may be at work already, or the log is older than its chunks."""
    written(cache(store, tmp_path, epoch=epoch), (epoch << 32) + 1)
    here = unlisted(store, tmp_path)
    with pytest.raises(Unavailable, match=f"has chunks of epoch {epoch}, and this process owns"):
        here.numbers(joined)


def test_a_cell_without_a_cluster_finds_chunks_of_any(store: Store, tmp_path: Path) -> None:
    """Its log is a new one, so the log of these chunks is missing."""
    written(cache(store, tmp_path, epoch=9), (9 << 32) + 1)
    assert unlisted(store, tmp_path, "there", 1).numbers(alone) == {(9 << 32) + 1}


@pytest.mark.parametrize("number", [1, 5, FIRST, (EPOCH << 32) + 2**32 - 1, (2**20 << 32) + 1])
def test_a_name_says_its_number(number: int) -> None:
    names = ChunkNames("home", CELL, EPOCH)
    name = names.name_of(CLUSTER, number, ".arrow")
    assert names.numbers_of([name], CLUSTER) == {number}
    assert names.numbers_of([name], ClusterId(5)) == set()
