"""What the client's tests share: a pretended cluster, started once for each module."""

from collections.abc import Iterator

import pytest

from unit.client.cluster import FakeCluster, running_cluster


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[FakeCluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: FakeCluster) -> FakeCluster:
    """Started once, and empty."""
    it = shared_cluster
    it.master_answers = it.cell_answers = lambda body: None
    for store in (it.tables, it.rows, it.outcomes, it.prepared):
        store.clear()
    it.has_proxy = True
    return it
