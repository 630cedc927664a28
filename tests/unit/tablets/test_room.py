"""The room ahead of a growing file: zeros only, behind its end only, and none on a full disk."""

import errno
import os
from pathlib import Path

import pytest

from dodona_tablets.core.records import RowsWritten
from dodona_tablets.shell.log import LOG_NAME, CellLog
from dodona_tablets.shell.room import AHEAD_BYTES, STEP_BYTES, Room
from unit.tablets.cells import NON_ATOMIC, put
from unit.tablets.logs import rows

CONTENT = b"what was there" * 1000
BYTES_MAX = 1 << 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def test_room_is_zeros_behind_the_content_of_the_file(path: Path) -> None:
    room = Room(path, BYTES_MAX)
    room.ensure(len(CONTENT))
    raw = path.read_bytes()
    assert raw[: len(CONTENT)] == CONTENT
    assert raw[len(CONTENT) :] == bytes(STEP_BYTES)
    room.close()


def test_room_grows_in_steps_when_little_is_left(path: Path) -> None:
    room = Room(path, BYTES_MAX)
    room.ensure(len(CONTENT))
    full = path.stat().st_size
    room.ensure(full - AHEAD_BYTES)
    assert path.stat().st_size == full
    room.ensure(full - AHEAD_BYTES + 1)
    assert path.stat().st_size == full - AHEAD_BYTES + 1 + STEP_BYTES
    room.close()


def test_a_file_that_grew_by_itself_is_not_written_into(path: Path) -> None:
    room = Room(path, BYTES_MAX)
    room.ensure(len(CONTENT))
    large = os.urandom(3 * STEP_BYTES)
    with path.open("ab") as file:
        file.write(large)
    before = path.read_bytes()
    room.ensure(2 * STEP_BYTES)  # there is enough behind that
    assert path.read_bytes() == before
    room.ensure(len(before))
    assert path.read_bytes() == before + bytes(STEP_BYTES)
    room.close()


def test_room_ends_at_the_size_limit_of_the_file(path: Path) -> None:
    bytes_max = len(CONTENT) + 5000
    room = Room(path, bytes_max)
    for used in (len(CONTENT), bytes_max - 10, bytes_max):
        room.ensure(used)
        assert path.stat().st_size == bytes_max
    room.close()


def test_a_full_disk_is_no_error_and_is_not_asked_each_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def refuse(file: int, data: bytes, offset: int) -> int:
        attempts.append(offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refuse)
    room = Room(path, BYTES_MAX)
    for used in range(len(CONTENT), len(CONTENT) + AHEAD_BYTES, 4096):
        room.ensure(used)
    assert len(attempts) == 1
    assert path.read_bytes() == CONTENT
    room.close()


def test_a_failing_disk_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    room = Room(path, BYTES_MAX)
    with pytest.raises(OSError, match="Input/output"):
        room.ensure(len(CONTENT))
    room.close()


def only_file(folder: Path) -> Path:
    (path,) = (folder / LOG_NAME).iterdir()
    return path


def test_a_log_does_not_grow_its_file_at_each_append(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    lengths = set()
    record = RowsWritten(NON_ATOMIC, 1, (put(1, 1, "x" * 3000),))  # type: ignore[arg-type]
    for _ in range(300):
        log.append([record])
        lengths.add(only_file(tmp_path).stat().st_size)
    assert 300 * 3000 < log.size_bytes() < max(lengths)
    assert len(lengths) <= 3
    assert len(list(log.read())) == 300
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    log.append([record])
    assert len(list(log.read())) == 301
    log.close()


def test_a_large_group_grows_the_file_by_itself_and_the_next_small_one_finds_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros: list[int] = []
    extend = Room._extend

    def counted(room: Room, end: int, wanted: int) -> None:
        zeros.append(wanted - end)
        extend(room, end, wanted)

    monkeypatch.setattr(Room, "_extend", counted)
    log = CellLog.open(tmp_path, BYTES_MAX)
    for _ in range(5):
        log.append([rows(1, AHEAD_BYTES)])
    assert zeros == []
    for _ in range(5):
        log.append([rows(1, 100)])
    assert zeros == [STEP_BYTES]
    log.close()


def test_a_finished_log_file_releases_its_room(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, 1 << 20)
    first = only_file(tmp_path)
    log.append([rows(1, 70_000)])
    assert first.stat().st_size > STEP_BYTES
    log.append([rows(2, 100)])
    assert first.stat().st_size < 100_000
    assert len(list(log.read())) == 2
    log.close()
