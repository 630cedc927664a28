"""What an adoption refuses, what an undo leaves in an object store, and what the command says."""

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from dodona.errors import DataCorrupted, DiskFull, InvalidRequest
from dodona_local import adopting, cli, etcd_member
from dodona_local.adoption import Adoption
from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.replicas import Replicas
from dodona_local.supervisor_thread import SupervisorThread
from dodona_tablets.shell.objects import FolderObjects
from unit.local.adopting.adoptions import Cells, adopt, names


def test_a_folder_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no cluster in"):
        adopt(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    for path in (tmp_path, tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(InvalidRequest, match="there is no cluster in"):
            adopt(path)
    assert [it.name for it in tmp_path.iterdir()] == ["file"]  # no lock, no logs
    (tmp_path / "master").mkdir()
    with pytest.raises(InvalidRequest, match="no node in it has a log: there is nothing to adopt"):
        adopt(tmp_path)


def test_a_cluster_that_runs_is_refused(folder: Path) -> None:
    with (
        closing(DataFolder(folder)),
        pytest.raises(LaunchFailed, match=r"in use by another process .*: stop that process"),
    ):
        adopt(folder)


def test_without_etcd_nothing_begins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_member, "missing_program", lambda: "there is none: install it")
    with pytest.raises(LaunchFailed, match="log replicas need etcd, and there is none: install it"):
        adopt(folder)
    assert names(folder) == {"node-0", "node-1"}


def test_a_damaged_log_is_named_and_nothing_begins(folder: Path) -> None:
    (log,) = (folder / "node-1" / "log").glob("*.mdb")
    found = log.read_bytes()
    log.write_bytes(found[:4096] + bytes(len(found) - 4096))
    with pytest.raises(DataCorrupted, match="Nothing was adopted") as caught:
        adopt(folder)
    assert caught.value.attributes["path"] == str(log)
    assert names(folder) == {"node-0", "node-1"}


def test_a_lost_master_is_named_and_nothing_begins(folder: Path) -> None:
    (folder / "master").rename(folder.parent / "aside")
    with pytest.raises(LaunchFailed, match=r"master\.mdb is missing beside the nodes' data"):
        adopt(folder)
    assert "adoption.json" not in names(folder)


COPIES_BY_STORE: Final = {"": 2, "s3://bucket/prefix": 1, "file:": 2}
"""How many copies of the chunks the disk of the folder gets."""


@pytest.fixture
def disks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """The disks, and how much is free on each: that of the folder, and that of a store. Node 0 has
    a chunk of 1 GiB."""
    (folder / "node-0" / "chunks").mkdir(exist_ok=True)
    with (folder / "node-0" / "chunks" / "9.arrow").open("wb") as file:
        file.truncate(1 << 30)
    usage, free = shutil.disk_usage(folder), {folder: 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda it: usage._replace(free=free[it]))
    monkeypatch.setattr(adopting, "open_objects", lambda _: FolderObjects(folder))
    return free


def needed_bytes(folder: Path, chunk_count: int) -> int:
    logs = sum(it.stat().st_size for it in folder.glob("node-*/log/*"))
    master = (folder / "master" / "master.mdb").stat().st_size
    return int(1.25 * (3 * logs + (chunk_count << 30))) + 3 * (128 << 20) + master


@pytest.mark.parametrize(("store", "chunk_count"), [*COPIES_BY_STORE.items()])
def test_without_room_nothing_begins(
    store: str, chunk_count: int, folder: Path, disks: dict[Path, int]
) -> None:
    """A store in a folder of the same disk gets a copy of the chunks there, too."""
    store = folder.parent.as_uri() if store == "file:" else store
    needed = needed_bytes(folder, chunk_count)
    disks[folder] = needed - (1 << 20)
    with pytest.raises(DiskFull, match="make room, then run the command again"):
        adopt(folder, Replicas(3, store))
    assert "adoption.json" not in names(folder)
    disks[folder] = needed + (1 << 20)
    adopt(folder, Replicas(3, store))


def test_a_store_on_another_disk_needs_room_there(
    folder: Path, disks: dict[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.parent / "store"
    store.mkdir()
    stat = Path.stat

    def look(path: Path, **how: bool) -> os.stat_result:
        found = stat(path, **how)
        return os.stat_result((*found[:2], 1, *found[3:])) if path == store else found

    monkeypatch.setattr(Path, "stat", look)
    disks[folder] = needed_bytes(folder, 1) + (1 << 20)
    disks[store] = 1 << 30
    with pytest.raises(DiskFull, match=r"the disk of .*/store has 1,024 MiB: make room"):
        adopt(folder, Replicas(3, store.as_uri()))
    disks[store] = (5 << 28) + (1 << 20)
    adopt(folder, Replicas(3, store.as_uri()))


def test_an_adoption_that_goes_on_needs_room_for_the_rest(
    folder: Path, disks: dict[Path, int], cells: Cells
) -> None:
    disks[folder] = needed_bytes(folder, 2) + (1 << 20)
    cells.failing = 1
    with pytest.raises(DataCorrupted):
        adopt(folder)
    cells.failing = None
    (folder / "etcd").mkdir()
    with (folder / "etcd" / "wal").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 << 20)
    disks[folder] -= 16 << 20
    with pytest.raises(DiskFull, match="make room"):
        adopt(folder)
    disks[folder] += 8 << 20
    adopt(folder)


@pytest.mark.parametrize("name", ["objects", "plain"])
def test_what_others_put_there_is_refused(name: str, folder: Path) -> None:
    (folder / name).mkdir()
    (folder / name / "kept").touch()
    with pytest.raises(InvalidRequest, match=f"{name} is there already: move it away"):
        adopt(folder)


@pytest.mark.parametrize("name", ["node-1", "node-1/log", "plain"])
@pytest.mark.parametrize("is_link", [True, False])
def test_links_and_mount_points_are_refused(
    name: str, is_link: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they lead to would not move."""
    path = folder / name
    if is_link:
        elsewhere = folder.parent / "elsewhere"
        path.rename(elsewhere) if path.exists() else elsewhere.mkdir()
        path.symlink_to(elsewhere)
    else:
        monkeypatch.setattr(os.path, "ismount", lambda it: it == path)
    with pytest.raises(InvalidRequest, match=f"/{name} is a link or a mount point"):
        adopt(folder)
    assert "adoption.json" not in names(folder)


@pytest.mark.parametrize("name", ["objects", "etcd", "plain"])
def test_a_file_in_the_place_of_a_folder_is_refused(name: str, folder: Path) -> None:
    (folder / name).touch()
    with pytest.raises(InvalidRequest, match=f"{name} is there already: move it away"):
        adopt(folder)


def test_processes_that_ended_end_the_adoption(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says why they ended, and the command does not wait for replicas."""

    class Ended:
        check = SupervisorThread.check
        failure = LaunchFailed("no file is left for a log")

        def __init__(self, *_: Any, on_end: Callable[[], None]) -> None:
            self.end = on_end

        def start(self) -> None: ...

    def adopt_cell(settings: Any, plain: Path, begin: Any, check: Callable[[], None]) -> None:
        check()

    monkeypatch.undo()
    monkeypatch.setattr(etcd_member, "missing_program", lambda: None)
    monkeypatch.setattr(adopting, "SupervisorThread", Ended)
    monkeypatch.setattr(adopting, "adopt_cell", adopt_cell)
    with pytest.raises(LaunchFailed, match="no file is left for a log"):
        adopt(folder)


def test_an_undo_leaves_a_store_elsewhere_alone(folder: Path, tmp_path: Path) -> None:
    """A copy of this folder may be a cluster, too, whose chunks have the same names."""
    store = tmp_path / "store"
    store.mkdir()
    adopt(folder, Replicas(3, store.as_uri()))
    adoption = Adoption.read(folder)
    assert adoption is not None
    kept = store / adoption.name / "cell-1" / "1.arrow"
    kept.parent.mkdir(parents=True)
    kept.touch()
    adopting.undo(folder)
    assert kept.exists()


@pytest.mark.parametrize(
    "options",
    [
        ["--undo", "--finish"],
        ["--undo", "--replicas", "3"],
        ["--finish", "--object-store", "s3://bucket/prefix"],
    ],
)
def test_the_command_goes_one_way_at_a_time(options: list[str], folder: Path) -> None:
    words = ["cluster", "adopt", str(folder), *options]
    assert CliRunner().invoke(cli.application, words).exit_code == 2


def test_the_command_says_what_to_do_next(folder: Path) -> None:
    run, words = CliRunner().invoke, ["cluster", "adopt", str(folder)]
    up = f"dodona up --data-dir {folder}"
    options = "--nodes 2 --replicas 3"
    assert run(cli.application, words).stdout == f"adopted: start it with {up} {options}\n"
    undone = run(cli.application, [*words, "--undo"]).stdout
    assert undone.startswith(f"undone: start it with {up}\nnot needed any more: {folder}/undone-")
    refused = run(cli.application, [*words, "--finish"])
    assert (refused.exit_code, "no adoption is under way" in refused.stderr) == (1, True)
