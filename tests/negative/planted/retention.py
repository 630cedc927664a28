"""Bugs of retention: rows that never go, and rows that go too early."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from dodona.types import MAX_TIMESTAMP, Timestamp, Write
from dodona_tablets.core.cell.cell import Cell
from dodona_tablets.core.rows.retention import Terms
from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.stores import TabletChunk
from dodona_tablets.core.tablet.tablet import Tablet
from dodona_tablets.core.upkeep import compaction, flushing
from dodona_tablets.core.upkeep.compaction import CHUNKS_MAX, newest_of
from dodona_tablets.core.upkeep.horizon import oldest_needed, terms_of
from negative.bug import PlantedBug, Where

QUIET: Final[dict[str, Any]] = {
    "session_life_us_mean": 0,
    "commit_death_rate": 0.0,
    "faults": (),
}
RETENTION: Final = Where("retention", seconds=15, changes=QUIET)


def take_a_lock_for_a_row(patch: pytest.MonkeyPatch) -> None:
    """A commit that writes no row leaves its timestamp in the empty store. Retention takes it for
    an older version of each row, and never finds a history whole. A chunk whose rows have all
    expired is written again, whatever is left of it."""
    apply = DynamicStore.apply

    def planted(
        self: DynamicStore,
        writes: Sequence[Write],
        timestamp: Timestamp,
        size_bytes: int,
        marks: Any = None,
    ) -> None:
        apply(self, writes, timestamp, size_bytes, marks)
        if not writes and not self._is_ghost:
            self._count(0, size_bytes, timestamp, timestamp)

    patch.setattr(DynamicStore, "apply", planted)
    patch.setattr(compaction, "expired_chunks", whatever_is_left)


def whatever_is_left(_: Tablet, old: Sequence[TabletChunk], terms: Terms) -> Sequence[TabletChunk]:
    if terms.settings.min_data_versions > 0:
        return ()
    return [it for it in old if newest_of(it.attached) < terms.expired][:CHUNKS_MAX]


def never_find_it_whole(patch: pytest.MonkeyPatch) -> None:
    """As if each chunk had something older beside it: all of it stays, each time anew."""
    patch.setattr(Terms, "kept_for", lambda terms, _: terms._replace(major=Timestamp(1)))
    patch.setattr(compaction, "expired_chunks", whatever_is_left)


def let_go_at_once(patch: pytest.MonkeyPatch) -> None:
    """What no transaction needs has expired, however young the table's settings let it be."""

    def planted(cell: Cell, tablet: Tablet, major: Timestamp = MAX_TIMESTAMP) -> Terms:
        return terms_of(cell, tablet, major)._replace(expired=oldest_needed(cell))

    for module in (compaction, flushing):
        patch.setattr(module, "terms_of", planted)


BUGS = (
    PlantedBug(
        None,
        "commits that only lock, and loads, keep rows from expiring",
        take_a_lock_for_a_row,
        ("LIVENESS",),
        RETENTION,
    ),
    PlantedBug(
        None,
        "chunks that have expired are written again and again",
        never_find_it_whole,
        ("LIVENESS",),
        RETENTION,
    ),
    PlantedBug(
        None,
        "rows expire as soon as no transaction needs them",
        let_go_at_once,
        ("INVARIANT",),
        RETENTION,
    ),
)
