"""What is run while its disk is watched, and how a disk that is found later is judged.

Owns: the list of all workloads. Each is one process's life with one store, and can be lived again
on what the last life left: it marks what it found, what it is about to write, and what is promised.
To add one is to write its class and to put it into `WORKLOADS`; whatever files it makes below its
folder are seen. Must not import: the tracer, or disks.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from disk_faults import stories
from disk_faults.promises import Promises, live
from disk_faults.replicating import ReplicaStoreStory
from disk_faults.serving import ServedCell, ServedMaster
from disk_faults.stores import FOLDER, LOG_BYTES_MAX, Mark, read_log, read_store
from disk_faults.storing import StoringCell
from dodona.types import Revision, Timestamp, TransactionId, TreeTransactionId
from dodona_oracle.core.records import (
    COMMITS,
    Item,
    Put,
    Record,
    changes_of,
    decode_number,
    encode_number,
    put_commit,
)
from dodona_oracle.shell.store import MasterStore
from dodona_tablets.core.records import CommittedHere
from dodona_tablets.core.records import Record as CellRecord
from dodona_tablets.shell.log import CellLog


class Workload(Protocol):
    """`folder` is the one that is watched; a store makes its own in there."""

    @property
    def name(self) -> str:
        """What it is called in summaries."""

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        """One life, from opening to closing. Raises what the stores raise."""

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        """Open what is there after these marks. Raises Wrong, and what the stores raise."""


class CellLogStory:
    """Groups of a cell's records, appended to its log."""

    name = "log of a cell"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        log = CellLog.open(folder / FOLDER, LOG_BYTES_MAX)
        groups = stories.cell_groups(seed)
        found = _lives_in(list(log.read()), groups)
        assert found is not None, "these are no whole groups"
        live(
            log.append,
            lambda number, life: (_cell_marker(life), *groups[number - 1]),
            range(len(found) + 1, len(groups) + 1),
            mark,
        )
        log.close()

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        found = _lives_in(read_log(folder), stories.cell_groups(seed))
        Promises.of(marks).check(found)


def _cell_marker(life: int) -> CommittedHere:
    """A record that says who wrote the group that it begins, and means nothing."""
    return CommittedHere(TransactionId(life), Timestamp(1), ())


def _lives_in(records: list[CellRecord], groups: stories.CellGroups) -> list[int] | None:
    """Of each group in these records the life; None if they are no whole groups."""
    lives: list[int] = []
    at = 0
    while at < len(records) and len(lives) < len(groups):
        first, group = records[at], groups[len(lives)]
        end = at + 1 + len(group)
        if not isinstance(first, CommittedHere) or records[at + 1 : end] != list(group):
            return None
        lives.append(first.transaction)
        at = end
    return lives if at == len(records) else None


class MasterStoreStory:
    """Groups of a master's records, put into its store."""

    name = "store of a master"

    def run(self, folder: Path, seed: int, mark: Mark) -> None:
        store = MasterStore.open(folder / FOLDER)
        groups = stories.master_groups(seed)
        number, _ = _marked_in(store.items())
        live(
            store.append,
            lambda number, life: (*_master_markers(number, life), *groups[number - 1]),
            range(number + 1, len(groups) + 1),
            mark,
        )
        store.close()

    def judge(self, folder: Path, seed: int, marks: Sequence[bytes]) -> None:
        items = read_store(folder)
        number, life = _marked_in(items)
        promises = Promises.of(marks)
        groups = stories.master_groups(seed)
        markers = _master_markers(number, life) if number else ()
        is_whole = items == _items_after([*groups[:number], markers])
        promises.check([*promises.lives[: number - 1], life][:number] if is_whole else None)


_NUMBER: Final = Revision(1)
_LIFE: Final = Revision(2)


def _master_markers(number: int, life: int) -> tuple[Put, Put]:
    """Records that say which group was written last, and by whom, and mean nothing."""
    return (
        put_commit(_NUMBER, TreeTransactionId(number)),
        put_commit(_LIFE, TreeTransactionId(life)),
    )


def _marked_in(items: Iterable[Item]) -> tuple[int, int]:
    """The last group's number and life; zeros without any."""
    commits = {key: decode_number(value) for bucket, key, value in items if bucket == COMMITS}
    return commits.get(encode_number(_NUMBER), 0), commits.get(encode_number(_LIFE), 0)


def _items_after(groups: Iterable[Sequence[Record]]) -> list[Item]:
    values: dict[tuple[str, bytes], bytes] = {}
    for change in (it for group in groups for record in group for it in changes_of(record)):
        if isinstance(change, Put):
            values[change.bucket, change.key] = change.value
        else:
            values.pop((change.bucket, change.key), None)
    return sorted((*name, value) for name, value in values.items())


WORKLOADS: Final[tuple[Workload, ...]] = (
    CellLogStory(),
    MasterStoreStory(),
    ServedCell(),
    StoringCell(),
    ServedMaster(),
    ReplicaStoreStory(),
)
