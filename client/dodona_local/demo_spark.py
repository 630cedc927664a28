"""Load in bulk with Spark: a session on this machine, and its progress.

Owns: the session and the job. Spark takes seconds to start, so it starts in the background, at the
same time as the servers. Only this module of the demonstration imports pyspark, and only when it is
used.
"""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from dodona_local.demo_data import FLIGHT_COLUMNS, MISSING
from dodona_local.demo_screen import Bar
from dodona_local.demo_source import write_flights_csv
from dodona_local.demo_tables import FLIGHTS
from dodona_local.errors import LaunchFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_S: Final = 0.1
PARTITION_BYTES: Final = 2 << 20
"""The size of a partition: small enough that the bar moves, and large enough that tasks cost
little."""

JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a run of seconds: the optimizing compiler would cost more time than it saves."""

LOG_TAIL_CHARACTERS: Final = 500

SPARK_TYPES: Final = {"int64": "BIGINT", "utf8": "STRING"}
LOG_SETTINGS: Final = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


class SparkLoader:
    """A session for the length of a `with` block. At entry the session may still be starting."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "spark"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        self._threads = ThreadPoolExecutor(1, "spark")
        self._session: Future[SparkSession] = self._threads.submit(start_session, self._folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wait([self._session])
        if self._session.exception() is None:
            self._session.result().stop()
        self._threads.shutdown()

    def load(self, url: str, row_count: int, bar: Bar) -> None:
        """Load all flights into `FLIGHTS`, by one Spark job without atomicity."""
        frame = self._frame(write_flights_csv(self._folder))
        bar.restart_clock()
        job = self._threads.submit(_save, frame, url)
        while not wait([job], POLL_S).done:
            bar.set_count(int(row_count * self._done_share()))
        job.result()
        bar.set_count(row_count)

    def _frame(self, path: Path) -> "DataFrame":
        session = self._session.result()
        kinds = {column.name: SPARK_TYPES[column.type] for column in FLIGHT_COLUMNS}
        header = path.open().readline().strip().split(",")
        schema = ", ".join(f"{name} {kinds[name]}" for name in header)
        reader = session.read.schema(schema).option("header", True).option("nullValue", MISSING)
        return reader.csv(str(path)).select(*kinds)

    def _done_share(self) -> float:
        """Return the share of the running job's tasks that have finished."""
        tracker = self._session.result().sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        total = sum(stage.numTasks for stage in stages if stage is not None)
        return done / total if total else 0.0


def _save(frame: "DataFrame", url: str) -> None:
    writer = frame.write.format("dodona").mode("append")
    writer.option("url", url).option("atomicity", "none").save(FLIGHTS)


def start_session(folder: Path) -> "SparkSession":
    """Start a quiet session with two threads. The output of its processes goes to
    `folder`/spark.log.

    Raises LaunchFailed if the session does not start.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    settings = folder / "log4j2.properties"
    settings.write_text(LOG_SETTINGS)
    # By default workers run any `python3`, which may lack this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    options: dict[str, str | bool | int | float | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={settings} {JVM_OPTIONS}",
        "spark.local.dir": str(folder),
        "spark.sql.files.maxPartitionBytes": str(PARTITION_BYTES),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    log = folder / "spark.log"
    try:
        with _errors_into(log):
            return SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    except PySparkException as error:
        said = log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:].strip() or error
        raise LaunchFailed(f"Spark did not start. Its error: {said}") from error


@contextmanager
def _errors_into(path: Path) -> Iterator[None]:
    """Send file descriptor 2 to a file. A JVM that starts meanwhile inherits the file and keeps
    it."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    kept = os.dup(2)
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)
