"""The schema of a table: its columns, and the checks of whole rows.

Exports the public names of `dodona_wire.rows.schema`, which servers and clients share.
"""

from dodona_wire.rows.schema import (
    AGGREGATE_TYPES,
    KEY_COLUMNS_MAX,
    LOCK_GROUPS_MAX,
    MAIN_LOCK,
    MAIN_LOCK_MASK,
    NAME_LENGTH_MAX,
    PLAIN_COLUMNS_MAX,
    RESERVED_PREFIXES,
    VALUE_COLUMNS_MAX,
    Column,
    ColumnCheck,
    ColumnType,
    TableSchema,
)

__all__ = [
    "AGGREGATE_TYPES",
    "KEY_COLUMNS_MAX",
    "LOCK_GROUPS_MAX",
    "MAIN_LOCK",
    "MAIN_LOCK_MASK",
    "NAME_LENGTH_MAX",
    "PLAIN_COLUMNS_MAX",
    "RESERVED_PREFIXES",
    "VALUE_COLUMNS_MAX",
    "Column",
    "ColumnCheck",
    "ColumnType",
    "TableSchema",
]
