"""What one transaction does to one table, in the client that holds it. Pure.

Owns: the writes, the locks without data, and the result of more than one write of a key.
Invariants: each key has at most one write. Every write was checked against the table's schema. Only
written keys have an entry in `special`, and only if something is special about them.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from dodona_wire.messages.conditions import RowCondition
from dodona_wire.rows.aggregates import combine
from dodona_wire.rows.schema import TableSchema
from dodona_wire.rows.sizes import VALUE_BYTES, write_bytes
from dodona_wire.types import DELETE_MASK, Key, LockType, Write

Special = tuple[int, int]
"""Two masks: the columns whose value is a change of an aggregate, and the lock groups with a
`shared_write` lock."""

ORDINARY: Final[Special] = (0, 0)


class Changes(msgspec.Struct):
    """What one call adds to a buffer. `row_count` is how many more rows are then written or locked.
    `size_bytes` is about how many more bytes a message needs, and never too few."""

    writes: dict[Key, Write] = {}
    special: dict[Key, Special] = {}
    locks: dict[Key, dict[LockType, int]] = {}
    row_count: int = 0
    size_bytes: int = 0


class TableBuffer:
    """The writes and locks of one table, by encoded key."""

    __slots__ = ("conditions", "locks", "schema", "special", "writes")

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.writes: dict[Key, Write] = {}
        self.special: dict[Key, Special] = {}
        self.locks: dict[Key, dict[LockType, int]] = {}
        """The lock groups of each key, by lock type. No mask is zero."""
        self.conditions: dict[Key, RowCondition] = {}
        """What must hold for rows at the commit, also for rows that are not written."""

    def after_special_writes(
        self, writes: Iterable[Write], delta_mask: int, is_shared: bool
    ) -> Changes:
        """Return the changes that these writes make to the buffer. Columns in `delta_mask` were
        given as changes."""
        changes = Changes()
        for write in writes:
            key = write[0]
            special = _special_of(self.schema, write, delta_mask, is_shared)
            known = changes.writes.get(key) or self.writes.get(key)
            if known is not None:
                known_special = changes.special.get(key) or self.special.get(key, ORDINARY)
                changes.size_bytes -= write_bytes(known) + _special_bytes(key, known_special)
                write, special = merge_special(self.schema, known, known_special, write, special)
            elif key not in self.locks:
                changes.row_count += 1
            changes.size_bytes += write_bytes(write) + _special_bytes(key, special)
            changes.writes[key] = write
            changes.special[key] = special
        return changes

    def after_locks(self, keys: Iterable[Key], lock_mask: int, lock_type: LockType) -> Changes:
        """Return the changes that locks of these keys make to the buffer."""
        changes = Changes()
        for key in keys:
            known = changes.locks.get(key) or self.locks.get(key, {})
            if not known and key not in self.writes:
                changes.row_count += 1
            if lock_type not in known:
                changes.size_bytes += len(key) + 5 * VALUE_BYTES
            changes.locks[key] = {**known, lock_type: known.get(lock_type, 0) | lock_mask}
        return changes

    def take(self, changes: Changes) -> None:
        """Make the changes part of the buffer."""
        self.writes.update(changes.writes)
        self.locks.update(changes.locks)
        for key, special in changes.special.items():
            if special != ORDINARY:
                self.special[key] = special
            else:
                self.special.pop(key, None)


def _special_of(schema: TableSchema, write: Write, delta_mask: int, is_shared: bool) -> Special:
    mask = write[1]
    if mask == DELETE_MASK:
        return ORDINARY
    return mask & delta_mask, schema.lock_mask(mask) if is_shared else 0


def merge(schema: TableSchema, old: Write, new: Write) -> Write:
    """Merge two writes of one key.

    Writes merge column by column. A deletion replaces all writes before it. A write after a
    deletion sets every column: the columns that it does not name become null.
    """
    key, mask, values = new
    old_mask, old_values = old[1], old[2]
    if mask in (DELETE_MASK, schema.full_mask) or mask == old_mask:
        return new
    if old_mask == DELETE_MASK:
        old_mask, old_values = schema.full_mask, (None,) * len(schema.value_columns)
    by_bit = dict(zip(bits_of(old_mask), old_values, strict=True))
    by_bit.update(zip(bits_of(mask), values, strict=True))
    return key, old_mask | mask, tuple([by_bit[bit] for bit in sorted(by_bit)])


def merge_special(
    schema: TableSchema, old: Write, old_special: Special, new: Write, new_special: Special
) -> tuple[Write, Special]:
    """Merge two writes of one key as `merge` does, if one of them is special.

    A change is combined with the change or the plain value before it. After a deletion there is
    nothing to change, so the change becomes the value. If one of the two locks a group exclusively,
    the result does. A deletion is exclusive.
    """
    old_mask, mask = old[1], new[1]
    if mask == DELETE_MASK:
        return new, ORDINARY
    if old_mask == DELETE_MASK:
        return merge(schema, old, new), ORDINARY
    (old_deltas, old_shared), (deltas, shared) = old_special, new_special
    changed = old_mask & deltas
    if changed:
        new = _combined(schema, old, new, changed)
    plain = old_mask & ~old_deltas | mask & ~deltas
    exclusive = schema.lock_mask(old_mask) & ~old_shared | schema.lock_mask(mask) & ~shared
    special = (old_deltas | deltas) & ~plain, (old_shared | shared) & ~exclusive
    return merge(schema, old, new), special


def _combined(schema: TableSchema, old: Write, new: Write, changed: int) -> Write:
    """Return the new write, with its changes to these columns applied to the old values."""
    key, mask, values = new
    before = dict(zip(bits_of(old[1]), old[2], strict=True))
    columns = schema.value_columns
    combined = [
        combine(columns[bit], before[bit], value) if changed >> bit & 1 else value
        for bit, value in zip(bits_of(mask), values, strict=True)
    ]
    return key, mask, tuple(combined)


def bits_of(mask: int) -> list[int]:
    """Return the places of the bits that are set, lowest first."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _special_bytes(key: Key, special: Special) -> int:
    if special == ORDINARY:
        return 0
    return len(key) + 4 * VALUE_BYTES + (special[0].bit_length() >> 3)
