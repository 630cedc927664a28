"""What the master makes durable: named values in buckets, and nothing else.

Owns: the records a master appends, the buckets they go to, and the encoding of the values. A record
is whole in itself: any prefix of the appended records is a correct state. Imports no I/O.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from dodona._core.messages import TabletSource
from dodona.errors import DataCorrupted
from dodona.schema import Column
from dodona.types import Atomicity, CellId, Key, Revision, TableSettings, TabletId, Timestamp

ORACLE: Final = "oracle"
"""Bucket: `ceiling` → the timestamp below which all that were ever issued lie."""
COUNTERS: Final = "counters"
"""Bucket: `id` and `revision` → the largest that was ever given out."""
TABLES: Final = "tables"
"""Bucket: table id → `StoredTable`."""

CEILING: Final = b"ceiling"
LAST_ID: Final = b"id"
LAST_REVISION: Final = b"revision"

NUMBER_BYTES: Final = 8


class Put(msgspec.Struct, frozen=True, gc=False):
    """From now on `key` in `bucket` has this value."""

    bucket: str
    key: bytes
    value: bytes


class Remove(msgspec.Struct, frozen=True, gc=False):
    """From now on `key` in `bucket` has no value."""

    bucket: str
    key: bytes


Record = Put | Remove
Item = tuple[str, bytes, bytes]
"""(bucket, key, value): what a store gives back."""


class StoredTablet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One tablet of a table: where it lives, for good once `cell` is set, and whether it serves.
    `sources` are the tablets whose rows it still has to take over."""

    tablet: TabletId
    pivot_key: Key
    state: str
    cell: CellId | None
    revision: Revision
    sources: tuple[TabletSource, ...] = ()


class StoredTable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One table with all its tablets: a change of any of them is one record. Tablets go by
    `settings_mounted`: the settings as they were at the last mount or remount."""

    table: int
    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    tablets: tuple[StoredTablet, ...]
    settings: TableSettings = TableSettings()
    settings_mounted: TableSettings = TableSettings()


class MasterState(msgspec.Struct, frozen=True):
    """All that a master knows after a restart."""

    ceiling: Timestamp = Timestamp(0)
    last_id: int = 0
    last_revision: int = 0
    tables: tuple[StoredTable, ...] = ()


def encode_number(number: int) -> bytes:
    """A number from 0 to 2^64 - 1, so that bytes sort as numbers do."""
    return number.to_bytes(NUMBER_BYTES, "big")


def decode_number(value: bytes) -> int:
    """The number. Raises DataCorrupted."""
    if len(value) != NUMBER_BYTES:
        raise DataCorrupted("a stored number does not have 8 bytes", value=value)
    return int.from_bytes(value, "big")


def put_ceiling(ceiling: Timestamp) -> Put:
    """The record of a new ceiling."""
    return Put(ORACLE, CEILING, encode_number(ceiling))


def put_table(table: StoredTable) -> Put:
    """The record of a table as it is now."""
    return Put(TABLES, encode_number(table.table), msgspec.msgpack.encode(table))


def remove_table(table: StoredTable) -> Remove:
    """The record of a table's end."""
    return Remove(TABLES, encode_number(table.table))


def state_from_items(items: Iterable[Item]) -> MasterState:
    """What a store's items say. Raises DataCorrupted on any that is not understood."""
    numbers = {(ORACLE, CEILING): 0, (COUNTERS, LAST_ID): 0, (COUNTERS, LAST_REVISION): 0}
    tables = []
    for bucket, key, value in items:
        if (bucket, key) in numbers:
            numbers[bucket, key] = decode_number(value)
        elif bucket == TABLES:
            tables.append(_decode(value, StoredTable))
        else:
            raise DataCorrupted("a stored item is of no known kind", bucket=bucket, key=key)
    return MasterState(
        ceiling=Timestamp(numbers[ORACLE, CEILING]),
        last_id=numbers[COUNTERS, LAST_ID],
        last_revision=numbers[COUNTERS, LAST_REVISION],
        tables=tuple(sorted(tables, key=_table_id)),
    )


Stored = TypeVar("Stored")


def _decode(value: bytes, kind: type[Stored]) -> Stored:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataCorrupted(f"a stored {kind.__name__} can't be read: {error}") from error


def _table_id(table: Any) -> int:
    return int(table.table)
