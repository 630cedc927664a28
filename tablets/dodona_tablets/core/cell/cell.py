"""Hold what all parts of a cell share: its tablets, transactions, outcomes and outbox.

Owns: the limits, the newest known oracle time, the fence, the readers, and the three ways in which
a transaction ends in this cell. The parts (participant, coordinator, reads, writes) end a
transaction only through these methods.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dodona_tablets.core.cell.outcomes import Outcomes
from dodona_tablets.core.cell.readers import Readers
from dodona_tablets.core.counts import CommitCounts, ProtocolViolation
from dodona_tablets.core.rows.chunks.chunk import Chunk
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.tablet.loads import CellLoads
from dodona_tablets.core.tablet.locks import release
from dodona_tablets.core.tablet.publications import PublicationRows, Published
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.cores.counting import ClockWatch
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.errors import DodonaError, TabletMoved
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Publication, TabletModifications
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
    """The limits and periods of a cell. Durations are in milliseconds, or in seconds if the name
    says so."""

    transaction_life_s_max: int = 60
    forget_slack_s: int = 15
    client_clock_difference_s_max: int = 60
    blocked_wait_ms_max: int = 5_000
    oracle_wait_ms_max: int = 5_000
    transaction_rows_max: int = 100_000
    transaction_bytes_max: int = 33 << 20
    """A little more than the limit of clients, which refuse early, by an estimate."""
    transactions_alive_max: int = 100_000
    reads_waiting_max: int = 10_000
    log_fill_ratio_max: float = 0.75
    """A fuller log takes no new writes. The rest is for transactions in progress."""
    ask_coordinator_after_ms: int = 1_000
    recover_after_ms: int = 2_000
    repeat_after_ms: int = 1_000
    tell_silence_after_ms: int = 2_000
    """A caller that asks for an outcome gets the name of a silent cell after this time."""
    heartbeat_period_ms: int = 400
    heartbeat_hold_ms: int = 800
    """The master may hold its answer back for this time if it has no news. This time and the period
    together are less than the silence after which a cell does not count as alive."""
    oracle_time_period_ms: int = 500
    watermark_period_ms: int = 4_000
    memory_bytes_max: int = 2 << 30
    """The limit of all dynamic stores. Above it, the cell refuses writes."""
    batch_bytes_max: int = 512 << 20
    """The limit of bulk data on its way into chunks. One batch is always admitted."""
    checkpoint_period_ms: int = 15_000
    quiet_tick_ms: int = 1_000
    """The time between two ticks of a cell without work in progress. Leases end, and stores are
    flushed, later by this time. Any event brings the next tick forward."""
    compaction_round_ms: int = 5_000
    """The time from the start of one search of all tablets for chunks to compact to the next. A new
    chunk brings the next search forward."""
    clean_period_ms: int = 30_000
    """How often the cell looks, tablet by tablet, for chunks with versions that retention may
    remove."""
    readers_max: int = 1_000
    """The limit of readers that hold snapshots here at a time."""
    reader_tablets_max: int = 100_000
    """The limit of tablets of all readers together."""
    reader_lease_ms_max: int = 3_600_000
    """The cell refuses a longer lease."""
    loads_max: int = 1_000
    """The limit of bulk loads that are open here at a time."""
    load_lease_ms_max: int = 3_600_000
    """The cell refuses a longer lease."""
    staged_chunks_max: int = 20_000
    """The limit of all loads together. With the deletions of seals, twice as many are allowed."""
    reader_renewal_ms_max: int = 60_000
    """A tablet that begins to be served keeps all versions for this time. Readers that held its
    snapshot in another cell, or before a restart, renew it in this time."""


class Heard:
    """When other servers were last heard, as instants in microseconds."""

    def __init__(self) -> None:
        self.cells: dict[CellId, int] = {}
        self.oracle = 0
        self.oracle_failure: str | None = None
        """Why the oracle did not answer, as the shell reported it last."""


class Cell:
    """The state of one cell. `now` is the time of the event that is being handled."""

    is_log_writable = True
    """False if the disk had no space at all. The cell then appends nothing."""
    disk_shortage: str | None = None
    """Why the disk has no space for new writes, as reported to the core last."""
    has_retained_more = False
    """Whether a tablet's retained timestamp has risen since the last report to the master."""

    def __init__(self, cell: CellId, limits: CellLimits, fault_at: FaultAt = no_faults) -> None:
        self.id = cell
        self.limits = limits
        self.cluster = NO_CLUSTER
        """The cluster that the log belongs to. An empty log belongs to none."""
        self.fault_at = fault_at
        self.injects_faults = fault_at is not no_faults
        self.tablets: dict[TabletId, Tablet] = {}
        self.dropped_revision = Revision(0)
        """The revision of the newest assignment that dropped tablets. An older assignment may still
        have them."""
        self.transactions: dict[TransactionId, Transaction] = {}
        self.outcomes = Outcomes()
        self.readers = Readers(
            limits.readers_max,
            limits.reader_tablets_max,
            limits.reader_renewal_ms_max,
        )
        self.loads = CellLoads()
        self.batches: dict[int, int] = {}
        """The bulk data on its way into chunks: its bytes by chunk number. A seal in progress has
        an entry with 0 bytes."""
        self.fence: Timestamp = NULL_TIMESTAMP
        self.latest: Timestamp = NULL_TIMESTAMP
        """The largest timestamp that the oracle has issued, as far as this cell knows."""
        self.log_bytes = 0
        self.log_fill_ratio = 0.0
        """The size of the log in relation to its limit, as reported to the core last."""
        self.now = Now(0, 0)
        self.chunks: dict[int, Chunk] = {}
        """The open chunks by number."""
        self.orphans: tuple[int, ...] = ()
        """The numbers of the chunks that were there at the start and that the log does not name."""
        self.may_have_unused_chunks = False
        """Whether a tablet or a load may have released a chunk."""
        self.flushed_ahead: dict[TabletId, int] = {}
        """For replay: by tablet, the last store that is flushed by the end of the log. Replay does
        not rebuild rows in stores up to this one."""
        self.next_chunk = 1
        self.checkpoint = 0
        """The number of the last checkpoint."""
        self.memory_bytes = 0
        """The memory of stores, as of the last tick."""
        self.is_draining = False
        """Whether the cell is about to stop, and takes no more writes."""
        self.last_failure: str | None = None
        """The last failure of work on chunks."""
        self.heard = Heard()
        self.woken: list[Any] = []
        self.client_clock = ClockWatch()
        """How far clients' clocks are ahead of the oracle's time, as a difference of timestamps."""
        self.protocol_violation_count = 0
        """The decisions of other cells that break the commit protocol: see `participant`."""
        self.last_protocol_violation: ProtocolViolation | None = None
        self.reset_counts()

    def reset_counts(self) -> None:
        """Reset the counts after replay, so that they have live events only."""
        self.counts = CommitCounts()
        self.refused_count_by_kind: dict[str, int] = {}

    def note_disk(self, shortage: str | None, *, is_log_writable: bool = True) -> None:
        """Note why the disk has no space for new writes, or None if it has. The cell refuses writes
        until there is space. Reads, flushes and prepared transactions go on. Without a writable
        log, only reads go on."""
        self.disk_shortage = shortage
        self.is_log_writable = is_log_writable

    def note_protocol_violation(self, transaction: TransactionId, source: CellId) -> None:
        """Note a decision of another cell that breaks the commit protocol."""
        self.protocol_violation_count += 1
        self.last_protocol_violation = ProtocolViolation(transaction, source)

    def state_of(self, transaction: TransactionId) -> State:
        """Return the state of a transaction, alive or finished. NONE is "never heard of" or
        "forgotten"."""
        alive = self.transactions.get(transaction)
        if alive is not None:
            return alive.state
        outcome = self.outcomes.get(transaction)
        if outcome is None:
            return State.NONE
        return State.REFUSED if isinstance(outcome, Failure) else State.COMMITTED

    def commit_timestamp_of(self, transaction: TransactionId) -> Timestamp:
        """Return the commit timestamp of a committed transaction, alive or finished."""
        alive = self.transactions.get(transaction)
        at = self.outcomes.get(transaction) if alive is None else alive.commit_timestamp
        assert at is not None
        assert not isinstance(at, Failure)
        return at

    @property
    def is_log_full(self) -> bool:
        """Return whether the log has room only for records that must be logged."""
        return self.log_fill_ratio > self.limits.log_fill_ratio_max

    def may_be_issued(self, timestamp: Timestamp) -> bool:
        """Return whether the oracle may have issued the timestamp. The cell's knowledge is usually
        a little behind."""
        ahead = timestamp - self.latest
        return ahead <= self.limits.client_clock_difference_s_max << TIMESTAMP_COUNTER_BITS

    def tablet(self, tablet: TabletId, revision: Revision) -> Tablet:
        """Return a tablet that is served here now. Raises TabletMoved if the client's route is
        stale."""
        found = self.tablets.get(tablet)
        if found is None or not found.is_mounted or found.fence == NULL_TIMESTAMP:
            text = "The tablet is not mounted in this cell. Refresh the route."
            raise TabletMoved(text, tablet=tablet, cell=self.id)
        if found.assignment.revision != revision:
            text = "The tablet was mounted again. Refresh the route."
            raise TabletMoved(text, tablet=tablet, cell=self.id)
        return found

    def drop(self, tablets: Sequence[TabletId], revision: Revision) -> None:
        """Forget these tablets with their rows, as if they were never here. The cell still
        remembers the outcomes of transactions that wrote to them."""
        for number in tablets:
            tablet = self.tablets.pop(number)
            self.may_have_unused_chunks |= bool(tablet.stores.chunks)
            assert not tablet.is_mounted, "dropped while it is served"
            assert not tablet.active_count, "dropped under a transaction"
        self.dropped_revision = max(self.dropped_revision, revision)

    def unmount(self, tablet: Tablet) -> None:
        """Stop serving a tablet, and drop what loads have staged there. When the tablet is served
        again, it may have another schema, or be in another cell."""
        tablet.unmount()
        self.loads.drop_tablet(tablet.assignment.tablet)
        self.may_have_unused_chunks |= bool(self.loads.open)
        tablet.published.clear()

    def serve(self, tablet: Tablet, fence: Timestamp) -> None:
        """Serve the tablet from now on, for transactions that begin after the fence."""
        tablet.serve_after(fence)
        if tablet.has_been_served:
            self.readers.expect_renewals(tablet.assignment.tablet, self.now.instant_us)
        tablet.has_been_served = True

    def begin_serving(self, fence: Timestamp) -> None:
        """Serve all tablets that have their rows, for transactions that begin after the fence."""
        self.fence = fence
        self.loads.begin_leases(self.now.instant_us)
        for tablet in self.tablets.values():
            if tablet.is_mounted and not tablet.missing:
                self.serve(tablet, fence)

    def raise_retained(self, tablet: Tablet, retained: Timestamp) -> None:
        """Raise the retained timestamp of a tablet, because older versions may be gone. Reads below
        it are refused from now on."""
        if retained > tablet.retained_timestamp:
            tablet.retained_timestamp = retained
            self.has_retained_more = True

    # Chunks

    def take_chunk_number(self) -> int:
        """Return a number that no chunk here has had."""
        self.next_chunk += 1
        return self.next_chunk - 1

    def drop_unused_chunks(self) -> tuple[int, ...]:
        """Forget the chunks that no tablet and no load uses, and return their numbers. This visits
        all tablets, so call it only if there may be such chunks."""
        self.may_have_unused_chunks = False
        used = dict.fromkeys(
            it.attached.info.number
            for tablet in self.tablets.values()
            for it in tablet.stores.chunks
        )
        used.update(dict.fromkeys(it.chunk.info.number for it in self.loads.staged))
        unused = tuple([number for number in self.chunks if number not in used])
        for number in unused:
            del self.chunks[number]
        return unused

    # How a transaction's state here ends

    def apply(self, transaction: Transaction, commit_timestamp: Timestamp) -> None:
        """Make the versions of a committed transaction, and release its locks. The record that
        decided it is in the outbox before."""
        transaction.state = State.COMMITTED
        transaction.commit_timestamp = commit_timestamp
        for part in transaction.modifications:
            tablet = self.tablets[part.tablet]
            self.apply_part(tablet, part, commit_timestamp)
            self._let_go(tablet, transaction)
        release(transaction, commit_timestamp)
        self.counts.applied += 1

    def apply_part(
        self, tablet: Tablet, part: TabletModifications, commit_timestamp: Timestamp
    ) -> None:
        """Apply a commit to one tablet, live or in replay."""
        if part.publication is not None:
            self._publish(tablet, part.publication, commit_timestamp)
        tablet.apply(part.writes, commit_timestamp, part.special)

    def rows_of(self, tablet: Tablet, publication: Publication) -> PublicationRows:
        """Return the rows of a publication. Raises KeyError unless all of its chunks are staged
        here."""
        load = self.loads.open[publication.load]
        staged = [load.staged[number] for number in publication.chunks]
        if any(it.tablet != tablet.assignment.tablet for it in staged):
            raise KeyError(publication.load)
        chunks = [it.chunk for it in staged]
        return PublicationRows(tablet.schema, chunks, publication.erased, self.chunks)

    def _publish(self, tablet: Tablet, publication: Publication, at: Timestamp) -> None:
        """Attach staged chunks to the tablet at the commit timestamp."""
        load = self.loads.open[publication.load]
        tablet.stores.hot_rows.forget_from(at)
        attached = []
        for number in publication.chunks:
            chunk = AttachedChunk(load.take(number).chunk.info, at)
            tablet.stores.attach(chunk, self.chunks.get(number))
            attached.append(chunk)
        load.seals.pop(tablet.assignment.tablet, None)
        if self.fence != NULL_TIMESTAMP:  # in replay no transaction could meet it
            chunks = {it.info.number: self.chunks[it.info.number] for it in attached}
            rows = PublicationRows(tablet.schema, attached, (), chunks)
            tablet.published.append(Published(at, rows))
            tablet.publication_count += 1

    def _let_go(self, tablet: Tablet, transaction: Transaction) -> None:
        """Note that the transaction no longer writes to the tablet."""
        tablet.active_count -= 1
        if tablet.publishing is not None and tablet.publishing.transaction is transaction:
            tablet.publishing = None

    def finish_committed(self, transaction: Transaction) -> None:
        """Replace a live committed transaction by its outcome."""
        assert transaction.state is State.COMMITTED
        del self.transactions[transaction.id]
        self.outcomes.put(transaction.id, transaction.commit_timestamp)
        self.wake(transaction)

    def finish_refused(self, transaction: Transaction, failure: Failure) -> None:
        """Refuse a live transaction: release its locks, and remember the reason."""
        assert transaction.state is not State.COMMITTED
        if transaction.has_locks:
            for part in transaction.modifications:
                self._let_go(self.tablets[part.tablet], transaction)
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
        """Refuse a transaction, and count it by its participants, as far as they are known."""
        self.refuse(transaction, failure)
        self.counts.note_refusal(self.id, participants, failure.kind, is_blind=is_blind)

    def refuse(self, transaction: TransactionId, failure: Failure) -> None:
        """Record a refusal in memory only. After a crash, the fence refuses the transaction."""
        self.outcomes.put(transaction, failure)
        count = self.refused_count_by_kind.get(failure.kind, 0)
        self.refused_count_by_kind[failure.kind] = count + 1

    def wait(self, transaction: Transaction, other: Transaction) -> None:
        """Make a transaction wait. It checks again when the other one has moved on."""
        self.counts.lock_waits += 1
        transaction.state = State.WAITING
        other.waiters.append(transaction)

    def wake(self, transaction: Transaction) -> None:
        """Let the waiters of this transaction check again at the end of this event."""
        if transaction.waiters:
            self.woken.extend(transaction.waiters)
            transaction.waiters.clear()

    def take_woken(self) -> list[Any]:
        """Return all that check again now."""
        woken, self.woken = self.woken, []
        return woken


def failure_of(error: DodonaError) -> Failure:
    """Return an error in the form in which it is sent."""
    return Failure(error.kind, error.message, error.attributes)
