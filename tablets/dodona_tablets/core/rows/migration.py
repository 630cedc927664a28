"""Translate rows in memory from one schema to another, after a table was altered.

Owns: the translation of keys and versions from the old columns of a tablet to the new ones. It also
says which keys of an older schema, which are shorter, belong to a range. This module does not look
at locks. The caller takes a fence after a migration (rule 9 of
`docs/explanation/commit-protocol.md`), so no transaction holds a lock. The catalog only admits
changes that can be translated: see `definitions` there.
"""

from dodona_tablets.core.rows.store import DynamicStore
from dodona_tablets.core.rows.version import (
    Version,
    bits_of,
    chain_of,
    delta_mask_of,
    history,
    shared_groups_of,
    version_of,
)
from dodona_wire.messages.data import RowVersion
from dodona_wire.rows.keys import first_columns, null_suffix, successor
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import DELETE_MASK, KEY_MAX, Key, Timestamp


class Migration:
    """A translation from the columns of `old` to those of `new`, by name. New columns are null in
    all rows."""

    def __init__(self, old: TableSchema, new: TableSchema) -> None:
        assert new.key_names[: len(old.key_names)] == old.key_names, "key columns only get more"
        self._suffix = null_suffix(new.key_types[len(old.key_types) :])
        places = {column.name: bit for bit, column in enumerate(new.value_columns)}
        self._places = [places[name] for name in old.value_names]
        types = {column.name: column.type for column in new.value_columns}
        self._text_bits = [
            column.type == "utf8" and types[column.name] == "string" for column in old.value_columns
        ]
        self.is_needed = old.columns != new.columns
        self._keeps_values = self._places == [*range(len(self._places))] and not any(
            self._text_bits
        )

    def key(self, key: Key) -> Key:
        return Key(key + self._suffix)

    def version(self, version: Version) -> Version:
        """Return the same change of the row. Shared locks are dropped, since lock groups may differ
        now."""
        if not self.is_needed or (self._keeps_values and len(version) == 4):
            return version
        timestamp, mask, values = version[:3]
        deltas = self._mask(delta_mask_of(version))
        moved: dict[int, object] = {}
        for bit, value in zip(bits_of(mask), values, strict=True):
            is_text = self._text_bits[bit] and isinstance(value, str)
            moved[self._places[bit]] = value.encode() if is_text else value
        new_mask = self._mask(mask)
        new_values = tuple([moved[bit] for bit in bits_of(new_mask)])
        return version_of(timestamp, new_mask, new_values, None, deltas)

    def _mask(self, mask: int) -> int:
        return sum(1 << self._places[bit] for bit in bits_of(mask))

    def chain(self, newest: Version | None) -> Version | None:
        """Translate all versions of a row."""
        return chain_of([self.version(it) for it in history(newest)])

    def store(self, store: DynamicStore) -> DynamicStore:
        """Translate all rows of a store whose table was altered."""
        if not store.rows:
            return store
        migrated = DynamicStore(store.number)
        migrated.is_flushed = store.is_flushed
        for key, newest in store.rows.items():
            migrated.put(self.key(key), self.chain(newest))
        return migrated


def range_in(schema: TableSchema, lower: Key, upper: Key) -> tuple[Key, Key]:
    """Return a range of this schema's keys that has all keys that migrate into
    `lower ≤ key < upper`. It may have others: a bound may have values for key columns that this
    schema does not have yet. So the caller checks migrated keys again."""
    cut = _cut(upper, schema)
    return _cut(lower, schema), upper if cut == upper else successor(cut)


def _cut(bound: Key, schema: TableSchema) -> Key:
    """Return a bound without the values of columns that follow the schema's own key columns."""
    return bound if bound == KEY_MAX else first_columns(bound, schema.key_types)


def pack_version(schema: TableSchema, version: Version) -> RowVersion:
    """Return a version in the form in which cells send it."""
    return RowVersion(
        version[0],
        schema.pack_mask(version[1]),
        version[2],
        schema.pack_mask(delta_mask_of(version)),
        shared_groups_of(version),
        version[1] == DELETE_MASK,
    )


def plain_version(schema: TableSchema, packed: RowVersion) -> Version:
    """Return a received version in the form that it has in memory."""
    timestamp: Timestamp = packed.timestamp
    mask, deltas = schema.plain_mask(packed.column_mask), schema.plain_mask(packed.delta_mask)
    return version_of(timestamp, mask, packed.values, None, deltas, packed.shared_groups)
