"""Translate a chunk's columns to those that its table has today, in whole blocks.

Owns: which column of a file is which column of the table, and what becomes of keys, values and
masks. The rules are those of `migration`, which does the same for single versions in memory. New
columns are null, and key columns are added at the end. Value columns may be in another order, and
text may have become bytes. This module never looks at single rows.
"""

import pyarrow as pa
import pyarrow.compute as pc

from dodona_tablets.core.rows.chunks.layout import DELTA, KEY, MASK, SHARED, chunk_schema
from dodona_tablets.core.rows.chunks.reading import Plans
from dodona_wire.rows.keys import null_suffix
from dodona_wire.rows.schema import TableSchema


class Mapping:
    """A translation from the columns of `old`, a chunk's, to those of `new`, its tablet's."""

    def __init__(self, old: TableSchema, new: TableSchema, *, has_specials: bool) -> None:
        self._old, self._new = old, new
        self.is_needed = old.columns != new.columns
        self.suffix = null_suffix(new.key_types[len(old.key_types) :])
        """The bytes that keys of the file lack."""
        self.schema = chunk_schema(new, "special" if has_specials else "plain")
        """The schema of all batches."""
        self.file_schema = chunk_schema(old, "plain")
        places = {column.name: bit for bit, column in enumerate(new.value_columns)}
        moved = [places[name] for name in old.value_names]
        self._keeps_masks = new.is_wide == old.is_wide and moved == [*range(len(moved))]
        self.plans = Plans(moved)
        """The translation of masks."""
        types = {column.name: column.type for column in new.columns}
        self.value_types = [types[name] for name in old.value_names]
        """Today's type of each value column of the file."""

    def full_masks(self, count: int) -> pa.Array:
        """Return the masks of `count` writes of all columns of the file."""
        mask = self._old.pack_mask(self._old.full_mask)
        return pa.repeat(pa.scalar(mask, self.file_schema.field(MASK).type), count)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Translate a batch with the file's columns and all marks to one with today's columns."""
        if not self.is_needed:
            return batch
        known = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns = [
            self._column(field, known[field.name])
            if field.name in known
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, field: pa.Field, array: pa.Array) -> pa.Array:
        if field.name == KEY:
            return self._longer(array)
        if field.name in (MASK, DELTA):
            return self._masks(field, array)
        if field.name == SHARED:  # lock groups may differ now
            return pa.repeat(pa.scalar(0, field.type), len(array))
        return array if array.type == field.type else array.cast(field.type)

    def _longer(self, keys: pa.Array) -> pa.Array:
        if not self.suffix:
            return keys
        return pc.binary_join_element_wise(keys, self.suffix, b"")

    def _masks(self, field: pa.Field, masks: pa.Array) -> pa.Array:
        if self._keeps_masks:
            return masks
        known = masks.dictionary_encode()
        plain = map(self._old.plain_mask, known.dictionary.to_pylist())
        mapped = [self._new.pack_mask(self.plans[mask][0]) for mask in plain]
        return pa.array(mapped, field.type).take(known.indices)
