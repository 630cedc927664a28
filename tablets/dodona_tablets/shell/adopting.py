"""Give a log in files of a node its copies on log replicas, and its chunks an object store.

Owns: the order of an adoption of one cell. It locks the folder, and stores the chunks. Then it owns
the log on the replicas as a node does, and appends what the copy lacks. So a chunk is in the store
before a record names it (R27), and an adoption that was interrupted goes on.

Invariants:
- Nothing in the folder of the cell changes.
- The copy has the records of the log, in order, from where a recovery begins. Their groups may be
  others: a copy counts only when all of it is there.
- A chunk keeps its number. It belongs to epoch 0, and owners on the replicas begin with epoch 1.

It loads etcd's client, so a process must not fork after an import.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from dodona_tablets.core.records import Record
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.shell.checking import replayed
from dodona_tablets.shell.chunk_files import CHUNKS_NAME, paths_of
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.log import LOG_NAME
from dodona_tablets.shell.log_check import Begin, read_log
from dodona_tablets.shell.log_segments import find_segments
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.replicated_log import ReplicatedCellLog
from dodona_tablets.shell.replicated_node import replication_of
from dodona_tablets.shell.settings import NodeSettings
from dodona_wire.errors import DataCorrupted, Unavailable
from dodona_wire.net.folder import LockedFolder, lock_folder

BATCH_BYTES: Final = 4 << 20
"""Bytes of the records that are one group of the copy, unless one record is longer."""
BATCH_RECORDS_MAX: Final = 10_000
UPLOADS_MAX: Final = 8
"""Chunks that are stored at the same time."""
TAKE_OVER_S_MAX: Final = 600.0
"""How long it may take until replicas have given back all that they have of a log, and it is
compared."""
STORE_S_MAX: Final = 60.0
"""How long replicas may take to store one group, or to get as many copies as a log should have."""
POLL_S: Final = 0.05

_encode: Final = msgspec.msgpack.Encoder().encode
"""Records are compared as bytes: a NaN differs from itself."""


class AdoptedLog(NamedTuple):
    """Where the copy of a log ends, and in which epoch it was written."""

    epoch: int
    last_index: int


def adopt_cell(
    settings: NodeSettings, plain: Path, begin: Begin, check: Callable[[], None]
) -> AdoptedLog:
    """Copy the chunks and the log of a cell, unless they are there. `settings` are those of the
    node that will have the copy, and `plain` is the folder of the cell. `begin` hears of each step.
    `check` raises if the replicas have ended, which ends the copying.

    Raises DataCorrupted (the log or a chunk is damaged, or the copy has other records), and
    FolderInUse (a node runs there). Raises InvalidRequest if the object store can't be used at all.
    Raises Unavailable if it or the replicas do not answer in time, and LogLost if another process
    takes the log over.
    """
    with closing(lock_folder(plain)) as folder:
        copying = _Copying(settings, folder, begin, check)
        copying.store_chunks()
        copying.copy_log("log")
        copy = copying.copy_log("log, to compare the copy")
        if copying.appended_count:
            raise DataCorrupted(
                f"The log replicas lost records of cell {settings.cell} that they had stored.",
                path=str(plain),
            )
        return copy


class _Copying:
    """The steps of the adoption of one cell."""

    def __init__(
        self,
        settings: NodeSettings,
        folder: LockedFolder,
        begin: Begin,
        check: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._begin = begin
        self._check = check
        self._replication = replication_of(settings)
        self._objects = open_objects(settings.object_store)
        self.appended_count = 0
        """The records that the last `copy_log` appended."""

    # ---- chunks

    def store_chunks(self) -> None:
        """Put all chunks that the log names into the object store, unless they are there."""
        cell = self._settings.cell_id
        names = ChunkNames(self._replication.cluster, cell, epoch=0)
        stored = frozenset(self._objects.names(names.prefix))
        core = replayed(self._folder.path)
        needed = core.chunks_needed()
        size_bytes = sum(it.size_bytes for it in needed.values())
        advance = self._begin("chunks", size_bytes)

        def put(info: ChunkInfo) -> None:
            for path in paths_of(self._folder.path / CHUNKS_NAME, info.number):
                name = names.name_of(core.cell.cluster, info.number, path.suffix)
                if name not in stored:
                    self._objects.put(name, path)
            advance(info.size_bytes)

        with ThreadPoolExecutor(UPLOADS_MAX, "dodona-upload") as threads:
            putting = [threads.submit(put, it) for it in needed.values()]
            try:
                for it in putting:
                    it.result()
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise

    # ---- the log

    def copy_log(self, step: str) -> AdoptedLog:
        """Own the log for a moment, and append the records that it lacks."""
        size_bytes = sum(it.path.stat().st_size for it in find_segments(self._log_path))
        advance = self._begin(step, size_bytes)
        return asyncio.run(self._watched(self._copy_log(advance)))

    @property
    def _log_path(self) -> Path:
        return self._folder.path / LOG_NAME

    async def _watched(self, copying: Coroutine[None, None, AdoptedLog]) -> AdoptedLog:
        """Copy while the replicas run."""
        task = asyncio.create_task(copying)
        try:
            while not (await asyncio.wait([task], timeout=POLL_S))[0]:
                self._check()
        finally:
            task.cancel()
            await asyncio.wait([task])
        return task.result()

    async def _copy_log(self, advance: Callable[[int], None]) -> AdoptedLog:
        cell = self._settings.cell_id
        bytes_max = self._settings.log_bytes_max
        log = ReplicatedCellLog(self._folder, cell, bytes_max, self._replication)
        lacking = _Lacking(_sized(read_log(self._folder.path), advance))
        with closing(lacking):
            try:
                async with asyncio.timeout(TAKE_OVER_S_MAX):
                    await log.prepare(lambda: self._skip(lacking, log.read()))
            except TimeoutError as error:
                raise self._too_slow("did not let a process own the log") from error
            try:
                await self._append(log, lacking.records)
                await self._wait_for_copies(log)
                return AdoptedLog(log.epoch, log.last_index)
            finally:
                await log.leave()

    def _skip(self, lacking: "_Lacking", found: Iterable[Record]) -> None:
        """Skip the records that the copy has. Raises DataCorrupted if it has other ones."""
        if not lacking.skip(found):
            raise DataCorrupted(
                f"The log replicas have other records of cell {self._settings.cell} than its "
                "log. Undo the adoption, and begin again.",
                path=str(self._folder.path),
            )

    async def _append(self, log: ReplicatedCellLog, lacking: Iterator[tuple[Record, int]]) -> None:
        self.appended_count = 0
        appends = _Appends(log)
        for batch in _batches(lacking):
            try:
                async with asyncio.timeout(STORE_S_MAX):
                    await appends.append(batch)
            except TimeoutError as error:
                raise self._too_slow("did not store records") from error
            self.appended_count += len(batch)

    async def _wait_for_copies(self, log: ReplicatedCellLog) -> None:
        """Wait until the set has as many replicas as a new log gets."""
        try:
            async with asyncio.timeout(STORE_S_MAX):
                while True:
                    if log.copy_count >= self._replication.copies.wanted:
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise self._too_slow("have too few copies") from error

    def _too_slow(self, what: str) -> Unavailable:
        cell, addresses = self._settings.cell, ", ".join(self._replication.replicas)
        return Unavailable(
            f"The log replicas at {addresses} {what} of cell {cell} in time. Look at the ends of "
            "their logs, see to it that their disks have room, and run the command again."
        )


class _Appends:
    """Appends to a log, of which each waits for the one before."""

    def __init__(self, log: ReplicatedCellLog) -> None:
        self._log = log
        self._reported = asyncio.Event()
        self._failure: BaseException | None = None
        log.begin(self._hear)

    def _hear(self, error: BaseException | None) -> None:
        self._failure = self._failure or error
        self._reported.set()

    async def append(self, records: list[Record]) -> None:
        """Append a group, and return when it is acknowledged. Raises what ended the log."""
        if self._failure is None:
            self._reported.clear()
            self._log.append(records)
            await self._reported.wait()
        if self._failure is not None:
            raise self._failure


class _Lacking:
    """The records of a log that its copy lacks. Another thread may `skip` while one closes it."""

    def __init__(self, records: Generator[tuple[Record, int]]) -> None:
        self.records = records
        self._skipping = Lock()
        self._is_closed = False

    def skip(self, found: Iterable[Record]) -> bool:
        """Skip records that the copy has. Return whether those of the log are the same. Ends early
        after `close`."""
        with self._skipping:
            for record in found:
                if self._is_closed:
                    break
                expected, _ = next(self.records, (None, 0))
                if _encode(expected) != _encode(record):
                    return False
        return True

    def close(self) -> None:
        """Close the files of the log, once the other thread is done with its record."""
        self._is_closed = True
        with self._skipping:
            self.records.close()


def _sized(
    records: Iterator[Record], advance: Callable[[int], None]
) -> Generator[tuple[Record, int]]:
    """Yield each record with its size in bytes, and report the size."""
    for record in records:
        size_bytes = len(_encode(record))
        yield record, size_bytes
        advance(size_bytes)


def _batches(records: Iterator[tuple[Record, int]]) -> Iterator[list[Record]]:
    """Yield the records in groups."""
    batch: list[Record] = []
    batch_bytes = 0
    for record, size_bytes in records:
        batch.append(record)
        batch_bytes += size_bytes
        if batch_bytes >= BATCH_BYTES or len(batch) >= BATCH_RECORDS_MAX:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch
