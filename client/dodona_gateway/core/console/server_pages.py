"""What servers tell on their REST pages, as far as the console reads it. Pure.

Owns: the names, which are those of the servers' own statistics. What is missing counts as nothing,
and what is more is passed over: servers and gateway need not be of one version.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from dodona_wire.cores.recoveries import Recovery
from dodona_wire.preload import preload_decoder
from dodona_wire.types import CellId, TabletId, Timestamp, TransactionId

ServerKind = Literal["master", "proxy", "cell"]


class CellPlace(msgspec.Struct, frozen=True):
    """Where the master knows a cell to be."""

    cell: CellId
    address: str
    is_alive: bool = False
    """Whether the master hears from it."""
    tablet_count: int = 0


@preload_decoder
class ClusterPage(msgspec.Struct, frozen=True):
    """Of the master."""

    proxies: tuple[str, ...] = ()
    cells: tuple[CellPlace, ...] = ()


class CellCounts(msgspec.Struct, frozen=True):
    """Of `/v1/statistics` of a node."""

    tablets: int = 0
    tablets_stored: int = 0
    rows: int = 0
    transactions_alive: int = 0
    transactions_prepared: int = 0
    readers: int = 0
    loads: int = 0
    commits: dict[str, dict[str, int]] = {}
    """By protocol and outcome: each transaction once, where it is decided."""
    memory_bytes: int = 0
    chunks: int = 0
    chunk_bytes: int = 0
    last_failure: str | None = None

    def decided(self, outcome: Literal["committed", "conflict"]) -> int:
        """How many transactions came to that here, of all protocols."""
        return sum(counts.get(outcome, 0) for counts in self.commits.values())


class CatalogCounts(msgspec.Struct, frozen=True):
    table_count: int = 0
    tablet_count: int = 0
    moving_tablet_count: int = 0
    tree_transaction_count: int = 0


class MasterCounts(msgspec.Struct, frozen=True):
    """Of a master."""

    timestamp_count: int = 0
    catalog: CatalogCounts = CatalogCounts()


class ProxyCounts(msgspec.Struct, frozen=True):
    """Of a proxy."""

    request_count: int = 0
    timestamp_count: int = 0
    batch_count: int = 0


@preload_decoder
class StatisticsPage(msgspec.Struct, frozen=True):
    """Of any of them: what it is, is there."""

    cell: CellCounts | None = None
    master: MasterCounts | None = None
    proxy: ProxyCounts | None = None
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
    """What a cell told of its tablets, and when. `told_us` is Unix time."""

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
    """One server, and what it last said of itself."""

    kind: ServerKind
    address: str
    state: Literal["ready", "waiting", "lost", "silent"]
    """Waiting: it answers that it is not ready. Lost: it is ready, and the master does not hear
    from it. Silent: it does not answer."""
    reason: str = ""
    """Why it is not ready."""
    version: str = ""
    cell: CellId | None = None
    statistics: StatisticsPage | None = None

    @property
    def name(self) -> str:
        """Without a number where there is but one."""
        return self.kind if self.cell is None else f"cell {self.cell}"

    @property
    def counts(self) -> CellCounts | None:
        """Of a cell, if it told them."""
        return None if self.statistics is None else self.statistics.cell


class ReportedCluster(NamedTuple):
    """All servers at one moment. `at_us` is Unix time."""

    at_us: int
    servers: tuple[Server, ...]
    problem: str = ""
    """Why the master did not say which servers there are: then these are those it last named."""

    def of(self, kind: ServerKind) -> tuple[Server, ...]:
        return tuple([it for it in self.servers if it.kind == kind])


class StartOf(NamedTuple):
    """A start, and whose it was."""

    server: Server
    recovery: Recovery
    is_last: bool
    """Of that server: what runs now, if it does."""


def totals_of(reported: ReportedCluster) -> dict[str, dict[str, int]]:
    """What has been counted in all, by measure and by who counts it."""
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
"""As `totals_of` gives them."""
