"""What an adoption refuses, what an undo leaves in an object store, and what the command says."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dodona.errors import DataCorrupted, DiskFull, InvalidRequest
from dodona_local import adopting, cli, etcd_member
from dodona_local.adoption import Adoption
from dodona_local.errors import LaunchFailed
from dodona_local.folder import DataFolder
from dodona_local.replicas import Replicas
from unit.local.adopting.adoptions import adopt, names


def test_a_folder_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no cluster in"):
        adopt(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
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


@pytest.mark.parametrize(("is_elsewhere", "factor"), [(False, 2), (True, 1)])
def test_without_room_nothing_begins(
    is_elsewhere: bool, factor: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder.parent.as_uri() if is_elsewhere else ""
    (folder / "node-0" / "chunks").mkdir(exist_ok=True)
    with (folder / "node-0" / "chunks" / "9.arrow").open("wb") as file:
        file.truncate(1 << 30)
    logs = sum(it.stat().st_size for it in folder.glob("node-*/log/*"))
    needed = int(1.25 * (3 * logs + (factor << 30))) + 3 * (128 << 20)
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    with pytest.raises(DiskFull, match=r"make room\. Nothing was adopted"):
        adopt(folder, Replicas(3, store))
    assert "adoption.json" not in names(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
    adopt(folder, Replicas(3, store))


def test_objects_of_another_cluster_are_refused(folder: Path) -> None:
    (folder / "objects").mkdir()
    (folder / "objects" / "chunk").touch()
    with pytest.raises(InvalidRequest, match="objects is there already: move it away"):
        adopt(folder)


def test_an_undo_removes_the_objects_of_this_cluster(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    adopt(folder, Replicas(3, store.as_uri()))
    adoption = Adoption.read(folder)
    assert adoption is not None
    kept = store / "other" / "cell-0" / "1.arrow"
    for it in (kept, store / adoption.name / "cell-1" / "1.arrow"):
        it.parent.mkdir(parents=True)
        it.touch()
    adopting.undo(folder, print)
    assert [it for it in store.rglob("*") if it.is_file()] == [kept]


def test_a_store_that_does_not_answer_stops_no_undo(folder: Path, tmp_path: Path) -> None:
    """The user hears which objects are left there."""
    store = tmp_path / "store"
    store.mkdir()
    adopt(folder, Replicas(3, store.as_uri()))
    adoption = Adoption.read(folder)
    assert adoption is not None
    store.rmdir()
    warnings: list[str] = []
    adopting.undo(folder, warnings.append)
    (warning,) = warnings
    assert warning.startswith(f"remove the objects below {adoption.name} from {store.as_uri()}: ")
    assert names(folder) == {"node-0", "node-1"}


def test_the_command_goes_one_way_at_a_time(folder: Path) -> None:
    words = ["cluster", "adopt", str(folder), "--undo", "--finish"]
    assert CliRunner().invoke(cli.application, words).exit_code == 2


def test_the_command_says_what_to_do_next(folder: Path) -> None:
    run, words = CliRunner().invoke, ["cluster", "adopt", str(folder)]
    up = f"dodona up --data-dir {folder}"
    assert run(cli.application, words).stdout == f"adopted: start it with {up} --replicas 3\n"
    assert run(cli.application, [*words, "--undo"]).stdout == f"undone: start it with {up}\n"
    refused = run(cli.application, [*words, "--finish"])
    assert (refused.exit_code, "no adoption is under way" in refused.stderr) == (1, True)
