"""The log of a cell whose copies are on log replicas: append, read it at a start, cut it.

Owns: how a node takes its log over, what the runtime appends to, and the size of the log. One flush
group is one append: the owner sends it to all replicas, and it is durable when all of the set have
stored it. The folder of the node has no log.

Invariants:
- One batch is under way. The runtime begins the next one after the report.
- The replicas hear from this process from the take-over to the end, or they would report a silent
  owner. The core replays in a thread. A keeper has the log until the event loop that serves takes
  it.
- Nothing is asked for or answered before the log is open: the wait for the owner before is over.
- What a replica may forget is what a checkpoint before the cut replaces. The cut is behind the
  checkpoint's acknowledgement, as a truncation of files is.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from dodona_replication.core.document import Revisioned, owner_id
from dodona_replication.core.owner_effects import Ended, Identity, OwnerLimits
from dodona_replication.shell.coordinator import Coordinator
from dodona_replication.shell.first_look import Copies
from dodona_replication.shell.owner_host import Hearing, OwnerHost, lost
from dodona_replication.shell.replica_links import ReplicaLinks
from dodona_server.log_thread import DistantLog, Report
from dodona_server.process import read_clock
from dodona_tablets.core.records import Checkpoint, Record
from dodona_tablets.shell.log_entries import OPENING, FoundGroups, records_of_group
from dodona_tablets.shell.log_keeper import LogKeeper
from dodona_tablets.shell.log_reading import read
from dodona_wire.cores.copies import CopiesReport
from dodona_wire.errors import InvalidRequest
from dodona_wire.messages.replicas import Entry
from dodona_wire.net.cluster_key import ClusterKey
from dodona_wire.net.folder import LockedFolder, make_whole, private_file
from dodona_wire.types import CellId, Now

START_BYTES: Final = 8
LOG_PREFIX: Final = "cell-"
OWNER: Final = "owner"
"""The file with the id of the last process of this folder that owned a log, or tried to."""
RELEASE_S_MAX: Final = 2.0
"""How long a stop waits for the document to say that the log is free."""

Made = TypeVar("Made")


class Replication(NamedTuple):
    """Where the copies of a cell's log are, and who decides on its owner."""

    cluster: str
    replicas: tuple[str, ...]
    """The addresses of log replicas. The log is on some of them, the others are spares."""
    open_coordinator: Callable[[], Awaitable[Coordinator]]
    key: ClusterKey | None = None
    copies: Copies = Copies()
    limits: OwnerLimits = OwnerLimits()


class _Place(NamedTuple):
    """Where a checkpoint is."""

    entry_index: int
    before_bytes: int
    """Bytes of all groups before it, since the process started."""


class ReplicatedCellLog(DistantLog):
    """The log of a cell, as the runtime and the recovery see it. Belongs to one event loop at a
    time."""

    is_writable = True

    def __init__(
        self, folder: LockedFolder, cell: CellId, bytes_max: int, replication: Replication
    ) -> None:
        """`bytes_max` is how large the log may become. The folder has the chunks, and is released
        by `close`."""
        cluster, replicas, open_coordinator, key, copies, limits = replication
        name = log_of(cell)
        identity = Identity(cluster, name, owner_id(f"node-{cell}", os.urandom(START_BYTES)))
        if len(replicas) < copies.wanted:
            raise InvalidRequest(
                f"The log of cell {cell} gets {copies.wanted} copies: name the addresses of so "
                f"many log replicas at least, not {len(replicas)}."
            )
        hearing = Hearing(self._replay, self._acknowledged, self._heard, self._ended, self._fail)
        links = ReplicaLinks(cluster, name, replicas, key)
        self._host = OwnerHost(identity, open_coordinator, links, limits, hearing)
        self._copies = copies
        self._folder = folder
        self._bytes_max = bytes_max
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: LogKeeper[Any] | None = None
        """Has the log until the event loop that serves joins it."""
        self._found: list[Entry] = []
        self._place_by_checkpoint: dict[int, _Place] = {}
        self._size_bytes = self._cut_bytes = 0
        self.written_bytes = 0
        """The bytes of the groups that were appended since the log was opened."""
        self._report: Report | None = None
        self._failure: BaseException | None = None
        """Why this process must not answer any more."""
        self._awaited_index: int | None = None
        """The last entry of the batch under way."""
        self._proof_since_us: int | None = None
        """When a batch without records began."""

    @property
    def path(self) -> Path:
        """Return the folder of the node, which is this process's as long as the log is open."""
        return self._folder.path

    @property
    def epoch(self) -> int:
        """Return the epoch in which this process owns the log, once it has taken it over."""
        taken = self._host.owner or self._host.taking
        assert taken is not None
        return taken.epoch

    @property
    def last_index(self) -> int:
        """Return the index of the last entry, once the log is open."""
        assert self._host.owner is not None
        return self._host.owner.last_index

    @property
    def copy_count(self) -> int:
        """Return how many replicas the set has, once the log is open."""
        assert self._host.owner is not None
        return len(self._host.owner.document.members)

    # ---- the start and the end

    def note_owner(self) -> None:
        """Write into the folder which process is about to own the log. Raises OSError."""
        owner = self._host.identity.owner

        def write(place: Path) -> None:
            with private_file(place, "w") as file:
                file.write(owner)

        make_whole(self.path / OWNER, write, is_anew=True)

    def take(
        self,
        recover: Callable[[], Made],
        expected: Revisioned | None = None,
        stuck_s: float | None = None,
    ) -> Made:
        """As `prepare`, for a caller without an event loop. Afterwards a thread keeps the log,
        until an event loop joins it. Blocks."""
        keeper = LogKeeper(lambda: self.prepare(recover, expected, stuck_s), self._host.leave)
        made = keeper.start()
        self._keeper = keeper
        return made

    async def prepare(
        self,
        recover: Callable[[], Made],
        expected: Revisioned | None = None,
        stuck_s: float | None = None,
    ) -> Made:
        """Take the log over, and return what `recover` made of it in a thread. Afterwards the log
        is open, and lives in the running event loop. Raises LogLost, TakeOverStuck, DataCorrupted,
        and what the coordinator raises. Then it lives in none.

        - `expected`: the document as it was when its owner was silent. If there is another one, the
          log is left alone.
        - `stuck_s`: the attempt ends if it has not got on for so long. None: it waits for replicas
          without limit."""
        await self.join()
        try:
            await self._host.take_over(self._copies, expected, stuck_s)
            opening = asyncio.create_task(self._host.open(OPENING))
            try:
                made = await asyncio.to_thread(recover)
            except BaseException as error:
                opening.cancel()
                if opening.done() and (lost_by := opening.exception()) is not None:
                    raise lost_by from error  # a later owner may have removed what is missing here
                raise
            try:
                await self._host.until_open(stuck_s)
            except BaseException:
                opening.cancel()
                raise
            await opening
        except BaseException:
            await self._host.leave()
            raise
        finally:
            self._found = []
        return made

    async def join(self) -> None:
        """Live in the running event loop. Replicas hear nothing while they are connected anew,
        which takes a few round trips."""
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            await asyncio.to_thread(keeper.end)
        self._loop = asyncio.get_running_loop()
        await self._host.join()

    async def leave(self) -> None:
        """Give the log up, so that the next owner need not wait, and leave the event loop."""
        self._report = None  # the end that is asked for here is no fault
        with suppress(TimeoutError):  # then the next owner waits for the lease
            async with asyncio.timeout(RELEASE_S_MAX):
                await self._host.release()
        await self._host.leave()
        self._loop = None

    def close(self) -> None:
        self._folder.close()

    # ---- recovery

    def _replay(self, entries: Sequence[Entry]) -> None:
        self._found += entries

    def read(self) -> Iterator[Record]:
        """Yield all records in order, from the last cut on. Raises DataCorrupted."""
        for index, record in read([FoundGroups(self.path, self._found)]):
            if type(record) is Checkpoint:
                self._place_by_checkpoint[record.number] = self._place_of(index)
            yield record
        self._size_bytes = sum(len(it.records) for it in self._found)

    def survey(self) -> Iterator[Record]:
        """Yield the records other than rows and outcomes. Raises DataCorrupted."""
        for _, record in read([FoundGroups(self.path, self._found)], is_survey=True):
            yield record

    def _place_of(self, index: int) -> _Place:
        before = self._found[: index - self._found[0].index]
        return _Place(index, sum(len(it.records) for it in before))

    # ---- service

    def begin(self, report: Report) -> None:
        self._report = report
        if self._failure is not None:
            report(self._failure)

    def append(self, records: Sequence[Any]) -> None:
        if self._failure is not None:
            return  # it was reported
        assert self._awaited_index is None
        assert self._proof_since_us is None
        if not records:
            self._proof_since_us = read_clock().instant_us
            self._host.ping()
            self._heard()
            return
        assert self._host.owner is not None
        index = self._host.owner.last_index + 1
        _, parts = records_of_group(index, records)
        for record in records:
            if type(record) is Checkpoint:
                self._place_by_checkpoint[record.number] = _Place(index, self._size_bytes)
        size_bytes = sum(map(len, parts))
        self._size_bytes += size_bytes
        self.written_bytes += size_bytes
        self._awaited_index = index + len(parts) - 1
        self._host.append(parts)

    def _acknowledged(self, index: int) -> None:
        if self._awaited_index is not None and index >= self._awaited_index:
            self._awaited_index = None
            self._tell(None)

    def _heard(self) -> None:
        since_us, owner = self._proof_since_us, self._host.owner
        if since_us is None or owner is None or not owner.may_read_since(since_us, read_clock()):
            return
        self._proof_since_us = None
        self._tell(None)

    def _ended(self, end: Ended) -> None:
        self._fail(lost(self._host.identity.log, end))

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        if self._report is not None:
            self._report(error)

    def may_answer(self, now: Now) -> bool:
        owner = self._host.owner
        return owner is not None and owner.may_read(now)

    def shortage(self, now: Now) -> str | None:
        owner = self._host.owner
        missed = () if owner is None else owner.missed(now)
        if owner is None or not missed:
            return None
        places = ", ".join(map(self._host.links.place_of, missed))
        document = owner.document
        return (
            f"the log of this cell has {len(document.members)} copies and needs "
            f"{document.copies_min}, but nothing comes from {places}"
        )

    def truncate_before(self, number: int) -> None:
        """Let the replicas drop what is before this checkpoint, which is acknowledged. If the log
        does not have this number (any more), there is nothing to do. Any thread may call this."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cut, number)

    def _cut(self, number: int) -> None:
        place = self._place_by_checkpoint.get(number)
        if place is None or self._loop is None:
            return
        self._host.cut(place.entry_index)
        self._cut_bytes = place.before_bytes
        for known, at in list(self._place_by_checkpoint.items()):
            if at.entry_index < place.entry_index:
                del self._place_by_checkpoint[known]

    # ---- for people

    def report(self) -> CopiesReport:
        """Return what is known of the copies. Call this in the event loop that serves."""
        return self._host.report()

    # ---- size

    def make_writable(self) -> bool:
        """Return whether the log takes appends: replicas have their own disks."""
        return True

    def size_bytes(self) -> int:
        """Return the size of one copy of the log."""
        return self._size_bytes - self._cut_bytes

    def fill_ratio(self) -> float:
        """Return the size in relation to its limit. At 1 the log takes no more rows."""
        return self.size_bytes() / self._bytes_max


def log_of(cell: CellId) -> str:
    """Return the name of the log of a cell."""
    return f"{LOG_PREFIX}{cell}"


def cell_of(log: str) -> CellId:
    """Return the cell that has a log of this name."""
    return CellId(int(log.removeprefix(LOG_PREFIX)))


def former_owner(folder: LockedFolder) -> str | None:
    """Return the id of the last process of this folder that owned a log, or tried to. It has ended,
    since the folder is locked. Raises OSError."""
    try:
        return (folder.path / OWNER).read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return None
