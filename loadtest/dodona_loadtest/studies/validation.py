"""Study of validation: what a commit pays for a large range that its transaction has read."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.sample_rows import SampleRows
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
from dodona_loadtest.peers.dodona_validation import EmbeddedValidationWorker, ValidationWorker

ROWS: Final = 1_000_000
PATH: Final = "//bench/validated"
DIFFERENCE_MS_MAX: Final = 2

ONE_ROW: Final = "commit after one row"
ALL_ROWS: Final = "commit after all rows"
DIFFERENCE: Final = "difference"
SERVED: Final = ""
EMBEDDED: Final = ", embedded"
NAMES: Final = (ONE_ROW, ALL_ROWS, DIFFERENCE)


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    rows = SampleRows(effort.share(ROWS))
    with ExitStack() as stack:
        cluster = stack.enter_context(dodona.open_cluster(folder))
        served = WorkerProcess(ValidationWorker(cluster.master_url), effort.client_cores)
        embedded: WorkerProcess[ValidationWorker] = WorkerProcess(
            EmbeddedValidationWorker(str(folder / "embedded")), effort.embedded_cores
        )
        workers = {SERVED: served, EMBEDDED: embedded}
        for worker in workers.values():
            stack.enter_context(worker)
            worker.call(ValidationWorker.create, PATH)
            worker.call(ValidationWorker.write_bulk, PATH, rows)
            worker.call(ValidationWorker.set_atomicity, PATH, "full")

        def perform(number: int) -> Figures:
            figures: dict[str, float] = {}
            for place, worker in workers.items():
                args = (PATH, rows, effort.measure_s)
                one_ms, all_ms = worker.call(ValidationWorker.time_commits, *args)
                values = (one_ms, all_ms, max(0.0, all_ms - one_ms))
                figures |= {f"{name}{place}": it for name, it in zip(NAMES, values, strict=True)}
            return figures

        yield Performance(dodona.version(), perform)


STUDY: Final = Study(
    name="validation",
    title="Serializable commits after reads of one row, and of a million rows",
    fairness=(
        f"{ROWS:,} rows in chunks of one tablet. A serializable transaction reads one row, or all "
        "rows as one range. Meanwhile, others change ten rows of the tablet outside this range. "
        "The transaction writes a row there, too. Only its commit is timed (p50), by one caller: "
        "through a server, and embedded. The difference is what the validation of the large range "
        "takes. At the end of each round, a change inside the range is refused."
    ),
    performers=(Performer("Dodona", _dodona),),
    measures=tuple(
        Measure(f"{name}{place}", "ms") for place in (SERVED, EMBEDDED) for name in NAMES
    ),
    bounds=tuple(
        Bound(f"{DIFFERENCE}{place}", at_most=DIFFERENCE_MS_MAX) for place in (SERVED, EMBEDDED)
    ),
    warms_up=True,
    columns=3,
)
