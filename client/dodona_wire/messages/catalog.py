"""Messages of the catalog: tables and their lifecycle, cells, proxies.

They travel between clients, cells and the master.
"""

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
    """Create a table. → Table. `pivot_keys` (encoded, the first is empty) divide it into tablets.
    Missing directories above it are made. `attributes` are MessagePack: settings, and users' own.
    `is_restored`: the table comes from a backup, so its expressions stay as they are, even if a new
    table could not have them."""

    path: str
    columns: tuple[Column, ...]
    atomicity: Atomicity
    pivot_keys: tuple[Key, ...]
    attributes: bytes = b"\x80"
    transaction: TreeTransactionId = NO_TREE_TRANSACTION
    is_restored: bool = False


class GetTable(Message, frozen=True, array_like=True, gc=False, tag=72):
    """Get a table. → Table with its route."""

    path: str
    transaction: TreeTransactionId = NO_TREE_TRANSACTION


class ListTables(Message, frozen=True, array_like=True, gc=False, tag=73):
    """List the tables whose paths begin with the prefix. → TableList."""

    prefix: str


# The lifecycle of a table. Each request is for the tablets from `first_tablet` to `last_tablet`
# (places in the table, both included; all of them for None). The answer is the Table at that time.
# The change takes effect shortly afterwards.


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
    """Make the tablets read-only from now on."""

    path: str
    first_tablet: int | None = None
    last_tablet: int | None = None


class UnfreezeTable(Message, frozen=True, array_like=True, gc=False, tag=86):
    path: str
    first_tablet: int | None = None
    last_tablet: int | None = None


class RemountTable(Message, frozen=True, array_like=True, gc=False, tag=87):
    """Make mounted tablets use the current settings."""

    path: str
    first_tablet: int | None = None
    last_tablet: int | None = None


class ReshardTable(Message, frozen=True, array_like=True, gc=False, tag=88):
    """Replace these unmounted tablets by others with the same rows. The first of `pivot_keys` is
    that of the first replaced tablet."""

    path: str
    pivot_keys: tuple[Key, ...]
    first_tablet: int | None = None
    last_tablet: int | None = None


class AlterTable(Message, frozen=True, array_like=True, gc=False, tag=89):
    """Change the schema of an unmounted table, so far as its rows still fit."""

    path: str
    columns: tuple[Column, ...]


class Tablet(Message, frozen=True, array_like=True, gc=False):
    """One tablet in the catalog. It has the keys from `pivot_key` up to the next tablet's."""

    tablet: TabletId
    pivot_key: Key
    state: str
    cell: CellId | None
    revision: Revision


class Table(Message, frozen=True, array_like=True, gc=False, tag=76):
    """A table. `addresses` are those of the cells that have its tablets, where known. `settings`
    are the last ones set: tablets use those of their mount or remount. `table` is the id of the
    table, which stays after a move and never is another table's. It is 0 if an older master does
    not send it."""

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
    """The catalog did what the request asked, and has no more to say."""


# Cells and proxies


class MountedTablet(Message, frozen=True, array_like=True, gc=False):
    """A tablet that a cell serves. `mode` says what for: see `TabletAssignment`. A tablet is in the
    list once it has all of its rows. Versions before `retained_timestamp` may be gone."""

    tablet: TabletId
    revision: Revision
    mode: str = "mounted"
    retained_timestamp: Timestamp = MIN_TIMESTAMP


class Heartbeat(Message, frozen=True, array_like=True, gc=False, tag=80):
    """A cell reports its address and the tablets that it serves. → Assignment with this `sequence`.
    `revision` is that of the last assignment it took: it says nothing about later commands.
    `cluster` is the cluster of its log, and an empty log has none yet. `stored` are tablets that it
    keeps without serving them: if there are many, some of them in turns. A short heartbeat leaves
    out `mounted`, which is that of the last heartbeat that was not short. The answer may come up to
    `hold_ms` later, as soon as there is news. `epoch` is that in which the process owns the cell's
    log, or 0 if the log has no copies elsewhere."""

    cell: CellId
    address: str
    mounted: tuple[MountedTablet, ...]
    sequence: int
    revision: Revision = Revision(0)
    cluster: ClusterId = NO_CLUSTER
    stored: tuple[TabletId, ...] = ()
    is_short: bool = False
    hold_ms: int = 0
    epoch: int = 0


class TabletSource(Message, frozen=True, array_like=True, gc=False):
    """A tablet whose rows of lower ≤ key < upper become another tablet's, so far as they are also
    in that tablet's range."""

    tablet: TabletId
    cell: CellId
    lower: Key = KEY_MIN
    upper: Key = KEY_MAX


class TabletAssignment(Message, frozen=True, array_like=True, gc=False):
    """A tablet that a cell must have, with all facts that the cell needs. `mode` is `mounted`,
    `frozen` (reads only) or `unmounted` (the cell only takes over its rows from `sources`)."""

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
    """All tablets that the cell must serve, and the addresses of all cells. The cell unmounts any
    other tablet. `sequence` is that of the answered heartbeat: an answer to an older one is stale.
    Tablets that have yet to take over rows come first, because their sources may follow. `revision`
    is the last one given out: all commands up to it are in here. A cell that has not joined
    `cluster` yet gets no tablets. It records in its log that it joins, and asks again. `dropped`
    are tablets that the heartbeat named and that are not needed any more. The cell may forget them,
    with their rows. An answer to a short heartbeat is short, and leaves out `tablets`, if
    `revision` is the heartbeat's. Only with `may_be_short` does the master know what the cell
    serves: then the next heartbeat may be short, too."""

    tablets: tuple[TabletAssignment, ...]
    addresses: dict[CellId, str]
    sequence: int
    revision: Revision = Revision(0)
    cluster: ClusterId = NO_CLUSTER
    dropped: tuple[TabletId, ...] = ()
    is_short: bool = False
    may_be_short: bool = False


class RegisterProxy(Message, frozen=True, array_like=True, gc=False, tag=82):
    """A proxy reports its address, again and again as a heartbeat. → Done."""

    address: str


class GetCluster(Message, frozen=True, array_like=True, gc=False, tag=83):
    """List the cells and the proxies. → Cluster."""


class Cell(Message, frozen=True, array_like=True, gc=False):
    """A cell, as the master knows it. `epoch` is that of its last heartbeat. With 0, no other
    process can take the cell over while its node is alive."""

    cell: CellId
    address: str
    is_alive: bool
    tablet_count: int
    epoch: int = 0


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
