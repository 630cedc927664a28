"""The steps of an adoption, each interrupted, repeated and undone. No process runs."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import dodona
from dodona.errors import DataCorrupted, InvalidRequest
from dodona_local import adopting
from dodona_local.adoption import PLAIN, note_served
from dodona_local.checking import check_folder
from dodona_local.errors import LaunchFailed
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import Replicas
from dodona_local.replicated_folder import ReplicatedFolder
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
    kept = content(folder / PLAIN)
    assert kept == {path: it for path, it in before.items() if not path.startswith("master")}
    assert names(folder) == {
        *("adoption.json", "replication.json", PLAIN, "replica-0", "replica-1", "replica-2"),
    }
    known = ReplicatedFolder.read(folder)
    assert known is not None
    assert (known.replica_count, known.node_count, known.has_been_ready) == (3, 2, True)
    parts = [it.name for it in check_folder(folder)]
    assert parts[-2:] == [f"{PLAIN}/node-0", f"{PLAIN}/node-1"]


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
        "replication.json": (ReplicatedFolder, "write"),
    }[step]
    real = getattr(target, name)

    def fail(*words: Any) -> Any:
        if step != "moving" or "node-1" in str(words[0]):
            raise Interrupted
        return real(*words)

    patch.setattr(target, name, fail)
    return Interrupted


STEPS: Final = ("copying", "ids", "moving", "replication.json")


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
    text = "getting copies, which has not ended: run `dodona cluster adopt .*` again, or with --un"
    for replicas in (None, REPLICAS):
        with pytest.raises(LaunchFailed, match=text):
            LocalCluster(folder, replicas=replicas).__enter__()
    for use in (check_folder, dodona.open):
        with pytest.raises(InvalidRequest, match=text):
            use(folder)
    adopt(folder)
    kept = content(folder / PLAIN)
    assert kept == {path: it for path, it in before.items() if not path.startswith("master")}


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
    adopting.undo(folder, print)
    assert content(folder) == before
    assert names(folder) == before_names
    with pytest.raises(InvalidRequest, match="no adoption is under way here"):
        adopting.undo(folder, print)
    cells.failing = None
    adopt(folder)


@pytest.mark.parametrize("step", range(4))
def test_an_undo_that_was_interrupted_goes_on(
    step: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(folder)
    adopt(folder)
    for node in ("node-0", "node-1"):  # a start has made them anew
        (folder / node / "chunks").mkdir(parents=True)
        (folder / node / "chunks" / "1.arrow").touch()
    left = [step]
    rmtree = shutil.rmtree

    def fail_later(path: Path) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted
        rmtree(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", fail_later)
        with pytest.raises(Interrupted):
            adopting.undo(folder, print)
    with pytest.raises(LaunchFailed, match=r"run `dodona cluster adopt .* --undo` again"):
        LocalCluster(folder).__enter__()
    with pytest.raises(InvalidRequest, match="being undone: use --undo again"):
        adopt(folder)
    adopting.undo(folder, print)
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
        adopting.undo(folder, print)
        return
    text = "cell-0, cell-1 may have acknowledged writes since the adoption, which an undo loses"
    with pytest.raises(InvalidRequest, match=text):
        adopting.undo(folder, print)
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
        adopting.undo(folder, print)


def test_a_log_that_was_cut_since_shows_nothing(folder: Path) -> None:
    adopt(folder)
    started(folder, [UPKEEP], range(3))
    cut(folder, 3)
    with pytest.raises(InvalidRequest, match="may have acknowledged writes"):
        adopting.undo(folder, print)


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
        adopting.undo(folder, print)
        return
    with pytest.raises(InvalidRequest, match="replica-1, replica-2 can't show that no write was"):
        adopting.undo(folder, print)


def test_an_undo_removes_no_log(folder: Path) -> None:
    """Not even one that a user put at the place of a node."""
    adopt(folder)
    shutil.copytree(folder / PLAIN / "node-1", folder / "node-1")
    with pytest.raises(DataCorrupted, match="have logs: move one away"):
        adopting.undo(folder, print)
    assert (folder / "node-1" / "log").exists()


def test_a_finish_needs_nodes_that_were_ready_with_their_copies(folder: Path) -> None:
    note_served(folder)  # there is no adoption yet
    adopt(folder)
    with pytest.raises(InvalidRequest, match="nodes have not served from their copies yet"):
        adopting.finish(folder)
    note_served(folder)
    adopting.finish(folder)
    assert not names(folder) & {PLAIN, "adoption.json"}
    with pytest.raises(InvalidRequest, match="no adoption is under way here"):
        adopting.finish(folder)


def test_a_finish_that_was_interrupted_can_only_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt(folder)
    note_served(folder)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", break_off_tree)
        with pytest.raises(Interrupted):
            adopting.finish(folder)
    with pytest.raises(InvalidRequest, match="being removed: use --finish again"):
        adopting.undo(folder, print)
    assert ReplicatedFolder.read(folder) is not None, "it may be started"
    adopting.finish(folder)
    assert not (folder / PLAIN).exists()


def break_off_tree(path: Path) -> None:
    raise Interrupted


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
    note_served(folder)
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
