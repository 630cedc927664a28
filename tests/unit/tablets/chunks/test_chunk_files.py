"""Files of chunks on a real disk: durable, found again, removed, and none left half-written."""

import errno
import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dodona.errors import DataCorrupted, DiskFull, Overloaded
from dodona.types import KEY_MAX, KEY_MIN, SYNC_LAST_COMMITTED
from dodona_tablets.core.rows.chunks.info import AttachedChunk, ChunkInfo
from dodona_tablets.core.rows.chunks.rows import batches_of_rows
from dodona_tablets.core.rows.chunks.view import ChunkView
from dodona_tablets.shell import chunk_files
from dodona_tablets.shell.chunk_files import ChunkFiles, numbers_in, verify_chunk
from unit.tablets.chunks.making import SCHEMA, Rows, at, items_of, key

ROWS: Rows = {key(it): [at(9, it), at(5, -it)] for it in range(100)}


@pytest.fixture
def files(tmp_path: Path) -> ChunkFiles:
    return ChunkFiles(tmp_path)


def batches(rows: Rows = ROWS) -> Iterator[pa.RecordBatch]:
    return batches_of_rows(SCHEMA, items_of(rows), slice_rows=30)


def written(files: ChunkFiles, number: int = 1) -> ChunkInfo:
    info = files.write(number, SCHEMA, batches())
    assert info is not None
    return info


def names(files: ChunkFiles) -> list[str]:
    return sorted(os.listdir(files.path))


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_was_written_is_read(files: ChunkFiles, in_memory: bool) -> None:
    info = written(files)
    chunk = ChunkFiles(files.path.parent).open(info, in_memory=in_memory)
    view = ChunkView(chunk, AttachedChunk(info), SCHEMA)
    assert all(view.versions(row, SYNC_LAST_COMMITTED) == ROWS[row] for row in ROWS)
    assert isinstance(chunk.data.obj, bytes if in_memory else pa.Buffer)
    assert names(files) == ["1.arrow", "1.index"]
    assert files.size_bytes() == info.size_bytes + (files.path / "1.index").stat().st_size
    assert verify_chunk(files.path, 1) == info


def test_no_rows_leave_no_files(files: ChunkFiles) -> None:
    assert files.write(1, SCHEMA, []) is None
    assert names(files) == []


def test_a_number_is_used_once(files: ChunkFiles) -> None:
    info = written(files)
    with pytest.raises(AssertionError, match="written before"):
        files.write(1, SCHEMA, batches({key(1): [at(1)]}))
    assert verify_chunk(files.path, 1) == info


def test_a_reader_of_a_removed_chunk_can_read_to_the_end(files: ChunkFiles) -> None:
    info = written(files)
    view = ChunkView(files.open(info), AttachedChunk(info), SCHEMA)
    files.remove([1])
    files.remove([1])
    assert names(files) == []
    assert sum(it.num_rows for it in view.batches(KEY_MIN, KEY_MAX)) == 200
    with pytest.raises(DataCorrupted, match="missing"):
        files.open(info)


def test_numbers_in_lists_the_numbers_of_complete_and_partial_chunks(files: ChunkFiles) -> None:
    for number in (1, 2, 30):
        written(files, number)
    (files.path / "2.arrow").unlink()
    (files.path / "4.arrow").write_bytes(b"half")
    (files.path / "notes.txt").write_text("not ours")
    assert numbers_in(files.path) == {1, 2, 4, 30}
    assert numbers_in(files.path / "nothing") == set()


def test_a_chunk_and_its_folder_are_synced_before_the_write_returns(
    files: ChunkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    written(files)
    assert synced == ["1.arrow", "1.index", "chunks"]


def test_long_files_are_synced_on_the_way(
    files: ChunkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(chunk_files, "SYNC_BYTES", 3000)
    monkeypatch.setattr(os, "fdatasync", lambda file: sizes.append(os.fstat(file).st_size))
    info = written(files)
    assert sizes
    assert all(b - a >= 3000 for a, b in zip([0, *sizes], sizes, strict=False))
    assert sizes[-1] > info.size_bytes - 6000


# Disks that are full, or fail


def refuse(code: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("where", ["write", "fsync"])
def test_a_full_disk_raises_disk_full_and_leaves_no_files(
    files: ChunkFiles, monkeypatch: pytest.MonkeyPatch, code: int, where: str
) -> None:
    target: object = chunk_files._SyncedFile if where == "write" else os
    with monkeypatch.context() as patch:
        patch.setattr(target, where, refuse(code))
        with pytest.raises(DiskFull, match="no space for a chunk") as caught:
            written(files)
    assert caught.value.attributes["path"] == str(files.path)
    assert isinstance(caught.value, Overloaded)
    assert names(files) == []
    written(files)


def test_a_disk_that_fills_up_at_any_write_raises_disk_full(
    files: ChunkFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 0
    write = chunk_files._SyncedFile.write

    def fill_up(self: Any, data: Any) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, data)

    monkeypatch.setattr(chunk_files._SyncedFile, "write", fill_up)
    for room in range(1000):
        left = room
        try:
            written(files)
        except DiskFull:
            assert names(files) == []
        else:
            break
    assert 20 < room < 999
    verify_chunk(files.path, 1)


def test_a_failing_disk_is_no_full_one(files: ChunkFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        written(files)


def test_a_file_that_really_is_full(files: ChunkFiles) -> None:
    """What Arrow makes of an error of the file below it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(DiskFull):
            written(files)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(files) == []


def test_an_error_in_the_source_of_the_rows_leaves_no_files(files: ChunkFiles) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise DataCorrupted("a chunk that is merged is damaged")

    with pytest.raises(DataCorrupted, match="merged"):
        files.write(1, SCHEMA, broken())
    assert names(files) == []


# Damage


def test_the_check_of_a_chunk_names_file_and_place(files: ChunkFiles) -> None:
    written(files)
    data, index = files.path / "1.arrow", files.path / "1.index"
    raw = data.read_bytes()
    data.write_bytes(raw[:1000] + bytes([raw[1000] ^ 1]) + raw[1001:])
    with pytest.raises(DataCorrupted, match="checksum") as caught:
        verify_chunk(files.path, 1)
    assert caught.value.attributes["path"] == str(data)
    assert caught.value.attributes["block"] == 0
    data.write_bytes(raw[:-1])
    with pytest.raises(DataCorrupted, match="bytes"):
        verify_chunk(files.path, 1)
    data.write_bytes(b"")
    with pytest.raises(DataCorrupted, match="0 bytes"):
        verify_chunk(files.path, 1)
    data.unlink()
    with pytest.raises(DataCorrupted, match="missing"):
        verify_chunk(files.path, 1)
    index.write_bytes(b"")
    with pytest.raises(DataCorrupted, match="too short"):
        verify_chunk(files.path, 1)


def test_a_chunk_under_another_s_number_is_found(files: ChunkFiles) -> None:
    written(files)
    for suffix in ("arrow", "index"):
        (files.path / f"1.{suffix}").rename(files.path / f"2.{suffix}")
    with pytest.raises(DataCorrupted, match="belongs to chunk 1"):
        verify_chunk(files.path, 2)


# Threads


def test_two_threads_write_while_one_reads(files: ChunkFiles) -> None:
    info = written(files)

    def write(numbers: range) -> None:
        for number in numbers:
            written(files, number)
            if number % 2:
                files.remove([number])

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, it) for it in (range(2, 12), range(20, 30))]
        while not all(it.done() for it in writers):
            view = ChunkView(files.open(info), AttachedChunk(info), SCHEMA)
            assert view.versions(key(5), SYNC_LAST_COMMITTED) == ROWS[key(5)]
            assert files.size_bytes() > 0
        for writer in writers:
            writer.result()
    assert len(names(files)) == 2 * (1 + 5 + 5)
    for number in (2, 4, 20, 28):
        verify_chunk(files.path, number)
