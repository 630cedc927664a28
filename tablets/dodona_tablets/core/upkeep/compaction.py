"""Choose which chunks are compacted into one, and when. Compaction applies retention, too.

Owns: the choice of chunks, the compaction under way, and what its end changes. Chunks of about the
same size are compacted together. So a version is written again about once each time its chunk has
grown fourfold. A read looks at a few chunks of each size. A chunk on its own is compacted if
retention may remove many of its versions.

Invariants:
- A chunk whose store is still in memory stays as it is.
- All chunks of a compaction are on this machine until it ends.
- A read at or above the retained timestamp of a compaction sees the same before and after. Below
  it, no read is allowed once the compaction has ended. If such a reader registers meanwhile, the
  result of the compaction is removed.
- Files are removed after the record that replaced them.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.cell.outbox import Outbox
from dodona_tablets.core.records import ChunksCompacted
from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_tablets.core.rows.chunks.jobs import Built, CompactionJob
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.rows.stores import TabletChunk
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep.caching import Caching, Need
from dodona_tablets.core.upkeep.horizon import are_still_right, terms_of
from dodona_wire.cores.effects import RemoveChunks, RunJob
from dodona_wire.cores.fault_points import FaultPoint
from dodona_wire.messages.base import Failure
from dodona_wire.types import MAX_TIMESTAMP, NULL_TIMESTAMP, TabletId, Timestamp

TIER_RATIO: Final = 4
"""Chunks of one tier differ in size by less than this factor."""
TIER_BYTES_MIN: Final = 1 << 20
"""All smaller chunks are in the lowest tier."""
TIER_CHUNKS_MAX: Final = 4
"""The number of chunks of one tier from which on they are compacted."""
LOOKED_AT_MAX: Final = 500
"""The most tablets whose chunks one tick looks at."""
CHUNKS_MAX: Final = 16
"""The most chunks of one compaction."""
GARBAGE_RATIO_MIN: Final = 0.1
"""The least part of garbage in a chunk's versions. With less, the chunk is not compacted alone."""
RETRY_AFTER_MS: Final = 30_000


class CompactionToken(NamedTuple):
    """The chunks of a tablet that are being compacted, and the terms."""

    tablet: TabletId
    chunks: tuple[AttachedChunk, ...]
    terms: Terms


class Compaction:
    """The compactions of a cell, one at a time. See the module."""

    def __init__(self, cell: Cell, outbox: Outbox, caching: Caching) -> None:
        self._cell = cell
        self._outbox = outbox
        self._caching = caching
        self._is_preparing = False
        """Whether chunks of the next compaction are on their way from the object store."""
        self._under_way: tuple[CompactionToken, int, Need] | None = None
        self._queue: deque[TabletId] = deque()
        """Tablets that were not looked at yet in this round."""
        self._looked_at: dict[TabletId, int] = {}
        self._cleaned: dict[int, None] = {}
        """Chunks that a cleaning has made. To clean them again would remove nothing."""
        self._round_at_us = 0
        self._retry_at_us = 0
        self.compacted_count = 0
        self.failed_count = 0

    def tick(self) -> None:
        """Begin the next compaction, if there is one and none is under way. Tablets take turns, so
        that a tablet with frequent writes does not keep others waiting."""
        if not self.is_quiet or self._cell.now.instant_us < self._retry_at_us:
            return
        if self._cell.room.disk_shortage is not None:
            return  # the free space is for flushes, which make the log shorter
        tablets, queue, now_us = self._cell.tablets, self._queue, self._cell.now.instant_us
        if not queue and now_us >= self._round_at_us:
            self._round_at_us = now_us + self._cell.limits.compaction_round_ms * 1000
            queue.extend(tablets)
            self._looked_at = {it: at for it, at in self._looked_at.items() if it in tablets}
        for _ in range(min(LOOKED_AT_MAX, len(queue))):
            tablet = tablets.get(queue.popleft())
            chosen = () if tablet is None else self._choose(tablet)
            if tablet is not None and chosen:
                self._begin(tablet, chosen)
                return

    def look_again(self) -> None:
        """Begin the next round as soon as this one is over, since there may be a new chunk."""
        self._round_at_us = 0

    @property
    def is_quiet(self) -> bool:
        return self._under_way is None and not self._is_preparing

    # The choice

    def _choose(self, tablet: Tablet) -> Sequence[TabletChunk]:
        settings = tablet.assignment.settings
        free = [it for it in tablet.stores.chunks if it.backing is None and it.view is not None]
        if not free or not settings.enable_compaction_and_partitioning:
            return ()
        if self._cell.fault_at(FaultPoint.COMPACT_EARLY):
            return free[:CHUNKS_MAX]
        tiers: dict[int, list[TabletChunk]] = {}
        for chunk in free:
            tiers.setdefault(tier_of(chunk.attached), []).append(chunk)
        for _, chunks in sorted(tiers.items()):
            if len(chunks) >= TIER_CHUNKS_MAX:
                return chunks[:CHUNKS_MAX]
        return self._worth_cleaning(tablet, free)

    def _worth_cleaning(self, tablet: Tablet, free: Sequence[TabletChunk]) -> Sequence[TabletChunk]:
        """Return chunks that may have garbage by now, looked for only once in a while. All their
        versions are below the retained timestamp, so garbage stays garbage. The result is several
        small chunks, which may hide each other's versions, expired chunks, or one chunk with much
        garbage."""
        now_us, number = self._cell.now.instant_us, tablet.assignment.tablet
        if now_us < self._looked_at.get(number, 0):
            return ()
        self._looked_at[number] = now_us + self._cell.limits.clean_period_ms * 1000
        terms = terms_of(self._cell, tablet)
        old = [it for it in free if newest_of(it.attached) < terms.retained]
        small = [it for it in old if tier_of(it.attached) == 0]
        if len(small) > 1:
            return small
        return (
            expired_chunks(tablet, old, terms)
            or [it for it in old if self._is_worth_cleaning(it.attached)][:1]
        )

    def _is_worth_cleaning(self, attached: AttachedChunk) -> bool:
        info = attached.info
        is_new = info.number not in self._cleaned
        return is_new and info.garbage_count > GARBAGE_RATIO_MIN * info.row_count

    # The compaction

    def _begin(self, tablet: Tablet, chosen: Sequence[TabletChunk]) -> None:
        """Bring the chosen chunks here, and then compact them."""
        self._is_preparing = True
        chunks = [it.view.chunk for it in chosen if it.view is not None]
        number, attached = tablet.assignment.tablet, {it.attached for it in chosen}
        run, give_up = (
            partial(self._run, number, attached),
            partial(self._give_up, number, attached),
        )
        self._caching.prepare(chunks, run, give_up)

    def _still(self, number: TabletId, attached: set[AttachedChunk]) -> list[TabletChunk]:
        """Return these chunks of a tablet, if it still has all of them."""
        tablet = self._cell.tablets.get(number)
        known = [] if tablet is None else tablet.stores.chunks
        chosen = [it for it in known if it.attached in attached]
        return chosen if len(chosen) == len(attached) else []

    def _give_up(self, number: TabletId, attached: set[AttachedChunk], failure: Failure) -> None:
        self._is_preparing = False
        if self._still(number, attached):
            self._note_failure(failure)

    def _run(self, number: TabletId, attached: set[AttachedChunk], need: Need) -> None:
        """Compact these chunks, if the tablet still has them."""
        self._is_preparing = False
        if chosen := self._still(number, attached):
            self._start(self._cell.tablets[number], chosen, need)
        else:
            self._caching.end(need)

    def _start(self, tablet: Tablet, chosen: Sequence[TabletChunk], need: Need) -> None:
        cell = self._cell
        major = tablet.stores.oldest_besides(*chosen)
        terms = terms_of(cell, tablet, major)
        attached = tuple([it.attached for it in chosen])
        views = tuple([it.view for it in chosen if it.view is not None])
        number = cell.chunks.take_number()
        token = CompactionToken(tablet.assignment.tablet, attached, terms)
        self._under_way = token, number, need
        self._outbox.send(RunJob(token, CompactionJob(number, tablet.schema, views, terms)))

    def handle(self, token: CompactionToken, result: Built | Failure | None) -> None:
        """Handle the end of a compaction. A result of None means that no version was left."""
        cell = self._cell
        assert self._under_way is not None
        assert self._under_way[0] == token
        _, number, need = self._under_way
        self._under_way = None
        self._caching.end(need)
        tablet = cell.tablets.get(token.tablet)
        if isinstance(result, Failure):
            self._note_failure(result)
            return
        if tablet is None or not self._is_still_right(tablet, token):
            if result is not None:
                self._outbox.send(RemoveChunks((number,)))
            return
        made: tuple[AttachedChunk, ...] = ()
        if result is not None:
            cell.chunks.add(number, result.chunk)
            made = (AttachedChunk(result.info),)
            if len(token.chunks) == 1:
                self._cleaned[number] = None
        record = ChunksCompacted(token.tablet, token.chunks, made, token.terms.retained)
        self._outbox.append(record)
        apply_compaction(cell, record, kept_from=_kept_from(token.terms))
        cell.chunks.note_released()
        self.compacted_count += 1

    def _note_failure(self, failure: Failure) -> None:
        self.failed_count += 1
        self._cell.chunks.note_failure(failure.message)
        self._retry_at_us = self._cell.now.instant_us + RETRY_AFTER_MS * 1000

    def progress(self) -> dict[str, int | str]:
        """Return the numbers of the compaction under way, or an empty dict if there is none."""
        if self._under_way is None:
            return {}
        token = self._under_way[0]
        tablet = self._cell.tablets.get(token.tablet)
        return {
            "table": "" if tablet is None else tablet.assignment.path,
            "chunks": len(token.chunks),
            "versions": sum(it.info.row_count for it in token.chunks),
            "bytes": sum(it.info.size_bytes for it in token.chunks),
        }

    def _is_still_right(self, tablet: Tablet, token: CompactionToken) -> bool:
        """Return whether the tablet still has the compacted chunks, and no reader looks further
        back."""
        attached = [it.attached for it in tablet.stores.chunks]
        are_right = are_still_right(self._cell, tablet, token.terms)
        return are_right and all(it in attached for it in token.chunks)


def expired_chunks(
    tablet: Tablet, old: Sequence[TabletChunk], terms: Terms
) -> Sequence[TabletChunk]:
    """Return chunks of which no version stays, if at least one of them goes as a whole. So no chunk
    is written again in vain. A chunk goes as a whole if no other store has anything older than its
    newest version. Chunks that overlap in time go together."""
    if terms.settings.min_data_versions > 0:
        return ()
    chosen = [it for it in old if newest_of(it.attached) < terms.expired][:CHUNKS_MAX]
    major = tablet.stores.oldest_besides(*chosen)
    return chosen if any(newest_of(it.attached) < major for it in chosen) else ()


def tier_of(attached: AttachedChunk) -> int:
    """Return the tier of a chunk: 0 for the smallest chunks, and one more for each `TIER_RATIO`."""
    tier, size_bytes = 0, attached.info.size_bytes
    while size_bytes >= TIER_BYTES_MIN:
        tier, size_bytes = tier + 1, size_bytes // TIER_RATIO
    return tier


def newest_of(attached: AttachedChunk) -> int:
    """Return the newest timestamp in a chunk."""
    return attached.info.max_timestamp or attached.stamp


def _kept_from(terms: Terms) -> Timestamp:
    """Return the timestamp from which on every row is the same before and after the compaction."""
    nothing_expires = terms.settings.min_data_versions > 0 or terms.expired == NULL_TIMESTAMP
    return terms.retained if nothing_expires else MAX_TIMESTAMP


def apply_compaction(
    cell: Cell, record: ChunksCompacted, kept_from: Timestamp = MAX_TIMESTAMP
) -> None:
    """Apply the changes of a compaction, live and in replay."""
    tablet = cell.tablets[record.tablet]
    tablet.stores.hot_rows.forget_below(kept_from)
    for attached in record.removed:
        tablet.stores.detach(attached)
    for attached in record.chunks:
        tablet.stores.attach(attached, cell.chunks.get(attached.info.number))
    cell.raise_retained(tablet, record.retained)
