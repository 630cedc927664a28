"""The role machine of a tablet node: one cell, one inbox, one outbox.

Owns: dispatch, the cell's fence, and the pace of its ticks. Everything else is a part:
`participant`, `coordinator`, `timeouts`, `reads`, `nonatomic`, `loading`, `mounting`, `flushing`,
`compaction`, `truncation`, which share a `cell`. Give it the log's records (`replay`) and the
chunks that these name (`open_chunks`), then `start` it; it serves once the oracle has answered.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from dodona_tablets.core.cell.cell import Cell, CellLimits
from dodona_tablets.core.commit.coordinator import Coordinator, CoordinatorEvent
from dodona_tablets.core.commit.participant import Participant, ParticipantEvent
from dodona_tablets.core.commit.timeouts import Timeouts
from dodona_tablets.core.counts import InDoubt, NodeStatistics
from dodona_tablets.core.mounting.mounting import FenceToken, Mounting
from dodona_tablets.core.records import Record
from dodona_tablets.core.requests.loading import BatchToken, Loading
from dodona_tablets.core.requests.nonatomic import NonAtomicWrites
from dodona_tablets.core.requests.reads import ProofToken, Reads, WaitingRead
from dodona_tablets.core.requests.staging import SealToken, StageToken, Staging
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import ChunkInfo
from dodona_tablets.core.rows.chunks.jobs import Built
from dodona_tablets.core.start.recovered import Recovered
from dodona_tablets.core.start.replay import foresee, replay
from dodona_tablets.core.statistics import JobCounts, Parts, statistics_of
from dodona_tablets.core.tablet.transaction import State
from dodona_tablets.core.upkeep.compaction import Compaction
from dodona_tablets.core.upkeep.flushing import Flushing, FlushToken
from dodona_tablets.core.upkeep.truncation import Truncation
from dodona_wire.cores.counting import ClockWatch
from dodona_wire.cores.effects import AskTimestamps, Effect, Route
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
    CloseLoad,
    CommitOne,
    CountVersions,
    DataRequest,
    Decide,
    HoldSnapshot,
    Lookup,
    LookupVersions,
    OpenLoad,
    PeekLoad,
    PeekOutcome,
    Prepare,
    RenewLoad,
    Scan,
    ScanArrow,
    ScanVersions,
    SealLoad,
    SplitTablet,
    StageArrow,
    WriteArrow,
    WriteNonAtomic,
)
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
"""The oracle is asked for the time so much less often where nothing is under way."""
DRAIN_LOG_BYTES_MIN: Final = 4 << 20
"""So much of a log is read at a start in no time: a shorter one is left as it is."""
CELL_FENCE: Final = "cell fence"
ORACLE_TIME: Final = "oracle time"


class NodeCore:
    """See the module. All inputs take `now`; all outputs are effects, taken by `take_effects`."""

    def __init__(
        self,
        cell: CellId,
        address: str,
        limits: CellLimits | None = None,
        fault_at: FaultAt = no_faults,
    ) -> None:
        self.cell = Cell(cell, limits or CellLimits(), fault_at)
        self._participant = Participant(self.cell)
        self._coordinator = Coordinator(self.cell, self._participant)
        self._timeouts = Timeouts(self.cell, self._participant, self._coordinator)
        self._reads = Reads(self.cell)
        self._loading = Loading(self.cell)
        self._writes = NonAtomicWrites(self.cell, self._loading)
        self._flushing = Flushing(self.cell)
        self._staging = Staging(self.cell, self._flushing)
        self._compaction = Compaction(self.cell)
        self._truncation = Truncation(self.cell)
        self._mounting = Mounting(self.cell, self._flushing, address)
        self.recovered = Recovered(self.cell)
        self._jobs = JobCounts()
        self._oracle_clock = ClockWatch()
        self._counted = Parts(
            self.cell,
            self._reads,
            self._writes,
            self._loading,
            self._flushing,
            self._compaction,
            self._mounting,
            self._jobs,
            self._oracle_clock,
        )
        self.is_drained = False
        self._tick_at_us = 0
        self._oracle_time_at_us = 0
        self._is_slow = False
        self._handlers: dict[type[Any], Callable[[Route, Any], None]] = {
            CommitOne: self._commit_one,
            Prepare: self._prepare,
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

    # Life

    def foresee(self, record: Record) -> None:
        """Before `replay`, if there is a quick way to them: the records that are about stores."""
        foresee(self.cell, record)

    def replay(self, record: Record) -> None:
        """Recovery, before `start`."""
        self.cell.record_count += 1
        replay(self.cell, record)

    def chunks_needed(self) -> dict[int, ChunkInfo]:
        """What has to be open before the start, by number, once everything was replayed. Whatever
        else lies there is of work that was not finished."""
        infos = {
            it.attached.info.number: it.attached.info
            for tablet in self.cell.tablets.values()
            for it in tablet.stores.chunks
        }
        infos.update({it.chunk.info.number: it.chunk.info for it in self.cell.loads.staged})
        return infos

    def open_chunks(self, chunks: Mapping[int, Chunk], orphans: tuple[int, ...] = ()) -> None:
        """All that are needed, and the numbers of those that lie there and that the log does not
        name: nobody uses these numbers again, and `truncation` removes the chunks."""
        self.cell.orphans = orphans
        self.cell.next_chunk = max(self.cell.next_chunk, max(orphans, default=0) + 1)
        self.cell.chunks.update(chunks)
        for tablet in self.cell.tablets.values():
            tablet.stores.open(self.cell.chunks)

    def start(self, now: Now) -> None:
        """Everything was replayed: ask for the fence, then serve."""
        assert len(self.chunks_needed()) == len(self.cell.chunks), "chunks are missing"
        self.cell.now = now
        self.cell.reset_counts()
        for tablet in self.cell.tablets.values():
            tablet.fence = NULL_TIMESTAMP
        for alive in self.cell.transactions.values():
            alive.retry_at_us = now.instant_us
        self.recovered.begin()
        self.cell.effects.append(AskTimestamps(CELL_FENCE))
        self._tick_at_us = now.instant_us

    def refuse_writes(self, now: Now) -> None:
        """Let no transaction begin to commit, nor any row in; what is under way goes on."""
        self.cell.now = now
        self.cell.is_draining = True

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for what only this cell can do: a transaction has no outcome yet,
        a batch is on its way into a chunk, a read waits for a row."""
        alive = self.cell.transactions.values()
        is_undecided = any(it.state is not State.COMMITTED for it in alive)
        return is_undecided or bool(self.cell.batches) or len(self._reads) > 0

    def drain(self, now: Now) -> None:
        """Take no more writes, and bring all rows into chunks, so that the next start has little
        to read. To be called until `is_drained`, or for as long as there is time."""
        self.refuse_writes(now)
        self.is_drained = not self._is_worth_draining or self._flushing.drain()

    def finish(self, now: Now) -> None:
        """The last words before a clean stop."""
        self.cell.now = now
        if self.is_serving and self._is_worth_draining:
            self._truncation.finish()

    @property
    def _is_worth_draining(self) -> bool:
        return self.cell.log_bytes > DRAIN_LOG_BYTES_MIN

    @property
    def is_serving(self) -> bool:
        return self.cell.fence != NULL_TIMESTAMP and self.cell.cluster != NO_CLUSTER

    @property
    def waits_for(self) -> str | None:
        """Who has to answer before the cell serves, if anybody."""
        if self.cell.fence == NULL_TIMESTAMP:
            return "the oracle"
        # An empty log may be all that is left of the cell: the master knows.
        return "the master, to let it join" if self.cell.cluster == NO_CLUSTER else None

    def take_effects(self) -> list[Effect]:
        """The outbox, in order; empty afterwards."""
        self._reads.ask_for_proof()
        self._mounting.tell_news()
        return self.cell.take_effects()

    # Inputs

    def handle(self, route: Route, body: DataRequest, now: Now) -> None:
        """A request; its answer will be a reply with this route."""
        self.cell.now = now
        self._hurry()
        handler = self._handlers.get(type(body))
        if handler is None:
            text = f"a tablet node does not answer {type(body).__name__}"
            self.cell.reply(route, Failure(InvalidRequest.kind, text))
        elif not self.is_serving:
            text = f"the cell is starting: it waits for {self.waits_for}"
            self.cell.reply(route, Failure(Unavailable.kind, text, {"cell": self.cell.id}))
        else:
            handler(route, body)
            if self.cell.woken:
                self._let_woken_retry()

    def handle_cell_message(self, body: CellMessage, now: Now) -> None:
        """A message from another participant. While starting it is dropped: it will be repeated."""
        self.cell.now = now
        if not self.is_serving or self.cell.fault_at(FaultPoint.LOSE_CELL_MESSAGE):
            return
        self._hurry()
        self.cell.heard.cells[body.source] = now.instant_us
        self._dispatch_cell_message(body)
        if self.cell.fault_at(FaultPoint.REPEAT_CELL_MESSAGE):
            self._dispatch_cell_message(body)
        self._let_woken_retry()

    def handle_timestamp(self, token: Any, timestamp: Timestamp, now: Now) -> None:
        """The oracle's answer to `AskTimestamps(token)`."""
        cell = self.cell
        cell.now = now
        if timestamp > cell.latest:
            cell.latest = timestamp
        if type(token) is int:
            self._participant.handle_timestamp(token, timestamp)  # type: ignore[arg-type]
            if cell.injects_faults:
                self._timeouts.maybe_ask_at_once(token)  # type: ignore[arg-type]
        elif isinstance(token, FenceToken):
            self._mounting.handle_fence(token, timestamp)
        elif token == CELL_FENCE:
            cell.heard.oracle = now.instant_us
            self._begin_serving(timestamp)
        elif isinstance(token, ProofToken):
            self._reads.handle_proof(token)
        elif token == ORACLE_TIME:
            self._oracle_clock.note(unix_us_from_timestamp(timestamp) - now.unix_us)
            cell.heard.oracle, cell.heard.oracle_failure = now.instant_us, None
        if cell.woken:
            self._let_woken_retry()

    def note_oracle_failure(self, reason: str, now: Now) -> None:
        """The oracle gave no timestamps, and why."""
        self.cell.now = now
        self.cell.heard.oracle_failure = reason

    def handle_job(self, token: Any, result: Built | Failure | None, now: Now) -> None:
        """The end of a `RunJob`: a chunk, nothing at all that would be worth one, or why not."""
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

    def handle_assignment(self, assignment: Assignment, now: Now) -> None:
        """The master's answer to a heartbeat."""
        self.cell.now = now
        if not assignment.is_short:
            self._hurry()
        is_fenced = self.cell.fence != NULL_TIMESTAMP
        if is_fenced and not self.cell.fault_at(FaultPoint.LOSE_ASSIGNMENT):
            self._mounting.handle_assignment(assignment)

    def note_log(self, size_bytes: int, fill_ratio: float, now: Now) -> None:
        """What the log has, and in relation to what it may have: if it is too much, writes are
        refused until it is less again."""
        self.cell.now = now
        self.cell.log_bytes = size_bytes
        self.cell.log_fill_ratio = fill_ratio

    def tick(self, now: Now) -> None:
        """Everything that time starts, each at its own pace. Time ends nothing that is prepared."""
        self.cell.now = now
        is_slice = self._flushing.shrink() | self._mounting.work()
        if now.instant_us >= self._oracle_time_at_us:
            self._ask_oracle_time()
        if self.cell.fence != NULL_TIMESTAMP:
            self._mounting.beat()
        if now.instant_us < self._tick_at_us and (is_slice or self._is_slow):
            return  # all else has its own, slower pace
        self._tick_all(is_still=self._is_slow)
        self._is_slow = self._is_quiet
        period_ms = self.cell.limits.quiet_tick_ms if self._is_slow else TICK_MS
        self._tick_at_us = now.instant_us + period_ms * 1000

    def _hurry(self) -> None:
        """Something has happened: the next tick is soon."""
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
        self.cell.effects.append(AskTimestamps(token, is_idle=self._is_slow))

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing is under way that a tick might have to go on with."""
        cell = self.cell
        is_at_work = cell.transactions or cell.batches or cell.loads.open or len(self._reads)
        parts = (self._mounting, self._flushing, self._compaction, self.recovered)
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
        self.cell.readers.tick(now.instant_us)
        if not self.cell.is_log_writable:
            return  # whatever follows may append
        self._timeouts.repeat_questions()
        self._timeouts.raise_watermark()
        self._staging.tick()
        self._flushing.tick(is_still=is_still)
        self._compaction.tick()
        self._truncation.tick()
        self._let_woken_retry()

    def next_deadline(self) -> int:
        """When to tick at the latest, as an instant in microseconds."""
        tick_at_us = min(self._tick_at_us, self._oracle_time_at_us)
        if self.cell.fence != NULL_TIMESTAMP:
            tick_at_us = self._mounting.deadline_us(tick_at_us)
        shrink_at_us = self._flushing.shrink_at_us()
        return tick_at_us if shrink_at_us is None else min(tick_at_us, shrink_at_us)

    def statistics(self) -> NodeStatistics:
        """A record of now."""
        return statistics_of(self._counted)

    def in_doubt(self, now: Now) -> list[InDoubt]:
        """What is prepared and undecided here, oldest transaction first."""
        prepared = [it for it in self.cell.transactions.values() if it.state is State.PREPARED]
        return [
            InDoubt(
                it.id,
                it.coordinator,
                it.participants,
                it.prepare_timestamp,
                max(now.instant_us - it.since_us, 0) // 1000,
            )
            for it in sorted(prepared, key=lambda it: it.id)
        ]

    # Requests

    def _commit_one(self, route: Route, body: CommitOne) -> None:
        if body.is_blind and any(part.locks for part in body.modifications):
            text = "a blind transaction only writes: one that locks rows has a start timestamp"
            self.cell.reply(route, Failure(InvalidRequest.kind, text))
            return
        self._participant.prepare(route, body)

    def _prepare(self, route: Route, body: Prepare) -> None:
        if len(body.participants) < 2:
            text = "a prepare names several participants; for one there is CommitOne"
            self.cell.reply(route, Failure(InvalidRequest.kind, text))
            return
        self._participant.prepare(route, body)

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

    # Time

    def _begin_serving(self, fence: Timestamp) -> None:
        """Rule 9. A fence that was asked for twice only rises: later is as good."""
        if self.cell.fence != NULL_TIMESTAMP or self.cell.fault_at(FaultPoint.LOSE_CELL_FENCE):
            return
        self.cell.fence = fence
        self.cell.loads.begin_leases(self.cell.now.instant_us)
        for tablet in self.cell.tablets.values():
            if tablet.is_mounted and not tablet.missing:
                self.cell.serve(tablet, fence)
        self._mounting.send_heartbeat()

    def _let_woken_retry(self) -> None:
        """Whoever waited for a transaction that moved on checks again, in order of arrival."""
        while self.cell.woken:
            woken, self.cell.woken = self.cell.woken, []
            for waiter in woken:
                if isinstance(waiter, WaitingRead):
                    self._reads.retry(waiter)
                elif waiter.is_waiting:
                    self._participant.retry(waiter)
