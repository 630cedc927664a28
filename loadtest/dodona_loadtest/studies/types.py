"""Study of types: a table with logical types beside the same table with the stored types."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.rounds import rest
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
from dodona_loadtest.harness.worker_process import WorkerProcess
from dodona_loadtest.peers import dodona
from dodona_loadtest.peers.typed_rows import KEY_ROWS, Form, KeyTable, Target, TypedWorker

ROWS: Final = 500_000

LOGICAL: Final = "Dodona"
STORED: Final = "stored types"
LOAD: Final = "load"
LOAD_PER_CORE: Final = "load, per core"
SCANS: Final[dict[str, Target]] = {
    "scan to Arrow": "arrow",
    "SQL, all rows": "sql",
    "scan to Python rows": "rows",
}
LOOKUP_INTEGER: Final = "lookup by int64"
LOOKUPS: Final = {
    LOOKUP_INTEGER: KeyTable("//bench/by_integer", "int64"),
    "lookup by date": KeyTable("//bench/by_date", "date"),
    "lookup by decimal(10,2)": KeyTable("//bench/by_decimal", "decimal(10,2)"),
}
PATH: Final = "//bench/typed"


def _story(form: Form) -> Callable[[Path, Effort], AbstractContextManager[Performance]]:
    @contextmanager
    def story(folder: Path, effort: Effort) -> Iterator[Performance]:
        count = effort.share(ROWS)
        lookups = LOOKUPS if form == "logical" else {}
        with (
            dodona.open_cluster(folder) as cluster,
            WorkerProcess(TypedWorker(cluster.master_url, form), effort.client_cores) as worker,
        ):
            for table in lookups.values():
                worker.call(TypedWorker.fill, table)

            def perform(number: int) -> Figures:
                worker.call(TypedWorker.create, PATH)
                rest()
                before_s = cpu_seconds(dodona.pids_of(cluster))
                spent = worker.call(TypedWorker.load, PATH, count)
                cpu_s = spent.cpu_s + cpu_seconds(dodona.pids_of(cluster)) - before_s
                figures = {
                    LOAD: count / spent.duration_s,
                    LOAD_PER_CORE: count / max(cpu_s, 0.001),
                }
                worker.call(TypedWorker.flush, PATH)
                for name, target in SCANS.items():
                    args = (PATH, count, target, effort.measure_s)
                    figures[name] = worker.call(TypedWorker.scan, *args)
                for name, table in lookups.items():
                    sample = worker.call(TypedWorker.look_up, table, effort.measure_s)
                    figures[name] = sample.latency_us_p50
                worker.call(TypedWorker.remove, PATH)
                return figures

            yield Performance(dodona.version(), perform)

    return story


STUDY: Final = Study(
    name="types",
    title="Logical types beside the stored types: one caller in one client process",
    fairness=(
        f"{ROWS:,} rows (int64 key, date, timestamp, decimal(10,2), uuid, int32, float) beside "
        "rows with the same bytes in columns of the stored types. The load is of Arrow data into "
        "an empty table without atomicity, in one call. Scans are of all rows, in chunks. A date "
        "or a decimal of Python is an object that has to be made, so rows of logical types take "
        f"longer. Lookups (p50) are of random keys of {KEY_ROWS:,} rows, in chunks. Per core: rows "
        "for each second of processor time of client and servers."
    ),
    warms_up=True,
    performers=(
        Performer(LOGICAL, _story("logical")),
        Performer(STORED, _story("stored")),
    ),
    measures=(
        Measure(LOAD, "rows/s"),
        Measure(LOAD_PER_CORE, "rows/s"),
        *(Measure(name, "rows/s") for name in SCANS),
        *(Measure(name, "µs") for name in LOOKUPS),
    ),
    bounds=(
        *(
            Bound(name, at_least=0.9, times=(STORED, name))
            for name in (LOAD, LOAD_PER_CORE, "scan to Arrow", "SQL, all rows")
        ),
        *(
            Bound(name, at_most=1.05, times=(LOGICAL, LOOKUP_INTEGER))
            for name in LOOKUPS
            if name != LOOKUP_INTEGER
        ),
    ),
)
