"""The store of a log replica: many logs in one LMDB file, in a folder that one process has.

Owns: the file, the replica's identity in it, and the removal of entries that no log needs. An
`append` is one transaction for the records of all logs, which is durable when the call returns. So
all logs share the syncs.

Invariants:
- An entry is never changed. Its key is free before another entry gets it.
- A state is written when an epoch, a beginning or a cut changes it. Other entries need no state:
  the last one says where the log ends.
- What no log needs is removed in steps of at most `SWEEP_PIECES`, so a long cut stalls no log.
- No thread reads while another one appends. The runtime reads between two flushes.

If a commit raises an error, the caller must end the process. The exception is a full map, which
the store enlarges. A start reads the states and the last key of each log, and no entry. Checksums
are compared when an entry is read, and by `replica_check`.
"""

import logging
import secrets
from collections import deque
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, Self

import lmdb

from dodona_replication.core.document import check_name
from dodona_replication.core.records import (
    EntriesAdded,
    EntriesDropped,
    EpochRaised,
    LogBegun,
    LogCut,
    LogState,
    Record,
    Swept,
)
from dodona_replication.shell.replica_keys import (
    FORMAT_KEY,
    FORMAT_VERSION,
    IDENTITY_KEY,
    Identity,
    StoredState,
    damaged,
    piece_key,
    pieces_of,
    sealed,
    state_key,
)
from dodona_replication.shell.replica_reading import (
    check_end,
    last_index_of,
    numbers_in,
    read_entry,
    read_identity,
    read_states,
)
from dodona_server.address_space import address_space_needed
from dodona_server.disk_space import DiskSpace, no_space_told
from dodona_server.environment import open_environment
from dodona_wire.errors import DataCorrupted, InvalidRequest
from dodona_wire.messages.replicas import Entry
from dodona_wire.net.folder import LockedFolder, lock_folder

FILE_NAME: Final = "replica.mdb"
MAP_BYTES_FIRST: Final = 64 << 20
MAP_BYTES_MAX: Final = 64 << 30
SPARE_BYTES: Final = 128 << 20
"""New entries are refused if the file has less left than this and an eighth of its largest size.
Requests that wait, cuts and epochs need the rest."""
SWEEP_PIECES: Final = 500
"""How many pieces one append removes at most, in less than a millisecond. Each is a call that
releases the interpreter's lock."""
ID_BYTES: Final = 8
"""Random bytes of the id that a replica draws."""

_logger: Final = logging.getLogger("dodona.replica")


class _Log(NamedTuple):
    """A log as the store knows it."""

    number: int
    state: LogState


class ReplicaStore:
    """An open store. Another thread than the one that opened it may call `append`."""

    def __init__(
        self, folder: LockedFolder, environment: lmdb.Environment, map_bytes_max: int
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._map_bytes_max = map_bytes_max
        self._file = folder.path / FILE_NAME
        self._logs: dict[str, _Log] = {}
        self._garbage: deque[tuple[bytes, bytes]] = deque()
        """Ranges of keys that no log needs: the first, and the one behind the last."""
        self._next_number = 0
        self.written_bytes = 0
        """Bytes of the records that were stored since the store was opened."""
        self.identity: Identity

    @classmethod
    def open(cls, path: str | Path, cluster: str, map_bytes_max: int = MAP_BYTES_MAX) -> Self:
        """Open the store in a folder. A folder without one gets a new one, with a new id (R8).

        Raises FolderInUse, InvalidRequest (the folder cannot be used, or is of another cluster),
        DataCorrupted, DiskFull, Overloaded.
        """
        check_name(cluster, "cluster")
        folder = lock_folder(path)
        try:
            with no_space_told(folder.path):
                DiskSpace(folder.path).make_way()
                environment = _open_environment(folder.path / FILE_NAME, map_bytes_max)
                store = cls(folder, environment, map_bytes_max)
                store._begin(cluster)
        except BaseException:
            folder.close()
            raise
        return store

    @property
    def path(self) -> Path:
        """The data folder. It belongs to this process while the store is open."""
        return self._folder.path

    def logs(self) -> dict[str, LogState]:
        """Return the states of all logs, for a core."""
        return {name: log.state.copy() for name, log in self._logs.items()}

    def append(self, records: Sequence[Record]) -> None:
        """Make all of the records durable, or none. Blocks until they are durable."""
        while True:
            try:
                self._write(records)
                return
            except lmdb.MapFullError:
                self._grow()

    def read(
        self, log: str, first_index: int, last_index: int, epoch: int, bytes_max: int
    ) -> tuple[Entry, ...]:
        """Return entries from `first_index` on, with at most `bytes_max` bytes of records, but one
        at least. They end before an entry of a higher epoch, and before one that is not in the log
        any more. Raises DataCorrupted, which names the log and the index."""
        known = self._logs.get(log)
        if known is None or first_index < known.state.tail.first_index:
            return ()
        tail = known.state.tail
        found: list[Entry] = []
        size_bytes = 0
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            for index in range(first_index, min(last_index, tail.last_index) + 1):
                entry = read_entry(cursor, log, known.number, index, self._file)
                if entry.epoch != tail.epoch_at(index):
                    raise damaged("has another epoch", log, index, self._file)
                size_bytes += len(entry.records)
                if entry.epoch > epoch or (found and size_bytes > bytes_max):
                    break
                found.append(entry)
        return tuple(found)

    @property
    def has_garbage(self) -> bool:
        """Return whether entries wait for their removal. Each append removes some."""
        return bool(self._garbage)

    def size(self) -> tuple[int, float]:
        """Return how many bytes of the file are in use, and their ratio to the largest size. Pages
        that became free are not counted: they are used again."""
        stat = self._environment.stat()
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        used_bytes = pages * stat["psize"]
        return used_bytes, used_bytes / self._map_bytes_max

    def shortage(self) -> str | None:
        """Return why the file takes no new entries, or None if it does."""
        left_bytes = self._map_bytes_max - self.size()[0]
        if left_bytes >= SPARE_BYTES + self._map_bytes_max // 8:
            return None
        limit_mib = self._map_bytes_max >> 20
        return (
            f"the store of the replica in {self.path} is full: it may have {limit_mib} MiB. Raise "
            "map-mib-max, or wait until the owners cut their logs"
        )

    def close(self) -> None:
        """Close the file and release the folder."""
        self._environment.close()
        self._folder.close()

    # Appends

    def _write(self, records: Sequence[Record]) -> None:
        with self._environment.begin(write=True) as transaction:
            writing = _Writing(transaction, self._logs, self._garbage, self._next_number)
            for record in records:
                writing.apply(record)
            writing.finish()
        self._logs |= writing.logs
        self._garbage = writing.garbage
        self._next_number = writing.next_number
        self.written_bytes += writing.written_bytes

    def _grow(self) -> None:
        size = self._environment.info()["map_size"]
        if size >= self._map_bytes_max:
            raise lmdb.MapFullError(f"The store has reached its limit of {size} bytes.")
        size = min(2 * size, self._map_bytes_max)
        _logger.info("the store's map is full: enlarging it to %d MiB", size >> 20)
        with address_space_needed(self._file, size):
            self._environment.set_mapsize(size)

    # The start

    def _begin(self, cluster: str) -> None:
        try:
            self._find_identity(cluster)
            with self._environment.begin() as transaction:
                self._recover(transaction)
        except (lmdb.Error, ValueError) as error:
            raise _unreadable(self._file, error) from error

    def _find_identity(self, cluster: str) -> None:
        with self._environment.begin(write=True) as transaction:
            if transaction.stat()["entries"] == 0:
                self.identity = Identity(secrets.token_hex(ID_BYTES), cluster)
                transaction.put(FORMAT_KEY, FORMAT_VERSION)
                transaction.put(IDENTITY_KEY, sealed(IDENTITY_KEY, self.identity))
                return
            self.identity = read_identity(transaction, self._file)
        if self.identity.cluster != cluster:
            raise InvalidRequest(
                f"{self._file} is of cluster {self.identity.cluster}. Name that cluster, or use "
                "another folder.",
                path=str(self._file),
                cluster=cluster,
            )

    def _recover(self, transaction: "lmdb.Transaction[bytes]") -> None:
        """Find the end of each log, and the entries that no log needs."""
        first_keys: dict[int, bytes] = {}
        with transaction.cursor() as cursor:
            for name, stored in read_states(cursor, self._file):
                last_index = last_index_of(cursor, stored, self._file)
                self._logs[name] = _Log(stored.number, stored.state(last_index))
                check_end(name, stored, last_index, self._file)
                first_keys[stored.number] = piece_key(stored.number, stored.first_index)
            found = list(numbers_in(cursor, self._file))
        for number, begin in found:
            end = first_keys.get(number, piece_key(number + 1, 0))
            if begin < end:
                self._garbage.append((begin, end))
        used = [*first_keys, *[number for number, _ in found]]
        self._next_number = max(used, default=-1) + 1


class _Writing:
    """One append: what it has changed, before it is durable. A map that gets full undoes it."""

    def __init__(
        self,
        transaction: "lmdb.Transaction[bytes]",
        logs: dict[str, _Log],
        garbage: deque[tuple[bytes, bytes]],
        next_number: int,
    ) -> None:
        self._transaction = transaction
        self._before = logs
        self.logs: dict[str, _Log] = {}
        """The logs that this append has changed."""
        self._with_new_state: dict[str, None] = {}
        self.garbage = deque(garbage)
        self.next_number = next_number
        self.written_bytes = 0

    def apply(self, record: Record) -> None:
        """Write one record."""
        if isinstance(record, Swept):
            return
        name = record.log
        log = self._log(name)
        start_count = len(log.state.tail.starts)
        before = log.state.tail
        last_index, first_index = before.last_index, before.first_index
        log.state.apply(record)
        match record:
            case EntriesAdded(entries=entries):
                self._put(log.number, entries)
                if len(log.state.tail.starts) == start_count:
                    return  # the last entry says where the log ends
            case EntriesDropped(last_index=kept_index):
                self._drop(log.number, kept_index + 1, last_index)
            case LogCut():
                self._leave(log.number, first_index, log.state.tail.first_index)
            case LogBegun(entries=entries):
                self._leave(log.number, first_index, last_index + 1)
                log = self.logs[name] = _Log(self._number(), log.state)
                self._put(log.number, entries)
            case EpochRaised():
                pass
        self._with_new_state[name] = None

    def finish(self) -> None:
        """Write the states, and remove a part of what no log needs."""
        for name in self._with_new_state:
            key = state_key(name)
            self._transaction.put(key, sealed(key, StoredState.of(*self.logs[name])))
        left = SWEEP_PIECES
        while self.garbage and left:
            begin, end = self.garbage[0]
            left -= self._remove(begin, end, left)
            if left:
                self.garbage.popleft()

    def _log(self, name: str) -> _Log:
        log = self.logs.get(name)
        if log is None:
            before = self._before.get(name)
            log = (
                _Log(self._number(), LogState())
                if before is None
                else _Log(before.number, before.state.copy())
            )
            self.logs[name] = log
        return log

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def _put(self, number: int, entries: Sequence[Entry]) -> None:
        with self._transaction.cursor() as cursor:
            items = chain.from_iterable(pieces_of(number, it) for it in entries)
            given, new = cursor.putmulti(items, overwrite=False)
        assert given == new, "an entry has the key of another one"
        self.written_bytes += sum(len(it.records) for it in entries)

    def _leave(self, number: int, first_index: int, end_index: int) -> None:
        if first_index < end_index:
            self.garbage.append((piece_key(number, first_index), piece_key(number, end_index)))

    def _drop(self, number: int, first_index: int, last_index: int) -> None:
        """Remove entries now: others will have their keys."""
        self._remove(piece_key(number, first_index), piece_key(number, last_index + 1), None)

    def _remove(self, begin: bytes, end: bytes, count_max: int | None) -> int:
        count = 0
        with self._transaction.cursor() as cursor:
            is_there = cursor.set_range(begin)
            while is_there and cursor.key() < end and count != count_max:
                cursor.delete()
                count += 1
                is_there = cursor.key() != b""
        return count


def _open_environment(path: Path, map_bytes_max: int) -> lmdb.Environment:
    map_bytes = min(map_bytes_max, MAP_BYTES_FIRST)
    if path.exists():
        map_bytes = max(map_bytes, path.stat().st_size)
    return open_environment(path, map_bytes)


def _unreadable(path: Path, error: Exception) -> DataCorrupted:
    return DataCorrupted(f"The replica's file can't be read: {error}.", path=str(path))
