"""The record of one type of columns, and of the types inside a nested one. Pure.

Owns: what the table of types says of each type. `logical_types` has the table, and `nested_types`
makes the types that have types inside.
"""

from typing import Any, Final, Literal

import msgspec

from dodona_wire.rows.type_names import OPTIONAL

StoredType = Literal["int64", "uint64", "double", "boolean", "string", "utf8", "any"]
STORED_TYPES: Final[tuple[StoredType, ...]] = (
    "int64",
    "uint64",
    "double",
    "boolean",
    "string",
    "utf8",
    "any",
)
Form = Literal[
    "stored",
    "integer",
    "float",
    "date",
    "seconds",
    "microseconds",
    "interval",
    "decimal",
    "uuid",
    "json",
    "list",
    "struct",
    "dict",
]
"""How a value is converted."""
PRECISION_MAX: Final = 76
"""Digits of a decimal: Arrow and YTsaurus have no longer ones."""
SQL_PRECISION_MAX: Final = 38
"""Digits of a decimal in DuckDB and in Spark."""
UUID_BYTES: Final = 16

DECIMAL_BYTES: Final = ((9, 4), (18, 8), (38, 16), (PRECISION_MAX, 32))
"""The largest precision for each length of the stored bytes."""


class Member(msgspec.Struct, frozen=True):
    """A type inside a nested type: of the items of a list, of a field, or of a dict's keys or
    values."""

    name: str
    """The name of a field; item, key or value otherwise."""
    kind: "LogicalType"
    is_optional: bool = False
    """Whether it may be null."""

    @property
    def type_name(self) -> str:
        """The name of the type as it stands in the name of the nested type."""
        return f"{OPTIONAL}<{self.kind.name}>" if self.is_optional else self.kind.name


class LogicalType(msgspec.Struct, frozen=True, kw_only=True):
    """One type of columns. For a stored type, `name` and `stored` are the same."""

    name: str
    stored: StoredType
    form: Form = "stored"
    lowest: Any = None
    """The smallest stored value; None if the stored type has no smaller range."""
    highest: Any = None
    """The largest stored value."""
    precision: int = 0
    """Digits of a decimal."""
    scale: int = 0
    """Digits of a decimal behind the point."""
    python: str
    """The Python values, for the pages."""
    arrow: str
    """Arrow's name of the type."""
    sql: str
    """DuckDB's name of the type."""
    type_v3: str
    """YTsaurus's name in `type_v3`."""
    pandas: str
    """The dtype of `to_pandas`."""
    text: str
    """The form in JSON and CSV, for the pages."""
    members: tuple[Member, ...] = ()
    """The types inside; a dict has those of its keys and its values. Empty if the type is not
    nested."""

    @property
    def is_stored(self) -> bool:
        """Whether Python values are the stored values."""
        return self.form == "stored"

    @property
    def size_bytes(self) -> int:
        """The length of each stored value of type string; 0 for any length."""
        if self.form == "decimal":
            return next(size for digits, size in DECIMAL_BYTES if self.precision <= digits)
        return UUID_BYTES if self.form == "uuid" else 0
