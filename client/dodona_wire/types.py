"""The words that every part of Dodona shares, and the layout of a timestamp.

Owns: the distinct integer types, the special timestamps, and the versions a row is made of.
Imports nothing of Dodona, and no clock: whoever needs the time is handed a `Now`.
"""

from typing import Any, Final, Literal, NamedTuple, NewType

import msgspec

from dodona_wire.preload import preload_decoder

Timestamp = NewType("Timestamp", int)
"""64 bits from the oracle: a counter in bits 0-29, Unix seconds in bits 30-61, two zero bits."""

TransactionId = NewType("TransactionId", int)
"""A transaction is named by its start timestamp: the oracle made it unique already."""

TreeTransactionId = NewType("TreeTransactionId", int)
"""Names a master transaction. Small numbers, so that it is never mistaken for a timestamp."""

ReaderId = NewType("ReaderId", int)
"""Names somebody who holds a snapshot: a timestamp that nobody else was given."""

LoadId = NewType("LoadId", int)
"""Names a bulk load: its start timestamp."""

CellId = NewType("CellId", int)
TabletId = NewType("TabletId", int)
ClusterId = NewType("ClusterId", int)
"""Of a cluster, for good: so that nobody mixes up two of them, or one with what is left of it."""
NO_CLUSTER: Final = ClusterId(0)
Revision = NewType("Revision", int)
"""Of a tablet's mount: rises with each mount, so that a stale route or schema is noticed."""

Key = NewType("Key", bytes)
"""A row's key columns, encoded so that bytes sort as the columns do (see `rows.keys`)."""

TIMESTAMP_COUNTER_BITS: Final = 30
NULL_TIMESTAMP: Final = Timestamp(0)
MIN_TIMESTAMP: Final = Timestamp(1)
MAX_TIMESTAMP: Final = Timestamp(0x3FFF_FFFF_FFFF_FF00)
SYNC_LAST_COMMITTED: Final = Timestamp(0x3FFF_FFFF_FFFF_FF01)
ASYNC_LAST_COMMITTED: Final = Timestamp(0x3FFF_FFFF_FFFF_FF04)
TIMESTAMPS_PER_REQUEST_MAX: Final = 1_000_000

KEY_MIN: Final = Key(b"")
KEY_MAX: Final = Key(b"\xff")
"""Above every key: no type tag reaches 0xff."""

DELETE_MASK: Final = 0
"""The column mask of a deletion: a write always sets at least one column."""

Atomicity = Literal["full", "none"]
Durability = Literal["sync", "async"]
LockType = Literal["shared_weak", "shared_strong", "exclusive", "shared_write"]
InMemoryMode = Literal["none", "compressed", "uncompressed"]
BatchKind = Literal["write", "update", "delete"]
"""What the rows of a bulk batch do: set all value columns, set some of them, or delete."""
LoadMode = Literal["upsert", "insert", "update", "delete"]
"""What a bulk load asks of the rows it finds: nothing, that there are none, that all are there, and
nothing again, as it deletes them."""

NO_TREE_TRANSACTION: Final = TreeTransactionId(0)
NO_LOAD: Final = LoadId(0)

Write = tuple[Key, int, tuple[Any, ...]]
"""(key, mask of the value columns set, their values in column order); mask 0 deletes the row."""

WireMask = int | bytes
"""A column mask as it travels: numbers have 64 bits there, so that tables of more than
`schema.PLAIN_COLUMNS_MAX` value columns write theirs as bytes (see `TableSchema.pack_mask`)."""

WireWrite = tuple[Key, WireMask, tuple[Any, ...]]

SpecialWrites = dict[Key, tuple[WireMask, int]]
"""What is out of the ordinary about a transaction's writes, by key: the mask of columns whose
value is a change of an aggregate, and the mask of lock groups taken by shared_write."""


@preload_decoder
class TableSettings(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    repr_omit_defaults=True,
):
    """What a table's owner may set, as attributes, and tablets go by from their next mount or
    remount. Names and defaults are YTsaurus's; times are in milliseconds."""

    enable_shared_write_locks: bool = False
    """Whether rows may be written and locked by `shared_write`."""
    min_data_versions: int = 1
    """So many of the newest versions stay, however old they are."""
    max_data_versions: int = 1
    """Of versions older than `min_data_ttl` so many stay, the younger ones counted."""
    min_data_ttl: int = 1_800_000
    """Versions younger than this stay, in ms; those of the last 75 s always, without atomicity of
    the last 5 s."""
    max_data_ttl: int = 1_800_000
    """Versions older than this go, in ms, but for `min_data_versions`."""
    merge_rows_on_flush: bool = False
    """Whether retention takes versions already when rows are flushed, not only at compaction."""
    in_memory_mode: InMemoryMode = "none"
    """Kept, and changes nothing: chunks are mapped, and the system keeps in memory what is used.
    Set while unmounted only."""
    dynamic_store_auto_flush_period: int = 900_000
    """Rows are flushed from memory to a chunk when the oldest has been there for so long, in ms."""
    max_dynamic_store_row_count: int = 1_000_000
    """Versions in a store in memory: at seven tenths of it a new store is begun, in a table without
    atomicity at 64 MiB already, and a full one takes no more writes."""
    max_dynamic_store_pool_size: int = 1 << 30
    """As `max_dynamic_store_row_count`, in bytes of memory."""
    enable_compaction_and_partitioning: bool = True
    """Whether chunks become one as they get more."""


TableSettings.__module__ = "dodona.types"  # what users see names what they import


class Now(NamedTuple):
    """What a shell tells a core about time. Cores have no clock of their own."""

    instant_us: int
    """Monotonic microseconds; only differences mean something."""
    unix_us: int
    """Wall-clock microseconds; may step either way."""


def timestamp_from_unix_us(unix_us: int) -> Timestamp:
    """The first timestamp of that microsecond (the counter holds the fraction of the second)."""
    assert unix_us >= 0
    return Timestamp((unix_us << TIMESTAMP_COUNTER_BITS) // 1_000_000)


def unix_us_from_timestamp(timestamp: Timestamp) -> int:
    """The microsecond that the timestamp was made in, within about a second."""
    return (timestamp * 1_000_000) >> TIMESTAMP_COUNTER_BITS
