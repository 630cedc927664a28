"""Turn rows in memory into chunks: rotate and flush stores, and free stores that have been flushed.

Owns: which active store is rotated and when, the flushes under way, and how long a flushed store
backs its chunk. It also frees the stores that are not needed any more, a slice at a time. Source:
the YTsaurus document, "Stores". Limits have the names of the table attributes there.

Invariants:
- A store that is being flushed is passive: it does not change. Its chunk is durable before the
  record that attaches it is written. That record is written before any read uses the chunk.
- A flushed store stays until no transaction could come that must be checked against its rows. The
  reason: conflict checks look in memory only. A table without atomicity has no such transactions.
"""

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.records import StoreFlushed, StoreRotated
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.jobs import Built, FlushJob
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.horizon import are_still_right, oldest_needed, terms_of
from dodona_wire.cores.effects import RemoveChunks, RunJob
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.types import NULL_TIMESTAMP, TabletId, Timestamp

FLUSHES_MAX: Final = 2
"""The most flushes under way in one cell."""
UNFLUSHED_MAX: Final = 4
"""The number of unflushed stores of one tablet from which on the active store must wait. It then
refuses writes once it is full."""
WARM_BYTES: Final = 64 << 20
"""The size at which a store of a table without atomicity is rotated. To flush rows that are still
in the processor's caches takes half as long, and their memory is free immediately. Stores of atomic
tables stay for the life of a transaction, and conflict checks look at each of them."""
OVERFLOW_RATIO: Final = 0.7
"""The fill ratio at which a store is rotated. A store that is full refuses writes."""
PRESSURE_RATIO: Final = 0.8
"""The part of the memory for stores above which the largest store is rotated, even if it is not
full."""
LOG_PRESSURE_RATIO: Final = 0.5
"""The part of the log's limit above which stores are rotated."""
LOG_PRESSURE_PERIOD_MS: Final = 10_000
LOCKS_LOOKED_AT: Final = 1_000
"""The most locks of one tablet that a tick looks at."""
SHRINK_ROWS: Final = 2_000
"""The number of versions that one slice frees, in about a millisecond."""
SHRINK_PERIOD_MS: Final = 4
"""The time between two slices. Together they free half a million versions a second, which is more
than come."""
RETRY_AFTER_MS: Final = 5_000
"""The wait after a flush that failed: a full disk does not get free space immediately."""


class FlushToken(NamedTuple):
    """The store that is being flushed."""

    tablet: TabletId
    store: int
    terms: Terms | None
    """The terms on which old versions may go, or None if none may."""


class Flushing:
    """The flushes of a cell. See the module. One instance for each cell."""

    def __init__(self, cell: Cell, outbox: Outbox) -> None:
        self._cell = cell
        self._outbox = outbox
        self._under_way: dict[FlushToken, int] = {}
        """The number of the chunk that each flush makes, by token."""
        self._waiting: dict[TabletId, None] = {}
        """Tablets with stores that wait for a flush, or had such stores at the last tick."""
        self._retry_at_us = 0
        self._due_at_us = 0
        """When tablets must be looked at again, even if nothing has happened."""
        self._log_relieved_at_us = 0
        self._dying: list[DynamicStore] = []
        self._shrink_at_us = 0
        self.flushed_count = 0
        self.failed_count = 0

    def tick(self, *, is_still: bool = False) -> None:
        """Rotate stores that are due, flush stores that wait, and drop stores that are not needed.
        With `is_still`, nothing has happened in the cell since the last tick. Then the tick does
        nothing unless work is due by now."""
        cell = self._cell
        if is_still and cell.now.instant_us < self._due_at_us and not self._is_log_filling:
            return
        needed = oldest_needed(cell)
        used = [it for it in cell.tablets.values() if is_in_use(it)]
        for tablet in used:
            if tablet.stores.passive:
                self._drop_unneeded(tablet, needed)
            if tablet.locks:
                self._forget_locks(tablet, needed)
            if tablet.published:
                tablet.published = [it for it in tablet.published if it.timestamp > needed]
            if self._is_due(tablet):
                self.rotate(tablet)
        dying_bytes = sum([it.size_bytes for it in self._dying])
        cell.room.note_memory(sum([it.stores.memory_bytes for it in used]) + dying_bytes)
        self._relieve(used)
        self._waiting = {
            it.assignment.tablet: None for it in used if it.stores.passive and it.stores.unflushed
        }
        self._due_at_us = self._next_due_us(used)
        self._start()

    @property
    def is_quiet(self) -> bool:
        """Whether no flush is under way or wanted, and no store is being freed."""
        return not (self._under_way or self._waiting or self._dying)

    # Rotation

    def _is_due(self, tablet: Tablet) -> bool:
        store, settings = tablet.active, tablet.assignment.settings
        if not store.rows:
            return False
        if not tablet.is_mounted and not tablet.missing:
            return True  # other tablets that take over its rows wait for a chunk
        now_us = self._cell.now.instant_us
        if store.born_us is None:
            store.born_us = now_us
        if len(tablet.stores.unflushed) >= UNFLUSHED_MAX:
            return False
        if self._cell.injects_faults and self._cell.fault_at(FaultPoint.ROTATE_EARLY):
            return True
        return (
            fill_ratio(store, tablet) >= OVERFLOW_RATIO
            or (store.size_bytes >= WARM_BYTES and not tablet.is_atomic)
            or now_us - store.born_us >= settings.dynamic_store_auto_flush_period * 1000
        )

    def _next_due_us(self, used: Sequence[Tablet]) -> int:
        """Return when work will be due if nothing happens. This is now if stores, locks or
        publications wait until no transaction needs them."""
        now_us = self._cell.now.instant_us
        if any(it.stores.passive or it.locks or it.published for it in used):
            return now_us
        born = [
            it.active.born_us + it.assignment.settings.dynamic_store_auto_flush_period * 1000
            for it in used
            if it.active.born_us is not None
        ]
        return min(born, default=sys.maxsize)

    @property
    def _is_log_filling(self) -> bool:
        cell = self._cell
        return cell.room.log_fill_ratio > LOG_PRESSURE_RATIO * cell.limits.log_fill_ratio_max

    def _relieve(self, used: Sequence[Tablet]) -> None:
        """Rotate stores if memory or the log is short. If memory is short, this rotates the largest
        store, one at a tick, while no store waits for a flush. If the log fills, it rotates all
        stores from time to time: the log must keep all rows that are in no chunk."""
        cell, now_us = self._cell, self._cell.now.instant_us
        if any(tablet.stores.unflushed for tablet in used):
            return
        filled = [tablet for tablet in used if tablet.active.rows]
        if (
            self._is_log_filling
            and now_us >= self._log_relieved_at_us + LOG_PRESSURE_PERIOD_MS * 1000
        ):
            self._log_relieved_at_us = now_us
            for tablet in filled:
                self.rotate(tablet)
        elif filled and cell.room.memory_bytes > PRESSURE_RATIO * cell.limits.memory_bytes_max:
            self.rotate(max(filled, key=lambda it: it.active.size_bytes))

    def rotate(self, tablet: Tablet) -> None:
        """Rotate the tablet's active store: it takes no more writes."""
        tablet.stores.rotate()
        self._waiting[tablet.assignment.tablet] = None
        self._outbox.append(StoreRotated(tablet.assignment.tablet))

    def settle(self, tablet: Tablet) -> bool:
        """Flush all rows of a tablet that has no writers. Return whether chunks have all of
        them."""
        if tablet.active.rows:
            self.rotate(tablet)
        if not tablet.stores.unflushed:
            return True
        self._waiting[tablet.assignment.tablet] = None
        self._start()
        return False

    def drain(self) -> bool:
        """Flush all rows of the cell. Return whether chunks have all of them."""
        waiting = [it for it in self._cell.tablets.values() if not self.settle(it)]
        return not waiting

    # Flushes

    def _start(self) -> None:
        """Start flushes, tablet by tablet, the oldest store first."""
        cell = self._cell
        if cell.now.instant_us < self._retry_at_us:
            return
        busy = {token.tablet for token in self._under_way}
        for number in list(self._waiting):
            if len(self._under_way) >= FLUSHES_MAX:
                return
            if number in busy:
                continue
            tablet = cell.tablets.get(number)
            unflushed = () if tablet is None else tablet.stores.unflushed
            if tablet is not None and unflushed:
                self._flush(tablet, unflushed[0])
            else:
                del self._waiting[number]

    def _flush(self, tablet: Tablet, store: DynamicStore) -> None:
        cell, terms = self._cell, None
        if tablet.assignment.settings.merge_rows_on_flush:
            terms = terms_of(cell, tablet, tablet.stores.oldest_besides(store))
        token = FlushToken(tablet.assignment.tablet, store.number, terms)
        number = self._under_way[token] = cell.chunks.take_number()
        self._outbox.send(RunJob(token, FlushJob(number, tablet.schema, store, terms)))

    def handle(self, token: FlushToken, result: Built | Failure | None) -> Tablet | None:
        """Handle the end of a flush. Return the tablet if chunks have all its rotated rows. A
        result of None means that no version of the store had to be kept."""
        cell = self._cell
        number = self._under_way.pop(token)
        tablet = cell.tablets.get(token.tablet)
        if tablet is None:  # the tablet was dropped meanwhile
            if isinstance(result, Built):
                self._outbox.send(RemoveChunks((number,)))
            return None
        if isinstance(result, Failure):
            self.failed_count += 1
            cell.chunks.note_failure(result.message)
            self._retry_at_us = cell.now.instant_us + RETRY_AFTER_MS * 1000
            return None
        if token.terms is not None and not are_still_right(cell, tablet, token.terms):
            if result is not None:
                self._outbox.send(RemoveChunks((number,)))
            self._start()
            return None
        attached: tuple[AttachedChunk, ...] = ()
        if result is not None:
            assert result.info.number == number
            cell.chunks.add(number, result.chunk)
            attached = (AttachedChunk(result.info),)
        retained = NULL_TIMESTAMP if token.terms is None else token.terms.retained
        record = StoreFlushed(token.tablet, token.store, attached, retained)
        self._outbox.append(record)
        apply_flush(cell, record)
        self.flushed_count += 1
        self._start()
        return None if tablet.stores.unflushed else tablet

    # The end of a store in memory

    def drop_all(self, tablet: Tablet) -> None:
        """Drop all passive stores of a settled tablet. No transaction goes on that could conflict
        with their rows."""
        for store in list(tablet.stores.passive):
            self._bury(tablet.stores.drop(store.number))

    def _drop_unneeded(self, tablet: Tablet, needed: Timestamp) -> None:
        stores = tablet.stores
        for store in [it for it in stores.passive if it.is_flushed]:
            if not tablet.is_atomic or store.max_timestamp <= needed:
                self._bury(stores.drop(store.number))

    def _forget_locks(self, tablet: Tablet, needed: Timestamp) -> None:
        """Forget times of read locks that no transaction could conflict with any more, oldest
        first."""
        locks = tablet.locks
        for key in list(islice(locks, LOCKS_LOOKED_AT)):
            locks[key].forget(needed)
            if locks[key].is_idle:
                del locks[key]

    def _bury(self, store: DynamicStore) -> None:
        if store.rows:
            self._dying.append(store)

    def shrink_at_us(self) -> int | None:
        """Return when `shrink` must be called at the latest, or None if it would find nothing to
        do. The caller asks after every event."""
        return None if self._next_dying() is None else self._shrink_at_us

    def shrink(self) -> bool:
        """Free the next slice of stores that are not needed, if it is time. Return whether it
        was."""
        store, now_us = self._next_dying(), self._cell.now.instant_us
        if store is None or now_us < self._shrink_at_us:
            return False
        self._shrink_at_us = now_us + SHRINK_PERIOD_MS * 1000
        if store.shrink(SHRINK_ROWS):
            self._dying.remove(store)
        return True

    def _next_dying(self) -> DynamicStore | None:
        for store in self._dying:
            if not store.pin_count:
                return store
        return None


def is_in_use(tablet: Tablet) -> bool:
    """Return whether a tablet has anything in memory that a tick must look at. Of thousands of
    tablets, most have nothing."""
    stores = tablet.stores
    return bool(stores.active.rows or stores.passive or tablet.locks or tablet.published)


def fill_ratio(store: DynamicStore, tablet: Tablet) -> float:
    """Return the used part of a store's limits. From 1 on, the store takes no more writes."""
    settings = tablet.assignment.settings
    return max(
        store.version_count / max(settings.max_dynamic_store_row_count, 1),
        store.size_bytes / max(settings.max_dynamic_store_pool_size, 1),
    )


def is_full(store: DynamicStore, tablet: Tablet) -> bool:
    """Return whether a store takes no more writes. This is `fill_ratio` in a faster form, since
    every write asks."""
    settings = tablet.assignment.settings
    return store.version_count >= max(
        settings.max_dynamic_store_row_count, 1
    ) or store.size_bytes >= max(settings.max_dynamic_store_pool_size, 1)


def apply_flush(cell: Cell, record: StoreFlushed) -> None:
    """Apply the changes of a flush, live and in replay."""
    tablet = cell.tablets[record.tablet]
    store = tablet.stores.store(record.store)
    store.is_flushed = True
    store.is_retired = record.retained != NULL_TIMESTAMP
    for attached in record.chunks:
        chunk = cell.chunks.get(attached.info.number)
        tablet.stores.attach(attached, chunk, record.store)
    cell.raise_retained(tablet, record.retained)
