"""LMDB environments: whole from the first, durable when they are opened, refused when damaged."""

import errno
import struct
from pathlib import Path
from typing import Any

import lmdb
import pytest

from dodona.errors import DataCorrupted, DiskFull, InvalidRequest
from dodona_server.environment import open_environment

MAP_BYTES = 1 << 20
PAGE_BYTES = 4096
TRANSACTION_AT = 144


def commit(path: Path, count: int) -> None:
    with open_environment(path, MAP_BYTES) as environment:
        for number in range(count):
            with environment.begin(write=True) as transaction:
                transaction.put(b"key", b"%d" % number)


@pytest.mark.parametrize("count", range(4))
def test_heads_follow_on_each_other_however_many_commits_there_were(
    tmp_path: Path, count: int
) -> None:
    commit(tmp_path / "file", count)
    with open_environment(tmp_path / "file", MAP_BYTES) as environment:
        assert environment.info()["last_txnid"] == count


@pytest.mark.parametrize("head", [0, 1])
@pytest.mark.parametrize("change", [-4, 4, 1 << 32])
def test_a_head_that_does_not_follow_is_refused(tmp_path: Path, head: int, change: int) -> None:
    """LMDB would go by the other one, and one transaction or more would be gone in silence."""
    path = tmp_path / "file"
    commit(path, 7)
    raw = bytearray(path.read_bytes())
    at = head * PAGE_BYTES + TRANSACTION_AT
    (transaction,) = struct.unpack_from("<Q", raw, at)
    struct.pack_into("<Q", raw, at, transaction + change)
    path.write_bytes(raw)
    with pytest.raises(DataCorrupted, match="not consecutive"):
        open_environment(path, MAP_BYTES)


def test_an_empty_file_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataCorrupted, match="is empty"):
        open_environment(tmp_path / "file", MAP_BYTES)
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, DiskFull), (errno.EIO, InvalidRequest), (errno.EINVAL, DataCorrupted)],
)
def test_a_disk_that_is_full_is_not_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def fail(*_: Any, **__: Any) -> lmdb.Environment:
        error = lmdb.Error("mdb_env_open")
        object.__setattr__(error, "code", number)
        raise error

    monkeypatch.setattr(lmdb, "open", fail)
    with pytest.raises(kind, match=r"can't be opened|is full"):
        open_environment(tmp_path / "file", MAP_BYTES)
