"""The catalog: tables and their life, cells, proxies. Between clients, cells and the master."""

from dodona_wire.messages.base import Failure, Message
from dodona_wire.messages.tree import NodeLock, NodeNames, NodeValue, TreeRequest, TreeTransaction
from dodona_wire.rows.schema import Column
from dodona_wire.types import (
    KEY_MAX,
    KEY_MIN,
    MIN_TIMESTAMP,
    NO_CLUSTER,
    NO_TREE_TRANSACTION,
    Atomicity,
    CellId,
    ClusterId,
    Key,
    Revision,
    TableSettings,
    TabletId,
    Timestamp,
    TreeTransactionId,
)


class CreateTable(Message, frozen=True, array_like=True, gc=False, tag=70):
    """→ Table. `pivot_keys` (encoded, the first is empty) say how to shard. Missing directories
    above it are made. `attributes` are MessagePack: settings, and what else users keep there."""

    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    pivot_keys: tuple[Key, ...]
    attributes: bytes = b"\x80"
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class GetTable(Message, frozen=True, array_like=True, gc=False, tag=72):
    """→ Table with its route."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class ListTables(Message, frozen=True, array_like=True, gc=False, tag=73):
    """→ TableList"""

    prefix: str


# The life of a table. Each is about the tablets from `first_tablet` to `last_tablet` (places in the
# table, both included; all of them for None), and answered with the Table as it is then: what it
# asked for is so a moment later.


class MountTable(Message, frozen=True, array_like=True, gc=False, tag=74):
    """Give the tablets to cells, evenly. With `is_frozen` they can be read and not written."""

    path: str
    is_frozen: bool = False
    first_tablet: int | None = None
    last_tablet: int | None = None


class UnmountTable(Message, frozen=True, array_like=True, gc=False, tag=75):
    path: str
    first_tablet: int | None = None
    last_tablet: int | None = None


class FreezeTable(Message, frozen=True, array_like=True, gc=False, tag=85):
    """From now on they can be read and not written."""

    path: str
    first_tablet: int | None = None
    last_tablet: int | None = None


class UnfreezeTable(Message, frozen=True, array_like=True, gc=False, tag=86):
    path: str
    first_tablet: int | None = None
    last_tablet: int | None = None


class RemountTable(Message, frozen=True, array_like=True, gc=False, tag=87):
    """Let mounted tablets go by the settings as they are now."""

    path: str
    first_tablet: int | None = None
    last_tablet: int | None = None


class ReshardTable(Message, frozen=True, array_like=True, gc=False, tag=88):
    """Replace these unmounted tablets by others, with the same rows. The first of `pivot_keys` is
    that of the first tablet replaced."""

    path: str
    pivot_keys: tuple[Key, ...]
    first_tablet: int | None = None
    last_tablet: int | None = None


class AlterTable(Message, frozen=True, array_like=True, gc=False, tag=89):
    """Change the schema of an unmounted table, so far as its rows still fit."""

    path: str
    columns: tuple[Column, ...]


class Tablet(Message, frozen=True, array_like=True, gc=False):
    """One tablet as the catalog knows it. It covers keys from `pivot_key` to the next one's."""

    tablet: TabletId
    pivot_key: Key
    state: str
    cell: CellId | None
    revision: Revision


class Table(Message, frozen=True, array_like=True, gc=False, tag=76):
    """`addresses` are those of the cells that its tablets are in, where known. `settings` are as
    they were last set: tablets go by those of their mount or remount. `table` is its id, wherever
    it is moved, and never another table's; 0 if an older master does not say."""

    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    tablets: tuple[Tablet, ...]
    addresses: dict[CellId, str]
    settings: TableSettings = TableSettings()
    table: int = 0


class TableList(Message, frozen=True, array_like=True, gc=False, tag=77):
    paths: tuple[str, ...]


class Done(Message, frozen=True, array_like=True, gc=False, tag=78):
    """The catalog did what was asked and has no more to say."""


# Cells and proxies


class MountedTablet(Message, frozen=True, array_like=True, gc=False):
    """`mode` is what it is served for: see `TabletAssignment`. A tablet is here once it has all of
    its rows. What was before `retained_timestamp` may be gone."""

    tablet: TabletId
    revision: Revision
    mode: str = "mounted"
    retained_timestamp: Timestamp = MIN_TIMESTAMP


class Heartbeat(Message, frozen=True, array_like=True, gc=False, tag=80):
    """A cell says where it is and which tablets it serves. → Assignment with this `sequence`.
    `revision` is that of the last assignment it took: its word is on no command after that.
    `cluster` is the one that its log belongs to; an empty log belongs to none yet. `stored` are
    tablets that it keeps without serving them: some of them, in turns, if there are many. A short
    heartbeat leaves out `mounted`, which is that of the last heartbeat that was not short. Its
    answer may come up to `hold_ms` later, as soon as there is something new to say."""

    cell: CellId
    address: str
    mounted: tuple[MountedTablet, ...]
    sequence: int
    revision: Revision = Revision(0)
    cluster: ClusterId = NO_CLUSTER
    stored: tuple[TabletId, ...] = ()
    is_short: bool = False
    hold_ms: int = 0


class TabletSource(Message, frozen=True, array_like=True, gc=False):
    """A tablet whose rows of lower ≤ key < upper become another's, so far as they are in its range
    too."""

    tablet: TabletId
    cell: CellId
    lower: Key = KEY_MIN
    upper: Key = KEY_MAX


class TabletAssignment(Message, frozen=True, array_like=True, gc=False):
    """A tablet that a cell is to have, with all that it needs to know of it. `mode` is `mounted`,
    `frozen` (reads only) or `unmounted` (only its rows are taken over from `sources`)."""

    tablet: TabletId
    revision: Revision
    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    lower: Key
    upper: Key
    mode: str = "mounted"
    settings: TableSettings = TableSettings()
    sources: tuple[TabletSource, ...] = ()


class Assignment(Message, frozen=True, array_like=True, gc=False, tag=81):
    """All tablets that the cell is to serve: it unmounts any other. And where all cells are.
    `sequence` is the heartbeat's that it answers: an answer to an older one is stale. Tablets that
    have yet to take over rows come first: their sources may follow. `revision` is the last that
    was given out: commands up to it are in here. A cell that has not joined `cluster` yet gets no
    tablets: it says in its log that it joins, and asks again. `dropped` are tablets that the
    heartbeat named and nobody needs any more: the cell may forget them, with their rows. An answer
    to a short heartbeat is short, and leaves out `tablets`, if `revision` is the heartbeat's. Only
    where `may_be_short` is so, the master knows what the cell serves: the next heartbeat may be
    short, too."""

    tablets: tuple[TabletAssignment, ...]
    addresses: dict[CellId, str]
    sequence: int
    revision: Revision = Revision(0)
    cluster: ClusterId = NO_CLUSTER
    dropped: tuple[TabletId, ...] = ()
    is_short: bool = False
    may_be_short: bool = False


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


TableLifeRequest = (
    MountTable
    | UnmountTable
    | FreezeTable
    | UnfreezeTable
    | RemountTable
    | ReshardTable
    | AlterTable
)
CatalogRequest = (
    CreateTable
    | GetTable
    | ListTables
    | TableLifeRequest
    | Heartbeat
    | RegisterProxy
    | GetCluster
    | TreeRequest
)
CatalogReply = (
    Table
    | TableList
    | Done
    | Assignment
    | Cluster
    | NodeValue
    | NodeNames
    | NodeLock
    | TreeTransaction
    | Failure
)
