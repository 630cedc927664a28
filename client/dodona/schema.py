"""What a table's rows look like, and the translation between a user's rows and writes.

Owns: columns, the compiled schema, and every check of a value against its column. The same
checks run in the client (early, with names) and in the node (again: a client is not trusted).
A value column's place among the value columns is its bit in a column mask; a lock group's place
is its bit in a lock mask, and bit 0 is the main lock. Imports no clock and no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, Self, cast

import msgspec

from dodona.errors import DataCorrupted, SchemaViolation
from dodona.keys import TAGS, decode_key, encode_key
from dodona.types import DELETE_MASK, Key, WireMask, WireWrite, Write

ColumnType = Literal["int64", "uint64", "double", "boolean", "string", "utf8", "any"]
ColumnCheck = tuple[str, Callable[[Any, str], Any], bool]
"""A column's name, the check of its values, and whether it is required."""

KEY_COLUMNS_MAX: Final = 32
VALUE_COLUMNS_MAX: Final = 1024
LOCK_GROUPS_MAX: Final = 32
NAME_LENGTH_MAX: Final = 256
VALUE_BYTES_MAX: Final = 16 << 20
PLAIN_COLUMNS_MAX: Final = 63
"""Up to so many value columns a column mask travels as a number."""
NESTING_DEPTH_MAX: Final = 32
MAIN_LOCK: Final = "<primary>"
MAIN_LOCK_MASK: Final = 1


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One column. Key columns have `sort_order="ascending"` and come first."""

    name: str
    type: ColumnType
    sort_order: Literal["ascending"] | None = None
    required: bool = False
    lock: str | None = None
    aggregate: Literal["sum", "min", "max", "first"] | None = None


class TableSchema(msgspec.Struct, frozen=True, dict=True):
    """A checked list of columns. Make it with `TableSchema.parse`."""

    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, columns: Iterable[Column | Mapping[str, Any]]) -> Self:
        """Check a schema as a user writes it. Raises SchemaViolation with the reason."""
        try:
            parsed = tuple(
                c if isinstance(c, Column) else msgspec.convert(c, Column) for c in columns
            )
        except (msgspec.ValidationError, TypeError) as error:
            raise SchemaViolation(f"a column of the schema is malformed: {error}") from error
        schema = cls(parsed)
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
        names = [column.name for column in self.columns]
        for name in names:
            if not 0 < len(name) <= NAME_LENGTH_MAX:
                raise SchemaViolation("a column name is empty or too long", column=name)
            if names.count(name) > 1:
                raise SchemaViolation("two columns have one name", column=name)

    def _check_order(self) -> None:
        if any(c.sort_order for c in self.columns[len(self.key_columns) :]):
            raise SchemaViolation("key columns must come before all others")
        if not self.key_columns:
            raise SchemaViolation("a sorted table needs a column with sort_order='ascending'")
        if not self.value_columns:
            raise SchemaViolation("there must be at least one column that is not a key")
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
        return _checks_of(self.key_columns)

    @cached_property
    def _value_checks(self) -> tuple[ColumnCheck, ...]:
        return _checks_of(self.value_columns)

    @cached_property
    def full_mask(self) -> int:
        """The mask of all value columns: what an overwriting insert sets."""
        return (1 << len(self.value_columns)) - 1

    @cached_property
    def lock_names(self) -> tuple[str, ...]:
        """Lock groups in schema order; the main lock is first."""
        locks = (column.lock for column in self.value_columns)
        return tuple(dict.fromkeys([MAIN_LOCK, *(lock for lock in locks if lock is not None)]))

    @cached_property
    def lock_mask_all(self) -> int:
        return (1 << len(self.lock_names)) - 1

    @cached_property
    def _lock_masks(self) -> dict[int, int]:
        return {DELETE_MASK: MAIN_LOCK_MASK}

    def lock_mask(self, column_mask: int) -> int:
        """The lock groups that a write of these columns takes; a deletion takes the main lock."""
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
        """The groups that a holder of `lock_mask` must look at: main always, all for main."""
        return self.lock_mask_all if lock_mask & MAIN_LOCK_MASK else lock_mask | MAIN_LOCK_MASK

    def column_mask(self, names: Sequence[str] | None) -> int:
        """The value columns among `names`; all for None. Raises SchemaViolation on a stranger."""
        if names is None:
            return self.full_mask
        mask = 0
        for name in names:
            if name in self.value_names:
                mask |= 1 << self.value_names.index(name)
            elif name not in self.key_names:
                raise SchemaViolation(f"no such column: {name!r}", column=name)
        return mask

    def key_of(self, row: Mapping[str, Any], *, is_exact: bool = True) -> Key:
        """Encode a row's key columns. With `is_exact`, any other column is an error."""
        values = []
        for name, check, is_required in self._key_checks:
            value = row.get(name)
            if value is None:
                if name not in row:
                    raise SchemaViolation("missing key column", column=name, row=dict(row))
                if is_required:
                    raise SchemaViolation("required column is null", column=name)
            else:
                value = check(value, name)
            values.append(value)
        if is_exact and len(row) != len(self.key_columns):
            strangers = [name for name in row if name not in self.key_names]
            raise SchemaViolation("a key has only key columns", columns=strangers)
        return encode_key(values, self.key_types)

    def bound_of(self, values: Sequence[Any]) -> Key:
        """Encode a prefix of the key columns: a pivot key or an end of a range."""
        if len(values) > len(self.key_columns):
            raise SchemaViolation("more values than key columns", bound=list(values))
        checked = [
            None if value is None else CHECKS[column.type](value, column.name)
            for value, column in zip(values, self.key_columns, strict=False)
        ]
        return encode_key(checked, self.key_types)

    def write_of(self, row: Mapping[str, Any], *, is_update: bool = False) -> Write:
        """A user's row as a write. Overwriting sets every value column, absent ones to null."""
        mask, values = 0, []
        present = len(self.key_columns)
        for bit, (name, check, is_required) in enumerate(self._value_checks):
            value = row.get(name)
            if value is not None:
                value = check(value, name)
                present += 1
            elif name in row:
                present += 1
                if is_required:
                    raise SchemaViolation("required column is null", column=name)
            elif is_required:
                raise SchemaViolation("required column is missing", column=name)
            elif is_update:
                continue
            mask |= 1 << bit
            values.append(value)
        key = self.key_of(row, is_exact=False)
        if present != len(row):
            known = {*self.key_names, *self.value_names}
            strangers = sorted(name for name in row if name not in known)
            raise SchemaViolation("no such column", columns=strangers)
        if present == len(self.key_columns):
            raise SchemaViolation("at least one column that is not a key must be given")
        return key, mask, tuple(values)

    def check_write(self, write: Write) -> None:
        """The node's own check of what a client sent. Raises SchemaViolation."""
        key, mask, values = write
        checks = self._value_checks
        if mask != self.full_mask:
            if not 0 <= mask <= self.full_mask:
                raise SchemaViolation("a write's column mask does not fit its table")
            checks = tuple([it for bit, it in enumerate(checks) if mask >> bit & 1])
        if len(checks) != len(values):
            raise SchemaViolation("a write's column mask does not fit its values")
        self.check_key(key)
        for (name, check, is_required), value in zip(checks, values, strict=True):
            if value is not None:
                check(value, name)
            elif is_required:
                raise SchemaViolation("required column is null", column=name)

    @cached_property
    def _plain_tags(self) -> bytes:
        """The tags of a key without nulls, if all key columns are integers: every ninth byte."""
        if any(column_type not in ("int64", "uint64") for column_type in self.key_types):
            return b""
        return bytes([TAGS[column_type] for column_type in self.key_types])

    def check_key(self, key: Key) -> None:
        """Whether these bytes are a whole key of this table. Raises SchemaViolation."""
        tags = self._plain_tags
        if tags and len(key) == len(tags) * 9 and key[::9] == tags:
            return
        try:
            decode_key(key, self.key_types)
        except DataCorrupted as error:
            raise SchemaViolation(error.message, key=bytes(key)) from error

    # Masks of wide tables, which do not fit the numbers of the wire

    @property
    def is_wide(self) -> bool:
        """Whether column masks travel as bytes."""
        return len(self.value_columns) > PLAIN_COLUMNS_MAX

    def pack_mask(self, mask: int) -> WireMask:
        """A column mask as it travels."""
        return mask.to_bytes((mask.bit_length() + 7) // 8, "little") if self.is_wide else mask

    def plain_mask(self, mask: WireMask) -> int:
        """A column mask as it came. Raises SchemaViolation if it is none of this table."""
        if isinstance(mask, bytes):
            mask = int.from_bytes(mask[: VALUE_COLUMNS_MAX // 8 + 1], "little")
        if not 0 <= mask <= self.full_mask:
            raise SchemaViolation("a column mask does not fit its table")
        return mask

    def pack_writes(self, writes: Iterable[Write]) -> tuple[WireWrite, ...]:
        """Writes as they travel."""
        if not self.is_wide:
            return tuple(writes)
        return tuple([(key, self.pack_mask(mask), values) for key, mask, values in writes])

    def plain_writes(self, writes: Sequence[WireWrite]) -> Sequence[Write]:
        """Writes as they came; their masks are checked by `check_write` or were so before."""
        if not self.is_wide:
            return cast("Sequence[Write]", writes)
        return [(key, self.plain_mask(mask), values) for key, mask, values in writes]

    def columns_of(self, mask: int) -> tuple[Column, ...]:
        """The value columns of a mask, in schema order."""
        if mask == self.full_mask:
            return self.value_columns
        return tuple(c for bit, c in enumerate(self.value_columns) if mask >> bit & 1)

    def decode_key(self, key: Key) -> tuple[Any, ...]:
        """The key column values of an encoded key."""
        return decode_key(key, self.key_types)


def _checks_of(columns: Sequence[Column]) -> tuple[ColumnCheck, ...]:
    return tuple((column.name, CHECKS[column.type], column.required) for column in columns)


def _check_key_column(column: Column) -> None:
    if column.type not in TAGS or column.lock is not None or column.aggregate is not None:
        raise SchemaViolation(
            "a key column can't be of type any, nor have a lock or an aggregate",
            column=column.name,
        )


def _check_value_column(column: Column) -> None:
    lock = column.lock
    if lock is not None and not 0 < len(lock) <= NAME_LENGTH_MAX:
        raise SchemaViolation("a lock name is empty or too long", column=column.name)
    if column.aggregate in ("sum", "min", "max") and column.type not in (
        "int64",
        "uint64",
        "double",
    ):
        raise SchemaViolation(f"{column.aggregate} needs a number", column=column.name)


def _mismatch(value: Any, column: str, expected: str) -> SchemaViolation:
    return SchemaViolation(
        f"column {column!r} takes {expected}, not {type(value).__name__}", column=column
    )


def _check_int64(value: Any, column: str) -> int:
    if type(value) is not int:
        raise _mismatch(value, column, "an int")
    if not -(1 << 63) <= value < 1 << 63:
        raise SchemaViolation("value does not fit in int64", column=column, value=str(value)[:40])
    return value


def _check_uint64(value: Any, column: str) -> int:
    if type(value) is not int:
        raise _mismatch(value, column, "an int")
    if not 0 <= value < 1 << 64:
        raise SchemaViolation("value does not fit in uint64", column=column, value=str(value)[:40])
    return value


def _check_double(value: Any, column: str) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _mismatch(value, column, "a float")


def _check_boolean(value: Any, column: str) -> bool:
    if type(value) is not bool:
        raise _mismatch(value, column, "a bool")
    return value


def _check_string(value: Any, column: str) -> bytes:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        raise _mismatch(value, column, "bytes or str")
    if len(value) > VALUE_BYTES_MAX:
        raise SchemaViolation(f"value is longer than {VALUE_BYTES_MAX} bytes", column=column)
    return value


def _check_utf8(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, column, "a str")
    try:
        is_too_long = len(value) * 4 > VALUE_BYTES_MAX and len(value.encode()) > VALUE_BYTES_MAX
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError as error:
        raise SchemaViolation(f"value is not Unicode text: {error}", column=column) from error
    if is_too_long:
        raise SchemaViolation(f"value is longer than {VALUE_BYTES_MAX} bytes", column=column)
    return value


def _check_any(value: Any, column: str, depth: int = 0) -> Any:
    if depth > NESTING_DEPTH_MAX:
        raise SchemaViolation(f"value is nested deeper than {NESTING_DEPTH_MAX}", column=column)
    if isinstance(value, list | tuple):
        return [_check_any(item, column, depth + 1) for item in value]
    if isinstance(value, dict):
        return {
            _check_utf8(name, column): _check_any(item, column, depth + 1)
            for name, item in value.items()
        }
    if type(value) is int:
        return _check_int64(value, column) if value < 0 else _check_uint64(value, column)
    if value is None or isinstance(value, bool | float | str | bytes):
        return value
    raise _mismatch(value, column, "None, numbers, str, bytes, lists and dicts")


CHECKS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "int64": _check_int64,
    "uint64": _check_uint64,
    "double": _check_double,
    "boolean": _check_boolean,
    "string": _check_string,
    "utf8": _check_utf8,
    "any": _check_any,
}
"""Column type → the check that returns the value to store, or raises SchemaViolation."""
