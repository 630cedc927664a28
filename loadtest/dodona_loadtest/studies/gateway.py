"""Study of the gateway: rows in and out over REST."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Study,
)
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import dodona, rest_postgres
from dodona_loadtest.peers.rest_caller import TABLE, RestCaller

CALLERS: Final = 32
BATCH_CALLERS: Final = 8
BATCH_ROWS: Final = 1_000
INSERTS: Final = f"inserts of 1 row, {CALLERS} callers"
LOOKUPS: Final = f"lookups of 1 key, {CALLERS} callers"
BATCHES: Final = f"inserts of {BATCH_ROWS:,} rows, {BATCH_CALLERS} callers"
SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "amount", "type": "double"},
    {"name": "count", "type": "int64"},
    {"name": "note", "type": "utf8"},
]
TABLE_MADE: Final = {"path": TABLE, "schema": SCHEMA, "mount": True}


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    with dodona.open_cluster(folder, gateway_count=1) as cluster:
        (url,) = cluster.gateway_urls
        httpx.post(f"{url}/v1/tables", json=TABLE_MADE, timeout=60).raise_for_status()
        with _calling(urlsplit(url).port or 0, effort, dodona.version()) as performance:
            yield performance


@contextmanager
def _postgres(folder: Path, effort: Effort) -> Iterator[Performance]:
    with (
        rest_postgres.serve(folder) as (port, version),
        _calling(port, effort, version) as performance,
    ):
        yield performance


@contextmanager
def _calling(port: int, effort: Effort, version: str) -> Iterator[Performance]:
    with WorkerProcess(RestCaller(port), effort.client_cores) as callers:
        callers.call(RestCaller.fill)

        def insert(count: int, rows: int) -> float:
            sample = callers.call(RestCaller.insert, count, rows, effort.measure_s)
            return sample.rate * rows

        def perform(number: int) -> Figures:
            return {
                INSERTS: insert(CALLERS, 1),
                LOOKUPS: callers.call(RestCaller.look_up, CALLERS, effort.measure_s).rate,
                BATCHES: insert(BATCH_CALLERS, BATCH_ROWS),
            }

        yield Performance(version, perform)


STUDY: Final = Study(
    name="gateway",
    title="Rows in and out over REST",
    fairness=(
        "One server process speaks HTTP, one client process has all callers, each on a connection "
        "of its own, and sends the same bytes to both: JSON, of rows of about 100 bytes, over keys "
        "that are there. Dodona's gateway is as `dodona up --insecure` starts it, before a node "
        "with one tablet; the peer is FastAPI with a pool of asyncpg's connections to PostgreSQL, "
        "one statement a request. What is acknowledged is on disk in both."
    ),
    performers=(
        Performer("Dodona", _dodona),
        Performer("FastAPI and PostgreSQL", _postgres),
    ),
    measures=(
        Measure(INSERTS, "rows/s"),
        Measure(LOOKUPS, "rows/s"),
        Measure(BATCHES, "rows/s"),
    ),
    bounds=(
        Bound(INSERTS, at_least=2_000),
        Bound(LOOKUPS, at_least=3_000),
        Bound(BATCHES, at_least=100_000),
    ),
)
