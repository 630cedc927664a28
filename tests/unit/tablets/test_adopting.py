"""A log in files gets copies on replicas: real cores of replicas, without processes."""

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import dodona
from dodona.errors import DataCorrupted, DiskFull, FolderInUse, Unavailable
from dodona.types import CellId, Timestamp, TransactionId
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.folder import FolderCoordinator
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.records import Checkpoint, PreparedHere, Record
from dodona_tablets.shell import adopting, replicated_log
from dodona_tablets.shell.adopting import adopt_cell
from dodona_tablets.shell.checking import replayed
from dodona_tablets.shell.log import CellLog
from dodona_tablets.shell.log_check import read_log, unwatched
from dodona_tablets.shell.log_entries import FoundGroups
from dodona_tablets.shell.log_reading import read
from dodona_tablets.shell.objects import FolderObjects
from dodona_tablets.shell.replicated_log import ReplicatedCellLog, Replication
from dodona_tablets.shell.settings import NodeSettings
from suite.waiting import WAIT_S_MAX
from unit.replication.replicas import CLUSTER
from unit.tablets.replica_links import Replicas

LOG: Final = "cell-0"
SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "double"},
]
DOUBT: Final = PreparedHere(TransactionId(77), Timestamp(1 << 60), (CellId(0), CellId(1)), ())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with rows in a chunk and in its log, and a transaction in doubt."""
    folder = tmp_path_factory.mktemp("made") / "db"
    with dodona.open(folder) as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
        db.insert_rows("//t", [{"k": 1, "v": 1.0}])
        db.unmount_table("//t", timeout_ms=int(1000 * WAIT_S_MAX))
        db.mount_table("//t")
        db.insert_rows("//t", [{"k": 2, "v": float("nan")}])
    append(folder / "node-0", DOUBT)
    return folder


@pytest.fixture
def plain(made: Path, tmp_path: Path) -> Path:
    """The folder of the cell."""
    return shutil.copytree(made, tmp_path / "db") / "node-0"


@pytest.fixture
def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicas:
    made = Replicas(LOG)

    async def open_coordinator() -> Coordinator:
        return FolderCoordinator.open(tmp_path / "etcd")

    def replication_of(settings: NodeSettings) -> Replication:
        return Replication(CLUSTER, settings.replica_urls, open_coordinator)

    monkeypatch.setattr(replicated_log, "ReplicaLinks", made)
    monkeypatch.setattr(adopting, "replication_of", replication_of)
    return made


@pytest.fixture
def settings(tmp_path: Path) -> NodeSettings:
    (tmp_path / "objects").mkdir()
    given = {
        "cell": 0,
        "data_dir": tmp_path / "node",
        "replicas": "http://a,http://b,http://c,http://d",
        "etcd": "http://e",
        "cluster": CLUSTER,
        "object_store": (tmp_path / "objects").as_uri(),
    }
    return NodeSettings.model_validate(given)


def check() -> None:
    """The replicas run."""


def append(folder: Path, *records: Record) -> None:
    log = CellLog.open(folder, 1 << 30)
    log.append(records)
    log.close()


def content(folder: Path) -> dict[Path, bytes]:
    """The files, but for the one that says which process had the folder last."""
    files = [it for it in folder.rglob("*") if it.is_file() and it.name != "dodona.lock"]
    return {it: it.read_bytes() for it in files}


def copies(replicas: Replicas) -> list[list[Record]]:
    """The records that each member of the set has."""
    found = []
    for store in replicas.members():
        tail = store.logs()[LOG].tail
        entries = store.read(LOG, tail.first_index, tail.last_index, 1 << 40, 1 << 40)
        found.append([it for _, it in read([FoundGroups(Path(), entries)])])
    return found


def as_text(records: Sequence[Record]) -> list[str]:
    """A NaN differs from itself."""
    return [repr(it) for it in records]


def test_the_copies_have_the_records_and_the_store_has_the_chunks(
    plain: Path, replicas: Replicas, settings: NodeSettings, tmp_path: Path
) -> None:
    before = content(plain)
    copy = adopt_cell(settings, plain, unwatched, check)
    wanted = as_text(list(read_log(plain)))
    assert [as_text(it) for it in copies(replicas)] == [wanted] * 3
    assert content(plain) == before
    assert copy.epoch == 2
    assert copy.last_index == 3  # two that open epochs, and one group
    cluster = replayed(plain).cell.cluster
    names = sorted(FolderObjects(tmp_path / "objects").names(""))
    assert names == [f"home/cell-0/{cluster:016x}/0/1.{it}" for it in ("arrow", "index")]


def test_a_transaction_in_doubt_is_in_doubt_in_the_copy(
    plain: Path, replicas: Replicas, settings: NodeSettings
) -> None:
    adopt_cell(settings, plain, unwatched, check)
    core = NodeCore(CellId(0), "offline")
    for record in copies(replicas)[0]:
        core.replay(record)
    assert DOUBT.transaction in core.cell.transactions


def test_a_log_that_was_cut_begins_with_its_checkpoint(
    plain: Path, replicas: Replicas, settings: NodeSettings
) -> None:
    cluster = replayed(plain).cell.cluster
    log = CellLog.open(plain, 1 << 20)
    padding = PreparedHere(TransactionId(1000), Timestamp(1 << 60), (CellId(0),), ())
    for number in range(1, 12):
        log.append([padding] * 2_000)
        log.append([Checkpoint(number, cluster)])
    log.truncate_before(11)
    log.close()
    wanted = list(read_log(plain))
    assert isinstance(wanted[0], Checkpoint)
    adopt_cell(settings, plain, unwatched, check)
    assert [as_text(it) for it in copies(replicas)] == [as_text(wanted)] * 3


@pytest.mark.parametrize("size", [1, 3])
def test_an_adoption_that_was_interrupted_goes_on(
    size: int,
    plain: Path,
    replicas: Replicas,
    settings: NodeSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It appends only what the copy lacks."""
    monkeypatch.setattr(adopting, "BATCH_RECORDS_MAX", size)
    count = len(list(read_log(plain)))
    assert count > 2 * size
    add = adopting._Appends.append
    left = [2]

    async def fail_later(self: Any, records: list[Record]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Unavailable("interrupted")
        await add(self, records)

    monkeypatch.setattr(adopting._Appends, "append", fail_later)
    with pytest.raises(Unavailable, match="interrupted"):
        adopt_cell(settings, plain, unwatched, check)
    assert [len(it) for it in copies(replicas)] == [2 * size] * 3
    monkeypatch.setattr(adopting._Appends, "append", add)
    adopt_cell(settings, plain, unwatched, check)
    wanted = as_text(list(read_log(plain)))
    assert [as_text(it) for it in copies(replicas)] == [wanted] * 3


def test_a_copy_of_another_log_is_refused(
    plain: Path, replicas: Replicas, settings: NodeSettings, tmp_path: Path
) -> None:
    adopt_cell(settings, plain, unwatched, check)
    with dodona.open(tmp_path / "other") as db:
        db.create_table("//t", schema=SCHEMA, mount=True)
    with pytest.raises(DataCorrupted, match="have other records of cell 0 than its log"):
        adopt_cell(settings, tmp_path / "other" / "node-0", unwatched, check)


def test_a_folder_in_use_is_refused(
    plain: Path, replicas: Replicas, settings: NodeSettings
) -> None:
    with dodona.open(plain.parent), pytest.raises(FolderInUse):
        adopt_cell(settings, plain, unwatched, check)


def test_a_store_that_is_away_stops_the_adoption_before_any_record_is_copied(
    plain: Path, replicas: Replicas, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(*_: Any) -> None:
        raise Unavailable("the object store is away")

    monkeypatch.setattr(FolderObjects, "put", put)
    with pytest.raises(Unavailable, match="the object store is away"):
        adopt_cell(settings, plain, unwatched, check)
    assert replicas.members() == []


def test_replicas_that_do_not_store_are_named(
    plain: Path, replicas: Replicas, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopting, "STORE_S_MAX", 0.05)
    monkeypatch.setattr(adopting._Appends, "append", _never)
    text = r"at http://a, .*, http://d did not store records of cell 0 in time"
    with pytest.raises(Unavailable, match=text):
        adopt_cell(settings, plain, unwatched, check)


async def _never(self: Any, records: list[Record]) -> None:
    await asyncio.Event().wait()


def test_each_step_is_reported_with_its_bytes(
    plain: Path, replicas: Replicas, settings: NodeSettings
) -> None:
    heard: list[tuple[str, int]] = []

    def begin(step: str, total_bytes: int) -> Callable[[int], None]:
        heard.append((step, total_bytes))
        return unwatched(step, total_bytes)

    adopt_cell(settings, plain, begin, check)
    assert [it for it, _ in heard] == ["chunks", "log", "log, to compare the copy"]
    assert all(total > 0 for _, total in heard)


def test_a_comparison_ends_when_the_time_is_over(
    plain: Path, replicas: Replicas, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread compares. It stops before the files of the log are closed."""
    adopt_cell(settings, plain, unwatched, check)
    deadline = time.monotonic() + WAIT_S_MAX
    record = next(read_log(plain))

    def repeat(*_: Any) -> Iterator[Record]:
        while time.monotonic() < deadline:
            yield record

    monkeypatch.setattr(adopting, "read_log", repeat)
    monkeypatch.setattr(ReplicatedCellLog, "read", repeat)
    monkeypatch.setattr(adopting, "TAKE_OVER_S_MAX", 0.05)
    with pytest.raises(Unavailable, match="did not let a process own the log of cell 0 in time"):
        adopt_cell(settings, plain, unwatched, check)
    assert time.monotonic() < deadline


def test_an_adoption_ends_with_the_processes_of_the_replicas(
    plain: Path, replicas: Replicas, settings: NodeSettings
) -> None:
    """It does not wait until its time is over, and does not say that replicas are slow."""

    def ended() -> None:
        raise DiskFull("no file is left for a log")

    replicas.away |= set(replicas.replicas)
    with pytest.raises(DiskFull, match="no file is left for a log"):
        adopt_cell(settings, plain, unwatched, ended)
