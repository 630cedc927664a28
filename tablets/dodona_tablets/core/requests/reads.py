"""Answer reads at a timestamp, and let them wait.

Owns:
- the proof that a read's timestamp was issued: a read from the future could see half of a later
  commit;
- bounded waits for prepared rows, and the queue of reads that wait;
- which snapshots can still be held.

When the transaction that a read waited for has moved on, the whole read begins again. So does a
read that has met a chunk that is not on this machine.
"""

from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.admission import check_lease
from dodona_tablets.core.commit.silence import blocked, is_in_vain, unproven_failure
from dodona_tablets.core.rows.chunks.chunk import ChunkAway
from dodona_tablets.core.tablet.away import bytes_of, chunks_for
from dodona_tablets.core.tablet.changes import count_versions, scan_versions
from dodona_tablets.core.tablet.scans import scan, scan_arrow
from dodona_tablets.core.tablet.snapshot import Read, lookup, lookup_versions, too_old
from dodona_tablets.core.tablet.splitting import split
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import Transaction
from dodona_tablets.core.upkeep.caching import Caching, Need
from dodona_wire.cores.effects import AskTimestamps
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.errors import DodonaError, InvalidRequest, Overloaded
from dodona_wire.messages.base import failure_of
from dodona_wire.messages.data import (
    CountVersions,
    HoldSnapshot,
    Lookup,
    LookupVersions,
    Scan,
    ScanArrow,
    ScanVersions,
    SnapshotHeld,
    SplitTablet,
)
from dodona_wire.messages.families import Reply
from dodona_wire.types import (
    ASYNC_LAST_COMMITTED,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    NULL_TIMESTAMP,
    SYNC_LAST_COMMITTED,
)

KINDS: Final[dict[type[Any], str]] = {
    Lookup: "lookup",
    LookupVersions: "lookup_versions",
    Scan: "scan",
    ScanArrow: "scan_arrow",
    ScanVersions: "scan_versions",
    CountVersions: "count_versions",
}
"""The name of each kind of read in the counts."""


class ProofToken(NamedTuple):
    """A batch of reads that waits for the oracle to prove that it is past their timestamps."""

    batch: int


class WaitingRead:
    """A read that waits for a transaction that holds a row."""

    __slots__ = ("blocker", "deadline_us", "is_waiting", "request", "route")

    def __init__(self, route: Any, request: Read, deadline_us: int, blocker: Transaction) -> None:
        self.route = route
        self.blocker = blocker
        self.request = request
        self.deadline_us = deadline_us
        self.is_waiting = True


class Reads:
    """The handler of reads. It answers now, or when the blocking transaction has an outcome."""

    def __init__(self, cell: Cell, outbox: Outbox, caching: Caching) -> None:
        self._cell = cell
        self._outbox = outbox
        self._caching = caching
        self._unproven: list[tuple[Any, Read]] = []
        self._proving: dict[int, tuple[int, list[tuple[Any, Read]]]] = {}
        self._batch = 0
        self._parked_count = 0
        self._waiting: dict[WaitingRead, None] = {}
        self.waited_count = 0
        self.count_by_type: dict[type[Any], int] = dict.fromkeys(KINDS, 0)

    def __len__(self) -> int:
        return len(self._waiting) + self._parked_count + self._caching.request_count

    def handle(self, route: Any, request: Read) -> None:
        """Answer a read, or park it until the oracle has proved that its timestamp is not in the
        future."""
        self.count_by_type[type(request)] += 1
        timestamp = request.timestamp
        cell, is_newest = self._cell, timestamp in (SYNC_LAST_COMMITTED, ASYNC_LAST_COMMITTED)
        is_issued = is_newest or MIN_TIMESTAMP <= timestamp <= cell.latest
        if is_issued and cell.injects_faults and not is_newest:
            is_issued = not cell.fault_at(FaultPoint.PROVE_AGAIN)
        if is_issued:
            self._attempt(route, request, None)
        elif not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            self._refuse(route, InvalidRequest("Invalid read timestamp.", timestamp=timestamp))
        elif len(self) >= cell.limits.reads_waiting_max:
            self._refuse(route, Overloaded("Too many reads wait in this cell.", cell=cell.id))
        else:
            self._unproven.append((route, request))
            self._parked_count += 1

    def hold(self, route: Any, request: HoldSnapshot) -> None:
        """Register, renew or release a reader of these tablets."""
        try:
            self._outbox.reply(route, self._hold(request))
        except DodonaError as error:
            self._refuse(route, error)

    def _hold(self, request: HoldSnapshot) -> SnapshotHeld:
        cell, timestamp = self._cell, request.timestamp
        if request.lease_ms <= 0:
            cell.readers.let_go(request.reader)
            return SnapshotHeld(0)
        if not MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:
            text = f"{timestamp} is not a valid snapshot timestamp."
            raise InvalidRequest(text, timestamp=timestamp)
        check_lease("snapshot", request.lease_ms, cell.limits.reader_lease_ms_max)
        held, missing = [], []
        for number in request.tablets:
            tablet = cell.tablets.get(number)
            if tablet is None or not tablet.is_mounted or tablet.fence == NULL_TIMESTAMP:
                missing.append(number)
            elif timestamp < tablet.retained_timestamp:
                raise too_old(tablet, timestamp)
            else:
                held.append(number)
        now_us, lease_ms = cell.now.instant_us, request.lease_ms
        cell.readers.hold(request.reader, timestamp, held, lease_ms, now_us)
        return SnapshotHeld(lease_ms, tuple(missing))

    def split(self, route: Any, request: SplitTablet) -> None:
        """Answer where a scan may be divided into parts."""
        try:
            tablet = self._cell.tablet(request.tablet, request.revision)
            self._outbox.reply(route, split(tablet.stores, request))
        except DodonaError as error:
            self._refuse(route, error)

    def ask_for_proof(self) -> None:
        """Ask the oracle once for all unproven reads of this batch of events."""
        if self._unproven:
            self._batch += 1
            self._proving[self._batch] = (self._cell.now.instant_us, self._unproven)
            self._unproven = []
            self._outbox.send(AskTimestamps(ProofToken(self._batch)))

    def handle_proof(self, token: ProofToken) -> None:
        """Attempt the reads of a batch. The oracle answered a question that was asked after they
        came, and the answer has raised `latest`."""
        _, reads = self._proving.pop(token.batch, (0, ()))
        self._parked_count -= len(reads)
        for route, request in reads:
            if request.timestamp <= self._cell.latest:
                self._attempt(route, request, None)
            else:
                error = InvalidRequest(
                    "The read timestamp is in the future.",
                    timestamp=request.timestamp,
                    latest_timestamp=self._cell.latest,
                )
                self._refuse(route, error)

    def retry(self, waiting: WaitingRead) -> None:
        """Attempt a read again after its blocker has moved on. The deadline stays."""
        if waiting.is_waiting:
            self._end(waiting)
            self._attempt(waiting.route, waiting.request, waiting.deadline_us)

    def tick(self) -> None:
        """End the waits that have lasted too long."""
        now_us = self._cell.now.instant_us
        self._repeat_questions(now_us)
        limit_us = self._cell.limits.blocked_wait_ms_max * 1000
        for waiting in [*self._waiting]:
            waited_us = now_us - (waiting.deadline_us - limit_us)
            if waited_us >= limit_us or is_in_vain(self._cell, waiting.blocker, waited_us):
                self._end(waiting)
                error = self._blocked(waiting.request, waiting.blocker, waited_us // 1000)
                self._refuse(waiting.route, error)

    def _blocked(self, request: Read, blocker: Transaction, waited_ms: int) -> DodonaError:
        tablet = self._cell.tablets.get(request.tablet)
        path = None if tablet is None else tablet.assignment.path
        text = f"The read waited {waited_ms} ms for a transaction that holds a row"
        return blocked(self._cell, blocker, text, table=path, tablet=request.tablet)

    def _end(self, waiting: WaitingRead) -> None:
        waiting.is_waiting = False
        del self._waiting[waiting]

    def _repeat_questions(self, now_us: int) -> None:
        """Ask the oracle again, which may be restarting, but no longer than a read may wait."""
        limits = self._cell.limits
        for batch, (since_us, reads) in list(self._proving.items()):
            if now_us - since_us > limits.oracle_wait_ms_max * 1000:
                del self._proving[batch]
                self._parked_count -= len(reads)
                for route, _ in reads:
                    self._outbox.reply(route, unproven_failure(self._cell))
            elif now_us - since_us > limits.repeat_after_ms * 1000:
                self._outbox.send(AskTimestamps(ProofToken(batch)))

    def _attempt(
        self, route: Any, request: Read, deadline_us: int | None, after: Need | None = None
    ) -> None:
        try:
            result = self._read(request)
        except DodonaError as error:
            self._refuse(route, error)
            return
        except ChunkAway as away:
            chunks = chunks_for(self._cell.tablets[request.tablet], request, away)
            resume = partial(self._attempt, route, request, deadline_us)
            refuse = partial(self._outbox.reply, route)
            self._caching.wait(chunks, resume, refuse, bytes_of(request), after)
            return
        if isinstance(result, Transaction):
            self._wait(route, request, deadline_us, result)
        else:
            self._outbox.reply(route, result)

    def _read(self, request: Read) -> Reply | Transaction:
        """Read at a timestamp. The answer stays true: later writes without atomicity get timestamps
        above it."""
        tablet = self._cell.tablet(request.tablet, request.revision)
        if request.timestamp < tablet.retained_timestamp:
            raise too_old(tablet, request.timestamp)
        result = self._look(tablet, request)
        if not isinstance(result, Transaction) and request.timestamp <= self._cell.latest:
            tablet.shown_timestamp = max(tablet.shown_timestamp, request.timestamp)
        return result

    def _look(self, tablet: Tablet, request: Read) -> Reply | Transaction:
        if isinstance(request, Lookup):
            return lookup(tablet, request)
        if isinstance(request, LookupVersions):
            return lookup_versions(tablet, request)
        if isinstance(request, CountVersions):
            return count_versions(tablet, request)
        if self._cell.fault_at(FaultPoint.SCAN_ONE_ROW):
            request = replace(request, row_count_max=1)
        if isinstance(request, ScanVersions):
            return scan_versions(tablet, request)
        return scan(tablet, request) if isinstance(request, Scan) else scan_arrow(tablet, request)

    def _wait(
        self, route: Any, request: Read, deadline_us: int | None, blocker: Transaction
    ) -> None:
        limits = self._cell.limits
        if len(self) >= limits.reads_waiting_max:
            self._refuse(route, Overloaded("Too many reads wait in this cell.", cell=self._cell.id))
            return
        if self._cell.fault_at(FaultPoint.TIRE_OF_BLOCKER):
            self._refuse(route, self._blocked(request, blocker, limits.blocked_wait_ms_max))
            return
        if deadline_us is None:
            deadline_us = self._cell.now.instant_us + limits.blocked_wait_ms_max * 1000
            self.waited_count += 1
        waiting = WaitingRead(route, request, deadline_us, blocker)
        self._waiting[waiting] = None
        blocker.waiters.append(waiting)

    def _refuse(self, route: Any, error: DodonaError) -> None:
        self._outbox.reply(route, failure_of(error))
