"""Types and constants that every part of Dodona shares, and the layout of a timestamp.

Owns: the distinct integer types, the special timestamps, the form of a write, and the settings of a
table. Imports nothing of Dodona but `preload`, and no clock: code that needs the time takes a
`Now`.
"""

from typing import Any, Final, Literal, NamedTuple, NewType

import msgspec

from dodona_wire.preload import preload_decoder

Timestamp = NewType("Timestamp", int)
"""64 bits from the oracle: a counter in bits 0-29, Unix seconds in bits 30-61, two zero bits."""

TransactionId = NewType("TransactionId", int)
"""The id of a transaction: its start timestamp, which the oracle made unique."""

TreeTransactionId = NewType("TreeTransactionId", int)
"""The id of a master transaction: a small number, which can't be mistaken for a timestamp."""

ReaderId = NewType("ReaderId", int)
"""The id of a reader that holds a snapshot: a timestamp that only this reader received."""

LoadId = NewType("LoadId", int)
"""The id of a bulk load: its start timestamp."""

Owner = NewType("Owner", int)
"""The name under which early locks are held: a timestamp that only this owner received."""
NO_OWNER: Final = Owner(0)

CellId = NewType("CellId", int)
TabletId = NewType("TabletId", int)
ClusterId = NewType("ClusterId", int)
"""The permanent id of a cluster. It tells clusters, and remains of an earlier cluster, apart."""
NO_CLUSTER: Final = ClusterId(0)
Revision = NewType("Revision", int)
"""The number of a tablet's mount. It rises with each, so a stale route or schema is noticed."""

Key = NewType("Key", bytes)
"""The key columns of a row, encoded so that bytes sort as the columns do (see `rows.keys`)."""

TIMESTAMP_COUNTER_BITS: Final = 30
NULL_TIMESTAMP: Final = Timestamp(0)
MIN_TIMESTAMP: Final = Timestamp(1)
MAX_TIMESTAMP: Final = Timestamp(0x3FFF_FFFF_FFFF_FF00)
SYNC_LAST_COMMITTED: Final = Timestamp(0x3FFF_FFFF_FFFF_FF01)
ASYNC_LAST_COMMITTED: Final = Timestamp(0x3FFF_FFFF_FFFF_FF04)
TIMESTAMPS_PER_REQUEST_MAX: Final = 1_000_000

KEY_MIN: Final = Key(b"")
KEY_MAX: Final = Key(b"\xff")
"""A key above every other key: no type tag reaches 0xff."""

DELETE_MASK: Final = 0
"""The column mask of a deletion: a write always sets at least one column."""

Atomicity = Literal["full", "none"]
Durability = Literal["sync", "async"]
Isolation = Literal["snapshot", "serializable"]
LockType = Literal["shared_weak", "shared_strong", "exclusive", "shared_write"]
InMemoryMode = Literal["none", "compressed", "uncompressed"]
BatchKind = Literal["write", "update", "delete"]
"""What the rows of a bulk batch do: set all value columns, set some of them, or delete."""
LoadMode = Literal["upsert", "insert", "update", "delete"]
"""What a load requires of existing rows. Insert requires that no row exists, and update that all
rows exist. Upsert and delete require nothing."""

NO_TREE_TRANSACTION: Final = TreeTransactionId(0)
NO_LOAD: Final = LoadId(0)

Write = tuple[Key, int, tuple[Any, ...]]
"""A key, the mask of value columns set, their values in column order. Mask 0 deletes the row."""

WireMask = int | bytes
"""A column mask on the wire. Numbers have 64 bits there. So tables of more than
`schema.PLAIN_COLUMNS_MAX` value columns send their masks as bytes (see `TableSchema.pack_mask`)."""

WireWrite = tuple[Key, WireMask, tuple[Any, ...]]

SpecialWrites = dict[Key, tuple[WireMask, int]]
"""The unusual parts of a transaction's writes, by key, as two masks. One has the columns whose
value is a change of an aggregate. The other has the lock groups taken by shared_write."""


@preload_decoder
class TableSettings(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """Settings of a table, which its owner sets as attributes. Tablets use them from their next
    mount or remount. Clients use `isolation`, which tablets never get. A directory has no settings
    for its tables, and refuses these attributes. Names and defaults are YTsaurus's, except
    `isolation`. Times are in milliseconds."""

    enable_shared_write_locks: bool = False
    """Whether rows may be written and locked with `shared_write`."""
    min_data_versions: int = 1
    """The number of newest versions that are kept, however old they are."""
    max_data_versions: int = 1
    """The number of newest versions of which those older than `min_data_ttl` are kept."""
    min_data_ttl: int = 1_800_000
    """Versions younger than this are kept, in ms. Those of the last 75 s are always kept; without
    atomicity, those of the last 5 s."""
    max_data_ttl: int = 1_800_000
    """Versions older than this are removed, in ms, except the `min_data_versions` newest."""
    merge_rows_on_flush: bool = False
    """Whether retention removes versions already at a flush, not only at a compaction."""
    in_memory_mode: InMemoryMode = "none"
    """Stored, without effect. Chunks are mapped, and the system keeps the used parts in memory. Can
    be set only while the table is unmounted."""
    dynamic_store_auto_flush_period: int = 900_000
    """Rows are flushed from memory to a chunk when the oldest has been there so long, in ms."""
    max_dynamic_store_row_count: int = 1_000_000
    """The limit of versions in a store in memory. A new store begins at seven tenths of this
    number, in a table without atomicity already at 64 MiB. A full store takes no more writes."""
    max_dynamic_store_pool_size: int = 1 << 30
    """The same limit as `max_dynamic_store_row_count`, in bytes of memory."""
    enable_compaction_and_partitioning: bool = True
    """Whether chunks are merged when there are more of them."""
    isolation: Isolation | None = None
    """The isolation of transactions that read this table, unless begin says another one. Unset: the
    client's default. Needs atomicity `full`. Takes effect in each client when it next looks the
    table up, and in all clients once the table is unmounted and mounted."""


TableSettings.__module__ = "dodona.types"  # users see the name that they import


class Now(NamedTuple):
    """The time, which a shell passes to a core. Cores have no clock of their own."""

    instant_us: int
    """Monotonic microseconds; only differences have a meaning."""
    unix_us: int
    """Wall-clock microseconds, which may step in both directions."""


def timestamp_from_unix_us(unix_us: int) -> Timestamp:
    """Return the first timestamp of a microsecond; the counter holds the fraction of the second."""
    assert unix_us >= 0
    return Timestamp((unix_us << TIMESTAMP_COUNTER_BITS) // 1_000_000)


def unix_us_from_timestamp(timestamp: Timestamp) -> int:
    """Return the microsecond at which the timestamp was made, within about a second."""
    return (timestamp * 1_000_000) >> TIMESTAMP_COUNTER_BITS
