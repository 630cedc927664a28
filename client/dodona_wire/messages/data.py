"""The data plane: what clients and cells ask of an oracle and of a cell, and the replies."""

from typing import Any

from dodona_wire.messages.base import Failure, Message
from dodona_wire.types import (
    NO_LOAD,
    NULL_TIMESTAMP,
    Atomicity,
    BatchKind,
    CellId,
    Key,
    LoadId,
    LoadMode,
    LockType,
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
    """`is_idle` if nobody waits for the timestamps: there is no reason to be ready for the next
    request like this one."""

    count: int
    is_idle: bool = False


class TimestampRange(Message, frozen=True, array_like=True, gc=False, tag=2):
    """Timestamps `first` to `first + count - 1`, all fresh, all the caller's."""

    first: Timestamp
    count: int


# Requests to a cell


class RowLock(Message, frozen=True, array_like=True, gc=False):
    """A lock on some groups of one row, without data. One row may have several."""

    key: Key
    lock_mask: int
    lock_type: LockType


class Publication(Message, frozen=True, array_like=True, gc=False):
    """What of a bulk load becomes visible in one tablet: these of its staged chunks, which it was
    sealed with, as the only rows in the erased ranges (lower ≤ key < upper)."""

    load: LoadId
    chunks: tuple[int, ...]
    erased: tuple[tuple[Key, Key], ...] = ()


class TabletModifications(Message, frozen=True, array_like=True, gc=False):
    """What one transaction does to one tablet: writes and locks of rows, or the publication of a
    load. At most one write a key; `special` is about some of these keys."""

    tablet: TabletId
    revision: Revision
    writes: tuple[WireWrite, ...]
    locks: tuple[RowLock, ...] = ()
    special: SpecialWrites | None = None
    publication: Publication | None = None


class CommitOne(Message, frozen=True, array_like=True, gc=False, tag=10):
    """Commit a transaction that touches this cell only. → Committed | Failure."""

    transaction: TransactionId
    modifications: tuple[TabletModifications, ...]
    is_blind: bool = False
    """It reads nothing and begins on arrival: nothing that was committed before it stands in its
    way, and it waits for whoever holds its rows."""


class Prepare(Message, frozen=True, array_like=True, gc=False, tag=11):
    """First phase of a many-cell commit; the first participant coordinates.
    → Prepared | Committed | Failure."""

    transaction: TransactionId
    participants: tuple[CellId, ...]
    modifications: tuple[TabletModifications, ...]


class Decide(Message, frozen=True, array_like=True, gc=False, tag=12):
    """To the coordinator: commit at this timestamp (all are prepared), or abort (None).
    → Committed | Aborted | OutcomeUnknown."""

    transaction: TransactionId
    participants: tuple[CellId, ...]
    commit_timestamp: Timestamp | None
    is_proved: bool = False
    """Of an abort: a participant is not prepared and never will be. Any participant takes it."""


class AskOutcome(Message, frozen=True, array_like=True, gc=False, tag=13):
    """To the coordinator, or the only participant: what became of the transaction? Answering
    settles it: one not heard of yet is poisoned. → Committed | Aborted | OutcomeUnknown."""

    transaction: TransactionId


class PeekOutcome(Message, frozen=True, array_like=True, gc=False, tag=20):
    """To any cell: what is known there of the transaction? Answering changes nothing. `Aborted`
    says that it will never be committed *here*: of the transaction that is true if this cell
    coordinates it. → Committed | Aborted | Undecided | OutcomeUnknown."""

    transaction: TransactionId


class WriteNonAtomic(Message, frozen=True, array_like=True, gc=False, tag=14):
    """Rows of an `atomicity=none` table, stamped by the client's clock. → Written | Failure."""

    tablet: TabletId
    revision: Revision
    stamp: Timestamp
    is_durable: bool
    writes: tuple[WireWrite, ...]
    special: SpecialWrites | None = None


class WriteArrow(Message, frozen=True, array_like=True, gc=False, tag=15):
    """As WriteNonAtomic, for bulk: `batch` is an Arrow IPC stream, with columns as `StageArrow` has
    them. One that belongs to a load is refused if that is not open here."""

    tablet: TabletId
    revision: Revision
    stamp: Timestamp
    is_durable: bool
    batch: bytes
    load: LoadId = NO_LOAD
    kind: BatchKind = "write"


class Lookup(Message, frozen=True, array_like=True, gc=False, tag=16):
    """Read whole keys at a timestamp. → LookupReply, in the order of `keys`, None where no row is.
    What was written or deleted before `retention_timestamp` is as if it had never been."""

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
    """As Scan. → ArrowPage: an Arrow IPC stream of the key columns and the columns asked for."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    lower: Key
    upper: Key
    column_mask: WireMask
    row_count_max: int
    retention_timestamp: Timestamp = NULL_TIMESTAMP


class LookupVersions(Message, frozen=True, array_like=True, gc=False, tag=19):
    """The versions of whole keys up to a timestamp: those above `since`, and below `below` if that
    is given; of each key the newest `count_max`, if that is. → VersionedRows, in the order of
    `keys`. The columns not asked for are left out; the timestamps of what wrote them stay. Of the
    first key only versions below `first_below` are meant, if that is given: a page before has shown
    the others. Who does not say `is_paged` takes all of them in one answer, or none."""

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
    """Read what became of the rows of lower ≤ key < upper: their versions of since < timestamp ≤
    `timestamp`, in key order and newest first within a row, at most `row_count_max`. Refused if
    some of them may be gone, which a `since` of NULL_TIMESTAMP allows. Of the row `lower`, which a
    page may end in, those above `lower_timestamp` are left out, if that is given.
    → ArrowPage: an Arrow IPC stream of the key columns, the columns asked for (null where a version
    does not set them), `$timestamp`, `$mask`: which of all value columns the version sets, none if
    it deletes the row; and in tables with aggregates `$delta`: which of the values are changes of
    one. Masks as chunks have them: numbers, or bytes in tables that are wide."""

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
    """How many versions are there that `ScanVersions` would give, about, and when were they made?
    → ArrowPage: an Arrow IPC stream of `$timestamp` and `$count`, in steps of time: so many lie
    above the timestamp before, and at or below this one, which some version has."""

    tablet: TabletId
    revision: Revision
    since: Timestamp
    timestamp: Timestamp
    lower: Key
    upper: Key


class HoldSnapshot(Message, frozen=True, array_like=True, gc=False, tag=21):
    """Keep what these tablets show at a timestamp, until the lease ends: to be renewed before, by
    the same request. It replaces whatever the reader held in this cell; a lease of 0 lets go.
    → SnapshotHeld | Failure."""

    reader: ReaderId
    timestamp: Timestamp
    tablets: tuple[TabletId, ...]
    lease_ms: int


class OpenLoad(Message, frozen=True, array_like=True, gc=False, tag=22):
    """From now on take batches of this load, until its lease ends: every request of the load that
    comes here renews it. An atomic load stages them: what these tablets show at `since` is kept
    meanwhile. One without atomicity writes them at once, and `since`, by its client's clock, is the
    stamp that they all have. → LoadHeld | Failure."""

    load: LoadId
    atomicity: Atomicity
    lease_ms: int
    since: Timestamp
    tablets: tuple[TabletId, ...] = ()


class RenewLoad(Message, frozen=True, array_like=True, gc=False, tag=23):
    """Begin the lease of an open load anew. → LoadHeld | Failure."""

    load: LoadId


class PeekLoad(Message, frozen=True, array_like=True, gc=False, tag=28):
    """For how long is this load open here, if nobody renews it? Asking changes nothing.
    → LoadHeld."""

    load: LoadId


class CloseLoad(Message, frozen=True, array_like=True, gc=False, tag=24):
    """Take no more batches of this load, and drop what is staged of it and was not published.
    → LoadHeld, with a lease of 0 once it is over; not as long as it is being published."""

    load: LoadId


class StageArrow(Message, frozen=True, array_like=True, gc=False, tag=26):
    """Keep a batch for a load, unseen until that is published. `batch` is an Arrow IPC stream: of
    all columns to write, of the key columns and some others to update, of the key columns to
    delete. `part` (partition, attempt, call, place) names it: a repeat is not staged twice.
    → Staged | Failure."""

    tablet: TabletId
    revision: Revision
    load: LoadId
    part: tuple[int, int, int, int]
    kind: BatchKind
    batch: bytes


class SealLoad(Message, frozen=True, array_like=True, gc=False, tag=27):
    """Check that these staged chunks can be published in a tablet, and make what is missing: the
    deletions of whatever else is in the erased ranges. Rows that changed after `since` are a
    conflict. → LoadSealed | Failure."""

    tablet: TabletId
    revision: Revision
    load: LoadId
    chunks: tuple[int, ...]
    mode: LoadMode
    since: Timestamp
    erased: tuple[tuple[Key, Key], ...] = ()


class SplitTablet(Message, frozen=True, array_like=True, gc=False, tag=29):
    """Where to cut lower ≤ key < upper into parts of about `row_count_max` rows at most, as far as
    can be said without reading them. → SplitKeys."""

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
    """Below the forget watermark and without a record: it may have been either."""

    transaction: TransactionId


class Undecided(Message, frozen=True, array_like=True, gc=False, tag=40):
    """Nothing final is known yet. While it commits here, `coordinator` is who decides it."""

    transaction: TransactionId
    coordinator: CellId | None = None


class Written(Message, frozen=True, array_like=True, gc=False, tag=34):
    """`timestamp` is the largest that the rows got."""

    row_count: int
    timestamp: Timestamp


class LookupReply(Message, frozen=True, array_like=True, gc=False, tag=35):
    rows: tuple[tuple[Any, ...] | None, ...]


class RowVersion(Message, frozen=True, array_like=True, gc=False):
    """What one commit did to one row: the masked columns got these values, of which those in
    `delta_mask` are changes of an aggregate, or it deleted the row. A write has mask 0 where the
    reader asked for none of its columns."""

    timestamp: Timestamp
    column_mask: WireMask
    values: tuple[Any, ...]
    delta_mask: WireMask = 0
    shared_groups: int = 0
    is_delete: bool = False


class VersionedRows(Message, frozen=True, array_like=True, gc=False, tag=39):
    """For each key its versions, newest first; none where there is no row and never was one. There
    may be fewer rows than keys: a page ends after some number of versions. With `is_within` the
    last row goes on in the next page. `cut` are the places of rows that have more versions than
    were asked for. A cell that does not say `is_paged` looked at keys and timestamp alone."""

    rows: tuple[tuple[RowVersion, ...], ...]
    is_within: bool = False
    cut: tuple[int, ...] = ()
    is_paged: bool = False


class SnapshotHeld(Message, frozen=True, array_like=True, gc=False, tag=41):
    """For so long from now, which may be shorter than was asked for. Of the `missing` tablets
    nothing is held: they are not served here."""

    lease_ms: int
    missing: tuple[TabletId, ...] = ()


class LoadHeld(Message, frozen=True, array_like=True, gc=False, tag=42):
    """The load is open for so long from now; 0: not any more."""

    lease_ms: int


class Staged(Message, frozen=True, array_like=True, gc=False, tag=43):
    """The batch is durable as this chunk of the tablet."""

    chunk: int
    row_count: int


class LoadSealed(Message, frozen=True, array_like=True, gc=False, tag=44):
    """These chunks can be published together: those asked about, and deletions."""

    chunks: tuple[int, ...]
    row_count: int
    deleted_count: int


class ScanPage(Message, frozen=True, array_like=True, gc=False, tag=36):
    """`resume` is where the next page begins, or None at the end of the range."""

    keys: tuple[Key, ...]
    rows: tuple[tuple[Any, ...], ...]
    resume: Key | None


class ArrowPage(Message, frozen=True, array_like=True, gc=False, tag=37):
    """`resume` as in ScanPage. A page of versions may end within a row: then the next one begins
    with that row's versions at or below `resume_timestamp`."""

    batch: bytes
    row_count: int
    resume: Key | None
    resume_timestamp: Timestamp = NULL_TIMESTAMP


class SplitKeys(Message, frozen=True, array_like=True, gc=False, tag=49):
    """The first keys of all parts but the first, rising. There is not always a row at them."""

    keys: tuple[Key, ...]


DataRequest = (
    GenerateTimestamps
    | CommitOne
    | Prepare
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
    | Failure
)
