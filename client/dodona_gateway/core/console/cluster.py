"""Make the map of the cluster: the share that each cell has of each table. Pure.

Owns: how the map is made, and which parts a principal may see. For the tables that a principal may
not read, the map shows only sums, without names.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dodona_gateway.core.console.server_pages import (
    Doubt,
    DoubtPage,
    ReportedCluster,
    ReportedTablets,
    Server,
    TabletCounts,
)
from dodona_wire.types import CellId

OTHERS: Final = ""
"""The path that stands for all tables that the principal may not read."""
SQUARES_MAX: Final = 60
"""The largest number of squares of one table in one cell."""
TABLES_MAX: Final = 50
"""The largest number of tables of one cell that are shown by name."""
LINES_MAX: Final = 400
"""The largest number of lines of all cells. If there are many cells, each has less room."""
ALL_SQUARES_MAX: Final = 4_000
OLD_US: Final = 5_000_000
"""A report that is older than this is no longer current."""
STUCK_MS: Final = 1_000
"""A transaction in doubt for longer than this is stuck. A healthy commit in several cells is
decided some milliseconds after it was prepared."""

MayRead = Callable[[str], bool]


class Room(NamedTuple):
    """The limits on what the map shows of each cell."""

    tables: int
    squares: int


class TableShare(NamedTuple):
    """The part of a table in one cell. `tablets` has as many tablets as there is room for."""

    path: str
    tablet_count: int
    tablets: tuple[TabletCounts, ...]
    rows: int
    memory_bytes: int
    chunks: int
    chunk_bytes: int


class CellMap(NamedTuple):
    """The map of one cell."""

    server: Server
    shares: tuple[TableShare, ...]
    reported_us: int | None
    """When the cell reported its tablets, in Unix microseconds; None if it has not."""
    is_old: bool = False
    """Whether this report is no longer current."""
    hidden_count: int = 0
    """The number of readable tables that there was no room for."""
    listed_count: int = 0
    """The number of tablets that the cell listed one by one."""
    tablet_count: int = 0
    """The number of all tablets of the cell, which may be more than it lists."""


class MergedDoubt(NamedTuple):
    """A transaction in doubt, merged from all cells that have it in doubt."""

    doubt: Doubt
    cells: tuple[CellId, ...]
    """The cells in which it is prepared and undecided."""
    silent: tuple[CellId, ...]
    """The participants that do not answer."""
    age_ms: int


class Stuck(NamedTuple):
    """The number of transactions that are in doubt for longer than `STUCK_MS`."""

    doubt_count: int
    is_at_least: bool
    """Whether there are more than the cells list."""
    heard_count: int
    """The number of cells that reported their transactions in doubt."""


def map_cells(
    reported: ReportedCluster, tablets: Mapping[CellId, ReportedTablets], may_read: MayRead
) -> tuple[CellMap, ...]:
    """Return the maps of all cells, in order."""
    cells = sorted(reported.of("cell"), key=lambda it: it.cell or 0)
    room = room_for(len(cells))
    return tuple([_map_cell(it, reported.at_us, tablets, may_read, room) for it in cells])


def room_for(cell_count: int) -> Room:
    """Return the limits with which a browser draws the map fast, however large the cluster is."""
    tables = min(TABLES_MAX, max(1, LINES_MAX // max(1, cell_count)))
    squares = min(SQUARES_MAX, max(1, ALL_SQUARES_MAX // (max(1, cell_count) * tables)))
    return Room(tables, squares)


def _map_cell(
    server: Server,
    now_us: int,
    tablets: Mapping[CellId, ReportedTablets],
    may_read: MayRead,
    room: Room,
) -> CellMap:
    reported = None if server.cell is None else tablets.get(server.cell)
    if reported is None:
        return CellMap(server, (), None)
    listed = reported.page.tablets
    by_table: dict[str, list[TabletCounts]] = {}
    for it in listed:
        by_table.setdefault(it.table, []).append(it)
    readable = [path for path in sorted(by_table) if may_read(path)]
    shares = [_share(path, by_table[path], room) for path in readable[: room.tables]]
    others = [it for path in by_table if not may_read(path) for it in by_table[path]]
    if others:
        shares.append(_share(OTHERS, others, room))
    return CellMap(
        server,
        tuple(shares),
        reported.reported_us,
        is_old=server.state == "silent" or now_us - reported.reported_us > OLD_US,
        hidden_count=max(0, len(readable) - room.tables),
        listed_count=len(listed),
        tablet_count=reported.page.count,
    )


def _share(path: str, tablets: list[TabletCounts], room: Room) -> TableShare:
    return TableShare(
        path,
        len(tablets),
        tuple(tablets[: room.squares]),
        sum([it.rows for it in tablets]),
        sum([it.memory_bytes for it in tablets]),
        sum([it.chunks for it in tablets]),
        sum([it.chunk_bytes for it in tablets]),
    )


def unheard_cells(
    reported: ReportedCluster, doubts: Mapping[CellId, DoubtPage]
) -> tuple[Server, ...]:
    """Return the cells that did not report their transactions in doubt."""
    return tuple([it for it in reported.of("cell") if it.cell not in doubts])


def is_cut(doubts: Mapping[CellId, DoubtPage]) -> bool:
    """Return whether any cell has more transactions in doubt than it lists."""
    return any(it.count > len(it.transactions) for it in doubts.values())


def stuck(reported: ReportedCluster, doubts: Mapping[CellId, DoubtPage]) -> Stuck:
    """Return what the map says about stuck transactions."""
    count = sum(it.age_ms > STUCK_MS for it in merge_doubts(reported, doubts))
    heard_count = len(reported.of("cell")) - len(unheard_cells(reported, doubts))
    return Stuck(count, is_cut(doubts), heard_count)


def merge_doubts(
    reported: ReportedCluster, doubts: Mapping[CellId, DoubtPage]
) -> list[MergedDoubt]:
    """Return one entry for each transaction in doubt, the oldest first."""
    silent = [it.cell for it in reported.of("cell") if it.state == "silent" and it.cell is not None]
    found: dict[int, list[tuple[CellId, Doubt]]] = {}
    for cell in sorted(doubts):
        for it in doubts[cell].transactions:
            found.setdefault(it.transaction, []).append((cell, it))
    return [_merged(found[number], silent) for number in sorted(found)]


def _merged(found: list[tuple[CellId, Doubt]], silent: list[CellId]) -> MergedDoubt:
    doubt = found[0][1]
    return MergedDoubt(
        doubt,
        tuple([cell for cell, _ in found]),
        tuple([it for it in doubt.participants if it in silent]),
        max([it.age_ms for _, it in found]),
    )
