"""Data folders after a power cut: every name that was made is there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dodona_oracle.shell.store import MasterStore
from dodona_tablets.shell.log import CellLog
from dodona_wire.net.folder import LOCK_NAME, UNFINISHED_NAME


def watch(patch: pytest.MonkeyPatch) -> dict[int, list[str]]:
    """What each folder, by its inode, held when it was synced last, from now on."""
    names: dict[int, list[str]] = {}
    sync = os.fsync

    def watched(descriptor: int) -> None:
        sync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            names[os.stat(path).st_ino] = os.listdir(path)

    patch.setattr(os, "fsync", watched)
    return names


@pytest.fixture
def durable_names(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[str]]:
    return watch(monkeypatch)


def open_log(path: Path) -> Any:
    return CellLog.open(path, 1 << 20)


@pytest.mark.parametrize("open_it", [open_log, MasterStore.open])
def test_all_names_that_were_made_are_durable(
    open_it: Callable[[Path], Any], tmp_path: Path, durable_names: dict[int, list[str]]
) -> None:
    opened = open_it(tmp_path / "made" / "too")
    made = [path for path in tmp_path.rglob("*") if path.suffix != ".lock"]
    assert len(made) > 2
    for path in made:
        assert path.name in durable_names.get(path.parent.stat().st_ino, []), path
    opened.close()


def test_a_folder_that_an_earlier_process_made_is_made_durable(
    tmp_path: Path, durable_names: dict[int, list[str]]
) -> None:
    (tmp_path / "made").mkdir()
    MasterStore.open(tmp_path / "made").close()
    assert "made" in durable_names[tmp_path.stat().st_ino]


def test_a_store_that_was_only_partly_created_is_created_again(tmp_path: Path) -> None:
    (tmp_path / UNFINISHED_NAME).write_bytes(b"half a page")
    MasterStore.open(tmp_path).close()
    assert sorted(it.name for it in tmp_path.iterdir()) == [LOCK_NAME, "master.mdb"]
