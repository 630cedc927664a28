"""Serve the copies of the cells' logs over REST.

Owns: this operation. The owner of a log knows its copies, so each node is asked for its statistics.
Nodes that do not answer cost a caller five seconds at most, all together (see `asking`).
"""

from typing import Final

from dodona_gateway.core import answers, requests
from dodona_gateway.core.console.server_pages import StatisticsPage
from dodona_gateway.shell.console.asking import Asker
from dodona_gateway.shell.routes import Call, route
from dodona_wire.cores.copies import CopiesReport, ReplicaState
from dodona_wire.types import CellId


async def get_copies(call: Call, asked: requests.Nothing) -> answers.ClusterCopies:
    """Return the copies of the logs of all cells, and the log replicas that have them. Cells whose
    logs have no copies are left out."""
    call.principal.check_somewhere("read")
    cells = (await call.service.client.get_cluster()).cells
    places = [(it.cell, it.address) for it in cells if it.address]
    asker = Asker(call.service.settings.cluster_key)
    try:
        pages = await asker.pages(places, "/v1/statistics", StatisticsPage)
    finally:
        await asker.close()
    reports = [(it.cell, pages[it.cell].copies) for it in cells if it.cell in pages]
    return answers.ClusterCopies(
        [_view(cell, copies) for cell, copies in reports if copies is not None],
        [it.cell for it in cells if it.cell not in pages],
    )


def _view(cell: CellId, found: CopiesReport) -> answers.LogView:
    return answers.LogView(
        cell,
        found.owner,
        found.epoch,
        found.is_serving,
        found.text,
        found.wanted_count,
        found.copies_min,
        found.coordinator_silent_us // 1000,
        [_view_replica(it) for it in found.replicas],
    )


def _view_replica(it: ReplicaState) -> answers.ReplicaView:
    lag_ms, silent_ms = it.lag_us // 1000, it.silent_us // 1000
    return answers.ReplicaView(
        it.address, it.replica, it.role, it.lag_entries, lag_ms, silent_ms, it.reason
    )


ROUTES: Final = (route("GET", "/v1/cluster/copies", get_copies, "read"),)
