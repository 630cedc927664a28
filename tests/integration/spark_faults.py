"""What goes wrong with Spark jobs, planted: a source whose tasks fail, die or wait when told to.

Owns: the faulty twin of the connector. It is made anew by each test, so that Spark copies it to the
executors whole: these have never heard of the tests.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

Fault = Callable[[str], None]
"""Called in each task with "before" its rows are written, and "after"."""

WAIT_S_MAX = 120


def register_faulty(spark: SparkSession, name: str, fault: Fault) -> None:
    """Make `format(name)` the connector, with this fault in its tasks."""
    from pyspark_dodona import DefaultSource
    from pyspark_dodona.writer import TableWriter

    class FaultyWriter(TableWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            fault("before")
            done = super().write(iterator)
            fault("after")
            return done

    class FaultySource(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return name

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            made = super().writer(schema, overwrite)
            return FaultyWriter(made._options, made._ticket)

    source: type[DataSource] = FaultySource
    spark.dataSource.register(source)


def fail_first_attempts() -> Fault:
    """Every task fails once, after all of its rows were written."""

    def fault(when: str) -> None:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        if when == "after" and task.attemptNumber() == 0:
            raise RuntimeError("planted: a task fails behind its side effects")

    return fault


def kill_an_executor(folder: Path) -> Fault:
    """The first task to have written its rows takes its executor with it."""
    marker = str(folder / "killed")

    def fault(when: str) -> None:
        if when == "before":
            return
        try:
            descriptor = os.open(marker, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return
        os.close(descriptor)
        process = os.getppid()  # the daemon that forks workers
        with open(f"/proc/{process}/stat") as file:
            executor = int(file.read().rsplit(")", 1)[1].split()[1])
        os.kill(executor, signal.SIGKILL)

    return fault


def pause(folder: Path, partition: int, when: str) -> Fault:
    """One task says that it has come so far, and waits until it may go on."""
    arrived, go_on = str(folder / "arrived"), str(folder / "go_on")
    wanted, seconds_max = when, WAIT_S_MAX

    def fault(when: str) -> None:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        if when != wanted or task.partitionId() != partition or task.attemptNumber():
            return
        with open(arrived, "w"):
            pass
        until = time.monotonic() + seconds_max
        while not os.path.exists(go_on) and time.monotonic() < until:
            time.sleep(0.02)

    return fault


def both(*faults: Fault) -> Fault:
    """One after the other."""

    def fault(when: str) -> None:
        for it in faults:
            it(when)

    return fault


def always_fail(partition: int) -> Fault:
    """One partition never comes to its end."""

    def fault(when: str) -> None:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        if when == "before" and task.partitionId() == partition:
            raise RuntimeError("planted: this partition fails for good")

    return fault


def wait_for(path: Path, job: "Future[Any] | None" = None) -> None:
    """Until a file is there. Raises what the job that should make it ended with."""
    until = time.monotonic() + WAIT_S_MAX
    while not path.exists():
        if job is not None and job.done():
            job.result()
        assert time.monotonic() < until, f"{path.name} never came"
        time.sleep(0.02)
