"""Study 2: rows read from memory and from chunks, and the memory that a row takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dodona_loadtest.harness.durability import READS
from dodona_loadtest.harness.measure import Sample
from dodona_loadtest.harness.sample_rows import SampleRows
from dodona_loadtest.harness.servers import private_memory_bytes
from dodona_loadtest.harness.study import (
    Bound,
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Study,
)
from dodona_loadtest.peers import delta, dodona, lance, postgres
from dodona_loadtest.peers.delta import DeltaWorker, open_delta_worker
from dodona_loadtest.peers.dodona_storage import (
    DodonaWorker,
    check_in_memory,
    node_pid,
    serve_worker,
)
from dodona_loadtest.peers.lance import LanceWorker, open_lance_worker
from dodona_loadtest.peers.postgres_storage import PostgresWorker, serve_postgres_worker

SCANNED_ROWS: Final = 2_000_000
RESIDENT_ROWS: Final = 200_000
"""These rows are few enough to stay in memory until the flush, in a table with atomicity. A table
without it is flushed long before."""
KEYS_MANY: Final = 100

SCAN_CHUNKS: Final = "scan, from chunks"
SCAN_MEMORY: Final = "scan, from memory"
LOOKUP_CHUNKS: Final = "lookup of 1 key, flushed"
LOOKUP_MEMORY: Final = "lookup of 1 key, in memory"
LOOKUPS_CHUNKS: Final = f"lookup of {KEYS_MANY} keys, flushed"
LOOKUPS_MEMORY: Final = f"lookup of {KEYS_MANY} keys, in memory"
ROW_MEMORY: Final = "a row in memory"

SCANNED: Final = "//bench/scanned"
FLUSHED: Final = "//bench/flushed"
RESIDENT: Final = "//bench/resident"


@contextmanager
def _dodona(folder: Path, effort: Effort) -> Iterator[Performance]:
    scanned, resident = (
        SampleRows(effort.share(SCANNED_ROWS)),
        SampleRows(effort.share(RESIDENT_ROWS)),
    )
    with serve_worker(folder, effort.client_cores) as (cluster, worker):
        for path in (SCANNED, FLUSHED):
            worker.call(DodonaWorker.create, path)
        worker.call(DodonaWorker.create, RESIDENT, "full")
        # The first half is not counted, because it brings the memory that requests take only once.
        first, second = resident.slices(-(-resident.count // 2))
        worker.call(DodonaWorker.write_rows, RESIDENT, first)
        before_bytes = private_memory_bytes(node_pid(cluster))
        worker.call(DodonaWorker.write_rows, RESIDENT, second)
        row_bytes = (private_memory_bytes(node_pid(cluster)) - before_bytes) / second.count
        check_in_memory(cluster, RESIDENT)
        worker.call(DodonaWorker.write_rows, FLUSHED, resident)
        worker.call(DodonaWorker.flush, FLUSHED)
        worker.call(DodonaWorker.write_bulk, SCANNED, scanned)
        worker.call(DodonaWorker.flush, SCANNED)

        def scan(path: str, rows: SampleRows) -> float:
            half = max(1, rows.count // 2)
            return worker.call(DodonaWorker.scan, path, rows, half, effort.measure_s)

        def look_up(name: str, path: str, keys: int) -> Figures:
            args = (path, resident, keys, effort.measure_s)
            return _latencies(name, worker.call(DodonaWorker.look_up, *args))

        def perform(number: int) -> Figures:
            return {
                SCAN_CHUNKS: scan(SCANNED, scanned),
                SCAN_MEMORY: scan(RESIDENT, resident),
                **look_up(LOOKUP_CHUNKS, FLUSHED, 1),
                **look_up(LOOKUP_MEMORY, RESIDENT, 1),
                **look_up(LOOKUPS_CHUNKS, FLUSHED, KEYS_MANY),
                **look_up(LOOKUPS_MEMORY, RESIDENT, KEYS_MANY),
                ROW_MEMORY: row_bytes,
            }

        yield Performance(dodona.version(), perform)


@contextmanager
def _postgres(folder: Path, effort: Effort) -> Iterator[Performance]:
    scanned, resident = (
        SampleRows(effort.share(SCANNED_ROWS)),
        SampleRows(effort.share(RESIDENT_ROWS)),
    )
    with serve_postgres_worker(folder, effort.client_cores) as (_, worker):
        worker.call(PostgresWorker.create, "scanned", scanned)
        worker.call(PostgresWorker.create, "resident", resident)

        def look_up(names: tuple[str, str], keys: int) -> Figures:
            """Look rows up in its buffers, their only place: both names get the same figure."""
            args = ("resident", resident, keys, effort.measure_s)
            sample = worker.call(PostgresWorker.look_up, *args)
            return {key: it for name in names for key, it in _latencies(name, sample).items()}

        def perform(number: int) -> Figures:
            half = max(1, scanned.count // 2)
            return {
                SCAN_CHUNKS: worker.call(
                    PostgresWorker.scan, "scanned", scanned, half, effort.measure_s
                ),
                **look_up((LOOKUP_CHUNKS, LOOKUP_MEMORY), 1),
                **look_up((LOOKUPS_CHUNKS, LOOKUPS_MEMORY), KEYS_MANY),
            }

        yield Performance(postgres.version(), perform)


@contextmanager
def _delta(folder: Path, effort: Effort) -> Iterator[Performance]:
    scanned = SampleRows(effort.share(SCANNED_ROWS))
    with open_delta_worker(folder, effort.embedded_cores) as worker:
        worker.call(DeltaWorker.create, "scanned", scanned)

        def perform(number: int) -> Figures:
            half = max(1, scanned.count // 2)
            scan = worker.call(DeltaWorker.scan, "scanned", scanned, half, effort.measure_s)
            return {SCAN_CHUNKS: scan}

        yield Performance(delta.version(), perform)


def _latencies(name: str, sample: Sample) -> Figures:
    """Return the p50 under the name itself, and the p99."""
    return {name: sample.latency_us_p50, f"{name}: p99": sample.latency_us_p99}


@contextmanager
def _lance(folder: Path, effort: Effort) -> Iterator[Performance]:
    scanned = SampleRows(effort.share(SCANNED_ROWS))
    with open_lance_worker(folder, effort.embedded_cores) as worker:
        worker.call(LanceWorker.create, "scanned", scanned)

        def perform(number: int) -> Figures:
            half = max(1, scanned.count // 2)
            scan = worker.call(LanceWorker.scan, "scanned", scanned, half, effort.measure_s)
            return {SCAN_CHUNKS: scan}

        yield Performance(lance.version(), perform)


STUDY: Final = Study(
    name="reads",
    title="Reads from memory and from chunks: one caller in one client process",
    fairness=(
        f"Scans read random halves of tables: {SCANNED_ROWS:,} rows written in bulk and flushed, "
        f"{RESIDENT_ROWS:,} rows written one by one and in memory. Dodona gives Arrow tables, as "
        "do delta-rs and Lance, in the client's process and over all cores; PostgreSQL gives "
        "COPY's binary format, which nobody turns into anything. Lookups (p50, and p99) are of "
        f"random keys of {RESIDENT_ROWS:,} rows, through the client; PostgreSQL's rows fit its "
        "buffers, and its figures stand beside both of Dodona's. What a row in memory takes is the "
        "growth of the node's private memory by half of them, divided by their number."
    ),
    durability=READS,
    performers=(
        Performer("Dodona", _dodona),
        Performer("PostgreSQL", _postgres),
        Performer("Delta", _delta),
        Performer("Lance", _lance),
    ),
    measures=(
        Measure(SCAN_CHUNKS, "rows/s"),
        Measure(SCAN_MEMORY, "rows/s"),
        *(
            measure
            for name in (LOOKUP_CHUNKS, LOOKUP_MEMORY, LOOKUPS_CHUNKS, LOOKUPS_MEMORY)
            for measure in (Measure(name, "µs"), Measure(f"{name}: p99", "µs"))
        ),
        Measure(ROW_MEMORY, "bytes"),
    ),
    bounds=(
        Bound(SCAN_CHUNKS, at_least=5_000_000),
        Bound(SCAN_MEMORY, at_least=1_000_000),
        Bound(LOOKUP_CHUNKS, at_most=3, times=("Dodona", LOOKUP_MEMORY)),
        Bound(LOOKUPS_CHUNKS, at_most=3, times=("Dodona", LOOKUPS_MEMORY)),
    ),
    warms_up=True,
)
