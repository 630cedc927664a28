"""Run the demonstration: load a year of flights in bulk, post them by transactions, and check.

Owns: the order of the steps and the text about each. `Demo` runs over any database, and takes
loading and posting as arguments. So a test can run the same steps with its own data, and kill
processes meanwhile.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import dodona
from dodona_local import demo_check as check
from dodona_local.demo_data import (
    BATCH_FLIGHTS,
    BATCH_FLIGHTS_EMBEDDED,
    POSTED_FROM,
    Batch,
    deal_batches,
    sum_of,
    totals_by_carrier_day,
)
from dodona_local.demo_post import WORKERS, Book, post_by_tasks, post_by_threads
from dodona_local.demo_screen import Bar, Screen
from dodona_local.demo_source import (
    carrier_names,
    flights_table,
    note_of_source,
    title_of_source,
)
from dodona_local.demo_tables import CARRIER_DAY, FLIGHTS, TABLES, CarrierCells, create_tables
from dodona_local.launcher import LocalCluster
from dodona_local.replicas import COPIES, Replicas

DATA: Final = "cluster"
"""The folder of the cluster's data."""
VICTIM: Final = "node 1"
FAULTS_SHOWN_MAX: Final = 5
LOAD_ROWS: Final = 20_000

Load = Callable[[Bar], None]
"""Loads all flights into `FLIGHTS`, and moves the bar."""

Post = Callable[[Sequence[Batch], Book], None]
"""Posts all batches, and notes each in the book."""


@dataclass
class Demo:
    """The steps over a running database. `run` takes them in order."""

    db: dodona.Client
    screen: Screen
    flights: Any
    """A `pyarrow.Table` of all flights, straight from the source: the expected data."""
    load: Load
    post: Post
    loader_name: str = "Arrow batches"
    batch_flights: int = BATCH_FLIGHTS
    on_progress: Callable[[int, int], None] = lambda done, total: None
    """Called with the number of acknowledged batches and of all batches. A test kills processes
    here."""
    book: Book = field(default_factory=Book)
    faults: list[str] = field(default_factory=list)
    """All errors that were found so far, in words."""

    def run(self) -> bool:
        """Run all steps. Return whether all results are right."""
        self.create_tables()
        self.load_flights()
        self.post_flights(self.read_batches())
        self.compare()
        return not self.faults

    def create_tables(self) -> None:
        """Run step 2: create the tables."""
        self.screen.step(2, "Tables")
        create_tables(self.db)
        for table in TABLES:
            route = self.db.get_table(table.path)
            cells = [tablet.cell for tablet in route.tablets]
            self.screen.line(
                f"{table.path:20}  atomicity {table.atomicity:4}  "
                f"{len(cells)} tablets on {_nodes(cells)}"
            )

    def load_flights(self) -> None:
        """Run step 3: load the flights."""
        count = self.flights.num_rows
        self.screen.step(3, f"Bulk load by {self.loader_name}, atomicity none")
        with self.screen.bar("flights", count, "rows") as bar:
            self.load(bar)
            bar.stop_clock()
        self.screen.line(f"{count:,} flights in {bar.seconds:.1f} s: {bar.rate}")

    def read_batches(self) -> list[Batch]:
        """Return the batches to post, from the loaded table, read at one timestamp."""
        timestamp = self.db.generate_timestamp()
        loaded = self.db.read_arrow(FLIGHTS, columns=POSTED_FROM, timestamp=timestamp)
        self._judge(
            f"{loaded.num_rows:,} flights read back at {timestamp}",
            [] if loaded.num_rows == self.flights.num_rows else ["flights are missing"],
        )
        return deal_batches(loaded, self.batch_flights)

    def post_flights(self, batches: Sequence[Batch]) -> None:
        """Run step 4: post the flights."""
        flights = sum_of(batch.sum() for batch in batches).flights
        self.screen.step(4, f"Post {flights:,} flights in {len(batches):,} transactions")
        self.screen.line(f"{WORKERS} workers write, and a reader takes snapshots meanwhile")
        self._say_how_many_cross(batches)
        with self.screen.bar("transactions", len(batches), "commits") as bar:
            self.book = Book(partial(self._note_progress, bar))
            reader = check.SnapshotReader(self.db, self._show_snapshot)
            with reader.running():
                self.post(batches, self.book)
                bar.stop_clock()
        self._report_posting(bar, reader.snapshots)

    def compare(self) -> None:
        """Run step 5: compare the tables with the source."""
        self.screen.step(5, "The answer, against the source")
        end = check.take_reading(self.db)
        headings = ("", "carrier", "worst day", "late that day", "flights", "mean delay")
        self.screen.table(headings, check.carrier_rows(end.totals, carrier_names()), texts=3)
        expected = totals_by_carrier_day(self.flights)
        minutes = sum_of(expected.values()).minutes
        self._judge(
            f"{len(self.book.acknowledged):,} acknowledged commits are all there, once each",
            check.faults_of_markers(end.markers, self.book.acknowledged),
        )
        self._judge(
            f"{len(expected):,} totals at {end.timestamp} equal the source's, "
            f"to the minute of {minutes:,}",
            check.faults_of_totals(end.totals, expected),
        )

    def _say_how_many_cross(self, batches: Sequence[Batch]) -> None:
        cells = CarrierCells(self.db.get_table(CARRIER_DAY))
        count = sum(len(cells.of(batch)) > 1 for batch in batches)
        if count:
            self.screen.line(f"{count:,} of the transactions change rows on two nodes")

    def _note_progress(self, bar: Bar, count: int) -> None:
        bar.set_count(count)
        self.on_progress(count, bar.total)

    def _show_snapshot(self, snapshot: check.KeptReading) -> None:
        self._judge(
            f"snapshot {snapshot.timestamp}: {len(snapshot.batches):,} batches posted "
            f"{snapshot.posted.minutes:,} min, {snapshot.arrived.minutes:,} min arrived",
            check.faults_of_snapshot(snapshot, {}),
        )

    def _report_posting(self, bar: Bar, snapshots: Sequence[check.KeptReading]) -> None:
        book = self.book
        self.screen.line(
            f"{bar.count:,} commits in {bar.seconds:.1f} s: {bar.rate}; "
            f"{book.retry_count:,} attempts met a conflict and were repeated"
        )
        stamps = [it.timestamp for it in book.acknowledged.values() if it.timestamp is not None]
        self.screen.line(
            f"timestamps used: {book.attempt_count:,} to start, one a node to prepare; "
            f"commits from {min(stamps)} to {max(stamps)}"
        )
        faults = [
            fault
            for snapshot in snapshots
            for fault in check.faults_of_snapshot(snapshot, book.acknowledged)
        ]
        self._judge(
            f"snapshots: {len(snapshots)}; each shows the commits up to its timestamp, no other",
            faults,
        )

    def _judge(self, claim: str, faults: Sequence[str]) -> None:
        """Print that the claim holds, or the facts that contradict it."""
        if not faults:
            self.screen.good(claim)
            return
        self.screen.bad(claim)
        for fault in faults[:FAULTS_SHOWN_MAX]:
            self.screen.line(f"  {fault}")
        if len(faults) > FAULTS_SHOWN_MAX:
            self.screen.line(f"  … and {len(faults) - FAULTS_SHOWN_MAX:,} more")
        self.faults += faults


def _nodes(cells: Sequence[int | None]) -> str:
    names = sorted({str(cell) for cell in cells})
    return f"node {names[0]}" if len(names) == 1 else f"nodes {' and '.join(names)}"


def run_demo(
    *, is_embedded: bool, is_replicated: bool = False, no_spark: str | None = None
) -> bool:
    """Run the whole demonstration in a temporary folder. Return whether all results are right.

    `no_spark` says why Spark's step is left out, if it is: then the client loads the flights. With
    `is_replicated`, logs have copies, and a node loses its folder and its process in step 4.
    """
    screen = Screen()
    screen.title(title_of_source())
    note = note_of_source()
    if note is not None:
        screen.line(note)
    with tempfile.TemporaryDirectory(prefix="dodona-demo-") as folder:
        if is_embedded:
            is_right = run_embedded(Path(folder), screen)
        elif no_spark is None:
            is_right = run_with_spark(Path(folder), screen, is_replicated)
        else:
            is_right = run_without_spark(Path(folder), screen, no_spark, is_replicated)
    left_out = "" if is_embedded or no_spark is None else " Spark's step was left out."
    text = "Everything adds up." if is_right else "It does not add up."
    screen.verdict(text + left_out, is_right)
    return is_right


def run_embedded(folder: Path, screen: Screen) -> bool:
    """Run the demonstration inside this process: no servers, no Spark. Threads post."""
    screen.step(1, "Open a database in this process")
    flights = flights_table()
    with dodona.open(str(folder / "data")) as db:
        screen.line(f"{db}")
        load = partial(load_by_client, db, flights)
        post = partial(post_by_threads, db)
        return Demo(db, screen, flights, load, post, batch_flights=BATCH_FLIGHTS_EMBEDDED).run()


def run_with_spark(folder: Path, screen: Screen, is_replicated: bool) -> bool:
    """Run the demonstration on a cluster of processes on this machine. Spark loads, asyncio tasks
    post."""
    from dodona_local.demo_spark import SparkLoader

    screen.step(1, f"{_parts(is_replicated)}; and Spark beside them")
    with (
        SparkLoader(folder) as spark,
        _cluster(folder, screen, is_replicated) as cluster,
        dodona.connect(url := cluster.master_url) as db,
    ):
        flights = flights_table()
        load = partial(spark.load, url, flights.num_rows)
        demo = Demo(db, screen, flights, load, partial(post_by_tasks, url), "Spark")
        if is_replicated:
            demo.on_progress = LostNode(cluster, folder, screen)
        return demo.run()


def run_without_spark(folder: Path, screen: Screen, why: str, is_replicated: bool) -> bool:
    """Run the demonstration on a cluster of processes on this machine. The client loads."""
    screen.line(f"Without Spark: {why}")
    screen.line(
        "The client loads the flights instead. With --embedded there are no servers, either"
    )
    screen.step(1, _parts(is_replicated))
    with (
        _cluster(folder, screen, is_replicated) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        flights = flights_table()
        load = partial(load_by_client, db, flights)
        demo = Demo(db, screen, flights, load, partial(post_by_tasks, cluster.master_url))
        if is_replicated:
            demo.on_progress = LostNode(cluster, folder, screen)
        return demo.run()


def _parts(is_replicated: bool) -> str:
    copies = ", etcd and three log replicas" if is_replicated else ""
    return f"Start a master, a proxy and two tablet nodes{copies}"


@contextmanager
def _cluster(folder: Path, screen: Screen, is_replicated: bool) -> Iterator[LocalCluster]:
    """Run a cluster in the folder for the length of a `with` block."""
    replicas = Replicas(COPIES) if is_replicated else None
    with LocalCluster(folder / DATA, warn=screen.line, replicas=replicas) as cluster:
        for name, status in cluster.processes.items():
            screen.line(f"{name:9} {status.url}")
        yield cluster


class LostNode:
    """Removes the folder of a node and kills the node, once half of the batches are posted."""

    def __init__(self, cluster: LocalCluster, folder: Path, screen: Screen) -> None:
        self._cluster = cluster
        self._folder = folder / DATA / VICTIM.replace(" ", "-")
        self._screen = screen
        self._is_done = False

    def __call__(self, done: int, total: int) -> None:
        if self._is_done or 2 * done < total:
            return
        self._is_done = True
        shutil.rmtree(self._folder, ignore_errors=True)
        self._cluster.kill(VICTIM)
        self._screen.line(f"{VICTIM} lost its folder and its process after {done:,} transactions")


def load_by_client(db: dodona.Client, flights: Any, bar: Bar) -> None:
    """Load all flights as Arrow batches, without Spark."""
    for batch in flights.to_batches(max_chunksize=LOAD_ROWS):
        bar.advance(db.write_arrow(FLIGHTS, batch))
