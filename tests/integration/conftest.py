"""Fixtures for tests with real processes: one cluster for all that leave it as they found it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dodona
from dodona_local.launcher import LocalCluster


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
