"""The REST pages on which servers report their state, as far as the console reads them. Pure.

Owns: the names of the fields, which are those of the servers' own statistics. A missing field has
its default, and an unknown field is ignored. So servers and gateway may have different versions.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from dodona_wire.cores.copies import CopiesReport
from dodona_wire.cores.recoveries import Recovery
from dodona_wire.preload import preload_decoder
from dodona_wire.types import CellId, TabletId, Timestamp, TransactionId

ServerKind = Literal["master", "proxy", "cell", "replica"]


class CellPlace(msgspec.Struct, frozen=True):
    """The address at which the master knows a cell."""

    cell: CellId
    address: str
    is_alive: bool = False
    """Whether the master hears from the cell."""
    tablet_count: int = 0


@preload_decoder
class ClusterPage(msgspec.Struct, frozen=True):
    """The page of the master about its cluster."""

    proxies: tuple[str, ...] = ()
    cells: tuple[CellPlace, ...] = ()


class CellCounts(msgspec.Struct, frozen=True):
    """The counts of a cell, from the page `/v1/statistics` of its node."""

    tablets: int = 0
    tablets_stored: int = 0
    rows: int = 0
    transactions_alive: int = 0
    transactions_prepared: int = 0
    readers: int = 0
    loads: int = 0
    commits: dict[str, dict[str, int]] = {}
    """By protocol and outcome. Each transaction counts once, in the cell that decides it."""
    memory_bytes: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    last_failure: str | None = None

    def decided(self, outcome: Literal["committed", "conflict"]) -> int:
        """Return the number of transactions that ended so in this cell, over all protocols."""
        return sum(counts.get(outcome, 0) for counts in self.commits.values())


class CatalogCounts(msgspec.Struct, frozen=True):
    table_count: int = 0
    tablet_count: int = 0
    moving_tablet_count: int = 0
    tree_transaction_count: int = 0


class MasterCounts(msgspec.Struct, frozen=True):
    """The counts of a master."""

    timestamp_count: int = 0
    catalog: CatalogCounts = CatalogCounts()


class ProxyCounts(msgspec.Struct, frozen=True):
    """The counts of a proxy."""

    request_count: int = 0
    timestamp_count: int = 0
    batch_count: int = 0


class ReplicaCounts(msgspec.Struct, frozen=True):
    """The counts of a log replica."""

    log_count: int = 0
    entry_count: int = 0
    is_full: bool = False
    """Whether it refuses new entries, because it has no space for them."""


@preload_decoder
class StatisticsPage(msgspec.Struct, frozen=True):
    """The statistics page of any server. Only the fields of its own kind are set."""

    cell: CellCounts | None = None
    master: MasterCounts | None = None
    proxy: ProxyCounts | None = None
    replica: ReplicaCounts | None = None
    copies: CopiesReport | None = None
    """The copies of a cell's log, if it has copies."""
    log_bytes: int | None = None
    log_fill_ratio: float | None = None


class Doubt(msgspec.Struct, frozen=True):
    """A transaction that is prepared in a cell and not decided there."""

    transaction: TransactionId
    coordinator: CellId
    participants: tuple[CellId, ...]
    prepare_timestamp: Timestamp
    age_ms: int


@preload_decoder
class DoubtPage(msgspec.Struct, frozen=True):
    count: int = 0
    transactions: tuple[Doubt, ...] = ()


class TabletCounts(msgspec.Struct, frozen=True):
    """One tablet, as its cell counts it."""

    tablet: TabletId
    table: str
    state: str
    rows: int = 0
    memory_bytes: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    retained_timestamp: Timestamp = Timestamp(0)
    writers: int = 0


@preload_decoder
class TabletsPage(msgspec.Struct, frozen=True):
    count: int = 0
    tablets: tuple[TabletCounts, ...] = ()


class ReportedTablets(NamedTuple):
    """The tablets that a cell reported, and when. `reported_us` is in Unix microseconds."""

    reported_us: int
    page: TabletsPage


class OpenTransaction(msgspec.Struct, frozen=True):
    """A master transaction that is open."""

    transaction: int
    parent: int
    title: str
    timeout_ms: int
    expires_ms: int


@preload_decoder
class TransactionsPage(msgspec.Struct, frozen=True):
    transactions: tuple[OpenTransaction, ...] = ()


class Server(NamedTuple):
    """One server, and its last report."""

    kind: ServerKind
    address: str
    state: Literal["ready", "waiting", "lost", "silent"]
    """Waiting: the server answers that it is not ready. Lost: it is ready, and the master does not
    hear from it. Silent: it does not answer."""
    reason: str = ""
    """Why the server is not ready."""
    version: str = ""
    cell: CellId | None = None
    statistics: StatisticsPage | None = None

    @property
    def name(self) -> str:
        """Return the kind of the server, or `cell` and its number."""
        return self.kind if self.cell is None else f"cell {self.cell}"

    @property
    def counts(self) -> CellCounts | None:
        """Return the counts of a cell, or None if there are none."""
        return None if self.statistics is None else self.statistics.cell

    @property
    def copies(self) -> CopiesReport | None:
        """Return what a cell reports of the copies of its log, or None if there are none."""
        return None if self.statistics is None else self.statistics.copies


class ReportedCluster(NamedTuple):
    """All servers at one time. `at_us` is in Unix microseconds."""

    at_us: int
    servers: tuple[Server, ...]
    problem: str = ""
    """Why the master did not list its servers. If set, `servers` are those of its last list."""

    def of(self, kind: ServerKind) -> tuple[Server, ...]:
        return tuple([it for it in self.servers if it.kind == kind])


class StartOf(NamedTuple):
    """One start of a server."""

    server: Server
    recovery: Recovery
    is_last: bool
    """Whether this is the server's last start: that of the running process, if it runs."""


def totals_of(reported: ReportedCluster) -> dict[str, dict[str, int]]:
    """Return the total counts, by measure and by the server that counts."""
    totals: dict[str, dict[str, int]] = {"timestamps": {}, "commits": {}, "conflicts": {}}
    for it in reported.servers:
        page = it.statistics
        if page is None:
            continue
        if page.master is not None:
            totals["timestamps"][it.address] = page.master.timestamp_count
        if page.cell is not None:
            totals["commits"][it.name] = page.cell.decided("committed")
            totals["conflicts"][it.name] = page.cell.decided("conflict")
    return totals


Totals = Mapping[str, Mapping[str, int]]
"""The type of the result of `totals_of`."""
