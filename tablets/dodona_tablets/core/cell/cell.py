"""What all parts of a cell share: its tablets, transactions, outcomes, and its outbox.

Owns: the limits, the oracle time seen last, the fence, the readers, and the three ways a
transaction's state here ends. Parts (participant, coordinator, reads, writes) change it only
through these methods.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dodona_tablets.core.cell.outcomes import Outcomes
from dodona_tablets.core.cell.readers import Readers
from dodona_tablets.core.counts import CommitCounts, ProtocolViolation
from dodona_tablets.core.records import Record
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.tablet.loads import CellLoads
from dodona_tablets.core.tablet.locks import release
from dodona_tablets.core.tablet.publishing import PublicationRows, Published
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.cores.counting import ClockWatch
from dodona_wire.cores.effects import Append, Effect, RemoveChunks, ReplyTo
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.errors import DodonaError, TabletMoved
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Publication, TabletModifications
from dodona_wire.messages.families import Reply
from dodona_wire.types import (
    MAX_TIMESTAMP,
    NO_CLUSTER,
    NULL_TIMESTAMP,
    TIMESTAMP_COUNTER_BITS,
    CellId,
    Now,
    Revision,
    TabletId,
    Timestamp,
    TransactionId,
)


class CellLimits(msgspec.Struct, frozen=True):
    """Every bound and period of a cell. Durations in milliseconds, or seconds where named so."""

    transaction_life_s_max: int = 60
    forget_slack_s: int = 15
    client_clock_difference_s_max: int = 60
    blocked_wait_ms_max: int = 5_000
    oracle_wait_ms_max: int = 5_000
    transaction_rows_max: int = 100_000
    transaction_bytes_max: int = 33 << 20
    """A little more than clients allow themselves: they refuse early, by an estimate."""
    transactions_alive_max: int = 100_000
    reads_waiting_max: int = 10_000
    log_fill_ratio_max: float = 0.75
    """A log that is fuller takes no new writes: the rest is for those that are under way."""
    ask_coordinator_after_ms: int = 1_000
    recover_after_ms: int = 2_000
    repeat_after_ms: int = 1_000
    tell_silence_after_ms: int = 2_000
    """Whoever asks for an outcome that another cell keeps from being found is told which."""
    heartbeat_period_ms: int = 400
    heartbeat_hold_ms: int = 800
    """The master may hold its answer back for so long if it has nothing new to say. Together with
    the period, less than a cell may be silent before the master takes it for dead."""
    oracle_time_period_ms: int = 500
    watermark_period_ms: int = 4_000
    memory_bytes_max: int = 2 << 30
    """Of all dynamic stores: above that writes are refused."""
    batch_bytes_max: int = 512 << 20
    """Of bulk data on its way into chunks. One batch is always let in."""
    checkpoint_period_ms: int = 15_000
    quiet_tick_ms: int = 1_000
    """Between two ticks where nothing is under way: leases end, and stores are flushed, so much
    later. Any event brings the next tick forward."""
    compaction_round_ms: int = 5_000
    """Between the beginnings of two looks at all tablets for chunks to be compacted, unless a chunk
    was made meanwhile."""
    clean_period_ms: int = 30_000
    """How often a chunk is looked at for what retention lets go."""
    readers_max: int = 1_000
    """So many hold snapshots here at a time."""
    reader_tablets_max: int = 100_000
    """Of all of them together."""
    reader_lease_ms_max: int = 3_600_000
    """A longer one is refused."""
    loads_max: int = 1_000
    """So many bulk loads are open here at a time."""
    load_lease_ms_max: int = 3_600_000
    """A longer one is refused."""
    staged_chunks_max: int = 20_000
    """Of all loads together; with the deletions of seals twice as many."""
    reader_renewal_ms_max: int = 60_000
    """A tablet that comes to be served keeps everything for so long: until then whoever held it
    elsewhere, or before a restart, is to renew."""


class Heard:
    """When others were heard last, as instants in microseconds."""

    def __init__(self) -> None:
        self.cells: dict[CellId, int] = {}
        self.oracle = 0
        self.oracle_failure: str | None = None
        """Why it did not answer, as the shell was told last."""


class Cell:
    """One cell's state. `now` is that of the event being handled."""

    is_log_writable = True
    """Not where the disk had no space at all: nothing may be appended."""
    disk_shortage: str | None = None
    """Why the disk has no space for what is new, as far as the core was told."""
    has_retained_more = False
    """Whether the retained timestamp of a tablet has risen, and the master has yet to hear."""

    def __init__(self, cell: CellId, limits: CellLimits, fault_at: FaultAt = no_faults) -> None:
        self.id = cell
        self.limits = limits
        self.cluster = NO_CLUSTER
        """The one that the log belongs to; an empty log belongs to none."""
        self.fault_at = fault_at
        self.injects_faults = fault_at is not no_faults
        self.tablets: dict[TabletId, Tablet] = {}
        self.dropped_revision = Revision(0)
        """Of the newest assignment by which tablets were dropped: an older one may have them."""
        self.transactions: dict[TransactionId, Transaction] = {}
        self.outcomes = Outcomes()
        self.readers = Readers(
            limits.readers_max,
            limits.reader_tablets_max,
            limits.reader_renewal_ms_max,
        )
        self.loads = CellLoads()
        self.batches: dict[int, int] = {}
        """Of bulk data, on their way into the chunk of this number: how many bytes each has. Loads
        that are being sealed are among them, and have none."""
        self.fence: Timestamp = NULL_TIMESTAMP
        self.latest: Timestamp = NULL_TIMESTAMP
        """The largest timestamp this cell knows the oracle to have issued."""
        self.log_bytes = 0
        self.log_fill_ratio = 0.0
        """What the log has, in relation to what it may have, as far as the core was told."""
        self.now = Now(0, 0)
        self.chunks: dict[int, Chunk] = {}
        """The open files, by number."""
        self.orphans: tuple[int, ...] = ()
        """Chunks that were there at the start and that the log does not name, by number."""
        self.may_have_unused_chunks = False
        """Whether some tablet or load has let go of any."""
        self.flushed_ahead: dict[TabletId, int] = {}
        """In replay: of each tablet the last store that will have been flushed by the end of the
        log. Rows that were written to it are not made again."""
        self.next_chunk = 1
        self.checkpoint = 0
        """The number of the last one."""
        self.record_count = 0
        """Appended since the start."""
        self.memory_bytes = 0
        """What stores take, as of the last tick."""
        self.is_draining = False
        """It is about to stop, and takes no more writes."""
        self.last_failure: str | None = None
        """Of the work on chunks."""
        self.heard = Heard()
        self.effects: list[Effect] = []
        self.woken: list[Any] = []
        self.client_clock = ClockWatch()
        """How far clients' clocks are ahead of the oracle's time, as a difference of timestamps."""
        self.protocol_violation_count = 0
        """Decisions of other cells that can't be: see `participant`."""
        self.last_protocol_violation: ProtocolViolation | None = None
        self.reset_counts()

    def reset_counts(self) -> None:
        """Whatever was counted so far, nobody did: it was replayed."""
        self.counts = CommitCounts()
        self.refused_count_by_kind: dict[str, int] = {}

    def note_disk(self, shortage: str | None, *, is_log_writable: bool = True) -> None:
        """Why the disk has no space for what is new, if so: writes are refused until it has. Reads,
        flushes and what is prepared go on. Without a log to write to only reads do."""
        self.disk_shortage = shortage
        self.is_log_writable = is_log_writable

    def reply(self, route: Any, body: Reply) -> None:
        self.effects.append(ReplyTo(route, body))

    def append(self, record: Record) -> None:
        """Into the log; what is in the outbox behind it waits until it is durable."""
        self.record_count += 1
        self.effects.append(Append(record))

    def take_effects(self) -> list[Effect]:
        """The outbox, in order; empty afterwards."""
        if self.may_have_unused_chunks:
            self._remove_unused_chunks()
        effects, self.effects = self.effects, []
        return effects

    def note_protocol_violation(self, transaction: TransactionId, source: CellId) -> None:
        """That cell has decided what can't be."""
        self.protocol_violation_count += 1
        self.last_protocol_violation = ProtocolViolation(transaction, source)

    def state_of(self, transaction: TransactionId) -> State:
        """Alive or finished; NONE covers "never heard of" and "forgotten"."""
        alive = self.transactions.get(transaction)
        if alive is not None:
            return alive.state
        outcome = self.outcomes.get(transaction)
        if outcome is None:
            return State.NONE
        return State.REFUSED if isinstance(outcome, Failure) else State.COMMITTED

    def commit_timestamp_of(self, transaction: TransactionId) -> Timestamp:
        """Of one that is committed, alive or finished."""
        alive = self.transactions.get(transaction)
        at = self.outcomes.get(transaction) if alive is None else alive.commit_timestamp
        assert at is not None
        assert not isinstance(at, Failure)
        return at

    @property
    def is_log_full(self) -> bool:
        """Whether there is no room for what does not have to be logged."""
        return self.log_fill_ratio > self.limits.log_fill_ratio_max

    def may_be_issued(self, timestamp: Timestamp) -> bool:
        """Whether the oracle may have issued it, as far as we know. A little behind is usual."""
        ahead = timestamp - self.latest
        return ahead <= self.limits.client_clock_difference_s_max << TIMESTAMP_COUNTER_BITS

    def tablet(self, tablet: TabletId, revision: Revision) -> Tablet:
        """A tablet that is served here now. Raises TabletMoved: the client's route is stale."""
        found = self.tablets.get(tablet)
        if found is None or not found.is_mounted or found.fence == NULL_TIMESTAMP:
            raise TabletMoved("the tablet is not mounted in this cell", tablet=tablet, cell=self.id)
        if found.assignment.revision != revision:
            raise TabletMoved("the tablet was mounted anew", tablet=tablet, cell=self.id)
        return found

    def drop(self, tablets: Sequence[TabletId], revision: Revision) -> None:
        """Forget these, with their rows. From now on each is a tablet that never was here; what
        became of transactions that wrote to it is remembered all the same."""
        for number in tablets:
            tablet = self.tablets.pop(number)
            self.may_have_unused_chunks |= bool(tablet.stores.chunks)
            assert not tablet.is_mounted, "dropped while it is served"
            assert not tablet.active_count, "dropped under a transaction"
        self.dropped_revision = max(self.dropped_revision, revision)

    def unmount(self, tablet: Tablet) -> None:
        """It is not served any more. What loads have staged there is gone: it may have another
        schema when it is served again, or be another's."""
        tablet.unmount()
        self.loads.drop_tablet(tablet.assignment.tablet)
        self.may_have_unused_chunks |= bool(self.loads.open)
        tablet.published.clear()

    def serve(self, tablet: Tablet, fence: Timestamp) -> None:
        """From now on, and for transactions that begin after this timestamp."""
        tablet.serve_after(fence)
        if tablet.has_been_served:
            self.readers.expect_renewals(tablet.assignment.tablet, self.now.instant_us)
        tablet.has_been_served = True

    def raise_retained(self, tablet: Tablet, retained: Timestamp) -> None:
        """Old versions of the tablet may be gone: nobody reads below this timestamp any more."""
        if retained > tablet.retained_timestamp:
            tablet.retained_timestamp = retained
            self.has_retained_more = True

    # Chunks

    def take_chunk_number(self) -> int:
        """One that no chunk here has had."""
        self.next_chunk += 1
        return self.next_chunk - 1

    def _remove_unused_chunks(self) -> None:
        """Those that no tablet has any part of; their files go behind the records that say so.
        Once for a batch of events, at its end: it takes a walk over all tablets."""
        self.may_have_unused_chunks = False
        used = dict.fromkeys(
            it.attached.info.number
            for tablet in self.tablets.values()
            for it in tablet.stores.chunks
        )
        used.update(dict.fromkeys(it.chunk.info.number for it in self.loads.staged))
        unused = tuple([number for number in self.chunks if number not in used])
        if unused:
            for number in unused:
                del self.chunks[number]
            self.effects.append(RemoveChunks(unused))

    # How a transaction's state here ends

    def apply(self, transaction: Transaction, commit_timestamp: Timestamp) -> None:
        """Make its versions, let go of its locks. What decided it is in the outbox before."""
        transaction.state = State.COMMITTED
        transaction.commit_timestamp = commit_timestamp
        for tablet, part in zip(transaction.tablets, transaction.modifications, strict=True):
            self.apply_part(tablet, part, commit_timestamp)
            self._let_go(tablet, transaction)
        release(transaction, commit_timestamp)
        self.counts.applied += 1

    def apply_part(
        self, tablet: Tablet, part: TabletModifications, commit_timestamp: Timestamp
    ) -> None:
        """What a commit changes in one tablet, live and in replay."""
        if part.publication is not None:
            self._publish(tablet, part.publication, commit_timestamp)
        tablet.apply(part.writes, commit_timestamp, part.special)

    def rows_of(self, tablet: Tablet, publication: Publication) -> PublicationRows:
        """What a publication is about. Raises KeyError if it is not staged here, all of it."""
        load = self.loads.open[publication.load]
        staged = [load.staged[number] for number in publication.chunks]
        if any(it.tablet != tablet.assignment.tablet for it in staged):
            raise KeyError(publication.load)
        chunks = [it.chunk for it in staged]
        return PublicationRows(tablet.schema, chunks, publication.erased, self.chunks)

    def _publish(self, tablet: Tablet, publication: Publication, at: Timestamp) -> None:
        """Staged chunks become the tablet's, at the commit timestamp."""
        load = self.loads.open[publication.load]
        tablet.stores.hot_rows.forget_from(at)
        attached = []
        for number in publication.chunks:
            chunk = AttachedChunk(load.take(number).chunk.info, at)
            tablet.stores.attach(chunk, self.chunks.get(number))
            attached.append(chunk)
        load.seals.pop(tablet.assignment.tablet, None)
        if self.fence != NULL_TIMESTAMP:  # in replay there is nobody who could meet it
            chunks = {it.info.number: self.chunks[it.info.number] for it in attached}
            rows = PublicationRows(tablet.schema, attached, (), chunks)
            tablet.published.append(Published(at, rows))
            tablet.publication_count += 1

    def _let_go(self, tablet: Tablet, transaction: Transaction) -> None:
        """The transaction is no writer of the tablet any more."""
        tablet.active_count -= 1
        if tablet.publishing is not None and tablet.publishing.transaction is transaction:
            tablet.publishing = None

    def finish_committed(self, transaction: Transaction) -> None:
        """From a live transaction to an outcome."""
        assert transaction.state is State.COMMITTED
        del self.transactions[transaction.id]
        self.outcomes.put(transaction.id, transaction.commit_timestamp)
        self.wake(transaction)

    def finish_refused(self, transaction: Transaction, failure: Failure) -> None:
        """Let go of its locks and remember why."""
        assert transaction.state is not State.COMMITTED
        for tablet in transaction.tablets:
            self._let_go(tablet, transaction)
        release(transaction, None)
        transaction.state = State.REFUSED
        self.transactions.pop(transaction.id, None)
        is_blind = transaction.start == MAX_TIMESTAMP
        self.turn_away(transaction.id, transaction.participants, failure, is_blind=is_blind)
        self.wake(transaction)

    def turn_away(
        self,
        transaction: TransactionId,
        participants: tuple[CellId, ...],
        failure: Failure,
        *,
        is_blind: bool,
    ) -> None:
        """Refuse a transaction of which it is known whose it is."""
        self.refuse(transaction, failure)
        self.counts.note_refusal(self.id, participants, failure.kind, is_blind=is_blind)

    def refuse(self, transaction: TransactionId, failure: Failure) -> None:
        """A refusal lives in memory only: the restart fence stands in for it after a crash."""
        self.outcomes.put(transaction, failure)
        count = self.refused_count_by_kind.get(failure.kind, 0)
        self.refused_count_by_kind[failure.kind] = count + 1

    def wait(self, transaction: Transaction, other: Transaction) -> None:
        """A transaction checks again once the other has moved on."""
        self.counts.lock_waits += 1
        transaction.state = State.WAITING
        other.waiters.append(transaction)

    def wake(self, transaction: Transaction) -> None:
        """Whoever waited for this transaction checks again at the end of this event."""
        if transaction.waiters:
            self.woken.extend(transaction.waiters)
            transaction.waiters.clear()


def failure_of(error: DodonaError) -> Failure:
    """An error as it travels."""
    return Failure(error.kind, error.message, error.attributes)
