"""A log whose process may open no more files: it goes on, and begins and removes files later."""

import os
from pathlib import Path

import pytest

from dodona_tablets.core.records import Checkpoint
from dodona_tablets.shell.log import LOG_NAME, CellLog
from unit.descriptors import only
from unit.tablets.logs import BYTES_MAX, fill, rows

NEEDED_COUNT = 4
"""Descriptors that a log needs at once to begin a file: two are LMDB's."""


def files(folder: Path) -> list[str]:
    return sorted(it.name for it in (folder / LOG_NAME).glob("*.mdb"))


@pytest.mark.parametrize("free_count", range(NEEDED_COUNT + 1))
def test_a_file_that_can_not_be_begun_is_begun_later(tmp_path: Path, free_count: int) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 5))
    before = files(tmp_path)
    with only(free_count):
        for number in range(11, 18):
            log.append([rows(number)])
    assert (files(tmp_path) == before) is (free_count < NEEDED_COUNT)
    log.append([rows(18)])
    assert len(files(tmp_path)) > len(before)
    expected = [rows(number) for number in [*range(1, 5), *range(11, 19)]]
    assert list(log.read()) == expected
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert list(log.read()) == expected
    log.close()


@pytest.mark.parametrize("free_count", [0, 1])
def test_what_can_not_be_removed_is_removed_behind_the_next_checkpoint(
    tmp_path: Path, free_count: int
) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    before = files(tmp_path)
    with only(free_count):
        log.truncate_before(20)
    assert (files(tmp_path) == before) is (free_count == 0)
    log.truncate_before(30)
    assert list(log.read()) == [Checkpoint(30)]
    log.close()


def test_a_removal_that_is_not_durable_for_want_of_descriptors_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds were moved, the first file is gone, and then the folder can't be opened."""
    from dodona_tablets.shell import log as module

    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    before = files(tmp_path)

    def full(path: Path) -> None:
        with only(0):
            os.close(os.open(path, os.O_RDONLY))

    with monkeypatch.context() as patch:
        patch.setattr(module, "sync_folder", full)
        log.truncate_before(20)
    assert files(tmp_path) == before[1:]
    log.truncate_before(20)
    assert len(files(tmp_path)) < len(before) - 1
    assert next(iter(log.read())) == Checkpoint(20)
    log.close()
