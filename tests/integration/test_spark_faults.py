"""Spark jobs with real executors while tasks, executors, drivers, nodes and tables fail.

Owns: what must be true of the table afterwards, whatever happened: with atomicity full all rows of
the job or none; without, no row but the job's, and all of them once it succeeded.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import dodona
from dodona_local.launcher import LocalCluster
from integration.spark_faults import (
    Fault,
    always_fail,
    both,
    fail_first_attempts,
    kill_an_executor,
    pause,
    register_faulty,
    wait_for,
)
from suite.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PAIRS = [
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
ROWS = 4_000
PARTITIONS = 4
ATOMICITIES = ("full", "none")


def create(db: dodona.Client, name: str, atomicity: Any) -> None:
    pivots: list[list[int]] = [[], [1000], [2000], [3000]]
    db.create_table(name, PAIRS, atomicity=atomicity, pivot_keys=pivots, mount=True)


@pytest.fixture
def table(db: dodona.Client, path: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Four tablets in two nodes; of the atomicity that the test is about."""
    parametrized = getattr(request.node, "callspec", None)
    atomicity: Any = "full" if parametrized is None else parametrized.params["atomicity"]
    name = f"{path}_{atomicity}"
    create(db, name, atomicity)
    db.insert_rows(name, [{"k": 1, "v": -1}, {"k": ROWS + 1, "v": -2}])
    yield name
    db.remove(name)


def frame(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    numbers = spark.range(0, rows, 1, PARTITIONS)
    return numbers.select(f.col("id").alias("k"), (2 * f.col("id")).alias("v"))


def rows_of(db: dodona.Client, table: str) -> dict[int, int]:
    return {row["k"]: row["v"] for row in db.select(table)}


BEFORE = {1: -1, ROWS + 1: -2}
ROWS_OF_JOB = {number: 2 * number for number in range(ROWS)}
AFTER = {**ROWS_OF_JOB, ROWS + 1: -2}
HURRIED = {"call_timeout_ms": "2000"}
SILENT_SECONDS_MAX = 120
"""A write and a read, whose calls are tried again in other tasks."""


FAULTY = "dodona_faulty"


def save(
    spark: SparkSession, url: str, table: str, fault: Fault, atomicity: str, **options: str
) -> None:
    register_faulty(spark, FAULTY, fault)
    write(spark, url, table, atomicity, **options)


def write(spark: SparkSession, url: str, table: str, atomicity: str, **options: str) -> None:
    writer = frame(spark).write.format(FAULTY).mode("append").option("url", url)
    writer.options(atomicity=atomicity, **options).save(table)


@contextmanager
def saving(
    spark: SparkSession, url: str, table: str, fault: Fault, atomicity: str
) -> "Iterator[Future[None]]":
    """While a job runs, in a thread of its own, for which the session has to be named."""
    register_faulty(spark, FAULTY, fault)

    def run() -> None:
        assert spark._jvm is not None
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        write(spark, url, table, atomicity)

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run)


def settled(db: dodona.Client, table: str) -> dict[int, int]:
    """What is in the table, and stays in it while tasks that nobody waits for come to their end."""
    found = rows_of(db, table)
    time.sleep(2)  # what comes later is not seen
    assert rows_of(db, table) == found
    return found


@pytest.mark.parametrize("atomicity", ATOMICITIES)
def test_tasks_that_fail_behind_their_side_effects(
    spark: SparkSession, db: dodona.Client, url: str, table: str, atomicity: str
) -> None:
    save(spark, url, table, fail_first_attempts(), atomicity)
    assert rows_of(db, table) == AFTER
    if atomicity == "full":
        record = db.loads.list_loads()[-1]
        assert record.state == "finished"
        assert record.row_count == ROWS  # of the attempts that count, and of no others


@pytest.mark.parametrize("atomicity", ATOMICITIES)
def test_an_executor_that_is_killed(
    spark: SparkSession, db: dodona.Client, url: str, table: str, atomicity: str, tmp_path: Path
) -> None:
    save(spark, url, table, kill_an_executor(tmp_path), atomicity)
    assert (tmp_path / "killed").exists()
    assert rows_of(db, table) == AFTER


@pytest.mark.parametrize("atomicity", ATOMICITIES)
def test_a_job_that_is_given_up_while_tasks_still_write(
    spark: SparkSession, db: dodona.Client, url: str, table: str, atomicity: str, tmp_path: Path
) -> None:
    """One partition fails for good; another has not written its rows by then, and tries to."""
    faults = both(pause(tmp_path, 0, "before"), always_fail(PARTITIONS - 1))
    with saving(spark, url, table, faults, atomicity) as job:
        wait_for(tmp_path / "arrived", job)
        with pytest.raises(PySparkException, match="fails for good"):
            job.result()
    before_late_task = rows_of(db, table)
    (tmp_path / "go_on").touch()
    found = settled(db, table)
    assert found == before_late_task
    if atomicity == "full":
        assert found == BEFORE
        assert db.loads.list_loads()[-1].state == "aborted"
    else:
        assert found.items() <= (BEFORE | AFTER).items() | {(1, -1)}


@pytest.mark.parametrize("atomicity", ATOMICITIES)
def test_a_table_that_is_unmounted_in_the_middle(
    spark: SparkSession, db: dodona.Client, url: str, table: str, atomicity: str, tmp_path: Path
) -> None:
    faults = pause(tmp_path, 0, "before")
    with saving(spark, url, table, faults, atomicity) as job:
        wait_for(tmp_path / "arrived", job)
        db.unmount_table(table)
        (tmp_path / "go_on").touch()
        # Which it is depends on who is asked first: the tablet, or the cell that had the load.
        with pytest.raises(PySparkException, match=r"unmounted.* state|The table was unmounted"):
            job.result()
    db.mount_table(table)
    found = settled(db, table)
    if atomicity == "full":
        assert found == BEFORE
    else:
        assert found.items() <= (BEFORE | AFTER).items() | {(1, -1)}


def test_a_remount_during_a_load_discards_the_staged_rows(
    spark: SparkSession, db: dodona.Client, url: str, table: str, tmp_path: Path
) -> None:
    faults = pause(tmp_path, 0, "after")
    with saving(spark, url, table, faults, "full") as job:
        wait_for(tmp_path / "arrived", job)
        db.unmount_table(table)
        db.mount_table(table)
        (tmp_path / "go_on").touch()
        with pytest.raises(PySparkException, match="was unmounted during the load"):
            job.result()
    assert settled(db, table) == BEFORE
    save(spark, url, table, lambda _: None, "full")
    assert rows_of(db, table) == AFTER


@pytest.mark.parametrize("atomicity", ATOMICITIES)
def test_a_node_that_is_killed(spark: SparkSession, atomicity: str, tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "data", back_off_s_max=1.0) as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        create(db, "//t", atomicity)
        faults = pause(tmp_path, 0, "before")
        with saving(spark, cluster.master_url, "//t", faults, atomicity) as job:
            wait_for(tmp_path / "arrived", job)
            cluster.kill("node 0")
            (tmp_path / "go_on").touch()
            job.result()
        assert rows_of(db, "//t") == ROWS_OF_JOB


def test_a_silent_node_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with (
        LocalCluster(tmp_path / "data") as cluster,
        dodona.connect(cluster.master_url) as db,
    ):
        url = cluster.master_url
        for atomicity in ATOMICITIES:
            create(db, f"//{atomicity}", atomicity)
            save(spark, url, f"//{atomicity}", lambda _: None, atomicity)
        cluster.pause("node 1")
        named = rf"cell 1 at {re.escape(cluster.node_urls[1])}"
        for atomicity in ATOMICITIES:
            began = time.monotonic()
            with pytest.raises(PySparkException, match=named):
                write(spark, url, f"//{atomicity}", atomicity, **HURRIED)
            reader = spark.read.format("dodona").options(url=url, **HURRIED)
            with pytest.raises(PySparkException, match=named):
                reader.load(f"//{atomicity}").count()
            assert time.monotonic() - began < SILENT_SECONDS_MAX
        cluster.resume("node 1")
        for atomicity in ATOMICITIES:
            write(spark, url, f"//{atomicity}", atomicity)
            assert rows_of(db, f"//{atomicity}") == ROWS_OF_JOB


DRIVER = """
import sys
from pyspark.sql import SparkSession, functions as f
from integration.spark_faults import pause, register_faulty
from pathlib import Path

url, table, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
register_faulty(spark, "dodona_faulty", pause(Path(folder), 0, "after"))
rows = spark.range(0, 4000, 1, 4).select(f.col("id").alias("k"), (2 * f.col("id")).alias("v"))
rows.write.format("dodona_faulty").mode("append").options(url=url, lease_s="8").save(table)
"""


def run_script(text: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A driver of its own, in a process group of its own."""
    paths = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    variables |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.Popen(
        command,
        env=variables,
        start_new_session=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_driver_that_is_killed(db: dodona.Client, url: str, table: str, tmp_path: Path) -> None:
    """What it had staged is dropped when its lease ends, and whoever comes next clears up."""
    driver = run_script(DRIVER, url, table, str(tmp_path))
    try:
        wait_for(tmp_path / "arrived")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    assert rows_of(db, table) == BEFORE
    load = db.loads.list_loads()[-1]
    assert (load.state, load.tables) == ("running", (table,))
    recovered = wait_until(
        lambda: db.loads.recover("the test"), "its lease never ended", pause_s=0.2
    )
    assert [(it.load, it.outcome) for it in recovered] == [(load.load, "rolled_back")]
    assert recovered == db.loads.list_recoveries()[-1:]
    assert db.loads.list_loads()[-1].state == "aborted"
    assert settled(db, table) == BEFORE


# Clocks


OFF_BY_S = 120
CLOCK = f"""
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {OFF_BY_S}
time.time_ns = lambda: _time_ns() + {OFF_BY_S} * 1_000_000_000
"""
CLOCKED = """
import sys
from pyspark.sql import SparkSession, functions as f

url, table, atomicity, executor_path = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[1,1,1024]").config("spark.ui.enabled", "false")
spark = builder.config("spark.executorEnv.PYTHONPATH", executor_path).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(0, 4000, 1, 4).select(f.col("id").alias("k"), (2 * f.col("id")).alias("v"))
options = {"url": url, "atomicity": atomicity}
try:
    rows.write.format("dodona").mode("append").options(**options).save(table)
finally:
    spark.stop()
"""


@pytest.fixture
def wrong_clock(tmp_path: Path) -> str:
    """A folder that, in the path of a Python process, sets its clock wrong."""
    folder = tmp_path / "clock"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(CLOCK)
    probe = [sys.executable, "-c", "import time; print(time.time())"]
    told = subprocess.run(
        probe, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, check=True
    )
    assert float(told.stdout) > time.time() + OFF_BY_S / 2, "the clock is not off at all"
    return str(folder)


@pytest.mark.parametrize("atomicity", ATOMICITIES)
def test_executors_with_wrong_clocks_write_all_rows(
    db: dodona.Client, url: str, table: str, atomicity: str, wrong_clock: str
) -> None:
    """The job has one stamp, which the driver gave it."""
    known = os.environ.get("PYTHONPATH", "")
    executor_path = os.pathsep.join([wrong_clock, *filter(None, [known])])
    driver = run_script(CLOCKED, url, table, atomicity, executor_path)
    said, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, said
    assert rows_of(db, table) == AFTER


def test_a_driver_with_a_wrong_clock_gets_an_error_that_names_the_clock(
    db: dodona.Client, url: str, path: str, wrong_clock: str
) -> None:
    db.create_table(path, PAIRS, atomicity="none", mount=True)
    paths = [wrong_clock, *filter(None, [os.environ.get("PYTHONPATH")])]
    driver = run_script(CLOCKED, url, path, "none", "", PYTHONPATH=os.pathsep.join(paths))
    said, _ = driver.communicate(timeout=300)
    assert driver.returncode
    assert "Transaction timestamp is off limits, check the local clock readings" in said
    assert not rows_of(db, path)


# Conflicts


def test_the_driver_gets_a_conflict_with_its_name_and_key(
    spark: SparkSession, db: dodona.Client, url: str, table: str, tmp_path: Path
) -> None:
    with saving(spark, url, table, pause(tmp_path, 0, "after"), "full") as job:
        wait_for(tmp_path / "arrived", job)
        db.insert_rows(table, [{"k": 17, "v": 99}])
        (tmp_path / "go_on").touch()
        with pytest.raises(PySparkException, match=r"ConcurrentAppend: .*'k': 17"):
            job.result()
    assert settled(db, table) == {**BEFORE, 17: 99}
    save(spark, url, table, lambda _: None, "full", on_conflict="overwrite")
    assert rows_of(db, table) == AFTER


@pytest.mark.parametrize(("given", "wanted"), [("none", "full"), ("full", "none")])
def test_a_mode_that_is_not_the_tables_reaches_the_driver(
    spark: SparkSession, db: dodona.Client, url: str, path: str, given: str, wanted: Any
) -> None:
    db.create_table(f"{path}_{wanted}", PAIRS, atomicity=wanted, mount=True)
    with pytest.raises(PySparkException, match=f'Invalid atomicity mode: "{given}"'):
        save(spark, url, f"{path}_{wanted}", lambda _: None, given)
