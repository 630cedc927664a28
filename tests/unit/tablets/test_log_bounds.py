"""A log that lacks a file at either end is refused; what a crash leaves is not."""

import os
from pathlib import Path
from typing import Any

import pytest

from dodona.errors import DataCorrupted
from dodona_tablets.shell.log import LOG_NAME, CellLog
from dodona_tablets.shell.log_bounds import BOUNDS_NAME, SECTOR_BYTES
from dodona_tablets.shell.log_check import verify_log
from unit.tablets.logs import BYTES_MAX, fill, forget_bounds, rows


def made(folder: Path) -> list[Path]:
    """The files of a log whose first ones were truncated."""
    log = CellLog.open(folder, BYTES_MAX)
    fill(log, range(1, 31))
    log.truncate_before(20)
    log.append([rows(31)])
    log.close()
    return files(folder)


def files(folder: Path) -> list[Path]:
    return sorted((folder / LOG_NAME).iterdir())


def read(folder: Path) -> list[Any]:
    log = CellLog.open(folder, BYTES_MAX)
    try:
        return list(log.read())
    finally:
        log.close()


def refuse(folder: Path) -> None:
    with pytest.raises(DataCorrupted, match="missing"):
        read(folder)
    with pytest.raises(DataCorrupted, match="missing"):
        verify_log(folder)


def test_each_file_that_is_missing_is_noticed_and_nothing_is_made(tmp_path: Path) -> None:
    paths = made(tmp_path)
    assert len(paths) > 3
    whole = read(tmp_path)
    for path in files(tmp_path):
        before = files(tmp_path)
        away = path.rename(tmp_path / "away")
        refuse(tmp_path)
        away.rename(path)
        missing = {*before} - {*files(tmp_path)}
        assert missing == set(), "whatever is left stays"
    assert read(tmp_path) == whole


def test_all_files_that_are_missing_are_noticed(tmp_path: Path) -> None:
    for path in made(tmp_path):
        path.unlink()
    refuse(tmp_path)
    (tmp_path / LOG_NAME).rmdir()
    refuse(tmp_path)


def test_a_log_without_its_bounds_is_refused_and_none_are_made(tmp_path: Path) -> None:
    paths = made(tmp_path)
    forget_bounds(tmp_path)
    refuse(tmp_path)
    assert (files(tmp_path), (tmp_path / BOUNDS_NAME).exists()) == (paths, False)


def test_a_first_file_without_bounds_gets_them(tmp_path: Path) -> None:
    """A crash comes between the two."""
    CellLog.open(tmp_path, BYTES_MAX).close()
    forget_bounds(tmp_path)
    assert read(tmp_path) == []
    assert (tmp_path / BOUNDS_NAME).exists()


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("method", ["move_first", "move_last"])
def test_a_crash_before_or_during_a_write_of_the_bounds_loses_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, *, is_torn: bool
) -> None:
    """What is done next, after they are durable, was not done: files to be removed are there, and
    one that was begun has nothing."""

    class PowerCut(Exception):
        pass

    def cut(file: int, data: bytes, at: int) -> int:
        if is_torn:
            written(file, data[:20], at)
        raise PowerCut

    written = os.pwrite
    log = CellLog.open(tmp_path, BYTES_MAX)
    fill(log, range(1, 31))
    whole = list(log.read())
    bounds = log._bounds
    move = getattr(bounds, method)

    def move_and_cut(index: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", cut)
            move(index)

    monkeypatch.setattr(bounds, method, move_and_cut)

    def go_on() -> None:
        if method == "move_first":
            log.truncate_before(20)
        for number in range(100, 110):
            log.append([rows(number)])
            whole.append(rows(number))

    with pytest.raises(PowerCut):
        go_on()
    log.close()
    assert read(tmp_path) == whole


@pytest.mark.parametrize("sector", [0, 1])
def test_damage_to_both_sectors_of_the_bounds_is_reported(tmp_path: Path, sector: int) -> None:
    made(tmp_path)
    path = tmp_path / BOUNDS_NAME
    raw = bytearray(path.read_bytes())
    raw[sector * SECTOR_BYTES + 9] ^= 1
    path.write_bytes(raw)
    try:
        read(tmp_path)
    except DataCorrupted as error:  # the newer one: files that were removed seem to be missing
        assert "is missing" in str(error)  # noqa: PT017 - either is right
    raw[(1 - sector) * SECTOR_BYTES + 9] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataCorrupted, match="The bounds of the log are damaged") as caught:
        read(tmp_path)
    assert caught.value.attributes["path"] == str(path)
