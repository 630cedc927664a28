"""Study 1: a batch of Arrow data into a table that is in use."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from dodona_loadtest.harness.errors import ContenderFailed
from dodona_loadtest.harness.rounds import rest
from dodona_loadtest.harness.sample_rows import SampleRows
from dodona_loadtest.harness.servers import cpu_seconds
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
from dodona_loadtest.harness.worker_process import Spent, WorkerProcess
from dodona_loadtest.peers import delta, dodona, lance, postgres
from dodona_loadtest.peers.delta import DeltaWorker, open_delta_worker
from dodona_loadtest.peers.dodona_storage import DodonaWorker, serve_worker
from dodona_loadtest.peers.lance import LanceWorker, open_lance_worker
from dodona_loadtest.peers.postgres_storage import PostgresWorker, serve_postgres_worker

ROWS: Final = 2_000_000

AMONG: Final = "rows among those there"
AMONG_PER_CORE: Final = "among those there, per core"
ABOVE: Final = "rows above those there"
ABOVE_PER_CORE: Final = "above those there, per core"


def _stories(effort: Effort) -> tuple[tuple[str, str, SampleRows, SampleRows], ...]:
    """Return the measures, the existing rows, and the new rows: as many again."""
    count = effort.share(ROWS)
    return (
        (
            AMONG,
            AMONG_PER_CORE,
            SampleRows(count, first=0, step=2),
            SampleRows(count, first=1, step=2),
        ),
        (ABOVE, ABOVE_PER_CORE, SampleRows(count), SampleRows(count, first=count)),
    )


def _figures(
    effort: Effort,
    server_pids: Callable[[], tuple[int, ...]],
    prepare: Callable[[SampleRows], None],
    load: Callable[[SampleRows], Spent],
    finish: Callable[[], None],
) -> Figures:
    """Run both stories of one contender."""
    figures = {}
    for name, per_core, there, new in _stories(effort):
        prepare(there)
        rest()  # else the load would pay for leftover writes of these rows
        before_s = cpu_seconds(server_pids())
        spent = load(new)
        cpu_s = spent.cpu_s + cpu_seconds(server_pids()) - before_s
        figures[name] = new.count / spent.duration_s
        figures[per_core] = new.count / max(cpu_s, 0.001)
        finish()
    return figures


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    path = "//bench/bulk"
    with serve_worker(folder, effort.client_cores) as (cluster, worker):

        def prepare(there: SampleRows) -> None:
            worker.call(DodonaWorker.create, path)
            worker.call(DodonaWorker.write_bulk, path, there)

        def perform(number: int) -> Figures:
            return _figures(
                effort,
                lambda: dodona.pids_of(cluster),
                prepare,
                lambda new: worker.call(DodonaWorker.write_bulk, path, new),
                lambda: worker.call(DodonaWorker.remove, path),
            )

        yield Performance(dodona.version(), perform)


@contextmanager
def _postgres(folder: Path, effort: Effort) -> Iterator[Performance]:
    with serve_postgres_worker(folder, effort.client_cores) as (served, worker):

        def perform(number: int) -> Figures:
            return _figures(
                effort,
                lambda: (served.pid,),
                lambda there: worker.call(PostgresWorker.create, "bulk", there),
                lambda new: worker.call(PostgresWorker.copy, "bulk", new),
                lambda: worker.call(PostgresWorker.remove, "bulk"),
            )

        yield Performance(postgres.version(), perform)


def _library(
    open_worker: Callable[[Path, frozenset[int]], AbstractContextManager[WorkerProcess[Any]]],
    kind: type[DeltaWorker] | type[LanceWorker],
    load: Callable[[Any, str, SampleRows], Awaitable[Spent]],
    version: Callable[[], str],
) -> Story:
    """Return the story of a library in the client's process, with that way of writing."""

    @contextmanager
    def story(folder: Path, effort: Effort) -> Iterator[Performance]:
        with open_worker(folder, effort.embedded_cores) as worker:

            def finish() -> None:
                if worker.call(kind.count, "bulk") != 2 * effort.share(ROWS):
                    raise ContenderFailed("rows that were written aren't all there")
                worker.call(kind.remove, "bulk")

            def perform(number: int) -> Figures:
                return _figures(
                    effort,
                    lambda: (),
                    lambda there: worker.call(kind.create, "bulk", there),
                    lambda new: worker.call(load, "bulk", new),
                    finish,
                )

            yield Performance(version(), perform)

    return story


def _delta(load: Callable[[Any, str, SampleRows], Awaitable[Spent]]) -> Story:
    return _library(open_delta_worker, DeltaWorker, load, delta.version)


def _lance(load: Callable[[Any, str, SampleRows], Awaitable[Spent]]) -> Story:
    return _library(open_lance_worker, LanceWorker, load, lance.version)


STUDY: Final = Study(
    name="bulk-load",
    title="Arrow data in bulk into a table in use, durable: one client process",
    fairness=(
        f"{ROWS:,} rows (int64 key, double, int64, string of 20 bytes; sorted) into a table that "
        "has as many, with keys among theirs or above them: an upsert by key in Dodona (atomicity "
        "none), Delta and Lance. PostgreSQL's COPY gets the rows ready-made in its own binary "
        "format, and its table has a primary key. Delta's and Lance's files are synced after their "
        "commits, which the libraries themselves do not do; they have no server, and use all "
        "cores; their appends look for no keys. The rows there are synced before, and rest for a "
        "second. What a system puts off until after its answer is not in the figures: Dodona and "
        "Lance merge what lies over one another later, PostgreSQL writes pages with its next "
        "checkpoint; Delta's MERGE has written all anew by then. Per core: rows for each second of "
        "processor time of client and servers."
    ),
    warms_up=True,
    performers=(
        Performer("Dodona", _dodona),
        Performer("PostgreSQL COPY", _postgres),
        Performer("Delta MERGE", _delta(DeltaWorker.merge)),
        Performer("Delta append", _delta(DeltaWorker.append)),
        Performer("Lance merge_insert", _lance(LanceWorker.merge)),
        Performer("Lance append", _lance(LanceWorker.append)),
    ),
    measures=(
        Measure(AMONG, "rows/s"),
        Measure(AMONG_PER_CORE, "rows/s"),
        Measure(ABOVE, "rows/s"),
        Measure(ABOVE_PER_CORE, "rows/s"),
    ),
    bounds=(
        Bound(AMONG_PER_CORE, at_least=1_500_000),
        Bound(AMONG, at_least=4, times=("PostgreSQL COPY", AMONG)),
        Bound(ABOVE, at_least=4, times=("PostgreSQL COPY", ABOVE)),
        Bound(AMONG, at_least=2, times=("Delta MERGE", AMONG)),
        Bound(ABOVE, at_least=2, times=("Delta MERGE", ABOVE)),
    ),
)
