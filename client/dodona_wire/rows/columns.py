"""The columns of a schema, and the checks of each column by itself.

Owns: the fields of a column, which of them may be together, and the limits of a schema. The type of
a column is a name of `logical_types`. Imports no clock and no I/O.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from dodona_wire.errors import SchemaViolation
from dodona_wire.near_names import nearest
from dodona_wire.preload import preload_decoder
from dodona_wire.rows.keys import DESCENDING, TAGS
from dodona_wire.rows.logical_types import LogicalType, StoredType, logical_type
from dodona_wire.shown import shown

ColumnType = str
"""The name of a type of columns: see `logical_types`."""
SortOrder = Literal["ascending", "descending"]
"""The order of the values of a key column."""
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
"""The column types that each aggregate can have. The logical types follow from their stored types,
but a sum would leave their ranges."""


@preload_decoder
class Column(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """One column. Key columns have a `sort_order` and come first."""

    name: str
    """1 to 256 characters. The first is not $ or @."""
    type: ColumnType
    """The name of a type, such as int64, utf8, date, decimal(10,2), list<utf8> or
    struct<id:int64,name:optional<utf8>>. The reference of types has all names, and the values that
    each type takes."""
    sort_order: SortOrder | None = None
    """The order of a key column, None for a value column. "ascending" puts the smallest value
    first, and null before it. "descending" puts the greatest value first, and null last. Ranges
    and pivot keys are places in this order. The order of a column never changes."""
    required: bool = False
    """Whether the column is never null."""
    lock: str | None = None
    """The lock group of a value column; None is the main lock. ("Conflicts and locks")"""
    aggregate: Literal["sum", "min", "max", "first"] | None = None
    """How changes of a value column combine. `AGGREGATE_TYPES` has the column types for each."""
    expression: str | None = None
    """Computes a key column from key columns without an expression, as in YTsaurus:
    `farm_hash(user) % 64`. Rows and keys may leave the column out."""

    @property
    def logical(self) -> LogicalType:
        """The entry of the type in the table of types. Raises SchemaViolation for a type that this
        version of Dodona does not have."""
        return logical_type(self.type)

    @property
    def stored(self) -> StoredType:
        """The type of the stored values."""
        return self.logical.stored

    @property
    def is_descending(self) -> bool:
        """Whether this is a key column whose greatest value comes first."""
        return self.sort_order == "descending"

    @property
    def key_type(self) -> str:
        """The type of a key column in an encoded key, with its order: see `keys`."""
        return DESCENDING + self.stored if self.is_descending else self.stored


def parse_column(place: int, column: Column | Mapping[str, Any]) -> Column:
    """Check and convert a column, even a Column: its constructor checks nothing."""
    fields = msgspec.structs.asdict(column) if isinstance(column, Column) else column
    if not isinstance(fields, Mapping):
        text = f"a column of a schema is a dict or a Column, not {kind_of(fields)}"
        raise SchemaViolation(text, column_index=place)
    for name, known in _WORDS.items():
        if (word := fields.get(name)) is not None and word not in known:
            text = f"{name} of a column is one of {', '.join(known)}, not {shown(word)}"
            raise SchemaViolation(text, column=fields.get("name"), column_index=place)
    for name in fields:
        if name not in Column.__struct_fields__:
            raise _unknown_field(name, fields, place)
    try:
        column = msgspec.convert(fields, Column)
        # One type has one name, whatever spaces and quotes a user writes in it.
        return msgspec.structs.replace(column, type=column.logical.name)
    except SchemaViolation as error:
        error.attributes.update(column=fields.get("name"), column_index=place)
        raise
    except msgspec.ValidationError as error:
        text = f"a column of the schema is malformed: {error}"
        raise SchemaViolation(text, column=fields.get("name"), column_index=place) from error


def _unknown_field(name: Any, fields: Mapping[str, Any], place: int) -> SchemaViolation:
    near = nearest(name.lower(), Column.__struct_fields__) if isinstance(name, str) else None
    hint = f"one of {', '.join(Column.__struct_fields__)}" if near is None else repr(near)
    text = f"a column of a schema has no field {shown(name)}: use {hint}"
    return SchemaViolation(text, column=fields.get("name"), column_index=place)


_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "sort_order": get_args(SortOrder),
    "aggregate": tuple(AGGREGATE_TYPES),
}


def kind_of(value: object) -> str:
    return type(value).__name__


def check_key_column(column: Column) -> None:
    if column.stored not in TAGS or column.lock is not None or column.aggregate is not None:
        raise SchemaViolation(
            "a key column can't be of type any, a list, a struct or a dict, nor have a lock or an "
            "aggregate",
            column=column.name,
        )


def check_value_column(column: Column) -> None:
    lock, aggregate = column.lock, column.aggregate
    if column.expression is not None:
        text = "only a key column can be computed: give it a sort_order, or leave out `expression`"
        raise SchemaViolation(text, column=column.name)
    if lock is not None:
        check_name("a lock name", lock, column.name)
    if lock == MAIN_LOCK:
        raise SchemaViolation(
            f"{MAIN_LOCK} is the lock of columns without `lock`: leave `lock` out",
            column=column.name,
        )
    kind = column.type if aggregate == "sum" else column.stored
    if aggregate is not None and kind not in AGGREGATE_TYPES[aggregate]:
        types = ", ".join(AGGREGATE_TYPES[aggregate])
        raise SchemaViolation(
            f"{aggregate} aggregates {types}, not {column.type}", column=column.name
        )


def check_name(what: str, name: str, column: str) -> None:
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        raise SchemaViolation(f"{what} is empty or too long", column=column)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SchemaViolation(f"{what} is not Unicode text", column=ascii(column)) from error
