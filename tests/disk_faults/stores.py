"""The real stores as a judge opens them: after any crash they open, replay, and take more.

Owns: where a workload's store is, how it is recovered, and the proof that it goes on working. Must
not import: the tracer, or disks.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dodona.types import CellId, Now, Timestamp, TransactionId
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.records import Item, Put
from dodona_oracle.shell.store import MasterStore
from dodona_tablets.core.node import NodeCore
from dodona_tablets.core.records import CommittedHere, Record
from dodona_tablets.shell.log import CellLog

FOLDER: Final = "data"
LOG_BYTES_MAX: Final = 1 << 26

Mark = Callable[[bytes], None]
"""Tells whoever watches something, at once."""

_FURTHER_RECORD: Final = CommittedHere(TransactionId(1), Timestamp(1), ())
_FURTHER_ITEM: Final = ("further", b"key", b"value")


class Wrong(Exception):
    """What a disk holds is not what was promised. Says what is amiss."""


def read_log(folder: Path) -> list[Record]:
    """All records of a cell, replayed once, and once more behind another. Raises Wrong, and what
    the log raises."""
    records = _records(folder)
    core = NodeCore(CellId(0), "address")
    for record in records:
        core.replay(record)
    core.start(Now(0, 0))
    log = CellLog.open(folder / FOLDER, LOG_BYTES_MAX)
    log.append([_FURTHER_RECORD])
    log.close()
    if _records(folder) != [*records, _FURTHER_RECORD]:
        raise Wrong("a record that was appended after the recovery is not there, or others are not")
    return records


def _records(folder: Path) -> list[Record]:
    log = CellLog.open(folder / FOLDER, LOG_BYTES_MAX)
    try:
        return list(log.read())
    finally:
        log.close()


def read_store(folder: Path) -> list[Item]:
    """All items of a master, sorted, as `read_log`."""
    items = _items(folder)
    MasterCore.recover(items, Now(0, 0))
    bucket, key, value = _FURTHER_ITEM
    store = MasterStore.open(folder / FOLDER)
    store.append([Put(bucket, key, value)])
    store.close()
    if _items(folder) != sorted([*items, _FURTHER_ITEM]):
        raise Wrong("a value that was put after the recovery is not there, or others are not")
    return items


def _items(folder: Path) -> list[Any]:
    store = MasterStore.open(folder / FOLDER)
    try:
        return sorted(store.items())
    finally:
        store.close()
