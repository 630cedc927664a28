"""Show the pages about the whole cluster: its map, its transactions, its recoveries.

Owns: the content of each page, and what each caller may see. The state of servers is for callers
that may read anything (as `GET /v1/cluster` is). Tables, loads and held transactions are for
callers that may read, or own, them. The titles of master transactions may say anything, so they are
for administrators of everything. A page asks for all its data at the same time. Unknown data is
None, and the page says so.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from fastapi import Response

from dodona_gateway.core.access.grants import need_everywhere
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.console.chart import WINDOW_S, Chart, chart_of
from dodona_gateway.core.console.cluster import (
    CellMap,
    MayRead,
    Stuck,
    is_cut,
    map_cells,
    merge_doubts,
    stuck,
    unheard_cells,
)
from dodona_gateway.core.console.replicas import replica_lines
from dodona_gateway.core.console.server_pages import DoubtPage, ReportedCluster, ReportedTablets
from dodona_gateway.shell.console.observing import Observer, ReportedLoads
from dodona_gateway.shell.console.rendering import page
from dodona_gateway.shell.console.visits import Visit
from dodona_server.process import read_clock
from dodona_wire.errors import DodonaError
from dodona_wire.types import CellId

AT_ONCE_MAX: Final = 2_000
"""The number of tablets that are put on the map within a few milliseconds."""
HELD_MAX: Final = 100
DOUBTS_MAX: Final = 100
TRANSACTIONS_MAX: Final = 100
STARTS_MAX: Final = 50
CHARTS: Final = (
    ("timestamps", "Timestamps", "per second"),
    ("commits", "Commits", "per second"),
    ("conflicts", "Conflicts", "per second"),
)


async def show_cluster(visit: Visit) -> Response:
    return page("cluster.html", visit.principal, **await _cluster(visit))


async def show_cluster_part(visit: Visit) -> Response:
    return page("parts/cluster.html", visit.principal, **await _cluster(visit))


async def _cluster(visit: Visit) -> dict[str, Any]:
    observer = watch(visit)
    reported, tablets, doubts = await asyncio.gather(
        observer.cluster.get(), observer.tablets.get(), observer.doubts.get()
    )
    cells = () if reported is None else await _cells(visit, reported, tablets or {})
    return {
        "reported": reported,
        "problem": observer.cluster.problem,
        "charts": _charts(observer),
        "cells": cells,
        "replicas": () if reported is None else replica_lines(reported),
        "rates": {name: observer.history.last(name) for name, _, _ in CHARTS},
        "sums": _sums(reported),
        "stuck": _stuck(reported, doubts),
        "gateway": visit.service.settings.address,
        "held_count": visit.service.transactions.open_count,
    }


async def _cells(
    visit: Visit, reported: ReportedCluster, tablets: Mapping[CellId, ReportedTablets]
) -> tuple[CellMap, ...]:
    """Return the map of the cells. With many tablets it is made in a thread, so that other callers
    are answered meanwhile."""
    make = partial(map_cells, reported, tablets, _may_read(visit))
    if sum(len(it.page.tablets) for it in tablets.values()) <= AT_ONCE_MAX:
        return make()
    return await asyncio.to_thread(make)


def _charts(observer: Observer) -> list[Chart]:
    now_us = read_clock().instant_us
    return [
        chart_of(name, title, unit, observer.history.points(name, now_us, WINDOW_S))
        for name, title, unit in CHARTS
    ]


def _sums(reported: ReportedCluster | None) -> dict[str, int]:
    """Return the sums over all cells that answer, and the number of these cells."""
    counts = [it.counts for it in (reported.of("cell") if reported is not None else ())]
    known = [it for it in counts if it is not None]
    return {
        "cells": len(counts),
        "cells_heard": len(known),
        "tablets": sum(it.tablets for it in known),
        "memory_bytes": sum(it.memory_bytes for it in known),
        "chunk_bytes": sum(it.chunk_bytes for it in known),
    }


def _stuck(
    reported: ReportedCluster | None, doubts: Mapping[CellId, DoubtPage] | None
) -> Stuck | None:
    return None if reported is None or doubts is None else stuck(reported, doubts)


async def show_transactions(visit: Visit) -> Response:
    return page("transactions.html", visit.principal, **await _transactions(visit))


async def show_transactions_part(visit: Visit) -> Response:
    return page("parts/transactions.html", visit.principal, **await _transactions(visit))


async def _transactions(visit: Visit) -> dict[str, Any]:
    observer = watch(visit)
    reported, doubts, opened, loads = await asyncio.gather(
        observer.cluster.get(),
        observer.doubts.get(),
        observer.transactions.get(),
        observer.loads.get(),
    )
    is_admin = need_everywhere("admin").is_met_by(visit.principal.grants)
    owner = None if is_admin else visit.principal.owner
    held = visit.service.transactions.held(owner)
    return {
        "reported": reported,
        "problem": observer.cluster.problem,
        **_doubts(reported, doubts),
        "is_admin": is_admin,
        "held": held[:HELD_MAX],
        "held_count": len(held),
        "open": None if opened is None or not is_admin else opened[:TRANSACTIONS_MAX],
        "open_count": 0 if opened is None or not is_admin else len(opened),
        "open_old_ms": observer.transactions.old_ms,
        "loads": _loads_seen(visit, loads),
        "loads_old_ms": observer.loads.old_ms,
    }


def _doubts(
    reported: ReportedCluster | None, doubts: Mapping[CellId, DoubtPage] | None
) -> dict[str, Any]:
    """Return the transactions in doubt; None if no cell is known that could have any."""
    if reported is None or doubts is None or (reported.problem and not reported.of("cell")):
        return {"doubts": None, "doubt_count": 0, "is_at_least": False, "unwell": (), "unheard": ()}
    merged = merge_doubts(reported, doubts)
    unheard = unheard_cells(reported, doubts)
    unwell = [it for it in reported.of("cell") if it.state != "ready" or it in unheard]
    return {
        "doubts": merged[:DOUBTS_MAX],
        "doubt_count": len(merged),
        "is_at_least": is_cut(doubts),
        "unwell": unwell,
        "unheard": unheard,
    }


async def show_recoveries(visit: Visit) -> Response:
    return page("recoveries.html", visit.principal, **await _recoveries(visit))


async def show_recoveries_part(visit: Visit) -> Response:
    return page("parts/recoveries.html", visit.principal, **await _recoveries(visit))


async def _recoveries(visit: Visit) -> dict[str, Any]:
    observer = watch(visit)
    reported, starts, loads = await asyncio.gather(
        observer.cluster.get(), observer.starts.get(), observer.loads.get()
    )
    return {
        "reported": reported,
        "problem": observer.cluster.problem,
        "starts": None if starts is None else starts[:STARTS_MAX],
        "start_count": len(starts or ()),
        "starts_old_ms": observer.starts.old_ms,
        "loads": _loads_seen(visit, loads),
        "loads_old_ms": observer.loads.old_ms,
    }


def _loads_seen(visit: Visit, reported: ReportedLoads | None) -> ReportedLoads | None:
    """Return the loads into tables that the caller may all read."""
    if reported is None:
        return None
    may_read = _may_read(visit)
    loads = [it for it in reported.loads if all(may_read(path) for path in it.tables)]
    recoveries = [it for it in reported.recoveries if all(may_read(path) for path in it.tables)]
    return ReportedLoads(tuple(loads), tuple(recoveries), reported.is_cut)


def allowed(principal: Principal, path: str) -> bool:
    """Return whether the principal may read a table. It may not if the gateway does not serve the
    table."""
    try:
        return principal.allows("read", path)
    except DodonaError:
        return False


def _may_read(visit: Visit) -> MayRead:
    known: dict[str, bool] = {}

    def may_read(path: str) -> bool:
        if path not in known:
            known[path] = allowed(visit.principal, path)
        return known[path]

    return may_read


def watch(visit: Visit) -> Observer:
    """Return the observer of the servers. Raises Forbidden."""
    visit.principal.check_somewhere("read")
    visit.observer.note_look()
    return visit.observer
