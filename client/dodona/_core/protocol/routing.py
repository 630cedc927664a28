"""Where tables, tablets and cells are, as far as this client knows. Pure.

Owns: the route cache. A route is immutable and is replaced as a whole. A cell notices a stale route
by the revision of the tablet, and refuses the request. Then the client forgets the route and asks
for it again.
Invariants: the pivots of a route rise and the first one is empty, so that every key has a tablet.
The number of cached tables is limited, and the oldest entry makes room. The threads of one process
may share the cache: every change is a single dict operation.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from dodona_wire.messages.catalog import Cluster, Table, Tablet
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Atomicity, CellId, Key

TABLES_MAX: Final = 10_000
REFRESH_MS_MAX: Final = 1_000
"""How long callers wait for another caller that is asking the master for the same route."""
MOUNTED: Final = "mounted"
FROZEN: Final = "frozen"
MOUNTING: Final = "mounting"
UNMOUNTED: Final = "unmounted"
SETTLED_STATES: Final = frozenset((MOUNTED, FROZEN, UNMOUNTED))
"""In any other state, the master waits for a cell."""


class TableRoute:
    """The schema and tablets of one table at one time. Only `is_stale` ever changes, and only
    once, by `mark_stale`."""

    __slots__ = (
        "atomicity",
        "is_stale",
        "path",
        "pivots",
        "schema",
        "settings",
        "table",
        "tablets",
    )

    def __init__(self, table: Table, schema: TableSchema) -> None:
        self.path = table.path
        self.schema = schema
        self.atomicity: Atomicity = table.atomicity
        self.settings = table.settings
        self.table = table.table
        self.tablets: tuple[Tablet, ...] = table.tablets
        self.pivots: list[Key] = [tablet.pivot_key for tablet in table.tablets]
        self.is_stale = False
        assert self.pivots, "a table has at least one tablet"
        assert self.pivots[0] == b"", "the first tablet begins below every key"

    def mark_stale(self) -> None:
        """Let the client ask for the route again. A newer route of this table is another object."""
        self.is_stale = True

    def is_another(self, table: int) -> bool:
        """Return whether the table with the id `table` is another one than this. Unknown ids are
        0."""
        return 0 not in (table, self.table) and table != self.table

    def tablet_of(self, key: Key) -> Tablet:
        """Return the tablet that a key belongs to."""
        return self.tablets[bisect_right(self.pivots, key) - 1]

    def parts_of(self, lower: Key, upper: Key) -> list[tuple[Tablet, Key, Key]]:
        """Return the tablets with keys in lower ≤ key < upper, in key order, each with its part of
        the range."""
        if lower >= upper:
            return []
        first, end = bisect_right(self.pivots, lower) - 1, bisect_left(self.pivots, upper)
        lowers = [lower, *self.pivots[first + 1 : end]]
        uppers = [*self.pivots[first + 1 : end], upper]
        return list(zip(self.tablets[first:end], lowers, uppers, strict=True))


_READ: Final = frozenset((MOUNTED, "freezing", "frozen", "unfreezing"))
_WRITTEN: Final = frozenset((MOUNTED,))
_READ_SOON: Final = _READ | {MOUNTING, "frozen_mounting"}
_WRITTEN_SOON: Final = _WRITTEN | {MOUNTING, "unfreezing"}


def is_served(tablet: Tablet, *, is_write: bool) -> bool:
    """Return whether the catalog says that a cell serves reads of the tablet, or writes."""
    return tablet.state in (_WRITTEN if is_write else _READ) and tablet.cell is not None


def is_soon_served(tablet: Tablet, *, is_write: bool) -> bool:
    """Return whether a cell serves the tablet, or will soon without any further command."""
    return tablet.state in (_WRITTEN_SOON if is_write else _READ_SOON)


class Routing:
    """What the client knows about tables and cells."""

    def __init__(self, tables_max: int = TABLES_MAX) -> None:
        assert tables_max > 0
        self._tables_max = tables_max
        self._tables: dict[str, TableRoute] = {}
        self._refreshes: dict[str, int] = {}
        self.addresses: dict[CellId, str] = {}
        """The addresses of cells. Drivers read it. Only `learn` and `learn_cells` write it."""

    def find(self, path: object) -> TableRoute | None:
        """Return the route, or None if it is unknown or stale."""
        route = self._tables.get(path) if isinstance(path, str) else None
        return None if route is None or route.is_stale else route

    def learn(self, table: Table) -> TableRoute:
        """Keep the master's answer. An unchanged schema stays the same object."""
        known = self._tables.pop(table.path, None)
        if known is not None and known.schema.columns == table.columns:
            schema = known.schema
        else:
            schema = TableSchema(table.columns)
        route = TableRoute(table, schema)
        while len(self._tables) >= self._tables_max:
            oldest, *_ = list(self._tables)  # a copy: other threads may insert
            self._tables.pop(oldest, None)
        self._tables[table.path] = route
        self.addresses.update(table.addresses)
        return route

    def learn_cells(self, cluster: Cluster) -> None:
        """Keep the addresses of all cells that are alive."""
        self.addresses.update({it.cell: it.address for it in cluster.cells if it.is_alive})

    def forget(self, path: str) -> None:
        """Mark the routes of a path and of all paths below it as stale, after this client changed
        them."""
        below = path.rstrip("/") + "/"
        for known, route in list(self._tables.items()):  # a copy, as above
            if known == path or known.startswith(below):
                route.mark_stale()

    def forget_settings(self, path: str) -> None:
        """Mark the route of a table as stale, after this client may have changed its settings. A
        directory has no settings for the tables below it."""
        route = self._tables.get(path)
        if route is not None:
            route.mark_stale()

    # One caller asks the master, the others wait for the answer.

    def begin_refresh(self, path: str, instant_us: int) -> bool:
        """Return whether the caller must ask the master. False: another caller asked less than 1 s
        ago."""
        asked_us = self._refreshes.get(path)
        if asked_us is not None and instant_us - asked_us < REFRESH_MS_MAX * 1000:
            return False
        self._refreshes[path] = instant_us
        return True

    def end_refresh(self, path: str) -> None:
        self._refreshes.pop(path, None)
