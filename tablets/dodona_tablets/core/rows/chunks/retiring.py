"""Apply retention to many rows at a time.

Owns: what `retention.retire_all` does to one row, done to a window of versions, with the same
result. `retention` states the rules, and tests compare the two. The work goes column by column, and
looks only at which versions set the column. Columns that the same versions set are decided
together. `retire_all` gets the rows with changes of aggregates below the retained timestamp, one by
one.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import DELTA, KEY, MASK, SHARED, TIMESTAMP
from dodona_tablets.core.rows.chunks.merging import Versions
from dodona_tablets.core.rows.chunks.vectors import (
    Flags,
    Places,
    clear_bit,
    has_any_bit,
    has_bit,
    masks_of,
)
from dodona_tablets.core.rows.retention import COUNTED_VERSIONS_MAX, Terms, retire_all
from dodona_tablets.core.rows.version import (
    Version,
    bits_of,
    delta_mask_of,
    shared_groups_of,
    version_of,
)
from dodona_wire.types import MAX_TIMESTAMP


def retired(versions: Versions, terms: Terms) -> pa.RecordBatch:
    """Return what the terms leave of these versions, in order. The versions are all that the caller
    has of their rows. If all of them stay, and are in order, nothing is copied."""
    window = _Window(versions, terms)
    if window.stays_whole:
        return versions.in_order()
    by_hand = window.rows_by_hand()
    left, numbers = window.left(~by_hand)
    if not by_hand.any():
        return left
    others, other_numbers = _retired_one_by_one(versions, terms, by_hand)
    order = np.argsort(np.concatenate([numbers, other_numbers]), kind="stable")
    return pa.concat_batches([left, others]).take(pa.array(order))


class _Window:
    """The versions under the terms. Flags are in the order of versions."""

    def __init__(self, versions: Versions, terms: Terms) -> None:
        stamps = versions.timestamps
        self._versions = versions
        self._terms = terms
        self._is_old = stamps < terms.retained
        self._is_fresh = stamps >= terms.expired
        self._is_known = stamps < terms.major
        self._decided: dict[tuple[bytes, bool], Flags] = {}

    @cached_property
    def stays_whole(self) -> bool:
        """Whether a quick check shows that nothing changes."""
        versions, is_old = self._versions, self._is_old
        if not is_old.any():
            return True
        if (
            (versions.deletions & is_old).any()
            or versions.has_specials
            or not versions.starts.all()
        ):
            return False
        may_stay = self._is_fresh | ~self._is_known | ~is_old
        return self._terms.settings.min_data_versions > 0 or bool(may_stay.all())

    def rows_by_hand(self) -> Flags:
        """Return all versions of the rows with old changes of aggregates."""
        versions = self._versions
        if versions.deltas is None:
            return np.zeros(len(versions), np.bool_)
        changed = has_any_bit(versions.deltas) & self._is_old
        groups = versions.groups
        found: Flags = (groups.counts(changed) > 0)[groups.numbers]
        return found

    def left(self, chosen: Flags) -> tuple[pa.RecordBatch, Places]:
        """Return what stays of the chosen versions, and the group of each."""
        versions, schema = self._versions, self._versions.schema
        masks, dropped = self._without_dropped_values()
        places = np.flatnonzero(self._stays(has_any_bit(masks)) & chosen)
        rows = versions.rows_at(places)
        indices = dict.fromkeys(versions.batch.schema.names, pa.array(rows))
        for bit, is_dropped in dropped.items():
            indices[schema.value_names[bit]] = pa.array(rows, mask=is_dropped[places])
        columns = {name: versions.batch.column(name).take(at) for name, at in indices.items()}
        if dropped:
            columns[MASK] = masks_of(schema, masks[:, places])
        if SHARED in columns:  # old shared locks are forgotten
            shared = columns[SHARED].to_numpy()
            columns[SHARED] = pa.array(np.where(self._is_old[places], np.uint64(0), shared))
        left = pa.RecordBatch.from_arrays(list(columns.values()), schema=versions.batch.schema)
        return left, versions.groups.numbers[places]

    def _without_dropped_values(self) -> tuple[Any, dict[int, Flags]]:
        """Return the masks without the values that go, and, by column, the versions that lose the
        value."""
        versions = self._versions
        masks = versions.masks.copy()
        dropped: dict[int, Flags] = {}
        for bit, column in enumerate(versions.schema.value_columns):
            has = has_bit(versions.masks, bit)
            goes = self._goes(has, column.aggregate is not None)
            if goes.any():
                clear_bit(masks, bit, goes)
                dropped[bit] = goes
        return masks, dropped

    def _goes(self, has: Flags, is_aggregate: bool) -> Flags:
        """Return which of the versions that set a column lose its value."""
        name = has.tobytes(), is_aggregate
        known = self._decided.get(name)
        if known is None:
            known = self._decided[name] = has & self._is_old & ~self._is_kept(has, is_aggregate)
        return known

    def _is_kept(self, has: Flags, is_aggregate: bool) -> Flags:
        """Return which values stay, by the rules of `retention`, for versions without changes of
        aggregates."""
        settings, groups = self._terms.settings, self._versions.groups
        least, most = settings.min_data_versions, settings.max_data_versions
        counts = has | self._versions.deletions
        place = groups.counts_before(counts & self._is_old)
        may_be_base = self._has_younger if is_aggregate else False
        is_needed = (place == 0) & (self._is_fresh | ~self._is_known | may_be_base)
        is_kept: Flags = (place < least) | is_needed
        if most > least:
            younger = groups.counts(counts & self._is_counted)[groups.numbers]
            is_kept |= self._is_fresh & (place + younger < most)
        return is_kept

    @cached_property
    def _has_younger(self) -> Flags:
        """Which versions belong to rows that have, or may have elsewhere, versions that are not
        old."""
        groups = self._versions.groups
        is_alone = groups.counts(~self._is_old) == 0
        found: Flags = ~is_alone[groups.numbers] | (self._terms.major < MAX_TIMESTAMP)
        return found

    @cached_property
    def _is_counted(self) -> Flags:
        """The younger versions that count: the oldest ones, COUNTED_VERSIONS_MAX of a row at
        most."""
        groups, is_young = self._versions.groups, ~self._is_old
        left = groups.counts(is_young)[groups.numbers] - groups.counts_before(is_young)
        found: Flags = is_young & (left <= COUNTED_VERSIONS_MAX)
        return found

    def _stays(self, has_values: Flags) -> Flags:
        """Return which versions stay, given which have values left. A deletion stays only for older
        versions, here or perhaps elsewhere."""
        versions, groups, is_old = self._versions, self._versions.groups, self._is_old
        deletions = versions.deletions & is_old
        left = has_values & is_old
        has_older = groups.counts(left)[groups.numbers] - groups.counts_before(left) > 0
        is_newest = groups.counts_before(deletions) == 0
        is_needed: Flags = deletions & (has_older | (is_newest & ~self._is_known))
        return ~is_old | left | is_needed


# ---- rows with changes of aggregates


def _retired_one_by_one(
    versions: Versions, terms: Terms, chosen: Flags
) -> tuple[pa.RecordBatch, Places]:
    """Return the remaining versions of the rows of these versions, and the group of each
    version."""
    columns = versions.schema.value_columns
    firsts: list[int] = []
    left: list[Version] = []
    for first, row in _rows_of(versions, np.flatnonzero(chosen)):
        retire_all(row, terms, columns)
        left += reversed(row)
        firsts += [first] * len(row)
    places = np.array(firsts, np.intp)
    return _batch_of(versions, left, places), versions.groups.numbers[places]


def _rows_of(versions: Versions, places: Places) -> Iterator[tuple[int, list[Version]]]:
    """Yield rows, each with the place of its newest version, and its versions from the oldest one
    on. Values of `any` stay bytes."""
    schema, starts = versions.schema, versions.starts[places].tolist()
    batch = versions.batch.take(pa.array(versions.rows_at(places)))
    marks = [batch.column(name).to_pylist() for name in (TIMESTAMP, MASK, DELTA, SHARED)]
    values = [batch.column(name).to_pylist() for name in schema.value_names]
    row: list[Version] = []
    last = len(starts) - 1
    for at in range(last, -1, -1):
        timestamp, mask, deltas, shared = (column[at] for column in marks)
        plain = schema.plain_mask(mask)
        given = tuple([values[bit][at] for bit in bits_of(plain)])
        row.append(version_of(timestamp, plain, given, None, schema.plain_mask(deltas), shared))
        if starts[at]:
            yield int(places[at]), row
            row = []


def _batch_of(versions: Versions, left: list[Version], places: Places) -> pa.RecordBatch:
    """Return versions as a batch. Each gets its key from the version in the same place of
    `places`."""
    schema, rows = versions.schema, pa.array(versions.rows_at(places))
    types = {field.name: field.type for field in versions.batch.schema}
    columns = [versions.batch.column(name).take(rows) for name in (KEY, *schema.key_names)]
    spread = [dict(zip(bits_of(it[1]), it[2], strict=True)) for it in left]
    columns += [
        pa.array([values.get(bit) for values in spread], types[name])
        for bit, name in enumerate(schema.value_names)
    ]
    columns += [
        pa.array([it[0] for it in left], pa.uint64()),
        pa.array([schema.pack_mask(it[1]) for it in left], types[MASK]),
        pa.array([schema.pack_mask(delta_mask_of(it)) for it in left], types[DELTA]),
        pa.array(map(shared_groups_of, left), pa.uint64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=versions.batch.schema)
