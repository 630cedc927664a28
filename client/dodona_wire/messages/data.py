"""The data plane: requests of clients and cells to an oracle and to a cell, and the replies."""

from typing import Any

from dodona_wire.messages.base import Message
from dodona_wire.messages.conditions import TabletConditions
from dodona_wire.messages.loads import (
    CloseLoad,
    LoadHeld,
    LoadSealed,
    OpenLoad,
    PeekLoad,
    RenewLoad,
    SealLoad,
    StageArrow,
    Staged,
)
from dodona_wire.messages.locks import LocksReply, LocksRequest
from dodona_wire.messages.reads import ReadRange
from dodona_wire.types import (
    NO_LOAD,
    NO_OWNER,
    NULL_TIMESTAMP,
    BatchKind,
    CellId,
    Key,
    LoadId,
    LockType,
    Owner,
    ReaderId,
    Revision,
    SpecialWrites,
    TabletId,
    Timestamp,
    TransactionId,
    WireMask,
    WireWrite,
)

# Timestamps


class GenerateTimestamps(Message, frozen=True, array_like=True, gc=False, tag=1):
    """Ask for timestamps. `is_idle` says that no caller waits for them. Then the oracle need not be
    ready for the next request like this one."""

    count: int
    is_idle: bool = False


class TimestampRange(Message, frozen=True, array_like=True, gc=False, tag=2):
    """Timestamps `first` to `first + count - 1`: all are fresh, and all belong to the caller."""

    first: Timestamp
    count: int


# Requests to a cell


class RowLock(Message, frozen=True, array_like=True, gc=False):
    """A lock on some groups of one row, without data. One row may have several."""

    key: Key
    lock_mask: int
    lock_type: LockType


class Publication(Message, frozen=True, array_like=True, gc=False):
    """The part of a bulk load that becomes visible in one tablet. `chunks` are the staged chunks of
    its seal. They become the only rows in the erased ranges (lower ≤ key < upper)."""

    load: LoadId
    chunks: tuple[int, ...]
    erased: tuple[tuple[Key, Key], ...] = ()


class TabletModifications(Message, frozen=True, array_like=True, gc=False):
    """What one transaction does to one tablet: writes and locks of rows, or the publication of a
    load. A key has at most one write. `special` is about some of these keys. `reads` must still be
    as they were at the start of the transaction, and stay so until its outcome."""

    tablet: TabletId
    revision: Revision
    writes: tuple[WireWrite, ...]
    locks: tuple[RowLock, ...] = ()
    special: SpecialWrites | None = None
    publication: Publication | None = None
    reads: tuple[ReadRange, ...] = ()

    @property
    def only_reads(self) -> bool:
        """Whether the transaction does nothing to the tablet, and has read it."""
        return bool(self.reads) and not (self.writes or self.locks or self.publication)


class CommitOne(Message, frozen=True, array_like=True, gc=False, tag=10):
    """Commit a transaction of this cell only. → Committed | Failure."""

    transaction: TransactionId
    modifications: tuple[TabletModifications, ...]
    is_blind: bool = False
    """The transaction reads nothing and begins on arrival. So no earlier commit is a conflict, and
    it waits for transactions that hold its rows."""


class Prepare(Message, frozen=True, array_like=True, gc=False, tag=11):
    """First phase of a commit in several cells; the first participant coordinates.
    → Prepared | Committed | Failure."""

    transaction: TransactionId
    participants: tuple[CellId, ...]
    modifications: tuple[TabletModifications, ...]


class ConditionalCommit(Message, frozen=True, array_like=True, gc=False, tag=46):
    """The request, if these conditions hold. It is a message of its own, so that an older cell
    refuses it, and can't ignore the conditions. → as the request."""

    request: CommitOne | Prepare
    conditions: tuple[TabletConditions, ...]
    owner: Owner = NO_OWNER
    """The owner of early locks that this transaction passes, and that its commit ends."""


class ValidatedCommit(Message, frozen=True, array_like=True, gc=False, tag=58):
    """The request, whose parts have reads. It is a message of its own, so that an older cell
    refuses it, and can't ignore the reads. → as the request."""

    request: CommitOne | Prepare | ConditionalCommit
    since: Timestamp = NULL_TIMESTAMP
    """When the rows were read, if that was before the start of the transaction: in a new attempt
    of a transaction that was refused."""


def bare_commit(request: object) -> object:
    """Return the CommitOne or Prepare that these requests wrap, or any other request as it is."""
    if isinstance(request, ValidatedCommit):
        request = request.request
    return request.request if isinstance(request, ConditionalCommit) else request


class Decide(Message, frozen=True, array_like=True, gc=False, tag=12):
    """To the coordinator: commit at this timestamp (all are prepared), or abort (None).
    → Committed | Aborted | OutcomeUnknown."""

    transaction: TransactionId
    participants: tuple[CellId, ...]
    commit_timestamp: Timestamp | None
    is_proved: bool = False
    """For an abort: a participant is not prepared and never will be. Any participant takes that."""


class AskOutcome(Message, frozen=True, array_like=True, gc=False, tag=13):
    """Ask the coordinator, or the only participant, for the outcome. The answer settles it: a
    transaction not heard of yet is poisoned. → Committed | Aborted | OutcomeUnknown."""

    transaction: TransactionId


class PeekOutcome(Message, frozen=True, array_like=True, gc=False, tag=20):
    """Ask any cell what it knows of the transaction. The answer changes nothing. `Aborted` says
    that the transaction will never be committed *in this cell*. If this cell coordinates it, it
    will never be committed at all. → Committed | Aborted | Undecided | OutcomeUnknown."""

    transaction: TransactionId


class WriteNonAtomic(Message, frozen=True, array_like=True, gc=False, tag=14):
    """Write rows of an `atomicity=none` table, with a timestamp of the client's clock.
    → Written | Failure."""

    tablet: TabletId
    revision: Revision
    stamp: Timestamp
    is_durable: bool
    writes: tuple[WireWrite, ...]
    special: SpecialWrites | None = None


class WriteArrow(Message, frozen=True, array_like=True, gc=False, tag=15):
    """Write many rows as WriteNonAtomic does. `batch` is an Arrow IPC stream, with columns as in
    `StageArrow`. A batch of a load is refused if the load is not open here."""

    tablet: TabletId
    revision: Revision
    stamp: Timestamp
    is_durable: bool
    batch: bytes
    load: LoadId = NO_LOAD
    kind: BatchKind = "write"


class Lookup(Message, frozen=True, array_like=True, gc=False, tag=16):
    """Read whole keys at a timestamp. → LookupReply, in the order of `keys`, with None for a
    missing row. A write or deletion before `retention_timestamp` counts as if it had never been."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    keys: tuple[Key, ...]
    column_mask: WireMask
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class Scan(Message, frozen=True, array_like=True, gc=False, tag=17):
    """Read the rows of lower ≤ key < upper in key order, at most `row_count_max`. → ScanPage."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    lower: Key
    upper: Key
    column_mask: WireMask
    row_count_max: int
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class ScanArrow(Message, frozen=True, array_like=True, gc=False, tag=18):
    """Read rows as Scan does. → ArrowPage: an Arrow IPC stream of key and requested columns."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    lower: Key
    upper: Key
    column_mask: WireMask
    row_count_max: int
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class LookupVersions(Message, frozen=True, array_like=True, gc=False, tag=19):
    """Read the versions of whole keys up to a timestamp: those above `since`, and below `below`, if
    given. `count_max`, if given, limits them to the newest of each key. → VersionedRows, in the
    order of `keys`. Columns that are not requested are left out, but the timestamps of their writes
    stay. Of the first key, only versions below `first_below` are read, if given: a page before has
    shown the others. A caller without `is_paged` takes all versions in one answer, or none."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    keys: tuple[Key, ...]
    column_mask: WireMask
    since: Timestamp = NULL_TIMESTAMP
    below: Timestamp = NULL_TIMESTAMP
    count_max: int = 0
    first_below: Timestamp = NULL_TIMESTAMP
    is_paged: bool = False


class ScanVersions(Message, frozen=True, array_like=True, gc=False, tag=25):
    """Read the history of the rows of lower ≤ key < upper: versions of since < timestamp ≤
    `timestamp`. They come in key order, newest first within a row, at most `row_count_max`. The
    request is refused if some of them may be gone, which a `since` of NULL_TIMESTAMP allows. A page
    may end in the row `lower`: its versions above `lower_timestamp`, if given, are left out.
    → ArrowPage: an Arrow IPC stream of the key columns, the requested columns, `$timestamp`,
    `$mask`, and in tables with aggregates `$delta`. A column is null if the version does not set
    it. `$mask` says which of all value columns the version sets, none if it deletes the row.
    `$delta` says which values are changes of an aggregate. Masks are as in chunks: numbers, or
    bytes in wide tables."""

    tablet: TabletId
    revision: Revision
    since: Timestamp
    timestamp: Timestamp
    lower: Key
    upper: Key
    column_mask: WireMask
    row_count_max: int
    lower_timestamp: Timestamp = NULL_TIMESTAMP


class CountVersions(Message, frozen=True, array_like=True, gc=False, tag=45):
    """Estimate how many versions `ScanVersions` would give, and when they were made. → ArrowPage:
    an Arrow IPC stream of `$timestamp` and `$count`, in steps of time. So many versions lie above
    the timestamp before and not above this one, which is that of a version."""

    tablet: TabletId
    revision: Revision
    since: Timestamp
    timestamp: Timestamp
    lower: Key
    upper: Key


class HoldSnapshot(Message, frozen=True, array_like=True, gc=False, tag=21):
    """Keep what these tablets show at a timestamp, until the lease ends. The same request renews
    the lease before its end. It replaces what the reader held in this cell. A lease of 0 releases
    it.
    → SnapshotHeld | Failure."""

    reader: ReaderId
    timestamp: Timestamp
    tablets: tuple[TabletId, ...]
    lease_ms: int


class SplitTablet(Message, frozen=True, array_like=True, gc=False, tag=29):
    """Ask where to cut lower ≤ key < upper into parts of at most about `row_count_max` rows. The
    cell answers without reading the rows. → SplitKeys."""

    tablet: TabletId
    revision: Revision
    lower: Key
    upper: Key
    row_count_max: int


# Replies of a cell


class Committed(Message, frozen=True, array_like=True, gc=False, tag=30):
    transaction: TransactionId
    timestamp: Timestamp


class Prepared(Message, frozen=True, array_like=True, gc=False, tag=31):
    transaction: TransactionId
    timestamp: Timestamp


class Aborted(Message, frozen=True, array_like=True, gc=False, tag=32):
    transaction: TransactionId


class OutcomeUnknown(Message, frozen=True, array_like=True, gc=False, tag=33):
    """It is below the forget watermark and has no record: both outcomes are possible."""

    transaction: TransactionId


class Undecided(Message, frozen=True, array_like=True, gc=False, tag=40):
    """No final outcome is known yet. While it commits here, `coordinator` decides."""

    transaction: TransactionId
    coordinator: CellId | None = None


class Written(Message, frozen=True, array_like=True, gc=False, tag=34):
    """The rows are written. `timestamp` is the largest one that they got."""

    row_count: int
    timestamp: Timestamp


class LookupReply(Message, frozen=True, array_like=True, gc=False, tag=35):
    rows: tuple[tuple[Any, ...] | None, ...]


class RowVersion(Message, frozen=True, array_like=True, gc=False):
    """What one commit did to one row: the masked columns got these values, or it deleted the row.
    Values in `delta_mask` are changes of an aggregate. A write has mask 0 if the reader asked for
    none of its columns."""

    timestamp: Timestamp
    column_mask: WireMask
    values: tuple[Any, ...]
    delta_mask: WireMask = 0
    shared_groups: int = 0
    is_delete: bool = False


class VersionedRows(Message, frozen=True, array_like=True, gc=False, tag=39):
    """The versions of each key, newest first; none if the key never had a row. There may be fewer
    rows than keys: a page ends after some number of versions. With `is_within` the last row
    continues in the next page. `cut` are the places of rows that have more versions than were
    requested. A cell that does not set `is_paged` looked at keys and timestamp alone."""

    rows: tuple[tuple[RowVersion, ...], ...]
    is_within: bool = False
    cut: tuple[int, ...] = ()
    is_paged: bool = False


class SnapshotHeld(Message, frozen=True, array_like=True, gc=False, tag=41):
    """The snapshot is held for `lease_ms` from now, which may be less than requested. Nothing is
    held in the `missing` tablets: this cell does not serve them."""

    lease_ms: int
    missing: tuple[TabletId, ...] = ()


class ScanPage(Message, frozen=True, array_like=True, gc=False, tag=36):
    """A page of rows. `resume` is where the next page begins, or None at the end of the range."""

    keys: tuple[Key, ...]
    rows: tuple[tuple[Any, ...], ...]
    resume: Key | None


class ArrowPage(Message, frozen=True, array_like=True, gc=False, tag=37):
    """A page in Arrow, with `resume` as in ScanPage. A page of versions may end within a row. Then
    the next one begins with that row's versions at or below `resume_timestamp`."""

    batch: bytes
    row_count: int
    resume: Key | None
    resume_timestamp: Timestamp = NULL_TIMESTAMP


class SplitKeys(Message, frozen=True, array_like=True, gc=False, tag=49):
    """The first keys of all parts but the first, rising. There need not be a row at these keys."""

    keys: tuple[Key, ...]


DataRequest = (
    GenerateTimestamps
    | CommitOne
    | Prepare
    | ConditionalCommit
    | ValidatedCommit
    | Decide
    | AskOutcome
    | PeekOutcome
    | WriteNonAtomic
    | WriteArrow
    | Lookup
    | LookupVersions
    | Scan
    | ScanArrow
    | ScanVersions
    | CountVersions
    | HoldSnapshot
    | OpenLoad
    | RenewLoad
    | PeekLoad
    | CloseLoad
    | StageArrow
    | SealLoad
    | SplitTablet
    | LocksRequest
)
DataReply = (
    TimestampRange
    | Committed
    | Prepared
    | Aborted
    | OutcomeUnknown
    | Undecided
    | Written
    | LookupReply
    | VersionedRows
    | ScanPage
    | ArrowPage
    | SnapshotHeld
    | LoadHeld
    | Staged
    | LoadSealed
    | SplitKeys
    | LocksReply
)
