"""When old versions go: a pass over all rows, a slice at a tick.

Owns: the pass's place, the retained timestamp of each pass, and what is logged of a slice. A slice
is bounded in rows and versions, so that nobody waits for it; writes do nothing for it. What may go
is `retention`'s to say, and replay does to the same keys the same again.

Invariant: the retained timestamp stays below every transaction that is alive here or could still
come, so that their snapshots, their conflicts and their commits all lie above it.
"""

from typing import Final

from dodona._core.effects import Append
from dodona.types import (
    NULL_TIMESTAMP,
    TIMESTAMP_COUNTER_BITS,
    Key,
    TableSettings,
    TabletId,
    Timestamp,
)
from dodona_tablets.core.cell import Cell
from dodona_tablets.core.records import VersionsRetired
from dodona_tablets.core.retention import STEP_VERSIONS_MAX, Terms, retire
from dodona_tablets.core.row import Row
from dodona_tablets.core.tablet import Tablet
from dodona_tablets.core.transaction import State

SLICE_ROWS_MAX: Final = 1_000
SLICE_VERSIONS_MAX: Final = 1_000


class Retirement:
    """Goes over one tablet after another, then rests."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._queue: list[TabletId] = []
        self._terms: Terms | None = None
        self._needed: Timestamp = NULL_TIMESTAMP
        self._place = 0
        self._rest_until_us: int | None = None

    def tick(self) -> None:
        """Do one slice. A cell that just started has other things to do first."""
        cell = self._cell
        if not self._queue:
            now_us, rest_us = cell.now.instant_us, cell.limits.retire_period_ms * 1000
            if self._rest_until_us is None:
                self._rest_until_us = now_us + rest_us
            elif now_us >= self._rest_until_us:
                self._rest_until_us = now_us + rest_us
                self._queue = list(cell.tablets)
            return
        tablet = cell.tablets.get(self._queue[0])
        if tablet is None or not is_in_service(tablet) or not self._take(tablet):
            self._queue.pop(0)
            self._terms = None

    def _take(self, tablet: Tablet) -> bool:
        """One slice of this tablet. Returns whether there may be more."""
        if self._terms is None:
            self._place = 0
            self._needed = self._oldest_needed()
            self._terms = self._terms_of(tablet.assignment.settings)
        retained, expired, settings = self._terms
        keys, is_more = self._retire_slice(tablet, self._terms)
        if keys:
            number = tablet.assignment.tablet
            record = VersionsRetired(number, retained, expired, settings, tuple(keys))
            self._cell.effects.append(Append(record))
            tablet.retained_timestamp = max(tablet.retained_timestamp, retained)
        return is_more

    def _oldest_needed(self) -> Timestamp:
        """Below lies nothing that a transaction may read, meet or write, alive here or still to
        come, even one with a clock that is behind."""
        cell, limits = self._cell, self._cell.limits
        life_s = max(limits.transaction_life_s_max, limits.client_clock_difference_s_max)
        needed = cell.latest - (life_s + limits.forget_slack_s << TIMESTAMP_COUNTER_BITS)
        alive = [it.id - 1 for it in cell.transactions.values() if it.state is not State.COMMITTED]
        return Timestamp(min([needed, *alive]))

    def _terms_of(self, settings: TableSettings) -> Terms:
        young = self._cell.latest - _ticks(settings.min_data_ttl)
        expired = self._needed - _ticks(settings.max_data_ttl)
        return Terms(Timestamp(min(self._needed, young)), Timestamp(expired), settings)

    def _retire_slice(self, tablet: Tablet, terms: Terms) -> tuple[list[Key], bool]:
        store, columns = tablet.store, tablet.schema.value_columns
        keys: list[Key] = []
        rows_left, versions_left = SLICE_ROWS_MAX, SLICE_VERSIONS_MAX
        while rows_left > 0 and versions_left > 0:
            rows_left -= 1
            key = store.key_at(self._place)
            if key is None:
                return keys, False
            row = store.rows[key]
            is_long = len(row.versions) > STEP_VERSIONS_MAX
            if row.versions and row.versions[0][0] < terms.retained:
                versions_left -= min(len(row.versions), STEP_VERSIONS_MAX)
                if retire(row.versions, terms, columns):
                    keys.append(key)
                    if is_long:
                        continue  # there may be more to do
            if _is_forgotten(row, self._needed):
                store.remove_at(self._place)
            else:
                self._place += 1
        return keys, True


def is_in_service(tablet: Tablet) -> bool:
    return tablet.is_mounted and not tablet.is_closing and tablet.fence != NULL_TIMESTAMP


def _is_forgotten(row: Row, needed: Timestamp) -> bool:
    """Whether nobody could tell this row from one that never was. Old lock times go meanwhile."""
    times = row.lock_times
    if times is not None and all(max(it.values()) <= needed for it in times.values()):
        row.lock_times = None
    return not row.versions and row.holders is None and row.lock_times is None


def _ticks(milliseconds: int) -> int:
    return (milliseconds << TIMESTAMP_COUNTER_BITS) // 1000
