"""The log on a real LMDB: order, durability across opens, damage, and a second process."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import lmdb
import msgspec
import pytest

from dodona.errors import DataCorrupted, FolderInUse, InvalidRequest
from dodona.types import Timestamp, TransactionId
from dodona_tablets.core.records import (
    AbortDecided,
    CommitDecided,
    CommittedHere,
    Record,
    RowsWritten,
)
from dodona_tablets.shell.log import LOG_NAME, CellLog, decode_group, encode_group
from unit.tablets.cells import NON_ATOMIC, put

BYTES_MAX = 1 << 26
RECORDS: list[Record] = [
    CommitDecided(TransactionId(1), Timestamp(2)),
    RowsWritten(NON_ATOMIC, Timestamp(3), (put(1, 1, "x"), put(2, None))),
    AbortDecided(TransactionId(4)),
]


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
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


def test_records_of_before_there_were_special_writes_are_read() -> None:
    writes = [[it[0], it[1], list(it[2])] for it in (put(1, 1, "x"), put(2, None))]
    rows = msgspec.msgpack.encode([9, NON_ATOMIC, 3, writes])
    assert msgspec.msgpack.decode(rows, type=Record) == RECORDS[1]
    commit = msgspec.msgpack.encode([3, 7, 8, [[1, 1, writes]]])
    known = msgspec.msgpack.decode(commit, type=Record)
    assert isinstance(known, CommittedHere)
    assert known.modifications[0].special is None


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
    with pytest.raises(InvalidRequest, match="can't use"):
        CellLog.open(tmp_path / "file" / "data", BYTES_MAX)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda raw: raw[:3], "too short"),
        (lambda raw: b"\x09" + raw[1:], "version 9"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "checksum"),
        (lambda raw: raw[:-1], "checksum"),
    ],
)
def test_damage_is_refused_with_its_place(tmp_path: Path, damage: object, words: str) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    for record in RECORDS:
        log.append([record])
    log.close()
    with lmdb.open(str(tmp_path / LOG_NAME)) as environment, environment.begin(write=True) as t:
        second = struct.pack(">Q", 2)
        t.put(second, damage(t.get(second)))  # type: ignore[operator]
    log = CellLog.open(tmp_path, BYTES_MAX)
    with pytest.raises(DataCorrupted, match=words) as caught:
        list(log.read())
    assert caught.value.attributes["where"].endswith("log, group 2")
    log.close()


def test_a_missing_group_is_damage(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, BYTES_MAX)
    for record in RECORDS:
        log.append([record])
    log.close()
    with lmdb.open(str(tmp_path / LOG_NAME)) as environment, environment.begin(write=True) as t:
        t.delete(struct.pack(">Q", 2))
    log = CellLog.open(tmp_path, BYTES_MAX)
    with pytest.raises(DataCorrupted, match="group 2 of the log is missing"):
        list(log.read())
    log.close()


def test_every_prefix_of_a_group_is_refused() -> None:
    raw = encode_group(RECORDS)
    assert decode_group(raw, "here") == RECORDS
    for length in range(len(raw)):
        with pytest.raises(DataCorrupted):
            decode_group(raw[:length], "here")


def test_a_full_map_is_an_error_and_what_was_there_stays(tmp_path: Path) -> None:
    log = CellLog.open(tmp_path, 1 << 16)
    log.append(RECORDS)
    with pytest.raises(lmdb.MapFullError):
        log.append([RowsWritten(NON_ATOMIC, Timestamp(3), (put(1, 1, "x" * 200_000),))])
    assert list(log.read()) == RECORDS
    log.close()
