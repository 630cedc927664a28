"""Study of what slow callers do to the others."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from dodona_loadtest.harness.errors import ContenderFailed
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
from dodona_loadtest.peers.rest_caller import RestCaller
from dodona_loadtest.peers.slow_caller import SlowCallers
from dodona_loadtest.studies.gateway import TABLE_MADE

SLOW: Final = 500
OPEN_MIN: Final = 400
"""Some are just opening their next connection."""
OPEN_WITHIN_S: Final = 2.0
CALLERS: Final = 8
ALONE: Final = f"lookup, {CALLERS} callers alone: p99"
BESIDE: Final = f"lookup, beside {SLOW} slow sockets: p99"
INSERT_ALONE: Final = f"insert, {CALLERS} callers alone: p99"
INSERT_BESIDE: Final = f"insert, beside {SLOW} slow sockets: p99"
RATE_ALONE: Final = f"lookups, {CALLERS} callers alone"
RATE_BESIDE: Final = f"lookups, beside {SLOW} slow sockets"


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
    with WorkerProcess(RestCaller(port), effort.client_cores) as good:
        good.call(RestCaller.fill)

        def perform(number: int) -> Figures:
            alone = _measure(good, effort)
            with WorkerProcess(SlowCallers(port, SLOW), effort.client_cores) as slow:
                slow.call(SlowCallers.start, OPEN_WITHIN_S)
                beside = _measure(good, effort)
                count = slow.call(SlowCallers.open_count)
            if count < OPEN_MIN:
                raise ContenderFailed(f"only {count} slow connections were open")
            return {
                ALONE: alone[0],
                BESIDE: beside[0],
                INSERT_ALONE: alone[1],
                INSERT_BESIDE: beside[1],
                RATE_ALONE: alone[2],
                RATE_BESIDE: beside[2],
            }

        yield Performance(version, perform)


def _measure(good: WorkerProcess[RestCaller], effort: Effort) -> tuple[float, float, float]:
    """p99 of lookups and of inserts in ms, and lookups a second."""
    found = good.call(RestCaller.look_up, CALLERS, effort.measure_s)
    put = good.call(RestCaller.insert, CALLERS, 1, effort.measure_s)
    return found.latency_us_p99 / 1e3, put.latency_us_p99 / 1e3, found.rate


STUDY: Final = Study(
    name="slow",
    title="Good callers beside slow ones, over REST",
    fairness=(
        f"{CALLERS} callers as in the study of the gateway, alone and then beside {SLOW} "
        "connections of a third process, each of which sends a byte or two a second: of headers, "
        "of a body, or between requests. Whoever is shut out opens another connection, so that so "
        "many are there all the time. Dodona's gateway has its default bounds; the peer has none "
        "but uvicorn's."
    ),
    performers=(
        Performer("Dodona", _dodona),
        Performer("FastAPI and PostgreSQL", _postgres),
    ),
    measures=(
        Measure(ALONE, "ms"),
        Measure(BESIDE, "ms"),
        Measure(INSERT_ALONE, "ms"),
        Measure(INSERT_BESIDE, "ms"),
        Measure(RATE_ALONE, "rows/s"),
        Measure(RATE_BESIDE, "rows/s"),
    ),
    bounds=(
        Bound(BESIDE, at_most=2, times=("Dodona", ALONE)),
        Bound(INSERT_BESIDE, at_most=2, times=("Dodona", INSERT_ALONE)),
    ),
)
