"""Define the records that a cell writes to its log, in order. Replaying them all rebuilds the cell.

Owns: the records and their numbers, which are never used again (20 was VersionsRetired). The shell
turns records into bytes, with a version and a checksum. A record has what the live handler applied,
so that replay goes through the same `apply`.
"""

from typing import Any, Final

import msgspec

from dodona_tablets.core.rows.chunks.info import AttachedChunk
from dodona_wire.messages.catalog import TabletAssignment, TabletSource
from dodona_wire.messages.cells import TellRows
from dodona_wire.messages.data import TabletModifications
from dodona_wire.types import (
    NO_CLUSTER,
    NO_LOAD,
    NULL_TIMESTAMP,
    Atomicity,
    CellId,
    ClusterId,
    Key,
    LoadId,
    Revision,
    SpecialWrites,
    TableSettings,
    TabletId,
    Timestamp,
    TransactionId,
    WireWrite,
)


class LogRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The base of all records."""


class TabletMounted(LogRecord, frozen=True, array_like=True, gc=False, tag=1):
    assignment: TabletAssignment


class TabletUnmounted(LogRecord, frozen=True, array_like=True, gc=False, tag=2):
    tablet: TabletId


class CommittedHere(LogRecord, frozen=True, array_like=True, gc=False, tag=3):
    """A one-cell transaction, complete."""

    transaction: TransactionId
    timestamp: Timestamp
    modifications: tuple[TabletModifications, ...]


class PreparedHere(LogRecord, frozen=True, array_like=True, gc=False, tag=4):
    """This cell's part of a many-cell transaction. It keeps its locks until the outcome."""

    transaction: TransactionId
    timestamp: Timestamp
    participants: tuple[CellId, ...]
    modifications: tuple[TabletModifications, ...]


class CommitDecided(LogRecord, frozen=True, array_like=True, gc=False, tag=5):
    """A commit: the coordinator's own decision, or the one that a participant received."""

    transaction: TransactionId
    timestamp: Timestamp


class AbortDecided(LogRecord, frozen=True, array_like=True, gc=False, tag=6):
    transaction: TransactionId


class AllAcknowledged(LogRecord, frozen=True, array_like=True, gc=False, tag=7):
    """Every participant has the commit durably. The coordinator need not announce it again."""

    transaction: TransactionId


class WatermarkRaised(LogRecord, frozen=True, array_like=True, gc=False, tag=8):
    """The outcomes of transactions at or below this timestamp are forgotten."""

    timestamp: Timestamp


class RowsWritten(LogRecord, frozen=True, array_like=True, gc=False, tag=9):
    """Non-atomic rows, with the timestamp that they got (see `Tablet.apply_stamped`)."""

    tablet: TabletId
    stamp: Timestamp
    writes: tuple[WireWrite, ...]
    special: SpecialWrites | None = None


class BatchWritten(LogRecord, frozen=True, array_like=True, gc=False, tag=10):
    """Non-atomic rows as `RowsWritten`, in an Arrow IPC stream."""

    tablet: TabletId
    stamp: Timestamp
    batch: bytes


class TabletAdjusted(LogRecord, frozen=True, array_like=True, gc=False, tag=21):
    """A tablet in the same mount was frozen or unfrozen, or got other settings."""

    tablet: TabletId
    mode: str
    settings: TableSettings


class RowsTaken(LogRecord, frozen=True, array_like=True, gc=False, tag=22):
    """Rows that a tablet of this cell took over from a tablet of another cell."""

    page: TellRows


class ClusterJoined(LogRecord, frozen=True, array_like=True, gc=False, tag=23):
    """The log belongs to this cluster, from now on and for good."""

    cluster: ClusterId


# Stores. The files of a chunk are durable before the record that attaches it. They are removed
# after the last record that names the chunk has been replaced durably.


class StoreRotated(LogRecord, frozen=True, array_like=True, gc=False, tag=24):
    """The tablet's active store takes no more writes. The next store does."""

    tablet: TabletId


class StoreFlushed(LogRecord, frozen=True, array_like=True, gc=False, tag=25):
    """These chunks have all that a passive store has: at most one chunk, none if nothing was left.
    Reads below `retained` are refused from now on."""

    tablet: TabletId
    store: int
    chunks: tuple[AttachedChunk, ...]
    retained: Timestamp


class ChunksCompacted(LogRecord, frozen=True, array_like=True, gc=False, tag=26):
    """Other chunks replaced these chunks. Both show the same from `retained` on."""

    tablet: TabletId
    removed: tuple[AttachedChunk, ...]
    chunks: tuple[AttachedChunk, ...]
    retained: Timestamp


class ChunkLoaded(LogRecord, frozen=True, array_like=True, gc=False, tag=27):
    """A batch of rows became a chunk of its own, attached at the chunk's timestamp."""

    tablet: TabletId
    chunk: AttachedChunk


class TabletsDropped(LogRecord, frozen=True, array_like=True, gc=False, tag=28):
    """These tablets are forgotten for good, with their rows. An assignment with an older revision
    may still have them."""

    tablets: tuple[TabletId, ...]
    revision: Revision


# Bulk loads. The record of the transaction that publishes a staged chunk makes it a chunk of a
# tablet.


class LoadOpened(LogRecord, frozen=True, array_like=True, gc=False, tag=30):
    """The cell takes batches of this load. Its tablets keep what they show at `since`."""

    load: LoadId
    atomicity: Atomicity
    lease_ms: int
    since: Timestamp
    tablets: tuple[TabletId, ...]


class StagedChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A chunk of a load that no read sees. `part` names the batch that it was made from: partition,
    attempt, call, place."""

    tablet: TabletId
    part: tuple[int, int, int, int]
    chunk: AttachedChunk


class ChunkStaged(LogRecord, frozen=True, array_like=True, gc=False, tag=31):
    load: LoadId
    staged: StagedChunk


class LoadClosed(LogRecord, frozen=True, array_like=True, gc=False, tag=32):
    """The cell takes no more batches of this load. Its staged chunks are dropped."""

    load: LoadId
    reason: str


class LoadState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A load in a checkpoint."""

    opened: LoadOpened
    staged: tuple[StagedChunk, ...]


class TabletState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A tablet in a checkpoint: all but the rows of its stores in memory."""

    assignment: TabletAssignment
    is_mounted: bool
    retained: Timestamp
    newest_stamp: Timestamp
    missing: tuple[tuple[TabletSource, Key], ...]
    chunks: tuple[AttachedChunk, ...]
    unflushed: tuple[int, ...]
    """The numbers of passive stores that no chunk has."""
    active: int


class CommitUndelivered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A transaction that this cell decided and that other cells have not acknowledged yet."""

    transaction: TransactionId
    timestamp: Timestamp
    participants: tuple[CellId, ...]


class Checkpoint(LogRecord, frozen=True, array_like=True, gc=False, tag=29):
    """The whole cell at this place in the log, but for the rows in memory and the outcomes that it
    remembers. Earlier records are not needed once chunks have those rows and those outcomes are
    forgotten. A log that was truncated begins with a checkpoint."""

    number: int
    cluster: ClusterId = NO_CLUSTER
    watermark: Timestamp = NULL_TIMESTAMP
    next_chunk: int = 1
    dropped_revision: Revision = Revision(0)
    tablets: tuple[TabletState, ...] = ()
    prepared: tuple[PreparedHere, ...] = ()
    undelivered: tuple[CommitUndelivered, ...] = ()
    outcomes: tuple[tuple[TransactionId, Timestamp], ...] = ()
    """The last checkpoint before a clean stop has all commits that are remembered. So the next
    start need not read them from a long log."""
    loads: tuple[LoadState, ...] = ()
    loads_ended: tuple[tuple[LoadId, str], ...] = ()
    loads_forgotten: LoadId = NO_LOAD


Record = (
    TabletMounted
    | TabletUnmounted
    | CommittedHere
    | PreparedHere
    | CommitDecided
    | AbortDecided
    | AllAcknowledged
    | WatermarkRaised
    | RowsWritten
    | BatchWritten
    | TabletAdjusted
    | RowsTaken
    | ClusterJoined
    | StoreRotated
    | StoreFlushed
    | ChunksCompacted
    | ChunkLoaded
    | TabletsDropped
    | LoadOpened
    | ChunkStaged
    | LoadClosed
    | Checkpoint
)

ROW_RECORDS: Final[frozenset[type[Any]]] = frozenset(
    {
        CommittedHere,
        PreparedHere,
        CommitDecided,
        AbortDecided,
        AllAcknowledged,
        RowsWritten,
        BatchWritten,
        RowsTaken,
    }
)
"""Records with rows or outcomes, which are most of a log. All others are *structural*: a recovery
may read them before it replays anything."""
