"""Study of the effect of slow callers on others."""

from typing import Final

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.study import Bound, Effort, Figures, Measure, Performer, Study
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import rest_dodona, rest_postgres
from dodona_loadtest.peers.rest_caller import RestCaller
from dodona_loadtest.peers.slow_caller import SlowCallers
from dodona_loadtest.studies.gateway import rest_story

SLOW: Final = 500
OPEN_MIN: Final = 400
"""Some callers are just opening their next connection."""
OPEN_WITHIN_S: Final = 2.0
CALLERS: Final = 8
ALONE: Final = f"lookup, {CALLERS} callers alone: p99"
BESIDE: Final = f"lookup, beside {SLOW} slow sockets: p99"
INSERT_ALONE: Final = f"insert, {CALLERS} callers alone: p99"
INSERT_BESIDE: Final = f"insert, beside {SLOW} slow sockets: p99"
RATE_ALONE: Final = f"lookups, {CALLERS} callers alone"
RATE_BESIDE: Final = f"lookups, beside {SLOW} slow sockets"
MEASURED_ALONE: Final = (ALONE, INSERT_ALONE, RATE_ALONE)
MEASURED_BESIDE: Final = (BESIDE, INSERT_BESIDE, RATE_BESIDE)


def _tell(good: WorkerProcess[RestCaller], port: int, effort: Effort) -> Figures:
    alone = _measure(good, effort, MEASURED_ALONE)
    with WorkerProcess(SlowCallers(port, SLOW), effort.client_cores) as slow:
        slow.call(SlowCallers.start, OPEN_WITHIN_S)
        beside = _measure(good, effort, MEASURED_BESIDE)
        count = slow.call(SlowCallers.open_count)
    if count < OPEN_MIN:
        raise ContenderFailed(f"only {count} slow connections were open")
    return alone | beside


def _measure(
    good: WorkerProcess[RestCaller], effort: Effort, names: tuple[str, ...]
) -> dict[str, float]:
    """Return the p99 of lookups and of inserts in ms, and lookups a second."""
    found = good.call(RestCaller.look_up, CALLERS, effort.measure_s)
    put = good.call(RestCaller.insert, CALLERS, 1, effort.measure_s)
    figures = (found.latency_us_p99 / 1e3, put.latency_us_p99 / 1e3, found.rate)
    return dict(zip(names, figures, strict=True))


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
    warms_up=True,
    performers=(
        Performer("Dodona", rest_story(rest_dodona.serve, _tell)),
        Performer("FastAPI and PostgreSQL", rest_story(rest_postgres.serve, _tell)),
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
