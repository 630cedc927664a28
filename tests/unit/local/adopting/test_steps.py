"""The steps of an adoption, each interrupted, repeated and undone. No process runs."""

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

import dodona
from dodona.errors import DataCorrupted, DiskFull, InvalidRequest
from dodona.types import Timestamp
from dodona_local import adopting
from dodona_local.adoption import PLAIN, Adoption, State, check_startable, start_of
from dodona_local.checking import check_folder
from dodona_local.errors import LaunchFailed
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from dodona_local.replicated_folder import ReplicatedFolder
from dodona_oracle.core.records import put_ceiling
from dodona_oracle.shell.store import MasterStore
from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import EntriesAdded, EpochRaised
from dodona_tablets.core.records import (
    Checkpoint,
    Record,
)
from dodona_tablets.shell.log_entries import OPENING, records_of_group
from unit.local.adopting.adoptions import (
    REPLICAS,
    UPKEEP,
    WRITE,
    Cells,
    adopt,
    content,
    cut,
    names,
    started,
    store_of,
)


def test_the_folders_of_nodes_move_away_as_they_are(folder: Path, cells: Cells) -> None:
    before = content(folder)
    adopt(folder)
    assert cells.adopted == [0, 1]
    assert content(folder / PLAIN) == before
    assert names(folder) == {
        *("adoption.json", "replication.json", PLAIN, "replica-0", "replica-1", "replica-2"),
    }
    known = ReplicatedFolder.read(folder)
    assert known is not None
    assert (known.replica_count, known.node_count, known.has_been_ready) == (3, 2, True)
    parts = [it.name for it in check_folder(folder)]
    assert parts[-3:] == [f"{PLAIN}/{it}" for it in ("master", "node-0", "node-1")]
    adopting.finish(folder)
    assert not [it.name for it in check_folder(folder) if it.name.startswith(PLAIN)]


class Interrupted(Exception):
    """The process ended here."""


def break_off(step: str, cells: Cells, patch: pytest.MonkeyPatch) -> type[Exception]:
    """Let a step fail. Return what the command raises."""
    if step == "copying":
        cells.failing = 1
        return DataCorrupted
    target, name = {
        "ids": (adopting, "opened_replica"),
        "moving": (Path, "rename"),
        "master": (shutil, "copyfileobj"),
        "replication.json": (ReplicatedFolder, "write"),
    }[step]
    real = getattr(target, name)

    def fail(*words: Any) -> Any:
        if step != "moving" or "node-1" in str(words[0]):
            raise Interrupted
        return real(*words)

    patch.setattr(target, name, fail)
    return Interrupted


STEPS: Final = ("copying", "ids", "master", "moving", "replication.json")


@pytest.mark.parametrize("step", STEPS)
def test_an_adoption_that_was_interrupted_keeps_starts_out_and_goes_on(
    step: str, folder: Path, cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(folder)
    with monkeypatch.context() as patch:
        error = break_off(step, cells, patch)
        with pytest.raises(error):
            adopt(folder)
    cells.failing = None
    text = (
        "getting copies, which has not ended: run `dodona cluster adopt .* --replicas 3` again, or "
        "`dodona cluster adopt .* --undo`"
    )
    for replicas in (None, REPLICAS):
        with pytest.raises(LaunchFailed, match=text):
            LocalCluster(folder, replicas=replicas).__enter__()
    for use in (check_folder, dodona.open):
        with pytest.raises(InvalidRequest, match=text):
            use(folder)
    adopt(folder)
    assert content(folder / PLAIN) == before


@pytest.mark.parametrize("step", [*STEPS, "nothing"])
def test_an_adoption_can_be_undone_at_each_step(
    step: str, folder: Path, cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, before_names = content(folder), names(folder)
    with monkeypatch.context() as patch:
        if step == "nothing":
            adopt(folder)
        else:
            error = break_off(step, cells, patch)
            with pytest.raises(error):
                adopt(folder)
    adopting.undo(folder)
    assert content(folder) == before
    assert names(folder) == before_names
    with pytest.raises(InvalidRequest, match="no adoption is under way here"):
        adopting.undo(folder)
    cells.failing = None
    adopt(folder)


@pytest.mark.parametrize("step", range(8))
def test_an_undo_that_was_interrupted_goes_on(
    step: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(folder)
    adopt(folder)
    for node in ("node-0", "node-1"):  # a start has made them anew
        (folder / node / "chunks").mkdir(parents=True)
        (folder / node / "chunks" / "1.arrow").touch()
    left = [step]
    rename = Path.rename

    def fail_later(path: Path, target: Path) -> Path:
        left[0] -= path.is_dir()  # the note is a file
        if left[0] < 0:
            raise Interrupted
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail_later)
        with pytest.raises(Interrupted):
            adopting.undo(folder)
    with pytest.raises(LaunchFailed, match=r"run `dodona cluster adopt .* --undo` again"):
        LocalCluster(folder).__enter__()
    with pytest.raises(InvalidRequest, match="being undone: use --undo again"):
        adopt(folder)
    adopting.undo(folder)
    assert content(folder) == before
    assert names(folder) == {"node-0", "node-1"}


@pytest.mark.parametrize(
    ("groups", "is_lost"),
    [
        ([], False),
        ([UPKEEP], False),
        ([UPKEEP, (*UPKEEP, WRITE)], True),
        ([[Checkpoint(number)] for number in range(1_001)], True),
    ],
)
def test_an_undo_loses_no_write(
    groups: list[Sequence[Record]], is_lost: bool, folder: Path
) -> None:
    """One replica that shows the write is enough."""
    adopt(folder)
    started(folder, groups, [2])
    if not is_lost:
        adopting.undo(folder)
        return
    text = "cell-0, cell-1 may have acknowledged writes since the adoption, which an undo loses"
    with pytest.raises(InvalidRequest, match=text):
        adopting.undo(folder)
    assert "plain" in names(folder)


def test_a_cell_that_came_later_has_writes_that_an_undo_loses(folder: Path) -> None:
    adopt(folder)
    known = ReplicatedFolder.read(folder)
    assert known is not None
    (records,) = records_of_group(2, [WRITE])[1]
    entries = (make_entry(1, 1, OPENING), make_entry(2, 1, records))
    with closing(store_of(folder, 1, known.name)) as store:
        store.append([EpochRaised("cell-2", 1), EntriesAdded("cell-2", entries)])
    with pytest.raises(InvalidRequest, match="cell-2 may have acknowledged writes"):
        adopting.undo(folder)


def test_a_log_that_was_cut_since_shows_nothing(folder: Path) -> None:
    adopt(folder)
    started(folder, [UPKEEP], range(3))
    cut(folder, 3)
    with pytest.raises(InvalidRequest, match="may have acknowledged writes"):
        adopting.undo(folder)


@pytest.mark.parametrize("lost", [["replica-1"], ["replica-1", "replica-2"]])
@pytest.mark.parametrize("is_replaced", [True, False])
def test_an_undo_needs_the_replicas_of_the_adoption(
    lost: list[str], is_replaced: bool, folder: Path
) -> None:
    """An acknowledged write is on two disks, so one may be another one."""
    adopt(folder)
    known = ReplicatedFolder.read(folder)
    assert known is not None
    for name in lost:
        shutil.rmtree(folder / name)
        if is_replaced:
            store_of(folder, int(name[-1]), known.name).close()
    if len(lost) == 1:
        adopting.undo(folder)
        return
    with pytest.raises(InvalidRequest, match="replica-1, replica-2 can't show that no write was"):
        adopting.undo(folder)


@pytest.mark.parametrize("lost", ["plain", "plain/node-1"])
def test_an_undo_needs_the_logs_from_before(lost: str, folder: Path) -> None:
    """Also when it was interrupted before they moved back."""
    adopt(folder)
    (folder / lost).rename(folder.parent / "aside")
    for state in (State.ADOPTED, State.UNDOING):
        note(folder, state)
        with pytest.raises(DataCorrupted, match=r"log of node \d .* missing: put .*/plain/node-\d"):
            adopting.undo(folder)
        assert state_of(folder) is state
    (folder.parent / "aside").rename(folder / lost)
    adopting.undo(folder)


def test_an_undo_without_any_replica_is_refused(folder: Path) -> None:
    adopt(folder)
    (folder / "replication.json").unlink()
    for index in range(3):
        shutil.rmtree(folder / f"replica-{index}")
    text = "replica-0, replica-1, replica-2 can't show that no write was acknowledged"
    with pytest.raises(InvalidRequest, match=text):
        adopting.undo(folder)
    assert state_of(folder) is State.ADOPTED


def test_the_kept_cluster_is_the_one_from_before(folder: Path) -> None:
    """Its master is that of the adoption, too. Only a copy of it can be started."""
    adopt(folder)
    with closing(MasterStore.open(folder / "master")) as store:
        store.append([put_ceiling(Timestamp(1 << 61))])
    text = "plain keeps a cluster as it was before its adoption: copy it, and start the copy"
    with pytest.raises(InvalidRequest, match=text):
        dodona.open(folder / PLAIN)
    with pytest.raises(LaunchFailed, match=text):
        LocalCluster(folder / PLAIN).__enter__()
    before = shutil.copytree(folder / PLAIN, folder.parent / "before")
    assert not [it for it in check_folder(before) if it.damages]
    shutil.rmtree(before / "node-1")  # an embedded database has one node
    with dodona.open(before) as db:
        assert db.list("//") == ["t"]
        assert db.generate_timestamp() < 1 << 61


def test_a_check_says_what_the_kept_cluster_lacks(folder: Path) -> None:
    adopt(folder)
    (folder / PLAIN / "node-0").rename(folder.parent / "aside")
    assert damaged(folder) == [f"{PLAIN}/master"]
    shutil.rmtree(folder / PLAIN)
    assert damaged(folder) == [PLAIN]


def damaged(folder: Path) -> list[str]:
    return [it.name for it in check_folder(folder) if it.name.startswith(PLAIN) and it.damages]


def test_an_undo_removes_no_log(folder: Path) -> None:
    """Not even one that a user put at the place of a node."""
    adopt(folder)
    shutil.copytree(folder / PLAIN / "node-1", folder / "node-1")
    with pytest.raises(DataCorrupted, match="have logs: move one away"):
        adopting.undo(folder)
    assert (folder / "node-1" / "log").exists()
    assert state_of(folder) is State.ADOPTED


@pytest.mark.parametrize("name", ["objects", "etcd", "replica-1", "node-0", "plain/node-1"])
def test_an_undo_that_a_mount_point_stops_changes_nothing(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt(folder)
    (folder / name).mkdir(exist_ok=True)
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "ismount", lambda path: path == folder / name)
        with pytest.raises(InvalidRequest, match=f"/{name} is a mount point, which can't move"):
            adopting.undo(folder)
    assert state_of(folder) is State.ADOPTED
    adopting.undo(folder)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EBUSY])
@pytest.mark.parametrize("target", ["note", "folder"])
def test_a_disk_that_refuses_is_named_and_the_undo_goes_on_later(
    number: int, target: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt(folder)
    rename = Path.rename

    def refuse(path: Path, target_path: Path) -> Path:
        if path.is_dir() == (target == "folder"):
            raise OSError(number, os.strerror(number), str(path))
        return rename(path, target_path)

    kind = DiskFull if number == errno.ENOSPC else LaunchFailed
    text = r"the disk of .* is full: .*[mM]ake room" if kind is DiskFull else r"cannot .* busy"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(kind, match=text):
            adopting.undo(folder)
    adopting.undo(folder)


def state_of(folder: Path) -> State:
    found = Adoption.read(folder)
    assert found is not None
    return found.state


def note(folder: Path, state: State) -> None:
    """The step that the folder remembers."""
    found = Adoption.read(folder)
    assert found is not None
    replace(found, state=state).write(folder)


def test_a_finish_ends_the_adoption(folder: Path) -> None:
    adopt(folder)
    adopting.finish(folder)
    assert "adoption.json" not in names(folder)
    with pytest.raises(InvalidRequest, match="no adoption is under way here"):
        adopting.finish(folder)


def test_a_finish_removes_nothing_but_its_own_note(folder: Path) -> None:
    """Only the user knows what else is in the folder, and whether there is a backup."""
    adopt(folder)
    before = content(folder / PLAIN)
    assert before
    assert adopting.finish(folder) == folder / PLAIN
    assert content(folder / PLAIN) == before


def test_an_undo_removes_nothing(folder: Path) -> None:
    """What the adoption made is aside, and a link to another disk stays a link."""
    adopt(folder)
    elsewhere = folder.parent / "elsewhere"
    (folder / "replica-1").rename(elsewhere)
    (folder / "replica-1").symlink_to(elsewhere)
    aside = adopting.undo(folder)
    assert {it.name for it in aside.iterdir()} >= {"replica-0", "replica-1", "replica-2"}
    assert any(elsewhere.iterdir())


def test_a_finish_before_the_copies_are_complete_is_refused(folder: Path, cells: Cells) -> None:
    cells.failing = 0
    with pytest.raises(DataCorrupted, match="interrupted"):
        adopt(folder)
    with pytest.raises(InvalidRequest, match="do not have their copies yet: run it without --fin"):
        adopting.finish(folder)


def test_a_folder_that_was_adopted_is_not_adopted_again(folder: Path) -> None:
    adopt(folder)
    with pytest.raises(InvalidRequest, match=r"already. Start it with `dodona up .* --replicas 3`"):
        adopt(folder)
    adopting.finish(folder)
    with pytest.raises(InvalidRequest, match="on log replicas already: there is nothing to adopt"):
        adopt(folder)


@pytest.mark.parametrize("other", [Replicas(4), Replicas(3, "s3://bucket/prefix")])
def test_an_adoption_goes_on_with_its_own_options_only(
    other: Replicas, folder: Path, cells: Cells
) -> None:
    cells.failing = 1
    with pytest.raises(DataCorrupted):
        adopt(folder)
    with pytest.raises(InvalidRequest, match="began with --replicas 3: use these, or --undo"):
        adopt(folder, other)


def test_the_way_on_names_the_options_of_the_adoption(tmp_path: Path) -> None:
    place = tmp_path / "a folder"
    place.mkdir()
    store = "file:///a store"
    Adoption(State.COPYING, "local-1", 4, 2, store).write(place)
    command = f"dodona cluster adopt '{place}'"
    with pytest.raises(LaunchFailed) as caught:
        check_startable(place)
    options = f"--replicas 4 --object-store '{store}'"
    text = f"run `{command} {options}` again, or `{command} --undo`"
    assert caught.value.message.endswith(text)
    adopted = Adoption(State.ADOPTED, "local-1", 4, 2, store)
    assert start_of(place, adopted) == f"dodona up --data-dir '{place}' --nodes 2 {options}"
