"""Every message, of the data plane and of the catalog. Frozen, without behaviour, no I/O.

Three families: requests and their replies (a reply answers one request), cell messages (one way,
between the participants of a transaction; each names its sender), and catalog requests, which
travel as REST between processes and as they are in the simulator and in an embedded database.
A message is a MessagePack array that opens with its number (see `codec`): numbers are never reused.
"""

from typing import Any

import msgspec

from dodona.schema import Column
from dodona.types import (
    Atomicity,
    CellId,
    Key,
    Revision,
    TabletId,
    Timestamp,
    TransactionId,
    Write,
)


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all. `gc=False`: messages never form cycles, so the collector need not see them."""


# Timestamps


class GenerateTimestamps(Message, frozen=True, array_like=True, gc=False, tag=1):
    count: int


class TimestampRange(Message, frozen=True, array_like=True, gc=False, tag=2):
    """Timestamps `first` to `first + count - 1`, all fresh, all the caller's."""

    first: Timestamp
    count: int


# Requests to a cell


class RowLock(Message, frozen=True, array_like=True, gc=False):
    """A read lock on one row. `is_strong` leaves a read-locked time behind at commit."""

    key: Key
    lock_mask: int
    is_strong: bool


class TabletModifications(Message, frozen=True, array_like=True, gc=False):
    """What one transaction does to one tablet. At most one write a key."""

    tablet: TabletId
    revision: Revision
    writes: tuple[Write, ...]
    locks: tuple[RowLock, ...] = ()


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


class AskOutcome(Message, frozen=True, array_like=True, gc=False, tag=13):
    """To the coordinator, or the only participant: what became of the transaction? Answering
    settles it: one not heard of yet is poisoned. → Committed | Aborted | OutcomeUnknown."""

    transaction: TransactionId


class WriteNonAtomic(Message, frozen=True, array_like=True, gc=False, tag=14):
    """Rows of an `atomicity=none` table, stamped by the client's clock. → Written | Failure."""

    tablet: TabletId
    revision: Revision
    stamp: Timestamp
    is_durable: bool
    writes: tuple[Write, ...]


class WriteArrow(Message, frozen=True, array_like=True, gc=False, tag=15):
    """As WriteNonAtomic, for bulk: `batch` is an Arrow IPC stream of all the table's columns."""

    tablet: TabletId
    revision: Revision
    stamp: Timestamp
    is_durable: bool
    batch: bytes


class Lookup(Message, frozen=True, array_like=True, gc=False, tag=16):
    """Read whole keys at a timestamp. → Rows, in the order of `keys`, None where no row is."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    keys: tuple[Key, ...]
    column_mask: int


class Scan(Message, frozen=True, array_like=True, gc=False, tag=17):
    """Read the rows of lower ≤ key < upper in key order, at most `row_count_max`. → ScanPage."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    lower: Key
    upper: Key
    column_mask: int
    row_count_max: int


class ScanArrow(Message, frozen=True, array_like=True, gc=False, tag=18):
    """As Scan. → ArrowPage: an Arrow IPC stream of the key columns and the columns asked for."""

    tablet: TabletId
    revision: Revision
    timestamp: Timestamp
    lower: Key
    upper: Key
    column_mask: int
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


class Written(Message, frozen=True, array_like=True, gc=False, tag=34):
    """`timestamp` is the largest that the rows got."""

    row_count: int
    timestamp: Timestamp


class Rows(Message, frozen=True, array_like=True, gc=False, tag=35):
    rows: tuple[tuple[Any, ...] | None, ...]


class ScanPage(Message, frozen=True, array_like=True, gc=False, tag=36):
    """`resume` is where the next page begins, or None at the end of the range."""

    keys: tuple[Key, ...]
    rows: tuple[tuple[Any, ...], ...]
    resume: Key | None


class ArrowPage(Message, frozen=True, array_like=True, gc=False, tag=37):
    batch: bytes
    row_count: int
    resume: Key | None


class Failure(Message, frozen=True, array_like=True, gc=False, tag=38):
    """A typed error on its way to the caller: `kind` is a key of `errors.ERRORS_BY_KIND`."""

    kind: str
    message: str
    attributes: dict[str, Any] = {}


# Between cells: one way, repeated until answered, each safe to repeat


class QueryStatus(Message, frozen=True, array_like=True, gc=False, tag=50):
    """Recovery by the coordinator: are you prepared? If not, never be (poison)."""

    source: CellId
    transaction: TransactionId


class Status(Message, frozen=True, array_like=True, gc=False, tag=51):
    """`state` is prepared, committed or refused; the timestamp belongs to the first two."""

    source: CellId
    transaction: TransactionId
    state: str
    timestamp: Timestamp


class TellCommit(Message, frozen=True, array_like=True, gc=False, tag=52):
    source: CellId
    transaction: TransactionId
    timestamp: Timestamp


class TellAbort(Message, frozen=True, array_like=True, gc=False, tag=53):
    source: CellId
    transaction: TransactionId
    is_forgotten: bool = False
    """The coordinator has no record any more, so that it aborts whoever is still prepared. Whoever
    is not has asked long ago, and was answered."""


class Acknowledge(Message, frozen=True, array_like=True, gc=False, tag=54):
    """The outcome is durable (or needs no record) at `source`."""

    source: CellId
    transaction: TransactionId


class AskCoordinator(Message, frozen=True, array_like=True, gc=False, tag=55):
    """From a participant that is prepared and has waited long for the decision."""

    source: CellId
    transaction: TransactionId


# Catalog: between clients, cells and the master


class CreateTable(Message, frozen=True, array_like=True, gc=False, tag=70):
    """→ Table. Exactly one of `pivot_keys` (encoded, first is empty) says how to shard."""

    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    pivot_keys: tuple[Key, ...]


class RemoveTable(Message, frozen=True, array_like=True, gc=False, tag=71):
    path: str


class GetTable(Message, frozen=True, array_like=True, gc=False, tag=72):
    """→ Table with its route."""

    path: str


class ListTables(Message, frozen=True, array_like=True, gc=False, tag=73):
    """→ TableList"""

    prefix: str


class MountTable(Message, frozen=True, array_like=True, gc=False, tag=74):
    """Give the tablets to cells, evenly; → Table (its tablets are mounted a moment later)."""

    path: str


class UnmountTable(Message, frozen=True, array_like=True, gc=False, tag=75):
    path: str


class Tablet(Message, frozen=True, array_like=True, gc=False):
    """One tablet as the catalog knows it. It covers keys from `pivot_key` to the next one's."""

    tablet: TabletId
    pivot_key: Key
    state: str
    cell: CellId | None
    revision: Revision


class Table(Message, frozen=True, array_like=True, gc=False, tag=76):
    """`addresses` are those of the cells that its tablets are in, where known."""

    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    tablets: tuple[Tablet, ...]
    addresses: dict[CellId, str]


class TableList(Message, frozen=True, array_like=True, gc=False, tag=77):
    paths: tuple[str, ...]


class Done(Message, frozen=True, array_like=True, gc=False, tag=78):
    """The catalog did what was asked and has no more to say."""


class MountedTablet(Message, frozen=True, array_like=True, gc=False):
    tablet: TabletId
    revision: Revision


class Heartbeat(Message, frozen=True, array_like=True, gc=False, tag=80):
    """A cell says where it is and which tablets it serves. → Assignment with this `sequence`."""

    cell: CellId
    address: str
    mounted: tuple[MountedTablet, ...]
    sequence: int


class TabletAssignment(Message, frozen=True, array_like=True, gc=False):
    """A tablet that a cell is to serve, with all that it needs to know to do so."""

    tablet: TabletId
    revision: Revision
    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    lower: Key
    upper: Key


class Assignment(Message, frozen=True, array_like=True, gc=False, tag=81):
    """All tablets that the cell is to serve: it unmounts any other. And where all cells are.
    `sequence` is the heartbeat's that it answers: an answer to an older one is stale."""

    tablets: tuple[TabletAssignment, ...]
    addresses: dict[CellId, str]
    sequence: int


class RegisterProxy(Message, frozen=True, array_like=True, gc=False, tag=82):
    """A proxy says where it is; repeated as a heartbeat. → Done."""

    address: str


class GetCluster(Message, frozen=True, array_like=True, gc=False, tag=83):
    """→ Cluster"""


class Cell(Message, frozen=True, array_like=True, gc=False):
    cell: CellId
    address: str
    is_alive: bool
    tablet_count: int


class Cluster(Message, frozen=True, array_like=True, gc=False, tag=84):
    proxies: tuple[str, ...]
    cells: tuple[Cell, ...]


DataRequest = (
    GenerateTimestamps
    | CommitOne
    | Prepare
    | Decide
    | AskOutcome
    | WriteNonAtomic
    | WriteArrow
    | Lookup
    | Scan
    | ScanArrow
)
CellMessage = QueryStatus | Status | TellCommit | TellAbort | Acknowledge | AskCoordinator
CatalogRequest = (
    CreateTable
    | RemoveTable
    | GetTable
    | ListTables
    | MountTable
    | UnmountTable
    | Heartbeat
    | RegisterProxy
    | GetCluster
)
CatalogReply = Table | TableList | Done | Assignment | Cluster | Failure
DataReply = (
    TimestampRange
    | Committed
    | Prepared
    | Aborted
    | OutcomeUnknown
    | Written
    | Rows
    | ScanPage
    | ArrowPage
    | Failure
)
Reply = DataReply | CatalogReply
Request = DataRequest | CatalogRequest
