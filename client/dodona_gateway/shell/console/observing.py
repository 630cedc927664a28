"""Observe the servers of the cluster for the console.

Owns: which pages of which servers are read, and how often. While a page is open, that is every two
seconds. Otherwise it is every `IDLE_S`, so that charts have a history. All kept data is bounded:
the last values, and the history of rates. No reader waits for a silent server (see `cached`).
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dodona._core.loads.records import LOADS, RECOVERIES, LoadRecord, LoadRecovery
from dodona_gateway.core.console.history import History
from dodona_gateway.core.console.replicas import addresses_of
from dodona_gateway.core.console.server_pages import (
    CellPlace,
    ClusterPage,
    DoubtPage,
    OpenTransaction,
    ReportedCluster,
    ReportedTablets,
    Server,
    ServerKind,
    StartOf,
    StatisticsPage,
    TabletsPage,
    TransactionsPage,
    totals_of,
)
from dodona_gateway.shell.console.asking import Asker
from dodona_gateway.shell.console.cached import Cached
from dodona_gateway.shell.service import Service
from dodona_server.process import read_clock
from dodona_wire.cores.recoveries import RecoveryPage
from dodona_wire.errors import NodeNotFound, Unavailable
from dodona_wire.types import TIMESTAMP_COUNTER_BITS, CellId, Timestamp

MEASURES: Final = ("timestamps", "commits", "conflicts")
FRESH_S: Final = 1.5
LOOKED_S: Final = 2.0
IDLE_S: Final = 10.0
STILL_LOOKING_S: Final = 20.0
"""How long after the last request a page may still be open."""
LOADS_MAX: Final = 100
LOAD_BYTES_MAX: Final = 1 << 20
LOAD_AGES_S: Final = (10, 60, 600, 3_600, 86_400, 30 * 86_400)


class ReportedLoads(NamedTuple):
    """The newest bulk loads, newest first. `is_cut`: there are more."""

    loads: tuple[LoadRecord, ...]
    recoveries: tuple[LoadRecovery, ...]
    is_cut: bool


class Observer:
    """The observer of one gateway. Belongs to an event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._master_url = service.settings.master_url
        self._asker = Asker(service.settings.cluster_key)
        self._replica_asker = Asker(service.settings.cluster_key)
        """Log replicas have turns of their own, so silent ones keep no other server waiting."""
        self._known = ClusterPage()
        self._replicas: tuple[str, ...] = ()
        """The addresses of log replicas, from the last reports of cells. They are asked together
        with the cells, so a new one is shown one look later."""
        self._books: dict[str, RecoveryPage] = {}
        """The last known starts by address of the server, also for servers that do not answer any
        more."""
        self._looked_s = -STILL_LOOKING_S
        self.history = History(MEASURES)
        self.cluster = Cached(self._look, FRESH_S)
        self.tablets = Cached(self._look_at_tablets, FRESH_S)
        self.doubts = Cached(self._look_at_doubts, FRESH_S)
        self.starts = Cached(self._look_at_starts, FRESH_S)
        self.transactions = Cached(self._look_at_transactions, FRESH_S)
        self.loads = Cached(self._look_at_loads, FRESH_S)

    async def run(self) -> None:
        """Take samples, until cancelled."""
        while True:
            looked_ago_s = time.monotonic() - self._looked_s
            pace_s = LOOKED_S if looked_ago_s < STILL_LOOKING_S else IDLE_S
            age_s = self.cluster.age_s
            if age_s is None or age_s >= pace_s:
                await asyncio.wait([self.cluster.refresh()])
            await asyncio.sleep(LOOKED_S)

    async def close(self) -> None:
        for cached in self._cached():
            await cached.close()
        await self._asker.close()
        await self._replica_asker.close()

    def note_look(self) -> None:
        """Note that a page is open."""
        self._looked_s = time.monotonic()

    def _cached(self) -> Iterator[Cached[Any]]:
        yield from (it for it in vars(self).values() if isinstance(it, Cached))

    # ---- servers

    async def _look(self) -> ReportedCluster:
        """Observe all servers. A silent master is waited for once, because its requests run at the
        same time."""
        master, problem = await asyncio.gather(
            self._server("master", self._master_url), self._learn_servers()
        )
        known = self._known
        servers = await asyncio.gather(
            *[self._server("proxy", it) for it in known.proxies],
            *[self._cell(it) for it in known.cells],
            *[self._replica(it) for it in self._replicas],
        )
        now = read_clock()
        reported = ReportedCluster(now.unix_us, (master, *servers), problem)
        self._replicas = addresses_of(reported) or self._replicas
        self.history.add(now.instant_us, totals_of(reported))
        return reported

    async def _learn_servers(self) -> str:
        """Learn the proxies and cells from the master. Return why the master did not answer, or an
        empty text."""
        try:
            self._known = await self._asker.page(self._master_url, "/v1/cluster", ClusterPage)
        except Unavailable as error:
            return error.message
        return ""

    async def _cell(self, place: CellPlace) -> Server:
        server = await self._server("cell", place.address)
        if server.state == "ready" and not place.is_alive:
            server = server._replace(state="lost", reason="the master does not hear from it")
        return server._replace(cell=place.cell)

    async def _replica(self, address: str) -> Server:
        server = await self._server("replica", address)
        counts = None if server.statistics is None else server.statistics.replica
        if server.state == "ready" and counts is not None and counts.is_full:
            reason = "it has no space for new entries"
            return server._replace(state="waiting", reason=reason)
        return server

    async def _server(self, kind: ServerKind, address: str) -> Server:
        asker = self._replica_asker if kind == "replica" else self._asker
        try:
            ready = await asker.readiness(address)
        except Unavailable as error:
            return Server(kind, address, "silent", error.message)
        page: StatisticsPage | None = None
        with suppress(Unavailable):
            page = await asker.page(address, "/v1/statistics", StatisticsPage)
        state = Server(kind, address, "ready", "", ready.version, None, page)
        return state._replace(state="waiting", reason=ready.reason) if ready.reason else state

    async def _cells(self) -> list[tuple[CellId, str]]:
        """Return the cells that answered the last request. A page would have to wait for the
        others."""
        reported = await self.cluster.get()
        if reported is None:
            raise Unavailable(
                "The gateway has not reached the cluster yet. Wait, then load the page again."
            )
        cells = [it for it in reported.of("cell") if it.state != "silent"]
        return [(it.cell, it.address) for it in cells if it.cell is not None]

    async def _look_at_tablets(self) -> dict[CellId, ReportedTablets]:
        """Return the tablets of all known cells. A cell that does not answer keeps its last
        tablets."""
        pages = await self._asker.pages(await self._cells(), "/v1/tablets", TabletsPage)
        now_us = read_clock().unix_us
        reported = {cell: ReportedTablets(now_us, page) for cell, page in pages.items()}
        known = [it.cell for it in self._known.cells]
        before = self.tablets.value or {}
        return {**{cell: before[cell] for cell in known if cell in before}, **reported}

    async def _look_at_doubts(self) -> dict[CellId, DoubtPage]:
        """Return the transactions in doubt of cells that answer. Old values of other cells would
        mislead."""
        return await self._asker.pages(await self._cells(), "/v1/in-doubt", DoubtPage)

    async def _look_at_starts(self) -> list[StartOf]:
        """Return all starts, newest first. A server that does not answer keeps its last starts."""
        reported = await self.cluster.get()
        servers = [] if reported is None else [*reported.of("master"), *reported.of("cell")]
        asked = [(it.address, it.address) for it in servers if it.state != "silent"]
        self._books |= await self._asker.pages(asked, "/v1/recoveries", RecoveryPage)
        addresses = [it.address for it in servers]
        self._books = {it: page for it, page in self._books.items() if it in addresses}
        starts = [
            StartOf(server, it, it is self._books[server.address].recoveries[-1])
            for server in servers
            if server.address in self._books
            for it in self._books[server.address].recoveries
        ]
        return sorted(starts, key=lambda it: it.recovery.began_us, reverse=True)

    async def _look_at_transactions(self) -> tuple[OpenTransaction, ...]:
        path = "/v1/master-transactions"
        page = await self._asker.page(self._master_url, path, TransactionsPage)
        return page.transactions

    # ---- loads

    async def _look_at_loads(self) -> ReportedLoads:
        now = await self._service.client.generate_timestamp()
        loads, is_cut = await self._newest(LOADS, now)
        recoveries, _ = await self._newest(RECOVERIES, now)
        return ReportedLoads(
            tuple([LoadRecord(**it) for it in loads]),
            tuple([LoadRecovery(**it) for it in recoveries]),
            is_cut,
        )

    async def _newest(self, path: str, now: Timestamp) -> tuple[list[dict[str, Any]], bool]:
        """Return the last rows of a table whose key is a timestamp, newest first, and whether there
        are older rows. The search goes further and further back, until there are enough rows."""
        found: list[dict[str, Any]] = []
        for age_s in LOAD_AGES_S:
            since = max(now - (age_s << TIMESTAMP_COUNTER_BITS), 0)
            read = self._service.session.first_rows(path, LOADS_MAX, LOAD_BYTES_MAX, [since])
            try:
                (rows, behind), _ = await self._service.run(read)
            except NodeNotFound:  # no load was ever begun
                return [], False
            is_cut = behind is not None
            if is_cut and found:
                return found, True
            found = [_with_tables(it) for it in reversed(list(rows))]
            if is_cut:
                return found, True
        return found, False


def _with_tables(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "tables": tuple(row["tables"] or ())}
