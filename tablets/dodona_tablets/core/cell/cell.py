"""Hold the state of a cell that all of its parts share: above all, tablets and transactions.

Owns: the newest known oracle time, the fence, and the three ways in which a transaction ends in
this cell. The parts (participant, coordinator, reads, writes) end a transaction only through these
methods. What belongs together has a class of its own beside this one: `Room`, `Chunks`, `Readers`,
`Outcomes`, `Heard`.
Invariant: the cell emits no effects. Parts that emit some have its `Outbox`, too. So replay changes
a cell by the same methods as live events do.
"""

from collections.abc import Sequence
from typing import Any

from dodona_tablets.core.cell.chunks import Chunks
from dodona_tablets.core.cell.early_locks import LOCKS_ENDED, EarlyLocks, LockRequest
from dodona_tablets.core.cell.heard import Heard
from dodona_tablets.core.cell.limits import CellLimits
from dodona_tablets.core.cell.outcomes import Outcomes
from dodona_tablets.core.cell.readers import Readers
from dodona_tablets.core.cell.room import Room
from dodona_tablets.core.counts import CommitCounts
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.tablet.loads import CellLoads
from dodona_tablets.core.tablet.locks import release
from dodona_tablets.core.tablet.publications import PublicationRows, Published
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.tablet.transaction import State, Transaction
from dodona_wire.cores.counting import ClockWatch
from dodona_wire.cores.fault_points import FaultAt, no_faults
from dodona_wire.errors import TabletMoved
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Publication, TabletModifications
from dodona_wire.types import (
    MAX_TIMESTAMP,
    NO_CLUSTER,
    NULL_TIMESTAMP,
    TIMESTAMP_COUNTER_BITS,
    CellId,
    ClusterId,
    Now,
    Revision,
    TabletId,
    Timestamp,
    TransactionId,
)


class Cell:
    """The state of one cell. Its attributes change only through its methods, and through those of
    their own. The exception is `now`."""

    def __init__(self, cell: CellId, limits: CellLimits, fault_at: FaultAt = no_faults) -> None:
        self.id = cell
        self.limits = limits
        self.fault_at = fault_at
        self.injects_faults = fault_at is not no_faults
        self.now = Now(0, 0)
        """The time of the event that is being handled. The node sets it."""
        self.cluster = NO_CLUSTER
        """The cluster that the log belongs to. An empty log belongs to none."""
        self.fence: Timestamp = NULL_TIMESTAMP
        self.latest: Timestamp = NULL_TIMESTAMP
        """The largest timestamp that the oracle has issued, as far as this cell knows."""
        self.checkpoint = 0
        """The number of the last checkpoint."""
        self.tablets: dict[TabletId, Tablet] = {}
        self.dropped_revision = Revision(0)
        """The revision of the newest assignment that dropped tablets. An older assignment may still
        have them."""
        self.transactions: dict[TransactionId, Transaction] = {}
        self.outcomes = Outcomes()
        self.early = EarlyLocks()
        self.readers = Readers(
            limits.readers_max,
            limits.reader_tablets_max,
            limits.reader_renewal_ms_max,
        )
        self.loads = CellLoads()
        self.chunks = Chunks()
        self.room = Room(cell, limits)
        self.heard = Heard()
        self.client_clock = ClockWatch()
        """How far clients' clocks are ahead of the oracle's time, as a difference of timestamps."""
        self.counts = CommitCounts()
        self.woken: list[Any] = []
        """Reads and writers that check again at the end of this event."""
        self._has_retained_more = False
        """Whether a tablet's retained timestamp has risen since the last report to the master."""
        self.flushed_ahead: dict[TabletId, int] = {}
        """For replay: by tablet, the last store that is flushed by the end of the log. A tablet
        that is made later has no such stores."""

    def reset_counts(self) -> None:
        """Reset the counts after replay, so that they have live events only."""
        self.counts = CommitCounts()

    # What the cell belongs to, and what it knows of the oracle

    def join(self, cluster: ClusterId) -> None:
        """Belong to this cluster from now on."""
        self.cluster = cluster

    def note_issued(self, timestamp: Timestamp) -> None:
        """Note that the oracle has issued this timestamp."""
        if timestamp > self.latest:
            self.latest = timestamp

    def may_be_issued(self, timestamp: Timestamp) -> bool:
        """Return whether the oracle may have issued the timestamp. The cell's knowledge is usually
        a little behind."""
        ahead = timestamp - self.latest
        return ahead <= self.limits.client_clock_difference_s_max << TIMESTAMP_COUNTER_BITS

    def note_checkpoint(self, number: int) -> None:
        """Note the number of the last checkpoint, which was made or replayed."""
        self.checkpoint = number

    def begin_serving(self, fence: Timestamp) -> None:
        """Serve all tablets that have their rows, for transactions that begin after the fence."""
        self.fence = fence
        self.loads.begin_leases(self.now.instant_us)
        for tablet in self.tablets.values():
            if tablet.is_mounted and not tablet.missing:
                self.serve(tablet, fence)

    # Transactions

    def begin(self, transaction: Transaction) -> None:
        """Keep a transaction while it is alive here."""
        self.transactions[transaction.id] = transaction

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
    def is_at_work(self) -> bool:
        """Whether a transaction, an owner of early locks or a load is alive here."""
        is_writing = self.transactions or self.early.requests or self.chunks.batch_count
        return bool(is_writing or self.loads.open)

    # Tablets

    def foresee_flush(self, tablet: TabletId, store: int) -> None:
        """Note, before the replay, that the log says later that this store is flushed. Replay does
        not rebuild rows in stores up to this one."""
        self.flushed_ahead[tablet] = max(self.flushed_ahead.get(tablet, 0), store)

    def add(self, tablet: Tablet) -> None:
        """Keep a tablet that was made just now."""
        self.tablets[tablet.assignment.tablet] = tablet

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
            if tablet.stores.chunks:
                self.chunks.note_released()
            assert not tablet.is_mounted, "dropped while it is served"
            assert not tablet.active_count, "dropped under a transaction"
        self.note_dropped(revision)

    def note_dropped(self, revision: Revision) -> None:
        """Note that an assignment of this revision has dropped tablets."""
        self.dropped_revision = max(self.dropped_revision, revision)

    def unmount(self, tablet: Tablet) -> None:
        """Stop serving a tablet, and drop what loads have staged there. When the tablet is served
        again, it may have another schema, or be in another cell."""
        tablet.unmount()
        for request in self.early.of_tablet(tablet.assignment.tablet):
            self.end_early(request)
        self.loads.drop_tablet(tablet.assignment.tablet)
        if self.loads.open:
            self.chunks.note_released()
        tablet.published.clear()

    def serve(self, tablet: Tablet, fence: Timestamp) -> None:
        """Serve the tablet from now on, for transactions that begin after the fence."""
        tablet.serve_after(fence)
        if tablet.has_been_served:
            self.readers.expect_renewals(tablet.assignment.tablet, self.now.instant_us)
        tablet.has_been_served = True

    def raise_retained(self, tablet: Tablet, retained: Timestamp) -> None:
        """Raise the retained timestamp of a tablet, because older versions may be gone. Reads below
        it are refused from now on."""
        if retained > tablet.retained_timestamp:
            tablet.retained_timestamp = retained
            self._has_retained_more = True

    def take_retained_news(self) -> bool:
        """Return whether a retained timestamp has risen since the last call."""
        has_risen, self._has_retained_more = self._has_retained_more, False
        return has_risen

    def drop_unused_chunks(self) -> tuple[int, ...]:
        """Forget the chunks that no tablet and no load uses, and return their numbers. This visits
        all tablets, so call it only if there may be such chunks."""
        used = [
            it.attached.info.number
            for tablet in self.tablets.values()
            for it in tablet.stores.chunks
        ]
        return self.chunks.drop_unused([*used, *(it.chunk.info.number for it in self.loads.staged)])

    # How a transaction's state here ends

    def apply(self, transaction: Transaction, commit_timestamp: Timestamp) -> None:
        """Make the versions of a committed transaction, and release its locks. The record that
        decided it is in the outbox before."""
        transaction.state = State.COMMITTED
        transaction.commit_timestamp = commit_timestamp
        for part in transaction.modifications:
            tablet = self.tablets[part.tablet]
            self.apply_part(tablet, part, commit_timestamp)
            self._let_go(tablet, transaction, part)
        self._release(transaction, commit_timestamp)
        self.counts.applied += 1

    def _release(self, transaction: Transaction, commit_timestamp: Timestamp | None) -> None:
        """Release all locks. The next in line for these rows check again. A commit also ends the
        early locks of its owner, and so does the end of a blind transaction in line."""
        if self.early.requests:
            mine = self.early.requests.get(transaction.owner)
            is_over = commit_timestamp is not None or transaction.start == MAX_TIMESTAMP
            if mine is not None and is_over:
                self.end_early(mine)
            keys = [key for _, key, _ in transaction.held]
            for part in transaction.modifications:
                whole = part.publication is not None
                self.woken += self.early.heads(part.tablet, None if whole else keys)
        release(transaction, commit_timestamp)

    # Early locks

    def end_early(self, request: LockRequest, reason: Failure = LOCKS_ENDED) -> None:
        """End the early locks of an owner, or its wait for them. The next in line check again. A
        repeated request gets the reason."""
        self.woken += self.early.leave(request)
        if request.transaction is None:
            self.early.end(request.owner, reason)
            self.woken.append(request)

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
        return PublicationRows(tablet.schema, chunks, publication.erased, self.chunks.open)

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
            chunks = {it.info.number: self.chunks.open[it.info.number] for it in attached}
            rows = PublicationRows(tablet.schema, attached, (), chunks)
            tablet.published.append(Published(at, rows))
            tablet.publication_count += 1

    def _let_go(self, tablet: Tablet, transaction: Transaction, part: TabletModifications) -> None:
        """Note that the transaction no longer writes to the tablet, and holds nothing that it has
        read there."""
        tablet.active_count -= 1
        if part.reads and tablet.read_holds is not None:
            tablet.read_holds.release(transaction, part.reads)
            if tablet.read_holds.is_empty:
                tablet.read_holds = None
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
                self._let_go(self.tablets[part.tablet], transaction, part)
        self._release(transaction, None)
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
        self.counts.note_refused(failure.kind)

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
