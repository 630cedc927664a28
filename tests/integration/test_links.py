"""Workloads over links that break: resets, delays, half-open connections and partitions.

Owns: the proof that real sockets, time-outs and reconnections keep what the simulator shows for its
own network. Every pair of processes talks through a relay of its own, so that clients lose nodes,
nodes lose each other, and all lose the master, each alone. What was held back arrives late.
"""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from dodona_loadtest.chaos.links import CLIENT, Link, LinkedCluster, Trouble, draw_trouble
from dodona_loadtest.live.run import Order
from dodona_loadtest.live.verdict import Counts
from dodona_loadtest.verify import verify
from dodona_loadtest.workloads import WORKLOADS

pytestmark = pytest.mark.integration

PATIENCE_MS = 1_000
CUT_MS = 800
TROUBLES = 4
AFTER_MS_MEAN = 250.0
LEFT_ALONE_S = 0.5
COMMITTED_MIN = 5
PARTITIONS = (
    (Link(CLIENT, "node 0"),),
    (Link("node 0", "node 1"), Link("node 1", "node 0")),
    (Link("node 1", "master"),),
    (Link("proxy", "master"),),
)


class Storm:
    """Each partition once, then a seed's troubles; they overlap. In the end all is healed."""

    def __init__(self, linked: LinkedCluster, seed: int) -> None:
        self._linked = linked
        random = Random(seed)
        links = list(linked.links)
        self._troubles = [
            Trouble(CUT_MS // 4, "cut", cut, CUT_MS, 1.0, False) for cut in PARTITIONS
        ]
        self._troubles += [draw_trouble(random, links, AFTER_MS_MEAN) for _ in range(TROUBLES)]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as running:
            for trouble in self._troubles:
                await asyncio.sleep(trouble.after_ms / 1000)
                running.create_task(self._happen(trouble))
        self._linked.heal()
        await asyncio.sleep(LEFT_ALONE_S)

    async def _happen(self, trouble: Trouble) -> None:
        await asyncio.to_thread(self._linked.begin, trouble)
        await asyncio.sleep(trouble.duration_ms / 1000)
        await asyncio.to_thread(self._linked.end, trouble)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedCluster]:
    with LinkedCluster(tmp_path_factory.mktemp("linked") / "cluster") as running:
        yield running


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_a_workload_holds_over_links_that_break(linked: LinkedCluster, workload: str) -> None:
    seed = sorted(WORKLOADS).index(workload)
    late_bytes = sum(relay.late_bytes for relay in linked.links.values())
    order = Order(linked.master_url, workload, seed, patience_ms=PATIENCE_MS)
    report = asyncio.run(verify(order, Storm(linked, seed).run))
    print("\n".join(report.lines()))
    assert report.violations == []
    assert Counts.of(report.history).committed >= COMMITTED_MIN
    assert sum(relay.late_bytes for relay in linked.links.values()) > late_bytes


def test_each_pair_of_processes_uses_its_own_link(linked: LinkedCluster) -> None:
    """Else a partition of two of them would be none. Nodes meet once they share a transaction."""
    used = {str(link) for link, relay in linked.links.items() if relay.connection_count}
    nodes = [f"node {cell}" for cell in range(len(linked.cluster.node_urls))]
    assert {f"client to {name}" for name in ("master", "proxy", *nodes)} <= used
    assert {f"{name} to master" for name in ("proxy", *nodes)} <= used
    assert {f"{one} to {other}" for one in nodes for other in nodes if one != other} <= used
