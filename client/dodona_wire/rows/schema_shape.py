"""The shape of a schema: its columns by place, and the masks of columns and locks.

Owns: the order and the number of columns, and the meaning of each bit of a mask. `schema` adds the
rows. Imports no clock and no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self, cast

import msgspec

from dodona_wire.errors import InvalidRequest, SchemaViolation
from dodona_wire.rows.columns import (
    KEY_COLUMNS_MAX,
    LOCK_GROUPS_MAX,
    MAIN_LOCK,
    MAIN_LOCK_MASK,
    PLAIN_COLUMNS_MAX,
    RESERVED_PREFIXES,
    VALUE_COLUMNS_MAX,
    Column,
    check_key_column,
    check_name,
    check_value_column,
    kind_of,
    parse_column,
)
from dodona_wire.shown import named, shown
from dodona_wire.types import DELETE_MASK, WireMask, WireWrite, Write


class SchemaShape(msgspec.Struct, frozen=True, dict=True):
    """A checked list of columns."""

    columns: tuple[Column, ...]
    """Key columns first, in their order."""

    @classmethod
    def parse(cls, columns: "Iterable[Column | Mapping[str, Any]] | SchemaShape") -> Self:
        """Check a schema that a user gives. Raises SchemaViolation with the reason."""
        if isinstance(columns, SchemaShape):
            columns = columns.columns
        if isinstance(columns, str | bytes | Mapping) or not isinstance(columns, Iterable):
            raise SchemaViolation(f"a schema is a list of columns, not one {kind_of(columns)}")
        schema = cls(tuple([parse_column(place, it) for place, it in enumerate(columns)]))
        schema._check()
        return schema

    def _check(self) -> None:
        self._check_names()
        self._check_order()
        for column in self.key_columns:
            check_key_column(column)
        for column in self.value_columns:
            check_value_column(column)
        if len(self.lock_names) > LOCK_GROUPS_MAX:
            raise SchemaViolation(f"more than {LOCK_GROUPS_MAX} lock groups, main included")

    def _check_names(self) -> None:
        known: dict[str, Column] = {}
        for column in self.columns:
            name = column.name
            check_name("a column name", name, name)
            if name.startswith(RESERVED_PREFIXES):
                raise SchemaViolation("a column name can't begin with $ or @", column=name)
            if known.setdefault(name, column) is not column:
                raise SchemaViolation("two columns have the same name", column=name)

    def _check_order(self) -> None:
        if any(c.sort_order for c in self.columns[len(self.key_columns) :]):
            raise SchemaViolation("key columns must come before all others")
        if not self.key_columns:
            text = (
                "a sorted table needs a key column: one with sort_order='ascending' or 'descending'"
            )
            raise SchemaViolation(text)
        if not self.value_columns:
            raise SchemaViolation("a table needs at least one column that is not a key column")
        if len(self.key_columns) > KEY_COLUMNS_MAX or len(self.value_columns) > VALUE_COLUMNS_MAX:
            raise SchemaViolation(
                f"at most {KEY_COLUMNS_MAX} key and {VALUE_COLUMNS_MAX} value columns are allowed"
            )

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        count = 0
        while count < len(self.columns) and self.columns[count].sort_order is not None:
            count += 1
        return self.columns[:count]

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        return self.columns[len(self.key_columns) :]

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.key_columns)

    @cached_property
    def value_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.value_columns)

    @cached_property
    def full_mask(self) -> int:
        """The mask of all value columns: an overwriting insert sets them all."""
        return (1 << len(self.value_columns)) - 1

    @cached_property
    def aggregate_mask(self) -> int:
        """The mask of the value columns that aggregate."""
        return sum(1 << bit for bit, column in enumerate(self.value_columns) if column.aggregate)

    @cached_property
    def lock_names(self) -> tuple[str, ...]:
        """The lock groups in schema order; the main lock is first."""
        locks = (column.lock for column in self.value_columns)
        return tuple(dict.fromkeys([MAIN_LOCK, *(lock for lock in locks if lock is not None)]))

    @cached_property
    def lock_mask_all(self) -> int:
        return (1 << len(self.lock_names)) - 1

    @cached_property
    def _lock_masks(self) -> dict[int, int]:
        return {DELETE_MASK: MAIN_LOCK_MASK}

    def lock_mask(self, column_mask: int) -> int:
        """Return the lock groups that a write of these columns takes; a deletion takes main."""
        known = self._lock_masks.get(column_mask)
        if known is None:
            known = 0
            for bit, column in enumerate(self.value_columns):
                if column_mask >> bit & 1:
                    known |= 1 << self.lock_names.index(column.lock or MAIN_LOCK)
            if len(self._lock_masks) < 4096:  # masks come from outside: keep the cache bounded
                self._lock_masks[column_mask] = known
        return known

    def check_mask(self, lock_mask: int) -> int:
        """Return the groups that a holder of `lock_mask` must check: main always, all for main."""
        return self.lock_mask_all if lock_mask & MAIN_LOCK_MASK else lock_mask | MAIN_LOCK_MASK

    def lock_mask_of(self, names: Sequence[str] | None) -> int:
        """Return the lock groups of these names; the main lock for None. Raises InvalidRequest on
        an unknown name, and on "<primary>", because no caller may name the main lock."""
        if names is None:
            return MAIN_LOCK_MASK
        if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
            raise InvalidRequest(f"pass locks as a list of names, not as one {kind_of(names)}")
        mask = 0
        for name in names:
            if name not in self.lock_names[1:]:
                raise InvalidRequest(f'Lock group "{named(name)}" not found in schema', lock=name)
            mask |= 1 << self.lock_names.index(name)
        return mask

    def column_mask(self, names: Sequence[str] | None) -> int:
        """Return the value columns in `names`; all for None. Raises SchemaViolation on others."""
        if names is None:
            return self.full_mask
        mask = 0
        for name in names:
            if name in self.value_names:
                mask |= 1 << self.value_names.index(name)
            elif name not in self.key_names:
                raise SchemaViolation(f"no such column: {shown(name)}", column=name)
        return mask

    # Masks of wide tables, which do not fit the numbers of the wire

    @cached_property
    def is_wide(self) -> bool:
        """Whether column masks travel as bytes."""
        return len(self.value_columns) > PLAIN_COLUMNS_MAX

    def pack_mask(self, mask: int) -> WireMask:
        """Return a column mask in the form of the wire."""
        return mask.to_bytes((mask.bit_length() + 7) // 8, "little") if self.is_wide else mask

    def plain_mask(self, mask: WireMask) -> int:
        """Return a column mask from the wire. Raises SchemaViolation if it does not fit."""
        if isinstance(mask, bytes):
            mask = int.from_bytes(mask[: VALUE_COLUMNS_MAX // 8 + 1], "little")
        if not 0 <= mask <= self.full_mask:
            raise SchemaViolation("a column mask does not fit its table")
        return mask

    def pack_writes(self, writes: Iterable[Write]) -> tuple[WireWrite, ...]:
        """Return writes in the form of the wire."""
        if not self.is_wide:
            return tuple(writes)
        return tuple([(key, self.pack_mask(mask), values) for key, mask, values in writes])

    @cached_property
    def plain_writes(self) -> Callable[[Sequence[WireWrite]], Sequence[Write]]:
        """Returns writes that came over the wire. `check_write` checks their masks, or did so
        before. If masks travel as numbers, a tuple stays as it is, at no cost."""
        return self._plain_writes if self.is_wide else cast("Any", tuple)

    def _plain_writes(self, writes: Sequence[WireWrite]) -> Sequence[Write]:
        return [(key, self.plain_mask(mask), values) for key, mask, values in writes]

    def columns_of(self, mask: int) -> tuple[Column, ...]:
        """Return the value columns of a mask, in schema order."""
        if mask == self.full_mask:
            return self.value_columns
        return tuple(c for bit, c in enumerate(self.value_columns) if mask >> bit & 1)
