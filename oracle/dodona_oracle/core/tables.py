"""The committed tables: their records, and the places of their tablets.

Owns: the tables by id, the number of tablets in each cell, which tablets change there, and which
are gone. `mounting` decides how a table changes. This module stores the result and tells the cells.

Invariants:
- A tablet that was ever placed stays with its cell, whose log holds its rows.
- A tablet that is gone never comes back: an id is never given out twice. Every removal of a tablet
  takes a revision. So an assignment that still has the tablet is older than any without it.

Errors are raised as `DodonaError`. Imports no I/O and no clock.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from dodona_oracle.core import mounting
from dodona_oracle.core.cells import Presence
from dodona_oracle.core.journal import Journal
from dodona_oracle.core.records import StoredTable, StoredTablet, put_table, remove_table
from dodona_wire.errors import LimitExceeded, Unavailable
from dodona_wire.messages.catalog import (
    AlterTable,
    FreezeTable,
    MountedTablet,
    MountTable,
    RemountTable,
    ReshardTable,
    Table,
    TableLifeRequest,
    Tablet,
    TabletAssignment,
    UnfreezeTable,
)
from dodona_wire.types import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    CellId,
    Now,
    Revision,
    TabletId,
    Timestamp,
)

TABLES_MAX: Final = 10_000
TABLETS_MAX: Final = 100_000


class Tables:
    """The tables of the store, and all later changes. `journal` gets each change."""

    def __init__(self, stored: Iterable[StoredTable], journal: Journal, presence: Presence) -> None:
        self._journal = journal
        self._presence = presence
        self.by_id: dict[int, StoredTable] = {}
        # These also count tables that open transactions made and no other client sees yet. They are
        # the number of tables and tablets, and for each tablet how many tables need its rows.
        self.table_count = self.tablet_count = 0
        self._need_counts: dict[TabletId, int] = {}
        self._placed_counts: dict[CellId, int] = {}
        # Per cell, the tables with tablets that are changing there. (It is a dict for its order: a
        # core must not depend on the order of a set.)
        self._moving: dict[CellId, dict[int, None]] = {}
        self._retained: dict[TabletId, Timestamp] = {}
        self._assignments: dict[CellId, tuple[TabletAssignment, ...]] = {}
        self._known_cells: dict[CellId, None] = {}
        for table in stored:
            self.count(table, 1)
            self._keep(table)

    # Limits

    def check_room(self, table_count: int, tablet_count: int) -> None:
        """Raise LimitExceeded if there cannot be so many more tables and tablets."""
        tables, tablets = self.table_count + table_count, self.tablet_count + tablet_count
        if tables > TABLES_MAX or tablets > TABLETS_MAX:
            raise LimitExceeded(
                f"A cluster has at most {TABLES_MAX} tables, with {TABLETS_MAX} tablets in all."
            )

    def count(self, table: StoredTable, change: int) -> None:
        """Count a table that is new (1), committed or not, or that is gone for all clients (-1)."""
        self.table_count += change
        self.tablet_count += change * len(table.tablets)
        counts = self._need_counts
        for tablet in mounting.needed(table):
            count = counts.get(tablet, 0) + change
            assert count >= 0, "a tablet that was not counted"
            if count:
                counts[tablet] = count
            else:
                del counts[tablet]

    def moving_tablet_count(self) -> int:
        """Return how many tablets are changing from one state to another."""
        return sum(
            map(mounting.is_moving, (it for each in self.by_id.values() for it in each.tablets))
        )

    # Changes

    def store(self, table: StoredTable) -> None:
        """Store the new version of a table, which is durable with the next flush."""
        self._keep(table)
        self._journal.add(put_table(table))

    def remove(self, table: StoredTable) -> None:
        """Remove the table."""
        self._forget(table)
        self._know_tablets(table.tablets, ())
        del self.by_id[table.table]
        self._journal.take_revision()
        self._journal.add(remove_table(table))

    def change_mounting(
        self, table: StoredTable, request: TableLifeRequest, now: Now
    ) -> StoredTable:
        """Carry out a command. Return the new table. Raises what functions of `mounting` raise."""
        if type(request) is AlterTable:
            changed = mounting.alter(table, request.columns)
        elif type(request) is ReshardTable:
            changed = self._reshard(table, request)
        elif type(request) is MountTable:
            changed = self._mount(table, request, now)
        else:
            changed = _change_range(table, request)
        if changed is not table:
            changed = replace(changed, revision=self._journal.take_revision())
            self.store(changed)
        return changed

    def _mount(self, table: StoredTable, request: MountTable, now: Now) -> StoredTable:
        return mounting.mount(
            table,
            request.first_tablet,
            request.last_tablet,
            is_frozen=request.is_frozen,
            revision=self._journal.next_revision,
            place=partial(self._choose_cells, table, now),
        )

    def _choose_cells(self, table: StoredTable, now: Now, count: int) -> list[CellId]:
        """Return cells for so many tablets, the least loaded first. Raises Unavailable."""
        cells = self._presence.cells_alive(now)
        if not cells:
            raise Unavailable(
                "No cell is alive in which to mount the table. Start a tablet node, then retry.",
                path=table.path,
            )
        cells.sort(key=lambda cell: (self.placed_count(cell), cell))
        return [cells[at % len(cells)] for at in range(count)]

    def _reshard(self, table: StoredTable, request: ReshardTable) -> StoredTable:
        resharded = mounting.reshard(
            table,
            request.pivot_keys,
            request.first_tablet,
            request.last_tablet,
            self._journal.next_id,
        )
        self.check_room(0, len(resharded.tablets) - len(table.tablets))
        self._journal.take_ids(len(request.pivot_keys))
        return resharded

    # Cells

    def take_heartbeat(
        self, cell: CellId, mounted: Iterable[MountedTablet], revision: Revision
    ) -> None:
        """Take a cell's report of what it serves. It completes changes there, but only for commands
        that the cell knew: `revision` is that of its last assignment."""
        self._known_cells[cell] = None
        for each in mounted:
            known = self._retained.get(each.tablet)
            if known is not None and known < each.retained_timestamp <= MAX_TIMESTAMP:
                self._retained[each.tablet] = each.retained_timestamp
        moving = self._moving.get(cell)
        if not moving:
            return
        reports: Mapping[TabletId, MountedTablet] = {each.tablet: each for each in mounted}
        for table_id in list(moving):
            table = self.by_id[table_id]
            if revision < table.revision:
                continue
            moved = mounting.take_heartbeat(table, cell, reports)
            if moved is not table:
                self.store(moved)

    def knows(self, cell: CellId) -> bool:
        """Return whether the cell has sent a whole report since this master started."""
        return cell in self._known_cells

    def assignment(self, cell: CellId) -> tuple[TabletAssignment, ...]:
        """Return the tablets of all tables that the cell must have."""
        known = self._assignments.get(cell)
        if known is None:
            known = mounting.in_order(
                assignment
                for table_id in sorted(self.by_id)
                for assignment in mounting.assignments(self.by_id[table_id], cell)
            )
            self._assignments[cell] = known
        return known

    def gone(self, tablets: Iterable[TabletId]) -> tuple[TabletId, ...]:
        """Return those of these tablets whose rows no table needs, now or later. An id that was
        not given out yet does not count: then the store of this master is older than the cell's
        log."""
        counts, next_id = self._need_counts, self._journal.next_id
        return tuple(it for it in tablets if it < next_id and it not in counts)

    def retained_timestamps(self, table: StoredTable) -> list[Timestamp]:
        """Return the retained timestamp of each tablet, as far as its cell has reported it since
        the start. Versions below it may be gone."""
        return [self._retained.get(each.tablet, MIN_TIMESTAMP) for each in table.tablets]

    def placed_count(self, cell: CellId) -> int:
        """Return how many tablets the cell has."""
        return self._placed_counts.get(cell, 0)

    def cells(self) -> list[CellId]:
        """Return the cells that have a tablet, or had one since the start."""
        return sorted(self._placed_counts)

    def describe(self, table: StoredTable) -> Table:
        """Return the table as clients get it, with the addresses of its cells."""
        tablets = tuple(
            Tablet(each.tablet, each.pivot_key, each.state, each.cell, each.revision)
            for each in table.tablets
        )
        addresses: dict[CellId, str] = {}
        for each in table.tablets:
            address = None if each.cell is None else self._presence.address(each.cell)
            if each.cell is not None and address is not None:
                addresses[each.cell] = address
        return Table(
            table.path,
            table.columns,
            table.atomicity,
            tablets,
            addresses,
            table.settings,
            table.table,
        )

    # Indexes by cell

    def _keep(self, table: StoredTable) -> None:
        was = self.by_id.get(table.table)
        if was is not None:
            self._forget(was)
            if [*mounting.needed(table)] != [*mounting.needed(was)]:
                self.count(table, 1)
                self.count(was, -1)
        self.by_id[table.table] = table
        self._know_tablets(() if was is None else was.tablets, table.tablets)
        self._count_places(table, 1)
        self._assignments.clear()
        for tablet in table.tablets:
            if mounting.is_moving(tablet):
                assert tablet.cell is not None, "a tablet that moves has a cell"
                self._moving.setdefault(tablet.cell, {})[table.table] = None

    def _forget(self, table: StoredTable) -> None:
        self._count_places(table, -1)
        self._assignments.clear()
        for moving in self._moving.values():
            moving.pop(table.table, None)

    def _know_tablets(self, old: Iterable[StoredTablet], new: Iterable[StoredTablet]) -> None:
        kept = {each.tablet: self._retained.get(each.tablet, MIN_TIMESTAMP) for each in new}
        for each in old:
            del self._retained[each.tablet]
        self._retained |= kept

    def _count_places(self, table: StoredTable, change: int) -> None:
        for tablet in table.tablets:
            if tablet.cell is not None:
                self._placed_counts[tablet.cell] = self.placed_count(tablet.cell) + change


def _change_range(table: StoredTable, request: TableLifeRequest) -> StoredTable:
    assert not isinstance(request, AlterTable | ReshardTable | MountTable)
    first, last = request.first_tablet, request.last_tablet
    if type(request) is FreezeTable:
        return mounting.freeze(table, first, last)
    if type(request) is UnfreezeTable:
        return mounting.unfreeze(table, first, last)
    if type(request) is RemountTable:
        return mounting.remount(table, first, last)
    return mounting.unmount(table, first, last)
