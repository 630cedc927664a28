"""Run the core of a tablet node: one cell, one inbox, one outbox.

Owns: dispatch, the fence of the cell, and the pace of its ticks. All other work is in parts that
share a `cell`: `participant`, `coordinator`, `timeouts`, `reads`, `nonatomic`, `loading`,
`staging`, `mounting`, `flushing`, `compaction`, `truncation`.

Give the core the records of the log (`replay`) and the chunks that they name (`open_chunks`), then
`start` it. It serves once the oracle has answered, and the master has let it join its cluster.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.early_locks import LockRequest
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.commit.coordinator import Coordinator, CoordinatorEvent
from dodona_tablets.core.commit.participant import Participant, ParticipantEvent
from dodona_tablets.core.commit.timeouts import Timeouts
from dodona_tablets.core.counts import InDoubt, NodeStatistics
from dodona_tablets.core.mounting.mounting import FenceToken, Mounting
from dodona_tablets.core.records import Record
from dodona_tablets.core.requests.loading import BatchToken, Loading
from dodona_tablets.core.requests.locking import Locking, OwnerToken
from dodona_tablets.core.requests.nonatomic import NonAtomicWrites
from dodona_tablets.core.requests.reads import ProofToken, Reads, WaitingRead
from dodona_tablets.core.requests.staging import SealToken, StageToken, Staging
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.jobs import Built
from dodona_tablets.core.start.recovered import Recovered
from dodona_tablets.core.start.replay import foresee, replay
from dodona_tablets.core.statistics import JobCounts, Parts, in_doubt, statistics_of
from dodona_tablets.core.tablet.transaction import State
from dodona_tablets.core.upkeep.caching import Caching
from dodona_tablets.core.upkeep.compaction import Compaction
from dodona_tablets.core.upkeep.flushing import Flushing, FlushToken
from dodona_tablets.core.upkeep.truncation import Truncation
from dodona_wire.cores.counting import ClockWatch
from dodona_wire.cores.effects import AskTimestamps, Effect, RemoveChunks, Route
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.errors import InvalidRequest, Unavailable
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import Assignment
from dodona_wire.messages.cells import (
    Acknowledge,
    AskCoordinator,
    AskRows,
    CellMessage,
    QueryStatus,
    Status,
    TellAbort,
    TellCommit,
    TellRows,
)
from dodona_wire.messages.data import (
    AskOutcome,
    CommitOne,
    ConditionalCommit,
    CountVersions,
    DataRequest,
    Decide,
    HoldSnapshot,
    Lookup,
    LookupVersions,
    PeekOutcome,
    Prepare,
    Scan,
    ScanArrow,
    ScanVersions,
    SplitTablet,
    ValidatedCommit,
    WriteArrow,
    WriteNonAtomic,
)
from dodona_wire.messages.loads import (
    CloseLoad,
    OpenLoad,
    PeekLoad,
    RenewLoad,
    SealLoad,
    StageArrow,
)
from dodona_wire.messages.locks import AcquireLocks, ReleaseLocks
from dodona_wire.types import (
    NO_CLUSTER,
    NULL_TIMESTAMP,
    CellId,
    Now,
    Timestamp,
    unix_us_from_timestamp,
)

TICK_MS: Final = 100
QUIET_TIME_RATIO: Final = 4
"""A cell without work in progress asks the oracle for the time less often, by this factor."""
DRAIN_LOG_BYTES_MIN: Final = 4 << 20
"""A start reads a shorter log fast, so a stop does not drain it."""
CELL_FENCE: Final = "cell fence"
ORACLE_TIME: Final = "oracle time"


class NodeCore:
    """The core of a tablet node. All inputs take `now`. `take_effects` returns all outputs. `epoch`
    is that in which this process owns a log with copies elsewhere."""

    def __init__(
        self,
        cell: CellId,
        address: str,
        limits: CellLimits | None = None,
        fault_at: FaultAt = no_faults,
        epoch: int = 0,
    ) -> None:
        self.cell = Cell(cell, limits or CellLimits(), fault_at)
        self._outbox = Outbox()
        shared = self.cell, self._outbox
        self._caching = Caching(*shared)
        self._participant = Participant(*shared, self._caching)
        self._coordinator = Coordinator(*shared, self._participant)
        self._timeouts = Timeouts(*shared, self._participant, self._coordinator)
        self._reads = Reads(*shared, self._caching)
        self._locking = Locking(*shared)
        self._loading = Loading(*shared)
        self._writes = NonAtomicWrites(*shared, self._loading)
        self._flushing = Flushing(*shared)
        self._staging = Staging(*shared, self._caching, self._flushing)
        self._compaction = Compaction(*shared, self._caching)
        self._truncation = Truncation(*shared)
        self._mounting = Mounting(*shared, self._caching, self._flushing, address, epoch)
        self.recovered = Recovered(self.cell)
        self._jobs = JobCounts()
        self._oracle_clock = ClockWatch()
        self._counted = Parts(
            self.cell,
            self._reads,
            self._caching,
            self._writes,
            self._loading,
            self._flushing,
            self._compaction,
            self._mounting,
            self._jobs,
            self._oracle_clock,
        )
        self.is_drained = self._is_slow = False
        self._tick_at_us = self._oracle_time_at_us = 0
        self._handlers: dict[type[Any], Callable[[Route, Any], None]] = {
            CommitOne: self._participant.prepare,
            Prepare: self._participant.prepare,
            ConditionalCommit: self._participant.prepare_if,
            ValidatedCommit: self._participant.prepare_validated,
            AcquireLocks: self._locking.acquire,
            ReleaseLocks: self._locking.release,
            Decide: self._decide,
            AskOutcome: partial(self._coordinator.answer, CoordinatorEvent.ASK_OUTCOME),
            PeekOutcome: partial(self._coordinator.answer, CoordinatorEvent.PEEK_OUTCOME),
            WriteNonAtomic: self._writes.handle,
            WriteArrow: self._writes.handle,
            Lookup: self._reads.handle,
            LookupVersions: self._reads.handle,
            Scan: self._reads.handle,
            ScanArrow: self._reads.handle,
            ScanVersions: self._reads.handle,
            CountVersions: self._reads.handle,
            HoldSnapshot: self._reads.hold,
            OpenLoad: self._staging.open,
            RenewLoad: self._staging.renew,
            PeekLoad: self._staging.peek,
            CloseLoad: self._staging.close,
            StageArrow: self._staging.stage,
            SealLoad: self._staging.seal,
            SplitTablet: self._reads.split,
        }

    # Start and stop

    def foresee(self, record: Record) -> None:
        """Take a record about stores before `replay`, if there is a fast way to find such
        records."""
        foresee(self.cell, record)

    def replay(self, record: Record) -> None:
        """Replay a record of the log, before `start`."""
        replay(self.cell, record)

    def chunks_needed(self) -> dict[int, ChunkInfo]:
        """Return the descriptions of the chunks that must be open before the start, by number. Call
        this after the replay. Any other chunk is from work that was not finished."""
        infos = {
            it.attached.info.number: it.attached.info
            for tablet in self.cell.tablets.values()
            for it in tablet.stores.chunks
        }
        infos.update({it.chunk.info.number: it.chunk.info for it in self.cell.loads.staged})
        return infos

    def open_chunks(
        self, chunks: Mapping[int, Chunk], orphans: tuple[int, ...] = (), first_number: int = 1
    ) -> None:
        """Take all chunks that are needed, and the numbers of others (orphans): `truncation`
        removes these. Orphans' numbers and numbers below `first_number` are not used again."""
        self.cell.chunks.open_found(chunks, orphans, first_number)
        for tablet in self.cell.tablets.values():
            tablet.stores.open(self.cell.chunks.open)

    def start(self, now: Now) -> None:
        """Ask for the fence after the replay, then serve."""
        assert len(self.chunks_needed()) == len(self.cell.chunks.open), "chunks are missing"
        self.cell.now = now
        self.cell.reset_counts()
        for tablet in self.cell.tablets.values():
            tablet.fence = NULL_TIMESTAMP
        for alive in self.cell.transactions.values():
            alive.retry_at_us = now.instant_us
        self.recovered.begin()
        self._outbox.send(AskTimestamps(CELL_FENCE))
        self._tick_at_us = now.instant_us

    def refuse_writes(self, now: Now) -> None:
        """Admit no new transaction and no new row. Work in progress goes on."""
        self.cell.now = now
        self.cell.room.drain()

    @property
    def is_busy(self) -> bool:
        """Return whether a caller waits for this cell. That is so while a transaction has no
        outcome, a batch is on its way into a chunk, or a read waits."""
        alive = self.cell.transactions.values()
        is_undecided = any(it.state is not State.COMMITTED for it in alive)
        return is_undecided or self.cell.chunks.batch_count > 0 or len(self._reads) > 0

    def drain(self, now: Now) -> None:
        """Take no more writes, and bring all rows into chunks, so that the next start has little to
        read. Call this until `is_drained`, or for as long as there is time."""
        self.refuse_writes(now)
        self.is_drained = not self._is_worth_draining or self._flushing.drain()

    def finish(self, now: Now) -> None:
        """Write the last checkpoint before a clean stop."""
        self.cell.now = now
        if self.is_serving and self._is_worth_draining:
            self._truncation.finish()

    @property
    def _is_worth_draining(self) -> bool:
        return self.cell.room.log_bytes > DRAIN_LOG_BYTES_MIN

    @property
    def is_serving(self) -> bool:
        return self.cell.fence != NULL_TIMESTAMP and self.cell.cluster != NO_CLUSTER

    @property
    def waits_for(self) -> str | None:
        """Return the server that must answer before the cell serves, or None."""
        if self.cell.fence == NULL_TIMESTAMP:
            return "the oracle"
        # The log of an old cell may be lost, and a new one empty. The master knows the cell.
        return "the master, to let it join" if self.cell.cluster == NO_CLUSTER else None

    def take_effects(self) -> list[Effect]:
        """Take the effects of the outbox, in order, and leave it empty."""
        self._reads.ask_for_proof()
        self._mounting.tell_news()
        chunks = self.cell.chunks
        if chunks.may_have_unused and (unused := self.cell.drop_unused_chunks()):
            self._outbox.send(RemoveChunks(unused))  # behind the records that say so
        self._caching.trim()
        return self._outbox.take()

    # Inputs

    def handle(self, route: Route, body: DataRequest, now: Now) -> None:
        """Handle a request. Its answer is a reply with this route."""
        self.cell.now = now
        self._hurry()
        handler = self._handlers.get(type(body))
        if handler is None:
            text = f"A tablet node does not answer {type(body).__name__}."
            self._outbox.reply(route, Failure(InvalidRequest.kind, text))
        elif not self.is_serving:
            text = f"The cell is starting: it waits for {self.waits_for}."
            self._outbox.reply(route, Failure(Unavailable.kind, text, {"cell": self.cell.id}))
        else:
            handler(route, body)
            if self.cell.woken:
                self._let_woken_retry()

    def handle_cell_message(self, body: CellMessage, now: Now) -> None:
        """Handle a message of another cell. A starting cell drops it, because it will come
        again."""
        self.cell.now = now
        if not self.is_serving or self.cell.fault_at(FaultPoint.LOSE_CELL_MESSAGE):
            return
        self._hurry()
        self.cell.heard.note_cell(body.source, now.instant_us)
        self._dispatch_cell_message(body)
        if self.cell.fault_at(FaultPoint.REPEAT_CELL_MESSAGE):
            self._dispatch_cell_message(body)
        self._let_woken_retry()

    def handle_timestamp(self, token: Any, timestamp: Timestamp, now: Now) -> None:
        """Handle the oracle's answer to `AskTimestamps(token)`."""
        cell = self.cell
        cell.now = now
        cell.note_issued(timestamp)
        if type(token) is int:
            self._participant.handle_timestamp(token, timestamp)  # type: ignore[arg-type]
            if cell.injects_faults:
                self._timeouts.maybe_ask_at_once(token)  # type: ignore[arg-type]
        elif isinstance(token, FenceToken):
            self._mounting.handle_fence(token, timestamp)
        elif token == CELL_FENCE:
            cell.heard.note_oracle(now.instant_us)
            self._begin_serving(timestamp)
        elif isinstance(token, ProofToken):
            self._reads.handle_proof(token)
        elif isinstance(token, OwnerToken):
            self._locking.start(token, timestamp)
        elif token == ORACLE_TIME:
            self._oracle_clock.note(unix_us_from_timestamp(timestamp) - now.unix_us)
            cell.heard.note_oracle_time(now.instant_us)
        if cell.woken:
            self._let_woken_retry()

    def note_oracle_failure(self, reason: str, now: Now) -> None:
        """Note that the oracle gave no timestamps, and why."""
        self.cell.now = now
        self.cell.heard.note_oracle_failure(reason)

    def handle_job(self, token: Any, result: Built | Failure | None, now: Now) -> None:
        """Handle the end of a `RunJob`: a chunk, None if no rows are left for a chunk, or a
        failure."""
        self.cell.now = now
        self._hurry()
        self._compaction.look_again()
        self._jobs.note(token, has_failed=isinstance(result, Failure))
        if isinstance(token, BatchToken):
            self._loading.handle(token, result)
        elif isinstance(token, StageToken | SealToken):
            self._staging.handle(token, result)
        elif isinstance(token, FlushToken):
            flushed = self._flushing.handle(token, result)
            if flushed is not None:
                self._mounting.finish(flushed)
        else:
            self._compaction.handle(token, result)

    def handle_chunk(self, number: int, result: Any, now: Now) -> None:
        """Handle the end of a `FetchChunk`: the bytes of the chunk, or a failure."""
        self.cell.now = now
        self._hurry()
        self._caching.handle(number, result)
        self._let_woken_retry()

    def handle_assignment(self, assignment: Assignment, now: Now) -> None:
        """Handle the master's answer to a heartbeat."""
        self.cell.now = now
        if not assignment.is_short:
            self._hurry()
        is_fenced = self.cell.fence != NULL_TIMESTAMP
        if is_fenced and not self.cell.fault_at(FaultPoint.LOSE_ASSIGNMENT):
            self._mounting.handle_assignment(assignment)

    def note_log(self, size_bytes: int, fill_ratio: float, now: Now) -> None:
        """Note the size of the log, and its ratio to the limit. If it is too large, the cell
        refuses writes until it is smaller again."""
        self.cell.now = now
        self.cell.room.note_log(size_bytes, fill_ratio)

    def tick(self, now: Now) -> None:
        """Do everything that is due, each part at its own pace. Time ends no prepared
        transaction."""
        self.cell.now = now
        is_slice = self._flushing.shrink() | self._mounting.work() | self._caching.work()
        self._let_woken_retry()
        if now.instant_us >= self._oracle_time_at_us:
            self._ask_oracle_time()
        if self.cell.fence != NULL_TIMESTAMP:
            self._mounting.beat()
        if now.instant_us < self._tick_at_us and (is_slice or self._is_slow):
            return  # all other work has its own, slower pace
        self._tick_all(is_still=self._is_slow)
        self._is_slow = self._is_quiet
        period_ms = self.cell.limits.quiet_tick_ms if self._is_slow else TICK_MS
        self._tick_at_us = now.instant_us + period_ms * 1000

    def _hurry(self) -> None:
        """Bring the next tick forward, because something has happened."""
        if self._is_slow:
            self._is_slow = False
            now_us, time_ms = self.cell.now.instant_us, self.cell.limits.oracle_time_period_ms
            self._tick_at_us = min(self._tick_at_us, now_us + TICK_MS * 1000)
            self._oracle_time_at_us = min(self._oracle_time_at_us, now_us + time_ms * 1000)

    def _ask_oracle_time(self) -> None:
        ratio = QUIET_TIME_RATIO if self._is_slow else 1
        period_us = self.cell.limits.oracle_time_period_ms * 1000 * ratio
        self._oracle_time_at_us = self.cell.now.instant_us + period_us
        token = CELL_FENCE if self.cell.fence == NULL_TIMESTAMP else ORACLE_TIME
        self._outbox.send(AskTimestamps(token, is_idle=self._is_slow))

    @property
    def _is_quiet(self) -> bool:
        """Return whether no work is in progress that a tick might continue."""
        is_at_work = self.cell.is_at_work or len(self._reads)
        upkeep = (self._flushing, self._compaction, self._caching)
        parts = (self._mounting, *upkeep, self.recovered)
        return self.is_serving and not is_at_work and all(part.is_quiet for part in parts)

    def _tick_all(self, *, is_still: bool) -> None:
        now = self.cell.now
        if self.cell.fence == NULL_TIMESTAMP:
            return
        self._mounting.tick()
        self.recovered.tick(is_serving=self.is_serving)
        if not self.is_serving:
            return
        self._reads.tick()
        self._caching.tick()
        self.cell.readers.tick(now.instant_us)
        if not self.cell.room.is_log_writable:
            return  # the steps below may append
        self._locking.tick()
        self._timeouts.repeat_questions()
        self._timeouts.raise_watermark()
        self._staging.tick()
        self._flushing.tick(is_still=is_still)
        self._compaction.tick()
        self._truncation.tick()
        self._let_woken_retry()

    def next_deadline(self) -> int:
        """Return the instant of the next tick at the latest, in microseconds."""
        tick_at_us = min(self._tick_at_us, self._oracle_time_at_us)
        if self.cell.fence != NULL_TIMESTAMP:
            tick_at_us = self._mounting.deadline_us(tick_at_us)
        slices_at_us = self._flushing.shrink_at_us(), self._caching.work_at_us()
        return min([tick_at_us, *[it for it in slices_at_us if it is not None]])

    def statistics(self) -> NodeStatistics:
        """Return the current statistics."""
        return statistics_of(self._counted)

    def in_doubt(self, now: Now) -> list[InDoubt]:
        """Return the transactions that are prepared and undecided here, oldest first."""
        return in_doubt(self.cell, now)

    # Requests

    def _decide(self, route: Route, body: Decide) -> None:
        is_abort = body.commit_timestamp is None
        event = CoordinatorEvent.DECIDE_ABORT if is_abort else CoordinatorEvent.DECIDE_COMMIT
        self._coordinator.answer(event, route, body)

    def _dispatch_cell_message(self, body: CellMessage) -> None:
        participant, coordinator = self._participant, self._coordinator
        match body:
            case QueryStatus():
                participant.handle(ParticipantEvent.QUERY_STATUS, body)
            case TellCommit():
                participant.handle(ParticipantEvent.TELL_COMMIT, body)
            case TellAbort(is_forgotten=True):
                participant.handle(ParticipantEvent.TELL_FORGOTTEN, body)
            case TellAbort():
                participant.handle(ParticipantEvent.TELL_ABORT, body)
            case AskCoordinator():
                coordinator.handle(CoordinatorEvent.ASK, body)
            case Acknowledge():
                coordinator.handle(CoordinatorEvent.ACKNOWLEDGE, body)
            case Status():
                coordinator.handle(CoordinatorEvent.STATUS, body)
            case AskRows():
                self._mounting.tell_rows(body)
            case TellRows():
                self._mounting.take_rows(body)

    # The fence, and waiters

    def _begin_serving(self, fence: Timestamp) -> None:
        """Take the fence, and serve (rule 9). If the first answer is lost, a later fence is as
        good."""
        if self.cell.fence != NULL_TIMESTAMP or self.cell.fault_at(FaultPoint.LOSE_CELL_FENCE):
            return
        self.cell.begin_serving(fence)
        self._mounting.send_heartbeat()

    def _let_woken_retry(self) -> None:
        """Let all waiters check again whose transaction has moved on, in order of arrival."""
        while self.cell.woken:
            for waiter in self.cell.take_woken():
                if isinstance(waiter, WaitingRead):
                    self._reads.retry(waiter)
                elif isinstance(waiter, LockRequest):
                    self._locking.look(waiter)
                elif waiter.is_waiting:
                    self._participant.retry(waiter)
