"""What a cell writes to its log, in order. Replaying all of it rebuilds the cell.

Owns: the records and their numbers, which are never reused (20 was VersionsRetired's). How they
become bytes (version, checksum) is the shell's. A record holds what the live handler applied, so
that replay goes through the same `apply`.
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
    """Base of all."""


class TabletMounted(LogRecord, frozen=True, array_like=True, gc=False, tag=1):
    assignment: TabletAssignment


class TabletUnmounted(LogRecord, frozen=True, array_like=True, gc=False, tag=2):
    tablet: TabletId


class CommittedHere(LogRecord, frozen=True, array_like=True, gc=False, tag=3):
    """A one-cell transaction, whole."""

    transaction: TransactionId
    timestamp: Timestamp
    modifications: tuple[TabletModifications, ...]


class PreparedHere(LogRecord, frozen=True, array_like=True, gc=False, tag=4):
    """This cell's part of a many-cell transaction: it keeps the locks until the outcome."""

    transaction: TransactionId
    timestamp: Timestamp
    participants: tuple[CellId, ...]
    modifications: tuple[TabletModifications, ...]


class CommitDecided(LogRecord, frozen=True, array_like=True, gc=False, tag=5):
    """At the coordinator the decision itself; at the others what they were told."""

    transaction: TransactionId
    timestamp: Timestamp


class AbortDecided(LogRecord, frozen=True, array_like=True, gc=False, tag=6):
    transaction: TransactionId


class AllAcknowledged(LogRecord, frozen=True, array_like=True, gc=False, tag=7):
    """Every participant has the commit durably: the coordinator need not tell it again."""

    transaction: TransactionId


class WatermarkRaised(LogRecord, frozen=True, array_like=True, gc=False, tag=8):
    """Outcomes of transactions at or below are forgotten."""

    timestamp: Timestamp


class RowsWritten(LogRecord, frozen=True, array_like=True, gc=False, tag=9):
    """Non-atomic rows, with the timestamp that they got (see `Tablet.apply_stamped`)."""

    tablet: TabletId
    stamp: Timestamp
    writes: tuple[WireWrite, ...]
    special: SpecialWrites | None = None


class BatchWritten(LogRecord, frozen=True, array_like=True, gc=False, tag=10):
    """As RowsWritten: an Arrow IPC stream."""

    tablet: TabletId
    stamp: Timestamp
    batch: bytes


class TabletAdjusted(LogRecord, frozen=True, array_like=True, gc=False, tag=21):
    """It goes on in the same mount, frozen or not any more, or with other settings."""

    tablet: TabletId
    mode: str
    settings: TableSettings


class RowsTaken(LogRecord, frozen=True, array_like=True, gc=False, tag=22):
    """Rows that a tablet of this cell took over from one of another."""

    page: TellRows


class ClusterJoined(LogRecord, frozen=True, array_like=True, gc=False, tag=23):
    """The log belongs to this cluster, from now on and for good."""

    cluster: ClusterId


# What becomes of stores. The files of a chunk are durable before the record that attaches it, and
# removed after the last one that names it has been replaced durably.


class StoreRotated(LogRecord, frozen=True, array_like=True, gc=False, tag=24):
    """The tablet's active store takes no more writes; the next one does."""

    tablet: TabletId


class StoreFlushed(LogRecord, frozen=True, array_like=True, gc=False, tag=25):
    """These chunks (at most one, none if nothing was left) have all that a passive store has.
    Nobody may read below `retained` any more."""

    tablet: TabletId
    store: int
    chunks: tuple[AttachedChunk, ...]
    retained: Timestamp


class ChunksCompacted(LogRecord, frozen=True, array_like=True, gc=False, tag=26):
    """Chunks were replaced by others that say the same from `retained` on."""

    tablet: TabletId
    removed: tuple[AttachedChunk, ...]
    chunks: tuple[AttachedChunk, ...]
    retained: Timestamp


class ChunkLoaded(LogRecord, frozen=True, array_like=True, gc=False, tag=27):
    """A batch of rows became a chunk of its own, at the stamp that the chunk is attached with."""

    tablet: TabletId
    chunk: AttachedChunk


class TabletsDropped(LogRecord, frozen=True, array_like=True, gc=False, tag=28):
    """These are forgotten for good, with their rows. An assignment that is older than this one, by
    its revision, may still have them."""

    tablets: tuple[TabletId, ...]
    revision: Revision


# What becomes of bulk loads. A chunk that is staged becomes a tablet's by the record of the
# transaction that publishes it.


class LoadOpened(LogRecord, frozen=True, array_like=True, gc=False, tag=30):
    """Batches of this load are taken. What its tablets show at `since` is kept."""

    load: LoadId
    atomicity: Atomicity
    lease_ms: int
    since: Timestamp
    tablets: tuple[TabletId, ...]


class StagedChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A chunk of a load that nobody sees. `part` is the batch that it was made of: partition,
    attempt, call, place."""

    tablet: TabletId
    part: tuple[int, int, int, int]
    chunk: AttachedChunk


class ChunkStaged(LogRecord, frozen=True, array_like=True, gc=False, tag=31):
    load: LoadId
    staged: StagedChunk


class LoadClosed(LogRecord, frozen=True, array_like=True, gc=False, tag=32):
    """No more batches of it are taken, and what is still staged is dropped."""

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
    """A transaction that this cell decided, and that others have not acknowledged yet."""

    transaction: TransactionId
    timestamp: Timestamp
    participants: tuple[CellId, ...]


class Checkpoint(LogRecord, frozen=True, array_like=True, gc=False, tag=29):
    """The whole cell at this place in the log, but for the rows in memory and the outcomes that
    are remembered. What is before it is not needed once chunks have those rows and those outcomes
    are forgotten. A log that was truncated begins with one."""

    number: int
    cluster: ClusterId = NO_CLUSTER
    watermark: Timestamp = NULL_TIMESTAMP
    next_chunk: int = 1
    dropped_revision: Revision = Revision(0)
    tablets: tuple[TabletState, ...] = ()
    prepared: tuple[PreparedHere, ...] = ()
    undelivered: tuple[CommitUndelivered, ...] = ()
    outcomes: tuple[tuple[TransactionId, Timestamp], ...] = ()
    """The last one before a clean stop has all commits that are remembered, so that the next start
    need not read them out of a long log."""
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
"""Those with rows or outcomes, which are most of a log. All others are *structural*: a recovery
may want to see them before it replays anything."""
