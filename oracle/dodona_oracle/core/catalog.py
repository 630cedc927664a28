"""The catalog: tables, their tablets, and which cell serves each.

Owns: every change of a table or of a tablet's mount, and the records that make it durable. A change
is checked in full before anything is touched; then it is one record of the whole table, behind the
counters it used, so that any prefix of the records is a correct catalog.

Invariants:
- Ids and revisions are never given out twice, removed tables included.
- A tablet that was ever placed stays with its cell, whose log holds its rows.
- What becomes of a table is `life`'s to say; this module stores it and tells the cells.

Errors are raised as `DodonaError`. Imports no I/O and no clock.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from dodona._core.messages import (
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
    RemoveNode,
    ReshardTable,
    Table,
    TableList,
    Tablet,
    TabletAssignment,
    UnfreezeTable,
    UnmountTable,
)
from dodona.errors import InvalidRequest, LimitExceeded, TableExists, TableNotFound, Unavailable
from dodona.types import CellId, Now, Revision, TabletId
from dodona_oracle.core import life
from dodona_oracle.core.cells import Presence
from dodona_oracle.core.definitions import check_definition
from dodona_oracle.core.records import (
    COUNTERS,
    LAST_ID,
    LAST_REVISION,
    MasterState,
    Put,
    Record,
    StoredTable,
    StoredTablet,
    encode_number,
    put_table,
    remove_table,
)

TABLES_MAX: Final = 10_000
TABLETS_MAX: Final = 100_000


class CatalogStatistics(msgspec.Struct, frozen=True):
    """What the catalog holds now."""

    table_count: int
    tablet_count: int
    moving_tablet_count: int


class Catalog:
    """Answers catalog requests; `append` takes the records of each change, in order."""

    def __init__(self, state: MasterState, append: Callable[[Record], None]) -> None:
        self._append = append
        self._last_id = state.last_id
        self._last_revision = state.last_revision
        self._presence = Presence()
        self._tables = {table.path: table for table in state.tables}
        self._tablet_count = sum(len(table.tablets) for table in state.tables)
        self._placed_counts: dict[CellId, int] = {}
        # Per cell, the tables with tablets there that are being mounted or unmounted. (A dict for
        # its order: what a core does must not depend on how a set happens to be laid out.)
        self._moving_paths: dict[CellId, dict[str, None]] = {}
        self._assignments: dict[CellId, tuple[TabletAssignment, ...]] = {}
        for table in state.tables:
            self._index(table)
        self._methods: dict[type[Any], Callable[[Any, Now], CatalogReply]] = {
            CreateTable: self._create_table,
            RemoveNode: self._remove_table,
            GetTable: self._get_table,
            ListTables: self._list_tables,
            MountTable: self._mount_table,
            UnmountTable: self._unmount_table,
            FreezeTable: self._freeze_table,
            UnfreezeTable: self._unfreeze_table,
            RemountTable: self._remount_table,
            ReshardTable: self._reshard_table,
            AlterTable: self._alter_table,
            Heartbeat: self._take_heartbeat,
            RegisterProxy: self._register_proxy,
            GetCluster: self._get_cluster,
        }

    def handle(self, request: CatalogRequest, now: Now) -> CatalogReply:
        """Carry out one request. Raises DodonaError; nothing has changed then."""
        return self._methods[type(request)](request, now)

    def statistics(self) -> CatalogStatistics:
        """A record of now."""
        moving = [
            tablet
            for table in self._tables.values()
            for tablet in table.tablets
            if life.is_moving(tablet)
        ]
        return CatalogStatistics(
            table_count=len(self._tables),
            tablet_count=self._tablet_count,
            moving_tablet_count=len(moving),
        )

    # Tables

    def _create_table(self, request: CreateTable, now: Now) -> Table:
        check_definition(request)
        if request.path in self._tables:
            raise TableExists(f"there is a table {request.path} already", path=request.path)
        count = len(request.pivot_keys)
        if len(self._tables) >= TABLES_MAX or self._tablet_count + count > TABLETS_MAX:
            raise LimitExceeded(f"at most {TABLES_MAX} tables of {TABLETS_MAX} tablets in all")
        table = StoredTable(
            table=self._last_id + 1,
            path=request.path,
            columns=request.columns,
            atomicity=request.atomicity,
            tablets=tuple(
                StoredTablet(
                    TabletId(self._last_id + 2 + index), key, life.UNMOUNTED, None, Revision(0)
                )
                for index, key in enumerate(request.pivot_keys)
            ),
        )
        self._last_id += 1 + count
        self._append(Put(COUNTERS, LAST_ID, encode_number(self._last_id)))
        self._tablet_count += count
        self._store(table)
        return self._describe(table)

    def _remove_table(self, request: RemoveNode, now: Now) -> Done:
        table = self._table(request.path)
        served = [tablet for tablet in table.tablets if tablet.state != life.UNMOUNTED]
        if served:
            raise InvalidRequest(
                "the table is mounted, or not unmounted yet: unmount it first",
                path=table.path,
                tablet_count=len(served),
            )
        self._append(remove_table(table))
        del self._tables[table.path]
        self._tablet_count -= len(table.tablets)
        self._count_places(table, -1)
        return Done()

    def _get_table(self, request: GetTable, now: Now) -> Table:
        return self._describe(self._table(request.path))

    def _list_tables(self, request: ListTables, now: Now) -> TableList:
        return TableList(
            tuple(path for path in sorted(self._tables) if path.startswith(request.prefix))
        )

    # Mounts

    def _mount_table(self, request: MountTable, now: Now) -> Table:
        table = self._table(request.path)
        mounted = life.mount(
            table,
            request.first_tablet,
            request.last_tablet,
            is_frozen=request.is_frozen,
            revision=Revision(self._last_revision + 1),
            place=partial(self._choose_cells, table, now),
        )
        if mounted is not table:
            self._last_revision += 1
            self._append(Put(COUNTERS, LAST_REVISION, encode_number(self._last_revision)))
        return self._change(table, mounted)

    def _choose_cells(self, table: StoredTable, now: Now, count: int) -> list[CellId]:
        """The least loaded come first. Raises Unavailable."""
        cells = self._presence.cells_alive(now)
        if not cells:
            raise Unavailable("no cell is alive to mount the table in", path=table.path)
        cells.sort(key=self._load_order)
        return [cells[at % len(cells)] for at in range(count)]

    def _load_order(self, cell: CellId) -> tuple[int, CellId]:
        return self._placed_counts.get(cell, 0), cell

    def _unmount_table(self, request: UnmountTable, now: Now) -> Table:
        table = self._table(request.path)
        return self._change(table, life.unmount(table, request.first_tablet, request.last_tablet))

    def _freeze_table(self, request: FreezeTable, now: Now) -> Table:
        table = self._table(request.path)
        return self._change(table, life.freeze(table, request.first_tablet, request.last_tablet))

    def _unfreeze_table(self, request: UnfreezeTable, now: Now) -> Table:
        table = self._table(request.path)
        return self._change(table, life.unfreeze(table, request.first_tablet, request.last_tablet))

    def _remount_table(self, request: RemountTable, now: Now) -> Table:
        table = self._table(request.path)
        return self._change(table, life.remount(table, request.first_tablet, request.last_tablet))

    def _alter_table(self, request: AlterTable, now: Now) -> Table:
        table = self._table(request.path)
        return self._change(table, life.alter(table, request.columns))

    def _reshard_table(self, request: ReshardTable, now: Now) -> Table:
        table = self._table(request.path)
        resharded = life.reshard(
            table,
            request.pivot_keys,
            request.first_tablet,
            request.last_tablet,
            self._last_id + 1,
        )
        added = len(resharded.tablets) - len(table.tablets)
        if self._tablet_count + added > TABLETS_MAX:
            raise LimitExceeded(f"at most {TABLETS_MAX} tablets in all")
        self._last_id += len(request.pivot_keys)
        self._append(Put(COUNTERS, LAST_ID, encode_number(self._last_id)))
        self._tablet_count += added
        return self._change(table, resharded)

    def _change(self, table: StoredTable, changed: StoredTable) -> Table:
        """Make it so, if anything is to be done."""
        if changed is not table:
            self._count_places(table, -1)
            self._count_places(changed, 1)
            self._store(changed)
        return self._describe(changed)

    def _count_places(self, table: StoredTable, change: int) -> None:
        for tablet in table.tablets:
            if tablet.cell is not None:
                count = self._placed_counts.get(tablet.cell, 0) + change
                self._placed_counts[tablet.cell] = count

    # Cells and proxies

    def _take_heartbeat(self, request: Heartbeat, now: Now) -> Assignment:
        self._presence.check_cell(request.cell, request.address, now)
        self._presence.see_cell(request.cell, request.address, now)
        moving_paths = self._moving_paths.get(request.cell)
        if moving_paths:
            mounted = {each.tablet: each for each in request.mounted}
            for path in list(moving_paths):
                table = self._tables[path]
                moved = life.take_heartbeat(table, request.cell, mounted)
                if moved is not table:
                    self._store(moved)
        return Assignment(
            tablets=self._assignment(request.cell),
            addresses=self._presence.addresses(),
            sequence=request.sequence,
        )

    def _assignment(self, cell: CellId) -> tuple[TabletAssignment, ...]:
        known = self._assignments.get(cell)
        if known is None:
            known = life.in_order(
                assignment
                for path in sorted(self._tables)
                for assignment in life.assignments(self._tables[path], cell)
            )
            self._assignments[cell] = known
        return known

    def _register_proxy(self, request: RegisterProxy, now: Now) -> Done:
        self._presence.see_proxy(request.address, now)
        return Done()

    def _get_cluster(self, request: GetCluster, now: Now) -> Cluster:
        """All cells that are alive, were heard of, or hold a tablet."""
        cells = sorted({*self._presence.cells(), *self._placed_counts})
        return Cluster(
            proxies=tuple(self._presence.proxies(now)),
            cells=tuple(
                Cell(
                    cell=cell,
                    address=self._presence.address(cell) or "",
                    is_alive=self._presence.is_alive(cell, now),
                    tablet_count=self._placed_counts.get(cell, 0),
                )
                for cell in cells
            ),
        )

    # The tables in memory

    def _table(self, path: str) -> StoredTable:
        table = self._tables.get(path)
        if table is None:
            raise TableNotFound(f"there is no table {path}", path=path)
        return table

    def _store(self, table: StoredTable) -> None:
        """The table is like this now, and durably so."""
        self._tables[table.path] = table
        self._append(put_table(table))
        self._assignments.clear()
        self._index_moving(table)

    def _index(self, table: StoredTable) -> None:
        self._count_places(table, 1)
        self._index_moving(table)

    def _index_moving(self, table: StoredTable) -> None:
        for paths in self._moving_paths.values():
            paths.pop(table.path, None)
        for tablet in table.tablets:
            if life.is_moving(tablet):
                assert tablet.cell is not None, "a tablet on its way to nowhere"
                self._moving_paths.setdefault(tablet.cell, {})[table.path] = None

    def _describe(self, table: StoredTable) -> Table:
        tablets = tuple(
            Tablet(each.tablet, each.pivot_key, each.state, each.cell, each.revision)
            for each in table.tablets
        )
        addresses: dict[CellId, str] = {}
        for each in table.tablets:
            address = None if each.cell is None else self._presence.address(each.cell)
            if each.cell is not None and address is not None:
                addresses[each.cell] = address
        return Table(table.path, table.columns, table.atomicity, tablets, addresses, table.settings)
