"""What a cell writes to its log, in order. Replaying all of it rebuilds the cell.

Owns: the records and their numbers, which are never reused. How they become bytes (version,
checksum) is the shell's. A record holds what the live handler applied, so that replay goes
through the same `apply`.
"""

import msgspec

from dodona._core.messages import TabletAssignment, TabletModifications, TellRows
from dodona.types import (
    CellId,
    ClusterId,
    Key,
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
    """Non-atomic rows with the client's stamp; replay raises it per row as the first time."""

    tablet: TabletId
    stamp: Timestamp
    writes: tuple[WireWrite, ...]
    special: SpecialWrites | None = None


class BatchWritten(LogRecord, frozen=True, array_like=True, gc=False, tag=10):
    """As RowsWritten: an Arrow IPC stream."""

    tablet: TabletId
    stamp: Timestamp
    batch: bytes


class VersionsRetired(LogRecord, frozen=True, array_like=True, gc=False, tag=20):
    """What was older than `retained` was taken from these rows, as far as `retention` lets it go by
    these settings: one step for each time that a key is here."""

    tablet: TabletId
    retained: Timestamp
    expired: Timestamp
    settings: TableSettings
    keys: tuple[Key, ...]


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
    | VersionsRetired
    | TabletAdjusted
    | RowsTaken
    | ClusterJoined
)
