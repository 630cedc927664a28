"""A log whose process may open no more files: it goes on, and begins and removes files later."""

import errno
import os
from pathlib import Path

import lmdb
import pytest

from dodona.errors import DiskFull, Overloaded
from dodona_server import environment
from dodona_tablets.core.records import Checkpoint
from dodona_tablets.shell import log as module
from dodona_tablets.shell.log import DESCRIPTORS_MAX, LOG_NAME, CellLog
from unit.descriptors import only
from unit.tablets.logs import BYTES_MAX, fill, rows

NEEDED_COUNT = 3
"""Descriptors that are really needed to begin a file: two are LMDB's."""


def files(folder: Path) -> list[str]:
    return sorted(it.name for it in (folder / LOG_NAME).glob("*.mdb"))


def open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("is_foreseen", [True, False])
@pytest.mark.parametrize("free_count", range(DESCRIPTORS_MAX + 1))
def test_a_file_that_can_not_be_begun_is_begun_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_count: int, is_foreseen: bool
) -> None:
    """Whether it is seen before, or others take the descriptors meanwhile."""
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 5))
    before, before_count = files(tmp_path), open_count()
    with only(free_count), monkeypatch.context() as patch:
        if not is_foreseen:
            patch.setattr(module, "has_descriptors", lambda _: True)
        for number in range(11, 18):
            log.append([rows(number)])
    least_count = DESCRIPTORS_MAX if is_foreseen else NEEDED_COUNT
    assert (files(tmp_path) == before) is (free_count < least_count)
    assert open_count() == before_count
    for number in range(18, 21):
        log.append([rows(number)])
    assert len(files(tmp_path)) > len(before)
    expected = [rows(number) for number in [*range(1, 5), *range(11, 21)]]
    assert list(log.read()) == expected
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert list(log.read()) == expected
    log.close()


def test_a_new_file_is_removed_durably_before_the_previous_file_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave it behind one that has groups of the same numbers."""
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 3))
    (full,) = files(tmp_path)
    synced: list[list[str]] = []
    monkeypatch.setattr(module, "sync_folder", lambda _: synced.append(files(tmp_path)))
    monkeypatch.setattr(module, "has_descriptors", lambda _: True)
    with only(NEEDED_COUNT - 1):
        for number in range(3, 6):
            log.append([rows(number)])
    assert synced
    assert all(it == [full] for it in synced)
    log.close()


def test_a_file_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 5))
    monkeypatch.setattr(module, "GROWN_BYTES_MAX", 100_000)

    def append_all() -> None:
        for number in range(11, 30):
            log.append([rows(number)])

    with only(0), pytest.raises((OSError, lmdb.Error), match="Too many open files"):
        append_all()
    assert 100_000 <= log._last.size_bytes < 150_000
    log.close()


def test_a_full_disk_is_no_lack_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may lack space only when a new file is opened: the full file does not grow then."""

    def full(opened: lmdb.Environment) -> None:
        opened.close()
        raise OSError(errno.ENOSPC, "full")

    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 5))
    before, before_count = list(log.read()), open_count()

    def append_all() -> None:
        for number in range(11, 18):
            log.append([rows(number)])
            before.append(rows(number))

    with monkeypatch.context() as patch:
        patch.setattr(environment, "_make_durable", full)
        with pytest.raises(DiskFull, match="is full"):
            append_all()
    assert log._last.size_bytes < 100_000
    assert open_count() == before_count
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert list(log.read()) == before
    log.close()


def test_files_are_removed_without_a_descriptor(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    with only(0):
        log.truncate_before(30)
    assert list(log.read()) == [Checkpoint(30)]
    log.close()


def test_a_log_that_is_opened_in_vain_keeps_no_descriptor(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    log.close()
    before = open_count()
    for free_count in range(12):
        with only(free_count):
            try:
                log = CellLog.open(tmp_path, BYTES_MAX)
            except Overloaded:
                continue
            log.close()
    assert open_count() == before
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert len(list(log.read())) == 33
    log.close()


def test_a_log_opened_on_a_full_disk_also_waits_for_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 5))
    log.close()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(module, "LastSegment", full)
        log = CellLog.open(tmp_path, BYTES_MAX)
    assert not log.is_writable
    with only(2):
        assert not log.make_writable()
    assert log.make_writable()
    log.close()
