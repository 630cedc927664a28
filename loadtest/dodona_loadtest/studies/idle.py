"""Study: the cost of servers without callers, as processor time of all their processes."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import dodona
from dodona_loadtest.harness.errors import client_library
from dodona_loadtest.harness.servers import cpu_seconds
from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Study,
)
from dodona_loadtest.peers import etcd, postgres
from dodona_loadtest.peers.dodona import open_cluster, pids_of, version

TABLETS: Final = 1_000
TABLE_TABLETS: Final = 100
SETTLE_S: Final = 5.0
"""Seconds after which the remaining work of a start, or of a write, is over."""
MEASURE_RATIO: Final = 10
"""A measurement lasts this many times as long as others, because there is little to measure."""
SCHEMA: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "note", "type": "string"},
]

EMPTY: Final = "empty"
FULL: Final = "1,000 tablets with a row each"


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    with open_cluster(folder, node_count=2, gateway_count=1) as cluster:
        empty: list[float] = []

        def perform(_: int) -> Figures:
            if not empty:  # only before it has tables
                empty.append(_percent(pids_of(cluster), effort))
                _fill(cluster.master_url, effort.share(TABLETS))
            return {EMPTY: empty[0], FULL: _percent(pids_of(cluster), effort)}

        yield Performance(version(), perform)


def _fill(url: str, tablet_count: int) -> None:
    """Make tables with a row in each of their tablets."""
    with dodona.connect(url) as db:
        for number, first in enumerate(range(0, tablet_count, TABLE_TABLETS)):
            keys = range(min(TABLE_TABLETS, tablet_count - first))
            pivots: list[list[Any]] = [[], *([key] for key in keys[1:])]
            path = f"//idle/{number}"
            db.create_table(path, schema=SCHEMA, pivot_keys=pivots, mount=True)
            db.insert_rows(path, [{"id": key, "note": b"a row"} for key in keys])


@contextmanager
def _postgres(folder: Path, effort: Effort) -> Iterator[Performance]:
    with postgres.server(folder) as served:
        yield Performance(postgres.version(), lambda _: {EMPTY: _percent((served.pid,), effort)})


@contextmanager
def _etcd(folder: Path, effort: Effort) -> Iterator[Performance]:
    client_library("aetcd")
    with etcd.member(folder) as (_, pid):
        yield Performance(etcd.version(), lambda _: {EMPTY: _percent((pid,), effort)})


def _percent(pids: Sequence[int], effort: Effort) -> float:
    """Return the percentage of one core that these processes and all their children used."""
    time.sleep(SETTLE_S)
    began, used = time.monotonic(), cpu_seconds(pids)
    time.sleep(MEASURE_RATIO * effort.measure_s)
    return 100 * (cpu_seconds(pids) - used) / (time.monotonic() - began)


STUDY: Final = Study(
    name="idle",
    title="Servers that nobody uses",
    fairness=(
        "Processor time of all processes of a system to which no client is connected, in per cent "
        "of one core. Dodona is five processes, as `dodona up --nodes 2` starts them, PostgreSQL a "
        "server with its helpers, etcd a cluster of one member. The peers have no data."
    ),
    performers=(
        Performer("Dodona", _dodona),
        Performer("PostgreSQL", _postgres),
        Performer("etcd", _etcd),
    ),
    measures=(Measure(EMPTY, "% of a core"), Measure(FULL, "% of a core")),
    bounds=(Bound(EMPTY, at_most=1), Bound(FULL, at_most=1.5)),
    rounds_max=2,
)
