"""Compute what a reader at a timestamp sees of versions, for many rows at a time.

Owns: which version gives the value of each column. The rules are those of `version`. A column has
its newest value that is newer than the newest deletion. Changes of aggregates are folded into the
value that they change. A row is there if any version is newer than the newest deletion.

Most rows need one version only: the newest is a deletion, or sets all wanted columns. For the
others, each column is looked up in one step for all rows. Only changes of aggregates are folded row
by row.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dodona_tablets.core.rows.chunks.layout import DELTA, KEY, MASK, TIMESTAMP
from dodona_tablets.core.rows.chunks.merging import Versions, merged, timestamps_of
from dodona_tablets.core.rows.chunks.vectors import Flags, Groups, Places, has_all, has_any, has_bit
from dodona_tablets.core.rows.version import bits_of, fold
from dodona_wire.rows.arrow import arrow_schema
from dodona_wire.rows.schema import Column, TableSchema
from dodona_wire.types import ASYNC_LAST_COMMITTED, NULL_TIMESTAMP, Timestamp

_NOWHERE: Final = -1


class Visibility:
    """What a reader asks for: some columns of the rows as of a timestamp, as if versions older than
    a second timestamp did not exist."""

    def __init__(
        self,
        schema: TableSchema,
        wanted: int,
        newest: Timestamp = ASYNC_LAST_COMMITTED,
        oldest: Timestamp = NULL_TIMESTAMP,
    ) -> None:
        """Take the request. `wanted` is a mask of value columns. Versions at `oldest` and at
        `newest` are seen, too."""
        self.schema = schema
        self.wanted = wanted
        self.newest = newest
        self.oldest = oldest
        self.arrow_schema: pa.Schema = arrow_schema(schema, wanted)
        """The schema of the rows that are seen: the key columns and the wanted columns."""
        self._folds = bool(schema.aggregate_mask & wanted)
        names = self.arrow_schema.names
        self._names = [KEY, *names, TIMESTAMP, MASK]
        self._all_names = [*self._names, DELTA] if self._folds else self._names
        self._output = [KEY, *names]

    def columns_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch in chunk layout that the reader needs."""
        has_deltas = self._folds and DELTA in batch.schema.names
        return batch.select(self._all_names if has_deltas else self._names)

    def rows_of(self, pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Return what the reader sees of the pieces of a window, or None if that is nothing. The
        pieces have the columns of `columns_of`. The result has the encoded keys as the first
        column, then the columns of `arrow_schema`. If the reader sees everything, nothing is
        copied."""
        in_sight = [it for piece in pieces if (it := self._in_sight(piece)).num_rows]
        return self._rows(merged(self.schema, in_sight)) if in_sight else None

    def _in_sight(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """Return the versions that are neither too new nor too old."""
        stamps = timestamps_of(piece)
        is_seen = stamps <= self.newest
        if self.oldest:
            is_seen &= stamps >= self.oldest
        return piece if is_seen.all() else piece.filter(pa.array(is_seen))

    def without_hidden(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return one key's versions without those that newer ones hide. They have the columns of
        `columns_of`."""
        batch = self._in_sight(batch)
        if not batch.num_rows:
            return batch
        settles = self._settles(Versions(self.schema, batch))
        return batch.slice(0, int(settles.argmax()) + 1) if settles.any() else batch

    def _settles(self, versions: Versions) -> Flags:
        """Return which versions settle their row: no older version is seen."""
        settles = versions.deletions | has_all(versions.masks, self.wanted)
        if self._folds and versions.deltas is not None:
            settles &= ~has_any(versions.deltas, self.wanted)
        return settles

    def _rows(self, versions: Versions) -> pa.RecordBatch | None:
        firsts = versions.groups.firsts
        is_settled = self._settles(versions)[firsts]
        if not is_settled.all():
            return self._pieced_together(versions, is_settled)
        places = firsts[~versions.deletions[firsts]]
        batch = versions.batch.select(self._output)
        if len(places) == len(versions) and versions.order is None:
            return batch
        return batch.take(pa.array(versions.rows_at(places))) if len(places) else None

    def _pieced_together(self, versions: Versions, is_settled: Flags) -> pa.RecordBatch:
        """Return rows of which some have their values from several versions."""
        groups = versions.groups
        is_there = ~is_settled | ~versions.deletions[groups.firsts]
        rows = versions.rows_at(groups.firsts[is_there])
        open_rows = _OpenRows(versions, ~is_settled)
        at = np.flatnonzero(~is_settled[is_there])
        batch, indices = versions.batch, pa.array(rows)
        columns = [batch.column(name).take(indices) for name in (KEY, *self.schema.key_names)]
        for bit in bits_of(self.wanted):
            column = self.schema.value_columns[bit]
            values, rows[at] = open_rows.newest(column, bit)
            columns.append(values.take(pa.array(rows, mask=rows == _NOWHERE)))
        return pa.RecordBatch.from_arrays(columns, names=self._output)


class _OpenRows:
    """The visible versions of the rows that have their values from several versions."""

    def __init__(self, versions: Versions, is_open: Flags) -> None:
        """Take the versions of these rows. `is_open` says for each group whether it is one of
        them."""
        self._versions = versions
        self._places: Places = np.flatnonzero(is_open[versions.groups.numbers])
        self._groups = Groups(versions.starts[self._places])
        deletions = versions.deletions[self._places]
        self._is_seen = ~deletions & (self._groups.counts_before(deletions) == 0)

    def newest(self, column: Column, bit: int) -> tuple[pa.Array, Places]:
        """Return where each row has its value of a column: an array of values, and each row's place
        in it."""
        versions, groups = self._versions, self._groups
        places = np.flatnonzero(has_bit(versions.masks[:, self._places], bit) & self._is_seen)
        numbers = groups.numbers[places]
        leads = _leads(numbers)
        found: Places = np.full(len(groups), _NOWHERE, np.intp)
        found[numbers[leads]] = versions.rows_at(self._places[places[leads]])
        values = versions.batch.column(column.name)
        if column.aggregate is None or versions.deltas is None:
            return values, found
        is_change = has_bit(versions.deltas[:, self._places[places]], bit)
        is_folded = np.zeros(len(groups), np.bool_)
        is_folded[numbers[leads]] = is_change[leads]
        if not is_folded.any():
            return values, found
        folded = self._folded(column, places, is_folded, is_change)
        found[is_folded] = len(values) + np.arange(len(folded))
        return pa.concat_arrays([values, folded]), found

    def _folded(
        self, column: Column, places: Places, is_folded: Flags, is_change: Flags
    ) -> pa.Array:
        """Fold these changes, for each row that has some, and return the values."""
        chosen = is_folded[self._groups.numbers[places]]
        places, is_change = places[chosen], is_change[chosen]
        numbers = self._groups.numbers[places]
        runs = Groups(_leads(numbers))
        kept = runs.counts_before(~is_change) == 0  # up to the newest plain value
        values = self._versions.batch.column(column.name)
        rows = self._versions.rows_at(self._places[places[kept]])
        changes: list[Any] = values.take(pa.array(rows)).to_pylist()
        ends = np.cumsum(runs.counts(kept)).tolist()
        starts = [0, *ends[:-1]]
        folded = [fold(column, changes[start:end]) for start, end in zip(starts, ends, strict=True)]
        return pa.array(folded, values.type)


def _leads(numbers: Places) -> Flags:
    """Return which of these rising numbers differ from the one before."""
    leads = np.ones(len(numbers), np.bool_)
    leads[1:] = numbers[1:] != numbers[:-1]
    return leads
