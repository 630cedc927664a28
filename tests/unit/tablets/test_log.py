"""The cell's log: order, durability across opens, damage, fullness, and a second process."""

import errno
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dodona.errors import DataCorrupted, FolderInUse, InvalidRequest
from dodona.types import Timestamp
from dodona_tablets.core.records import Checkpoint, Record, WatermarkRaised
from dodona_tablets.shell.log import LOG_NAME, SHORT_BYTES_MAX, SPARE_BYTES, CellLog
from dodona_tablets.shell.log_check import verify_log
from unit.tablets.logs import (
    BYTES_MAX,
    RECORDS,
    fill,
    groups_of,
    renew_bounds,
    rows,
    write_file,
)

FIRST_FILE = f"{1:020}.mdb"
ROOMY_BYTES_MAX = 1 << 30


def test_appended_records_are_read_back_in_order(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    log.append(RECORDS[:2])
    log.append(RECORDS[2:])
    assert list(log.read()) == RECORDS
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    log.append(RECORDS)
    assert list(log.read()) == RECORDS * 2
    assert log.size_bytes() > 0
    log.close()


def test_a_log_goes_on_in_a_new_file_when_one_is_long_enough(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    records = [rows(number) for number in range(20)]
    for record in records:
        log.append([record])
        assert list(log.read())[-1] == record
    names = sorted(it.name for it in (tmp_path / LOG_NAME).iterdir())
    assert names == [f"{first:020}.mdb" for first in (1, 4, 7, 10, 13, 16, 19)]
    assert list(log.read()) == records
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert list(log.read()) == records
    log.append(RECORDS)
    assert list(log.read()) == records + RECORDS
    log.close()


def test_a_group_that_is_longer_than_a_file_should_be_has_one(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    records = [rows(number, 300_000) for number in range(3)]
    for record in records:
        log.append([record])
    assert list(log.read()) == records
    log.close()


def test_a_log_refuses_an_append_while_it_is_read(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    log.append(RECORDS)
    reading = log.read()
    assert next(reading) == RECORDS[0]
    with pytest.raises(AssertionError, match="while something is appended"):
        log.append(RECORDS)
    reading.close()  # type: ignore[attr-defined]
    log.append(RECORDS)
    assert list(log.read()) == RECORDS * 2
    log.close()


def test_commits_are_synced_except_the_head_and_not_written_through_the_map(
    tmp_path: Path,
) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    flags = log._last._environment.flags()
    assert (flags["sync"], flags["metasync"]) == (True, False)
    assert (flags["writemap"], flags["map_async"]) == (False, False)
    log.close()


def test_a_second_opening_is_refused_and_names_the_folder(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    code = f"from dodona_tablets.shell.log import CellLog; CellLog.open({str(tmp_path)!r}, 1 << 20)"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert other.returncode == 1
    assert f"FolderInUse: another process (id {os.getpid()}) has {tmp_path} open" in other.stderr
    with pytest.raises(FolderInUse):
        CellLog.open(tmp_path, BYTES_MAX)
    log.close()
    CellLog.open(tmp_path, BYTES_MAX).close()


def test_a_folder_that_can_not_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidRequest, match="can't be used: Not a directory"):
        CellLog.open(tmp_path / "file" / "data", BYTES_MAX)


# Damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda raw: raw[:3], "too short"),
        (lambda raw: b"\x09" + raw[1:], "has format 9. This release of Dodona reads format 2 only"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "checksum"),
        (lambda raw: raw[:-1], "checksum"),
    ],
)
def test_damage_is_refused_with_file_group_and_byte(
    tmp_path: Path, damage: Callable[[bytes], bytes], words: str
) -> None:
    groups = groups_of([[record] for record in RECORDS])
    second = list(groups)[1]
    groups[second] = damage(groups[second])
    path = tmp_path / LOG_NAME / FIRST_FILE
    write_file(path, groups)
    log = CellLog.open(tmp_path, BYTES_MAX)
    with pytest.raises(DataCorrupted, match=words) as caught:
        list(log.read())
    attributes = caught.value.attributes
    assert (attributes["path"], attributes["group"]) == (str(path), 2)
    assert path.read_bytes()[attributes["byte"] :].startswith(groups[second])
    log.close()


def test_a_missing_group_is_damage(tmp_path: Path) -> None:
    groups = groups_of([[record] for record in RECORDS])
    del groups[list(groups)[1]]
    write_file(tmp_path / LOG_NAME / FIRST_FILE, groups)
    log = CellLog.open(tmp_path, BYTES_MAX)
    with pytest.raises(DataCorrupted, match="is missing") as caught:
        list(log.read())
    assert caught.value.attributes["group"] == 2
    log.close()


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_missing_file_is_damage(tmp_path: Path, missing: int) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    for number in range(12):
        log.append([rows(number)])
    log.close()
    files = sorted((tmp_path / LOG_NAME).iterdir())
    files[missing - 1].unlink()
    renew_bounds(tmp_path)
    log = CellLog.open(tmp_path, BYTES_MAX)
    words = "is missing" if missing > 1 else "does not have a checkpoint to begin with"
    for read in (log.read, log.survey):
        with pytest.raises(DataCorrupted, match=words) as caught:
            list(read())
        assert caught.value.attributes.get("group") == (3 * missing - 2 if missing > 1 else None)
    log.close()


def test_an_invalid_key_in_a_log_file_is_damage(tmp_path: Path) -> None:
    write_file(tmp_path / LOG_NAME / FIRST_FILE, {b"key": b"value"})
    with pytest.raises(DataCorrupted, match="b'key' is not the key of a log group"):
        CellLog.open(tmp_path, BYTES_MAX)
    CellLog.open(tmp_path / "another", BYTES_MAX).close()


def test_groups_that_are_missing_at_the_end_are_damage(tmp_path: Path) -> None:
    """A leaf that says it has less than it had: LMDB goes by that, its head counts for itself."""
    path = tmp_path / LOG_NAME / FIRST_FILE
    write_file(path, groups_of([[record] for record in RECORDS]))
    raw = bytearray(path.read_bytes())
    head = 4096 * (len(RECORDS) % 2)
    (root,) = struct.unpack_from("<Q", raw, head + 128)
    (lower,) = struct.unpack_from("<H", raw, 4096 * root + 12)
    struct.pack_into("<H", raw, 4096 * root + 12, lower - 2)
    path.write_bytes(raw)
    with pytest.raises(DataCorrupted, match="has 2 groups, and should have 3"):
        CellLog.open(tmp_path, BYTES_MAX)


def test_a_log_file_that_the_engine_did_not_write_is_damage(tmp_path: Path) -> None:
    path = tmp_path / LOG_NAME / FIRST_FILE
    path.parent.mkdir()
    for content in (b"", b"text", bytes(1 << 16)):
        path.write_bytes(content)
        with pytest.raises(DataCorrupted) as caught:
            CellLog.open(tmp_path, BYTES_MAX)
        assert caught.value.attributes["path"] == str(path)
        assert path.read_bytes() == content


# A crash while a file is begun


def test_an_unfinished_file_is_replaced(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    log.append(RECORDS)
    log.close()
    unfinished = tmp_path / LOG_NAME / "unfinished"
    unfinished.write_bytes(b"half of it")
    log = CellLog.open(tmp_path, BYTES_MAX)
    records = [*RECORDS, *[rows(number) for number in range(5)]]
    for record in records[len(RECORDS) :]:
        log.append([record])
    assert list(log.read()) == records
    assert not unfinished.exists()
    log.close()


def test_a_file_that_was_begun_and_not_used_is_the_last_one(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    for number in range(3):
        log.append([rows(number)])
    log.close()
    write_file(tmp_path / LOG_NAME / f"{4:020}.mdb", {})
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert list(log.read()) == [rows(number) for number in range(3)]
    log.append(RECORDS)
    assert list(log.read()) == [*[rows(number) for number in range(3)], *RECORDS]
    log.close()


def test_short_lives_leave_no_file_each(tmp_path: Path) -> None:
    """A program that opens its database, writes a row and ends, again and again."""
    count = 40
    for number in range(count):
        log = CellLog.open(tmp_path, ROOMY_BYTES_MAX)
        assert list(log.read()) == [rows(it, 40) for it in range(number)]
        log.append([rows(number, 40)])
        log.close()
    assert names(tmp_path) == [f"{1:020}.mdb"]


def test_a_file_that_is_not_short_stays(tmp_path: Path) -> None:
    for index in (1, 2):
        log = CellLog.open(tmp_path, ROOMY_BYTES_MAX)
        log.append([rows(index, SHORT_BYTES_MAX)])
        log.close()
    assert names(tmp_path) == [f"{1:020}.mdb", f"{2:020}.mdb"]


def names(folder: Path) -> list[str]:
    return sorted(it.name for it in (folder / LOG_NAME).iterdir())


# Other formats


def format_1_groups() -> dict[bytes, bytes]:
    """Keys without flags, and checksums of the bodies alone."""
    groups = {}
    for index, record in enumerate(RECORDS, 1):
        body = msgspec.msgpack.encode([record])
        groups[struct.pack(">Q", index)] = struct.pack(">BI", 1, zlib.crc32(body)) + body
    return groups


@pytest.mark.parametrize("name", ["data.mdb", FIRST_FILE])
def test_a_log_of_another_format_is_refused_and_stays_as_it_is(tmp_path: Path, name: str) -> None:
    """A log of format 1 had one file, and a lock file of the engine's."""
    path = tmp_path / LOG_NAME / name
    write_file(path, format_1_groups())
    (tmp_path / LOG_NAME / "lock.mdb").write_bytes(b"")
    before = path.read_bytes()
    for look in (lambda: CellLog.open(tmp_path, BYTES_MAX), lambda: verify_log(tmp_path)):
        with pytest.raises(DataCorrupted) as caught:
            look()
        text = f"{path} has format 1. This release of Dodona reads format 2 only. Start the release"
        assert caught.value.message.startswith(text)
        assert caught.value.attributes["path"] == str(path)
    assert names(tmp_path) == sorted([name, "lock.mdb"])
    assert path.read_bytes() == before


# Fullness


def test_a_full_map_raises_an_error_and_keeps_the_records(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, 1 << 16)
    log.append(RECORDS)
    with pytest.raises(OSError, match="the log is full: it has 12288 bytes of 65536") as caught:
        log.append([rows(1, 200_000)])
    assert caught.value.errno == errno.ENOSPC
    assert list(log.read()) == RECORDS
    log.close()


def test_the_fill_ratio_rises_with_appends_and_falls_with_truncation(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    ratios = [log.fill_ratio()]
    for number in range(1, 21):
        fill(log, [number])
        ratios.append(log.fill_ratio())
    assert ratios == sorted(ratios)
    assert 20 * 14_000 / BYTES_MAX < ratios[-1] < 2 * 20 * 14_000 / BYTES_MAX
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert ratios[-1] <= log.fill_ratio() < ratios[-1] + 3 * 4096 / BYTES_MAX  # and a new file
    assert list(log.survey()) == [Checkpoint(10), Checkpoint(20)]
    log.truncate_before(20)
    assert log.fill_ratio() < 0.1
    log.close()


def fill_to_the_brim(log: CellLog) -> int:
    """→ how many groups were let in."""
    for count in range(1000):
        try:
            log.append([rows(count)])
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return count
    raise AssertionError("it is never full")


def test_a_log_that_is_full_is_opened_again_truncated_and_goes_on(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    count = fill_to_the_brim(log)
    assert count > 30
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)
    assert len(list(log.read())) == count
    assert fill_to_the_brim(log) == 0
    log.append([WatermarkRaised(Timestamp(1)), Checkpoint(1)])  # these may come, up to a limit
    log.truncate_before(1)
    assert log.fill_ratio() < 0.1
    assert fill_to_the_brim(log) > 30
    log.close()


def test_a_log_that_is_full_is_opened_with_more_room(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    count = fill_to_the_brim(log)
    log.close()
    log = CellLog.open(tmp_path, 2 * BYTES_MAX)
    assert fill_to_the_brim(log) > 30
    log.close()
    log = CellLog.open(tmp_path, BYTES_MAX)  # and with less again
    assert log.fill_ratio() > 1.9
    assert len(list(log.read())) > count + 30
    log.close()


def test_the_spare_space_for_records_other_than_rows_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dodona_tablets.shell.log.SPARE_BYTES", 1 << 16)
    assert SPARE_BYTES > 1 << 16
    log = CellLog.open(tmp_path, 1 << 16)
    mixed: list[Record] = [Checkpoint(1), rows(1, 100_000)]
    log.append(mixed)
    with pytest.raises(OSError, match="the log is full"):
        log.append(mixed)
    assert list(log.read()) == mixed
    log.close()
