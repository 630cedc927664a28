"""Read a log replica's folder that no process has open: verify every byte, or look into one log.

Owns: `verify_replica`, and `opened_replica`. Damage to one log does not keep the others from being
checked. Changes nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import lmdb
import msgspec

from dodona_replication.core.records import EntriesAdded
from dodona_replication.shell.replica_keys import Identity, StoredState, damaged
from dodona_replication.shell.replica_reading import (
    check_end,
    check_next,
    last_index_of,
    read_entry,
    read_identity,
    read_states,
    read_waiting,
)
from dodona_replication.shell.replica_store import FILE_NAME
from dodona_server.environment import open_environment, verify_pages
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.messages.replicas import Entry
from dodona_wire.net.folder import locked_to_read


class ReplicaSummary(msgspec.Struct, frozen=True):
    """What a replica's folder has. It is sound unless there are `damages`."""

    cluster: str
    replica: str
    log_count: int
    entry_count: int
    entry_bytes: int
    """Bytes of the records of all entries."""
    damages: tuple[DataCorrupted, ...]
    """The first damage to each log."""


def verify_replica(folder: Path) -> ReplicaSummary:
    """Check the data folder of a log replica: pages, checksums, and that no entry is missing.

    Raises DataCorrupted (the file, or the state of a log, is damaged), InvalidRequest (there is no
    file of a replica), FolderInUse.
    """
    with opened_replica(folder) as stored:
        counts = [_Count(stored, name) for name in stored.states]
        for count in counts:
            count.run(stored.cursor)
    return ReplicaSummary(
        stored.identity.cluster,
        stored.identity.replica,
        len(stored.states),
        sum(it.entry_count for it in counts),
        sum(it.entry_bytes for it in counts),
        tuple([it.damage for it in counts if it.damage is not None]),
    )


class StoredReplica(NamedTuple):
    """The file of a replica, open to read."""

    path: Path
    identity: Identity
    states: dict[str, StoredState]
    """The state of each log in the file, by its name."""
    waiting: dict[str, list[EntriesAdded]]
    """The entries of each log that are in the journal only."""
    cursor: "lmdb.Cursor[bytes]"

    def entries_behind(self, log: str, index: int) -> Iterator[Entry]:
        """Yield the entries of a log with higher indexes, in order. Raises DataCorrupted."""
        state = self.states[log]
        first, last = (
            max(state.first_index, index + 1),
            last_index_of(self.cursor, state, self.path),
        )
        for it in range(first, last + 1):
            yield read_entry(self.cursor, log, state.number, it, self.path)
        for added in self.waiting[log]:
            yield from (entry for entry in added.entries if entry.index > index)


@contextmanager
def opened_replica(folder: Path) -> Iterator[StoredReplica]:
    """Read the folder of a log replica in the block. Its pages are checked first. Raises
    DataCorrupted, InvalidRequest (there is no file of a replica), FolderInUse."""
    path = folder / FILE_NAME
    if not path.exists():
        raise InvalidRequest(f"There is no log replica in {folder}.", path=str(path))
    with locked_to_read(folder):
        verify_pages(path)
        with (
            open_environment(path, None) as environment,
            environment.begin() as transaction,
            transaction.cursor() as cursor,
        ):
            identity = read_identity(transaction, path)
            states = dict(read_states(cursor, path))
            waiting: dict[str, list[EntriesAdded]] = {name: [] for name in states}
            for it in read_waiting(transaction, path):
                if it.log not in waiting:
                    check_next(it, None, path)
                waiting[it.log].append(it)
            yield StoredReplica(path, identity, states, waiting, cursor)


class _Count:
    """The check of one log."""

    def __init__(self, stored: StoredReplica, name: str) -> None:
        self._name = name
        self._stored = stored.states[name]
        self._waiting: Sequence[EntriesAdded] = stored.waiting[name]
        self._path = stored.path
        self.entry_count = self.entry_bytes = 0
        self.damage: DataCorrupted | None = None

    def run(self, cursor: "lmdb.Cursor[bytes]") -> None:
        try:
            self._read(cursor)
        except DataCorrupted as error:
            self.damage = error

    def _read(self, cursor: "lmdb.Cursor[bytes]") -> None:
        stored = self._stored
        last_index = last_index_of(cursor, stored, self._path)
        check_end(self._name, stored, last_index, self._path)
        tail = stored.state(last_index).tail
        for index in range(stored.first_index, last_index + 1):
            entry = read_entry(cursor, self._name, stored.number, index, self._path)
            if entry.epoch != tail.epoch_at(index):
                raise damaged("has another epoch", self._name, index, self._path)
            self._add(entry)
        state = stored.state(last_index)
        for added in self._waiting:
            check_next(added, state, self._path)
            state.apply(added)
            for entry in added.entries:
                self._add(entry)

    def _add(self, entry: Entry) -> None:
        self.entry_count += 1
        self.entry_bytes += len(entry.records)
