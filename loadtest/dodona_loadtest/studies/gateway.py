"""Study of the gateway: rows in and out over REST."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Story,
    Study,
)
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import rest_dodona, rest_postgres
from dodona_loadtest.peers.rest_caller import RestCaller

CALLERS: Final = 32
BATCH_CALLERS: Final = 8
BATCH_ROWS: Final = 1_000
INSERTS: Final = f"inserts of 1 row, {CALLERS} callers"
LOOKUPS: Final = f"lookups of 1 key, {CALLERS} callers"
BATCHES: Final = f"inserts of {BATCH_ROWS:,} rows, {BATCH_CALLERS} callers"
Serve = Callable[[Path], AbstractContextManager[tuple[int, str]]]
"""Starts a server in an empty folder. Yields its port and its name."""
Tell = Callable[[WorkerProcess[RestCaller], int, Effort], Figures]
"""Runs one round with the callers of the server at this port."""


def rest_story(serve: Serve, tell: Tell) -> Story:
    """Return the story of a server of rows, whose table is filled before."""

    @contextmanager
    def story(folder: Path, effort: Effort) -> Iterator[Performance]:
        with (
            serve(folder) as (port, version),
            WorkerProcess(RestCaller(port), effort.client_cores) as callers,
        ):
            callers.call(RestCaller.fill)
            yield Performance(version, lambda _: tell(callers, port, effort))

    return story


def _tell(callers: WorkerProcess[RestCaller], port: int, effort: Effort) -> Figures:
    inserts = callers.call(RestCaller.insert, CALLERS, 1, effort.measure_s)
    lookups = callers.call(RestCaller.look_up, CALLERS, effort.measure_s)
    batches = callers.call(RestCaller.insert, BATCH_CALLERS, BATCH_ROWS, effort.measure_s)
    return {
        **_figures(INSERTS, inserts, 1),
        **_figures(LOOKUPS, lookups, 1),
        **_figures(BATCHES, batches, BATCH_ROWS),
    }


def _figures(name: str, sample: Sample, rows: int) -> Figures:
    """Return rows a second, and how long a call takes."""
    return {
        name: sample.rate * rows,
        f"{name}: p50": sample.latency_us_p50 / 1e3,
        f"{name}: p99": sample.latency_us_p99 / 1e3,
    }


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
        Performer("Dodona", rest_story(rest_dodona.serve, _tell)),
        Performer("FastAPI and PostgreSQL", rest_story(rest_postgres.serve, _tell)),
    ),
    measures=tuple(
        measure
        for name in (INSERTS, LOOKUPS, BATCHES)
        for measure in (
            Measure(name, "rows/s"),
            Measure(f"{name}: p50", "ms"),
            Measure(f"{name}: p99", "ms"),
        )
    ),
    warms_up=True,
    bounds=(
        Bound(INSERTS, at_least=2_000),
        Bound(LOOKUPS, at_least=3_000),
        Bound(BATCHES, at_least=100_000),
    ),
)
