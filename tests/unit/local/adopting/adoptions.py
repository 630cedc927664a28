"""Adoptions without processes: what stands for these, and what owners write later.

Replicas have real files here, which tests fill as an owner would.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from dodona.errors import DataCorrupted
from dodona.types import Timestamp, TransactionId
from dodona_local import adopting
from dodona_local.adoption import Adoption, State
from dodona_local.folder import DataFolder
from dodona_local.progress import Progress
from dodona_local.replicas import Replicas
from dodona_local.replicated_folder import ReplicatedFolder
from dodona_replication.core.entries import make_entry
from dodona_replication.core.records import EntriesAdded, EpochRaised, LogCut
from dodona_replication.shell.replica_store import ReplicaStore
from dodona_tablets.core.records import (
    Checkpoint,
    CommitDecided,
    Record,
    StoreRotated,
)
from dodona_tablets.shell.adopting import AdoptedLog
from dodona_tablets.shell.log_entries import OPENING, records_of_group
from dodona_wire.types import TabletId

REPLICAS: Final = Replicas(3)
SCHEMA: Final = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
WRITE: Final = CommitDecided(TransactionId(1), Timestamp(2))
UPKEEP: Final = (Checkpoint(7), StoreRotated(TabletId(1)))


class Cells:
    """What stands for the processes, and for the copying of cells."""

    def __init__(self) -> None:
        self.adopted: list[int] = []
        self.failing: int | None = None
        """The cell whose copying fails."""

    @contextmanager
    def processes(self, folder: DataFolder, adoption: Adoption, *_: Any) -> Iterator[Any]:
        for index in range(adoption.replica_count):
            store_of(folder.path, index, adoption.name).close()
        yield [], print

    def adopt(self, settings: Any, plain: Path, *_: Any) -> AdoptedLog:
        cell = int(plain.name.removeprefix("node-"))
        if cell == self.failing:
            raise DataCorrupted("interrupted")
        self.adopted.append(cell)
        return AdoptedLog(1, 1)


def store_of(folder: Path, index: int, name: str) -> ReplicaStore:
    return ReplicaStore.open(folder / f"replica-{index}", name)


def adopt(folder: Path, replicas: Replicas = REPLICAS) -> None:
    assert adopting.adopt(folder, replicas, Progress(), print).state is State.ADOPTED


def started(folder: Path, groups: Sequence[Sequence[Record]], indexes: Sequence[int]) -> None:
    """Cells 0 and 1 wrote these groups after the adoption, to the replicas with these numbers."""
    known = ReplicatedFolder.read(folder)
    assert known is not None
    for replica in indexes:
        with closing(store_of(folder, replica, known.name)) as store:
            for log in ("cell-0", "cell-1"):
                entries = [make_entry(1, 1, OPENING), make_entry(2, 2, OPENING)]
                for index, group in enumerate(groups, 3):
                    (records,) = records_of_group(index, group)[1]
                    entries.append(make_entry(index, 2, records))
                store.append([EpochRaised(log, 2), EntriesAdded(log, tuple(entries))])


def cut(folder: Path, index: int) -> None:
    known = ReplicatedFolder.read(folder)
    assert known is not None
    for replica in range(3):
        with closing(store_of(folder, replica, known.name)) as store:
            store.append([LogCut(log, index) for log in ("cell-0", "cell-1")])


def content(folder: Path) -> dict[str, bytes]:
    """The data of the nodes and the master, by path."""
    files = [it for part in ("master", "node-0", "node-1") for it in (folder / part).rglob("*")]
    return {
        str(it.relative_to(folder)): it.read_bytes()
        for it in files
        if it.is_file() and it.name != "dodona.lock"
    }


def names(folder: Path) -> set[str]:
    """What there is, but for what each cluster has, and for what an undo has moved aside."""
    others = ("logs", "dodona.lock", "cluster-key", "master", "ballast")
    found = {it.name for it in folder.iterdir() if it.name not in others}
    return {it for it in found if not it.startswith("undone-")}
