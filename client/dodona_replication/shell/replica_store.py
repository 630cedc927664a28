"""The store of a log replica: many logs in one LMDB file, in a folder that one process has.

Owns: the file, the replica's identity in it, and the removal of entries that no log needs. An
`append` is for the records of all logs that came together, so that they share its syncs. A short
one, which only goes on with the epochs of its logs, is one frame of a journal (see
`replica_journal`). That takes one sync. Any other one is a transaction of the file, which takes two
syncs, and brings the entries of the journal into the file.

Invariants:
- An entry is in the file, or it waits in the journal and in memory. What waits is bounded: to bring
  it into the file takes a few ms. A close leaves nothing in the journal, if the disk has space.
- Epochs, cuts and the first entry of an epoch are never in the journal. So what waits changes only
  where logs end.
- An entry is never changed. Its key is free before another entry gets it.
- A state is written when an epoch, a beginning or a cut changes it. Other entries need no state:
  the last one says where the log ends.
- What no log needs is removed in steps, so a long cut stalls no log.
- No thread reads while another one appends. The runtime reads between two flushes.

If a write raises an error, the caller must end the process: nothing is written again. The exception
is a full map, which the store enlarges. A start reads the states and the last key of each log, the
journal, and no entry. Checksums are compared when an entry is read, and by `replica_check`.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, Self

import lmdb

from dodona_replication.core.document import check_name
from dodona_replication.core.records import EntriesAdded, LogBegun, LogState, Record
from dodona_replication.shell.replica_journal import (
    JOURNAL_BYTES,
    JOURNAL_NAME,
    FoundJournal,
    Journal,
    check_unused,
    make_journal,
    read_journal,
)
from dodona_replication.shell.replica_keys import (
    FORMAT_KEY,
    FORMAT_VERSION,
    IDENTITY_KEY,
    PLACE_KEY,
    Identity,
    Place,
    damaged,
    piece_key,
    sealed,
)
from dodona_replication.shell.replica_reading import (
    check_end,
    check_next,
    last_index_of,
    numbers_in,
    read_entry,
    read_identity,
    read_place,
    read_states,
)
from dodona_replication.shell.replica_writing import Log, Writing
from dodona_server.address_space import address_space_needed
from dodona_server.disk_space import PROBE_BYTES, DiskSpace, is_no_space, no_space_told
from dodona_server.environment import open_environment
from dodona_wire.errors import DataCorrupted, DiskFull, InvalidRequest
from dodona_wire.messages.replicas import Entry
from dodona_wire.net.folder import LockedFolder, lock_folder

FILE_NAME: Final = "replica.mdb"
MAP_BYTES_FIRST: Final = 64 << 20
MAP_BYTES_MAX: Final = 64 << 30
SPARE_BYTES: Final = 128 << 20
"""New entries are refused if the file has less left than this and an eighth of its largest size.
Requests that wait, cuts and epochs need the rest."""
ID_BYTES: Final = 8
"""Random bytes of the id that a replica draws."""

_logger: Final = logging.getLogger("dodona.replica")


class ReplicaStore:
    """An open store. Another thread than the one that opened it may call `append`."""

    def __init__(
        self, folder: LockedFolder, environment: lmdb.Environment, map_bytes_max: int
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._map_bytes_max = map_bytes_max
        self._file = folder.path / FILE_NAME
        self._logs: dict[str, Log] = {}
        self._garbage: deque[tuple[bytes, bytes]] = deque()
        """Ranges of keys that no log needs: the first, and the one behind the last."""
        self._next_number = 0
        self._waiting: dict[str, list[Entry]] = {}
        """The last entries of each log that are in the journal, and not in the file."""
        self._seen_frame = 0
        """The last frame of the journal when `is_idle` was called."""
        self._has_failed = False
        """Whether a write failed. Then nothing is written any more."""
        self.written_bytes = 0
        """Bytes of the records that were stored since the store was opened."""
        self.identity: Identity
        self._journal: Journal

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
                DiskSpace(folder.path).make_way(JOURNAL_BYTES + PROBE_BYTES)
                environment = _open_environment(folder.path / FILE_NAME, map_bytes_max)
                store = cls(folder, environment, map_bytes_max)
                with ExitStack() as undone:
                    undone.callback(environment.close)
                    store._begin(cluster)
                    undone.pop_all()
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
        """Make all of the records durable, or none. Blocks until they are durable. After an error,
        the caller must end the process."""
        assert not self._has_failed, "an append has failed before: end the process"
        self._has_failed = True
        if not self._note(records):
            self._store(records)
        self._has_failed = False
        self.written_bytes += sum(map(_size_of, records))

    def _note(self, records: Sequence[Record]) -> bool:
        """Write the records into the journal, if it takes them. Return whether it does."""
        added: list[EntriesAdded] = []
        last_indexes: dict[str, int] = {}
        for it in records:
            if type(it) is not EntriesAdded or it.log not in self._logs:
                return False
            tail = self._logs[it.log].state.tail
            if it.entries[-1].epoch > tail.last_entry_epoch:
                return False
            last_index = last_indexes.get(it.log, tail.last_index)
            assert it.entries[0].index == last_index + 1, "an entry is missing"
            last_indexes[it.log] = it.entries[-1].index
            added.append(it)
        if not added or not self._journal.append(added):
            return False
        for it in added:
            self._logs[it.log].state.apply(it)
            self._waiting.setdefault(it.log, []).extend(it.entries)
        return True

    def _store(self, records: Sequence[Record]) -> None:
        """Write what waits, and these records, into the file."""
        self._with_room(lambda: self._write(records))

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
        waiting = self._waiting.get(log, ())
        waiting_index = tail.last_index + 1 - len(waiting)
        found: list[Entry] = []
        size_bytes = 0
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            for index in range(first_index, min(last_index, tail.last_index) + 1):
                if index >= waiting_index:
                    entry = waiting[index - waiting_index]
                else:
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

    @property
    def has_waiting(self) -> bool:
        """Return whether entries are in the journal, and not in the file."""
        return bool(self._waiting)

    def is_idle(self) -> bool:
        """Return whether entries wait in the journal, and it got none since the last call. Then an
        append without entries brings them into the file. Damage to the last frame of a journal
        looks like a torn write. So no frame with entries should stay the last one for long."""
        seen, self._seen_frame = self._seen_frame, self._journal.last.number
        return bool(self._waiting) and seen == self._seen_frame

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
        return f"{self._full()}, or wait until the owners cut their logs"

    def _full(self) -> str:
        limit_mib = self._map_bytes_max >> 20
        return (
            f"the store of the replica in {self.path} is full: it may have {limit_mib} MiB. Raise "
            "map-mib-max"
        )

    def close(self) -> None:
        """Bring what waits into the file, close the files, and release the folder. Without space in
        the file, what waits stays in the journal. A damaged disk may raise lmdb.Error."""
        with ExitStack() as closing:
            for it in (self._folder, self._environment, self._journal):
                closing.callback(it.close)
            if self._waiting and not self._has_failed:
                self._empty_journal()

    def _empty_journal(self) -> None:
        try:
            self._store(())
        except lmdb.Error as error:
            if not isinstance(error, lmdb.MapFullError) and not is_no_space(error):
                raise
            _logger.warning("the last entries stay in the journal: %s", error)

    # Appends

    def _write(self, records: Sequence[Record]) -> None:
        place = self._journal.next_place()
        with self._environment.begin(write=True) as transaction:
            writing = Writing(transaction, self._logs, self._garbage, self._next_number)
            for name, entries in self._waiting.items():
                writing.put(self._logs[name].number, entries)
            for record in records:
                writing.apply(record)
            writing.finish()
            transaction.put(PLACE_KEY, sealed(PLACE_KEY, place))
        self._journal.go_on(place)
        self._waiting.clear()
        self._logs |= writing.logs
        self._garbage = writing.garbage
        self._next_number = writing.next_number

    def _with_room(self, write: Callable[[], None]) -> None:
        """Write one transaction. If the map is full, do it again with a larger one."""
        while True:
            try:
                write()
                return
            except lmdb.MapFullError:
                self._grow()

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
        """Find what is there. A new file gets an identity and a journal, and so does a file of the
        format without a journal. The journal is durable before the file names it."""
        path = self._file.with_name(JOURNAL_NAME)
        try:
            place = self._find_identity(cluster)
            if place is None:
                check_unused(path)
                place = make_journal(path)
                self._with_room(partial(self._name_journal, place))
            with self._environment.begin() as transaction:
                self._recover(transaction)
        except lmdb.MapFullError as error:
            raise DiskFull(f"{self._full()}.", path=str(self._file)) from error
        except (lmdb.Error, ValueError) as error:
            if is_no_space(error):
                raise
            raise _unreadable(self._file, error) from error
        found = read_journal(path, place)
        self._recover_waiting(found)
        self._journal = Journal(path, found)

    def _find_identity(self, cluster: str) -> Place | None:
        """Find or draw the identity. Return the place of the file in its journal, if it has one."""
        with self._environment.begin() as transaction:
            if transaction.stat()["entries"] == 0:
                self.identity = Identity(secrets.token_hex(ID_BYTES), cluster)
                return None
            self.identity = read_identity(transaction, self._file)
            place = read_place(transaction, self._file)
        if self.identity.cluster != cluster:
            raise InvalidRequest(
                f"{self._file} is of cluster {self.identity.cluster}. Name that cluster, or use "
                "another folder.",
                path=str(self._file),
                cluster=cluster,
            )
        return place

    def _name_journal(self, place: Place) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(FORMAT_KEY, FORMAT_VERSION)
            transaction.put(IDENTITY_KEY, sealed(IDENTITY_KEY, self.identity))
            transaction.put(PLACE_KEY, sealed(PLACE_KEY, place))

    def _recover(self, transaction: "lmdb.Transaction[bytes]") -> None:
        """Find the end of each log, and the entries that no log needs."""
        first_keys: dict[int, bytes] = {}
        with transaction.cursor() as cursor:
            for name, stored in read_states(cursor, self._file):
                last_index = last_index_of(cursor, stored, self._file)
                self._logs[name] = Log(stored.number, stored.state(last_index))
                check_end(name, stored, last_index, self._file)
                first_keys[stored.number] = piece_key(stored.number, stored.first_index)
            found = list(numbers_in(cursor, self._file))
        for number, begin in found:
            end = first_keys.get(number, piece_key(number + 1, 0))
            if begin < end:
                self._garbage.append((begin, end))
        used = [*first_keys, *[number for number, _ in found]]
        self._next_number = max(used, default=-1) + 1

    def _recover_waiting(self, found: FoundJournal) -> None:
        """Find the entries that are in the journal only."""
        for it in found.waiting:
            log = self._logs.get(it.log)
            check_next(it, None if log is None else log.state, self._file)
            self._logs[it.log].state.apply(it)
            self._waiting.setdefault(it.log, []).extend(it.entries)


def _size_of(record: Record) -> int:
    """Return the bytes of the records of the entries that a record adds."""
    if isinstance(record, EntriesAdded | LogBegun):
        return sum([len(it.records) for it in record.entries])
    return 0


def _open_environment(path: Path, map_bytes_max: int) -> lmdb.Environment:
    map_bytes = min(map_bytes_max, MAP_BYTES_FIRST)
    if path.exists():
        map_bytes = max(map_bytes, path.stat().st_size)
    return open_environment(path, map_bytes)


def _unreadable(path: Path, error: Exception) -> DataCorrupted:
    return DataCorrupted(f"The replica's file can't be read: {error}.", path=str(path))
