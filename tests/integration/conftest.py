"""Fixtures for tests with real processes: one cluster for all that leave it as they found it."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dodona
from dodona_local.launcher import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Master, proxy and two nodes. Whoever kills something starts a cluster of its own."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(folder / "data") as running:
        yield running


@pytest.fixture
def db(cluster: LocalCluster) -> Iterator[dodona.Client]:
    """A client of the shared cluster."""
    with dodona.connect(cluster.master_url) as client:
        yield client


@pytest.fixture
def url(cluster: LocalCluster) -> str:
    """Of the shared cluster's master."""
    return cluster.master_url


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    """Of a table that no other test uses."""
    name = request.node.originalname
    return f"//{request.node.path.stem}/{name}"


SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java for a process that lives for a minute: the second compiler and the threads of
another collector would cost more than they save."""


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """The one session, with two executors that are processes of their own, as in a real cluster.
    Workers run this very Python, which has this very package."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("tests")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    for place in ("driver", "executor"):
        builder = builder.config(f"spark.{place}.extraJavaOptions", SHORT_RUN)
    session = builder.getOrCreate()
    context = session.sparkContext
    context.setLogLevel("OFF")
    assert context._jvm is not None
    work = Path(str(context._jvm.System.getenv("SPARK_HOME"))) / "work" / context.applicationId
    yield session
    session.stop()
    shutil.rmtree(work, ignore_errors=True)  # the executors' logs
