"""The schema of a table, and the translation between a user's rows and writes.

Owns: columns, the compiled schema, and the checks of whole rows (`values` has those of single
values). The client runs the checks early, with names. The node runs them again, because it does not
trust clients. A value column's place among the value columns is its bit in a column mask. A lock
group's place is its bit in a lock mask, and bit 0 is the main lock. Imports no clock and no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, Self, cast

import msgspec

from dodona_wire.errors import DataCorrupted, InvalidRequest, SchemaViolation
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.keys import TAGS, decode_key, encode_key
from dodona_wire.rows.row_code import ColumnCode, RowCode, row_code
from dodona_wire.rows.row_rules import (
    KEY_BYTES_MAX,
    ROW_BYTES_MAX,
    check_row_size,
    missing_of,
    missing_value,
    too_long,
)
from dodona_wire.rows.values import CHECKS, VALUE_BYTES_MAX, check_key_double
from dodona_wire.shown import named, shown
from dodona_wire.types import DELETE_MASK, Key, WireMask, WireWrite, Write

ColumnType = Literal["int64", "uint64", "double", "boolean", "string", "utf8", "any"]
ColumnCheck = tuple[str, Callable[[Any, str], Any], bool]
"""A column's name, the check of its values, and whether it is required."""

KEY_COLUMNS_MAX: Final = 32
VALUE_COLUMNS_MAX: Final = 1024
LOCK_GROUPS_MAX: Final = 32
NAME_LENGTH_MAX: Final = 256
PLAIN_COLUMNS_MAX: Final = 63
"""Up to this number of value columns, a column mask travels as a number."""
MAIN_LOCK: Final = "<primary>"
MAIN_LOCK_MASK: Final = 1
RESERVED_PREFIXES: Final = ("$", "@")
"""The first characters of YTsaurus's system columns, and of attributes in paths."""
AGGREGATE_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "sum": ("int64", "uint64", "double"),
    "min": ("int64", "uint64", "double", "boolean", "string", "utf8"),
    "max": ("int64", "uint64", "double", "boolean", "string", "utf8"),
    "first": ("int64", "uint64", "double", "boolean", "string", "utf8", "any"),
}
"""The column types that each aggregate can have."""


@preload_decoder
class Column(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """One column. Key columns have `sort_order="ascending"` and come first."""

    name: str
    """1 to 256 characters. The first is not $ or @."""
    type: ColumnType
    """In Python: int (int64, uint64), float (given as int too, if a double holds it), bool, bytes
    (string; given as str too), str (utf8). For any: None, numbers, str, bytes, lists, dicts."""
    sort_order: Literal["ascending"] | None = None
    """"ascending" for a key column, None for a value column."""
    required: bool = False
    """Whether the column is never null."""
    lock: str | None = None
    """The lock group of a value column; None is the main lock. ("Conflicts and locks")"""
    aggregate: Literal["sum", "min", "max", "first"] | None = None
    """How changes of a value column combine. `AGGREGATE_TYPES` has the column types for each."""


class TableSchema(msgspec.Struct, frozen=True, dict=True):
    """A checked list of columns. Make it with `TableSchema.parse`."""

    columns: tuple[Column, ...]
    """Key columns first, in their order."""

    @classmethod
    def parse(cls, columns: "Iterable[Column | Mapping[str, Any]] | TableSchema") -> Self:
        """Check a schema that a user gives. Raises SchemaViolation with the reason."""
        if isinstance(columns, TableSchema):
            columns = columns.columns
        if isinstance(columns, str | bytes | Mapping) or not isinstance(columns, Iterable):
            raise SchemaViolation(f"a schema is a list of columns, not one {_kind(columns)}")
        schema = cls(tuple([_parse_column(place, it) for place, it in enumerate(columns)]))
        schema._check()
        return schema

    def _check(self) -> None:
        self._check_names()
        self._check_order()
        for column in self.key_columns:
            _check_key_column(column)
        for column in self.value_columns:
            _check_value_column(column)
        if len(self.lock_names) > LOCK_GROUPS_MAX:
            raise SchemaViolation(f"more than {LOCK_GROUPS_MAX} lock groups, main included")

    def _check_names(self) -> None:
        known: dict[str, Column] = {}
        for column in self.columns:
            name = column.name
            _check_name("a column name", name, name)
            if name.startswith(RESERVED_PREFIXES):
                raise SchemaViolation("a column name can't begin with $ or @", column=name)
            if known.setdefault(name, column) is not column:
                raise SchemaViolation("two columns have the same name", column=name)

    def _check_order(self) -> None:
        if any(c.sort_order for c in self.columns[len(self.key_columns) :]):
            raise SchemaViolation("key columns must come before all others")
        if not self.key_columns:
            raise SchemaViolation("a sorted table needs a column with sort_order='ascending'")
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
    def key_types(self) -> tuple[str, ...]:
        return tuple(column.type for column in self.key_columns)

    @cached_property
    def value_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.value_columns)

    @cached_property
    def _key_checks(self) -> tuple[ColumnCheck, ...]:
        return _checks_of(self.key_columns, {**CHECKS, "double": check_key_double})

    @cached_property
    def _value_checks(self) -> tuple[ColumnCheck, ...]:
        return _checks_of(self.value_columns, CHECKS)

    @cached_property
    def code(self) -> RowCode:
        """The generated functions, for plain rows."""
        keys = [ColumnCode(it.name, it.type, it.required) for it in self.key_columns]
        values = [ColumnCode(it.name, it.type, it.required) for it in self.value_columns]
        return row_code(tuple(keys), tuple(values))

    @cached_property
    def has_any(self) -> bool:
        """Whether there are values that must be copied before a caller gets them."""
        return any(column.type == "any" for column in self.value_columns)

    @cached_property
    def _may_be_too_long(self) -> bool:
        """Whether a row can be too long although each of its values is allowed."""
        count = sum(column.type in ("string", "utf8", "any") for column in self.value_columns)
        return count * VALUE_BYTES_MAX + KEY_BYTES_MAX > ROW_BYTES_MAX

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
            raise InvalidRequest(f"pass locks as a list of names, not as one {_kind(names)}")
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

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """Encode a key, given as a row of all key columns and no others."""
        plain = self.code.key_of(row)
        if plain is not None:
            return plain
        absent, values = self._key_values(row)
        if len(values) - absent != len(row):
            strangers = [name for name in row if name not in self.key_names]
            raise SchemaViolation("a key has only key columns: drop the others", columns=strangers)
        if absent:
            raise missing_of(self._key_checks, row)
        return self._encode(values)

    def _key_values(self, row: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """Return how many key columns a row does not name, and its checked key column values."""
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
        return absent, values

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
        """Return a user's row as a write. It has all key columns, and at least one other.
        Overwriting sets every value column, absent ones to null."""
        plain = self.code.write_of(row)
        if plain is not None:
            return plain
        keys_absent, key_values = self._key_values(row)
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
        if keys_absent or not present or present + len(key_values) != len(row):
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
        if any(name not in row for name in self.key_names):
            return missing_of(self._key_checks, row)
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
        if any(column_type not in ("int64", "uint64") for column_type in self.key_types):
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
        for column, value in zip(self.key_columns, values, strict=True):
            if column.required and value is None:
                raise SchemaViolation("required column is null", column=column.name)

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

    def decode_key(self, key: Key) -> tuple[Any, ...]:
        """Return the key column values of an encoded key."""
        return decode_key(key, self.key_types)

    def named_key(self, key: Key) -> dict[str, Any]:
        """Return the values of an encoded key by their columns' names, for errors."""
        return dict(zip(self.key_names, self.decode_key(key), strict=True))


for _shown in (Column, TableSchema):
    _shown.__module__ = "dodona.schema"  # users see the name that they import


def _parse_column(place: int, column: Column | Mapping[str, Any]) -> Column:
    """Check and convert a column, even a Column: its constructor checks nothing."""
    fields = msgspec.structs.asdict(column) if isinstance(column, Column) else column
    if not isinstance(fields, Mapping):
        text = f"a column of a schema is a dict or a Column, not {_kind(fields)}"
        raise SchemaViolation(text, column_index=place)
    for name, known in _WORDS.items():
        if (word := fields.get(name)) is not None and word not in known:
            text = f"{name} of a column is one of {', '.join(known)}, not {shown(word)}"
            raise SchemaViolation(text, column=fields.get("name"), column_index=place)
    try:
        return msgspec.convert(fields, Column)
    except msgspec.ValidationError as error:
        text = f"a column of the schema is malformed: {error}"
        raise SchemaViolation(text, column=fields.get("name"), column_index=place) from error


_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "type": tuple(CHECKS),
    "sort_order": ("ascending",),
    "aggregate": tuple(AGGREGATE_TYPES),
}


def _kind(value: object) -> str:
    return type(value).__name__


def _checks_of(
    columns: Sequence[Column], checks: Mapping[str, Callable[[Any, str], Any]]
) -> tuple[ColumnCheck, ...]:
    return tuple((column.name, checks[column.type], column.required) for column in columns)


def _check_key_column(column: Column) -> None:
    if column.type not in TAGS or column.lock is not None or column.aggregate is not None:
        raise SchemaViolation(
            "a key column can't be of type any, nor have a lock or an aggregate",
            column=column.name,
        )


def _check_value_column(column: Column) -> None:
    lock, aggregate = column.lock, column.aggregate
    if lock is not None:
        _check_name("a lock name", lock, column.name)
    if lock == MAIN_LOCK:
        raise SchemaViolation(
            f"{MAIN_LOCK} is the lock of columns without `lock`: leave `lock` out",
            column=column.name,
        )
    if aggregate is not None and column.type not in AGGREGATE_TYPES[aggregate]:
        types = ", ".join(AGGREGATE_TYPES[aggregate])
        raise SchemaViolation(
            f"{aggregate} aggregates {types}, not {column.type}", column=column.name
        )


def _check_name(what: str, name: str, column: str) -> None:
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        raise SchemaViolation(f"{what} is empty or too long", column=column)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SchemaViolation(f"{what} is not Unicode text", column=ascii(column)) from error
