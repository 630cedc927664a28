"""The schema of a table, and the translation between a user's rows and writes.

Owns: the compiled schema, and the checks of whole rows. `columns` has the checks of columns,
`values` and `logical_values` those of single values. The client runs the checks early, with names,
and makes stored values of a user's values. The node has the schema `stored`, whose values are
stored values, and runs the checks again, because it does not trust clients. A value column's place
among the value columns is its bit in a column mask. A lock group's place is its bit in a lock mask,
and bit 0 is the main lock. Imports no clock and no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import msgspec

from dodona_wire.errors import DataCorrupted, SchemaViolation
from dodona_wire.rows.columns import AGGREGATE_TYPES as AGGREGATE_TYPES
from dodona_wire.rows.columns import KEY_COLUMNS_MAX as KEY_COLUMNS_MAX
from dodona_wire.rows.columns import LOCK_GROUPS_MAX as LOCK_GROUPS_MAX
from dodona_wire.rows.columns import MAIN_LOCK as MAIN_LOCK
from dodona_wire.rows.columns import MAIN_LOCK_MASK as MAIN_LOCK_MASK
from dodona_wire.rows.columns import NAME_LENGTH_MAX as NAME_LENGTH_MAX
from dodona_wire.rows.columns import PLAIN_COLUMNS_MAX as PLAIN_COLUMNS_MAX
from dodona_wire.rows.columns import RESERVED_PREFIXES as RESERVED_PREFIXES
from dodona_wire.rows.columns import VALUE_COLUMNS_MAX as VALUE_COLUMNS_MAX
from dodona_wire.rows.columns import Column as Column
from dodona_wire.rows.columns import ColumnCheck as ColumnCheck
from dodona_wire.rows.columns import ColumnType as ColumnType
from dodona_wire.rows.computed import all_values, check_computed, computed_of
from dodona_wire.rows.key_prefixes import decode_prefix
from dodona_wire.rows.keys import TAGS, decode_key, encode_key
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.logical_values import (
    Load,
    check_of,
    is_shown_otherwise,
    load_of,
    shown_stored,
    store_of,
)
from dodona_wire.rows.row_code import ColumnCode, RowCode, row_code, tuple_code
from dodona_wire.rows.row_rules import (
    KEY_BYTES_MAX,
    ROW_BYTES_MAX,
    check_row_size,
    missing_of,
    missing_value,
    too_long,
)
from dodona_wire.rows.schema_shape import SchemaShape
from dodona_wire.rows.values import VALUE_BYTES_MAX, check_key_double
from dodona_wire.shown import named, shown
from dodona_wire.types import Key, Write

if TYPE_CHECKING:
    from dodona_wire.rows.computed_column import Computed


class TableSchema(SchemaShape, frozen=True, dict=True):
    """A checked list of columns. Make it with `TableSchema.parse`."""

    @classmethod
    def parse(cls, columns: "Iterable[Column | Mapping[str, Any]] | SchemaShape") -> Self:
        """Check a schema that a user gives. Raises SchemaViolation with the reason."""
        schema = cls.parse_existing(columns)
        schema._check_possible()
        return schema

    @classmethod
    def parse_existing(cls, columns: "Iterable[Column | Mapping[str, Any]] | SchemaShape") -> Self:
        """As `parse`, for a table that exists or that a backup has. Its computed columns stay as
        they are, even if a new table could not have them. Raises SchemaViolation."""
        schema = super().parse(columns)
        computed_of(schema.key_columns, schema._logical_keys)  # compiles the expressions
        return schema

    @cached_property
    def is_possible(self) -> bool:
        """Whether a new table could have these computed columns."""
        try:
            self._check_possible()
        except SchemaViolation:
            return False
        return True

    def _check_possible(self) -> None:
        for it in self.computed:
            it.check_possible()

    @cached_property
    def _logical_keys(self) -> tuple[LogicalType, ...]:
        """The type of each key column as users see it."""
        return tuple([column.logical for column in self.key_columns])

    @cached_property
    def computed(self) -> "tuple[Computed, ...]":
        """The computed key columns, in their order."""
        return computed_of(self.key_columns, self._logical_keys)

    @cached_property
    def computed_by_name(self) -> "dict[str, Computed]":
        return {it.name: it for it in self.computed}

    @cached_property
    def needed_key_names(self) -> tuple[str, ...]:
        """The key columns that each row and each key must name."""
        return tuple([it.name for it in self.key_columns if it.expression is None])

    @cached_property
    def key_types(self) -> tuple[str, ...]:
        """The key types of the key columns, with their order: those of an encoded key."""
        return tuple(column.key_type for column in self.key_columns)

    @cached_property
    def has_logical(self) -> bool:
        """Whether a column has a logical type."""
        return any(not column.logical.is_stored for column in self.columns)

    @cached_property
    def stored(self) -> "TableSchema":
        """The schema of the same columns as cells store them."""
        if not self.has_logical:
            return self
        plain = [msgspec.structs.replace(it, type=it.stored) for it in self.columns]
        return _StoredSchema(tuple(plain), tuple([it.logical for it in self.columns]))

    @cached_property
    def narrow_by_name(self) -> dict[str, LogicalType]:
        """The logical type of each column whose stored values must be checked for its range. Only
        the schema of a cell has any."""
        return {}

    @cached_property
    def _key_checks(self) -> tuple[ColumnCheck, ...]:
        return tuple([(it.name, _key_check(it.logical), it.required) for it in self.key_columns])

    @cached_property
    def _value_checks(self) -> tuple[ColumnCheck, ...]:
        return tuple([(it.name, store_of(it.logical), it.required) for it in self.value_columns])

    @cached_property
    def code(self) -> RowCode:
        """The generated functions, for plain rows."""
        known = self.computed_by_name
        keys = [_code_of(it, known.get(it.name)) for it in self.key_columns]
        return row_code(tuple(keys), tuple([_code_of(it) for it in self.value_columns]))

    def tuple_code(
        self, places: Sequence[int], mask: int
    ) -> Callable[[Key, tuple[Any, ...]], tuple[Any, ...]] | None:
        """Return the generated function that makes a tuple of an encoded key and the values of
        these columns: see `row_code`."""
        if mask == self.full_mask and len(places) == len(self.key_columns):
            return self._whole_tuple_code
        return self._tuple_code(places, mask)

    @cached_property
    def _whole_tuple_code(self) -> Callable[[Key, tuple[Any, ...]], tuple[Any, ...]] | None:
        return self._tuple_code(range(len(self.key_columns)), self.full_mask)

    def _tuple_code(
        self, places: Sequence[int], mask: int
    ) -> Callable[[Key, tuple[Any, ...]], tuple[Any, ...]] | None:
        keys, values = (map(_code_of, it) for it in (self.key_columns, self.columns_of(mask)))
        return tuple_code(tuple(keys), tuple(places), tuple(values))

    @cached_property
    def has_any(self) -> bool:
        """Whether there are values that must be copied before a caller gets them."""
        return any(column.stored == "any" for column in self.value_columns)

    @cached_property
    def _may_be_too_long(self) -> bool:
        """Whether a row can be too long although each of its values is allowed."""
        count = sum(column.stored in ("string", "utf8", "any") for column in self.value_columns)
        return count * VALUE_BYTES_MAX + KEY_BYTES_MAX > ROW_BYTES_MAX

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """Encode a key, given as a row of all key columns and no others. It may leave out computed
        ones."""
        plain = self.code.key_of(row)
        if plain is not None:
            return plain
        named_count, values = self._key_values(row)
        if named_count != len(row):
            strangers = [name for name in row if name not in self.key_names]
            raise SchemaViolation("a key has only key columns: drop the others", columns=strangers)
        if values is None:
            raise self._missing_key(row)
        return self._encode(values)

    def _key_values(self, row: Mapping[str, Any]) -> tuple[int, list[Any] | None]:
        """Return how many key columns a row names, and its checked key column values. They are None
        if the row lacks one that is not computed."""
        absent, values = 0, []
        for name, check, is_required in self._key_checks:
            value = row.get(name)
            if value is not None:
                value = check(value, name)
            elif name not in row:
                absent += 1
            elif is_required:
                raise missing_value(name, row)
            values.append(value)
        named_count = len(values) - absent
        if not self.computed:
            return named_count, None if absent else values
        given = sum([1 << it.place for it in self.computed if it.name in row])
        if named_count - given.bit_count() < len(self.needed_key_names):
            return named_count, None
        return named_count, all_values(self.computed, values, given)

    def _missing_key(self, row: Mapping[str, Any]) -> SchemaViolation:
        checks = self._key_checks
        return missing_of([it for it in checks if it[0] in self.needed_key_names], row)

    def _encode(self, values: Sequence[Any]) -> Key:
        key = encode_key(values, self.key_types)
        if len(key) > KEY_BYTES_MAX:
            raise too_long(key)
        return key

    def bound_of(self, values: Sequence[Any]) -> Key:
        """Encode a prefix of the key columns: a pivot key or an end of a range."""
        if len(values) > len(self.key_columns):
            raise SchemaViolation("there are more values than key columns", bound=shown(values))
        checked = [
            None if value is None else check(value, name)
            for value, (name, check, _) in zip(values, self._key_checks, strict=False)
        ]
        return self._encode(checked)

    def write_of(self, row: Mapping[str, Any], *, is_update: bool = False) -> Write:
        """Return a user's row as a write. It has all key columns but computed ones, and at least
        one other. Overwriting sets every value column, absent ones to null."""
        plain = self.code.write_of(row)
        if plain is not None:
            return plain
        named_count, key_values = self._key_values(row)
        absent, mask, values = 0, self.full_mask, []
        for bit, (name, check, is_required) in enumerate(self._value_checks):
            value = row.get(name)
            if value is not None:
                value = check(value, name)
            elif is_required:
                raise missing_value(name, row)
            elif name not in row:
                absent += 1
                if is_update:
                    mask ^= 1 << bit
                    continue
            values.append(value)
        present = len(self.value_columns) - absent
        if key_values is None or not present or present + named_count != len(row):
            raise self._mismatch(row)
        key = encode_key(key_values, self.key_types)
        if len(key) > KEY_BYTES_MAX:
            raise too_long(key)
        if self._may_be_too_long:
            check_row_size(key, values)
        return key, mask, tuple(values)

    def _mismatch(self, row: Mapping[str, Any]) -> SchemaViolation:
        known = {*self.key_names, *self.value_names}
        strangers = sorted(named(name) for name in row if name not in known)
        if strangers:
            return SchemaViolation("no such column", columns=strangers)
        if any(name not in row for name in self.needed_key_names):
            return self._missing_key(row)
        return SchemaViolation("give at least one column that is not a key column")

    def change_of(self, row: Mapping[str, Any], *, is_update: bool = False) -> Write:
        """Return a write as `write_of` does, but values of aggregate columns are changes. Null
        leaves the column as it is. A row without a change keeps its nulls, so it is no deletion."""
        key, mask, values = self.write_of(row, is_update=is_update)
        bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
        kept = [
            (1 << bit, value)
            for bit, value in zip(bits, values, strict=True)
            if value is not None or not self.aggregate_mask >> bit & 1
        ]
        if not kept or len(kept) == len(values):
            return key, mask, values
        return key, sum(bit for bit, _ in kept), tuple([value for _, value in kept])

    def check_write(self, write: Write) -> None:
        """Check a write of a client again, in the node. Raises SchemaViolation."""
        key, mask, values = write
        checks = self._value_checks
        if mask != self.full_mask:
            if type(mask) is not int or not 0 <= mask <= self.full_mask:
                raise SchemaViolation("a write's column mask does not fit its table")
            checks = tuple([it for bit, it in enumerate(checks) if mask >> bit & 1])
        if len(checks) != len(values):
            raise SchemaViolation("a write's column mask does not fit its values")
        self.check_key(key)
        for (name, check, is_required), value in zip(checks, values, strict=True):
            if value is not None:
                kept = check(value, name)
                if kept is not value and type(kept) is not type(value):
                    raise SchemaViolation("a value does not have its column's type", column=name)
            elif is_required:
                raise SchemaViolation("required column is null", column=name)
        if self._may_be_too_long:
            check_row_size(key, values)

    @cached_property
    def _plain_tags(self) -> bytes:
        """The tags of a key without nulls, if all key columns are integers: every ninth byte."""
        if self.computed or any(
            column.stored not in ("int64", "uint64") for column in self.key_columns
        ):
            return b""
        return bytes([TAGS[column_type] for column_type in self.key_types])

    def check_key(self, key: Key) -> None:
        """Check that these bytes are a whole key of this table. Raises SchemaViolation."""
        tags = self._plain_tags
        if tags and len(key) == len(tags) * 9 and key[::9] == tags:
            return
        if len(key) > KEY_BYTES_MAX:
            raise too_long(key)
        try:
            values = decode_key(key, self.key_types)
        except DataCorrupted as error:
            raise SchemaViolation(error.message, key=bytes(key)) from error
        self._check_key_values(values)
        for column, value in zip(self.key_columns, values, strict=True):
            if column.required and value is None:
                raise SchemaViolation("required column is null", column=column.name)
        if self.computed:
            check_computed(self.computed, values)

    def _check_key_values(self, values: Sequence[Any]) -> None:
        """Check the values of a key or of a prefix, beyond their stored types."""

    def check_prefix(self, key: Key) -> None:
        """Check the values of an encoded key, which may lack trailing columns. Raises
        SchemaViolation."""
        try:
            self._check_key_values(decode_prefix(key, self.key_types))
        except DataCorrupted as error:
            raise SchemaViolation(error.message, key=bytes(key)) from error

    # From stored values to those of users

    @cached_property
    def _key_loads(self) -> tuple[Load | None, ...]:
        """For each key column the function of `load_of`; empty if no value changes."""
        return _loads_of(self.key_columns)

    @cached_property
    def _value_loads(self) -> tuple[Load | None, ...]:
        return _loads_of(self.value_columns)

    def decode_key(self, key: Key) -> tuple[Any, ...]:
        """Return the key column values of an encoded key."""
        values = decode_key(key, self.key_types)
        return _loaded(self._key_loads, values) if self._key_loads else values

    def decode_prefix(self, key: Key) -> tuple[Any, ...]:
        """Return the values of an encoded key, which may lack trailing columns. Raises
        DataCorrupted."""
        values = decode_prefix(key, self.key_types)
        return _loaded(self._key_loads[: len(values)], values) if self._key_loads else values

    def load_bound(self, values: Sequence[Any] | None) -> tuple[Any, ...] | None:
        """Return the users' values of leading stored values of a key; None stays None."""
        if values is None:
            return None
        loads = self._key_loads[: len(values)]
        return _loaded(loads, values) if loads else tuple(values)

    def load_values(self, mask: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the users' values of the stored values of these columns. Values of type any are
        still the stored objects."""
        loads = self._value_loads
        if not loads:
            return values
        if mask != self.full_mask:
            loads = tuple([it for bit, it in enumerate(loads) if mask >> bit & 1])
        return _loaded(loads, values)

    def named_key(self, key: Key) -> dict[str, Any]:
        """Return the values of an encoded key by their columns' names, for errors."""
        return dict(zip(self.key_names, self.decode_key(key), strict=True))


class _StoredSchema(TableSchema, frozen=True, dict=True):
    """The schema of a table with logical types, as cells have it. Columns have their stored types.
    A write is checked for the ranges of the logical types, too. Errors show a key as text."""

    logical: tuple[LogicalType, ...]
    """The type of each column as users see it."""

    @cached_property
    def stored(self) -> TableSchema:
        return self

    @cached_property
    def _logical_keys(self) -> tuple[LogicalType, ...]:
        return self.logical[: len(self.key_columns)]

    @cached_property
    def narrow_by_name(self) -> dict[str, LogicalType]:
        pairs = zip(self.columns, self.logical, strict=True)
        return {column.name: kind for column, kind in pairs if not kind.is_stored}

    @cached_property
    def _value_checks(self) -> tuple[ColumnCheck, ...]:
        kinds = self.logical[len(self.key_columns) :]
        pairs = zip(self.value_columns, kinds, strict=True)
        return tuple([(it.name, check_of(kind), it.required) for it, kind in pairs])

    @cached_property
    def _plain_tags(self) -> bytes:
        return b"" if any(not it.is_stored for it in self._logical_keys) else super()._plain_tags

    @cached_property
    def code(self) -> RowCode:
        known = self.computed_by_name
        columns = [
            _code_of(it, known.get(it.name))._replace(narrow=None if kind.is_stored else kind)
            for it, kind in zip(self.columns, self.logical, strict=True)
        ]
        key_count = len(self.key_columns)
        return row_code(tuple(columns[:key_count]), tuple(columns[key_count:]))

    def _check_key_values(self, values: Sequence[Any]) -> None:
        for column, kind, value in zip(self.key_columns, self._logical_keys, values, strict=False):
            if value is not None and not kind.is_stored:
                check_of(kind)(value, column.name)

    def decode_key(self, key: Key) -> tuple[Any, ...]:
        """Return the key column values of an encoded key, for errors: text for logical types that
        have a text."""
        values = decode_key(key, self.key_types)
        return tuple([shown_stored(*it) for it in zip(self._logical_keys, values, strict=True)])

    def decode_prefix(self, key: Key) -> tuple[Any, ...]:
        """Return the values of an encoded key, which may lack trailing columns, as `decode_key`
        does. Raises DataCorrupted."""
        values = decode_prefix(key, self.key_types)
        return tuple([shown_stored(*it) for it in zip(self._logical_keys, values, strict=False)])


for _shown in (Column, TableSchema):
    _shown.__module__ = "dodona.schema"  # users see the name that they import


def _key_check(kind: LogicalType) -> Callable[[Any, str], Any]:
    """Return the check of a value in a key, where NaN has no place."""
    if kind.stored != "double":
        return store_of(kind)
    if kind.is_stored:
        return check_key_double
    store = store_of(kind)
    return lambda value, column: check_key_double(store(value, column), column)


def _code_of(column: Column, computed: "Computed | None" = None) -> ColumnCode:
    kind = column.logical
    logical = None if kind.is_stored else kind
    return ColumnCode(
        column.name,
        kind.stored,
        column.required,
        logical,
        is_descending=column.is_descending,
        computed=computed,
    )


def _loads_of(columns: Sequence[Column]) -> tuple[Load | None, ...]:
    kinds = [column.logical for column in columns]
    if not any(map(is_shown_otherwise, kinds)):
        return ()
    return tuple([load_of(it) if is_shown_otherwise(it) else None for it in kinds])


def _loaded(loads: Sequence[Load | None], values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        [
            value if load is None or value is None else load(value)
            for load, value in zip(loads, values, strict=True)
        ]
    )
