"""When rows in memory become chunks: rotation, flush, and the end of a store in memory.

Owns: which active store is rotated and when, the flushes under way, how long a flushed store backs
its chunk, and the end of those that nobody needs, a slice at a time. Source: the YTsaurus document,
"Stores"; names of limits are its table attributes.

Invariants:
- A store that is being flushed is passive: it does not change. Its chunk is durable before the
  record that attaches it is written, and that record before anybody reads the chunk.
- A flushed store stays until no transaction could come that would have to meet what is in it:
  conflicts are looked for in memory only. A table without atomicity has none.
"""

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from dodona_tablets.core.cell.cell import Cell
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
"""Under way at once, in one cell."""
UNFLUSHED_MAX: Final = 4
"""Of one tablet: with more the active store has to wait, and refuses writes once it is full."""
WARM_BYTES: Final = 64 << 20
"""Of a table without atomicity: a store that takes so much is rotated, since to flush rows that are
still near the processor takes half as long, and their memory is given back at once. Stores of
atomic tables stay for a transaction's life, and each more is one more to look for conflicts in."""
OVERFLOW_RATIO: Final = 0.7
"""A store is rotated when it is so full, and refuses writes when it is full."""
PRESSURE_RATIO: Final = 0.8
"""Of the memory that stores may take: the largest is rotated, whatever else it could still take."""
LOG_PRESSURE_RATIO: Final = 0.5
"""Of what the log may be filled to."""
LOG_PRESSURE_PERIOD_MS: Final = 10_000
LOCKS_LOOKED_AT: Final = 1_000
"""Of one tablet at a tick."""
SHRINK_ROWS: Final = 2_000
"""Let go of at a time, about a millisecond."""
SHRINK_PERIOD_MS: Final = 4
"""Between two such times: together half a million rows a second, which is more than come."""
RETRY_AFTER_MS: Final = 5_000
"""After a flush that failed: a full disk does not get empty at once."""


class FlushToken(NamedTuple):
    """Which store is being flushed."""

    tablet: TabletId
    store: int
    terms: Terms | None
    """On which old versions may go, if any may."""


class Flushing:
    """See the module. One instance a cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._under_way: dict[FlushToken, int] = {}
        """By token, the number of the chunk that is made."""
        self._waiting: dict[TabletId, None] = {}
        """Tablets with stores that wait for a flush, or had some at the last tick."""
        self._retry_at_us = 0
        self._due_at_us = 0
        """When tablets are to be looked at again though nothing has happened."""
        self._log_relieved_at_us = 0
        self._dying: list[DynamicStore] = []
        self._shrink_at_us = 0
        self.flushed_count = 0
        self.failed_count = 0

    def tick(self, *, is_still: bool = False) -> None:
        """Rotate what is due, flush what waits, drop what nobody needs. If nothing has happened in
        the cell since the last tick, only what is due by now."""
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
        cell.memory_bytes = sum([it.stores.memory_bytes for it in used])
        cell.memory_bytes += sum([it.size_bytes for it in self._dying])
        self._relieve(used)
        self._waiting = {
            it.assignment.tablet: None for it in used if it.stores.passive and it.stores.unflushed
        }
        self._due_at_us = self._next_due_us(used)
        self._start()

    @property
    def is_quiet(self) -> bool:
        """Whether no flush is under way or wanted, and no store is being let go of."""
        return not (self._under_way or self._waiting or self._dying)

    # Rotation

    def _is_due(self, tablet: Tablet) -> bool:
        store, settings = tablet.active, tablet.assignment.settings
        if not store.rows:
            return False
        if not tablet.is_mounted and not tablet.missing:
            return True  # who wants its rows waits for a chunk
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
        """When something will be due if nothing happens: at once where it waits for others to need
        less."""
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
        return cell.log_fill_ratio > LOG_PRESSURE_RATIO * cell.limits.log_fill_ratio_max

    def _relieve(self, used: Sequence[Tablet]) -> None:
        """Rotate the largest store if memory gets scarce, one at a tick, once none waits; and all
        of them from time to time while the log is: it has to keep what is in no chunk."""
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
        elif filled and cell.memory_bytes > PRESSURE_RATIO * cell.limits.memory_bytes_max:
            self.rotate(max(filled, key=lambda it: it.active.size_bytes))

    def rotate(self, tablet: Tablet) -> None:
        """The tablet's active store takes no more writes."""
        tablet.stores.rotate()
        self._waiting[tablet.assignment.tablet] = None
        self._cell.append(StoreRotated(tablet.assignment.tablet))

    def settle(self, tablet: Tablet) -> bool:
        """→ whether chunks have all rows of a tablet that nobody writes to; makes it so."""
        if tablet.active.rows:
            self.rotate(tablet)
        if not tablet.stores.unflushed:
            return True
        self._waiting[tablet.assignment.tablet] = None
        self._start()
        return False

    def drain(self) -> bool:
        """→ whether chunks have all rows of the cell; makes it so."""
        waiting = [it for it in self._cell.tablets.values() if not self.settle(it)]
        return not waiting

    # Flushes

    def _start(self) -> None:
        """Oldest first, tablet by tablet."""
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
        number = self._under_way[token] = cell.take_chunk_number()
        cell.effects.append(RunJob(token, FlushJob(number, tablet.schema, store, terms)))

    def handle(self, token: FlushToken, result: Built | Failure | None) -> Tablet | None:
        """A flush has ended. → the tablet, if chunks have all that was rotated of it. None for
        a result says that nothing of the store was worth keeping."""
        cell = self._cell
        number = self._under_way.pop(token)
        tablet = cell.tablets.get(token.tablet)
        if tablet is None:  # dropped meanwhile
            cell.effects.append(RemoveChunks((number,)))
            return None
        if isinstance(result, Failure):
            self.failed_count += 1
            cell.last_failure = result.message
            self._retry_at_us = cell.now.instant_us + RETRY_AFTER_MS * 1000
            return None
        if token.terms is not None and not are_still_right(cell, tablet, token.terms):
            if result is not None:
                cell.effects.append(RemoveChunks((number,)))
            self._start()
            return None
        attached: tuple[AttachedChunk, ...] = ()
        if result is not None:
            assert result.info.number == number
            cell.chunks[number] = result.chunk
            attached = (AttachedChunk(result.info),)
        retained = NULL_TIMESTAMP if token.terms is None else token.terms.retained
        record = StoreFlushed(token.tablet, token.store, attached, retained)
        cell.append(record)
        apply_flush(cell, record)
        self.flushed_count += 1
        self._start()
        return None if tablet.stores.unflushed else tablet

    # The end of stores

    def drop_all(self, tablet: Tablet) -> None:
        """Of a tablet that is settled, and that nobody goes on with who could meet a conflict."""
        for store in list(tablet.stores.passive):
            self._bury(tablet.stores.drop(store.number))

    def _drop_unneeded(self, tablet: Tablet, needed: Timestamp) -> None:
        stores = tablet.stores
        for store in [it for it in stores.passive if it.is_flushed]:
            if not tablet.is_atomic or store.max_timestamp <= needed:
                self._bury(stores.drop(store.number))

    def _forget_locks(self, tablet: Tablet, needed: Timestamp) -> None:
        """Times of read locks that no transaction could meet any more, the oldest first."""
        locks = tablet.locks
        for key in list(islice(locks, LOCKS_LOOKED_AT)):
            locks[key].forget(needed)
            if locks[key].is_idle:
                del locks[key]

    def _bury(self, store: DynamicStore) -> None:
        if store.rows:
            self._dying.append(store)

    def shrink_at_us(self) -> int | None:
        """When `shrink` has to be called at the latest; None if it would find nothing to do. Asked
        after every event."""
        return None if self._next_dying() is None else self._shrink_at_us

    def shrink(self) -> bool:
        """Let go of the next slice of stores that nobody needs, if it is time. → whether it was."""
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
    """Whether it has anything in memory that a tick has to look at. Of thousands of tablets most
    have nothing."""
    stores = tablet.stores
    return bool(stores.active.rows or stores.passive or tablet.locks or tablet.published)


def fill_ratio(store: DynamicStore, tablet: Tablet) -> float:
    """How much of what one store may hold is in it; above 1 it takes no more writes."""
    settings = tablet.assignment.settings
    return max(
        store.version_count / max(settings.max_dynamic_store_row_count, 1),
        store.size_bytes / max(settings.max_dynamic_store_pool_size, 1),
    )


def is_full(store: DynamicStore, tablet: Tablet) -> bool:
    """Whether it takes no more writes: as `fill_ratio` has it, for every write to ask."""
    settings = tablet.assignment.settings
    return store.version_count >= max(
        settings.max_dynamic_store_row_count, 1
    ) or store.size_bytes >= max(settings.max_dynamic_store_pool_size, 1)


def apply_flush(cell: Cell, record: StoreFlushed) -> None:
    """What a flush changes, live and in replay."""
    tablet = cell.tablets[record.tablet]
    store = tablet.stores.store(record.store)
    store.is_flushed = True
    store.is_retired = record.retained != NULL_TIMESTAMP
    for attached in record.chunks:
        chunk = cell.chunks.get(attached.info.number)
        tablet.stores.attach(attached, chunk, record.store)
    cell.raise_retained(tablet, record.retained)
