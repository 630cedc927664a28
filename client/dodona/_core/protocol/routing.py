"""Where tables, tablets and cells are, as far as this client knows. Pure.

Owns: the route cache. A route is immutable; it is replaced as a whole. A cell notices a stale one
by the tablet's revision and says so: then the route is forgotten and asked for again.
Invariants: a route's pivots rise and the first is empty, so that every key has a tablet.
Bounded: tables in the cache; the oldest entry makes room. One process may share it among threads:
every change is a single dict operation.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from dodona_wire.messages.catalog import Cluster, Table, Tablet
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import Atomicity, CellId, Key

TABLES_MAX: Final = 10_000
REFRESH_MS_MAX: Final = 1_000
"""How long others wait for the one who asks the master for a route already."""
MOUNTED: Final = "mounted"
FROZEN: Final = "frozen"
MOUNTING: Final = "mounting"
UNMOUNTED: Final = "unmounted"
SETTLED_STATES: Final = frozenset((MOUNTED, FROZEN, UNMOUNTED))
"""In any other the master waits for a cell."""


class TableRoute:
    """One table's schema and tablets at one moment. Only `is_stale` ever changes, and once."""

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

    def is_another(self, table: int) -> bool:
        """Whether the table with this id was at the path before. Unknown ids are 0."""
        return 0 not in (table, self.table) and table != self.table

    def tablet_of(self, key: Key) -> Tablet:
        """The tablet that a key belongs to."""
        return self.tablets[bisect_right(self.pivots, key) - 1]

    def parts_of(self, lower: Key, upper: Key) -> list[tuple[Tablet, Key, Key]]:
        """The tablets that lower ≤ key < upper touches, in key order, each with its share."""
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
    """Whether the catalog says that a cell lets the tablet be read, or written."""
    return tablet.state in (_WRITTEN if is_write else _READ) and tablet.cell is not None


def is_soon_served(tablet: Tablet, *, is_write: bool) -> bool:
    """Whether that is so, or will be without anybody doing anything."""
    return tablet.state in (_WRITTEN_SOON if is_write else _READ_SOON)


class Routing:
    """What the client knows of tables and cells."""

    def __init__(self, tables_max: int = TABLES_MAX) -> None:
        assert tables_max > 0
        self._tables_max = tables_max
        self._tables: dict[str, TableRoute] = {}
        self._refreshes: dict[str, int] = {}
        self.addresses: dict[CellId, str] = {}
        """Where cells are; drivers read it, only `learn` and `learn_cells` write it."""

    def find(self, path: object) -> TableRoute | None:
        """The route, unless it is unknown or proved stale."""
        route = self._tables.get(path) if isinstance(path, str) else None
        return None if route is None or route.is_stale else route

    def learn(self, table: Table) -> TableRoute:
        """Keep what the master said. An unchanged schema stays the same object."""
        known = self._tables.pop(table.path, None)
        if known is not None and known.schema.columns == table.columns:
            schema = known.schema
        else:
            schema = TableSchema(table.columns)
        route = TableRoute(table, schema)
        while len(self._tables) >= self._tables_max:
            oldest, *_ = list(self._tables)  # a copy: other threads may insert meanwhile
            self._tables.pop(oldest, None)
        self._tables[table.path] = route
        self.addresses.update(table.addresses)
        return route

    def learn_cells(self, cluster: Cluster) -> None:
        """Keep the addresses of all cells that are alive."""
        self.addresses.update({it.cell: it.address for it in cluster.cells if it.is_alive})

    def forget(self, path: str) -> None:
        """This client changed the table, or the directory: what is known of it, and of the tables
        below it, is stale."""
        below = path.rstrip("/") + "/"
        for known, route in list(self._tables.items()):  # a copy: as above
            if known == path or known.startswith(below):
                route.is_stale = True

    # One asks the master, the others wait for the answer

    def begin_refresh(self, path: str, instant_us: int) -> bool:
        """Whether the caller is to ask. False: somebody else asked a moment ago."""
        asked_us = self._refreshes.get(path)
        if asked_us is not None and instant_us - asked_us < REFRESH_MS_MAX * 1000:
            return False
        self._refreshes[path] = instant_us
        return True

    def end_refresh(self, path: str) -> None:
        self._refreshes.pop(path, None)
