"""The catalog: the tree of directories and tables, their tablets, and the cells that serve them.

Owns: which part answers which request. `tree_calls` and `attribute_calls` have the tree and its
master transactions. `tables` has the tables and their tablets, `cells` the liveness of cells and
proxies. All changes of one request are one record, so any prefix of the records is a correct
catalog.

Errors are raised as `DodonaError`. Imports no I/O and no clock.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dodona_oracle.core import attributes, mounting
from dodona_oracle.core.attribute_calls import AttributeCalls
from dodona_oracle.core.cells import Presence
from dodona_oracle.core.definitions import check_definition
from dodona_oracle.core.journal import Journal
from dodona_oracle.core.membership import Membership
from dodona_oracle.core.paths import parse_node_path, parse_path
from dodona_oracle.core.records import MasterState, Record, StoredTable, StoredTablet
from dodona_oracle.core.tables import Tables
from dodona_oracle.core.tree import Tree
from dodona_oracle.core.tree_calls import TreeCalls
from dodona_oracle.core.tree_transactions import OpenTransaction
from dodona_wire.cores.fault_points import FaultAt, FaultPoint, no_faults
from dodona_wire.messages.catalog import (
    AlterTable,
    Assignment,
    CatalogReply,
    CatalogRequest,
    Cell,
    Cluster,
    CreateTable,
    Done,
    FreezeTable,
    GetCluster,
    GetTable,
    Heartbeat,
    ListTables,
    MountTable,
    RegisterProxy,
    RemountTable,
    ReshardTable,
    Table,
    TableLifeRequest,
    TableList,
    UnfreezeTable,
    UnmountTable,
)
from dodona_wire.messages.tree import (
    AbortTreeTransaction,
    BeginTreeTransaction,
    CommitTreeTransaction,
    CopyNode,
    CreateDirectory,
    GetNode,
    ListNodes,
    LockNode,
    MoveNode,
    NodeExists,
    NodeLock,
    NodeNames,
    NodeValue,
    PingTreeTransaction,
    RemoveNode,
    SetNode,
    TreeTransaction,
)
from dodona_wire.types import NO_TREE_TRANSACTION, Now, Revision, TabletId

GROWING: Final = (CreateTable, CreateDirectory, CopyNode, ReshardTable, AlterTable)
"""The requests that are refused while the disk has no space for new data. Requests that remove,
mount or unmount still work: they make room, or let clients read rows."""


class CatalogStatistics(msgspec.Struct, frozen=True):
    """What the catalog holds now."""

    table_count: int
    tablet_count: int
    moving_tablet_count: int
    node_count: int
    tree_transaction_count: int
    lock_count: int


class Attendance(msgspec.Struct, frozen=True):
    """How many cells and proxies there are now."""

    cells: dict[str, int]
    """How many cells have joined: `alive` if the master heard of them lately, else `silent`."""
    proxy_count: int


class Catalog:
    """Answers catalog requests. `append` gets the record of each change, in order."""

    def __init__(
        self,
        state: MasterState,
        append: Callable[[Record], None],
        now: Now,
        fault_at: FaultAt = no_faults,
    ) -> None:
        self._fault_at = fault_at
        self._journal = Journal(state, append)
        self._presence = Presence()
        self._membership = Membership(state, self._journal, now)
        self._tables = Tables(state.tables, self._journal, self._presence)
        self._tree = Tree(state, self._journal, self._tables, now)
        self._calls = TreeCalls(self._tree, self._journal, self._tables)
        self._attributes = AttributeCalls(self._tree, self._calls)
        self._journal.flush()
        self._methods: dict[type[Any], Callable[[Any, Now], CatalogReply]] = {
            CreateTable: self._create_table,
            GetTable: self._get_table,
            ListTables: self._list_tables,
            MountTable: self._change_mounting,
            UnmountTable: self._change_mounting,
            FreezeTable: self._change_mounting,
            UnfreezeTable: self._change_mounting,
            RemountTable: self._change_mounting,
            ReshardTable: self._change_mounting,
            AlterTable: self._change_mounting,
            Heartbeat: self._take_heartbeat,
            RegisterProxy: self._register_proxy,
            GetCluster: self._get_cluster,
            CreateDirectory: self._create_directory,
            RemoveNode: self._remove_node,
            MoveNode: self._move_node,
            CopyNode: self._copy_node,
            ListNodes: self._list_nodes,
            NodeExists: self._node_exists,
            GetNode: self._get_node,
            SetNode: self._set_node,
            BeginTreeTransaction: self._begin,
            PingTreeTransaction: self._ping,
            CommitTreeTransaction: self._commit,
            AbortTreeTransaction: self._abort,
            LockNode: self._lock_node,
        }

    def handle(self, request: CatalogRequest, now: Now) -> CatalogReply:
        """Carry out one request. Raises DodonaError, and then nothing has changed."""
        self.tick(now)
        reply = self._methods[type(request)](request, now)
        self._journal.flush()
        return reply

    def tick(self, now: Now) -> None:
        """Abort the master transactions whose clients did not ping in time."""
        assert self._journal.is_empty, "a request was refused halfway"
        self._tree.expire(now)
        self._journal.flush()

    def next_deadline(self) -> int | None:
        """Return when to call `tick` at the latest, as an instant in microseconds."""
        return self._tree.transactions.next_deadline()

    @property
    def news(self) -> tuple[int, int]:
        """A value that changes when there is news for cells."""
        return self._journal.last_revision, self._presence.move_count

    def open_transactions(self, now: Now) -> list[OpenTransaction]:
        """Return the open master transactions, oldest first."""
        return self._tree.transactions.open_at(now)

    def statistics(self) -> CatalogStatistics:
        """Return what the catalog holds now."""
        return CatalogStatistics(
            table_count=self._tables.table_count,
            tablet_count=self._tables.tablet_count,
            moving_tablet_count=self._tables.moving_tablet_count(),
            node_count=self._tree.node_count,
            tree_transaction_count=self._tree.transactions.count,
            lock_count=self._tree.locks.count,
        )

    def attendance(self, now: Now) -> Attendance:
        """Return which cells and proxies the master has heard of lately."""
        joined = self._membership.cells
        alive_count = sum(1 for cell in joined if self._presence.is_alive(cell, now))
        cells = {"alive": alive_count, "silent": len(joined) - alive_count}
        return Attendance(cells, len(self._presence.proxies(now)))

    # Tables

    def _create_table(self, request: CreateTable, now: Now) -> Table:
        check_definition(request)
        path = parse_node_path(request.path)
        values = attributes.unpack_map(request.attributes, request.path)
        wanted = attributes.sort_out(values, "table", request.path)
        attributes.check_count(wanted.own, request.path)
        table = StoredTable(
            table=0,
            path=path.node_path,
            columns=request.columns,
            atomicity=request.atomicity,
            tablets=tuple(
                StoredTablet(TabletId(0), key, mounting.UNMOUNTED, None, Revision(0))
                for key in request.pivot_keys
            ),
        )
        table = attributes.changed_table(table, wanted.settings)
        created = self._calls.create(path, request.transaction, now, wanted.own, table)
        assert created is not None
        return self._tables.describe(created)

    def _get_table(self, request: GetTable, now: Now) -> Table:
        view = self._tree.view(request.transaction)
        return self._tables.describe(self._calls.find_table(view, parse_node_path(request.path)))

    def _list_tables(self, request: ListTables, now: Now) -> TableList:
        paths = (table.path for table in self._tables.by_id.values())
        return TableList(tuple(sorted(path for path in paths if path.startswith(request.prefix))))

    def _change_mounting(self, request: TableLifeRequest, now: Now) -> Table:
        """Change the mounting of a table, outside transactions. Raises NodeLocked while a
        transaction has a lock on the table."""
        view = self._tree.view(NO_TREE_TRANSACTION)
        table = self._calls.find_table(view, parse_node_path(request.path))
        self._tree.check_free(table.table, table.path)
        return self._tables.describe(self._tables.change_mounting(table, request, now))

    # The tree

    def _create_directory(self, request: CreateDirectory, now: Now) -> Done:
        path = parse_node_path(request.path)
        values = attributes.unpack_map(request.attributes, request.path)
        own = attributes.sort_out(values, "directory", request.path).own
        attributes.check_count(own, request.path)
        found = self._tree.view(request.transaction).find(path.names)
        if not (request.ignore_existing and found is not None and found.kind == "directory"):
            self._calls.create(
                path, request.transaction, now, own, is_recursive=request.is_recursive
            )
        return Done()

    def _remove_node(self, request: RemoveNode, now: Now) -> Done:
        path = parse_path(request.path)
        if path.attribute is None:
            self._calls.remove(
                path,
                request.transaction,
                now,
                is_recursive=request.is_recursive,
                is_forced=request.is_forced,
            )
        else:
            self._attributes.remove(
                request.path, request.transaction, now, is_forced=request.is_forced
            )
        return Done()

    def _move_node(self, request: MoveNode, now: Now) -> Done:
        self._calls.move(request, now)
        return Done()

    def _copy_node(self, request: CopyNode, now: Now) -> Done:
        self._calls.copy(request, now)
        return Done()

    def _list_nodes(self, request: ListNodes, now: Now) -> NodeNames:
        return NodeNames(self._attributes.names(request.path, request.transaction))

    def _node_exists(self, request: NodeExists, now: Now) -> NodeValue:
        is_there = self._attributes.exists(request.path, request.transaction)
        return NodeValue(msgspec.msgpack.encode(is_there))

    def _get_node(self, request: GetNode, now: Now) -> NodeValue:
        value = self._attributes.value(request.path, request.transaction)
        return NodeValue(msgspec.msgpack.encode(value))

    def _set_node(self, request: SetNode, now: Now) -> Done:
        self._attributes.set(request.path, request.value, request.transaction, now)
        return Done()

    # Master transactions

    def _begin(self, request: BeginTreeTransaction, now: Now) -> TreeTransaction:
        begun = self._tree.begin(request.parent, request.timeout_ms, request.title, now)
        return TreeTransaction(begun.transaction, begun.timeout_ms)

    def _ping(self, request: PingTreeTransaction, now: Now) -> Done:
        self._tree.transactions.ping(request.transaction, now)
        return Done()

    def _commit(self, request: CommitTreeTransaction, now: Now) -> Done:
        self._tree.commit(request.transaction)
        return Done()

    def _abort(self, request: AbortTreeTransaction, now: Now) -> Done:
        self._tree.abort(request.transaction)
        return Done()

    def _lock_node(self, request: LockNode, now: Now) -> NodeLock:
        return NodeLock(self._calls.lock(request))

    # Cells and proxies

    def _take_heartbeat(self, request: Heartbeat, now: Now) -> Assignment:
        self._presence.check_cell(request.cell, request.address, request.epoch, now)
        has_joined = self._membership.admit(request)
        self._presence.see_cell(request.cell, request.address, request.epoch, now)
        if not request.is_short:
            self._tables.take_heartbeat(request.cell, request.mounted, request.revision)
        return self._assignment(request, has_joined=has_joined)

    def answer_again(self, request: Heartbeat) -> Assignment:
        """Return a current answer to a heartbeat that was taken and got a short answer."""
        return self._assignment(request, has_joined=True)

    def _assignment(self, request: Heartbeat, *, has_joined: bool) -> Assignment:
        is_known = has_joined and self._tables.knows(request.cell)
        is_short = is_known and request.is_short and request.revision == self._journal.last_revision
        return Assignment(
            tablets=self._tables.assignment(request.cell) if has_joined and not is_short else (),
            addresses=self._presence.addresses(),
            sequence=request.sequence,
            revision=self._journal.last_revision,
            cluster=self._membership.cluster,
            dropped=self._tables.gone(self._named(request)) if has_joined else (),
            is_short=is_short,
            may_be_short=is_known,
        )

    def _named(self, request: Heartbeat) -> tuple[TabletId, ...]:
        """Return the tablets for which the cell must learn whether they are gone."""
        if self._fault_at(FaultPoint.DROP_EARLY):
            return (*request.stored, *(each.tablet for each in request.mounted))
        return request.stored

    def _register_proxy(self, request: RegisterProxy, now: Now) -> Done:
        self._presence.see_proxy(request.address, now)
        return Done()

    def _get_cluster(self, request: GetCluster, now: Now) -> Cluster:
        """Return the proxies, and all cells that have ever joined, sent a heartbeat, or hold a
        tablet. A cell that is not listed cannot know any transaction."""
        known = {*self._presence.cells(), *self._tables.cells(), *self._membership.cells}
        cells = sorted(known)
        return Cluster(
            proxies=tuple(self._presence.proxies(now)),
            cells=tuple(
                Cell(
                    cell=cell,
                    address=self._presence.address(cell) or "",
                    is_alive=self._presence.is_alive(cell, now),
                    tablet_count=self._tables.placed_count(cell),
                    epoch=self._presence.epoch(cell),
                )
                for cell in cells
            ),
        )
